"""Random numbers as a function of a key and a counter: no order of calls between images matters.

SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
A stream is an array of one uint64, its state. Everything is integer arithmetic and IEEE sums and
products, so the numbers are the same bits on every machine.
"""

from typing import Any

import numba
import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
ROW_FACTOR = np.uint64(0xD6E8FEB86659FD93)
SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
MANTISSA_SHIFT = np.uint64(11)
UNIT = 2.0**-53
QUARTER_SHIFT = np.uint64(16)
QUARTER_MASK = np.uint64(0xFFFF)
QUARTER = 2.0**-16
ROOT_OF_THREE = 1.7320508075688772

Array = np.ndarray[Any, Any]


@numba.njit(nogil=True, error_model="numpy")
def mix(value: np.uint64) -> np.uint64:
    """Scatter the bits of a number."""
    value = (value ^ (value >> SHIFTS[0])) * FIRST_FACTOR
    value = (value ^ (value >> SHIFTS[1])) * SECOND_FACTOR
    return value ^ (value >> SHIFTS[2])


@numba.njit(nogil=True, error_model="numpy")
def start_stream(key: np.uint64, index: int) -> Array:
    """Return the random stream of one image of a set."""
    stream = np.empty(1, np.uint64)
    stream[0] = mix(key ^ mix(np.uint64(index) * GOLDEN + GOLDEN))
    return stream


@numba.njit(nogil=True, error_model="numpy")
def draw(stream: Array) -> np.uint64:
    """Advance a stream by one and give 64 random bits."""
    stream[0] += GOLDEN
    return mix(stream[0])


@numba.njit(nogil=True, error_model="numpy")
def uniform(stream: Array, low: float, high: float) -> float:
    """Draw a number between two others."""
    return low + (high - low) * (np.float64(draw(stream) >> MANTISSA_SHIFT) * UNIT)


@numba.njit(nogil=True, error_model="numpy")
def whole(stream: Array, low: int, stop: int) -> int:
    """Draw a whole number from `low` up to, not including, `stop`."""
    return low + int(uniform(stream, 0.0, 1.0) * (stop - low))


@numba.njit(nogil=True, error_model="numpy")
def bell(stream: Array) -> float:
    """Draw from a bell curve of mean 0 and deviation 1: four uniform numbers added.

    The normal curve itself would need a logarithm, whose last bit differs between machines.
    """
    bits = draw(stream)
    total = 0.0
    for _ in range(4):
        total += np.float64(bits & QUARTER_MASK)
        bits >>= QUARTER_SHIFT
    return (total * QUARTER - 2.0) * ROOT_OF_THREE


@numba.njit(nogil=True, error_model="numpy")
def hashed(key: np.uint64, column: int, row: int) -> float:
    """Return the random number between 0 and 1 of a grid point."""
    place = np.uint64(column) * GOLDEN + np.uint64(row) * ROW_FACTOR
    return np.float64(mix(key ^ mix(place)) >> MANTISSA_SHIFT) * UNIT


@numba.njit(nogil=True, error_model="numpy")
def turned(share: float) -> tuple[float, float]:
    """Compute cosine and sine of a share of a full turn, to 1e-6, without system libraries."""
    quarter = int(share * 4.0)
    t = (share * 4.0 - quarter) * 1.5707963267948966
    square = t * t
    sine = t * (1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72))))
    cosine = 1 - square / 2 * (
        1 - square / 12 * (1 - square / 30 * (1 - square / 56 * (1 - square / 90)))
    )
    if quarter == 0:
        return cosine, sine
    if quarter == 1:
        return -sine, cosine
    if quarter == 2:
        return -cosine, -sine
    return sine, -cosine
