"""Results of many runs in one table: means over training seeds, filters, defaults."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.box_worlds import CellDetector, box_benchmark
from tests.evaluation.test_open_set_detectors import OpenDetector
from tests.evaluation.worlds import TinyNet, tiny_benchmark
from tests.results.method_records import record
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.errors import InvalidDataError, MissingDataError
from incognita.results.method_result import MethodResult
from incognita.results.query import (
    as_frame,
    default_metrics,
    load_results,
    over_training_seeds,
    pivot,
)
from incognita.results.result import Split


def evaluate(out: Path, training_seed: int | None, training: str | None = "plain", **more):
    options = {"n_resamples": 30, "preprocess": "none", "out": out / "results"} | more
    return incognita.evaluate(
        TinyNet(training_seed or 0).eval(), tiny_benchmark(), "msp, energy", training=training,
        training_seed=training_seed, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three trainings of one network, and one run that states no training."""
    root = tmp_path_factory.mktemp("runs")
    reports = [evaluate(root, seed) for seed in (1, 2, 3)]
    evaluate(root, None, None)
    return root, reports


def test_a_mean_over_seeds_is_the_mean_and_the_sample_deviation_of_numpy(runs):
    root, reports = runs
    frame = over_training_seeds(as_frame(load_results([root])[0]))
    averaged = {
        (row["method"], row["metric"], row["split"]): row
        for row in frame.iter_rows(named=True)
        if row["training"] == "plain"
    }
    compared = 0
    for method in ("msp", "energy"):
        for first in reports[0].get(method).results:
            same = [r.get(method).get(first.metric, str(first.split)) for r in reports]
            row = averaged[method, first.metric, str(first.split)]
            values = np.array([found.value for found in same])
            assert row["value"] == pytest.approx(values.mean(), rel=1e-12)
            assert row["std"] == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-15)
            assert (row["runs"], row["all_runs"]) == (3, 3)
            if not np.isnan(same[0].low):
                assert row["low"] == pytest.approx(np.mean([s.low for s in same]))
                assert row["high"] == pytest.approx(np.mean([s.high for s in same]))
            compared += 1
    assert compared > 40


def test_seeds_share_a_cell_that_states_the_number_of_runs(runs):
    root, reports = runs
    table = pivot(as_frame(load_results([root])[0]), rows=("training", "method"))
    cells = {(row["training"], row["method"]): row["near auroc"] for row in table.to_dicts()}
    values = 100 * np.array([r.get("msp").get("auroc", "near").value for r in reports])
    start = f"{values.mean():.1f} ±{values.std(ddof=1):.1f} (3 runs; ±"
    assert cells["plain", "msp"].startswith(start)
    assert cells["plain", "msp"].endswith(" by images)")
    assert "runs" not in cells[None, "msp"]


def test_seeds_are_told_apart_where_rows_name_them(runs):
    root, reports = runs
    table = pivot(as_frame(load_results([root])[0]), rows=("training_seed", "method"))
    cells = {(row["training_seed"], row["method"]): row["near auroc"] for row in table.to_dicts()}
    value = 100 * reports[1].get("energy").get("auroc", "near").value
    assert cells[2, "energy"].startswith(f"{value:.1f} ±")
    assert len(cells) == 8


def test_the_training_is_part_of_an_identity_only_where_it_is_stated(runs):
    _, (first, second, _) = runs
    assert first.get("msp").identity["training"] == "plain"
    assert first.get("msp").identity["training_seed"] == 1
    silent = incognita.evaluate(
        TinyNet(1).eval(), tiny_benchmark(), "msp", n_resamples=30, preprocess="none"
    )
    identity = dict(first.get("msp").identity)
    del identity["training"], identity["training_seed"]
    assert identity == silent.get("msp").identity
    assert first.metadata["training_seed"] != second.metadata["training_seed"]


def test_two_results_of_one_seed_are_refused(tmp_path):
    evaluate(tmp_path, 1)
    incognita.evaluate(
        TinyNet(7).eval(), tiny_benchmark(), "msp", training="plain", training_seed=1,
        n_resamples=30, preprocess="none", out=tmp_path / "results",
    )  # fmt: skip
    with pytest.raises(InvalidDataError, match="state the training seed 1 of plain"):
        pivot(as_frame(load_results([tmp_path])[0]))


def test_other_differences_than_the_seed_are_not_averaged(tmp_path):
    evaluate(tmp_path, 1)
    evaluate(tmp_path, 2, seed=5)
    with pytest.raises(InvalidDataError, match=r"several numbers.*Add seed to the rows"):
        pivot(as_frame(load_results([tmp_path])[0]))
    assert pivot(as_frame(load_results([tmp_path])[0]), rows=("seed", "method")).height == 4


def test_a_run_without_a_value_is_counted_and_not_averaged():
    numbers = [{("auroc", "near"): v} for v in (0.8, float("nan"), 0.9)]
    results = []
    for seed, values in enumerate(numbers):
        found = record("msp", values)
        identity = {"benchmark": "b", "version": 1, "model": "m", "training_seed": seed}
        results.append((Path(f"{seed}.json"), MethodResult(**vars(found) | {"identity": identity})))
    table = pivot(as_frame(results))
    assert table["near auroc"].to_list() == ["85.0 ±7.1 (2 of 3 runs)"]


# ------------------------------------------------------------------ results without AUROC


def closed(**numbers) -> dict[tuple[str, str], float]:
    return {(metric, "near"): value for metric, value in numbers.items()}


def ranked(methods) -> list[str]:
    evaluation = incognita.results.Evaluation(row="box", methods=methods, groups=(Split("near"),))
    return evaluation.ranking()


def test_methods_without_auroc_follow_by_unknown_ap_recall_and_open_set_error():
    nan = float("nan")
    ap, recall, error = "unknown_ap", "unknown_recall", "normalized_open_set_error"
    methods = {
        "worst auroc": record("worst auroc", closed(auroc=0.4)),
        "best auroc": record("best auroc", closed(auroc=0.9)),
        "low ap": record("low ap", closed(**{ap: 0.1, recall: 0.9, error: 0.0})),
        "high ap": record("high ap", closed(**{ap: 0.5, recall: 0.1, error: 0.9})),
        "low recall": record("low recall", closed(**{ap: 0.3, recall: 0.2, error: 0.1})),
        "high error": record("high error", closed(**{ap: 0.3, recall: 0.6, error: 0.2})),
        "low error": record("low error", closed(**{ap: 0.3, recall: 0.6, error: 0.1})),
        "undefined": record("undefined", closed(auroc=nan)),
    }
    expected = [
        "best auroc", "worst auroc", "high ap", "low error", "high error", "low recall", "low ap",
        "undefined",
    ]  # fmt: skip
    assert ranked(methods) == expected
    assert ranked(dict(reversed(methods.items()))) == expected


@pytest.fixture(scope="module")
def open_set(tmp_path_factory):
    """An open-set detector whose own labels are measured beside a method."""
    out = tmp_path_factory.mktemp("open")
    report = incognita.evaluate(
        OpenDetector(), box_benchmark(), "msp", n_resamples=0, out=out / "results"
    )
    return out, report


def test_a_table_of_an_open_set_detector_shows_a_dash_for_auroc(open_set):
    out, report = open_set
    frame = as_frame(load_results([out])[0])
    assert default_metrics(frame) == [
        "auroc", "unknown_ap", "unknown_recall", "normalized_open_set_error",
    ]  # fmt: skip
    rows = {row["method"]: row for row in pivot(frame).to_dicts()}
    assert rows["own-label"]["near auroc"] == "-"
    value = report.get("own-label").get("unknown_ap", "near").value
    assert rows["own-label"]["near unknown_ap"] == f"{100 * value:.1f}"
    done = CliRunner().invoke(app, ["results", "export", str(out)])
    assert done.exit_code == 0, done.output
    table = out / "table.md"
    CliRunner().invoke(app, ["results", "export", str(out), "--out", str(table)])
    (line,) = [line for line in table.read_text().splitlines() if "| own-label |" in line]
    assert "| - |" in line


def test_a_detector_with_mixed_sets_alone_is_ranked_and_exported(tmp_path):
    given = box_benchmark()
    benchmark = box_benchmark(unknown={}, mixed=given.mixed)
    report = incognita.evaluate(
        CellDetector(), benchmark, "msp, knn(k=1), mds", n_resamples=0, out=tmp_path / "results"
    )
    order = {
        name: (
            -method.get("unknown_ap", "both/all", "paper").value,
            -method.get("unknown_recall", "both/all", "paper").value,
            method.get("normalized_open_set_error", "both/all", "paper").value,
            name,
        )
        for name, method in report.methods.items()
    }
    assert len({place[:3] for place in order.values()}) > 1
    assert report.ranking() == sorted(order, key=order.__getitem__)
    done = CliRunner().invoke(app, ["results", "export", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "both/all" in done.stdout


# ------------------------------------------------------------------ disclosure


def disclosure(report, method: str) -> dict[str, str]:
    return report.get(method).provenance["disclosure"]


def test_what_nobody_states_is_not_stated(runs):
    _, (report, *_) = runs
    assert disclosure(report, "msp") == {
        "outlier data": "not stated",
        "external supervision": "not stated",
        "unknown labels": "not stated",
        "tuning data": "none",
        "calibration data": "none",
    }


def test_a_run_discloses_what_it_uses_itself(tmp_path):
    report = incognita.evaluate(
        TinyNet().eval(), tiny_benchmark(), "temperature, knn(k=3)", search=True, n_resamples=0,
        preprocess="none", disclosure={"outlier-data": "none", "unknown labels": "none"},
    )  # fmt: skip
    assert disclosure(report, "temperature")["calibration data"] == "known validation images (fit)"
    given, tuned = disclosure(report, "knn(k=3)"), disclosure(report, "knn(k=3) (tuned)")
    assert given["tuning data"] == "not stated"  # nobody says why k is 3
    assert tuned["tuning data"] == "known validation images; unknown validation images"
    assert given["unknown labels"] == "none"
    assert tuned["unknown labels"] == "unknown validation images (parameters)"
    assert given["outlier data"] == tuned["outlier data"] == "none"


@pytest.mark.parametrize(
    ("options", "calibration", "labels"),
    [
        ({}, "known validation images (t*, tau, tau of fmiyc)", "not stated"),
        (
            {"confidence_threshold": 0.3, "unknown_threshold": 0.5},
            "known validation images (tau of fmiyc)",
            "not stated",
        ),
        (
            {"unknown_threshold": "harmonic-mean"},
            "known validation images (t*, tau, tau of fmiyc); unknown validation images (tau)",
            "unknown validation images (tau)",
        ),
    ],
)
def test_a_detector_discloses_what_its_thresholds_are_chosen_on(options, calibration, labels):
    report = incognita.evaluate(
        CellDetector(), box_benchmark(), "msp", n_resamples=0,
        boxes=incognita.BoxOptions(**options),
    )  # fmt: skip
    assert disclosure(report, "msp")["calibration data"] == calibration
    assert disclosure(report, "msp")["unknown labels"] == labels


def test_a_later_statement_is_added_to_a_stored_result(tmp_path):
    evaluate(tmp_path, 1, disclosure={"outlier data": "none"})
    report = evaluate(tmp_path, 1, disclosure={"external supervision": "CLIP pre-training"})
    assert report.metadata["passes"]["images"] == 0  # nothing was run again
    (path,) = (tmp_path / "results").rglob("msp-*.json")
    stored = json.loads(path.read_text())["provenance"]["disclosure"]
    assert stored["outlier data"] == "none"
    assert stored["external supervision"] == "CLIP pre-training"
    assert incognita.evaluation.verify_results(tmp_path).is_complete


def test_results_are_filtered_by_what_they_disclose(tmp_path):
    evaluate(tmp_path, 1, disclosure={"outlier data": "none"})
    evaluate(tmp_path, 2, disclosure={"outlier data": "80 Million Tiny Images"})
    evaluate(tmp_path, 3)

    def seeds(wanted: str) -> set[int]:
        line = ["results", "ls", str(tmp_path), "--json", "--disclosed", wanted]
        found = json.loads(CliRunner().invoke(app, line).stdout)
        assert sum("left out" in note for note in found["notes"]) == 1
        return {row["training_seed"] for row in found["results"]}

    assert seeds("outlier-data=none") == {1}
    assert seeds("outlier data=any") == {2}
    assert seeds("outlier-data=not stated") == {3}
    (path,) = [p for p, r in load_results([tmp_path])[0]
               if r.method == "msp" and r.identity["training_seed"] == 2]  # fmt: skip
    shown = CliRunner().invoke(app, ["results", "show", str(path)])
    assert "outlier data: 80 Million Tiny Images" in shown.stdout
    assert "external supervision: not stated" in shown.stdout
    line = ["results", "export", str(tmp_path), "--disclosed", "unknown-labels=none"]
    assert isinstance(CliRunner().invoke(app, line).exception, MissingDataError)


@pytest.mark.parametrize(
    ("text", "message"),
    [("outlier-dat=none", "outlier data"), ("CLIP", "FIELD=TEXT"), ("outlier-data=", "text for")],
)
def test_a_wrong_statement_is_one_sentence(text, message):
    done = CliRunner().invoke(app, ["run", "digits/standard", "--disclose", text])
    assert message in str(done.exception)


def test_statements_and_training_come_from_the_command_line_or_a_file(tmp_path):
    options = tmp_path / "options.toml"
    options.write_text(
        'methods = "msp"\nlimit = 20\nresamples = 0\ntraining = "logitnorm"\ntraining-seed = 4\n'
        '[disclosure]\nexternal-supervision = "CLIP, images and texts"\n'
    )
    line = ["run", "digits/standard", "--out", str(tmp_path), "--options", str(options), "--json"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)["methods"]["msp"]
    assert record["identity"]["training"] == "logitnorm"
    assert record["identity"]["training_seed"] == 4
    assert record["provenance"]["disclosure"]["external supervision"] == "CLIP, images and texts"
