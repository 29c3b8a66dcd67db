"""Section 3 of the notes on OpenOOD, row by row: its metrics and their quirks.

Every test begins with the row it covers; what is asserted elsewhere or later stands at the end.
`U` is an unknown row and `K` a known one, listed from the largest score down.
"""

import numpy as np
import pytest

from incognita.errors import InvalidDataError
from incognita.metrics.calibration import ece
from incognita.metrics.ranking import RankingMetrics, auroc, ranking_metrics
from incognita.metrics.selective import ccr_at_fpr, openood_ccr_at_fpr


def ranked(order: str) -> RankingMetrics:
    """Measure rows of falling score, written as U and K."""
    score = np.arange(len(order), 0, -1, dtype=float)
    return ranking_metrics(score, np.array([letter == "U" for letter in order]))


def test_auroc_gives_half_credit_and_does_not_ask_which_class_is_positive():
    # "AUROC". Unknown 3 2, known 2 1: three pairs in order and a tie, 3.5 / 4.
    score, is_unknown = np.array([3.0, 2.0, 2.0, 1.0]), np.array([True, True, False, False])
    assert auroc(score, is_unknown) == 0.875
    assert auroc(-score, ~is_unknown) == 0.875


def test_fpr_95_takes_a_tie_group_whole():
    # "FPR@95": share of ID flagged where >= 95 % of OOD is. Unknown 1 to 20: 19 of them are at or
    # above 2, and so are two known rows of exactly 2 and one of 10, but not 1.5: 3/4.
    score = np.array([*range(1, 21), 1.5, 2.0, 2.0, 10.0])
    assert ranking_metrics(score, np.arange(24) < 20).fpr_at_95_unknown_recall == 0.75


def test_the_two_readings_of_fpr_95_are_two_numbers():
    # "FPR@95" and quirk 6. Known 1 to 20, unknown 0.5 18.5 19.5 30. Flagging 95 % of unknown means
    # all four and with them every known row; accepting 95 % of known, up to 19, lets in 0.5 and
    # 18.5.
    score = np.array([*range(1, 21), 0.5, 18.5, 19.5, 30.0])
    metrics = ranking_metrics(score, np.arange(24) >= 20)
    assert metrics.fpr_at_95_unknown_recall == 1.0
    assert metrics.fpr_at_95_known_recall == 0.5


def test_aupr_out_is_a_trapezoid_over_the_flagged_rows():
    # "AUPR_OUT", U K U K K: recall 1/2 1/2 1, precision 1 1/2 2/3. Lines from (0, 1) to (1/2, 1),
    # down to (1/2, 1/2), up to (1, 2/3); average precision takes the steps instead.
    metrics = ranked("UKUKK")
    assert metrics.aupr_unknown_trapezoid == pytest.approx(1 / 2 + 1 / 2 * (1 / 2 + 2 / 3) / 2)
    assert metrics.aupr_unknown == pytest.approx(1 / 2 + 1 / 2 * 2 / 3)


def test_aupr_in_is_a_trapezoid_over_the_accepted_rows():
    # "AUPR_IN", U K U K K, accepted from the other end: K K U K U, recall 1/3 2/3 2/3 1 1,
    # precision 1 1 2/3 3/4 3/5.
    metrics = ranked("UKUKK")
    assert metrics.aupr_known_trapezoid == pytest.approx(2 / 3 + 1 / 3 * (2 / 3 + 3 / 4) / 2)
    assert metrics.aupr_known == pytest.approx(2 / 3 + 1 / 3 * 3 / 4)


CCR_SCORE = np.array([1.0, 2.0, 3.0, 4.0, 0.0, 1.5, 1.9, 2.0, 5.0])
CCR_UNKNOWN = np.arange(9) < 4
CCR_CORRECT = np.array([False] * 4 + [True, False, True, True, True])


@pytest.mark.parametrize(
    ("fpr", "openood", "exact"),
    [
        # the ceil(1.2) = 2nd smallest unknown score is 2: of the 5 known rows 0 and 1.9 are below
        # and right; 1.5 is wrong, 2 is not below. Up to 0.3 * 4 unknown rows: the same
        (0.3, 2 / 5, 2 / 5),
        # the 2nd again; but two unknown rows of four may pass: below 3 lies 2 as well
        (0.5, 2 / 5, 3 / 5),
        # the 4th is 4: 0, 1.9 and 2; all four may pass: 5 too
        (1.0, 3 / 5, 4 / 5),
    ],
)
def test_ccr_at_an_fpr_is_strict_in_openood(fpr, openood, exact):
    # "ccr_fpr": t is the ceil(f n)-th of the OOD scores, strict.
    assert openood_ccr_at_fpr(CCR_SCORE, CCR_UNKNOWN, CCR_CORRECT, fpr=fpr) == openood
    assert ccr_at_fpr(CCR_SCORE, CCR_UNKNOWN, CCR_CORRECT, fpr=fpr) == exact


def test_detection_error_is_the_smallest_mean_of_both_error_rates():
    # "detection", U K U K K: flag 1: (1/2 + 0) / 2; flag 2: (1/2 + 1/3) / 2; flag 3: (0 + 1/3) / 2.
    assert ranked("UKUKK").detection_error == pytest.approx(1 / 6)


def test_detection_error_finds_thresholds_that_a_grid_steps_over():
    # "detection": 100,000 equal steps from 0 to 1 have none between 0 and 1e-9.
    score, is_unknown = np.array([0.0, 1e-9, 1.0]), np.array([False, True, True])
    assert ranking_metrics(score, is_unknown).detection_error == 0.0


def test_a_full_spectrum_counts_shifted_rows_as_known():
    # "full spectrum": csID is concatenated to ID. Known 1 2, shifted 3, unknown 2.5: 2 of 2 pairs
    # without, 2 of 3 with the shifted row.
    unknown = np.array([True])
    known, shifted = np.array([1.0, 2.0]), np.array([3.0])
    assert auroc(np.array([*known, 2.5]), np.array([False, False, *unknown])) == 1.0
    score = np.array([*known, *shifted, 2.5])
    assert auroc(score, np.array([False] * 3 + [True])) == pytest.approx(2 / 3)


def test_ece_refuses_logits():
    # "ECE": OpenOOD bins the max logit. Softmax confidences 0.9 right and 0.7 wrong: two bins,
    # (|0.9 - 1| + |0.7 - 0|) / 2.
    is_correct = np.array([True, False])
    assert ece(np.array([0.9, 0.7]), is_correct) == pytest.approx(0.4)
    sentence = (
        "Calibration is undefined: confidences must be between 0 and 1, "
        r"but they reach from 2\.5 to 7\."
    )
    with pytest.raises(InvalidDataError, match=sentence):
        ece(np.array([7.0, 2.5]), is_correct)


def test_a_score_that_is_not_finite_is_a_value_error_that_names_its_row():
    # Quirk 4: a ValueError out of the whole run; the sentences are in test_score_checks.py.
    with pytest.raises(ValueError, match="the first in row 1"):
        auroc(np.array([0.0, np.nan]), np.array([True, False]))


# Asserted elsewhere:
# - quirk 1: test_ranking_traps.py::
#   test_a_constant_score_has_the_share_of_unknown_as_average_precision;
#   quirk 2: test_a_constant_score_on_unequal_classes_shows_how_optimistic_trapezoids_are;
#   quirk 3: test_no_threshold_is_lost_where_the_roc_curve_is_straight;
#   quirk 5: test_a_float32_softmax_that_saturates_ties_and_float64_does_not.
# Left to later issues:
# - "ACC", and the pooled accuracy of "full spectrum": metrics of a classifier's own answers.
# - "near / far" (unweighted mean over datasets) and "over seeds" (ddof 0): results/tables.py.
