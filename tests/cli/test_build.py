"""`incognita build`: the splits, what is missing of them, and the exit code that says so."""

import json
import subprocess
import sys
from io import BytesIO, TextIOWrapper

import pytest
from tests.benchmarks.fmiyc_cases import (
    write_coco,
    write_complete_coco,
    write_openimages,
    write_vos_images,
)
from tests.benchmarks.image_trees import write_image
from tests.formats.annotation_cases import document, write
from typer.testing import CliRunner

from incognita.benchmarks.definition_files import find_definition
from incognita.benchmarks.load import load_benchmark
from incognita.cli._terminal import progress_on_stderr
from incognita.cli.app import app
from incognita.errors import InvalidDataError, MissingDataError

RULES = """
name = "mine/pets"
version = 2
title = "Pets against other things"
known = ["cat", "dog"]
remove = ["fork"]
near = ["fox", "zebra"]
rest = "far"
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["build", *map(str, arguments)])


def words(done) -> str:
    return " ".join(done.stdout.split())


# --- any known classes ----------------------------------------------------------------------------


def pets(folder):
    held = {k: ["cat"] if k % 2 else ["cat", "dog"] for k in range(10, 20)}
    held |= {1: ["kite"], 2: ["fox", "kite"], 3: ["fork"], 4: ["cat", "kite"], 5: ["cup"]}
    for image_id in held:
        write_image(folder / "images" / f"{image_id}.jpg", image_id, size=(40, 30))
    return (
        "--annotations", write(folder / "val.json", document(held)),
        "--rules", write(folder / "pets.toml", RULES),
        "--images", folder / "images",
    )  # fmt: skip


def test_splits_of_any_classes_make_a_benchmark_that_opens(run, tmp_path):
    done = run("splits", *pets(tmp_path), "--out", "out")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == ["reading val.json", "deciding", "writing out"]
    assert "near mine/pets, version 2 1 ? 2" in words(done)
    assert "far mine/pets, version 2 2 ? 2" in words(done)
    assert "removed 12" in words(done)
    assert "Next: incognita data check out/benchmark.toml --allow-outside" in done.stdout
    assert "incognita run out/benchmark.toml --allow-outside --model YOURS" in done.stdout
    benchmark = load_benchmark("out/benchmark.toml", cache_dir=tmp_path, allow_outside=True)
    assert benchmark.classes == ("cat", "dog")
    assert benchmark.unknown["near"]["near"].image_ids == ("2.jpg",)
    assert benchmark.unknown["far"]["far"].image_ids == ("1.jpg", "5.jpg")
    known = [*benchmark.train.image_ids, *benchmark.test.image_ids]
    assert sorted(known) == [f"{k}.jpg" for k in range(10, 20)]
    assert benchmark.notes == ()


def test_the_check_command_finds_everything_that_was_built(run, tmp_path):
    run("splits", *pets(tmp_path), "--out", "out")
    command = ["data", "check", "out/benchmark.toml"]
    assert CliRunner().invoke(app, command).exit_code == 3
    done = CliRunner().invoke(app, [*command, "--allow-outside"])
    assert done.exit_code == 0
    assert "complete: everything is there" in done.stdout


def test_wrong_counts_end_in_code_4_and_mark_the_sets(run, tmp_path):
    arguments = pets(tmp_path)
    write(tmp_path / "pets.toml", RULES + "[expected]\nnear = 1\nfar = 7\n")
    done = run("splits", *arguments, "--out", "out")
    assert done.exit_code == 4
    assert "partial: far: 2 images, but 7 are expected" in words(done)
    sets = {each.name: each for each in find_definition("out/benchmark.toml").definition.set}
    assert sets["near"].note is None
    assert sets["far"].note == (
        "partial: 2 images where 7 are published; built from val.json, see manifest.json"
    )


def test_ids_and_candidates_are_added(run, tmp_path):
    ids = write(tmp_path / "ids.toml", 'version = 1\n["mine/pets"]\nto_near_ids = [5, 5]\n'
                '["mine/pets".candidates]\nfar = [70]\n')  # fmt: skip
    second = write(tmp_path / "train.json", document({70: ["boat"], 71: ["boat"]}, first=900))
    done = run(
        "splits", *pets(tmp_path), "--ids", ids, "--candidates", second, "--out", "out", "--json"
    )
    assert done.exit_code == 0, done.output
    (metadata,) = json.loads(done.stdout)
    assert {split: each["images"] for split, each in metadata["splits"].items()} == {
        "near": 2, "far": 2,
    }  # fmt: skip
    assert metadata["notes"] == ["to_near_ids: id 5 more than once; each counts once"]
    assert metadata["problems"] == []


def test_without_known_images_no_benchmark_is_written(run, tmp_path):
    path = write(tmp_path / "val.json", document({1: ["kite"]}))
    rules = write(tmp_path / "pets.toml", RULES)
    done = run("splits", "--annotations", path, "--rules", rules, "--out", "out")
    assert done.exit_code == 0
    assert "No benchmark is written: it needs known and unknown images." in done.stdout
    assert not (tmp_path / "out" / "benchmark.toml").exists()
    assert (tmp_path / "out" / "far.json").exists()


def test_a_second_build_leaves_nothing_of_the_first(run, tmp_path):
    rules = write(tmp_path / "pets.toml", RULES)
    for held in ({1: ["kite"], 2: ["fox"], 3: ["cat"]}, {1: ["kite"]}):
        path = write(tmp_path / "val.json", document(held))
        run("splits", "--annotations", path, "--rules", rules, "--out", "out")
    names = sorted(each.name for each in (tmp_path / "out").iterdir())
    assert names == ["far.json", "manifest.json"]


def test_an_input_is_never_overwritten(run, tmp_path):
    path = write(tmp_path / "near.json", document({1: ["kite"]}))
    rules = write(tmp_path / "pets.toml", RULES)
    done = run("splits", "--annotations", path, "--rules", rules, "--out", tmp_path)
    assert isinstance(done.exception, InvalidDataError)
    assert str(done.exception) == (
        f"{path} would be overwritten, since --out is its folder; name another folder."
    )
    base = write(tmp_path / "coco-far.json", document({1: ["kite"]}))
    done = run("fmiyc", "--known", "voc", "--coco-annotations", base, "--out", tmp_path)
    assert "would be overwritten" in str(done.exception)


@pytest.mark.parametrize("name", ["near.json", "farther.json", "benchmark.toml", "known.json"])
@pytest.mark.parametrize("manifest", [None, "x", "[]", '{"format": 1}'])
def test_files_of_others_are_never_overwritten_or_deleted(run, tmp_path, name, manifest):
    given = pets(tmp_path)
    (tmp_path / "out").mkdir()
    write(tmp_path / "out" / name, "precious")
    if manifest is not None:
        write(tmp_path / "out" / "manifest.json", manifest)
    before = {each: each.read_bytes() for each in (tmp_path / "out").iterdir()}
    done = run("splits", *given, "--out", "out")
    assert isinstance(done.exception, InvalidDataError)
    assert str(done.exception) == (
        f"out/{name} would be overwritten or deleted, but out is not the folder of an earlier "
        f"build (its manifest.json would say so); name another folder."
    )
    assert {each: each.read_bytes() for each in (tmp_path / "out").iterdir()} == before


def test_a_build_may_lie_beside_other_files_and_be_built_again(run, tmp_path):
    given = pets(tmp_path)
    (tmp_path / "out").mkdir()
    write(tmp_path / "out" / "coco-near.json", "precious")  # of another command
    for _ in range(2):
        assert run("splits", *given, "--out", "out").exit_code == 0
    assert (tmp_path / "out" / "coco-near.json").read_text() == "precious"
    (tmp_path / "out" / "manifest.json").unlink()
    base = write(tmp_path / "base.json", document({1: ["kite"]}))
    done = run("fmiyc", "--known", "voc", "--coco-annotations", base, "--out", "out")
    assert "out/coco-near.json would be overwritten or deleted" in str(done.exception)


def test_rules_that_leave_no_unknown_image_end_in_code_4(run, tmp_path):
    path = write(tmp_path / "val.json", document({1: ["cat"], 2: ["fork"]}))
    rules = write(tmp_path / "pets.toml", RULES)
    done = run("splits", "--annotations", path, "--rules", rules, "--out", "out")
    assert done.exit_code == 4
    assert "partial: the rules leave no unknown image of the 2 there are; list fewer" in words(done)
    assert "No benchmark is written" in done.stdout


def test_a_terminal_sees_what_is_being_done(monkeypatch):
    class Terminal(TextIOWrapper):
        def isatty(self) -> bool:
            return True

    written = BytesIO()
    terminal = Terminal(written, encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_on_stderr() as (on_step, _):
        on_step("reading val.json")
        on_step("deciding")
    assert "deciding" in written.getvalue().decode()


def test_a_few_known_images_are_all_for_testing(run, tmp_path):
    path = write(tmp_path / "val.json", document({1: ["kite"], 2: ["cat"]}))
    rules = write(tmp_path / "pets.toml", RULES)
    run("splits", "--annotations", path, "--rules", rules, "--out", "out")
    roles = [each.role for each in find_definition("out/benchmark.toml").definition.set]
    assert roles == ["test", "far"]


def test_boxes_of_openimages_are_dealt_out_by_shipped_rules(run, tmp_path):
    folder = write_openimages(tmp_path / "oi", "a Fox\nb Kite\nc Person\nd Kite")
    for image_id in "abc":
        write_image(tmp_path / "images" / f"{image_id}.jpg", size=(20, 10))
    write(folder / "sizes.csv", "id,width,height\n")
    done = run(
        "splits", "--annotations", folder / "train-annotations-bbox.csv", "--rules",
        "fmiyc-voc-openimages", "--images", tmp_path / "images", "--out", "out",
    )  # fmt: skip
    assert done.exit_code == 4
    assert "1 images are left out because their size is unknown, such as d" in words(done)
    near = json.loads((tmp_path / "out" / "near.json").read_text())
    assert [each["id"] for each in near["images"]] == ["a"]


def test_missing_files_are_errors_of_their_own(run, tmp_path):
    rules = write(tmp_path / "pets.toml", RULES)
    done = run("splits", "--annotations", "none.json", "--rules", rules, "--out", "out")
    assert isinstance(done.exception, MissingDataError)
    assert str(done.exception) == "There is no file at none.json; check the path."
    assert not (tmp_path / "out").exists()
    write(tmp_path / "boxes.csv", "")
    done = run("splits", "--annotations", "boxes.csv", "--rules", rules, "--out", "out")
    assert "There is no class-descriptions-boxable.csv in ." in str(done.exception)


# --- the published splits -------------------------------------------------------------------------


def test_all_published_files_end_in_code_0(run, tmp_path):
    base, train, ids = write_complete_coco(tmp_path)
    done = run(
        "fmiyc", "--known", "voc", "--coco-annotations", base, "--coco-train", train, "--ids", ids,
        "--out", "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "coco-near fmiyc-voc-coco, version 1 1,174 1,174" in words(done)
    assert "coco-far fmiyc-voc-coco, version 1 938 938" in words(done)
    assert "partial" not in done.stdout
    sets = {each.name: each for each in find_definition("out/benchmark.toml").definition.set}
    assert (sets["coco-near"].count, sets["coco-near"].note) == (1174, None)


def test_what_can_be_built_without_the_base_files_is_built_in_part(run, tmp_path):
    base = write_coco(tmp_path, {1: ["kite"], 2: ["zebra"], 3: ["person"]})
    folder = write_openimages(tmp_path / "openimages", "a Fox\nb Kite\nc Person")
    write_vos_images(folder, "a", "b", "c")
    done = run(
        "fmiyc",
        "--known",
        "voc",
        "--coco-annotations",
        base,
        "--openimages",
        folder,
        "--out",
        "out",
    )
    assert done.exit_code == 4
    text = words(done)
    assert "coco-near fmiyc-voc-coco, version 1 1 1,174 1" in text
    assert "openimages-far fmiyc-voc-openimages, version 1 1 1,179 1" in text
    assert "partial: coco val.json with 3 images stands in for instances_val2017_ood_rm" in text
    assert "candidates.near, candidates.far: empty, so that the published counts cannot be" in text
    assert "note: openimages Dog: listed for a split, but known or removed, which wins" in text
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        "benchmark.toml", "coco-far.json", "coco-near.json", "manifest.json",
        "openimages-far.json", "openimages-near.json",
    ]  # fmt: skip
    builds = json.loads((tmp_path / "out" / "manifest.json").read_text())["builds"]
    assert [each["source"] for each in builds] == ["coco", "openimages"]


def test_a_second_run_writes_the_same_bytes(run, tmp_path):
    base = write_coco(tmp_path, {1: ["kite"], 2: ["zebra"]})
    contents = []
    for _ in range(2):
        run("fmiyc", "--known", "voc", "--coco-annotations", base, "--out", "out")
        files = sorted((tmp_path / "out").iterdir())
        contents.append([(path.name, path.read_bytes()) for path in files])
    assert contents[0] == contents[1]


def test_nothing_found_is_no_benchmark(run, tmp_path):
    folder = write_openimages(tmp_path, "a Kite", "fmiyc-bdd-openimages")
    done = run("fmiyc", "--id", "bdd", "--openimages", folder, "--out", "out")
    assert done.exit_code == 4
    assert "openimages-farther fmiyc-bdd-openimages, version 1 0 1,695 0" in words(done)
    assert "No benchmark is written" in done.stdout


def test_nothing_to_build_from_is_wrong_usage(run):
    done = run("fmiyc", "--known", "voc", "--out", "out")
    assert isinstance(done.exception, InvalidDataError)
    assert str(done.exception) == (
        "Expected --coco-annotations, --openimages or both, got neither."
    )


def test_the_exit_codes_reach_the_shell(tmp_path):
    command = [
        sys.executable,
        "-m",
        "incognita.cli",
        "build",
        "fmiyc",
        "--known",
        "voc",
        "--out",
        "o",
    ]
    options = {"capture_output": True, "text": True, "cwd": tmp_path}
    done = subprocess.run([*command, "--coco-annotations", "none.json"], check=False, **options)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "incognita: There is no file at none.json; check the path."
    )
    done = subprocess.run(command, check=False, **options)
    assert done.returncode == 2


def test_the_help_says_what_the_exit_codes_mean(run):
    for command in ("fmiyc", "splits"):
        text = words(run(command, "--help"))
        for part in ("Exit codes: 0", "3 a named file is missing", "4 finished in part"):
            assert part in text
