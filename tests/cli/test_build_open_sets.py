"""`incognita build voc-coco`, `image-list` and `openimages`: written, printed, and refused."""

import json

import numpy as np
import pytest
from PIL import Image
from tests.benchmarks.open_set_cases import (
    SIZE,
    TREE,
    names_of,
    random_boxes,
    rules_toml,
    write_coco,
    write_openimages,
    write_pictures,
    write_voc,
)
from tests.benchmarks.test_superclasses import OWN
from tests.extraction.tiny_detector import NAMES, GridDetector
from tests.formats.test_bdd import BOX, write_frames
from tests.formats.test_yolo import write_yolo
from typer.testing import CliRunner

import incognita
from incognita.benchmarks.load import load_benchmark
from incognita.benchmarks.splits.open_sets import VOC_COCO
from incognita.cli.app import app
from incognita.errors import InvalidDataError, UnknownNameError


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["build", *map(str, arguments)])


@pytest.fixture
def sources(tmp_path):
    write_voc(tmp_path / "VOC2007", {"000001": ["person"], "000002": ["cow", "tvmonitor"]},
              test=["000001", "000002"])  # fmt: skip
    write_coco(tmp_path / "instances_val2017.json", {7: ["zebra"], 8: ["couch", "kite"]})
    (tmp_path / "list.txt").write_text("000001\n000000000007\n000000000007\n")


@pytest.fixture
def streets(tmp_path):
    rows = random_boxes(np.random.default_rng(6), 120, names_of(TREE))
    write_pictures(write_openimages(tmp_path / "openimages", rows), rows)
    (tmp_path / "mine.toml").write_text(rules_toml(OWN | {"published": {"images": 50}}))


def words(done) -> str:
    return " ".join(done.stdout.split())


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_voc_coco_is_built_printed_and_opened(run, sources, tmp_path):
    arguments = ("voc-coco", "--voc", "VOC2007", "--coco-annotations", "instances_val2017.json",
                 "--out", "out")  # fmt: skip
    done = run(*arguments)
    assert done.exit_code == 4, done.output
    assert "images of test 2 4,952" in words(done)
    assert "images of unknown 1 " in words(done)
    assert "unknown classes 60 60" in words(done)
    assert "partial: images of test: 2, but 4,952 are expected" in words(done)
    assert "Counts, classes and choices: out/manifest.json" in words(done)
    assert "Then: incognita run out/benchmark.toml --allow-outside --model YOURS" in words(done)
    assert done.stderr.splitlines() == [
        "reading VOC2007", "reading instances_val2017.json", "writing out",
    ]  # fmt: skip
    before = files_of(tmp_path / "out")
    assert run(*arguments).exit_code == 4
    assert files_of(tmp_path / "out") == before
    mixed = json.loads(run(*arguments, "--coco-test", "all", "--json").stdout)[0]
    assert mixed["sets"]["all"]["images"] == 4
    found = load_benchmark("out/benchmark.toml", cache_dir=tmp_path, allow_outside=True)
    assert len(found.mixed["all"].image_ids) == 4
    assert any("partial: images of test: 2" in note for note in found.notes)


def test_numbers_as_expected_end_in_code_0(run, sources, tmp_path):
    text = (
        VOC_COCO.read_text().replace("test = 4952", "test = 2").replace("coco = 5000", "coco = 2")
    )
    (tmp_path / "mine.toml").write_text(text)
    done = run("voc-coco", "--voc", "VOC2007", "--coco-annotations", "instances_val2017.json",
               "--tables", "mine.toml", "--out", "out")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "partial" not in done.stdout


def test_lists_are_imported(run, sources):
    arguments = ("image-list", "--list", "list.txt", "--source", "VOC2007", "--source",
                 "instances_val2017.json", "--out", "out")  # fmt: skip
    refused = run(*arguments)
    assert isinstance(refused.exception, InvalidDataError)
    assert "lists 1 image more than once" in str(refused.exception)
    done = run(*arguments, "--repeats", "drop")
    assert done.exit_code == 0, done.output
    assert "lines of list.txt 3" in words(done)
    assert "note: list.txt: 1 repeated line dropped" in words(done)
    kept = run(*arguments, "--repeats", "owod", "--n-known", 40)
    assert kept.exit_code == 0, kept.output
    assert "known classes 40" in words(kept)
    assert "No benchmark is written: some images are there twice." in words(kept)


def test_openimages_are_split_by_superclass(run, streets, tmp_path):
    arguments = ("openimages", "--openimages", "openimages", "--rules", "mine.toml", "--out", "out")
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert " 50 " in words(done)  # the number to compare with, which need not be met
    assert "super-class known unknown ignored objects" in words(done)
    before = files_of(tmp_path / "out")
    assert run(*arguments).exit_code == 0
    assert files_of(tmp_path / "out") == before
    (facts,) = json.loads(run(*arguments, "--json").stdout)
    options = ("--scenario", "unlabeled", "--rounding", "down", "--smallest-known", 7)
    (other,) = json.loads(run(*arguments, *options, "--json").stdout)
    assert (facts["rules"]["scenario"], other["rules"]["scenario"]) == ("unseen", "unlabeled")
    assert other["rules"]["rounding"] == "down"
    assert other["rules"]["smallest_known"] == 7
    assert len(other["known"]) < len(facts["known"])
    known = [row for row in other["classes"] if row["role"] == "known"]
    assert all(row["objects"] >= 7 for row in known)


def test_the_shipped_rules_need_the_classes_of_openimages(run, streets):
    done = run("openimages", "--openimages", "openimages", "--out", "out")
    assert isinstance(done.exception, UnknownNameError)
    assert "No class of OpenImages is called 'Traffic sign'" in str(done.exception)


def test_a_file_of_others_is_not_overwritten(run, sources, tmp_path):
    (tmp_path / "test.json").write_text("mine")
    done = run("voc-coco", "--voc", "VOC2007", "--coco-annotations", "instances_val2017.json",
               "--out", ".")  # fmt: skip
    assert isinstance(done.exception, InvalidDataError)
    assert "would be overwritten" in str(done.exception)
    assert (tmp_path / "test.json").read_text() == "mine"


def test_splits_are_built_from_files_of_voc_yolo_and_bdd(run, tmp_path):
    write_voc(tmp_path / "voc", {"a": ["cat"], "b": ["dog"], "c": ["cat", "dog"]})
    lines = {"a": "0 0.5 0.5 0.1 0.1", "b": "1 0.5 0.5 0.1 0.1", "c": None}
    write_yolo(tmp_path / "yolo", lines)
    frames = [{"name": f"{k}.jpg", "labels": [{"category": name, "box2d": BOX}]}
              for k, name in (("a", "cat"), ("b", "dog"))]  # fmt: skip
    write_frames(tmp_path / "det_val.json", frames)
    (tmp_path / "rules.toml").write_text(
        'name = "mine"\nversion = 1\nknown = ["cat"]\nnear = ["dog"]\nrest = "drop"\n'
    )
    for annotations, images in (("voc", ["b"]), ("yolo", ["b"]), ("det_val.json", ["b.jpg"])):
        done = run("splits", "--annotations", annotations, "--rules", "rules.toml", "--out", "out")
        assert done.exit_code == 0, done.output
        near = json.loads((tmp_path / "out" / "near.json").read_text())
        assert [image["id"] for image in near["images"]] == images
        (build,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["builds"]
        assert [file["file"] for file in build["inputs"]] == ["rules.toml", annotations]


def test_images_without_a_label_file_are_noted_in_their_split(run, tmp_path):
    lines = {"a": "0 0.5 0.5 0.1 0.1", "b": "1 0.5 0.5 0.1 0.1", "c": None, "d": ""}
    write_yolo(tmp_path / "yolo", lines)
    (tmp_path / "rules.toml").write_text(
        'name = "mine"\nversion = 1\nknown = ["cat"]\nnear = ["dog"]\nrest = "farther"\n'
    )
    done = run("splits", "--annotations", "yolo", "--rules", "rules.toml", "--out", "out")
    note = "farther: 2 images without an annotated object; what they show is not known"
    assert note in " ".join(done.output.split())


def test_a_detector_runs_on_what_was_built(run, tmp_path):
    write_voc(tmp_path / "VOC2007", {f"00000{k}": [NAMES[k % 3]] for k in range(8)})
    write_coco(tmp_path / "instances_val2017.json", {k: ["gray"] for k in range(11, 17)})
    for path in tmp_path.rglob("*.xml"):  # the truth is the first cell of the detector's grid
        text = path.read_text().replace("<ymax>20<", "<ymax>8<").replace("<ymin>2<", "<ymin>1<")
        path.write_text(text.replace("<xmax>9<", "<xmax>10<"))
    for path in sorted(tmp_path.rglob("*.jpg")):
        known = path.parent.name == "JPEGImages"
        color = [255 * (k == int(path.stem) % 3) for k in range(3)] if known else [200, 190, 40]
        Image.new("RGB", SIZE, tuple(color)).save(path)
    lines = "\n".join(f'{name} = ["{name}"]' for name in NAMES)
    (tmp_path / "mine.toml").write_text(
        f'name = "colors"\nversion = 1\ntitle = "colors"\npaper = ""\nunknown = ["gray"]\n'
        f"[known]\n{lines}\n"
    )
    done = run("voc-coco", "--voc", "VOC2007", "--coco-annotations", "instances_val2017.json",
               "--tables", "mine.toml", "--out", "out")  # fmt: skip
    assert done.exit_code == 0, done.output
    found = incognita.evaluate(
        GridDetector(), "out/benchmark.toml", ["msp"], allow_outside=True, n_resamples=10,
        out=tmp_path / "results",
    )  # fmt: skip
    assert not found.failed
    assert found.metadata["passes"]["forward"] == 8 + 6 + 14
    assert list(found.mixed) == ["all"]
    splits = {result.split for result in found.get("msp").results}
    assert {"all/unknown-only", "all/known-only", "unknown/unknown"} <= splits
