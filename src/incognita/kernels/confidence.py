"""Sums along falling confidence: the optimal LRP, and bins of confidence.

`edges` holds the lower edge of each bin, then the upper edge of the last, then infinity; a bin
holds `low <= confidence < high`. Other closures are obtained by moving an edge to the next float.
What lies beyond the last bin is summed in an extra bin behind it.
"""

from typing import NamedTuple

import numba
import numpy as np

Array = np.ndarray


class Sums(NamedTuple):
    """Sums over the detections so far, one entry per replicate."""

    found: Array
    wrong: Array
    loss: Array


@numba.njit(inline="always")
def _add(sums: Sums, weights: Array, image: int, is_hit: int, iou: float) -> None:
    for r in range(sums.found.size):
        w = weights[image, r]
        if is_hit:
            sums.found[r] += w
            sums.loss[r] += w * (1.0 - iou)
        else:
            sums.wrong[r] += w


@numba.njit(inline="always")
def _note_best(best: Array, sums: Sums, n_truth: Array, scale: float, confidence: float) -> None:
    """Keep the LRP of this threshold where it is the smallest so far."""
    for r in range(n_truth.size):
        found, wrong, loss = sums.found[r], sums.wrong[r], sums.loss[r]
        lrp = (loss * scale + wrong + n_truth[r] - found) / (n_truth[r] + wrong)
        if found > 0 and lrp < best[r, 0]:  # not on an image of weight zero
            best[r, 0] = lrp
            best[r, 1] = confidence
            best[r, 2] = loss / found
            best[r, 3] = wrong / (found + wrong)
            best[r, 4] = 1.0 - found / n_truth[r]


@numba.njit(inline="always")
def _finish(best: Array, found: Array, n_truth: Array) -> None:
    for r in range(n_truth.size):
        if n_truth[r] == 0:
            best[r, :] = np.nan
        elif found[r] == 0:
            best[r, :] = np.nan
            best[r, 0] = 1.0
            best[r, 4] = 1.0


@numba.njit(cache=True, nogil=True, error_model="numpy")
def optimal_lrp(
    by_label: Array, starts: Array, flags: Array, ious: Array, confidence: Array, images: Array,
    weights: Array, n_truth: Array, tau: float, at_ties: bool,
) -> Array:  # fmt: skip
    """Compute the smallest LRP of every label under every column of image weights.

    Returns an array [labels, replicates, 5]: the LRP, its confidence threshold, and the mean
    1 - IoU, 1 - precision and 1 - recall there. `at_ties` also cuts inside groups of equal
    confidence. A label without any true positive has LRP 1, recall 0, and no confidence.
    """
    n_labels, n_replicates = n_truth.shape
    best = np.full((n_labels, n_replicates, 5), np.inf)
    scale = 1.0 / (1.0 - tau)
    ignored_word = flags.shape[1] // 2
    for label in range(n_labels):
        sums = Sums(np.zeros(n_replicates), np.zeros(n_replicates), np.zeros(n_replicates))
        has_gained = False
        for q in range(starts[label], starts[label + 1]):
            i = by_label[q]
            if not flags[i, ignored_word] & 1:
                is_hit = flags[i, 0] & 1
                has_gained |= is_hit != 0
                _add(sums, weights, images[i], is_hit, ious[i])
            is_inside = q + 1 < starts[label + 1] and confidence[by_label[q + 1]] == confidence[i]
            # what is only wrong never lowers an error of at most one
            if has_gained and (at_ties or not is_inside):
                has_gained = False
                _note_best(best[label], sums, n_truth[label], scale, confidence[i])
        _finish(best[label], sums.found, n_truth[label])
    return best


NEAR = 1e-9


@numba.njit(inline="always")
def _bin_of(value: float, edges: Array) -> np.uint64:
    """Find the bin of a number between 0 and 1.

    The product is enough well inside a bin. Near an edge it is only a guess, because 0.12 * 25 is
    not 3 in floating point, and the edges decide.
    """
    scaled = value * (edges.size - 2)
    guess = np.uint64(scaled)
    rest = scaled - guess
    if NEAR < rest < 1 - NEAR:
        return guess
    is_below, is_beyond = value < edges[guess], value >= edges[guess + np.uint64(1)]
    return np.uint64(guess - np.uint64(is_below) + np.uint64(is_beyond))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def bin_gaps(
    confidence: Array, quality: Array, labels: Array, n_labels: int, edges: Array
) -> tuple[Array, Array, bool]:
    """Count, and sum confidence minus quality, per label and bin: one pass over the columns.

    The third result is whether every row is valid; invalid rows are skipped.
    """
    n_cells = np.uint64(edges.size - 1)
    counts = np.zeros(n_labels * (edges.size - 1), np.int64)
    gaps = np.zeros(n_labels * (edges.size - 1))
    most = np.uint64(n_labels)  # numba compares unsigned with signed integers as floats
    is_fine = True
    for i in range(confidence.size):
        value = np.float64(confidence[i])
        label = np.uint64(labels[i])
        if not value >= 0.0 or value > 1.0 or label >= most:  # the first is true of NaN as well
            is_fine = False
            continue
        cell = label * n_cells + _bin_of(value, edges)
        counts[cell] += 1
        gaps[cell] += value - quality[i]
    shape = (n_labels, edges.size - 1)
    return counts.reshape(shape), gaps.reshape(shape), is_fine


@numba.njit(cache=True, nogil=True, error_model="numpy")
def weighted_bin_sums(
    confidence: Array,
    quality: Array,
    labels: Array,
    n_labels: int,
    edges: Array,
    images: Array,
    weights: Array,
) -> Array:
    """Sum count, confidence and quality per label and bin under every column of image weights.

    Returns [labels, bins + 1, 3, replicates]. Labels from `n_labels` on are skipped.
    """
    sums = np.zeros((n_labels, edges.size - 1, 3, weights.shape[1]))
    most = np.uint64(n_labels)
    for i in range(confidence.size):
        label = np.uint64(labels[i])
        if label >= most:
            continue
        value = np.float64(confidence[i])
        cell = sums[label, _bin_of(value, edges)]
        for r in range(weights.shape[1]):
            w = weights[images[i], r]
            cell[0, r] += w
            cell[1, r] += w * value
            cell[2, r] += w * quality[i]
    return sums
