"""Weibull distributions of the largest distances of every class, by maximum likelihood.

The scale has a closed form once the shape is known, and the shape is the only root of a rising
function of one variable. Distances are divided by their largest first: the shape does not change,
and no power overflows.
"""

from typing import Any

import numba
import numpy as np

from incognita.shapes import Float64, Int

MAX_STEPS = 100
# Newton's error falls with its square: after a step this small the next one is below rounding.
SMALL_STEP = 1e-8
GUMBEL_DEVIATION = 1.2825498301618641  # pi / sqrt(6), of log x where the shape is 1


@numba.njit(nogil=True, error_model="numpy")
def _start(logs: Any, mean: float) -> float:
    """Guess the shape from the spread of the logarithms (Menon, 1963)."""
    squares = 0.0
    for i in range(logs.size):
        squares += (logs[i] - mean) ** 2
    return GUMBEL_DEVIATION / float(np.sqrt(squares / (logs.size - 1)))


@numba.njit(nogil=True, error_model="numpy")
def _fit_shape(logs: Any) -> float:
    """Solve mean weighted by x^shape - 1 / shape = mean, of logs that are not all the same."""
    mean = logs.mean()
    shape = _start(logs, mean)
    low = 0.0
    high = np.inf
    for _ in range(MAX_STEPS):
        s0 = 0.0
        s1 = 0.0
        s2 = 0.0
        for i in range(logs.size):
            power = np.exp(shape * logs[i])
            s0 += power
            s1 += power * logs[i]
            s2 += power * logs[i] * logs[i]
        weighted = s1 / s0
        excess = weighted - 1.0 / shape - mean
        slope = s2 / s0 - weighted * weighted + 1.0 / (shape * shape)
        if excess > 0:
            high = shape
        else:
            low = shape
        step = excess / slope
        if abs(step) <= SMALL_STEP * shape:
            return float(shape - step)
        shape -= step
        if not low < shape < high:
            shape = 0.5 * (low + high) if high < np.inf else 2.0 * low
    return shape


@numba.njit(nogil=True, error_model="numpy")
def _fit_tail(tail: Any, shift: float, logs: Any) -> tuple[float, float]:
    """Fit one class; `logs` is work space."""
    largest = shift + (tail[-1] - tail[0])
    for i in range(tail.size):
        logs[i] = np.log1p((tail[i] - tail[-1]) / largest)
    shape = _fit_shape(logs)
    return shape, largest * np.exp(np.log(np.exp(shape * logs).mean()) / shape)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fit_tails(
    distances: Float64[np.ndarray, "rows"],
    offsets: Int[np.ndarray, "classes_plus_1"],
    tail: int,
    shift: float,
) -> tuple[
    Float64[np.ndarray, "classes"], Float64[np.ndarray, "classes"], Float64[np.ndarray, "classes"]
]:
    """Fit the `tail` largest distances of every class, moved so that the least of them is `shift`.

    Distances of class c are distances[offsets[c]:offsets[c + 1]], rising. Returns shapes, scales
    and the distances moved to `shift`. A class whose tail does not hold two different distances
    has the shape 1 and an infinite scale, under which no distance is surprising.
    """
    n_classes = offsets.size - 1
    shapes = np.ones(n_classes)
    scales = np.full(n_classes, np.inf)
    smallest = np.zeros(n_classes)
    logs = np.empty(tail)
    for c in range(n_classes):
        kept = distances[max(offsets[c], offsets[c + 1] - tail) : offsets[c + 1]]
        if kept.size == 0:
            continue
        smallest[c] = kept[0]
        if kept[-1] > kept[0]:
            shapes[c], scales[c] = _fit_tail(kept, shift, logs[: kept.size])
    return shapes, scales, smallest
