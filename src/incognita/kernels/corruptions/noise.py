"""Random numbers for every pixel, as a function of a key and the pixel's place.

The generator is SplitMix64 with a counter (`kernels/terra/random.py`). Normal and Poisson numbers
are looked up in tables, so that the same key gives the same bits on every machine.
"""

from typing import Any

import numba
import numpy as np

from incognita.kernels.terra.random import GOLDEN, mix

Array = np.ndarray[Any, Any]
QUARTER = np.uint64(0xFFFF)
HALF = np.uint64(32)
FRACTION = np.uint64(0xFFFFFF)  # 24 bits: as many as a float32 holds
UNIT = np.float32(2.0**-24)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_normal(
    levels: Array, deviations: Array, quantiles: Array, key: np.uint64, out: Array
) -> None:
    """Add normal noise whose deviation depends on the level; levels are cut to whole numbers.

    Args:
        levels: Flat uint8.
        deviations: For each of the 256 levels.
        quantiles: 65,536 quantiles of the normal distribution.
        key: Of the random stream.
        out: Written to, like `levels`.
    """
    for start in range(0, levels.size, 4):
        bits = mix(key + np.uint64(start) * GOLDEN)
        for i in range(start, min(start + 4, levels.size)):
            level = levels[i]
            value = np.float32(level) + deviations[level] * quantiles[bits & QUARTER]
            out[i] = np.uint8(min(max(value, np.float32(0)), np.float32(255)))
            bits >>= np.uint64(16)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def replace_by_alias(
    levels: Array, limits: Array, firsts: Array, seconds: Array, key: np.uint64, out: Array
) -> None:
    """Replace each level by a draw from its own distribution, by Walker's alias method.

    Args:
        levels: Flat uint8.
        limits: For each level and each of 64 columns, the chance of its first value times 65,536.
        firsts: The first value of each column.
        seconds: For each level and column, the value otherwise.
        key: Of the random stream.
        out: Written to, like `levels`.
    """
    for start in range(0, levels.size, 2):
        bits = mix(key + np.uint64(start) * GOLDEN)
        for i in range(start, min(start + 2, levels.size)):
            level = levels[i]
            column = bits & np.uint64(63)
            is_first = np.uint32((bits >> np.uint64(8)) & QUARTER) < limits[level, column]
            out[i] = firsts[column] if is_first else seconds[level, column]
            bits >>= HALF


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_impulses(
    levels: Array, n_white: int, n_changed: int, key: np.uint64, out: Array
) -> None:
    """Set values to 255 with chance n_white / 65,536, and to 0 up to n_changed / 65,536."""
    for start in range(0, levels.size, 4):
        bits = mix(key + np.uint64(start) * GOLDEN)
        for i in range(start, min(start + 4, levels.size)):
            draw = np.int64(bits & QUARTER)
            kept = np.uint8(0) if draw < n_changed else levels[i]
            out[i] = np.uint8(255) if draw < n_white else kept
            bits >>= np.uint64(16)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_normal(quantiles: Array, mean: float, deviation: float, key: np.uint64, out: Array) -> None:
    """Fill a flat float32 array with normal numbers."""
    for start in range(0, out.size, 4):
        bits = mix(key + np.uint64(start) * GOLDEN)
        for i in range(start, min(start + 4, out.size)):
            out[i] = np.float32(mean) + np.float32(deviation) * quantiles[bits & QUARTER]
            bits >>= np.uint64(16)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_uniform(low: float, high: float, key: np.uint64, out: Array) -> None:
    """Fill a flat float32 array with uniform numbers."""
    span = np.float32(high) - np.float32(low)
    for start in range(0, out.size, 2):
        bits = mix(key + np.uint64(start) * GOLDEN)
        for i in range(start, min(start + 2, out.size)):
            out[i] = np.float32(low) + span * (np.float32(bits & FRACTION) * UNIT)
            bits >>= HALF


@numba.njit(nogil=True, error_model="numpy", inline="always")
def _wobble(key: np.uint64, place: int, reach: np.float32) -> np.float32:
    bits = mix(key + np.uint64(place) * GOLDEN)
    return reach * (np.float32(bits & FRACTION) * UNIT * np.float32(2) - np.float32(1))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def plasma(size: int, decay: float, key: np.uint64) -> Array:
    """Draw a fractal height map from 0 to 1 by the diamond-square algorithm.

    Midpoints of squares, then of their sides, are the mean of their four neighbors plus a uniform
    number of at most reach; neighbors are found across the border.

    Args:
        size: Side of the map, a power of two.
        decay: By which the square root of the reach is divided from one scale to the next.
        key: Of the random stream.

    Returns:
        A square float32 array.
    """
    heights = np.zeros((size, size), np.float32)
    step, root = size, np.float32(100)
    quarter = np.float32(0.25)
    while step >= 2:
        half, reach = step // 2, root * root
        for i in range(0, size, step):
            below = (i + step) % size
            for j in range(0, size, step):
                right = (j + step) % size
                corners = heights[i, j] + heights[below, j]
                corners += heights[i, right] + heights[below, right]
                place = (i + half) * size + j + half
                heights[i + half, j + half] = corners * quarter + _wobble(key, place, reach)
        for i in range(0, size, step):
            above, below = (i - half) % size, (i + step) % size
            for j in range(0, size, step):
                left, right = (j - half) % size, (j + step) % size
                middle, corner = heights[i + half, j + half], heights[i, j]
                across = middle + heights[above, j + half] + corner + heights[i, right]
                down = middle + heights[i + half, left] + corner + heights[below, j]
                place = i * size + j + half
                heights[i, j + half] = across * quarter + _wobble(key, place, reach)
                place = (i + half) * size + j
                heights[i + half, j] = down * quarter + _wobble(key, place, reach)
        step, root = half, root / np.float32(decay)
    lowest, highest = heights.min(), heights.max()
    heights -= lowest
    heights *= np.float32(1) / (highest - lowest)
    return heights
