"""A finished run is shown again as it was, without model or images."""

import json
import shutil

import pytest
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.errors import InvalidDataError, MissingDataError
from incognita.evaluation.finished_runs import find_runs, load_run
from incognita.evaluation.rescore import rescore
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


def numbers(report, methods):
    """Return the results of methods as text, without what differs from run to run."""
    timed = ("cost", "provenance")
    records = {name: report.get(name).as_json() for name in methods}
    kept = [{k: v for k, v in r.items() if k not in timed} for r in records.values()]
    return [json.dumps(record, sort_keys=True) for record in kept]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run whose outputs are stored, by methods that need all sets."""
    out = tmp_path_factory.mktemp("stored")
    options = {"store": out / "outputs", "out": out / "results"} | OPTIONS
    incognita.evaluate(methods="msp, mds, temperature, gram", **options)
    return out


def refuse_models(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("a model or an image was loaded")

    for name in ("load_benchmark", "load_classifiers", "load_detector"):
        monkeypatch.setattr(f"incognita.evaluation.evaluate.{name}", refuse)
    monkeypatch.setattr("incognita.extraction.extract.ExtractionJob.runner", refuse)
    monkeypatch.setattr("incognita.models.load.load_model", refuse)


def test_new_methods_are_scored_from_the_store_alone(stored, tmp_path, monkeypatch):
    new = ["gen", "knn(k=10)", "vim", "react", "gram(powers=[1, 2])"]
    expected = incognita.evaluate(methods="gen, knn(k=10), vim, react", **OPTIONS)
    out = shutil.copytree(stored, tmp_path / "run")
    (path,) = find_runs(out)
    refuse_models(monkeypatch)
    line = ["show", str(out), "--methods", ", ".join(new[:4]), "--json"]
    shown = CliRunner().invoke(app, line)
    assert shown.exit_code == 0, shown.output
    assert find_runs(out) == [path]
    again = load_run(path)
    assert set(again.methods) == {"msp", "mds", "temperature", "gram", *new[:4]}
    assert json.loads(shown.stdout)["ranking"] == again.ranking()
    assert numbers(again, new[:4]) == numbers(expected, new[:4])
    with pytest.raises(InvalidDataError, match=r"gradients or maps that .*outputs does not hold"):
        rescore(out, new[4])


def test_new_methods_keep_what_was_disclosed_and_asked_for(tmp_path):
    options = {"store": tmp_path / "outputs", "out": tmp_path / "results"} | OPTIONS
    incognita.evaluate(methods="msp", disclosure={"outlier data": "none"}, **options)
    found = rescore(tmp_path, "energy").get("energy").provenance
    assert found["disclosure"]["outlier data"] == "none"
    assert found["request"]["benchmark"] == OPTIONS["benchmark"]


def test_all_methods_that_the_store_allows(stored, tmp_path, monkeypatch):
    refuse_models(monkeypatch)
    report = rescore(shutil.copytree(stored, tmp_path / "run"), "all")
    assert report.is_complete
    assert {"gram", "knn", "energy"} <= set(report.methods)
    assert "does not hold" in report.skipped["odin"]


def test_new_methods_of_a_detector(tmp_path, monkeypatch):
    boxes = incognita.BoxOptions(score_threshold=0.2, unknown_threshold="gaussian")
    options = {"benchmark": "terra/detection", "limit": 6, "n_resamples": 20, "boxes": boxes}
    new = ["energy", "mds", "gen"]
    expected = incognita.evaluate(methods=", ".join(new), **options)
    incognita.evaluate(
        methods="knn(k=5)", store=tmp_path / "outputs", out=tmp_path / "results", **options
    )
    before = load_run(find_runs(tmp_path)[0])
    refuse_models(monkeypatch)
    again = rescore(tmp_path, ", ".join(new))
    assert set(again.methods) == {"knn(k=5)", *new}
    assert numbers(again, new) == numbers(expected, new)
    assert again.metadata["pictures"] == before.metadata["pictures"]
    assert again.notes == before.notes


def test_new_methods_of_an_ensemble(tmp_path, monkeypatch):
    options = OPTIONS | {"model": ["digits:classifier"] * 2}
    expected = incognita.evaluate(methods="gen, knn", **options)
    incognita.evaluate(
        methods="mds", store=tmp_path / "outputs", out=tmp_path / "results", **options
    )
    refuse_models(monkeypatch)
    again = rescore(tmp_path, "gen, knn")
    assert numbers(again, ["gen", "knn"]) == numbers(expected, ["gen", "knn"])


def test_what_cannot_be_scored_again_is_a_sentence(run, stored, tmp_path):
    with pytest.raises(MissingDataError, match=r"no output store .*--store"):
        rescore(run[1], "gen")  # it had no store
    out = tmp_path / "few"
    options = {"store": out / "outputs", "out": out / "results"} | OPTIONS
    incognita.evaluate(methods="msp", **options)
    with pytest.raises(InvalidDataError, match=r"knn needs the outputs of train, which .*outputs"):
        rescore(out, "knn")
    assert "knn" not in load_run(find_runs(out)[0]).methods

    out = shutil.copytree(stored, tmp_path / "pruned")
    for path in (out / "outputs").rglob("00000.safetensors"):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MissingDataError, match="does not hold all outputs of test: they were prun"):
        rescore(out, "gen")
    (path,) = find_runs(out)
    record = json.loads(path.read_text())
    for key in record["scoring"]:
        path.write_text(json.dumps(record | {"scoring": record["scoring"] | {key: 3}}))
        with pytest.raises((InvalidDataError, MissingDataError)):
            rescore(out, "gen")
    path.write_text(json.dumps({k: v for k, v in record.items() if k != "scoring"}))
    with pytest.raises(MissingDataError, match="earlier version"):
        rescore(out, "gen")


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
