"""Closed-set detection metrics: COCO's twelve numbers, and average precision by any rule."""

from typing import NamedTuple

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.kernels.precision_recall import coco_precision_recall, weighted_average_precision
from incognita.metrics.conventions import COCO, POINTS_101, AveragePrecisionRule
from incognita.metrics.matching import MatchTable, match
from incognita.metrics.measure import (
    MetricValue,
    every_image_once,
    image_weights,
    mean_over,
    n_images_in,
    sum_by_label,
)
from incognita.shapes import Bool, Float, Float64, Int


class PrecisionCurves(NamedTuple):
    """The `precision` and `scores` of pycocotools; NaN for a class without an object.

    Args:
        recalls: Where the curves are read.
        precision: The best precision at this recall or beyond; 0 where it is never reached.
        confidence: Confidence of the detection that reaches the recall, for recall 0 the highest;
            0 where the recall is never reached.
    """

    recalls: Float64[np.ndarray, "recalls"]
    precision: Float64[np.ndarray, "thresholds recalls classes"]
    confidence: Float64[np.ndarray, "thresholds recalls classes"]


def precision_curves(
    table: MatchTable, n_known: int, *, rule: AveragePrecisionRule = POINTS_101
) -> PrecisionCurves:
    """Read the precision curve of every known class at every IoU threshold of a table.

    Args:
        table: The matched detections, its first range of areas.
        n_known: The number of known classes, which are the first labels.
        rule: The recalls, and what keeps the division defined; by default COCO's.

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
    """Return the precision envelope and the recall along falling confidence."""
    n_found = np.cumsum(is_hit)
    precision = n_found / (np.cumsum(is_counted) + rule.epsilon)
    return np.maximum.accumulate(precision[::-1])[::-1], n_found / n_truth


COCO_THRESHOLDS = np.linspace(0.5, 0.95, 10)
# all, small, medium, large, in square pixels
COCO_AREAS = np.array([[0, 1e10], [0, 32**2], [32**2, 96**2], [96**2, 1e10]], dtype=np.float64)
COCO_CAPS = np.array([1, 10, 100], dtype=np.int64)
COCO_RECALLS = np.linspace(0, 1, 101)
REPLICATES_AT_ONCE = 32  # columns of weights that stay in the second-level cache


class CocoNumbers(NamedTuple):
    """The twelve numbers of a COCO evaluation, over the known classes; NaN without objects.

    AP averages over the IoU thresholds 0.50 to 0.95 and 101 recalls; the number after AR is the
    maximum number of detections per image.
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
    """Compute the twelve COCO numbers, bit for bit those of pycocotools.

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
    """Compute the twelve numbers from a table with COCO's thresholds and areas."""
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

    average_precision: Float[np.ndarray, "thresholds labels replicates"]
    n_found: Float[np.ndarray, "thresholds labels replicates"]
    n_counted: Float[np.ndarray, "thresholds labels replicates"]
    n_truth: Float[np.ndarray, "labels replicates"]


def label_average_precision(
    table: MatchTable,
    weights: Float[np.ndarray, "images replicates"] | None = None,
    *,
    rule: AveragePrecisionRule = POINTS_101,
    area: int = 0,
) -> LabelPrecision:
    """Compute the average precision of each label under any number of image weights at once.

    A column of weights holds how often each image counts: ones for the data itself, ones and
    zeros for a split, multinomial counts for a bootstrap replicate. A label without an object has
    NaN.

    Args:
        table: The matched detections, at any number of thresholds.
        weights: Image weights; by default every image counts once.
        rule: 101 points, 11 points or area.
        area: Which of the table's area ranges.
    """
    weights = image_weights(weights, table.n_images)
    n_truth = table.n_truth(weights, area)
    blocks = []
    for first in range(0, weights.shape[1], REPLICATES_AT_ONCE):
        columns = slice(first, first + REPLICATES_AT_ONCE)
        blocks.append(
            weighted_average_precision(
                table.by_label,
                table.label_starts,
                table.flags,
                area,
                len(table.thresholds),
                table.detection_images,
                np.ascontiguousarray(weights[:, columns], np.float32),
                np.ascontiguousarray(n_truth[:, columns]),
                np.array(rule.recalls, dtype=np.float64),
                rule.epsilon,
            )
        )
    average, found, counted = (np.concatenate(parts, axis=2) for parts in zip(*blocks, strict=True))
    return LabelPrecision(average, found, counted, n_truth)


def coco_average_precision(
    table: MatchTable, n_known: int, *, weights: Float[np.ndarray, "images replicates"]
) -> MetricValue:
    """Compute COCO's AP alone, a quarter of the work of `coco_measures`."""
    labels = label_average_precision(table, weights)
    units = table.truth_units(weights, range(n_known))
    ap, n_truth = labels.average_precision[:, :n_known], labels.n_truth[:n_known]
    return _coco_measure(ap, n_truth, weights, units, "0.50:0.95")


def coco_measures(
    table: MatchTable, n_known: int, *, weights: Float[np.ndarray, "images replicates"]
) -> dict[str, MetricValue]:
    """Compute the twelve COCO numbers under image weights, by name; see also `coco_numbers`."""
    measures = {}
    for area, size in enumerate(("", "_small", "_medium", "_large")):
        labels = label_average_precision(table, weights, area=area)
        n_truth = labels.n_truth[:n_known]
        ap = labels.average_precision[:, :n_known]
        units = table.truth_units(weights, range(n_known), area)
        where = n_truth, weights, units
        measures[f"ap{size}"] = _coco_measure(ap, *where, "0.50:0.95")
        recall = _recall(labels, n_known)
        measures[f"ar{size or 100}"] = _coco_measure(recall, *where, "0.50:0.95")
        if area == 0:
            measures["ap50"] = _coco_measure(ap[:1], *where, 0.5)
            measures["ap75"] = _coco_measure(ap[5:6], *where, 0.75)
    n_truth, units = table.n_truth(weights)[:n_known], table.truth_units(weights, range(n_known))
    for cap in (1, 10):
        recall = _recall_of_first(table, n_known, cap, weights) / np.where(n_truth, n_truth, np.nan)
        measures[f"ar{cap}"] = _coco_measure(recall, n_truth, weights, units, "0.50:0.95")
    return {name: measures[name] for name in CocoNumbers._fields}


def _recall(labels: LabelPrecision, n_known: int) -> Float[np.ndarray, "thresholds labels reps"]:
    n_truth = labels.n_truth[:n_known]
    return labels.n_found[:, :n_known] / np.where(n_truth > 0, n_truth, np.nan)


def _recall_of_first(
    table: MatchTable, n_known: int, cap: int, weights: Float[np.ndarray, "images replicates"]
) -> Float[np.ndarray, "thresholds labels replicates"]:
    """Count what the first detections of each image and class match, at every threshold."""
    found = []
    is_first = (table.ranks < cap) & (table.detection_labels < n_known)
    for t in range(len(table.thresholds)):
        rows = np.flatnonzero(is_first & table.is_true_positive(t))
        labels, images = table.detection_labels[rows], table.detection_images[rows]
        found.append(sum_by_label(np.ones(len(rows)), labels, images, n_known, weights))
    return np.stack(found)


def _coco_measure(
    values: Float[np.ndarray, "thresholds labels replicates"],
    n_truth: Float[np.ndarray, "labels replicates"],
    weights: Float[np.ndarray, "images replicates"],
    units: int,
    iou: float | str,
) -> MetricValue:
    means = mean_over(values.reshape(-1, values.shape[-1]))
    support = {
        "images": n_images_in(weights),
        "objects": int(n_truth[:, 0].sum()),
        "classes": int((n_truth[:, 0] > 0).sum()),
    }
    reason = "no known object of this size is in these images" if np.isnan(means[0]) else None
    return MetricValue(means, support, reason, {"iou": iou}, units)
