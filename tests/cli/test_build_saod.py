"""`incognita build saod-gen` and `saod-av`: what is written, printed, and refused."""

import json
import re

import pytest
from tests.benchmarks.saod_cases import (
    CONTENT,
    objects365,
    write_bdd,
    write_bdd_images,
    write_coco_val,
    write_inaturalist,
    write_json,
    write_nuimages,
    write_objects365,
    write_objects365_images,
    write_picture,
    write_svhn,
)
from typer.testing import CliRunner

from incognita.benchmarks.definition_files import find_definition
from incognita.benchmarks.load import load_benchmark
from incognita.benchmarks.splits.saod_sets import TABLES
from incognita.cli.app import app
from incognita.errors import InvalidDataError, MissingDataError


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["build", *map(str, arguments)])


@pytest.fixture
def unknown(tmp_path):
    """Options for the three sources of unknown images, which are there."""
    wild = write_inaturalist(tmp_path / "inaturalist")
    for image in json.loads((wild / "val_2017_bboxes.json").read_text())["images"]:
        write_picture(wild / image["file_name"])
    write_objects365_images(write_objects365(tmp_path / "objects365"))
    write_svhn(tmp_path / "svhn")
    return ("--objects365", "objects365", "--inaturalist", "inaturalist", "--svhn", "svhn")


def with_expected(path, counts):
    """Write tables that expect other numbers of images."""
    text = re.sub(r"\[expected\].*", "", TABLES.read_text(), flags=re.DOTALL)
    lines = "\n".join(f"{name} = {n}" for name, n in counts.items())
    path.write_text(f"{text}[expected]\n{lines}\n")
    return path


def words(done) -> str:
    return " ".join(done.stdout.split())


def test_saod_gen_makes_a_benchmark_that_opens(run, unknown, tmp_path):
    coco = write_coco_val(tmp_path / "coco")
    done = run("saod-gen", *unknown, "--coco-annotations", coco, "--out", "out", "--json")
    (facts,) = json.loads(done.stdout)
    by_name = run("saod-gen", "--data", tmp_path, "--out", "again", "--json")
    assert json.loads(by_name.stdout) == [facts]
    assert done.exit_code == 4  # counts are not those of the paper
    counts = {name: found["images"] for name, found in facts["sets"].items()}
    assert counts["svhn"] == 15
    benchmark = load_benchmark("out/benchmark.toml", cache_dir=tmp_path, allow_outside=True)
    assert benchmark.classes == tuple(CONTENT["objects365"]["known"])
    assert len(benchmark.validation.image_ids) == 6
    assert len(benchmark.test.image_ids) == counts["obj45k"]
    assert list(benchmark.shifted) == ["severity 1", "severity 3", "severity 5"]
    for shifted in benchmark.shifted.values():
        assert len(shifted.image_ids) == counts["obj45k"]
    found = {name: len(dataset.image_ids) for name, dataset in benchmark.unknown["far"].items()}
    assert found == {name: counts[name] for name in ("svhn", "inaturalist", "objects365")}
    assert any("15 images where 46,470 are published" in note for note in benchmark.notes)


def test_saod_av_makes_a_benchmark_that_opens(run, unknown, tmp_path):
    write_bdd_images(write_bdd(tmp_path / "bdd"))
    for split in ("val", "train"):
        write_nuimages(tmp_path / "nuimages", split)
    for frame in json.loads((tmp_path / "nuimages/v1.0-val/sample_data.json").read_text()):
        write_picture(tmp_path / "nuimages" / frame["filename"])
    arguments = (*unknown, "--bdd", "bdd", "--nuimages", "nuimages", "--out", "out")
    done = run("saod-av", *arguments)
    assert done.exit_code == 4, done.output
    benchmark = load_benchmark("out/benchmark.toml", cache_dir=tmp_path, allow_outside=True)
    assert benchmark.classes == ("pedestrian", "vehicle", "bicycle")
    assert len(benchmark.validation.image_ids) == 20
    assert set(benchmark.unknown["far"]) == {"svhn", "inaturalist", "objects365"}
    assert json.loads((tmp_path / "out" / "nuimages-train.json").read_text())["images"]
    table = words(done)
    assert "images of det_train.json rider without anything to ride" in table
    assert "objects of nuimages-val dropped: without a mask" in table
    assert re.search(r"weather (rainy|clear|snowy) \d+", table)
    assert re.search(r"vehicle \d+ \d+", table)
    assert re.search(r"partial: bdd45k: \d+ images, but 44,831 are published", table)
    assert "Counts and statistics: out/manifest.json" in table
    assert "incognita run out/benchmark.toml --allow-outside --model YOURS" in table


def test_counts_as_expected_end_in_code_0(run, unknown, tmp_path):
    coco = write_coco_val(tmp_path / "coco")
    arguments = ("saod-gen", *unknown, "--coco-annotations", coco, "--out", "out")
    (facts,) = json.loads(run(*arguments, "--json").stdout)
    counts = {name: found["images"] for name, found in facts["sets"].items()}
    tables = with_expected(tmp_path / "mine.toml", counts)
    done = run(*arguments, "--tables", tables)
    assert done.exit_code == 0, done.output
    assert "partial" not in done.stdout
    assert all(entry.note is None for entry in find_definition("out/benchmark.toml").definition.set)


def test_images_without_an_annotation_may_be_dropped(run, tmp_path):
    write_objects365(tmp_path / "objects365")
    arguments = ("saod-gen", "--objects365", "objects365", "--out", "out", "--json")
    (kept,), (rest,) = (
        json.loads(run(*arguments, "--empty-images", choice).stdout) for choice in ("keep", "drop")
    )
    empty = [
        found.get("objects365, without any annotation", 0)
        for found in kept["sets"]["objects365"]["images_of_files"].values()
    ]
    assert sum(empty) > 0
    assert rest["sets"]["objects365"]["images"] == kept["sets"]["objects365"]["images"] - sum(empty)
    assert rest["empty_images"] == "drop"


def test_what_is_not_there_is_left_out_and_a_second_build_leaves_nothing_of_the_first(
    run, unknown, tmp_path
):
    run("saod-gen", *unknown, "--out", "out")
    done = run("saod-gen", "--svhn", "svhn", "--out", "out")
    assert done.exit_code == 4
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json", "svhn.json",
    ]  # fmt: skip
    assert "partial: obj45k: not built; give its source with --objects365" in words(done)
    assert "partial: validation: not there; give COCO's file with --coco-annotations" in words(done)
    assert "No benchmark is written: it needs known and unknown images." in done.stdout


@pytest.mark.parametrize("missing", ["--objects365", "--coco-annotations", "unknown", None])
def test_a_benchmark_is_written_if_it_can_be_run(run, unknown, tmp_path, missing):
    arguments = {"--coco-annotations": write_coco_val(tmp_path / "coco"), "--out": "out"}
    arguments |= dict(zip(unknown[::2], unknown[1::2], strict=True))
    if missing == "unknown":
        for split, number in (("val", 1), ("train", 2)):
            path = tmp_path / "objects365" / f"zhiyuan_objv2_{split}.json"
            write_json(path, objects365({number: ["Person"]}))
    for option in ("--inaturalist", "--svhn") if missing == "unknown" else (missing,):
        arguments.pop(option, None)
    done = run("saod-gen", *(word for pair in arguments.items() for word in pair))
    assert done.exit_code == 4, done.exception
    is_written = (tmp_path / "out" / "benchmark.toml").exists()
    assert is_written == (missing is None)
    assert ("No benchmark is written" in done.stdout) == (not is_written)


def test_steps_and_progress_are_told_on_stderr(run, tmp_path):
    write_objects365(tmp_path / "objects365")
    write_svhn(tmp_path / "svhn")
    done = run("saod-gen", "--objects365", "objects365", "--svhn", "svhn", "--out", "out")
    assert done.stderr.splitlines() == [
        "reading SVHN",
        "svhn: 15 images",
        "hashing zhiyuan_objv2_val.json",
        "reading zhiyuan_objv2_val.json",
        "deciding about 60 images",
        "hashing zhiyuan_objv2_train.json",
        "reading zhiyuan_objv2_train.json",
        "deciding about 60 images",
        "writing out",
    ]


def test_wrong_usage_is_one_sentence(run, tmp_path):
    done = run("saod-gen", "--out", "out")
    assert isinstance(done.exception, InvalidDataError)
    assert str(done.exception).startswith("Expected the folder of a source, got none.")
    done = run("saod-av", "--bdd", tmp_path, "--out", "out")
    assert isinstance(done.exception, MissingDataError)
    assert "There is no det_train.json in" in str(done.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["obj45k.json", "bdd45k.json", "benchmark.toml", "manifest.json"])
def test_files_of_others_are_never_overwritten(run, tmp_path, name):
    write_svhn(tmp_path / "svhn")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("{}")
    done = run("saod-gen", "--svhn", "svhn", "--out", "out")
    assert "would be overwritten or deleted" in str(done.exception)
    assert (tmp_path / "out" / name).read_text() == "{}"


@pytest.mark.parametrize("use_case", ["gen", "av"])
def test_the_shipped_definition_has_the_published_counts_and_the_files_of_the_command(use_case):
    sets = find_definition(f"saod/{use_case}").definition.set
    test = {"gen": "obj45k", "av": "bdd45k"}[use_case]
    validation = {"gen": 5000, "av": CONTENT["expected"]["nuimages-val"]}[use_case]
    counts = {entry.name: entry.count for entry in sets}
    assert counts == {
        "validation": validation,
        **dict.fromkeys(
            ("test", "severity 1", "severity 3", "severity 5"), CONTENT["expected"][test]
        ),
        **{name: CONTENT["expected"][name] for name in ("svhn", "inaturalist", "objects365")},
    }
    files = {entry.annotations.rpartition("/")[2] for entry in sets if entry.name != "validation"}
    assert files == {f"{test}.json", "svhn.json", "inaturalist.json", "objects365.json"}
    assert [entry.rejection for entry in sets if entry.role == "shifted"] == [
        sets[2].rejection, sets[2].rejection, "free",
    ]  # fmt: skip
