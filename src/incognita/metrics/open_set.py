"""Open-set metrics: unknown objects that are found, undetected or misnamed.

Every function takes a match table (which knows its convention) and optional image weights, and
returns a `MetricValue`. Ratios are fractions, also where a public code prints percent.
"""

from typing import NamedTuple

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Role
from incognita.kernels.matching import unknown_overlaps
from incognita.kernels.precision_recall import counts_at_recall
from incognita.metrics.conventions import Absent, AveragePrecisionRule, Matching
from incognita.metrics.detection import LabelPrecision, label_average_precision
from incognita.metrics.matching import (
    MatchTable,
    PlacedBoxes,
    arrange_by_image,
    is_ignored_truth,
    place_boxes,
)
from incognita.metrics.measure import (
    MetricValue,
    count_units,
    count_weighted,
    image_weights,
    lost_labels,
    mean_over,
    n_images_in,
    ratio,
    sum_along,
    sum_by_label,
    undefined,
)
from incognita.shapes import Bool, Float, Int

Weights = Float[np.ndarray, "images replicates"]

NO_UNKNOWN_OBJECT = "no unknown object is in these images"
NO_UNKNOWN_DETECTION = "no detection carries the label unknown"
NO_KNOWN_OBJECT = "no known object is in these images"


class UnknownOverlaps(NamedTuple):
    """Which detections lie on unknown objects and the reverse, whatever their labels.

    Args:
        is_on_unknown: Per detection: it overlaps an unknown object, and its label is a known class.
        is_named_known: Per object: unknown, and a detection of a known class overlaps it.
        is_touched: Per object: unknown, and some detection overlaps it.
        is_unknown: Per object: unknown, and must be found under the convention.
    """

    is_on_unknown: Bool[np.ndarray, "detections"]
    is_named_known: Bool[np.ndarray, "objects"]
    is_touched: Bool[np.ndarray, "objects"]
    is_unknown: Bool[np.ndarray, "objects"]


def overlap_unknown(
    detections: Detections, truth: BoxTruth, *, convention: Matching, threshold: float = 0.5
) -> UnknownOverlaps:
    """Find the detections and unknown objects that overlap by the IoU of the convention."""
    boxes, objects = arrange_by_image(detections, truth, convention)
    is_known = detections.classes.has_role(Role.KNOWN)[detections.class_ids]
    of_detection, with_known, with_any = unknown_overlaps(
        boxes, objects, is_known, truth.is_unknown, convention.pixel
    )
    least = convention.least_iou(np.array([threshold]))[0]
    return UnknownOverlaps(
        is_on_unknown=is_known & (of_detection >= least),
        is_named_known=with_known >= least,
        is_touched=with_any >= least,
        is_unknown=truth.is_unknown & ~is_ignored_truth(truth, convention),
    )


def overlapping_pairs(
    detections: Detections, truth: BoxTruth, *, convention: Matching, threshold: float = 0.5
) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]:
    """Return every detection and object that overlap by an IoU, whatever their labels.

    The first array holds rows of the detections, the second rows of the truth.
    """
    placed = place_boxes(detections, truth, convention)
    least = convention.least_iou(np.array([threshold]))[0]
    n_boxes, n_objects = np.diff(detections.offsets), np.diff(truth.offsets)
    n_pairs = n_boxes * n_objects
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for images in np.split(np.arange(len(n_pairs)), _cuts(n_pairs, MOST_PAIRS)):
        image = np.repeat(images, n_pairs[images])
        first = np.cumsum(n_pairs[images]) - n_pairs[images]
        place = np.arange(len(image)) - np.repeat(first, n_pairs[images])
        boxes = detections.offsets[image] + place // n_objects[image]
        objects = truth.offsets[image] + place % n_objects[image]
        is_close = _pairwise_iou(placed, boxes, objects, convention.pixel) >= least
        found.append((boxes[is_close], objects[is_close]))
    return np.concatenate([b for b, _ in found]), np.concatenate([o for _, o in found])


MOST_PAIRS = 1_000_000  # of boxes and objects that are compared at once


def _cuts(sizes: Int[np.ndarray, "images"], most: int) -> Int[np.ndarray, "cuts"]:
    """Return where to cut a list of images, so that the sizes of a part add up to about `most`."""
    parts = np.cumsum(sizes) // most
    return np.asarray(np.flatnonzero(np.diff(parts)) + 1)


def _pairwise_iou(
    placed: PlacedBoxes,
    boxes: Int[np.ndarray, "pairs"],
    objects: Int[np.ndarray, "pairs"],
    pixel: float,
) -> Float[np.ndarray, "pairs"]:
    ours, theirs = placed.xyxy[boxes], placed.truth_xyxy[objects]
    sides = np.minimum(ours[:, 2:], theirs[:, 2:]) - np.maximum(ours[:, :2], theirs[:, :2])
    shared = np.maximum(sides + pixel, 0).prod(axis=1)
    areas = placed.sizes[boxes].prod(axis=1) + placed.truth_sizes[objects].prod(axis=1)
    union = areas - shared
    return np.asarray(np.divide(shared, union, out=np.zeros(shared.shape), where=union > 0))


def mean_average_precision(
    table: MatchTable,
    n_known: int,
    *,
    rule: AveragePrecisionRule,
    weights: Weights | None = None,
    labels: LabelPrecision | None = None,
    nothing: str = NO_KNOWN_OBJECT,
) -> MetricValue:
    """Compute the mean AP of the known classes at the table's first threshold (mAP_k).

    `labels` is the result of `label_average_precision` for the same table, rule and weights, if
    already computed; `nothing` is the reason where no class has an object.
    """
    weights = image_weights(weights, table.n_images)
    labels = labels or label_average_precision(table, weights, rule=rule)
    n_truth = labels.n_truth[:n_known]
    per_class = labels.average_precision[0, :n_known]
    values = _mean_of_classes(
        per_class, n_truth, _absent_value(table, n_known, rule.absent, weights)
    )
    support = _support(weights, n_truth, int((n_truth[:, 0] > 0).sum()))
    reason = None
    if np.isnan(values[0]):
        reason = NAN_CLASS if support["classes"] else nothing
    units = table.truth_units(weights, range(n_known))
    return MetricValue(values, support, reason, {"iou": float(table.thresholds[0])}, units)


def _absent_value(
    table: MatchTable, n_known: int, absent: Absent, weights: Weights
) -> Float[np.ndarray, "known 1"] | None:
    """Return what each class counts that has no object in the data; None if it is left out."""
    if absent is Absent.SKIPPED:
        return None
    ones, labels = np.ones(len(table.detection_labels)), table.detection_labels
    data = np.ascontiguousarray(weights[:, :1])
    # also detections of difficult objects, which count as nothing
    n = sum_by_label(ones, labels, table.detection_images, table.n_labels + 1, data)[:n_known]
    return np.where((n > 0) & (absent is Absent.NAN), np.nan, 0.0)


def _mean_of_classes(
    per_class: Float[np.ndarray, "known replicates"],
    n_truth: Float[np.ndarray, "known replicates"],
    absent: Float[np.ndarray, "known 1"] | None,
) -> Float[np.ndarray, "replicates"]:
    """Average over classes; one that a replicate lost is left out, one the data lacks is `absent`.

    NaN where no class has an object: the zero of some codes means nothing there.
    """
    if absent is None:
        return mean_over(per_class)
    is_lost = lost_labels(n_truth)
    totals = sum_along(np.where(is_lost, 0.0, np.where(n_truth > 0, per_class, absent)), axis=0)
    values = np.full(len(totals), np.nan)
    counts = len(per_class) - is_lost.sum(axis=0)
    np.divide(totals, counts, out=values, where=(n_truth > 0).any(axis=0))
    return values


def known_precision(
    table: MatchTable, n_known: int, *, weights: Weights | None = None
) -> MetricValue:
    """Compute P_k: the mean over known classes of TP / (TP + FP), of all detections.

    As the public codes print it: a class without a detection counts 0.
    """
    weights = image_weights(weights, table.n_images)
    n_truth = table.n_truth(weights)[:n_known]
    counted = (table.detection_labels < n_known) & ~table.is_ignored()
    found = _sum_rows(table, counted & table.is_true_positive(), n_known, weights)
    n = _sum_rows(table, counted, n_known, weights)
    is_lost = lost_labels(n_truth) | lost_labels(n)
    precision = np.zeros(found.shape)
    np.divide(found, n, out=precision, where=n > 0)
    values = mean_over(np.where(is_lost, np.nan, precision))
    units = table.detection_units(weights, range(n_known))
    return _of_known(values, n_truth, weights, units)


def known_recall(
    table: MatchTable,
    n_known: int,
    *,
    absent: Absent = Absent.NAN,
    weights: Weights | None = None,
) -> MetricValue:
    """Compute R_k: the mean over known classes of TP / objects, of all detections.

    As the public codes print it; `absent` is what a class without objects counts.
    """
    weights = image_weights(weights, table.n_images)
    n_truth = table.n_truth(weights)[:n_known]
    is_hit = (table.detection_labels < n_known) & table.is_true_positive() & ~table.is_ignored()
    found = _sum_rows(table, is_hit, n_known, weights)
    recall = found / np.where(n_truth > 0, n_truth, np.nan)
    values = _mean_of_classes(recall, n_truth, _absent_value(table, n_known, absent, weights))
    return _of_known(values, n_truth, weights, table.truth_units(weights, range(n_known)))


def _sum_rows(
    table: MatchTable, keep: Bool[np.ndarray, "detections"], n_known: int, weights: Weights
) -> Float[np.ndarray, "known replicates"]:
    labels, images = table.detection_labels[keep], table.detection_images[keep]
    return sum_by_label(np.ones(len(labels)), labels, images, n_known, weights)


def _of_known(
    values: Float[np.ndarray, "replicates"],
    n_truth: Float[np.ndarray, "known replicates"],
    weights: Weights,
    units: int,
) -> MetricValue:
    support = _support(weights, n_truth, int((n_truth[:, 0] > 0).sum()))
    if not support["classes"]:
        return undefined(NO_KNOWN_OBJECT, support, len(values))
    reason = NAN_CLASS if np.isnan(values[0]) else None
    return MetricValue(values, support, reason, units=units)


NAN_CLASS = "a known class has detections but no object, for which the public code gives NaN"


def unknown_average_precision(
    table: MatchTable,
    n_known: int,
    *,
    rule: AveragePrecisionRule,
    weights: Weights | None = None,
    labels: LabelPrecision | None = None,
) -> MetricValue:
    """Compute AP_U: average precision of the label unknown, ranked by the detector's confidence.

    With several IoU thresholds the result is their mean (the COCO-style AP_unk of OSOD-III).
    """
    weights = image_weights(weights, table.n_images)
    labels = labels or label_average_precision(table, weights, rule=rule)
    values = mean_over(labels.average_precision[:, n_known])
    support = _support(weights, labels.n_truth[n_known:], 1)
    reason = NO_UNKNOWN_OBJECT if np.isnan(values[0]) else None
    units = table.truth_units(weights, range(n_known, n_known + 1))
    return MetricValue(values, support, reason, {"iou": iou_text(table.thresholds)}, units)


def iou_text(thresholds: Float[np.ndarray, "t"]) -> float | str:
    """Return one IoU as a number, several as the range they cover."""
    first, last = float(thresholds[0]), float(thresholds[-1])
    return first if len(thresholds) == 1 else f"{first:.2f}:{last:.2f}"


def unknown_precision(
    table: MatchTable, n_known: int, *, weights: Weights | None = None
) -> MetricValue:
    """Compute P_U = TP_U / (TP_U + FP_U), the precision of the label unknown (FMIYC, eq. 4)."""
    weights = image_weights(weights, table.n_images)
    is_unknown = table.detection_labels == n_known
    counted = is_unknown & ~table.is_ignored()
    found = count_weighted(table.detection_images, counted & table.is_true_positive(), weights)
    total = count_weighted(table.detection_images, counted, weights)
    support = {"images": n_images_in(weights), "detections": int(total[0])}
    units = count_units(table.detection_images, counted, weights)
    return ratio(found, total, support, NO_UNKNOWN_DETECTION, units)


def unknown_recall(
    table: MatchTable, n_known: int, *, weights: Weights | None = None
) -> MetricValue:
    """Compute R_U = TP_U / (TP_U + FN_U), also called U-Recall."""
    weights = image_weights(weights, table.n_images)
    is_unknown = table.is_counted_truth & (table.truth_labels == n_known)
    found = count_weighted(table.truth_images, is_unknown & table.is_found, weights)
    total = count_weighted(table.truth_images, is_unknown, weights)
    support = {"images": n_images_in(weights), "objects": int(total[0])}
    units = count_units(table.truth_images, is_unknown, weights)
    return ratio(found, total, support, NO_UNKNOWN_OBJECT, units)


def open_set_error_by_objects(
    table: MatchTable, overlaps: UnknownOverlaps, *, weights: Weights | None = None
) -> MetricValue:
    """Count A-OSE as the papers define it: unknown objects detected as a known class.

    FN_U^M of FMIYC, appendix C: the object is not found as unknown, and a detection of a known
    class overlaps it.
    """
    weights = image_weights(weights, table.n_images)
    misnamed = overlaps.is_unknown & overlaps.is_named_known & ~table.is_found
    values = count_weighted(table.truth_images, misnamed, weights)
    units = count_units(table.truth_images, overlaps.is_unknown, weights)
    return MetricValue(values, _unknown_support(table, overlaps, weights), units=units)


def open_set_error_by_detections(
    table: MatchTable, overlaps: UnknownOverlaps, *, weights: Weights | None = None
) -> MetricValue:
    """Count A-OSE as the public codes do: known-class detections that lie on an unknown object.

    One object hit three times counts three, and one also found as unknown still counts.
    """
    weights = image_weights(weights, table.n_images)
    values = count_weighted(table.detection_images, overlaps.is_on_unknown, weights)
    units = count_units(table.truth_images, overlaps.is_unknown, weights)
    return MetricValue(values, _unknown_support(table, overlaps, weights), units=units)


def normalized_open_set_error(
    error: MetricValue,
    table: MatchTable,
    overlaps: UnknownOverlaps,
    *,
    weights: Weights | None = None,
) -> MetricValue:
    """Compute nOSE: the open-set error per unknown object (FMIYC, eq. 9).

    Over detections it can exceed one.
    """
    weights = image_weights(weights, table.n_images)
    total = count_weighted(table.truth_images, overlaps.is_unknown, weights)
    return ratio(error.values, total, error.support, NO_UNKNOWN_OBJECT, error.units)


def unknown_objects_without_detection(
    table: MatchTable, overlaps: UnknownOverlaps, *, weights: Weights | None = None
) -> MetricValue:
    """Compute the share of unknown objects that no detection overlaps (FN_U^D of FMIYC)."""
    weights = image_weights(weights, table.n_images)
    untouched = overlaps.is_unknown & ~overlaps.is_touched
    missed = count_weighted(table.truth_images, untouched, weights)
    total = count_weighted(table.truth_images, overlaps.is_unknown, weights)
    support = _unknown_support(table, overlaps, weights)
    units = count_units(table.truth_images, overlaps.is_unknown, weights)
    return ratio(missed, total, support, NO_UNKNOWN_OBJECT, units)


def images_without_detection(table: MatchTable, *, weights: Weights | None = None) -> MetricValue:
    """Compute the share of images without a detection (FMIYC, table 12)."""
    weights = image_weights(weights, table.n_images)
    is_empty = np.bincount(table.detection_images, minlength=table.n_images) == 0
    n_empty = is_empty.astype(np.float64) @ weights
    total = weights.sum(axis=0, dtype=np.float64)
    n_images = n_images_in(weights)
    return ratio(n_empty, total, {"images": n_images}, "there is no image", n_images)


def false_alarm_rate(
    table: MatchTable, n_known: int, *, weights: Weights | None = None
) -> MetricValue:
    """Compute the share of images without an unknown object in which something is called unknown.

    Every detection counts, whatever its confidence: leave out those below the operating point
    first. A single one is an alarm, as for a system that stops at the first unknown object.
    """
    weights = image_weights(weights, table.n_images)
    is_called = (table.detection_labels == n_known) & ~table.is_ignored()
    is_alarm = np.bincount(table.detection_images[is_called], minlength=table.n_images) > 0
    is_object = table.truth_labels == n_known
    is_known = np.bincount(table.truth_images[is_object], minlength=table.n_images) == 0
    n_false = (is_alarm & is_known).astype(np.float64) @ weights
    total = is_known.astype(np.float64) @ weights
    n_images = int(total[0])
    return ratio(n_false, total, {"images": n_images}, "every image has unknown objects", n_images)


def wilderness_impact(
    table: MatchTable,
    overlaps: UnknownOverlaps,
    n_known: int,
    *,
    recall: float = 0.8,
    weights: Weights | None = None,
) -> MetricValue:
    r"""Compute WI as the open-world codes do: open-set errors per known detection at a recall.

    $$ WI = \frac{mean_c\, O_c(i_c)}{mean_c\, (TP_c + FP_c)(i_c)}, \quad
       i_c = \arg\min_i |recall_c(i) - r| $$

    with O_c the detections of class c on unknown objects; a ratio of means, r = 0.8 in the
    published tables, 0.1 to 0.9 in the logs of OWOD. Not the wilderness impact of Dhamija et al.:
    see `wilderness_ratio`.
    """
    weights = image_weights(weights, table.n_images)
    n_truth = table.n_truth(weights)[:n_known]
    at = counts_at_recall(
        table.by_label,
        table.label_starts,
        table.flags,
        overlaps.is_on_unknown,
        table.detection_images,
        weights,
        n_truth,
        recall,
    )
    at[lost_labels(n_truth)] = np.nan
    support = _support(weights, n_truth, int((~np.isnan(at[:, 0, 0])).sum()))
    if not n_truth[:, 0].any():
        return undefined(NO_KNOWN_OBJECT, support, weights.shape[1], recall=recall)
    impact = ratio(mean_over(at[:, :, 2]), mean_over(at[:, :, 1]), support, "nothing is detected")
    unknown = count_units(table.truth_images, overlaps.is_unknown, weights)
    units = min(table.detection_units(weights, range(n_known)), unknown)
    return MetricValue(impact.values, support, impact.reason, {"recall": recall}, units)


def wilderness_ratio(
    table: MatchTable,
    truth: BoxTruth,
    *,
    recall: float = 0.5,
    weights: Weights | None = None,
) -> MetricValue:
    r"""Compute the wilderness impact as first defined: the precision lost to unknown images.

    $$ WI = P_{closed} / P_{open} - 1 $$ with P the mean over known classes of the precision at a
    recall (the best at that recall or above), on images without unknown objects, and on these
    together with images of unknown objects only. Dhamija et al., The overlooked elephant of object
    detection, WACV 2020; recalls 0.1, 0.3 and 0.5 there. Images with both kinds of objects are in
    neither set.
    """
    weights = image_weights(weights, table.n_images)
    n_known = truth.classes.n_known
    has_known, has_unknown = images_with_roles(truth)
    rule = AveragePrecisionRule("precision at recall", (recall,))
    closed = label_average_precision(table, weights * ~has_unknown[:, None], rule=rule)
    is_mixed = has_known & has_unknown
    opened = label_average_precision(table, weights * ~is_mixed[:, None], rule=rule)
    support = _support(weights, closed.n_truth[:n_known], n_known)
    before = mean_over(closed.average_precision[0, :n_known])
    after = mean_over(opened.average_precision[0, :n_known])
    if np.isnan(before[0]):
        return undefined(NO_KNOWN_OBJECT, support, weights.shape[1], recall=recall)
    quotient = ratio(before, after, support, "no known class reaches this recall")
    is_counted = weights[:, 0] > 0
    n_tame = int((has_known & ~has_unknown & is_counted).sum())
    units = min(n_tame, int((has_unknown & ~has_known & is_counted).sum()))
    return MetricValue(quotient.values - 1, support, quotient.reason, {"recall": recall}, units)


def images_with_roles(
    truth: BoxTruth,
) -> tuple[Bool[np.ndarray, "images"], Bool[np.ndarray, "images"]]:
    """Return which images hold a known object, and which an unknown one, crowd included."""
    counts = [
        np.bincount(truth.image_index[truth.has_role(role)], minlength=truth.n_images)
        for role in (Role.KNOWN, Role.UNKNOWN)
    ]
    return counts[0] > 0, counts[1] > 0


def _support(weights: np.ndarray, n_truth: np.ndarray, n_classes: int) -> dict[str, int]:
    objects = int(n_truth[:, 0].sum())
    return {"images": n_images_in(weights), "objects": objects, "classes": n_classes}


def _unknown_support(
    table: MatchTable, overlaps: UnknownOverlaps, weights: np.ndarray
) -> dict[str, int]:
    objects = count_weighted(table.truth_images, overlaps.is_unknown, weights[:, :1])
    return {"images": n_images_in(weights), "objects": int(objects[0])}


SPLITS = ("all", "known-only", "unknown-only")


def split_images(truth: BoxTruth) -> dict[str, Bool[np.ndarray, "images"]]:
    """Select all images, those with known objects only, and those with unknown objects only.

    Ammar et al., 2024, section 3.1. An image without any object is in neither of the pure splits.
    """
    has_known, has_unknown = images_with_roles(truth)
    everything = np.ones(truth.n_images, np.bool_)
    return dict(
        zip(SPLITS, (everything, has_known & ~has_unknown, has_unknown & ~has_known), strict=True)
    )
