"""Confidence, quality and count of detections, summed in bins of confidence.

`edges` holds the lower edge of each bin, then the upper edge of the last, then infinity; a bin
holds `low <= confidence < high`. Whoever wants other ends moves the edges by one number. What lies
beyond the last bin is summed in a place of its own behind it.
"""

import numba
import numpy as np

Array = np.ndarray
NEAR = 1e-9


@numba.njit(inline="always")
def _bin_of(value: float, edges: Array) -> np.uint64:
    """The bin of a number between 0 and 1.

    The product is enough well inside a bin. Near an edge it only guesses, because 0.12 * 25 is not
    3 in floating point, and the edges decide.
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

    Also says whether every row was in order; rows that are not are passed over.
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

    Gives [labels, bins + 1, 3, replicates]. Labels from `n_labels` on are passed over.
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
