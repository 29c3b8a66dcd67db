"""Risk-coverage curves against every order of the rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import ranking as oracle

from incognita.errors import InvalidDataError
from incognita.metrics.selective import aurc, excess_aurc, risk_coverage

few_rows = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6)


@given(few_rows)
def test_the_area_is_the_mean_over_every_order_of_the_ties(rows) -> None:
    score, is_wrong = map(np.array, zip(*rows, strict=True))
    expected = oracle.aurc(score, is_wrong.tolist())
    assert aurc(score, is_wrong) == pytest.approx(expected, abs=1e-12)


@given(few_rows)
def test_the_excess_is_what_the_best_order_would_save(rows) -> None:
    score, is_wrong = map(np.array, zip(*rows, strict=True))
    expected = aurc(score, is_wrong) - oracle.best_aurc(is_wrong)
    assert excess_aurc(score, is_wrong) == pytest.approx(expected, abs=1e-12)
    assert excess_aurc(score, is_wrong) >= -1e-12
    assert excess_aurc(is_wrong.astype(float), is_wrong) == pytest.approx(0, abs=1e-12)


def test_the_curve_without_ties_is_a_running_mean() -> None:
    rng = np.random.default_rng(0)
    score, is_wrong = rng.permutation(500), rng.random(500) < 0.2
    curve = risk_coverage(score, is_wrong)
    order = np.argsort(score)
    running = np.cumsum(is_wrong[order]) / np.arange(1, 501)
    np.testing.assert_allclose(curve.risk, running, atol=1e-12)
    np.testing.assert_array_equal(curve.threshold, score[order])
    assert (curve.coverage[0], curve.coverage[-1]) == (1 / 500, 1)


def test_a_constant_score_has_the_error_rate_as_area() -> None:
    is_wrong = np.arange(10) < 3
    assert aurc(np.zeros(10), is_wrong) == pytest.approx(0.3)
    assert aurc(np.zeros(10), is_wrong[::-1]) == aurc(np.zeros(10), is_wrong)


def test_a_model_that_is_never_wrong_has_no_risk() -> None:
    assert aurc(np.arange(4), np.zeros(4, bool)) == 0
    assert excess_aurc(np.arange(4), np.zeros(4, bool)) == 0


def test_the_limit_of_many_rows_is_the_formula_of_geifman() -> None:
    is_wrong = np.arange(100_000) >= 80_000
    best = aurc(np.arange(100_000), is_wrong)
    assert best == pytest.approx(0.2 + 0.8 * np.log(0.8), abs=1e-4)


def test_no_rows_are_refused() -> None:
    sentence = "Risk needs at least one row, but unknown_score is empty."
    with pytest.raises(InvalidDataError, match=sentence):
        aurc(np.zeros(0), np.zeros(0, bool))
