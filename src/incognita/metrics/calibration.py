r"""Calibration errors: how far confidences are from accuracy or from precision times IoU.

Localisation-aware calibration (LaECE, Oksuz et al., CVPR 2023, eq. 4) asks that the confidence p of
a detection be precision times IoU: over J = 25 equal bins of confidence, class by class,

$$ LaECE^c = \sum_j \frac{|D_j^c|}{|D^c|} \, | \bar p_j - precision(j) \cdot \overline{IoU}(j) | $$

where precision times mean IoU of true positives is the mean over the bin of the IoU, a false
positive counting zero. That per-detection number is called `quality` below. With quality one for
every true positive the same formula is the expected calibration error (ECE; D-ECE for boxes).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from incognita.containers._checks import check_class_ids, check_rows
from incognita.errors import InvalidDataError
from incognita.kernels.confidence import bin_gaps, weighted_bin_sums
from incognita.metrics.conventions import D_ECE, PAPER_CALIBRATION, CalibrationRule, Empty
from incognita.metrics.matching import MatchTable
from incognita.metrics.measure import (
    MetricValue,
    count_units,
    image_weights,
    mean_over,
    n_images_in,
    sum_along,
    sum_by_label,
    undefined,
)
from incognita.shapes import Bool, Float, Int, Real


class Reliability(NamedTuple):
    """The data of a reliability diagram: one entry per bin, NaN where a bin is empty.

    `confidence` and `quality` are means over classes of the means in the bin, as the paper draws
    them; `n_detections` counts over all classes.
    """

    low: Float[np.ndarray, "bins"]
    high: Float[np.ndarray, "bins"]
    confidence: Float[np.ndarray, "bins"]
    quality: Float[np.ndarray, "bins"]
    n_detections: Int[np.ndarray, "bins"]


def laece(
    confidence: Float[np.ndarray, "n"],
    quality: Float[np.ndarray, "n"],
    *,
    class_ids: Int[np.ndarray, "n"],
    n_classes: int,
    rule: CalibrationRule = PAPER_CALIBRATION,
    has_truth: Bool[np.ndarray, "classes"] | None = None,
) -> float:
    """Compute LaECE of detections given as columns.

    Args:
        confidence: Between 0 and 1.
        quality: The IoU of a true positive, zero of a false positive.
        class_ids: The class of each detection.
        n_classes: The number of classes.
        rule: The paper's, or that of one of the public codes.
        has_truth: Which classes have an object; by default all.

    >>> p, q = np.array([0.9, 0.9, 0.3]), np.array([0.8, 0.0, 0.3])
    >>> round(laece(p, q, class_ids=np.array([0, 0, 1]), n_classes=2), 6)  # (0.5 + 0.0) / 2
    0.25
    """
    check_rows("calibration", confidence=len(confidence), quality=len(quality),
               class_ids=len(class_ids))  # fmt: skip
    edges = _edges(rule)
    counts, gaps, is_fine = bin_gaps(confidence, quality, class_ids, n_classes, edges)
    if not is_fine:  # found in the same pass; the checks name the problem
        check_probabilities(confidence)
        check_class_ids("detections", class_ids, n_classes)
    truth = np.ones(n_classes, np.bool_) if has_truth is None else has_truth
    errors = _class_errors(counts[..., None], gaps[..., None], rule)
    return float(_mean_of_classes(errors, counts.sum(axis=1)[:, None], truth[:, None], rule)[0])


def laece_of(
    table: MatchTable,
    n_known: int,
    *,
    rule: CalibrationRule = PAPER_CALIBRATION,
    weights: Float[np.ndarray, "images replicates"] | None = None,
) -> MetricValue:
    """Compute LaECE of matched detections of known classes."""
    counted = _is_counted(table, n_known, weights)
    if (reason := _unfit(table.confidence, counted)) is not None:
        return _unmeasured(table, weights, reason)
    sums = _bin(table, table.iou, counted, table.detection_labels, n_known, rule, weights)
    errors = _class_errors(sums[:, :, 0], sums[:, :, 1] - sums[:, :, 2], rule)
    n = sum_along(sums[:, :, 0], axis=1)
    return _class_mean(table, errors, n, counted, n_known, rule, weights)


def laace_of(
    table: MatchTable,
    n_known: int,
    *,
    rule: CalibrationRule = PAPER_CALIBRATION,
    weights: Float[np.ndarray, "images replicates"] | None = None,
) -> MetricValue:
    """Compute LaACE: the mean distance of confidence and quality, class by class, without bins.

    Kuzucu et al., On calibration of object detectors, ECCV 2024.
    """
    counted = _is_counted(table, n_known, weights, with_ignored=rule.counts_ignored)
    if (reason := _unfit(table.confidence, counted)) is not None:
        return _unmeasured(table, weights, reason)
    rows = np.flatnonzero(counted)
    where = table.detection_labels[rows], table.detection_images[rows]
    columns = image_weights(weights, table.n_images)
    distances = np.abs(table.iou[rows] - table.confidence[rows])
    totals = sum_by_label(distances, *where, n_known, columns)
    n = sum_by_label(np.ones(len(rows)), *where, n_known, columns)
    errors = np.full(totals.shape, np.nan)
    np.divide(totals, n, out=errors, where=n > 0)
    return _class_mean(table, errors, n, counted, n_known, rule, weights)


def d_ece_of(
    table: MatchTable,
    n_known: int,
    *,
    n_bins: int = 10,
    weights: Float[np.ndarray, "images replicates"] | None = None,
    skips_absent: bool = False,
    closes_right: bool = False,
) -> MetricValue:
    """Compute D-ECE: precision against confidence, all classes together.

    Kueppers et al., Multivariate confidence calibration for object detection, 2020; the table must
    be matched at IoU 0.5. Ten bins, as in the public toolbox, which leaves out detections of
    classes without objects (`skips_absent`); by default those are false positives. Its bins are
    (low, high], the first closed (`closes_right`); by default [low, high), the last closed.
    """
    counted = _is_counted(table, n_known, weights)
    columns = image_weights(weights, table.n_images)
    if skips_absent:
        has_truth = table.n_truth(np.ascontiguousarray(columns[:, :1]))[:, 0] > 0
        counted &= np.append(has_truth, False)[table.detection_labels]
    if (reason := _unfit(table.confidence, counted)) is not None:
        return _unmeasured(table, weights, reason)
    rule = replace(D_ECE, n_bins=n_bins, closes_right=closes_right)
    one_class = np.zeros(len(counted), np.int32)
    quality = table.is_true_positive().astype(np.float64)
    sums = _bin(table, quality, counted, one_class, 1, rule, weights)
    values = _class_errors(sums[:, :, 0], sums[:, :, 1] - sums[:, :, 2], rule)[0]
    n = int(sums[0, :, 0, 0].sum())
    support = {"images": n_images_in(columns), "detections": n, "classes": n_known}
    missing = "class with objects" if skips_absent else "class"
    reason = f"no detection is of a known {missing}" if np.isnan(values[0]) else None
    parameters = {"tau": float(table.thresholds[0]), "bins": n_bins}
    units = count_units(table.detection_images, counted, columns)
    return MetricValue(values, support, reason, parameters, units)


def ece(
    confidence: Float[np.ndarray, "n"], is_correct: Bool[np.ndarray, "n"], *, n_bins: int = 15
) -> float:
    """Compute the expected calibration error of a classifier's confidence in its prediction.

    Naeini et al., 2015; fifteen bins as Guo et al., 2017. Bins are [low, high), the last closed.

    >>> round(ece(np.array([0.9, 0.9, 0.6]), np.array([True, False, True]), n_bins=10), 6)
    0.4
    """
    _check_answers("ECE", confidence, is_correct)
    rule = replace(D_ECE, n_bins=n_bins)
    labels = np.zeros(len(confidence), np.int32)
    quality = is_correct.astype(np.float64)
    counts, gaps, _ = bin_gaps(confidence, quality, labels, 1, _edges(rule))
    return float(_class_errors(counts[..., None], gaps[..., None], rule)[0, 0])


def brier_score(confidence: Float[np.ndarray, "n"], is_correct: Bool[np.ndarray, "n"]) -> float:
    """Compute the mean squared distance between confidence and truth (Brier, 1950).

    >>> brier_score(np.array([1.0, 0.5]), np.array([True, False]))
    0.125
    """
    _check_answers("The Brier score", confidence, is_correct)
    return float(np.mean((confidence - is_correct) ** 2))


def reliability(
    confidence: Float[np.ndarray, "n"],
    quality: Float[np.ndarray, "n"],
    *,
    class_ids: Int[np.ndarray, "n"] | None = None,
    n_bins: int = 25,
) -> Reliability:
    """Compute the data of a reliability diagram.

    Bins are averaged over classes, empty ones left out, as the paper's figure 4 does; without class
    ids everything is one class.
    """
    check_probabilities(confidence)
    class_ids = np.zeros(len(confidence), np.int32) if class_ids is None else class_ids
    check_rows("calibration", confidence=len(confidence), quality=len(quality),
               class_ids=len(class_ids))  # fmt: skip
    n_classes = int(class_ids.max(initial=0)) + 1
    check_class_ids("detections", class_ids, n_classes)
    edges = _edges(CalibrationRule("diagram", n_bins=n_bins))
    one_image = np.zeros(len(confidence), np.int32), np.ones((1, 1), np.float32)
    sums = weighted_bin_sums(confidence, quality, class_ids, n_classes, edges, *one_image)
    n, p, q = (sums[:, :n_bins, k, 0] for k in range(3))
    means = np.full((2, *n.shape), np.nan)
    np.divide(p, n, out=means[0], where=n > 0)
    np.divide(q, n, out=means[1], where=n > 0)
    bounds = np.linspace(0, 1, n_bins + 1)
    counts = n.sum(axis=0).astype(np.int64)
    return Reliability(bounds[:-1], bounds[1:], mean_over(means[0]), mean_over(means[1]), counts)


def reliability_of(table: MatchTable, n_known: int, *, n_bins: int = 10) -> Reliability | None:
    """Return the reliability diagram of matched detections; None if confidences exceed 0 to 1."""
    counted = _is_counted(table, n_known, None)
    if _unfit(table.confidence, counted) is not None:
        return None
    columns = table.confidence[counted], table.iou[counted]
    return reliability(*columns, class_ids=table.detection_labels[counted], n_bins=n_bins)


def _check_answers(what: str, confidence: np.ndarray, is_correct: np.ndarray) -> None:
    """Raise if answers are missing, differ in number, or are not boolean."""
    check_rows(what, confidence=len(confidence), is_correct=len(is_correct))
    if not len(confidence):
        raise InvalidDataError(f"{what} needs at least one prediction, got none.")
    if is_correct.dtype != np.bool_:
        raise InvalidDataError(
            f"{what} needs is_correct as booleans, got {is_correct.dtype}. "
            f"Compare predictions with labels first."
        )
    check_probabilities(confidence)


def check_probabilities(confidence: Float[np.ndarray, "n"]) -> None:
    """Raise if confidences are not between 0 and 1."""
    if (reason := _unfit(confidence)) is not None:
        raise InvalidDataError(f"Calibration is undefined: {reason}.")


def _unfit(
    confidence: Float[np.ndarray, "n"], counted: Bool[np.ndarray, "n"] | None = None
) -> str | None:
    """Return why counted confidences cannot be judged, or None."""
    if _are_probabilities(confidence):  # usually true of all, without selecting
        return None
    values = confidence if counted is None else confidence[counted]
    if _are_probabilities(values):
        return None
    low, high = values.min(), values.max()
    return f"confidences must be between 0 and 1, but they reach from {low:g} to {high:g}"


def _are_probabilities(values: Float[np.ndarray, "n"]) -> bool:
    return not len(values) or bool(values.min() >= 0 and values.max() <= 1)


def _edges(rule: CalibrationRule) -> Float[np.ndarray, "bins_plus_1"]:
    """The edges of the bins as the kernels take them: closed below, and infinity at the end."""
    if rule.n_bins < 1:
        raise InvalidDataError(f"n_bins must be at least 1, but it is {rule.n_bins}.")
    edges = np.linspace(0, 1, rule.n_bins + 1)
    if rule.closes_right:  # more than low is at least the number after it
        edges[1:] = np.nextafter(edges[1:], 2.0)
    elif rule.last_is_closed:
        edges[-1] = np.nextafter(1.0, 2.0)
    return np.append(edges, np.inf)


def _class_errors(
    counts: Real[np.ndarray, "classes bins_plus_1 replicates"],
    gaps: Float[np.ndarray, "classes bins_plus_1 replicates"],
    rule: CalibrationRule,
) -> Float[np.ndarray, "classes replicates"]:
    """Sum over bins of |mean confidence - mean quality| weighted by the bin's share."""
    totals = sum_along(np.abs(gaps[:, : rule.n_bins]), axis=1)
    n = sum_along(counts, axis=1)
    errors = np.full(totals.shape, np.nan)
    np.divide(totals, n, out=errors, where=n > 0)
    return errors


def _mean_of_classes(
    errors: np.ndarray, n: np.ndarray, has_truth: np.ndarray, rule: CalibrationRule
) -> Float[np.ndarray, "replicates"]:
    """Average over classes; a class of the data that a replicate lost is left out."""
    if rule.empty is Empty.ALL_AS_ZERO:
        is_measured = (n > 0) & has_truth
        is_lost = is_measured[:, :1] & ~is_measured
        return mean_over(np.where(is_measured, errors, np.where(is_lost, np.nan, 0.0)))
    if rule.empty is Empty.NON_ZERO:
        return mean_over(np.where((errors != 0) & has_truth, errors, np.nan))
    return mean_over(np.where(has_truth[:, :1] & ~has_truth, np.nan, errors))


def _is_counted(
    table: MatchTable,
    n_known: int,
    weights: Float[np.ndarray, "images replicates"] | None,
    *,
    with_ignored: bool = False,
) -> Bool[np.ndarray, "detections"]:
    """Return which detections count: of known classes, not ignored, on images with a weight."""
    table.check_one_threshold()
    table.check_known(n_known)
    counted = np.asarray(table.detection_labels < n_known)
    if not with_ignored:
        counted &= ~table.is_ignored()
    if weights is not None:
        is_used = np.asarray(image_weights(weights, table.n_images).any(axis=1))
        counted &= is_used[table.detection_images]
    return counted


def _bin(
    table: MatchTable,
    quality: Float[np.ndarray, "detections"],
    counted: Bool[np.ndarray, "detections"],
    labels: Int[np.ndarray, "detections"],
    n_labels: int,
    rule: CalibrationRule,
    weights: Float[np.ndarray, "images replicates"] | None,
) -> Float[np.ndarray, "labels bins_plus_1 3 replicates"]:
    """Sum what is counted per label and bin; label `n_labels` is skipped."""
    kept = np.where(counted, labels, np.int32(n_labels))
    columns = image_weights(weights, table.n_images)
    where = table.detection_images, columns
    sums = weighted_bin_sums(table.confidence, quality, kept, n_labels, _edges(rule), *where)
    return np.asarray(sums)


def _unmeasured(
    table: MatchTable, weights: Float[np.ndarray, "images replicates"] | None, reason: str
) -> MetricValue:
    columns = image_weights(weights, table.n_images)
    support = {"images": n_images_in(columns), "detections": 0, "classes": 0}
    return undefined(reason, support, columns.shape[1], tau=float(table.thresholds[0]))


def _class_mean(
    table: MatchTable,
    errors: Float[np.ndarray, "labels replicates"],
    n: Float[np.ndarray, "labels replicates"],
    counted: Bool[np.ndarray, "detections"],
    n_known: int,
    rule: CalibrationRule,
    weights: Float[np.ndarray, "images replicates"] | None,
) -> MetricValue:
    columns = image_weights(weights, table.n_images)
    has_truth = table.n_truth(columns)[:n_known] > 0
    values = _mean_of_classes(errors, n, has_truth, rule)
    n_classes = int((~np.isnan(errors[:, 0])).sum())
    support = {
        "images": n_images_in(columns),
        "detections": int(n[:, 0].sum()),
        "classes": n_known if rule.empty is Empty.ALL_AS_ZERO else n_classes,
    }
    reason = None
    if rule.empty is not Empty.WITH_DETECTIONS and not has_truth[:, 0].any():
        values, reason = np.where(has_truth.any(axis=0), values, np.nan), NO_KNOWN_OBJECT
    elif np.isnan(values[0]):
        skipped = ", or every error is exactly zero" if rule.empty is Empty.NON_ZERO else ""
        reason = f"no known class has a detection{skipped}"
    units = count_units(table.detection_images, counted, columns)
    return MetricValue(values, support, reason, {"tau": float(table.thresholds[0])}, units)


NO_KNOWN_OBJECT = "no known object is in these images"
