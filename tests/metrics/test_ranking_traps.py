"""Traps that public code fell in, and how published numbers have to be read.

The quirks are those of the notes on OpenOOD, section 3, and on detection, section 1.2.
"""

import numpy as np
import pytest
from hypothesis import given
from scipy.special import expit
from sklearn import metrics as sklearn_metrics
from tests.oracles.ranking_rows import fpr_at_95, levels, random_rows, tied_rows

from incognita.metrics.ranking import auroc, fpr_at_unknown_recall, ranking_metrics, roc_points

# FPR@95%TPR / detection error / AUROC as printed in tables VI and VII of FACETS.
FACETS = """
22.36/13.68/94.79  4.50/4.75/99.02   4.50/4.74/99.02   10.34/7.67/97.82  10.34/7.67/97.82  0.37/1.61/99.81
86.85/45.91/64.40  79.69/42.34/69.79 79.67/42.33/69.79 84.43/44.72/65.73 84.46/44.72/65.74 80.83/42.92/71.30
87.22/46.11/63.99  81.28/43.14/68.91 81.27/43.14/68.91 85.27/45.13/64.84 85.26/45.13/64.85 82.06/43.53/70.93
87.64/46.32/63.44  82.16/43.58/68.05 82.15/43.58/68.05 86.44/45.72/63.80 86.43/45.71/63.81 83.19/44.09/70.24
88.66/46.83/62.28  85.30/45.15/66.29 85.30/45.15/66.29 88.14/46.56/62.30 88.14/46.56/62.30 85.37/45.18/69.54
82.64/43.82/69.56  74.19/39.60/75.87 74.19/39.59/75.87 79.11/42.05/72.39 79.10/42.05/72.40 82.24/43.62/67.49
82.44/43.72/69.83  74.01/39.51/76.38 74.02/39.51/76.38 78.92/41.96/72.70 78.93/41.96/72.70 81.49/43.25/68.43
76.33/40.66/77.74  81.92/43.45/70.84 81.91/43.45/70.84 81.83/43.41/71.23 81.84/43.41/71.23 96.40/49.97/47.24
"""  # noqa: E501


def test_a_constant_score_has_the_share_of_unknown_as_average_precision() -> None:
    balanced = ranking_metrics(*levels(30, 30))
    assert (balanced.aupr_unknown, balanced.aupr_known) == (0.5, 0.5)
    assert (balanced.aupr_unknown_trapezoid, balanced.aupr_known_trapezoid) == (0.75, 0.75)
    assert (balanced.auroc, balanced.detection_error) == (0.5, 0.5)


def test_a_constant_score_on_unequal_classes_shows_how_optimistic_trapezoids_are() -> None:
    metrics = ranking_metrics(*levels(90, 10))
    assert (metrics.aupr_known, metrics.aupr_unknown) == (0.9, 0.1)
    assert (metrics.aupr_known_trapezoid, metrics.aupr_unknown_trapezoid) == (0.95, 0.55)


def test_no_threshold_is_lost_where_the_roc_curve_is_straight() -> None:
    score, is_unknown = levels(1, 1, n_levels=20)
    metrics = ranking_metrics(score, is_unknown)
    assert metrics.fpr_at_95_unknown_recall == 0.95
    assert metrics.fpr_at_95_known_recall == 0.95
    assert len(roc_points(score, is_unknown).threshold) == 21
    fpr, tpr, _ = sklearn_metrics.roc_curve(is_unknown, score)
    assert fpr[np.argmax(tpr >= 0.95)] == 1.0  # what OpenOOD reports


def test_a_float32_softmax_that_saturates_ties_and_float64_does_not() -> None:
    margin = np.concatenate([np.linspace(20, 30, 100), np.linspace(5, 25, 100)])
    is_unknown = np.repeat([False, True], 100)
    doubt = 1 - expit(margin.astype(np.float32))
    assert np.count_nonzero(doubt == 0) > 100
    assert fpr_at_unknown_recall(doubt, is_unknown) == 1.0
    assert fpr_at_unknown_recall(expit(-margin), is_unknown) == 0.4


def test_both_false_positive_rates_of_openood_are_there_under_their_own_names() -> None:
    score, is_unknown = random_rows(11, np.float32)
    score[is_unknown] *= 3
    metrics = ranking_metrics(score, is_unknown)
    since_august_2023 = fpr_at_95(is_unknown, score, None)
    before = fpr_at_95(~is_unknown, -score, None)
    assert abs(before - since_august_2023) > 0.05
    assert metrics.fpr_at_95_unknown_recall == pytest.approx(since_august_2023, abs=1e-12)
    assert metrics.fpr_at_95_known_recall == pytest.approx(before, abs=1e-12)


def test_scores_far_from_zero_are_not_squashed() -> None:
    rng = np.random.default_rng(0)
    score = np.concatenate([rng.normal(-800, 100, 2000), rng.normal(-1000, 100, 2000)])
    is_unknown = np.repeat([True, False], 2000)
    expected = sklearn_metrics.roc_auc_score(is_unknown, score)
    assert expected == pytest.approx(0.921, abs=0.01)
    assert auroc(score, is_unknown) == pytest.approx(expected, abs=1e-12)
    assert auroc(score.astype(np.float32), is_unknown) == pytest.approx(expected, abs=1e-6)
    # The sigmoid of torchmetrics, for the size of the trap.
    assert auroc(expit(score), is_unknown) < 0.65
    assert auroc(expit(score.astype(np.float32)), is_unknown) == pytest.approx(0.5, abs=0.01)


# --- detection error as FACETS prints it ---


def facets_triples() -> np.ndarray:
    return np.array([triple.split("/") for triple in FACETS.split()], dtype=float) / 100


def test_every_printed_detection_error_fits_the_minimum_under_known_recall() -> None:
    fpr, error, _ = facets_triples().T
    assert len(fpr) == 48
    rounding = 1.01e-4
    assert (error <= np.minimum((fpr + 0.05) / 2, 0.5) + rounding).all()
    assert (error >= fpr / 2 - rounding).all()


def test_printed_detection_errors_exclude_a_fixed_threshold_and_a_free_minimum() -> None:
    fpr, error, area = facets_triples().T
    is_off_fixed = np.abs(error - (fpr + 0.05) / 2) > 1.6e-4
    assert fpr[is_off_fixed].tolist() == pytest.approx([0.0037, 0.9640])
    # No curve rises more than J = 1 - 2 * error above the diagonal, if that error is the least.
    gain = 1 - 2 * error
    is_off_free = area > 0.5 + gain - gain**2 / 2 + 1e-3
    assert np.count_nonzero(is_off_free) == 41


@given(tied_rows())
def test_our_detection_errors_obey_the_bounds_of_the_printed_ones(rows) -> None:
    score, is_unknown, _ = rows
    metrics = ranking_metrics(score, is_unknown)
    fpr, error = metrics.fpr_at_95_known_recall, metrics.detection_error_at_95_known_recall
    assert fpr / 2 - 1e-12 <= error <= min((fpr + 0.05) / 2, 0.5) + 1e-12
    assert metrics.detection_error <= error
    gain = 1 - 2 * metrics.detection_error
    assert metrics.auroc <= 0.5 + gain - gain**2 / 2 + 1e-12
