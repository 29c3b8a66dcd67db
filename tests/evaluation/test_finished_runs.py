"""A finished run is shown again as it was, without model or images."""

import json

import pytest
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.errors import InvalidDataError, MissingDataError
from incognita.evaluation.finished_runs import find_runs, load_run
from incognita.results.export import as_json_text, as_text

OPTIONS = {"benchmark": "digits/standard", "limit": 40, "n_resamples": 30}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    report = incognita.evaluate(methods="msp, mds", search=True, out=out / "results", **OPTIONS)
    return report, out


def test_a_run_is_shown_as_it_was(run, monkeypatch):
    report, out = run

    def refuse(*args, **options):
        raise AssertionError("a model or a benchmark was loaded")

    monkeypatch.setattr("incognita.evaluation.evaluate.load_benchmark", refuse)
    monkeypatch.setattr("incognita.evaluation.evaluate.load_classifiers", refuse)
    again = load_run(find_runs(out)[0])
    assert as_text(again) == as_text(report)
    assert json.loads(as_json_text(again)) == json.loads(as_json_text(report))
    assert again.gap_to_best("msp") == report.gap_to_best("msp")
    shown = CliRunner().invoke(app, ["show", str(out), "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["ranking"] == report.ranking()


def test_one_result_names_its_run(run):
    _, out = run
    (result,) = out.rglob("msp-*.json")
    assert find_runs(result) == find_runs(out)


def test_a_second_run_adds_its_methods(run, tmp_path):
    incognita.evaluate(methods="msp", out=tmp_path, **OPTIONS)
    incognita.evaluate(methods="energy", out=tmp_path, **OPTIONS)
    (path,) = find_runs(tmp_path)
    assert set(load_run(path).methods) == {"msp", "energy"}


def test_a_detector_run_is_shown_as_it_was(tmp_path):
    report = incognita.evaluate(
        benchmark="terra/detection", methods="energy", limit=4, n_resamples=10, out=tmp_path
    )
    again = load_run(find_runs(tmp_path)[0])
    assert as_text(again) == as_text(report)
    assert json.loads(as_json_text(again)) == json.loads(as_json_text(report))


def test_what_is_not_a_run_is_a_sentence(run, tmp_path):
    with pytest.raises(MissingDataError, match="no finished run"):
        find_runs(tmp_path)
    for text in (
        "[]",
        '{"format": "incognita.run.1"}',
        '{"format": "incognita.run.1", "files": 3}',
    ):
        path = tmp_path / "1.run"
        path.write_text(text)
        with pytest.raises(InvalidDataError, match="run"):
            load_run(path)
