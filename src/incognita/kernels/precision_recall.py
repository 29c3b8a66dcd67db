"""Precision and recall along falling confidence: exact counts, or under many image weights."""

from typing import NamedTuple

import numba
import numpy as np

Array = np.ndarray


class Counts(NamedTuple):
    """Sums over the detections so far, one entry per replicate."""

    found: Array
    counted: Array
    errors: Array
    nearest: Array


@numba.njit(inline="always")
def _note_nearest(
    at: Array, counts: Counts, weights: Array, n_truth: Array, level: float, is_hit: int
) -> int:
    """Keep the counts where the recall is nearest to the level; return how many have none yet.

    The recall changes only at true positives, so only they can be nearer; other detections matter
    where they are the first of all.
    """
    n_open = 0
    for r in range(weights.size):
        is_first = np.isinf(counts.nearest[r])
        if weights[r] > 0 and (is_hit or is_first):
            distance = abs(counts.found[r] / n_truth[r] - level)
            if is_first or distance < counts.nearest[r]:
                # a label without objects has no recall: its first detection is never replaced
                counts.nearest[r] = -1.0 if np.isnan(distance) else distance
                at[r, 0] = counts.found[r]
                at[r, 1] = counts.counted[r]
                at[r, 2] = counts.errors[r]
        n_open += np.isinf(counts.nearest[r])
    return n_open


@numba.njit(cache=True, nogil=True, error_model="numpy")
def counts_at_recall(
    by_label: Array, starts: Array, flags: Array, is_open_error: Array, images: Array,
    weights: Array, n_truth: Array, level: float,
) -> Array:  # fmt: skip
    """Count for each label up to the detection whose recall is nearest to a level.

    Returns [labels, replicates, 3]: found, found + wrong, and detections on unknown objects, all
    cumulative; NaN where a label has no detection. The first of equally near places counts, and
    a label without objects, whose recall is undefined, is read at its first detection.
    """
    n_labels, n_replicates = n_truth.shape
    at = np.full((n_labels, n_replicates, 3), np.nan)
    for label in range(n_labels):
        counts = Counts(
            np.zeros(n_replicates), np.zeros(n_replicates), np.zeros(n_replicates),
            np.full(n_replicates, np.inf),
        )  # fmt: skip
        n_open = n_replicates
        for q in range(starts[label], starts[label + 1]):
            i = by_label[q]
            row = weights[images[i]]
            is_hit = flags[i, 0] & 1
            is_counted = not flags[i, 1] & 1
            for r in range(n_replicates):
                counts.found[r] += row[r] * is_hit
                counts.counted[r] += row[r] * is_counted
                counts.errors[r] += row[r] * is_open_error[i]
            if is_hit or n_open:
                n_open = _note_nearest(at[label], counts, row, n_truth[label], level, is_hit)
    return at


@numba.njit(cache=True, nogil=True)
def weighted_sums(
    values: Array, groups: Array, images: Array, weights: Array, n_groups: int
) -> Array:
    """Sum values times the weight of their image, per group and column of weights."""
    sums = np.zeros((n_groups, weights.shape[1]))
    for i in range(values.size):
        row = sums[groups[i]]
        for r in range(weights.shape[1]):
            row[r] += values[i] * weights[images[i], r]
    return sums


@numba.njit(inline="always")
def _count(
    flags: Array,
    i: int,
    n_areas: int,
    full: int,
    n_wrong: Array,
    n_found: Array,
    n_late: Array,
    precision: Array,
    rank: int,
    ranks: Array,
    found_by: Array,
) -> None:
    """Add one detection to the counts of every area and threshold.

    Most detections are wrong at every threshold: those cost one addition (`n_wrong`). `n_late`
    adds what is wrong only at some thresholds. Precision is kept at true positives alone, because
    the envelope never peaks elsewhere.
    """
    for area in range(n_areas):
        hits = flags[i, area]
        ignored = flags[i, n_areas + area]
        if hits == 0:
            if ignored == 0:
                n_wrong[area] += 1
                continue
            if ignored == full:
                continue
        for t in range(n_found.shape[1]):
            if (ignored >> t) & 1:
                continue
            if (hits >> t) & 1:
                n_found[area, t] += 1
                n = n_found[area, t]
                n_so_far = n_wrong[area] + n_late[area, t] + n
                precision[area, t, n - 1] = n / (n_so_far + 2.220446049250313e-16)
                for k in range(ranks.size):
                    found_by[k, area, t] += rank < ranks[k]
            else:
                n_late[area, t] += 1


@numba.njit(inline="always")
def _read_precision(precision: Array, n: int, n_truth: int, recalls: Array, out: Array) -> None:
    """Read the precision envelope of n true positives at the recall points."""
    for k in range(n - 1, 0, -1):
        if precision[k] > precision[k - 1]:
            precision[k - 1] = precision[k]
    k = 0
    for r in range(recalls.size):
        while k < n and (k + 1) / n_truth < recalls[r]:
            k += 1
        out[r] = precision[k] if k < n else 0.0


@numba.njit(cache=True, nogil=True, error_model="numpy")
def coco_precision_recall(
    by_label: Array,
    starts: Array,
    flags: Array,
    ranks: Array,
    n_truth: Array,
    n_thresholds: int,
    recalls: Array,
    caps: Array,
) -> tuple[Array, Array]:
    """Compute precision at the recall points, and the final recall, per threshold and label.

    Returns arrays [areas, thresholds, recalls, labels] and [caps, areas, thresholds, labels]; -1
    where a label has no object, which pycocotools leaves out of its means.
    """
    n_labels, n_areas = n_truth.shape
    full = (1 << n_thresholds) - 1
    precision_at = np.full((n_areas, n_thresholds, recalls.size, n_labels), -1.0)
    recall = np.full((caps.size, n_areas, n_thresholds, n_labels), -1.0)
    most = max(1, n_truth.max())
    precision = np.empty((n_areas, n_thresholds, most))
    row = np.empty(recalls.size)
    for label in range(n_labels):
        n_wrong = np.zeros(n_areas, np.int64)
        n_late = np.zeros((n_areas, n_thresholds), np.int64)
        n_found = np.zeros((n_areas, n_thresholds), np.int64)
        found_by = np.zeros((caps.size, n_areas, n_thresholds), np.int64)
        for q in range(starts[label], starts[label + 1]):
            i = by_label[q]
            _count(flags, i, n_areas, full, n_wrong, n_found, n_late, precision, ranks[i], caps,
                   found_by)  # fmt: skip
        for area in range(n_areas):
            if n_truth[label, area] == 0:
                continue
            for t in range(n_thresholds):
                n = n_found[area, t]
                _read_precision(precision[area, t], n, n_truth[label, area], recalls, row)
                for r in range(recalls.size):
                    precision_at[area, t, r, label] = row[r]
                for k in range(caps.size):
                    recall[k, area, t, label] = found_by[k, area, t] / n_truth[label, area]
    return precision_at, recall


@numba.njit
def _add_row(sums: Array, weights: Array, image: int) -> None:
    for r in range(sums.size):
        sums[r] += weights[image, r]


@numba.njit
def _integrate(
    precision: Array, found: Array, n: int, column: int, n_truth: float, points: Array
) -> float:
    """Integrate the envelope of one replicate, or average it at the recall points."""
    total = 0.0
    if points.size == 0:
        before = 0.0
        for k in range(n):
            total += (found[k, column] - before) / n_truth * precision[k, column]
            before = found[k, column]
        return total
    k = 0
    for point in points:
        while k < n and found[k, column] / n_truth < point:
            k += 1
        total += precision[k, column] if k < n else 0.0
    return total / points.size


@numba.njit
def _most_hits(by_label: Array, begin: int, end: int, flags: Array, area: int) -> int:
    """Count the detections of a label that are true positives at some threshold."""
    n = 0
    for q in range(begin, end):
        n += flags[by_label[q], area] != 0
    return n


@numba.njit
def _walk_label(
    by_label: Array,
    begin: int,
    end: int,
    flags: Array,
    area: int,
    images: Array,
    weights: Array,
    is_used: Array,
    epsilon: float,
    total: Array,
    skipped: Array,
    found: Array,
    precision: Array,
    reached: Array,
    n_hits: Array,
) -> None:
    """Follow one label along falling confidence, keeping precision and recall at true positives.

    What is counted is almost the same at every threshold, so it is summed once; only what one
    threshold ignores is kept apart (`skipped`).
    """
    n_thresholds = found.shape[0]
    n_areas = flags.shape[1] // 2
    full = (1 << n_thresholds) - 1
    for q in range(begin, end):
        i = by_label[q]
        hits = flags[i, area]
        ignored = flags[i, n_areas + area]
        if ignored == full or not is_used[images[i]]:
            continue
        _add_row(total, weights, images[i])
        if hits == 0 and ignored == 0:
            continue
        for t in range(n_thresholds):
            if (ignored >> t) & 1:
                _add_row(skipped[t], weights, images[i])
            elif (hits >> t) & 1:
                _add_row(found[t], weights, images[i])
                k = n_hits[t]
                for r in range(total.size):
                    n_counted = total[r] - skipped[t, r] + epsilon
                    precision[t, k, r] = found[t, r] / n_counted if n_counted > 0 else 0.0
                    reached[t, k, r] = found[t, r]
                n_hits[t] += 1


@numba.njit(cache=True, nogil=True, error_model="numpy")
def weighted_average_precision(
    by_label: Array,
    starts: Array,
    flags: Array,
    area: int,
    n_thresholds: int,
    images: Array,
    weights: Array,
    n_truth: Array,
    points: Array,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    """Compute average precision of every label and threshold under every column of image weights.

    Returns three arrays [thresholds, labels, replicates]: the average precision, NaN where a label
    has no object, and the weight of true positives and of all that counts. One walk serves all
    replicates: the order of the detections is the same in each of them.
    """
    n_labels, n_replicates = n_truth.shape
    shape = (n_thresholds, n_labels, n_replicates)
    average, found, counted = np.full(shape, np.nan), np.zeros(shape), np.zeros(shape)
    is_used = np.zeros(weights.shape[0], np.bool_)
    for image in range(weights.shape[0]):
        is_used[image] = weights[image].any()
    for label in range(n_labels):
        begin, end = starts[label], starts[label + 1]
        most = _most_hits(by_label, begin, end, flags, area)
        precision = np.empty((n_thresholds, most, n_replicates))
        reached = np.empty((n_thresholds, most, n_replicates))
        total = np.zeros(n_replicates)
        skipped = np.zeros((n_thresholds, n_replicates))
        hits = np.zeros((n_thresholds, n_replicates))
        n_hits = np.zeros(n_thresholds, np.int64)
        _walk_label(
            by_label, begin, end, flags, area, images, weights, is_used, epsilon,
            total, skipped, hits, precision, reached, n_hits,
        )  # fmt: skip
        for t in range(n_thresholds):
            for k in range(n_hits[t] - 2, -1, -1):
                for r in range(n_replicates):
                    if precision[t, k + 1, r] > precision[t, k, r]:
                        precision[t, k, r] = precision[t, k + 1, r]
            for r in range(n_replicates):
                found[t, label, r] = hits[t, r]
                counted[t, label, r] = total[r] - skipped[t, r]
                if n_truth[label, r] > 0:
                    average[t, label, r] = _integrate(
                        precision[t], reached[t], n_hits[t], r, n_truth[label, r], points
                    )
    return average, found, counted
