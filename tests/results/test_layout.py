"""Reports on every screen: no line is too long, and every number is whole and the right one."""

import math
import re
from dataclasses import replace
from io import StringIO
from itertools import count as numbers_from

import pytest
from rich.console import Console
from tests.metrics.scene_cases import make_scene
from tests.oracles.scenes import to_containers
from tests.results.method_records import record

from incognita.evaluation.certify import certify
from incognita.results.analysis import BOTH_FAMILIES
from incognita.results.evaluation import Evaluation
from incognita.results.export import Report, as_text
from incognita.results.method_result import GridPoint, MethodKey, SearchRecord
from incognita.results.result import Split
from incognita.results.tables.certificate import reliability_table, threshold_table

WIDTHS = (60, 80, 100, 156, 200)
NAMES = ("msp", "react(percentile=95)+knn(k=10)", "dice+react", "vim")
GROUPS = tuple(map(Split, ("near", "far", "farther")))
METADATA = {
    "benchmark": "mine", "version": 1, "model": "resnet18",
    "passes": {"images": 1, "forward": 1, "backward": 1},
}  # fmt: skip


def printed(report: Report, width: int) -> str:
    """Everything that a command prints of a report."""
    console = Console(file=StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        if isinstance(report, Evaluation):
            console.print(report.further_tables(width=width) or "")
        else:
            console.print(threshold_table(report.thresholds, width=width))
            console.print(reliability_table(report.reliability, width=width))
    return as_text(report, width=width) + captured.get()


def classifier_report(**changes) -> Evaluation:
    values = numbers_from(start=0.5017, step=0.00103)
    splits = (*GROUPS, "known", "misclassified")
    metrics = ("auroc", "fpr_at_95_unknown_recall")
    methods = {}
    for name in NAMES:
        mine = {(metric, split): next(values) for split in splits for metric in metrics}
        methods[MethodKey(name)] = record(name, mine | {("accuracy", "known"): 0.9}, half=0.0123)
    return Evaluation(
        **{"row": "image", "methods": methods, "groups": GROUPS, "metadata": METADATA} | changes
    )


def detector_report() -> Evaluation:
    values = numbers_from(start=0.1017, step=0.00103)
    coverage = ("images_without_detection", "unknown_objects_without_detection")
    methods = {}
    for name in NAMES:
        mine = {
            (metric, split): next(values)
            for group in GROUPS
            for split in (group, Split(group, "a-set-of-images"))
            for metric in (*BOTH_FAMILIES, *coverage)
        }
        mine |= {(metric, "known"): next(values) for metric in (*coverage, "ap", "ap50")}
        methods[MethodKey(name)] = record(name, mine, half=0.0123)
    families = dict(zip(NAMES, ("output-based", "mixed", "mixed", "feature-space"), strict=True))
    return Evaluation(
        row="box", methods=methods, groups=GROUPS, families=families, metadata=METADATA
    )


def street_report() -> Report:
    return certify(*to_containers(make_scene("all at once", 0))[::-1], n_resamples=20)


REPORTS = {"classifier": classifier_report, "detector": detector_report, "certify": street_report}


@pytest.fixture(scope="module", params=REPORTS)
def report(request) -> Report:
    return REPORTS[request.param]()


def expected_numbers(report: Report) -> set[str]:
    """Every number of a report, as tables write them."""
    found = {"0.0", "0.00", "0.50", "0.95", "0.75"}  # cost, and recalls and IoUs in explanations
    for row in report.records():
        values = [row["value"], row["low"], row["high"]]
        shown = [value for value in values if value is not None and not math.isnan(value)]
        found |= {f"{100 * value:.1f}" for value in shown}
        if len(shown) == 3:
            found.add(f"{50 * (shown[2] - shown[1]):.1f}")
    if isinstance(report, Evaluation):
        gaps = [report.gap_to_best(title).value for title in report.methods]
        found |= {f"{100 * gap:.1f}" for gap in gaps} | {
            f"{100 * q:.1f}" for q in report.known_quality().values()
        }
    if isinstance(report, Evaluation) and report.row == "box":
        found |= {f"{100 * mean.value:.1f}" for mean in report.family_means()}
        found |= {f"{value:.2f}" for value in report.correlations().values.ravel()}
    if not isinstance(report, Evaluation):
        found |= {f"{k / 10:.1f}" for k in range(11)}
        found |= {f"{100 * b.quality:.1f}" for b in report.reliability}
        found |= {f"{100 * t.optimal_lrp:.1f}" for t in report.thresholds}
        found |= {
            f"{math.floor(1e4 * t.threshold) / 1e4:.4f}"
            for t in report.thresholds
            if t.threshold == t.threshold
        }
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_every_printed_number_is_whole_and_right(report, width):
    text = printed(report, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    shown = set(re.findall(r"-?\d+\.\d+", text))
    assert len(shown) > 15
    assert shown - expected_numbers(report) == set()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_main_number_of_every_method_is_on_every_screen(width):
    report = classifier_report()
    text = printed(report, width)
    for result in report.results:
        for group in GROUPS:
            assert f"{100 * result.get('auroc', group).value:.1f}" in text


def test_what_a_narrow_screen_leaves_out_is_one_line():
    assert "left out" not in as_text(classifier_report(), width=200)
    lines = as_text(classifier_report(), width=80).splitlines()
    assert [line for line in lines if "left out" in line] == [
        "left out to fit 80 columns: cost, mistakes, FPR@95 (--wide prints all)"
    ]


def test_an_explanation_is_as_wide_as_the_screen():
    lines = as_text(classifier_report(), width=100).splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("percent;"))
    assert len(lines[start]) > 80


def tuned(name: str, numbers: dict, k: int):
    found = record(name, numbers, half=0.01)
    curve = (GridPoint({"k": 50}, 0.8), GridPoint({"k": k}, 0.9))
    return replace(found, search=SearchRecord("tuned", curve))


def test_tuned_rows_are_shown_only_where_they_differ():
    numbers = {("auroc", group): 0.8 for group in GROUPS} | {("accuracy", "known"): 0.9}
    better = numbers | {("auroc", "near"): 0.9}
    methods = {
        MethodKey("msp"): record("msp", numbers, half=0.01),
        MethodKey("msp", tuned=True): tuned("msp", numbers, 50),
        MethodKey("knn"): record("knn", numbers, half=0.01),
        MethodKey("knn", tuned=True): tuned("knn", better, 10),
    }
    report = classifier_report(methods=methods)
    text = printed(report, 156)
    assert "knn (tuned)" in text
    assert "msp (tuned)" not in text
    assert "note: the search changed no number of msp" in text
    assert len(report.results) == 4  # nothing is lost from the data


def test_methods_that_are_skipped_for_one_reason_share_a_line():
    why = "needs input gradients"
    report = classifier_report(skipped={"odin": why, "safe": "needs boxes", "godin": why})
    lines = [line for line in as_text(report).splitlines() if line.startswith("skipped: ")]
    assert lines == ["skipped: odin, godin: needs input gradients", "skipped: safe: needs boxes"]


def test_one_image_is_not_one_images():
    line = classifier_report().headline()
    assert line.endswith("1 image through the network, 1 forward and 1 backward pass")


def test_a_model_is_shown_by_the_name_it_was_given():
    report = classifier_report(metadata=METADATA | {"name": "Ours, epoch 90"})
    assert report.headline().startswith("mine v1: Ours, epoch 90, accuracy 90.0 %")
    assert "Ours, epoch 90" in repr(report)
    assert report.as_json()["facts"]["name"] == "Ours, epoch 90"
