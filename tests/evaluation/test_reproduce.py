"""A result is run again as it states, and every number is compared."""

import json
import shutil

import pytest
from tests.evaluation.worlds import TinyNet, tiny_benchmark
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.errors import InvalidDataError
from incognita.evaluation.reproduce import Sameness, reproduce

NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 7)).eval()
"""


def run(*line: object):
    return CliRunner().invoke(app, [str(word) for word in line], catch_exceptions=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of a network in a file, with options that change numbers, and of a detector."""
    root = tmp_path_factory.mktemp("runs")
    (root / "net.py").write_text(NET)
    done = run(
        "run", "digits/standard", "--model", f"{root / 'net.py'}:build", "--preprocess", "size=8",
        "--methods", "msp, knn(k=7), react+energy, temperature", "--search", "--limit", 30,
        "--seed", 3, "--resamples", 20, "--batch-size", 16, "--training", "plain",
        "--training-seed", 2, "--out", root / "images",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    done = run(
        "run", "terra/detection", "--methods", "energy, mds", "--limit", 4, "--resamples", 10,
        "--score-threshold", 0.2, "--unknown-threshold", "gaussian", "--out", root / "boxes",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return root


def result_of(folder, method):
    return next((folder / "results").rglob(f"{method}-*.json"))


@pytest.mark.parametrize("method", ["msp", "knn-k-7", "react+energy"])
def test_a_result_gives_the_same_numbers_again(made, method):
    path = result_of(made / "images", method)
    done = run("reproduce", path)
    assert done.exit_code == 0, done.output
    assert "1 equal" in done.stdout


def test_all_methods_of_a_run_are_reproduced_with_tuned_ones(made, tmp_path):
    report = reproduce(made / "images", out=tmp_path / "again")
    assert [r.outcome for r in report.reproductions] == [Sameness.EQUAL] * len(report.reproductions)
    assert "knn(k=7) (tuned)" in {r.method for r in report.reproductions}
    assert not any(r.changed for r in report.reproductions)
    again = result_of(tmp_path / "again", "msp")
    assert again.name == result_of(made / "images", "msp").name  # the same identity
    with pytest.raises(InvalidDataError, match="new or empty folder"):
        reproduce(made / "images", out=tmp_path / "again")


def test_a_detector_is_reproduced(made):
    report = reproduce(made / "boxes")
    assert report.is_complete
    assert not report.differs
    assert min(r.numbers for r in report.reproductions) > 50


def test_a_changed_number_is_found_and_the_tolerance_is_stated(made, tmp_path):
    copy = shutil.copytree(made / "images", tmp_path / "copy")
    path = result_of(copy, "msp")
    document = json.loads(path.read_text())
    number = next(r for r in document["results"] if r["metric"] == "auroc")
    number["value"] += 0.003
    path.write_text(json.dumps(document))
    done = run("reproduce", path, "--json")
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)["results"]
    assert found["outcome"] == "differs"
    assert found["largest"] == pytest.approx(0.003)
    assert f"auroc (paper) of {number['split']}" in found["reasons"][0]
    assert run("reproduce", path, "--tolerance", 0.004).exit_code == 0


def test_other_weights_are_named_as_what_has_changed(made, tmp_path):
    copy = shutil.copytree(made, tmp_path / "copy")
    (copy / "net.py").write_text(NET.replace("manual_seed(0)", "manual_seed(1)"))
    path = result_of(copy / "images", "msp")
    document = json.loads(path.read_text())
    document["provenance"]["request"]["model"] = [f"{copy / 'net.py'}:build"]
    path.write_text(json.dumps(document))
    done = run("reproduce", path)
    assert done.exit_code == 1
    assert "changed: weights" in done.stdout
    same = run("reproduce", path, "--model", f"{made / 'net.py'}:build")
    assert same.exit_code == 0, same.output


def test_what_cannot_be_run_here_is_a_reason_and_code_4(made, tmp_path):
    incognita.evaluate(
        TinyNet().eval(), tiny_benchmark(), "msp", n_resamples=0, preprocess="none",
        out=tmp_path / "results",
    )  # fmt: skip
    done = run("reproduce", result_of(tmp_path, "msp"))
    assert done.exit_code == 4
    assert "benchmark and the model" in " ".join(done.stdout.split())

    path = result_of(shutil.copytree(made / "images", tmp_path / "copy"), "msp")
    document = json.loads(path.read_text())
    requested = document["provenance"]["request"]
    for request, reason in (
        (requested | {"model": ["gone.py:build"]}, "gone.py"),
        (requested | {"benchmark": "no/such"}, "no/such"),
        ({}, "does not state how it was made"),
    ):
        document["provenance"]["request"] = request
        path.write_text(json.dumps(document))
        done = run("reproduce", path)
        assert done.exit_code == 4, done.output
        assert reason in " ".join(done.stdout.split())


def test_a_method_made_in_python_is_not_guessed(tmp_path):
    from incognita.methods import KNN

    incognita.evaluate(
        benchmark="digits/standard", methods={"knn": KNN(k=3)}, limit=20, n_resamples=0,
        out=tmp_path / "results",
    )  # fmt: skip
    (found,) = reproduce(result_of(tmp_path, "knn")).reproductions
    assert found.outcome is Sameness.NOT_RUN
    assert "made in Python" in found.reasons[0]
