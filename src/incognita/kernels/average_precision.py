"""Precision and recall along falling confidence: exact counts, or under many image weights."""

import numba
import numpy as np


@numba.njit(inline="always")
def _count(flags, i, n_areas, full, n_wrong, n_found, n_late, precision, rank, ranks, found_by):
    """Add one detection to the counts of every area and threshold.

    Most detections are wrong at every threshold: those cost one addition (`n_wrong`). `n_late` adds
    what is wrong only at some thresholds. Precision is kept at true positives alone, because the
    envelope never peaks elsewhere.
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
def _read_precision(precision, n, n_truth, recalls, out):
    """Read the precision envelope of n true positives at the recalls asked for."""
    for k in range(n - 1, 0, -1):
        if precision[k] > precision[k - 1]:
            precision[k - 1] = precision[k]
    k = 0
    for r in range(recalls.size):
        while k < n and (k + 1) / n_truth < recalls[r]:
            k += 1
        out[r] = precision[k] if k < n else 0.0


@numba.njit(cache=True, nogil=True, error_model="numpy")
def coco_precision_recall(by_label, starts, flags, ranks, n_truth, n_thresholds, recalls, caps):
    """Precision at the recall points, and the recall reached, per threshold, label and area.

    Gives arrays [areas, thresholds, recalls, labels] and [caps, areas, thresholds, labels]; -1 where
    a label has no object, which is what pycocotools averages over.
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
def _add_row(sums, weights, image):
    for r in range(sums.size):
        sums[r] += weights[image, r]


@numba.njit
def _integrate(precision, recall, n, column, points):
    """Area under the envelope of one replicate, or its mean at the recall points."""
    total = 0.0
    if points.size == 0:
        before = 0.0
        for k in range(n):
            total += (recall[k, column] - before) * precision[k, column]
            before = recall[k, column]
        return total
    k = 0
    for point in points:
        while k < n and recall[k, column] < point:
            k += 1
        total += precision[k, column] if k < n else 0.0
    return total / points.size


@numba.njit(cache=True, nogil=True, error_model="numpy")
def weighted_average_precision(
    by_label, starts, flags, column, bit, images, weights, n_truth, points, epsilon
):
    """Average precision of every label under every column of image weights.

    Also gives how much true-positive and counted weight there was. One walk serves all replicates:
    the order of the detections is the same in each of them.
    """
    n_labels, n_replicates = n_truth.shape
    average = np.full((n_labels, n_replicates), np.nan)
    found = np.zeros((n_labels, n_replicates))
    counted = np.zeros((n_labels, n_replicates))
    hit_word, ignored_word = column, flags.shape[1] // 2 + column
    is_used = np.zeros(weights.shape[0], np.bool_)
    for image in range(weights.shape[0]):
        is_used[image] = weights[image].any()
    for label in range(n_labels):
        n = 0
        for q in range(starts[label], starts[label + 1]):
            n += (flags[by_label[q], hit_word] >> bit) & 1
        precision = np.empty((n, n_replicates))
        recall = np.empty((n, n_replicates))
        n_found, n_counted = found[label], counted[label]
        k = 0
        for q in range(starts[label], starts[label + 1]):
            i = by_label[q]
            image = images[i]
            if (flags[i, ignored_word] >> bit) & 1 or not is_used[image]:
                continue
            _add_row(n_counted, weights, image)
            if (flags[i, hit_word] >> bit) & 1:
                _add_row(n_found, weights, image)
                for r in range(n_replicates):
                    total = n_counted[r] + epsilon
                    precision[k, r] = n_found[r] / total if total > 0 else 0.0
                    recall[k, r] = n_found[r] / n_truth[label, r]
                k += 1
        for row in range(k - 2, -1, -1):
            for r in range(n_replicates):
                precision[row, r] = max(precision[row, r], precision[row + 1, r])
        for r in range(n_replicates):
            if n_truth[label, r] > 0:
                average[label, r] = _integrate(precision, recall, k, r, points)
    return average, found, counted
