r"""Localisation-recall-precision (LRP): one error for localisation, false positives and misses.

$$ LRP = \frac{1}{TP + FP + FN} \Big( \sum_{TP} \frac{1 - IoU}{1 - \tau} + FP + FN \Big) $$

with a detection a true positive if it reaches IoU tau with an object of its class. Oksuz et al.,
One metric to measure them all, TPAMI 2021; tau = 0.5 there, 0.1 in self-aware detection
(CVPR 2023), 0 in the detection-calibration toolbox. The parts are the mean 1 - IoU of true
positives (not divided by 1 - tau, as in the papers' tables), 1 - precision and 1 - recall.
"""

from typing import NamedTuple

import numpy as np

from incognita.errors import InvalidDataError
from incognita.kernels.confidence import optimal_lrp as optimal_lrp_kernel
from incognita.metrics.matching import MatchTable
from incognita.metrics.measure import (
    MetricValue,
    count_units,
    image_weights,
    mean_over,
    n_images_in,
    sum_by_label,
)
from incognita.shapes import Float


class LRP(NamedTuple):
    """LRP and its parts, each the mean over the classes where it is defined."""

    total: MetricValue
    localization: MetricValue
    false_positive: MetricValue
    false_negative: MetricValue


class OptimalLRP(NamedTuple):
    """The smallest LRP over confidence thresholds, class by class, and the thresholds themselves.

    A threshold is NaN for a class without objects, and for one without a true positive.
    """

    total: MetricValue
    localization: MetricValue
    false_positive: MetricValue
    false_negative: MetricValue
    per_class: Float[np.ndarray, "classes"]
    thresholds: Float[np.ndarray, "classes"]


def lrp_error(
    table: MatchTable,
    n_known: int,
    *,
    weights: Float[np.ndarray, "images replicates"] | None = None,
    skips_all_wrong: bool = False,
) -> LRP:
    """Compute the LRP of all detections, without choosing a threshold.

    The class mean runs over classes with objects; a part that a class does not define (no true
    positive, no detection) is left out of the mean of that part alone. The public codes also leave
    a class without a true positive out of the mean of 1 - precision (`skips_all_wrong`), which is
    1 there.

    Args:
        table: Detections matched at IoU tau, its first threshold.
        n_known: The number of known classes, which are the first labels.
        weights: Image weights, one column per replicate; by default every image once.
        skips_all_wrong: Leave out of `false_positive` a class whose detections are all wrong.
    """
    tau = _tau(table)
    table.check_known(n_known)
    weights = image_weights(weights, table.n_images)
    n_truth = table.n_truth(weights)[:n_known]
    counted = ~table.is_ignored() & (table.detection_labels < n_known)
    hit = table.is_true_positive() & counted
    found = _sum(table, hit, np.ones(len(hit)), n_known, weights)
    wrong = _sum(table, counted & ~hit, np.ones(len(hit)), n_known, weights)
    loss = _sum(table, hit, 1.0 - table.iou, n_known, weights)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 is the NaN of a class left out
        total = (loss / (1 - tau) + wrong + n_truth - found) / (n_truth + wrong)
        parts = [total, loss / found, wrong / (found + wrong), 1 - found / n_truth]
    if skips_all_wrong:
        parts[2] = np.where(found > 0, parts[2], np.nan)
    parts = [np.where(n_truth > 0, part, np.nan) for part in parts]
    images = table.detection_images
    objects = table.truth_units(weights, range(n_known))
    units = [objects, *(count_units(images, rows, weights) for rows in (hit, counted)), objects]
    return LRP(
        *(_class_mean(p, n_truth, weights, tau, n) for p, n in zip(parts, units, strict=True))
    )


def optimal_lrp(
    table: MatchTable,
    n_known: int,
    *,
    weights: Float[np.ndarray, "images replicates"] | None = None,
    inside_ties: bool = False,
) -> OptimalLRP:
    """Compute the smallest LRP over confidence thresholds, per class, and that threshold.

    Keeping `confidence >= threshold` reproduces the value. The public code considers every place
    in the sorted list (`inside_ties`), also between equal confidences, where no threshold
    reproduces the value.
    """
    tau = _tau(table)
    table.check_known(n_known)
    weights = image_weights(weights, table.n_images)
    n_truth = table.n_truth(weights)[:n_known]
    best = optimal_lrp_kernel(
        table.by_label,
        table.label_starts,
        table.flags,
        table.iou,
        table.confidence,
        table.detection_images,
        weights,
        n_truth,
        tau,
        inside_ties,
    )
    units = table.truth_units(weights, range(n_known))
    total, localization, false_positive, false_negative = (
        _class_mean(best[:, :, k], n_truth, weights, tau, units) for k in (0, 2, 3, 4)
    )
    return OptimalLRP(
        total, localization, false_positive, false_negative, best[:, 0, 0], best[:, 0, 1]
    )


def _tau(table: MatchTable) -> float:
    table.check_one_threshold()
    tau = float(table.thresholds[0])
    if not 0 <= tau < 1:
        raise InvalidDataError(f"tau must be at least 0 and below 1, but it is {tau}.")
    return tau


def _sum(
    table: MatchTable,
    keep: np.ndarray,
    values: np.ndarray,
    n_known: int,
    weights: np.ndarray,
) -> np.ndarray:
    labels, images = table.detection_labels[keep], table.detection_images[keep]
    return sum_by_label(values[keep], labels, images, n_known, weights)


def _class_mean(
    per_class: np.ndarray, n_truth: np.ndarray, weights: np.ndarray, tau: float, units: int
) -> MetricValue:
    values = mean_over(per_class)
    support = {
        "images": n_images_in(weights),
        "objects": int(n_truth[:, 0].sum()),
        "classes": int((~np.isnan(per_class[:, 0])).sum()),
    }
    reason = None
    if np.isnan(values[0]):
        has_truth = (n_truth[:, 0] > 0).any()
        reason = "no known class has a true positive or a detection" if has_truth else NO_KNOWN
    return MetricValue(values, support, reason, {"tau": tau}, units)


NO_KNOWN = "no known object is in these images"
