"""`incognita data`: what is needed, what is there, and the exit code that says so."""

import json
import subprocess
import sys

import pytest
from tests.benchmarks.box_trees import write_road
from tests.benchmarks.image_trees import write_list, write_street
from typer.testing import CliRunner

from incognita.cli.app import app


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.delenv("INCOGNITA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["data", *map(str, arguments)])


def test_a_plan_shows_sets_sources_sizes_and_places(run):
    done = run("plan", "openood/cifar10")
    assert done.exit_code == 0
    for words in (
        "tin-validation", "7,793", "35,195", "Tiny ImageNet", "ImageNet terms", "images_classic",
        "benchmark_imglist/cifar10/test_tin.txt", "http://ufldl.stanford.edu/housenumbers/",
        "About 1.9 GB on disk in all", "https://github.com/Jingkang50/OpenOOD",
    ):  # fmt: skip
        assert words in done.stdout


def test_a_plan_of_an_embedded_benchmark_needs_nothing(run):
    done = run("plan", "terra/standard")
    assert done.exit_code == 0
    assert "Nothing to get" in done.stdout


def test_a_plan_and_a_check_of_boxes_say_the_task_and_where_they_are(run, tmp_path):
    path = write_road(tmp_path)
    done = run("plan", path)
    assert done.exit_code == 0
    for words in ("mine/road (detection, version 1)", "both, annotated in both.json", "mixed"):
        assert words in done.stdout
    assert json.loads(run("plan", path, "--json").stdout)["task"] == "detection"
    assert run("check", path).exit_code == 0
    (tmp_path / "test" / "b.png").unlink()
    done = run("check", path)
    assert done.exit_code == 4
    assert "b.png" in done.stdout.replace("\n", "")
    document = json.loads(run("check", path, "--json").stdout)
    assert (document["task"], document["verdict"]) == ("detection", "partial")


def test_a_check_of_embedded_scenes_finds_all_of_them(run):
    done = run("check", "terra/near")
    assert done.exit_code == 0
    assert "terra/near (detection, version 1)" in done.stdout


def test_a_plan_as_json_has_every_set(run):
    document = json.loads(run("plan", "openood/imagenet200-full-spectrum", "--json").stdout)
    assert document["benchmark"] == "openood/imagenet200-full-spectrum"
    images = {row["set"]: row["images"] for row in document["sets"]}
    assert images["imagenet_r"] == 30_000
    assert images["train"] is None
    assert document["megabytes"] > 100_000


def test_a_whole_benchmark_checks_with_code_0(run, tmp_path):
    done = run("check", write_street(tmp_path))
    assert done.exit_code == 0
    assert "complete: everything is there" in done.stdout


def test_a_partial_benchmark_checks_with_code_4_and_names_what_is_missing(run, tmp_path):
    path = write_street(tmp_path)
    for k in range(3):
        (tmp_path / "noise" / f"{k}.bmp").rename(tmp_path / "noise" / f"{k}.away")
    done = run("check", path, "--data", tmp_path)
    assert done.exit_code == 4
    assert "partial: numbers would be labelled as partial" in done.stdout
    assert "0.bmp" in done.stdout.replace("\n", "")
    assert "…" in done.stdout


def test_a_benchmark_that_cannot_run_checks_with_code_3(run, tmp_path):
    path = write_street(tmp_path)
    (tmp_path / "signs" / "test").rename(tmp_path / "away")
    done = run("check", path, "--json")
    assert done.exit_code == 3
    document = json.loads(done.stdout)
    assert document["verdict"] == "missing"
    assert document["sets"][1] == {
        "set": "test", "role": "test", "expected": 6, "found": 0,
        "missing": [str(tmp_path / "signs" / "test")], "problem": None,
        "n_damaged": 0, "damaged": [],
    }  # fmt: skip


def test_a_damaged_image_checks_with_code_4_and_is_named(run, tmp_path):
    path = write_street(tmp_path)
    image = sorted((tmp_path / "animals").rglob("*.*"))[0]
    image.write_bytes(b"")
    done = run("check", path)
    assert done.exit_code == 4
    assert f"damaged: animals: {image} is empty" in done.stdout
    assert run("check", path, "--deep").exit_code == 4


def test_a_wrong_list_is_shown_as_a_sentence(run, tmp_path):
    path = write_street(tmp_path)
    write_list(tmp_path / "lists" / "noise.txt", {"1.bmp": -1})
    done = run("check", path)
    assert done.exit_code == 4
    assert "lists 1 images" in done.stdout


def test_the_help_says_what_the_exit_codes_mean(run):
    words = " ".join(run("check", "--help").stdout.split())
    for part in ("Exit code 0", "3:", "4:"):
        assert part in words


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["plan", "openood/cifar1"], 2, "incognita: No benchmark is called 'openood/cifar1'. Did"),
        (
            ["check", "openood/cifar10"],
            3,
            "incognita: openood/cifar10 needs images that do not ship",
        ),
        (["check", "absent.toml"], 3, "incognita: There is no benchmark file absent.toml"),
    ],
)
def test_what_is_wrong_is_a_sentence_and_a_code(tmp_path, monkeypatch, arguments, code, sentence):
    monkeypatch.delenv("INCOGNITA_DATA", raising=False)
    done = subprocess.run(
        [sys.executable, "-m", "incognita.cli", "data", *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1
