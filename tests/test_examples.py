"""Each example runs, and what ships with the package is what it makes."""

import subprocess
import sys
from pathlib import Path

import pytest

import incognita
from incognita.evaluation.certify import Certificate, certify
from incognita.formats import load_detections, load_truth
from incognita.formats.class_roles import load_class_map

EXAMPLES = Path(__file__).parents[1] / "examples"
STREET = Path(incognita.__file__).parent / "benchmarks" / "examples" / "street"


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
def street() -> Certificate:
    annotated = load_truth(STREET / "truth.json", class_map=load_class_map(STREET / "classes.toml"))
    found = load_detections(STREET / "detections.json", annotated)
    return certify(found, annotated.boxes, n_resamples=0)


def test_the_street_tells_open_set_errors_by_objects_from_those_by_detections(street):
    by_objects = street.get("open_set_error").value
    for convention in ("owod", "owdetr", "opendet", "fmiyc"):
        assert street.get("open_set_error", convention).value > by_objects > 0


def test_the_street_detector_is_decent_and_overconfident(street):
    assert 0.3 < street.get("ap50", "coco").value < 0.95
    assert 0 < street.get("unknown_recall").value < 0.6
    assert street.get("laece").value > 0.05
    assert street.get("ap_superclass", split="unknown-only").value > 0
