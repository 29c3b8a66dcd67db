"""Confidence, quality and count of detections, summed in bins of confidence."""

import numba
import numpy as np


@numba.njit(inline="always")
def _bin_of(value, n_bins, edges, closes_right):
    """The bin a confidence falls into; `n_bins` if it falls into none.

    The product only guesses: 0.12 * 25 is not 3 in floating point. The edges decide.
    """
    k = min(int(value * n_bins), n_bins - 1)
    if closes_right:  # (low, high], the first bin closed on both sides
        if k > 0 and value <= edges[k]:
            k -= 1
        elif value > edges[k + 1]:
            k += 1
    elif value < edges[k]:
        k -= 1
    elif value >= edges[k + 1]:  # [low, high)
        k += 1
    return k


@numba.njit(cache=True, nogil=True, error_model="numpy")
def bin_sums(confidence, quality, labels, n_labels, edges, closes_right):
    """Sum count, confidence and quality per label and bin: one pass, nothing allocated per row.

    The last bin of the result holds what falls into no bin.
    """
    n_bins = edges.size - 1
    sums = np.zeros((n_labels, n_bins + 1, 3))
    for i in range(confidence.size):
        value = np.float64(confidence[i])
        k = _bin_of(value, n_bins, edges, closes_right)
        label = labels[i]
        sums[label, k, 0] += 1.0
        sums[label, k, 1] += value
        sums[label, k, 2] += quality[i]
    return sums


@numba.njit(cache=True, nogil=True, error_model="numpy")
def weighted_bin_sums(confidence, quality, labels, n_labels, edges, closes_right, images, weights):
    """The same under every column of image weights: [labels, bins + 1, 3, replicates]."""
    n_bins = edges.size - 1
    sums = np.zeros((n_labels, n_bins + 1, 3, weights.shape[1]))
    for i in range(confidence.size):
        value = np.float64(confidence[i])
        k = _bin_of(value, n_bins, edges, closes_right)
        cell = sums[labels[i], k]
        for r in range(weights.shape[1]):
            w = weights[images[i], r]
            cell[0, r] += w
            cell[1, r] += w * value
            cell[2, r] += w * quality[i]
    return sums
