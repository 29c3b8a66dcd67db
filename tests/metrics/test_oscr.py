"""The open-set classification rate against all pairs and all thresholds."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import ranking as oracle

from incognita.errors import InvalidDataError
from incognita.metrics.ranking import auroc
from incognita.metrics.selective import ccr_at_fpr, openood_ccr_at_fpr, oscr, oscr_points

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


@st.composite
def tied_rows(draw: st.DrawFn) -> Rows:
    """Rows with few levels, at least one of each class."""
    drawn = draw(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.booleans()), min_size=2))
    score, is_unknown, is_correct = map(np.array, zip(*drawn, strict=True))
    is_unknown[:2] = [True, False]
    return score, is_unknown, is_correct


@given(tied_rows())
def test_the_area_is_the_share_of_pairs_that_are_right(rows: Rows) -> None:
    assert oscr(*rows) == pytest.approx(oracle.oscr(*rows), abs=1e-12)


@given(tied_rows(), st.integers(1, 30))
def test_the_rate_at_an_fpr_is_the_best_of_all_thresholds(rows: Rows, thirtieths: int) -> None:
    fpr = Fraction(thirtieths, 30)
    expected = oracle.ccr_at_fpr(*rows, fpr)
    assert ccr_at_fpr(*rows, fpr=float(fpr)) == pytest.approx(expected, abs=1e-12)


@given(tied_rows(), st.floats(0.01, 1))
def test_the_rule_of_openood_is_reproduced_and_never_more_generous(rows: Rows, fpr: float) -> None:
    measured = openood_ccr_at_fpr(*rows, fpr=fpr)
    assert measured == pytest.approx(oracle.openood_ccr_at_fpr(*rows, fpr), abs=1e-12)
    assert measured <= ccr_at_fpr(*rows, fpr=fpr) + 1e-12


@settings(deadline=None)  # the first call may compile
@given(tied_rows())
def test_the_area_is_auroc_when_every_class_is_named_correctly(rows: Rows) -> None:
    score, is_unknown, _ = rows
    everything = np.ones(len(score), bool)
    assert oscr(score, is_unknown, everything) == pytest.approx(auroc(score, is_unknown), abs=1e-12)


@given(tied_rows())
def test_whether_an_unknown_row_was_called_correct_does_not_matter(rows: Rows) -> None:
    score, is_unknown, is_correct = rows
    assert oscr(*rows) == oscr(score, is_unknown, is_correct ^ is_unknown)


def test_a_constant_score_has_half_the_accuracy() -> None:
    is_unknown = np.array([False, False, False, False, True])
    is_correct = np.array([True, True, True, False, False])
    assert oscr(np.zeros(5), is_unknown, is_correct) == pytest.approx(0.375)


def test_a_perfect_score_has_the_accuracy() -> None:
    is_unknown = np.array([False, False, True])
    is_correct = np.array([True, False, False])
    assert oscr(np.array([1, 2, 3]), is_unknown, is_correct) == 0.5
    assert ccr_at_fpr(np.array([1, 2, 3]), is_unknown, is_correct, fpr=1e-4) == 0.5


def test_a_tie_with_an_unknown_row_is_not_accepted_without_it() -> None:
    is_unknown = np.array([False, True])
    assert ccr_at_fpr(np.array([1, 1]), is_unknown, ~is_unknown, fpr=0.5) == 0.0
    assert ccr_at_fpr(np.array([1, 1]), is_unknown, ~is_unknown, fpr=1.0) == 1.0


def test_rounding_of_the_asked_rate_costs_no_row() -> None:
    score = np.array([*range(10), 0.5])
    is_unknown = np.arange(11) < 10
    for fpr in (0.1, 1 - 0.9, 0.3 / 3):
        assert ccr_at_fpr(score, is_unknown, ~is_unknown, fpr=fpr) == 1.0


def test_the_curve_runs_from_everything_to_nothing() -> None:
    points = oscr_points(np.array([1, 2]), np.array([False, True]), np.array([True, False]))
    assert (points.ccr[0], points.fpr[0]) == (1, 1)
    assert (points.ccr[-1], points.fpr[-1]) == (0, 0)


def test_a_class_that_is_missing_is_refused() -> None:
    with pytest.raises(InvalidDataError, match="is_unknown marks 0 of 3 rows"):
        oscr(np.zeros(3), np.zeros(3, bool), np.zeros(3, bool))


@pytest.mark.parametrize("metric", [ccr_at_fpr, openood_ccr_at_fpr])
def test_an_fpr_that_is_no_share_is_refused(metric) -> None:
    with pytest.raises(InvalidDataError, match=r"fpr must be above 0 and at most 1, but is 5\.0"):
        metric(np.zeros(2), np.array([True, False]), np.ones(2, bool), fpr=5.0)
