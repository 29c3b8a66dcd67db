"""Results as a terminal shows them: every cell, once."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from tests.metrics.scene_cases import make_scene
from tests.oracles.scenes import to_containers

from incognita.evaluation.certify import certify
from incognita.metrics.catalog import METRICS
from incognita.metrics.open_set import SPLITS
from incognita.results.certificate import Certificate
from incognita.results.claims import Claim, check_claims
from incognita.results.export import as_text
from incognita.results.result import ClassThreshold, Result
from incognita.results.tables.certificate import (
    BOUNDS,
    CONVENTIONS,
    certificate_table,
    threshold_table,
)


def first_table(printed: Group) -> Table:
    return next(part for part in printed.renderables if isinstance(part, Table))


def caption(printed: Group) -> str:
    return "\n".join(part.plain for part in printed.renderables if isinstance(part, Text))


def shown(table: Table | Group) -> list[list[str]]:
    """The cells of a table as they are printed, row by row, without the empty rows."""
    table = first_table(table) if isinstance(table, Group) else table
    console = Console(width=400, color_system=None)
    columns = [
        [console.render_str(c) if isinstance(c, str) else c for c in column.cells]
        for column in table.columns
    ]
    rows = [[cell.plain.strip() for cell in row] for row in zip(*columns, strict=True)]
    return [row for row in rows if any(row)]


def record(value: float, convention: str = "paper", split: str = "all", **changes) -> Result:
    return Result(**({"metric": "lrp"} | changes), convention=convention, split=split, value=value)


def undefined(metric: str, split: str = "all") -> Result:
    return Result(metric, "paper", split, math.nan, reason="there is no object")


def test_one_row_per_metric_under_the_name_of_its_group_and_one_column_per_split():
    table = certificate_table(
        [
            record(0.25),
            record(0.5, split="known-only"),
            record(0.125, metric="ap", convention="coco"),
            record(0.75, metric="optimal_lrp"),
        ]
    )
    headers = [column.header.plain for column in first_table(table).columns]
    assert headers == ["metric", "convention", "all", "known-only", "what it is"]
    assert shown(table) == [
        ["errors (LRP)", "", "", "", ""],
        ["LRP ↓", "paper", "25.0", "50.0", "of all detections given"],
        ["oLRP ↓", "paper", "75.0", "", "at the best threshold per class"],
        ["closed set", "", "", "", ""],
        ["AP ↑", "coco", "12.5", "", "known classes, IoU 0.50 to 0.95"],
    ]


def test_conventions_that_agree_everywhere_share_a_row():
    table = certificate_table(
        [
            record(0.25, "saod"),
            record(0.25, "paper"),
            record(0.25, "detection-calibration"),
            record(0.5, "saod", "known-only"),
            record(0.5, "paper", "known-only"),
            record(0.75, "detection-calibration", "known-only"),
        ]
    )
    assert shown(table)[1:] == [
        ["LRP ↓", "paper, saod", "25.0", "50.0", "of all detections given"],
        ["", "detection-calibration", "25.0", "75.0", ""],
    ]


def test_conventions_with_different_intervals_do_not_share_a_row():
    table = certificate_table([record(0.5, low=0.25, high=0.75), record(0.5, "saod")])
    assert [row[2] for row in shown(table)[1:]] == ["50.0 [25.0, 75.0]", "50.0"]


@pytest.mark.parametrize(
    ("result", "cell"),
    [
        (record(0.4567), "45.7"),
        (record(0.4567, low=0.4, high=0.5), "45.7 [40.0, 50.0]"),
        (record(0.0, low=0.0, high=0.0), "0.0 [0.0, 0.0]"),
        (record(1.0), "100.0"),
        (record(37.0, metric="open_set_error"), "37"),
        (record(37.0, metric="open_set_error", low=30.0, high=50.0), "37 [30, 50]"),
        (record(0.37, metric="normalized_open_set_error"), "37.0"),
        (undefined("lrp"), "-"),
        (undefined("open_set_error"), "-"),
    ],
)
def test_shares_are_in_percent_counts_as_they_are_and_undefined_is_a_dash(result, cell):
    other = record(0.5, metric="laece", split="known-only")
    assert shown(certificate_table([result, other]))[1][2] == cell


def test_a_narrow_screen_loses_the_meanings_first_and_then_the_intervals():
    results = [record(0.5, low=0.25, high=0.75, split=split) for split in SPLITS]
    interval = "50.0 [25.0, 75.0]"
    for width, cells, left_out in (
        (156, ["LRP ↓", "paper", *3 * [interval], "of all detections given"], None),
        (90, ["LRP ↓", "paper", *3 * [interval]], "meanings"),
        (60, ["LRP ↓", "paper", *3 * ["50.0"]], "meanings, intervals"),
    ):
        table = certificate_table(results, width=width)
        assert shown(table)[1] == cells
        assert (BOUNDS in caption(table)) == (interval in cells)
        line = f"left out to fit {width} columns: {left_out} (--wide prints all)"
        assert (line in caption(table)) == (left_out is not None)


def test_brackets_are_explained_only_where_there_are_some():
    assert BOUNDS not in caption(certificate_table([record(0.5)]))


@pytest.mark.parametrize("width", [60, 80, 110, 160])
def test_every_convention_is_printed_however_narrow_the_screen(width):
    certificate = certify(*to_containers(make_scene("all at once", 0))[::-1], n_resamples=5)
    console = Console(width=width, color_system=None)
    table = certificate_table(certificate.results, width=width)
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    # a long list is folded over lines: read the column of the conventions from top to bottom
    start = next(line for line in lines if "convention" in line).index("convention")
    column = "".join(line[start : start + 22].split("  ")[0].strip() for line in lines)
    for convention in {result.convention for result in certificate.results}:
        assert convention in column


def test_conventions_nobody_has_heard_of_come_last_by_name():
    names = ["zoo", "mine", "saod", "paper"]
    table = certificate_table([record(k / 8, name) for k, name in enumerate(names)])
    assert [row[1] for row in shown(table)[1:]] == ["paper", "saod", "mine", "zoo"]


def test_a_split_where_a_metric_is_not_given_stays_empty():
    table = certificate_table([record(0.5, split="all"), undefined("ap_superclass", "known-only")])
    assert [row[2:4] for row in shown(table) if row[1]] == [["50.0", ""], ["", "-"]]


def test_a_table_of_dashes_is_one_line():
    line = "left out: the certificate, without any defined value"
    for results in ([], [undefined("lrp"), undefined("ap_superclass", "known-only")]):
        assert [part.plain for part in certificate_table(results).renderables] == [line]


def test_a_certificate_shows_every_metric_and_every_convention_once():
    certificate = certify(*to_containers(make_scene("all at once", 0))[::-1], n_resamples=0)
    rows = shown(certificate.table())
    titles = [row[0] for row in rows if row[0] and row[1]]
    emitted = dict.fromkeys(result.metric for result in certificate.results)
    expected = [f"{METRICS[name].title} {METRICS[name].direction.arrow}" for name in emitted]
    assert sorted(titles) == sorted(expected)
    groups = [row[0] for row in rows if row[0] and not row[1]]
    assert groups == ["closed set", "open set", "operating point", "errors (LRP)", "calibration"]
    title, given = "", {}
    for row in rows:
        title = row[0] or title
        if row[1]:
            given.setdefault(title, []).extend(row[1].split(", "))
    for name, shown_as in zip(emitted, expected, strict=True):
        conventions = {r.convention for r in certificate.results if r.metric == name}
        assert sorted(given[shown_as]) == sorted(conventions)
        assert conventions <= set(CONVENTIONS)
    columns = first_table(certificate.table()).columns
    assert [column.header.plain for column in columns][2:5] == list(SPLITS)


def test_the_meaning_of_a_metric_stands_once_beside_its_first_convention():
    rows = shown(certificate_table([record(0.25), record(0.5, "saod")]))
    assert [row[-1] for row in rows] == ["", "of all detections given", ""]


def test_thresholds_are_shown_with_four_decimals_and_a_bar():
    rows = shown(
        threshold_table(
            [
                ClassThreshold("car", 0.12349, 0.5, 40),
                ClassThreshold("bus", math.nan, 1.0, 2),
                ClassThreshold("dog", math.nan, math.nan, 0),
            ]
        )
    )
    assert rows == [
        ["car", "40", "0.1234", "50.0", "━" * 15 + "─" * 15],
        ["bus", "2", "-", "100.0", "━" * 30],
        ["dog", "0", "-", "-", "no object"],
    ]


def printed_threshold(threshold: float) -> float:
    return float(shown(threshold_table([ClassThreshold("car", threshold, 0.5, 1)]))[0][2])


@given(st.floats(-1e308, 1e308) | st.floats(0, 1) | st.floats(0, 1, width=32))
def test_cutting_at_the_printed_threshold_keeps_the_detection_that_decides(threshold):
    printed = printed_threshold(threshold)
    assert threshold - 2e-4 <= printed <= threshold
    if abs(threshold) <= 1 and np.float32(threshold) == threshold:
        assert np.float32(threshold) >= np.float32(printed)


def test_a_threshold_just_below_a_printed_number_is_rounded_down():
    for k in range(1, 10_000, 7):
        just_below = math.nextafter(k / 10_000, 0)
        assert printed_threshold(just_below) <= just_below


@pytest.mark.parametrize("name", ["car [old]", "[/]", "[red]", ":car:"])
def test_a_class_name_is_shown_as_it_is_whatever_brackets_it_has(name):
    thresholds = [ClassThreshold(name, 0.5, 0.5, 1), ClassThreshold(name, math.nan, math.nan, 0)]
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(threshold_table(thresholds))
    assert capture.get().count(name) == 2


@pytest.mark.parametrize("width", [60, 80, 120, 156, 10_000])
def test_claims_are_laid_out_on_any_screen_without_cutting_a_number_or_obeying_markup(width):
    found = Result(
        "laece", "paper", "all", 0.190123, low=0.173812, high=0.215512,
        support={"images": 1200}, parameters={"tau": 0.1},
    )  # fmt: skip
    claims = [
        Claim(metric="laece", at_most=0.2, name="[red]REQ\x1b[31m"),
        Claim(metric="laece", at_most=0.2, confidence=0.95),
        Claim(metric="ap", at_least=0.2),
    ]
    certificate = Certificate((found,), (), claims=check_claims(claims, [found]))
    lines = as_text(certificate, width=width).splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join("\n".join(lines).split())
    assert text.count("0.1901 [0.1738, 0.2155]") == 2
    for word in ("pass", "fail", "undefined", "[red]REQ"):
        assert word in text
    assert "\x1b" not in text
    assert ("tau = 0.1" in text) == (width >= 100)
