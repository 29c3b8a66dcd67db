"""The tables of a detector hold its numbers, whole, on every screen."""

import math
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from tests.results.method_records import record

from incognita.results.analysis import BOTH_FAMILIES, Correlations, FamilyMean
from incognita.results.evaluation import boxes_in_words
from incognita.results.tables.detection import (
    correlation_table,
    coverage_table,
    detection_table,
    family_table,
    mixed_table,
)

NAN = math.nan
GROUPS = ("near", "far", "farther")
WIDTHS = (60, 80, 120, 156, 200)
MIXED = (
    "map_known",
    "unknown_ap",
    "unknown_precision",
    "unknown_recall",
    "open_set_error",
    "normalized_open_set_error",
)
LONG = "react(percentile=95)+knn(k=10)"


def printed(table, width=156):
    console = Console(record=True, width=width, file=StringIO())
    console.print(table)
    return console.export_text()


def cells_of(text, name):
    """Give the cells of every row that begins with a name."""
    return [line.split()[1:] for line in text.splitlines() if line.split()[:1] == [name]]


def numbers_of(groups=GROUPS, start=0.0):
    """Give every number a value of its own, 0.1 % apart."""
    numbers, value = {}, start
    for group in groups:
        for metric in BOTH_FAMILIES:
            value += 0.001
            numbers[metric, group] = value
        value += 0.001
        numbers["normalized_open_set_error", group, "fmiyc"] = 1 + value
    return numbers


def in_percent(numbers):
    return [f"{100 * value:.1f}" for value in numbers.values()]


def test_a_row_holds_both_families_of_metrics_of_every_group_in_order():
    numbers = numbers_of()
    text = printed(detection_table([record("msp", numbers)], GROUPS))
    assert cells_of(text, "msp") == [in_percent(numbers)]
    header = next(line for line in text.splitlines() if line.split()[:1] == ["method"])
    titles = ["AUROC↑", "FPR↓", "AP_U↑", "P_U↑", "R_U↑", "nOSE↓", "/box↓"]
    assert header.split() == ["method"] + 3 * titles
    assert [line.split() for line in text.splitlines() if "farther" in line] == [list(GROUPS)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("names", [("msp", "vim"), ("msp", LONG, LONG + " (tuned)")])
def test_no_number_is_cut_on_any_screen(width, names):
    results = [
        record(name, numbers_of(start=0.1 * k + 0.9), half=0.05) for k, name in enumerate(names)
    ]
    text = printed(detection_table(results, GROUPS, width=width), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    shown = [cell for row in cells_of(text, "msp") for cell in row if not cell.startswith("±")]
    assert shown == in_percent(numbers_of(start=0.9))


def test_a_narrow_screen_stacks_groups_and_keeps_intervals():
    results = [record("msp", numbers_of(), half=0.05)]
    n_rows = {}
    for width in WIDTHS:
        text = printed(detection_table(results, GROUPS, width=width), width)
        n_rows[width] = len(cells_of(text, "msp"))
        assert "±5.0" in text
        assert "bootstrap interval" in " ".join(text.split())
    assert n_rows == {60: 3, 80: 3, 120: 2, 156: 1, 200: 1}


def test_what_auroc_cannot_see_stands_above_it():
    numbers = numbers_of(("near",)) | {
        ("images_without_detection", "near"): 0.123,
        ("unknown_objects_without_detection", "near"): 0.456,
    }
    text = printed(detection_table([record("msp", numbers)], ("near",)))
    head = text.partition("AUROC")[0]
    words = "near no prediction 12.3 undetected 45.6 method"
    assert head.split()[-7:] == words.split()


def test_without_replicates_nothing_is_said_of_intervals():
    text = " ".join(printed(detection_table([record("msp", numbers_of())], GROUPS), 200).split())
    assert "±" not in text
    assert "the threshold of the paper's code" in text


def test_what_is_undefined_is_a_dash():
    numbers = numbers_of(("near",)) | {("unknown_precision", "near"): NAN}
    row = cells_of(printed(detection_table([record("msp", numbers)], ("near",))), "msp")[0]
    assert row[3] == "-"
    results = [record("msp", numbers), record("vim", {})]
    assert cells_of(printed(detection_table(results, ("near",))), "vim") == [["-"] * 7]


def test_a_table_of_dashes_is_one_line():
    assert printed(detection_table([record("vim", {})], ("near",))) == (
        "left out: metrics of boxes, without any defined value\n"
    )
    found = Correlations(BOTH_FAMILIES, np.full((6, 6), NAN), np.zeros((6, 6), np.int64))
    assert "left out: correlations of metrics" in printed(correlation_table(found))


def test_names_are_shown_as_they_are():
    """Square brackets mean something to rich."""
    text = printed(detection_table([record("knn[bold]", numbers_of(("[near]",)))], ("[near]",)))
    assert "knn[bold]" in text
    assert "[near]" in text


def test_coverage_stands_for_every_split():
    numbers = {
        ("images_without_detection", "known"): 0.125,
        ("unknown_objects_without_detection", "known"): NAN,
        ("images_without_detection", "near/openimages-near"): 0.5,
        ("unknown_objects_without_detection", "near/openimages-near"): 0.75,
    }
    for width in WIDTHS:
        splits = ["known", "near/openimages-near"]
        text = printed(coverage_table(record("msp", numbers), splits, width=width), width)
        assert "…" not in text
        for name, cells in (
            ("known", ["1,234", "56", "12.5", "-"]),
            ("near/openimages-near", ["1,234", "56", "50.0", "75.0"]),
        ):
            assert [cell for row in cells_of(text, name) for cell in row] == cells


ALL_BOXES = [
    ("unknown_ap", "all"), ("ap_all", "all"), ("ap_all", "unknown-only"),
    ("ap_superclass", "unknown-only"),
]  # fmt: skip


def mixed_numbers(start=0.0):
    numbers, value = {}, start
    for split in ("all", "known-only", "unknown-only"):
        for metric in MIXED:
            value += 0.001
            is_count = metric == "open_set_error"
            numbers[metric, f"both/{split}"] = float(round(1000 * value)) if is_count else value
    for metric, split in ALL_BOXES:
        value += 0.001
        numbers[metric, f"all boxes both/{split}"] = value
    return numbers


@pytest.mark.parametrize("width", WIDTHS)
def test_mixed_sets_show_what_each_split_can_have(width):
    numbers = mixed_numbers()
    results = [record(name, numbers) for name in ("msp", LONG)]
    text = printed(mixed_table(results, "both", width=width), width)
    assert "…" not in text
    shown = [cell for row in cells_of(text, "msp") for cell in row]
    wanted = [(m, "all") for m in MIXED]
    wanted += [("map_known", "known-only")] + [(m, "unknown-only") for m in MIXED[1:]]
    expected = []
    wanted = [(m, f"both/{split}") for m, split in wanted]
    wanted += [(m, f"all boxes both/{split}") for m, split in ALL_BOXES]
    for metric, split in wanted:
        value = numbers[metric, split]
        expected.append(f"{value:.0f}" if metric == "open_set_error" else f"{100 * value:.1f}")
    assert shown == expected
    assert "both: known beside unknown objects" in " ".join(text.split())


def test_numbers_of_mixed_sets_from_few_images_say_so():
    made = record("msp", mixed_numbers())
    few = tuple(replace(r, units=4 if "unknown-only" in r.split else 40) for r in made.results)
    text = printed(mixed_table([replace(made, results=few)], "both", width=200), 200)
    shown = [cell for row in cells_of(text, "msp") for cell in row]
    assert shown.count("n=4") == 5 + 2  # the metrics of unknown-only images, and those of all boxes
    assert shown[:7] == in_percent_or_count(mixed_numbers())[:7]


def in_percent_or_count(numbers):
    return [
        f"{value:.0f}" if metric == "open_set_error" else f"{100 * value:.1f}"
        for (metric, _), value in numbers.items()
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_families_and_correlations_fit_every_screen(width):
    families = ("output-based", "feature-space", "mixed", "latent-space")
    means = [
        FamilyMean(family, group, metric, 0.001 * (1 + i + 10 * j + 100 * k), 2 + i)
        for i, family in enumerate(families)
        for j, group in enumerate(GROUPS)
        for k, metric in enumerate(BOTH_FAMILIES)
    ]
    text = printed(family_table(means, GROUPS, width=width), width)
    assert "…" not in text
    # the first family of a group stands behind its name
    expected = [f"{0.1 * (1 + 10 * 2 + 100 * k):.1f}" for k in range(6)]
    shown = [cell for row in cells_of(text, "farther") for cell in row if cell != "output-based"]
    assert shown == ["2", *expected]
    expected = [[f"{0.1 * (4 + 10 * j + 100 * k):.1f}" for k in range(6)] for j in range(3)]
    rows = cells_of(text, "latent-space")  # three for each of the tables below each other
    for j in range(3):
        assert [cell for row in rows[j::3] for cell in row] == ["5", *expected[j]]

    values = np.linspace(-1, 1, 36).reshape(6, 6)
    values[0, 1] = NAN
    found = Correlations(BOTH_FAMILIES, values, np.full((6, 6), 42))
    text = printed(correlation_table(found, width=width), width)
    assert "…" not in text
    assert cells_of(text, "AUROC")[1] == ["-1.00", "-", *(f"{v:.2f}" for v in values[0, 2:])]
    assert cells_of(text, "nOSE") == [[f"{v:.2f}" for v in values[5]]]
    assert "42 pairs" in " ".join(text.split())


def test_thresholds_are_said_in_a_line():
    one = {"t*": {"policy": "f1", "per class": [0.5, 0.5], "chosen on": "validation"}}
    assert boxes_in_words(one) == (", boxes with confidence ≥ t* = 0.500 (f1, validation)")
    several = {"t*": {"policy": "lrp", "per class": [0.25, None, 0.5], "chosen on": "test"}}
    assert "t* = 0.250 to 0.500 (lrp, test)" in boxes_in_words(several)
    assert boxes_in_words({}) == ""
    nothing = {"t*": {"policy": "lrp", "per class": [None], "chosen on": "test"}}
    assert boxes_in_words(nothing) == ""
