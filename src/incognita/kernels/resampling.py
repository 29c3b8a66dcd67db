"""Resizing as Pillow does it, bit by bit, but only of the pixels that a crop keeps.

Pillow weighs neighboring pixels in fixed point, first along rows, then along columns, and rounds
to whole levels after each. Here the same integers are added; rows and columns outside the crop are
not computed.
"""

import math

import numba
import numpy as np

FILTERS = ("box", "bilinear", "hamming", "bicubic", "lanczos")
BOX, BILINEAR, HAMMING, BICUBIC, LANCZOS = range(len(FILTERS))
_SUPPORT = (0.5, 1.0, 1.0, 2.0, 3.0)  # of each filter, in pixels of the smaller image
_BITS = 22  # of a weight behind the point: 32, less those of a pixel and two spare ones
_HAMMING = (float(np.float32(0.54)), float(np.float32(0.46)))  # single precision in Pillow
_HALF = 1 << (_BITS - 1)
Array = np.ndarray


@numba.njit(cache=True, nogil=True)
def resize_window(
    image: Array,
    target: tuple[int, int],
    corner: tuple[int, int],
    window: tuple[int, int],
    kind: int,
    rows_first: bool,
) -> Array:
    """Resize an image [height, width, 3], and return a window of the result.

    Args:
        image: Contiguous, uint8.
        target: Height and width of the whole result.
        corner: Where the window begins.
        window: Its height and width.
        kind: The filter.
        rows_first: Whether pixels of a row are weighed first, or those of a column.
    """
    rows, row_weights = _weights(image.shape[0], target[0], corner[0], window[0], kind)
    columns, column_weights = _weights(image.shape[1], target[1], corner[1], window[1], kind)
    top, bottom = rows[0, 0], rows[0, -1] + rows[1, -1]
    left, right = columns[0, 0], columns[0, -1] + columns[1, -1]
    used = np.ascontiguousarray(image[top:bottom, left:right])
    rows[0] -= top
    columns[0] -= left
    if rows_first:
        return _along_columns(_along_rows(used, columns, column_weights), rows, row_weights)
    return _along_rows(_along_columns(used, rows, row_weights), columns, column_weights)


@numba.njit(cache=True, nogil=True)
def _weights(n_in: int, n_out: int, first: int, n: int, kind: int) -> tuple[Array, Array]:
    """Compute on which pixels each result depends: the first, how many, and their weights."""
    scale = n_in / n_out
    stretch = max(scale, 1.0)
    support = _SUPPORT[kind] * stretch
    places = np.empty((2, n), np.int64)
    fixed = np.zeros((n, math.ceil(support) * 2 + 1), np.int32)
    weights = np.empty(fixed.shape[1])
    for k in range(n):
        center = (first + k + 0.5) * scale
        start = max(int(center - support + 0.5), 0)
        count = min(int(center + support + 0.5), n_in) - start
        places[0, k], places[1, k] = start, count
        total = 0.0
        for tap in range(count):
            weights[tap] = _filter((tap + start - center + 0.5) * (1.0 / stretch), kind)
            total += weights[tap]  # rounded at each step, so the order matters
        for tap in range(count):
            weight = weights[tap] / total if total != 0.0 else weights[tap]
            weight *= 1 << _BITS
            fixed[k, tap] = int(weight - 0.5) if weight < 0 else int(weight + 0.5)
    return places, fixed


@numba.njit(cache=True, nogil=True)
def _filter(x: float, kind: int) -> float:
    """Return the weight of a pixel at a distance from the center."""
    if kind == BOX:
        return 1.0 if -0.5 < x <= 0.5 else 0.0
    x = abs(x)
    if kind == BILINEAR:
        return 1.0 - x if x < 1.0 else 0.0
    if kind == BICUBIC:
        if x < 1.0:
            return (1.5 * x - 2.5) * x * x + 1.0
        return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 if x < 2.0 else 0.0
    if kind == HAMMING:
        if x == 0.0 or x >= 1.0:
            return 1.0 if x == 0.0 else 0.0
        x *= math.pi
        return math.sin(x) / x * (_HAMMING[0] + _HAMMING[1] * math.cos(x))
    return _sinc(x) * _sinc(x / 3.0) if x < 3.0 else 0.0


@numba.njit(cache=True, nogil=True)
def _sinc(x: float) -> float:
    return 1.0 if x == 0.0 else math.sin(x * math.pi) / (x * math.pi)


@numba.njit(cache=True, nogil=True)
def _level(total: np.int32) -> np.int32:
    """Return the level of a pixel, rounded and clipped."""
    return min(max(total >> np.int32(_BITS), np.int32(0)), np.int32(255))


@numba.njit(cache=True, nogil=True)
def _along_rows(image: Array, columns: Array, weights: Array) -> Array:
    n_rows, n_columns = image.shape[0], columns.shape[1]
    flat = image.reshape(n_rows, image.shape[1] * 3)
    out = np.empty((n_rows, n_columns * 3), np.uint8)
    one, two, three = (
        np.uint64(1),
        np.uint64(2),
        np.uint64(3),
    )  # unsigned: never counted from behind
    for row in range(n_rows):
        pixels = flat[row]
        for column in range(n_columns):
            red = green = blue = np.int32(_HALF)
            place = three * np.uint64(columns[0, column])
            for tap in range(columns[1, column]):
                weight = weights[column, tap]
                red += np.int32(pixels[place]) * weight
                green += np.int32(pixels[place + one]) * weight
                blue += np.int32(pixels[place + two]) * weight
                place += three
            end = three * np.uint64(column)
            out[row, end] = _level(red)
            out[row, end + one] = _level(green)
            out[row, end + two] = _level(blue)
    return out.reshape(n_rows, n_columns, 3)


@numba.njit(cache=True, nogil=True)
def _along_columns(image: Array, rows: Array, weights: Array) -> Array:
    n_rows, width = rows.shape[1], image.shape[1] * 3
    flat = image.reshape(image.shape[0], width)
    out = np.empty((n_rows, width), np.uint8)
    sums = np.empty(width, np.int32)
    for row in range(n_rows):
        sums[:] = _HALF
        for tap in range(rows[1, row]):
            weight = weights[row, tap]
            source = flat[rows[0, row] + tap]
            for k in range(width):
                sums[k] += np.int32(source[k]) * weight
        for k in range(width):
            out[row, k] = _level(sums[k])
    return out.reshape(n_rows, image.shape[1], 3)
