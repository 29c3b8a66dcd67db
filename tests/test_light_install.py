"""Without the extra `torch`: what works, and what the error says to install."""

import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from tests.formats.annotation_cases import document, write

# As if these were not installed: nothing finds them, and polars may still look for torch.
WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

ABSENT = {"torch", "torchvision", "sklearn", "scipy", "timm", "transformers", "ultralytics"}

class Light(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        found = None if name.partition(".")[0] in ABSENT else PathFinder
        return found and found.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Light
"""
INSTALL = "Install it with: pip install 'incognita[torch]'"
RULES = """
name = "mine/pets"
version = 1
title = "Pets against other things"
known = ["cat", "dog"]
near = ["fox"]
rest = "far"
"""


def python(code: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TORCH + code, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def incognita(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("from incognita.cli import main; main()", *arguments, cwd=cwd)


@pytest.fixture
def street():
    with as_file(files("incognita.benchmarks").joinpath("examples", "street")) as folder:
        yield folder


def test_certify_needs_no_torch(street, tmp_path):
    done = incognita(
        "certify", "--truth", street / "truth.json", "--detections", street / "detections.json",
        "--classes", street / "classes.toml", "--resamples", 10, "--out", "certificate.csv",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "AP50 ↑" in done.stdout
    assert (tmp_path / "certificate.csv").is_file()


def test_build_needs_no_torch(tmp_path):
    held = {1: ["cat"], 2: ["dog"], 3: ["fox"], 4: ["kite"], 5: ["cat"]}
    annotations = write(tmp_path / "val.json", document(held))
    rules = write(tmp_path / "pets.toml", RULES)
    done = incognita(
        "build", "splits", "--annotations", annotations, "--rules", rules, "--out", "out",
        cwd=tmp_path,
    )  # fmt: skip
    assert (tmp_path / "out" / "near.json").is_file(), done.stderr


def test_metrics_containers_and_results_need_no_torch(street, tmp_path):
    code = """
import numpy as np, incognita, incognita.metrics, incognita.decisions, incognita.results.evaluation
assert incognita.metrics.auroc(np.array([0.1, 0.9]), np.array([False, True])) == 1.0
[getattr(incognita.metrics, name) for name in incognita.metrics.__all__]
names = ["Detections", "BoxTruth", "Classes", "Certificate", "Evaluation", "load_benchmark"]
[getattr(incognita, name) for name in names]
import sys
loaded = incognita.load_coco(sys.argv[1] + "/truth.json", sys.argv[1] + "/detections.json",
                             known=["car"])
assert len(loaded.detections) > 0
"""
    done = python(code, street, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("list", "methods"),
        ("list", "models"),
        ("list", "benchmarks"),
        ("data", "check", "terra/standard"),
    ],
)
def test_looking_around_needs_no_torch(arguments, tmp_path):
    done = incognita(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_run_says_what_to_install(tmp_path):
    done = incognita("run", "terra/standard", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"incognita: run needs torch. {INSTALL}\n"


def test_the_embedded_digits_say_what_to_install(tmp_path):
    done = incognita("data", "check", "digits/standard", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"incognita: The benchmark digits needs sklearn. {INSTALL}\n"


@pytest.mark.parametrize(
    ("statement", "who"),
    [
        ("import incognita; incognita.evaluate", "incognita.evaluate"),
        ("from incognita import wrap_detector", "incognita.wrap_detector"),
        ("from incognita.methods import KNN", "incognita.methods.KNN"),
        ("from incognita.methods import METHODS; METHODS.get('knn')", "The method knn"),
    ],
)
def test_names_of_python_say_what_to_install(statement, who, tmp_path):
    done = python(statement, cwd=tmp_path)
    last = done.stderr.splitlines()[-1]
    assert last == f"incognita.errors.MissingExtraError: {who} needs torch. {INSTALL}"
