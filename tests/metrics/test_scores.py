"""What metrics on scores refuse, word by word."""

import jaxtyping
import numpy as np
import pytest

from incognita.errors import InvalidDataError
from incognita.metrics.ranking import (
    fpr_at_known_recall,
    fpr_at_unknown_recall,
    ranking_metrics,
    ranking_replicates,
)

TRUTH = np.array([True, False, False])


@pytest.fixture
def unchecked_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of tests nobody checks shapes before the function does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_refused_with_its_row(bad) -> None:
    score = np.array([0.0, 1.0, bad, bad])
    sentence = (
        r"unknown_score must be finite, but 2 of 4 values are not, the first in row 2; "
        r"repair or drop these rows\."
    )
    with pytest.raises(InvalidDataError, match=f"^{sentence}$"):
        ranking_metrics(score, np.array([True, False, True, False]))


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("score", "is_unknown", "options", "sentence"),
    [
        (
            np.zeros((3, 2)),
            TRUTH,
            {},
            "unknown_score must have one axis, but its shape is (3, 2); pass one score per row.",
        ),
        (
            np.zeros(4),
            TRUTH,
            {},
            "is_unknown has shape (3,) beside 4 scores; pass one value per score.",
        ),
        (
            np.zeros(3),
            np.array([-1, 0, 0]),
            {},
            "is_unknown must be boolean, but is int64; "
            "compare it with a label, as in labels == -1.",
        ),
        (
            np.zeros(3),
            np.zeros(3, bool),
            {},
            "is_unknown marks 0 of 3 rows, but a ranking needs both classes; add unknown rows.",
        ),
        (
            np.zeros(3),
            np.ones(3, bool),
            {},
            "is_unknown marks 3 of 3 rows, but a ranking needs both classes; add known rows.",
        ),
        (
            np.zeros(0),
            np.zeros(0, bool),
            {},
            "is_unknown marks 0 of 0 rows, but a ranking needs both classes; add unknown rows.",
        ),
        (
            np.zeros(3),
            TRUTH,
            {"weights": np.ones(2)},
            "weights has shape (2,) beside 3 scores; pass one value per score.",
        ),
        (
            np.zeros(3),
            TRUTH,
            {"weights": np.array([1.0, -1.0, -2.0])},
            "weights must not be negative, but 2 of 3 values are, the first in row 1; "
            "pass zero for a row that must not count.",
        ),
        (
            np.zeros(3),
            TRUTH,
            {"weights": np.array([1.0, np.nan, 1.0])},
            "weights must be finite, but 1 of 3 values are not, the first in row 1; "
            "repair or drop these rows.",
        ),
        (
            np.zeros(3),
            TRUTH,
            {"weights": np.array([1.0, 0.0, 0.0])},
            "The weights of all 2 known rows are zero, but a ranking needs both classes; "
            "give one of these rows a weight.",
        ),
    ],
)
def test_wrong_rows_are_refused_in_one_sentence(score, is_unknown, options, sentence) -> None:
    with pytest.raises(InvalidDataError) as error:
        ranking_metrics(score, is_unknown, **options)
    assert str(error.value) == sentence


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        (
            np.ones(3),
            "counts has shape (3,) beside 3 scores; "
            "pass one row per score and one column per replicate.",
        ),
        (
            np.array([[1, 1], [np.nan, np.inf], [1, 1]]),
            "counts must be finite, but 2 of 6 values are not, the first in row 1; "
            "repair or drop these rows.",
        ),
        (
            np.array([[1, 1], [1, 1], [-1, 1]]),
            "counts must not be negative, but 1 of 6 values are, the first in row 2; "
            "pass zero for a row that must not count.",
        ),
    ],
)
def test_wrong_counts_are_refused_in_one_sentence(counts, sentence) -> None:
    with pytest.raises(InvalidDataError) as error:
        ranking_replicates(np.zeros(3), TRUTH, counts)
    assert str(error.value) == sentence


@pytest.mark.parametrize("recall", [0.0, 95.0, -0.5, float("nan")])
@pytest.mark.parametrize("metric", [fpr_at_unknown_recall, fpr_at_known_recall])
def test_a_recall_that_is_no_share_is_refused(metric, recall) -> None:
    with pytest.raises(InvalidDataError, match=r"recall must be above 0 and at most 1, but is "):
        metric(np.zeros(3), TRUTH, recall=recall)
