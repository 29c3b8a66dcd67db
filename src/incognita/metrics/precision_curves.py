"""Precision along recall, and the confidence at which each recall is reached."""

from typing import NamedTuple

import numpy as np

from incognita.metrics.conventions import POINTS_101, AveragePrecisionRule
from incognita.metrics.matching import MatchTable
from incognita.metrics.measure import every_image_once
from incognita.shapes import Bool, Float, Float64


class PrecisionCurves(NamedTuple):
    """What pycocotools keeps as `precision` and `scores`; NaN for a class without an object.

    Args:
        recalls: Where the curves are read.
        precision: The best precision at this recall or beyond; 0 where it is never reached.
        confidence: That of the detection which reaches the recall, for recall 0 that of the surest
            detection; 0 where the recall is never reached.
    """

    recalls: Float64[np.ndarray, "recalls"]
    precision: Float64[np.ndarray, "thresholds recalls classes"]
    confidence: Float64[np.ndarray, "thresholds recalls classes"]


def precision_curves(
    table: MatchTable, n_known: int, *, rule: AveragePrecisionRule = POINTS_101
) -> PrecisionCurves:
    """Read the precision curve of every known class at every IoU threshold of a table.

    Half a million detections of 80 classes at ten thresholds take about a second, ten times the
    matching: a threshold is chosen once.

    Args:
        table: The matched detections, its first range of areas.
        n_known: How many labels are known classes; the others take no part.
        rule: Which recalls, and what keeps the division defined; by default COCO's.

    >>> from incognita.containers.classes import Classes
    >>> from incognita.containers.boxes import BoxTruth, Detections
    >>> from incognita.metrics.matching import match
    >>> classes = Classes(("car",))
    >>> truth = BoxTruth([1], [0, 2], [[0, 0, 9, 9], [20, 0, 29, 9]], [0, 0], classes)
    >>> found = Detections([1], [0, 1], [[0, 0, 9, 9]], [0.75], [0], classes)
    >>> curves = precision_curves(match(found, truth), 1)
    >>> curves.confidence[0, [0, 50, 51], 0].tolist()  # half of the objects are found
    [0.75, 0.75, 0.0]
    """
    table.check_known(n_known)
    n_truth = table.n_truth(every_image_once(table.n_images))[:n_known, 0]
    recalls = np.array(rule.recalls)
    curves = np.full((2, len(table.thresholds), len(recalls), n_known), np.nan)
    for t in range(len(table.thresholds)):
        is_hit, is_counted = table.is_true_positive(t), ~table.is_ignored(t)
        for label in np.flatnonzero(n_truth):
            rows = table.by_label[table.label_starts[label] : table.label_starts[label + 1]]
            precision, recall = _curve(is_hit[rows], is_counted[rows], n_truth[label], rule)
            reached = np.searchsorted(recall, recalls)  # one past the end where none does
            curves[0, t, :, label] = np.append(precision, 0.0)[reached]
            curves[1, t, :, label] = np.append(table.confidence[rows], 0.0)[reached]
    return PrecisionCurves(recalls, curves[0], curves[1])


def _curve(
    is_hit: Bool[np.ndarray, "rows"],
    is_counted: Bool[np.ndarray, "rows"],
    n_truth: float,
    rule: AveragePrecisionRule,
) -> tuple[Float[np.ndarray, "rows"], Float[np.ndarray, "rows"]]:
    """Precision, made to fall, and recall along falling confidence."""
    n_found = np.cumsum(is_hit)
    precision = n_found / (np.cumsum(is_counted) + rule.epsilon)
    return np.maximum.accumulate(precision[::-1])[::-1], n_found / n_truth
