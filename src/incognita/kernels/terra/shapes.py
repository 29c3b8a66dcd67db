"""How far a point is from an outline, and what fills the inside.

An outline is made of parts: polygons and thick lines, added or cut out. One distance serves both:
to the nearest edge, negative inside a polygon, less the radius by which the part is thickened.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np

from incognita.kernels.terra.random import hashed, mix

Array = np.ndarray[Any, Any]
Color = tuple[float, float, float]

NOWHERE = 1e6  # the distance to an outline without parts
N_FILLS = 6  # plain, stripes, checks, dots, speckles, gradient
PLASMA, MESH, MOSAIC, SCRIBBLE, TEXT, STATIC = range(N_FILLS, N_FILLS + 6)
N_SCRIBBLED = 12


class Outlines(NamedTuple):
    """The parts of all outlines in flat arrays.

    Vertices `starts[p]` to `starts[p + 1]` belong to part p; parts `firsts[k]` to `firsts[k + 1]`
    to outline k. Coordinates are in units of the object's half size.
    """

    vertices: Array
    starts: Array
    is_filled: Array
    is_cut: Array
    radii: Array
    firsts: Array


@numba.njit(nogil=True, error_model="numpy")
def segment_distance_squared(
    x: float, y: float, ax: float, ay: float, bx: float, by: float
) -> float:
    """Compute the squared distance from a point to a segment, which may be a single point."""
    ex, ey = bx - ax, by - ay
    length = ex * ex + ey * ey
    t = 0.0
    if length > 0.0:
        t = min(max(((x - ax) * ex + (y - ay) * ey) / length, 0.0), 1.0)
    dx, dy = x - ax - t * ex, y - ay - t * ey
    return dx * dx + dy * dy


@numba.njit(nogil=True, error_model="numpy")
def _part_distance(outlines: Outlines, part: int, x: float, y: float) -> float:
    first, stop = outlines.starts[part], outlines.starts[part + 1]
    is_filled = outlines.is_filled[part]
    before = stop - 1 if is_filled else first
    nearest = NOWHERE
    is_inside = False
    for k in range(first, stop):
        ax, ay = outlines.vertices[before, 0], outlines.vertices[before, 1]
        bx, by = outlines.vertices[k, 0], outlines.vertices[k, 1]
        nearest = min(nearest, segment_distance_squared(x, y, ax, ay, bx, by))
        if is_filled and (ay > y) != (by > y) and x < (bx - ax) * (y - ay) / (by - ay) + ax:
            is_inside = not is_inside
        before = k
    distance = math.sqrt(nearest)
    return (-distance if is_inside else distance) - float(outlines.radii[part])


@numba.njit(nogil=True, error_model="numpy")
def outline_distance(outlines: Outlines, outline: int, x: float, y: float) -> float:
    """Compute the signed distance to an outline, negative inside."""
    distance = NOWHERE
    for part in range(outlines.firsts[outline], outlines.firsts[outline + 1]):
        d = _part_distance(outlines, part, x, y)
        distance = max(distance, -d) if outlines.is_cut[part] else min(distance, d)
    return distance


@numba.njit(nogil=True, error_model="numpy")
def mixed(a: Color, b: Color, share: float) -> Color:
    """Interpolate between two colors."""
    return (
        a[0] + (b[0] - a[0]) * share,
        a[1] + (b[1] - a[1]) * share,
        a[2] + (b[2] - a[2]) * share,
    )


@numba.njit(nogil=True, error_model="numpy")
def _wave(x: float) -> float:
    """Go from 0 to 1 and back once per unit, along straight lines."""
    return 1.0 - abs(2.0 * (x - math.floor(x)) - 1.0)


@numba.njit(nogil=True, error_model="numpy")
def _step(x: float) -> float:
    """Go from 0 to 1 around one half, steeply but not at once, so that edges do not flicker."""
    return min(max(4.0 * (x - 0.5) + 0.5, 0.0), 1.0)


@numba.njit(nogil=True, error_model="numpy")
def fill_share(fill: int, key: np.uint64, u: float, v: float, period: float) -> float:
    """Compute the share of the second color of a fill at a point, in pixels."""
    u, v = u / period, v / period
    if fill == 1:
        return _step(_wave(u))
    if fill == 2:
        across, down = _step(_wave(u)), _step(_wave(v))
        return across + down - 2.0 * across * down
    if fill == 3:
        return _step(0.5 * (_wave(u) + _wave(v)))
    if fill == 4:
        return _step(hashed(key, math.floor(3.0 * u), math.floor(3.0 * v)))
    if fill == 5:
        return min(max(0.5 + 0.25 * u, 0.0), 1.0)
    return 0.0


@numba.njit(nogil=True, error_model="numpy")
def smooth_noise(key: np.uint64, u: float, v: float) -> float:
    """Blend the random numbers of the four grid places around a point."""
    column, row = math.floor(u), math.floor(v)
    s, t = u - column, v - row
    s, t = s * s * (3.0 - 2.0 * s), t * t * (3.0 - 2.0 * t)
    above = hashed(key, column, row) * (1.0 - s) + hashed(key, column + 1, row) * s
    below = hashed(key, column, row + 1) * (1.0 - s) + hashed(key, column + 1, row + 1) * s
    return above * (1.0 - t) + below * t


@numba.njit(nogil=True, error_model="numpy")
def _plasma(key: np.uint64, u: float, v: float) -> Color:
    coarse, fine = smooth_noise(key, u, v), smooth_noise(key, 2.0 * u + 9.0, 2.0 * v)
    red = 0.7 * coarse + 0.3 * fine
    green = smooth_noise(mix(key), u + 31.0, v)
    blue = smooth_noise(mix(key), u, v + 57.0)
    return (red, 0.6 * green + 0.4 * fine, 0.7 * blue + 0.3 * coarse)


@numba.njit(nogil=True, error_model="numpy")
def _cell_color(key: np.uint64, column: int, row: int) -> Color:
    return (
        hashed(key, 3 * column, row),
        hashed(key, 3 * column + 1, row),
        hashed(key, 3 * column + 2, row),
    )


@numba.njit(nogil=True, error_model="numpy")
def _mosaic(key: np.uint64, u: float, v: float) -> Color:
    """Color each place by the nearest of one random point per grid cell."""
    column, row = math.floor(u), math.floor(v)
    nearest, best_column, best_row = NOWHERE, column, row
    for i in range(column - 1, column + 2):
        for j in range(row - 1, row + 2):
            dx, dy = i + hashed(mix(key), i, j) - u, j + hashed(key, j, i) - v
            if dx * dx + dy * dy < nearest:
                nearest, best_column, best_row = dx * dx + dy * dy, i, j
    return _cell_color(key, best_column, best_row)


@numba.njit(nogil=True, error_model="numpy")
def _scribble_share(key: np.uint64, u: float, v: float, width: float) -> float:
    nearest = NOWHERE
    ax, ay = hashed(key, 0, 0) * 2.4 - 1.2, hashed(key, 0, 1) * 2.4 - 1.2
    for k in range(1, N_SCRIBBLED):
        bx, by = hashed(key, k, 0) * 2.4 - 1.2, hashed(key, k, 1) * 2.4 - 1.2
        nearest = min(nearest, segment_distance_squared(u, v, ax, ay, bx, by))
        ax, ay = bx, by
    return min(max((0.05 - math.sqrt(nearest)) / width + 0.5, 0.0), 1.0)


@numba.njit(nogil=True, error_model="numpy")
def _text_share(key: np.uint64, u: float, v: float) -> float:
    """Set rows of letters of 3 x 5 dots, each dot black or not, with spaces between words."""
    column, row = math.floor(u), math.floor(v)
    letter, line = math.floor(column / 4.0), math.floor(row / 7.0)
    is_gap = column - 4 * letter == 3 or row - 7 * line >= 5
    if is_gap or hashed(key, letter, line) < 0.18:
        return 0.0
    return 1.0 if hashed(mix(key), column, row) < 0.58 else 0.0


@numba.njit(nogil=True, error_model="numpy")
def picture_color(
    picture: int, key: np.uint64, u: float, v: float, half: float, period: float, a: Color, b: Color
) -> Color:
    """Compute the color of another kind of picture at a point, in pixels from its center.

    `half` is half the size of the picture, `period` the size of its grain, a and b its two colors.
    """
    if picture == PLASMA:
        return _plasma(key, u / (2.0 * period), v / (2.0 * period))
    if picture == MESH:
        across, down = _wave(u / period), _wave(v / period)
        return mixed(a, b, max(across, down) if across * down > 0.25 else min(across, down))
    if picture == MOSAIC:
        return _mosaic(key, u / (1.3 * period), v / (1.3 * period))
    if picture == SCRIBBLE:
        return mixed(a, b, _scribble_share(key, u / half, v / half, 1.0 / half))
    if picture == TEXT:
        return mixed(a, b, _text_share(key, u * 4.5 / period, v * 4.5 / period))
    grain = 3.5 / period
    return _cell_color(key, math.floor(u * grain), math.floor(v * grain))
