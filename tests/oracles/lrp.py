"""Localisation-recall-precision error. Sources: SAOD eq. 1 and table A.16; notes, table 1.5."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.oracles.boxes import nan_mean
from tests.oracles.matching import Matched, match
from tests.oracles.scenes import Scene


@dataclass(frozen=True)
class Lrp:
    """The error, its three parts, and for the optimal one the score it is reached at."""

    error: float
    localisation: float
    false_positives: float
    false_negatives: float
    threshold: float = math.nan


UNDEFINED = Lrp(math.nan, math.nan, math.nan, math.nan)


def lrp_of(ranked: Sequence[Matched], n_truth: int, tau: float) -> Lrp:
    """Give the error of the detections as they are (SAOD eq. 1).

    1 - lq(i) = 1 - (IoU - tau) / (1 - tau) = (1 - IoU) / (1 - tau), so the sum over true positives
    is that of 1 - IoU over 1 - tau. The parts are the mean of 1 - IoU over true positives, 1 -
    precision and 1 - recall; a part without detections to speak of is NaN.
    """
    if n_truth == 0:
        return UNDEFINED
    ious = [each.iou for each in ranked if each.status == "tp"]
    tp = len(ious)
    fp = sum(each.status == "fp" for each in ranked)
    fn = n_truth - tp
    distance = sum(1 - iou for iou in ious)
    return Lrp(
        error=(distance / (1 - tau) + fp + fn) / (tp + fp + fn),
        localisation=distance / tp if tp else math.nan,
        false_positives=fp / (tp + fp) if tp + fp else math.nan,
        false_negatives=fn / n_truth,
    )


def optimal_lrp_of(
    ranked: Sequence[Matched], n_truth: int, tau: float, ends: Literal["any", "ties"]
) -> Lrp:
    """Give the smallest error over all heads of the ranking, the first of equals (notes 1.5).

    "any": a head may end after any detection, as in the public code. "ties": only where the next
    score is lower, so that the detections with score >= threshold are the head. Without a single
    true positive the error and the recall part are 1 and the rest is NaN.
    """
    if n_truth == 0:
        return UNDEFINED
    if not any(each.status == "tp" for each in ranked):
        return Lrp(1.0, math.nan, math.nan, 1.0)
    best = UNDEFINED
    for i, each in enumerate(ranked):
        is_inside_tie = i + 1 < len(ranked) and ranked[i + 1].score == each.score
        if ends == "ties" and is_inside_tie:
            continue
        here = lrp_of(ranked[: i + 1], n_truth, tau)
        if math.isnan(best.error) or here.error < best.error:
            best = Lrp(**{**vars(here), "threshold": each.score})
    return best


def mean_lrp(by_class: Sequence[Lrp], *, skips_all_wrong: bool = False) -> Lrp:
    """Average over classes with objects; each part over the classes where it is defined.

    The public codes (`skips_all_wrong`) do not define 1 - precision without a true positive.
    """
    has_hit = [not math.isnan(each.localisation) or not skips_all_wrong for each in by_class]
    wrong = [each.false_positives for each, keep in zip(by_class, has_hit, strict=True) if keep]
    return Lrp(
        error=nan_mean([each.error for each in by_class]),
        localisation=nan_mean([each.localisation for each in by_class]),
        false_positives=nan_mean(wrong),
        false_negatives=nan_mean([each.false_negatives for each in by_class]),
    )


def class_lrps(scene: Scene, tau: float, convention: str = "coco") -> dict[str, Lrp]:
    """Give the error of each known label for the detections as they are."""
    matchings = {label: match(scene, convention, tau, label) for label in scene.known_labels}
    return {label: lrp_of(m.ranked, m.n_truth, tau) for label, m in matchings.items()}


def class_optimal_lrps(
    scene: Scene, tau: float, ends: Literal["any", "ties"], convention: str = "coco"
) -> dict[str, Lrp]:
    """Give the smallest error of each known label and the threshold that reaches it.

    The public code has the threshold -1 for a class without objects; here it is NaN.
    """
    matchings = {label: match(scene, convention, tau, label) for label in scene.known_labels}
    return {label: optimal_lrp_of(m.ranked, m.n_truth, tau, ends) for label, m in matchings.items()}
