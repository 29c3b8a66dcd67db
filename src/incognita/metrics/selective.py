r"""Selective classification: risk over coverage, and open-set classification rates.

A threshold accepts the rows below it. Of those, known rows count when their class was also named
correctly, and unknown rows are mistakes (Dhamija et al., Reducing Network Agnostophobia, NeurIPS
2018):

$$ \text{CCR}(t) = \frac{|\{\text{known}, \text{correct}, s < t\}|}{|\text{known}|}, \qquad
   \text{FPR}(t) = \frac{|\{\text{unknown}, s < t\}|}{|\text{unknown}|}. $$

The paper counts equal scores for the unknown side only, so that a constant score would have an area
of 0. Here both sides take tie groups whole, as an ROC curve does: a constant score has half the
accuracy. pytorch-ood decides the same way.
"""

from typing import NamedTuple

import numpy as np

from incognita.errors import InvalidDataError
from incognita.metrics._scores import as_mask, as_scores, as_truth, check_share, tie_groups
from incognita.shapes import Bool, Float, Float64, Real


class RiskCoverage(NamedTuple):
    """One point per accepted row; rows up to the threshold are accepted.

    Inside a tie group coverage and risk are those of accepting a random part of the group.
    """

    threshold: Float[np.ndarray, "rows"]
    coverage: Float64[np.ndarray, "rows"]
    risk: Float64[np.ndarray, "rows"]


def risk_coverage(
    unknown_score: Real[np.ndarray, "rows"], is_wrong: Bool[np.ndarray, "rows"]
) -> RiskCoverage:
    """Return the risk among accepted rows at every coverage from 1 / n to 1.

    >>> curve = risk_coverage(np.array([1, 2, 2]), np.array([False, True, False]))
    >>> curve.risk.tolist(), curve.threshold.tolist()
    ([0.0, 0.25, 0.3333333333333333], [1.0, 2.0, 2.0])
    """
    score = as_scores(unknown_score)
    is_wrong = as_mask("is_wrong", is_wrong, len(score))
    if len(score) == 0:
        raise InvalidDataError("Risk needs at least one row, but unknown_score is empty.")
    groups = tie_groups(-score)  # from the smallest score up
    group_ends = groups.cumulative(np.ones(len(score)))
    accepted = np.arange(1, len(score) + 1)
    wrong = np.interp(accepted, group_ends, groups.cumulative(is_wrong))
    return RiskCoverage(score[groups.order], accepted / len(score), wrong / accepted)


def aurc(unknown_score: Real[np.ndarray, "rows"], is_wrong: Bool[np.ndarray, "rows"]) -> float:
    """Compute the area under the risk-coverage curve: the mean risk over all coverages.

    >>> aurc(np.array([1, 2, 3, 4]), np.array([False, True, False, False]))
    0.2708333333333333
    """
    return float(risk_coverage(unknown_score, is_wrong).risk.mean())


def excess_aurc(
    unknown_score: Real[np.ndarray, "rows"], is_wrong: Bool[np.ndarray, "rows"]
) -> float:
    r"""Compute the excess of AURC over that of the same errors in the best order.

    The best order refuses wrong rows first. Its area is summed exactly, where Geifman et al.
    (Bias-Reduced Uncertainty Estimation, ICLR 2019) take the limit of many rows,
    $r + (1 - r) \ln(1 - r)$ with r the share of wrong rows.

    >>> excess_aurc(np.array([1, 2, 3]), np.array([False, False, True]))
    0.0
    """
    area = aurc(unknown_score, is_wrong)
    accepted = np.arange(1, len(is_wrong) + 1)
    n_right = len(is_wrong) - np.count_nonzero(is_wrong)
    best = np.mean(np.maximum(accepted - n_right, 0) / accepted)
    return float(area - best)


class OperatingPoint(NamedTuple):
    """What one threshold does, with one value per column of counts; NaN where nothing counts.

    Args:
        coverage: Share of the rows that are accepted.
        selective_risk: Share of the accepted rows that are unknown or of another class than
            predicted; the risk of Geifman and El-Yaniv (Selective classification for deep neural
            networks, NeurIPS 2017) with 0/1 loss, an unknown row being a loss.
        false_alarm_rate: Share of the known rows that are flagged.
        missed_unknown_rate: Share of the unknown rows that are accepted.
    """

    coverage: Float64[np.ndarray, "columns"]
    selective_risk: Float64[np.ndarray, "columns"]
    false_alarm_rate: Float64[np.ndarray, "columns"]
    missed_unknown_rate: Float64[np.ndarray, "columns"]


def operating_point(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    is_wrong: Bool[np.ndarray, "rows"],
    *,
    threshold: float,
    counts: Real[np.ndarray, "rows columns"] | None = None,
) -> OperatingPoint:
    """Compute what happens when rows above a threshold are flagged and the others accepted.

    Args:
        unknown_score: Any finite numbers, higher for more unknown.
        is_unknown: The truth of each row; here one class may be missing.
        is_wrong: Whether the predicted class is wrong; ignored where a row is unknown.
        threshold: Scores above it are flagged, an equal score is accepted, as `UnknownThreshold`
            does.
        counts: How often each row counts in each column; by default one column of ones.

    >>> is_unknown = np.array([False, False, True, True])
    >>> at = operating_point(np.array([1, 2, 2, 3]), is_unknown, is_unknown, threshold=2.0)
    >>> [round(float(share[0]), 3) for share in at]
    [0.75, 0.333, 0.0, 0.5]
    """
    score = as_scores(unknown_score).astype(np.float64)  # float32 would round the threshold
    is_unknown = as_mask("is_unknown", is_unknown, len(score))
    is_wrong = as_mask("is_wrong", is_wrong, len(score))
    weights = np.ones((len(score), 1)) if counts is None else counts
    is_accepted = score <= threshold
    known = ~is_unknown
    return OperatingPoint(
        _share(is_accepted, np.ones_like(known), weights),
        _share(is_wrong | is_unknown, is_accepted, weights),
        _share(~is_accepted, known, weights),
        _share(is_accepted, is_unknown, weights),
    )


def _share(
    part: Bool[np.ndarray, "rows"],
    whole: Bool[np.ndarray, "rows"],
    weights: Real[np.ndarray, "rows columns"],
) -> Float64[np.ndarray, "columns"]:
    """Compute the weighted share of the rows of `whole` that are in `part`; NaN without any."""
    n_whole = whole.astype(np.float64) @ weights
    n_part = (part & whole).astype(np.float64) @ weights
    shares = np.full(weights.shape[1], np.nan)
    np.divide(n_part, n_whole, out=shares, where=n_whole > 0)
    return shares


FPR_TOLERANCE = 1e-12  # 1 - 0.9 is a little less than 0.1, and must still hold 1 row of 10


class OscrPoints(NamedTuple):
    """One point per threshold, from accepting everything down to accepting nothing."""

    ccr: Float64[np.ndarray, "points"]
    fpr: Float64[np.ndarray, "points"]


def oscr_points(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    is_correct: Bool[np.ndarray, "rows"],
) -> OscrPoints:
    """Return the correct classification rate and the false positive rate at every threshold.

    Args:
        unknown_score: Any finite numbers, higher for more unknown.
        is_unknown: The truth of each row.
        is_correct: Whether the predicted class is correct; ignored where a row is unknown.

    >>> rows = np.array([1, 2, 3]), np.array([False, True, False]), np.array([True, False, True])
    >>> [rate.tolist() for rate in oscr_points(*rows)]
    [[1.0, 0.5, 0.5, 0.0], [1.0, 1.0, 0.0, 0.0]]
    """
    score = as_scores(unknown_score)
    is_unknown = as_truth(is_unknown, len(score))
    is_correct = as_mask("is_correct", is_correct, len(score))
    groups = tie_groups(score)
    correct = groups.cumulative(is_correct & ~is_unknown)
    unknown = groups.cumulative(is_unknown)
    n_unknown = unknown[-1]
    ccr = (correct[-1] - correct) / (len(score) - n_unknown)
    return OscrPoints(ccr, (n_unknown - unknown) / n_unknown)


def oscr(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    is_correct: Bool[np.ndarray, "rows"],
) -> float:
    r"""Compute the open-set classification rate: the area under CCR over FPR.

    It equals $P(\text{correct}, k < u) + \tfrac12 P(\text{correct}, k = u)$ for a random known row
    of score k and unknown row of score u: AUROC when every class is named correctly, and never
    above the accuracy.

    >>> is_unknown = np.array([False, False, True, True])
    >>> oscr(np.array([1, 2, 2, 3]), is_unknown, np.array([False, True, False, False]))
    0.375
    """
    ccr, fpr = oscr_points(unknown_score, is_unknown, is_correct)
    return float(np.sum((fpr[:-1] - fpr[1:]) * (ccr[:-1] + ccr[1:])) / 2)


def ccr_at_fpr(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    is_correct: Bool[np.ndarray, "rows"],
    *,
    fpr: float,
) -> float:
    """Compute the largest CCR among thresholds that accept at most a share `fpr` of unknown rows.

    >>> is_unknown = np.array([False, False, True, True])
    >>> ccr_at_fpr(np.array([1, 3, 2, 4]), is_unknown, ~is_unknown, fpr=0.5)
    1.0
    """
    check_share("fpr", fpr)
    points = oscr_points(unknown_score, is_unknown, is_correct)
    return float(points.ccr[points.fpr <= fpr + FPR_TOLERANCE].max())


def openood_ccr_at_fpr(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    is_correct: Bool[np.ndarray, "rows"],
    *,
    fpr: float,
) -> float:
    r"""Compute the CCR by the rule of OpenOOD, for its tables of before August 2023.

    The threshold is the $\lceil \text{fpr} \cdot n \rceil$-th smallest score of the n unknown rows,
    and only scores strictly below it are accepted. At that threshold fewer than `fpr` of the
    unknown rows pass, so the rate is never above `ccr_at_fpr`, and one unknown row stricter where
    fpr * n is whole.

    >>> is_unknown = np.array([False, False, True, True])
    >>> openood_ccr_at_fpr(np.array([1, 3, 2, 4]), is_unknown, ~is_unknown, fpr=0.5)
    0.5
    """
    check_share("fpr", fpr)
    score = as_scores(unknown_score)
    is_unknown = as_truth(is_unknown, len(score))
    is_correct = as_mask("is_correct", is_correct, len(score))
    rank = int(np.ceil(fpr * np.count_nonzero(is_unknown)))
    threshold = np.sort(score[is_unknown])[rank - 1]
    return float(np.mean(is_correct[~is_unknown] & (score[~is_unknown] < threshold)))
