"""Filters and displacements of images.

Sums run over the values of a row, which the compiler computes in vector registers; their order is
fixed, so that the same bits come out on every machine.
"""

from typing import Any

import numba
import numpy as np

from incognita.kernels.terra.random import GOLDEN, mix

Array = np.ndarray[Any, Any]
HALF = np.uint64(32)
LOW_HALF = np.uint64(0xFFFFFFFF)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def smooth_padded(
    padded: Array, down: Array, across: Array, n_channels: int, out: Array
) -> None:
    """Filter an image by two symmetric filters, one for each axis.

    Args:
        padded: float32 rows of values, with as many rows and pixels around the image as the
            filters reach.
        down: float32 weights of the rows at distance 0, 1, …
        across: float32 weights of the pixels at distance 0, 1, …
        n_channels: Values of a pixel.
        out: Written to; float32 rows of values.
    """
    n_down, n_across = down.size - 1, across.size - 1
    line = np.empty(padded.shape[1], np.float32)
    for y in range(out.shape[0]):
        middle = padded[y + n_down]
        for i in range(line.size):
            line[i] = down[0] * middle[i]
        for t in range(1, n_down + 1):
            above, below, weight = padded[y + n_down - t], padded[y + n_down + t], down[t]
            for i in range(line.size):
                line[i] += weight * (above[i] + below[i])
        row = out[y]
        center = line[n_across * n_channels : n_across * n_channels + row.size]
        for i in range(row.size):
            row[i] = across[0] * center[i]
        for t in range(1, n_across + 1):
            left = line[(n_across - t) * n_channels : (n_across - t) * n_channels + row.size]
            right = line[(n_across + t) * n_channels : (n_across + t) * n_channels + row.size]
            weight = across[t]
            for i in range(row.size):
                row[i] += weight * (left[i] + right[i])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def sum_shifted(
    padded: Array, rows: Array, columns: Array, weights: Array, out: Array
) -> None:
    """Add shifted copies of an image: out[y, i] = sum of weights[t] padded[y + rows[t], i + …].

    Args:
        padded: float32 rows of values.
        rows: Of the copies' first values in `padded`.
        columns: Of the copies' first values in `padded`, counted in values.
        weights: float32, of the copies.
        out: Written to; float32 rows of values.
    """
    for y in range(out.shape[0]):
        row = out[y]
        row[:] = np.float32(0)
        for t in range(weights.size):
            copy = padded[y + rows[t], columns[t] : columns[t] + row.size]
            weight = weights[t]
            for i in range(row.size):
                row[i] += weight * copy[i]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def copy_neighbors(image: Array, reach: int, n_rounds: int, key: np.uint64) -> None:
    """Replace each pixel, from the last to the first, by a random one nearby, in place.

    Offsets are uniform from -reach to reach - 1 on both axes; pixels closer than `reach` to the
    border stay.
    """
    height, width = image.shape[0], image.shape[1]
    n_offsets = np.uint64(2 * reach)
    for n in range(n_rounds):
        for y in range(height - reach, reach, -1):
            for x in range(width - reach, reach, -1):
                bits = mix(key + np.uint64((n * height + y) * width + x) * GOLDEN)
                from_x = x + np.int64(((bits & LOW_HALF) * n_offsets) >> HALF) - reach
                from_y = y + np.int64(((bits >> HALF) * n_offsets) >> HALF) - reach
                image[y, x, 0] = image[from_y, from_x, 0]
                image[y, x, 1] = image[from_y, from_x, 1]
                image[y, x, 2] = image[from_y, from_x, 2]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def zoom(
    layer: Array, rows: Array, row_shares: Array, columns: Array, column_shares: Array, out: Array
) -> None:
    """Sample one channel linearly between its pixels, on a grid.

    Args:
        layer: float32, two axes.
        rows: For each row of `out`, the row above it in `layer`.
        row_shares: float32, the share of the row after that.
        columns: For each column of `out`, the column to its left.
        column_shares: float32, the share of the column after that.
        out: Written to; float32, two axes.
    """
    line = np.zeros(layer.shape[1] + 1, np.float32)
    for y in range(out.shape[0]):
        above = layer[rows[y]]
        below = layer[min(rows[y] + 1, layer.shape[0] - 1)]
        for i in range(layer.shape[1]):
            line[i] = above[i] + row_shares[y] * (below[i] - above[i])
        for x in range(out.shape[1]):
            left, right = line[columns[x]], line[columns[x] + 1]
            out[y, x] = left + column_shares[x] * (right - left)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_zooms(
    image: Array, rows: Array, row_shares: Array, columns: Array, column_shares: Array, total: Array
) -> None:
    """Add several zooms of an image; arguments as in `zoom`, with one line per zoom.

    Args:
        image: float32 rows of values, three a pixel.
        rows: See `zoom`.
        row_shares: See `zoom`.
        columns: See `zoom`.
        column_shares: See `zoom`.
        total: Added to; float32 rows of values.
    """
    line = np.zeros(image.shape[1] + 3, np.float32)
    width = total.shape[1] // 3
    for y in range(total.shape[0]):
        row = total[y]
        for k in range(rows.shape[0]):
            above = image[rows[k, y]]
            below = image[min(rows[k, y] + 1, image.shape[0] - 1)]
            share = row_shares[k, y]
            for i in range(image.shape[1]):
                line[i] = above[i] + share * (below[i] - above[i])
            for x in range(width):
                i, share = 3 * columns[k, x], column_shares[k, x]
                row[3 * x] += line[i] + share * (line[i + 3] - line[i])
                row[3 * x + 1] += line[i + 1] + share * (line[i + 4] - line[i + 1])
                row[3 * x + 2] += line[i + 2] + share * (line[i + 5] - line[i + 2])


@numba.njit(nogil=True, error_model="numpy", inline="always")
def _reflected(i: int, size: int) -> int:
    while i < 0 or i >= size:
        i = -1 - i if i < 0 else 2 * size - 1 - i
    return i


@numba.njit(cache=True, nogil=True, error_model="numpy")
def displace(image: Array, down: Array, across: Array, out: Array) -> None:
    """Sample an image linearly at displaced pixels; it is reflected beyond its border.

    Args:
        image: uint8, three channels.
        down: float32 displacement of each pixel in rows.
        across: float32 displacement of each pixel in columns.
        out: Written to; uint8, levels cut to whole numbers.
    """
    height, width = image.shape[0], image.shape[1]
    for y in range(height):
        for x in range(width):
            place_y, place_x = np.float32(y) + down[y, x], np.float32(x) + across[y, x]
            top, left = int(np.floor(place_y)), int(np.floor(place_x))
            v, u = place_y - np.float32(top), place_x - np.float32(left)
            bottom, right = top + 1, left + 1
            if top < 0 or left < 0 or bottom >= height or right >= width:
                top, bottom = _reflected(top, height), _reflected(bottom, height)
                left, right = _reflected(left, width), _reflected(right, width)
            for c in range(3):
                a, b = np.float32(image[top, left, c]), np.float32(image[top, right, c])
                d, e = np.float32(image[bottom, left, c]), np.float32(image[bottom, right, c])
                upper, lower = a + u * (b - a), d + u * (e - d)
                out[y, x, c] = np.uint8(upper + v * (lower - upper) + np.float32(2**-10))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def cut_to_levels(values: Array, scale: float, out: Array) -> None:
    """Write float32 values times a scale as uint8, cut to whole numbers.

    Sums of float32 that should be whole may be a little less: 2**-10 is added before the cut.
    """
    for i in range(values.size):
        value = values[i] * np.float32(scale) + np.float32(2**-10)
        out[i] = np.uint8(min(max(value, np.float32(0)), np.float32(255)))
