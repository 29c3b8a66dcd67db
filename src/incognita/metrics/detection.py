"""How well known objects are found: COCO's twelve numbers, and average precision by any rule."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from incognita.containers.detection import BoxTruth, Detections
from incognita.kernels.average_precision import coco_precision_recall, weighted_average_precision
from incognita.metrics.conventions import COCO, POINTS_101, AveragePrecisionRule
from incognita.metrics.matching import MatchTable, match
from incognita.metrics.measures import every_image_once

COCO_THRESHOLDS = np.linspace(0.5, 0.95, 10)
# all, small, medium, large, in square pixels
COCO_AREAS = np.array([[0, 1e10], [0, 32**2], [32**2, 96**2], [96**2, 1e10]], dtype=np.float64)
COCO_CAPS = np.array([1, 10, 100], dtype=np.int64)
COCO_RECALLS = np.linspace(0, 1, 101)


class CocoNumbers(NamedTuple):
    """The twelve numbers of a COCO evaluation, over the known classes; NaN where nothing is there.

    AP averages over the IoU thresholds 0.50 to 0.95 and 101 recalls; the number after AR is how
    many detections each image may have.
    """

    ap: float
    ap50: float
    ap75: float
    ap_small: float
    ap_medium: float
    ap_large: float
    ar1: float
    ar10: float
    ar100: float
    ar_small: float
    ar_medium: float
    ar_large: float


def coco_numbers(detections: Detections, truth: BoxTruth) -> CocoNumbers:
    """Evaluate as pycocotools does, bit for bit, in a hundredth of its time.

    >>> from incognita.containers.classes import Classes
    >>> classes = Classes(("car",))
    >>> truth = BoxTruth([1], [0, 1], [[0, 0, 10, 10]], [0], classes)
    >>> found = Detections([1], [0, 1], [[0, 0, 10, 8]], [0.9], [0], classes)
    >>> numbers = coco_numbers(found, truth)  # IoU 0.8 reaches seven of the ten thresholds
    >>> round(numbers.ap, 6), round(numbers.ap75, 6)
    (0.7, 1.0)
    """
    table = match(detections, truth, convention=COCO, thresholds=COCO_THRESHOLDS, areas=COCO_AREAS)
    return coco_numbers_of(table, truth.classes.n_known)


def coco_numbers_of(table: MatchTable, n_known: int) -> CocoNumbers:
    """Read the twelve numbers from a table with COCO's thresholds and areas."""
    precision, recall = coco_precision_recall(
        table.by_label,
        table.label_starts,
        table.flags,
        table.ranks,
        _count_truth(table)[:n_known],
        len(COCO_THRESHOLDS),
        COCO_RECALLS,
        COCO_CAPS,
    )
    ap = [
        _mean_defined(precision[0]),
        _mean_defined(precision[0, 0]),
        _mean_defined(precision[0, 5]),
    ]
    ap += [_mean_defined(precision[area]) for area in (1, 2, 3)]
    ar = [_mean_defined(recall[cap, 0]) for cap in (0, 1, 2)]
    ar += [_mean_defined(recall[2, area]) for area in (1, 2, 3)]
    return CocoNumbers(*ap, *ar)


def _count_truth(table: MatchTable) -> Int[np.ndarray, "labels areas"]:
    columns = []
    for low, high in table.areas:
        inside = (table.truth_areas >= low) & (table.truth_areas <= high) & table.is_counted_truth
        columns.append(np.bincount(table.truth_labels[inside], minlength=table.n_labels + 1))
    return np.stack(columns, axis=1)


def _mean_defined(values: Float[np.ndarray, "*shape"]) -> float:
    # the same mean over the same memory order as pycocotools: the last bit agrees
    defined = values[values > -1]
    return float(np.mean(defined)) if defined.size else float("nan")


class LabelPrecision(NamedTuple):
    """Average precision and final counts of each label, one column per replicate of the images."""

    average_precision: Float[np.ndarray, "labels replicates"]
    n_found: Float[np.ndarray, "labels replicates"]
    n_counted: Float[np.ndarray, "labels replicates"]
    n_truth: Float[np.ndarray, "labels replicates"]


def average_precision(
    table: MatchTable,
    weights: Float[np.ndarray, "images replicates"] | None = None,
    *,
    rule: AveragePrecisionRule = POINTS_101,
    threshold: int = 0,
    area: int = 0,
) -> LabelPrecision:
    """Average precision of each label, under any number of image weights at once.

    A column of weights says how often each image counts: ones for the data as they are, ones and
    zeros for a split, multinomial counts for a bootstrap replicate. NaN where a label has no object.

    Args:
        table: The matched detections.
        weights: Image weights; by default every image counts once.
        rule: 101 points, 11 points or area.
        threshold: Which of the table's IoU thresholds.
        area: Which of the table's area ranges.
    """
    weights = every_image_once(table.n_images) if weights is None else weights
    n_truth = table.n_truth(weights, area)
    average, found, counted = weighted_average_precision(
        table.by_label,
        table.label_starts,
        table.flags,
        area,
        threshold,
        table.detection_images,
        weights,
        n_truth,
        np.array(rule.recalls, dtype=np.float64),
        rule.epsilon,
    )
    return LabelPrecision(average, found, counted, n_truth)
