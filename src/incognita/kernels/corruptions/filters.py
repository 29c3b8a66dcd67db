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
TINY = np.float32(2**-10)  # sums of float32 that should be whole may be a little less


@numba.njit(nogil=True, error_model="numpy")
def _cut(value: np.float32) -> np.uint8:
    return np.uint8(min(max(value, np.float32(0)), np.float32(255)))


@numba.njit(nogil=True, error_model="numpy")
def _sum_rows(padded: Array, y: int, weights: Array, line: Array) -> None:
    """Write the weighted sum of the rows around row y + reach."""
    reach = weights.size - 1
    middle = padded[y + reach]
    for i in range(line.size):
        line[i] = weights[0] * np.float32(middle[i])
    for t in range(1, reach + 1):
        above, below, weight = padded[y + reach - t], padded[y + reach + t], weights[t]
        for i in range(line.size):
            line[i] += weight * (np.float32(above[i]) + np.float32(below[i]))


@numba.njit(nogil=True, error_model="numpy")
def _sum_columns(line: Array, weights: Array, n_channels: int, row: Array) -> None:
    """Write the weighted sum of the pixels around each pixel + reach."""
    first = (weights.size - 1) * n_channels
    middle = line[first : first + row.size]
    for i in range(row.size):
        row[i] = weights[0] * middle[i]
    for t in range(1, weights.size):
        shift, weight = t * n_channels, weights[t]
        left = line[first - shift : first - shift + row.size]
        right = line[first + shift : first + shift + row.size]
        for i in range(row.size):
            row[i] += weight * (left[i] + right[i])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def smooth_field(padded: Array, down: Array, across: Array, out: Array) -> None:
    """Filter one channel by two symmetric filters, one for each axis.

    Args:
        padded: float32, with as many rows and columns around it as the filters reach.
        down: float32 weights of the rows at distance 0, 1, …
        across: float32 weights of the columns at distance 0, 1, …
        out: Written to; float32.
    """
    line = np.empty(padded.shape[1], np.float32)
    for y in range(out.shape[0]):
        _sum_rows(padded, y, down, line)
        _sum_columns(line, across, 1, out[y])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def smooth_levels(padded: Array, down: Array, across: Array, out: Array) -> None:
    """Filter an image by two symmetric filters, and cut to whole levels.

    Args:
        padded: Rows of values, three a pixel, with as many rows and pixels around the image as the
            filters reach.
        down: float32 weights of the rows at distance 0, 1, …
        across: float32 weights of the pixels at distance 0, 1, …
        out: Written to; uint8 rows of values.
    """
    line = np.empty(padded.shape[1], np.float32)
    row = np.empty(out.shape[1], np.float32)
    for y in range(out.shape[0]):
        _sum_rows(padded, y, down, line)
        _sum_columns(line, across, 3, row)
        for i in range(row.size):
            out[y, i] = _cut(row[i] + TINY)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def sum_disks(padded: Array, half_widths: Array, out: Array) -> None:
    """Sum the values in a disk around each pixel.

    A row of a disk is the difference of two sums from the left, so that its width does not matter.

    Args:
        padded: uint8 rows of values, three a pixel, with as many rows and pixels around the image
            as the disk reaches.
        half_widths: Of the disk's rows, from the first to the last.
        out: Written to; float32 rows of values.
    """
    n_rows, reach = half_widths.size, half_widths.size // 2
    sums = np.zeros((n_rows, padded.shape[1] + 3), np.int32)
    total = np.empty(out.shape[1], np.int32)
    for y in range(padded.shape[0]):
        row, source = sums[y % n_rows], padded[y]
        for i in range(source.size):
            row[i + 3] = row[i] + np.int32(source[i])
        if y < n_rows - 1:
            continue
        total[:] = 0
        for t in range(n_rows):
            row = sums[(y + 1 + t) % n_rows]
            left = row[3 * (reach - half_widths[t]) :]
            right = row[3 * (reach + half_widths[t] + 1) :]
            for i in range(total.size):
                total[i] += right[i] - left[i]
        target = out[y - n_rows + 1]
        for i in range(total.size):
            target[i] = np.float32(total[i])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def sum_shifted(
    padded: Array, rows: Array, columns: Array, weights: Array, offset: float, out: Array
) -> None:
    """Add shifted copies of an image: out[y, i] = sum of weights[t] padded[y + rows[t], i + …].

    Args:
        padded: Rows of values.
        rows: Of the copies' first values in `padded`.
        columns: Of the copies' first values in `padded`, counted in values.
        weights: float32, of the copies.
        offset: Added before the sums are cut to whole levels.
        out: Written to; uint8 rows of values.
    """
    row = np.empty(out.shape[1], np.float32)
    for y in range(out.shape[0]):
        row[:] = np.float32(offset)
        for t in range(weights.size):
            copy = padded[y + rows[t], columns[t] : columns[t] + row.size]
            weight = weights[t]
            for i in range(row.size):
                row[i] += weight * np.float32(copy[i])
        for i in range(row.size):
            out[y, i] = _cut(row[i])


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
def average_zooms(
    image: Array, rows: Array, row_shares: Array, columns: Array, column_shares: Array, out: Array
) -> None:
    """Average an image and several zooms of it; places as in `zoom`, with one line per zoom.

    Args:
        image: uint8 rows of values, three a pixel.
        rows: See `zoom`; the number of rows stands for black.
        row_shares: See `zoom`.
        columns: uint64 and in values, else see `zoom`.
        column_shares: See `zoom`.
        out: Written to; uint8 rows of values, cut to whole levels.
    """
    line = np.zeros(image.shape[1] + 6, np.float32)  # a place beyond the last pixel is black
    total = np.empty(image.shape[1], np.float32)
    scale = np.float32(1 / (rows.shape[0] + 1))
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    for y in range(out.shape[0]):
        for i in range(total.size):
            total[i] = np.float32(image[y, i])
        for k in range(rows.shape[0]):
            if rows[k, y] == image.shape[0]:
                continue
            above = image[rows[k, y]]
            below = image[min(rows[k, y] + 1, image.shape[0] - 1)]
            share = row_shares[k, y]
            for i in range(above.size):
                value = np.float32(above[i])
                line[i] = value + share * (np.float32(below[i]) - value)
            for x in range(columns.shape[1]):
                i, share, place = columns[k, x], column_shares[k, x], np.uint64(3 * x)
                left, right = line[i], line[i + three]
                total[place] += left + share * (right - left)
                left, right = line[i + one], line[i + one + three]
                total[place + one] += left + share * (right - left)
                left, right = line[i + two], line[i + two + three]
                total[place + two] += left + share * (right - left)
        for i in range(total.size):
            out[y, i] = _cut(total[i] * scale + TINY)


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
            # unsigned places need no look for negative ones
            n, s, w, e = np.uint64(top), np.uint64(bottom), np.uint64(left), np.uint64(right)
            for c in range(np.uint64(3)):
                upper = np.float32(image[n, w, c])
                upper += u * (np.float32(image[n, e, c]) - upper)
                lower = np.float32(image[s, w, c])
                lower += u * (np.float32(image[s, e, c]) - lower)
                out[y, x, c] = np.uint8(upper + v * (lower - upper) + TINY)
