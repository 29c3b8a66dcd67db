"""Sums over rows when images count as often as their weights say."""

import numba
import numpy as np

Array = np.ndarray


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
