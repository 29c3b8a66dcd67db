"""The examples run, and the files that ship with the package are those they generate."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import incognita

EXAMPLES = Path(__file__).parents[1] / "examples"
STREET = Path(incognita.__file__).parent / "benchmarks" / "examples" / "street"


# what each how-to prints, and the files it writes
HOW_TOS = {
    "my_classifier": (("msp", "react", "my network, accuracy 9"), ("my_classifier.html",)),
    "my_data_set": (("mine/shapes v1", "knn"), ("my_data_set.html", "shapes", "shapes.toml")),
    "my_detections": (
        ("pass: unknown_recall", "pass: REQ-7", "fail: REQ-8"),
        ("my_detections.html", "my_detections.json"),
    ),
    "my_detector": (("my detector", "found as unknown by energy"), ("my_detector.html",)),
    "my_method": (("nearest-mean", "pass orientation"), ("my_method.html",)),
}


def run_example(name: str, folder: Path) -> str:
    """Run an example as a reader would, in a folder of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"make_street", *HOW_TOS}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOW_TOS)
def test_every_how_to_runs_and_writes_its_report(name, tmp_path):
    shown, written = HOW_TOS[name]
    printed = run_example(name, tmp_path)
    assert [words for words in shown if words not in printed] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(written)
    page = (tmp_path / f"{name}.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") >= 2


@pytest.mark.parametrize("name", HOW_TOS)
def test_how_tos_are_short_and_have_a_page(name):
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    assert 20 <= len(lines) <= 60
    page = (EXAMPLES.parent / "docs" / f"{name.replace('_', '-')}.md").read_text()
    assert f'--8<-- "examples/{name}.py"' in page


def test_the_street_that_ships_is_the_one_the_example_makes(tmp_path):
    made = tmp_path / "street"
    done = subprocess.run(
        [sys.executable, EXAMPLES / "make_street.py", made],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"The example is in {made}\n"
    assert sorted(path.name for path in made.iterdir()) == sorted(
        path.name for path in STREET.iterdir()
    )
    for path in made.iterdir():
        assert path.read_bytes() == (STREET / path.name).read_bytes(), path.name


@pytest.fixture(scope="module")
def street() -> incognita.Certificate:
    known = tomllib.loads((STREET / "classes.toml").read_text())["known"]
    truth, detections = STREET / "truth.json", STREET / "detections.json"
    return incognita.certify(truth, detections, known=known, n_resamples=0)


def test_the_street_tells_open_set_errors_by_objects_from_those_by_detections(street):
    by_objects = street.get("open_set_error").value
    for convention in ("owod", "owdetr", "opendet", "fmiyc"):
        assert street.get("open_set_error", convention).value > by_objects > 0


def test_the_street_detector_is_decent_and_overconfident(street):
    assert 0.3 < street.get("ap50", "coco").value < 0.95
    assert 0 < street.get("unknown_recall").value < 0.6
    assert street.get("laece").value > 0.05
    assert street.get("ap_superclass", split="unknown-only").value > 0
