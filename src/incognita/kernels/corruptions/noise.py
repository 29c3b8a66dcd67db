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


@numba.njit(nogil=True, error_model="numpy")
def _bits(key: np.uint64, place: int) -> np.uint64:
    return mix(key + np.uint64(place) * GOLDEN)


@numba.njit(nogil=True, error_model="numpy")
def _noisy(level: np.uint8, deviations: Array, quantiles: Array, draw: np.uint64) -> np.uint8:
    value = np.float32(level) + deviations[level] * quantiles[draw & QUARTER]
    return np.uint8(min(max(value, np.float32(0)), np.float32(255)))


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
    n_full = levels.size // 4 * 4
    for start in range(0, n_full, 4):
        bits = _bits(key, start)
        for j in range(4):
            draw = bits >> np.uint64(16 * j)
            out[start + j] = _noisy(levels[start + j], deviations, quantiles, draw)
    bits = _bits(key, n_full)
    for i in range(n_full, levels.size):
        out[i] = _noisy(levels[i], deviations, quantiles, bits >> np.uint64(16 * (i - n_full)))


@numba.njit(nogil=True, error_model="numpy")
def _alias(level: np.uint8, columns: Array, draw: np.uint64) -> np.uint8:
    column = columns[level, draw & np.uint64(63)]
    is_second = np.uint32((draw >> np.uint64(8)) & QUARTER) < column >> np.uint32(16)
    return np.uint8(column if is_second else column >> np.uint32(8))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def replace_by_alias(levels: Array, columns: Array, key: np.uint64, out: Array) -> None:
    """Replace each level by a draw from its own distribution, by Walker's alias method.

    Args:
        levels: Flat uint8.
        columns: uint32, for each level 64 columns: the chance of its second value in 65,536, its
            first value and its second value, in 16, 8 and 8 bits.
        key: Of the random stream.
        out: Written to, like `levels`.
    """
    n_full = levels.size // 2 * 2
    for start in range(0, n_full, 2):
        bits = _bits(key, start)
        for j in range(2):
            out[start + j] = _alias(levels[start + j], columns, bits >> np.uint64(32 * j))
    if n_full < levels.size:
        out[n_full] = _alias(levels[n_full], columns, _bits(key, n_full))


@numba.njit(nogil=True, error_model="numpy")
def _impulse(level: np.uint8, n_white: int, n_changed: int, draw: np.uint64) -> np.uint8:
    number = np.int64(draw & QUARTER)
    kept = np.uint8(0) if number < n_changed else level
    return np.uint8(255) if number < n_white else kept


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_impulses(levels: Array, n_white: int, n_changed: int, key: np.uint64, out: Array) -> None:
    """Set values to 255 with chance n_white / 65,536, and to 0 up to n_changed / 65,536."""
    n_full = levels.size // 4 * 4
    for start in range(0, n_full, 4):
        bits = _bits(key, start)
        for j in range(4):
            draw = bits >> np.uint64(16 * j)
            out[start + j] = _impulse(levels[start + j], n_white, n_changed, draw)
    bits = _bits(key, n_full)
    for i in range(n_full, levels.size):
        out[i] = _impulse(levels[i], n_white, n_changed, bits >> np.uint64(16 * (i - n_full)))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_normal(
    quantiles: Array, mean: float, deviation: float, key: np.uint64, out: Array
) -> None:
    """Fill a flat float32 array with normal numbers, one per place."""
    for i in range(out.size):
        draw = _bits(key, i) & QUARTER
        out[i] = np.float32(mean) + np.float32(deviation) * quantiles[draw]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_uniform(low: float, high: float, key: np.uint64, out: Array) -> None:
    """Fill a flat float32 array with uniform numbers, one per place."""
    span = np.float32(high) - np.float32(low)
    for i in range(out.size):
        share = np.float32(np.int32(_bits(key, i) & FRACTION)) * UNIT
        out[i] = np.float32(low) + span * share


@numba.njit(nogil=True, error_model="numpy")
def _wobble(bits: np.uint64, reach: np.float32) -> np.float32:
    return reach * (np.float32(bits & FRACTION) * UNIT * np.float32(2) - np.float32(1))


@numba.njit(nogil=True, error_model="numpy")
def _fill_squares(heights: Array, step: int, reach: np.float32, key: np.uint64) -> None:
    """Set the middles of squares to the mean of their corners plus a random number."""
    size, half = heights.shape[0], step // 2
    for i in range(0, size, step):
        upper, lower, middle = heights[i], heights[(i + step) % size], heights[i + half]
        for j in range(0, size, step):
            right = (j + step) % size
            corners = (upper[j] + lower[j]) + (upper[right] + lower[right])
            bits = _bits(key, (i + half) * size + j + half)
            middle[j + half] = corners * np.float32(0.25) + _wobble(bits, reach)


@numba.njit(nogil=True, error_model="numpy")
def _fill_sides(heights: Array, step: int, reach: np.float32, key: np.uint64) -> None:
    """Set the middles of the squares' sides to the mean of their neighbors plus a random number."""
    size, half = heights.shape[0], step // 2
    quarter = np.float32(0.25)
    for i in range(0, size, step):
        row, middle = heights[i], heights[i + half]
        above, below = heights[(i - half) % size], heights[(i + step) % size]
        for j in range(0, size, step):
            left, right = (j - half) % size, (j + step) % size
            both = middle[j + half] + row[j]
            bits = _bits(key, i * size + j + half)
            across = both + (above[j + half] + row[right])
            row[j + half] = across * quarter + _wobble(bits, reach)
            down = both + (middle[left] + below[j])
            middle[j] = down * quarter + _wobble(bits >> HALF, reach)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def plasma(size: int, decay: float, key: np.uint64) -> Array:
    """Draw a fractal height map by the diamond-square algorithm.

    Middles of squares, then of their sides, are the mean of their four neighbors plus a uniform
    number of at most reach; neighbors are found across the border.

    Args:
        size: Side of the map, a power of two.
        decay: By which the square root of the reach is divided from one scale to the next.
        key: Of the random stream.

    Returns:
        A square float32 array.
    """
    heights = np.empty((size, size), np.float32)
    heights[0, 0] = 0
    step, root = size, 100.0
    while step >= 2:
        _fill_squares(heights, step, np.float32(root * root), key)
        _fill_sides(heights, step, np.float32(root * root), key)
        step, root = step // 2, root / decay
    return heights
