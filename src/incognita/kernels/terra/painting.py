"""Paints the pictures of Terra: a background, objects in random poses, occluders, light, noise.

`render_objects` draws images of one object, `render_scene` scenes of several with their truth.
Only sums, products, quotients, square roots and comparisons are used, which IEEE 754 defines to
the last bit: the same key gives the same picture on every machine.

numba keeps compiled code as long as this file is unchanged, even where a helper in another file is
not: after a change of `shapes` or `random` raise RENDERER_VERSION and touch this file.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np

from incognita.kernels.terra.random import bell, draw, start_stream, turned, uniform, whole
from incognita.kernels.terra.shapes import (
    N_FILLS,
    Color,
    Outlines,
    fill_share,
    mixed,
    outline_distance,
    picture_color,
    segment_distance_squared,
    smooth_noise,
)

Array = np.ndarray[Any, Any]
N_COLOR_TRIES = 24  # to find a color with enough contrast
N_PLACE_TRIES = 30  # to find room for one more object
SCENE_UNIT = 64.0  # pixels of a scene in which an object has the room it has in an image of its own
ROOM = 0.85  # how close two objects may be, as a share of their half sizes together


class Look(NamedTuple):
    """How pictures are made; sizes are shares of the picture, colors go from 0 to 1.

    Args:
        half_low: Smallest half size of an object.
        half_high: Largest half size of an object.
        contrast: Least difference in brightness between object and background.
        clutter: How many distracting lines and spots there are at most.
        occlusion: Probability that something covers a part of an object.
        noise_low: Smallest deviation of the pixel noise.
        noise_high: Largest deviation of the pixel noise.
        blur: How often each pixel is averaged with its neighbors.
        range: Share of the range of colors that is used, around middle gray.
        dim: Share of the light that is taken away.
        drawn: Width of the line in pixels where objects are drawn as lines; 0 fills them.
    """

    half_low: float
    half_high: float
    contrast: float
    clutter: int
    occlusion: float
    noise_low: float
    noise_high: float
    blur: int
    range: float
    dim: float
    drawn: float


class Pose(NamedTuple):
    """Where an object is, how it is turned, and its half sizes; a negative one mirrors it."""

    x: float
    y: float
    cosine: float
    sine: float
    half_x: float
    half_y: float


@numba.njit(nogil=True, error_model="numpy")
def _brightness(color: Color) -> float:
    return 0.3 * color[0] + 0.59 * color[1] + 0.11 * color[2]


@numba.njit(nogil=True, error_model="numpy")
def random_color(stream: Array) -> Color:
    """Draw any color."""
    red, green = uniform(stream, 0.0, 1.0), uniform(stream, 0.0, 1.0)
    return red, green, uniform(stream, 0.0, 1.0)


@numba.njit(nogil=True, error_model="numpy")
def _contrasting_color(stream: Array, other: Color, contrast: float) -> Color:
    color = random_color(stream)
    for _ in range(N_COLOR_TRIES):
        if abs(_brightness(color) - _brightness(other)) >= contrast:
            break
        color = random_color(stream)
    return color


@numba.njit(nogil=True, error_model="numpy")
def _put(canvas: Array, y: int, x: int, color: Color, cover: float) -> None:
    for channel in range(3):
        canvas[y, x, channel] += (color[channel] - canvas[y, x, channel]) * cover


@numba.njit(nogil=True, error_model="numpy")
def paint_background(canvas: Array, stream: Array) -> Color:
    """Fill the canvas with two colors in soft patches and return their mean."""
    size = canvas.shape[0]
    color = random_color(stream)
    second = mixed(color, random_color(stream), uniform(stream, 0.0, 0.45))
    key = draw(stream)
    cosine, sine = turned(uniform(stream, 0.0, 1.0))
    grain = uniform(stream, 1.5, 5.0) / min(size, 48)
    patches = uniform(stream, 0.2, 1.0)
    for y in range(size):
        for x in range(size):
            ramp = 0.5 + (cosine * (x + 0.5) + sine * (y + 0.5)) / size - 0.5 * (cosine + sine)
            patch = smooth_noise(key, x * grain, y * grain)
            share = ramp + (patch - ramp) * patches
            _put(canvas, y, x, mixed(color, second, share), 1.0)
    return mixed(color, second, 0.5)


@numba.njit(nogil=True, error_model="numpy")
def _paint_line(
    canvas: Array, owner: Array, ends: tuple[float, float, float, float], width: float, color: Color
) -> None:
    """Paint a thick line, or a spot where both ends are one; what it covers has no owner."""
    size = canvas.shape[0]
    ax, ay, bx, by = ends
    reach = 0.5 * width + 1.0
    for y in range(max(int(min(ay, by) - reach), 0), min(int(max(ay, by) + reach) + 1, size)):
        for x in range(max(int(min(ax, bx) - reach), 0), min(int(max(ax, bx) + reach) + 1, size)):
            far = segment_distance_squared(x + 0.5, y + 0.5, ax, ay, bx, by)
            cover = min(max(0.5 + 0.5 * width - math.sqrt(far), 0.0), 1.0)
            if cover > 0.0:
                _put(canvas, y, x, color, cover)
                if cover >= 0.5:
                    owner[y, x] = -1


@numba.njit(nogil=True, error_model="numpy")
def paint_clutter(canvas: Array, owner: Array, stream: Array, count: int, unit: float) -> None:
    """Strew lines and spots that mean nothing; their lengths are shares of a unit."""
    size = canvas.shape[0]
    for _ in range(count):
        ax, ay = uniform(stream, 0.0, size), uniform(stream, 0.0, size)
        cosine, sine = turned(uniform(stream, 0.0, 1.0))
        length = uniform(stream, 0.0, 0.8) * unit
        length = length if length > 0.25 * unit else 0.0
        width = uniform(stream, 0.03, 0.07) * unit * (1.0 if length > 0.0 else 2.0)
        color = random_color(stream)
        _paint_line(canvas, owner, (ax, ay, ax + cosine * length, ay + sine * length), width, color)


@numba.njit(nogil=True, error_model="numpy")
def random_pose(stream: Array, size: int, look: Look, unit: float) -> Pose:
    """Draw place, turn and size of an object, as shares of a unit, mostly inside the picture."""
    half = uniform(stream, look.half_low, look.half_high) * unit
    cosine, sine = turned(uniform(stream, 0.0, 1.0))
    half_x, half_y = half * uniform(stream, 0.82, 1.2), half * uniform(stream, 0.82, 1.2)
    half_x *= 1.0 if uniform(stream, 0.0, 1.0) < 0.5 else -1.0  # the mirror image
    margin = min(0.85 * half, 0.5 * size)
    x, y = uniform(stream, margin, size - margin), uniform(stream, margin, size - margin)
    return Pose(x, y, cosine, sine, half_x, half_y)


@numba.njit(nogil=True, error_model="numpy")
def paint_object(
    canvas: Array,
    owner: Array,
    stream: Array,
    outlines: Outlines,
    outline: int,
    picture: int,
    pose: Pose,
    ground: Color,
    look: Look,
    number: int,
) -> None:
    """Paint an object; a pixel that it covers by half or more is owned by its number."""
    size = canvas.shape[0]
    first = _contrasting_color(stream, ground, look.contrast)
    second = mixed(first, random_color(stream), uniform(stream, 0.15, 0.5))
    fill = picture if picture >= N_FILLS else whole(stream, 0, N_FILLS)
    key = draw(stream)
    scale = math.sqrt(abs(pose.half_x * pose.half_y))
    period = uniform(stream, 0.3, 0.7) * scale
    grain_cosine, grain_sine = turned(uniform(stream, 0.0, 1.0))
    light_cosine, light_sine = turned(uniform(stream, 0.0, 1.0))
    light = uniform(stream, 0.0, 0.35) / scale
    reach = 1.3 * max(abs(pose.half_x), abs(pose.half_y)) + 2.0
    for y in range(max(int(pose.y - reach), 0), min(int(pose.y + reach) + 1, size)):
        for x in range(max(int(pose.x - reach), 0), min(int(pose.x + reach) + 1, size)):
            dx, dy = x + 0.5 - pose.x, y + 0.5 - pose.y
            u = (dx * pose.cosine + dy * pose.sine) / pose.half_x
            v = (dy * pose.cosine - dx * pose.sine) / pose.half_y
            distance = outline_distance(outlines, outline, u, v) * scale
            if look.drawn > 0.0 and picture < N_FILLS:
                distance = abs(distance) - 0.5 * look.drawn
            cover = min(max(0.5 - distance, 0.0), 1.0)
            if cover <= 0.0:
                continue
            s = dx * grain_cosine + dy * grain_sine
            t = dy * grain_cosine - dx * grain_sine
            if fill >= N_FILLS:
                color = picture_color(fill, key, s, t, scale, period, first, second)
            else:
                color = mixed(first, second, fill_share(fill, key, s, t, period))
            lit = 1.0 + light * (dx * light_cosine + dy * light_sine)
            _put(canvas, y, x, (color[0] * lit, color[1] * lit, color[2] * lit), cover)
            if cover >= 0.5:
                owner[y, x] = number


@numba.njit(nogil=True, error_model="numpy")
def occlude(canvas: Array, owner: Array, stream: Array, pose: Pose, look: Look) -> None:
    """Lay a bar or a spot over the side of an object, in some pictures."""
    is_covered = uniform(stream, 0.0, 1.0) < look.occlusion
    half = math.sqrt(abs(pose.half_x * pose.half_y))
    cosine, sine = turned(uniform(stream, 0.0, 1.0))
    away = uniform(stream, 0.15, 0.75) * half
    length = half * (uniform(stream, 0.5, 1.5) if uniform(stream, 0.0, 1.0) < 0.6 else 0.0)
    width = half * uniform(stream, 0.2, 0.45) * (1.0 if length > 0.0 else 1.6)
    color = random_color(stream)
    if is_covered:
        x, y = pose.x + away * cosine, pose.y + away * sine
        ends = (x - sine * length, y + cosine * length, x + sine * length, y - cosine * length)
        _paint_line(canvas, owner, ends, width, color)


@numba.njit(nogil=True, error_model="numpy")
def _blur(canvas: Array) -> None:
    """Average each pixel with its neighbors across and down, weights 1, 2, 1."""
    size = canvas.shape[0]
    for channel in range(3):
        for k in range(size):
            before = canvas[k, 0, channel]
            for x in range(size):
                here = canvas[k, x, channel]
                after = canvas[k, min(x + 1, size - 1), channel]
                canvas[k, x, channel] = 0.25 * before + 0.5 * here + 0.25 * after
                before = here
        for k in range(size):
            before = canvas[0, k, channel]
            for y in range(size):
                here = canvas[y, k, channel]
                after = canvas[min(y + 1, size - 1), k, channel]
                canvas[y, k, channel] = 0.25 * before + 0.5 * here + 0.25 * after
                before = here


@numba.njit(nogil=True, error_model="numpy")
def develop(canvas: Array, stream: Array, look: Look, image: Array) -> None:
    """Turn light into an image: shade the corners, blur, limit the range, add noise, round."""
    size = canvas.shape[0]
    for _ in range(look.blur):
        _blur(canvas)
    corner = uniform(stream, 0.0, 0.5) / (0.5 * size * size)
    exposure = uniform(stream, 0.85, 1.1) * (1.0 - look.dim)
    deviation = uniform(stream, look.noise_low, look.noise_high)
    low = 0.5 * (1.0 - look.range) * (1.0 - look.dim)
    for y in range(size):
        for x in range(size):
            dx, dy = x + 0.5 - 0.5 * size, y + 0.5 - 0.5 * size
            light = exposure * (1.0 - corner * (dx * dx + dy * dy))
            for channel in range(3):
                value = low + look.range * canvas[y, x, channel] * light
                value += deviation * bell(stream)
                image[y, x, channel] = np.uint8(min(max(value, 0.0), 1.0) * 255.0 + 0.5)


@numba.njit(nogil=True, error_model="numpy")
def fill_canvas(canvas: Array, stream: Array, picture: int, look: Look) -> None:
    """Paint another kind of picture over the whole canvas."""
    size = canvas.shape[0]
    first = random_color(stream)
    second = _contrasting_color(stream, first, look.contrast)
    key = draw(stream)
    cosine, sine = turned(uniform(stream, 0.0, 1.0))
    period = uniform(stream, 3.0, 7.0)
    for y in range(size):
        for x in range(size):
            dx, dy = x + 0.5 - 0.5 * size, y + 0.5 - 0.5 * size
            s, t = dx * cosine + dy * sine, dy * cosine - dx * sine
            color = picture_color(picture, key, s, t, 0.5 * size, period, first, second)
            _put(canvas, y, x, color, 1.0)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def render_objects(
    outlines: Outlines,
    outline_ids: Array,
    pictures: Array,
    keys: Array,
    indices: Array,
    look: Look,
    size: int,
) -> tuple[Array, Array]:
    """Render one image per row, [n, size, size, 3], and the pixels its object owns, as booleans."""
    images = np.empty((keys.size, size, size, 3), np.uint8)
    is_object = np.zeros((keys.size, size, size), np.bool_)
    for k in range(keys.size):
        stream = start_stream(keys[k], indices[k])
        canvas = np.zeros((size, size, 3))
        owner = np.full((size, size), -1, np.int64)
        if pictures[k] >= N_FILLS:
            fill_canvas(canvas, stream, pictures[k], look)
            owner[:] = 0
        else:
            ground = paint_background(canvas, stream)
            paint_clutter(canvas, owner, stream, whole(stream, 0, look.clutter + 1), size)
            pose = random_pose(stream, size, look, size)
            outline = outline_ids[k]
            paint_object(canvas, owner, stream, outlines, outline, 0, pose, ground, look, 0)
            occlude(canvas, owner, stream, pose, look)
        is_object[k] = owner == 0
        develop(canvas, stream, look, images[k])
    return images, is_object


@numba.njit(nogil=True, error_model="numpy")
def _has_room(pose: Pose, places: Array, count: int) -> bool:
    half = math.sqrt(abs(pose.half_x * pose.half_y))
    for k in range(count):
        dx, dy = pose.x - places[k, 0], pose.y - places[k, 1]
        apart = ROOM * (half + places[k, 2])
        if dx * dx + dy * dy < apart * apart:
            return False
    return True


@numba.njit(cache=True, nogil=True, error_model="numpy")
def render_scene(
    outlines: Outlines,
    choices: Array,
    pictures: Array,
    key: np.uint64,
    index: int,
    look: Look,
    size: int,
    most: int,
) -> tuple[Array, Array, Array]:
    """Render a scene of one to `most` objects.

    `choices` are the classes an object may have and `pictures` what fills each class of the tree.
    Returns the image, the class of each object, and for each pixel the number of the object that is
    seen there, -1 where there is none.
    """
    stream = start_stream(key, index)
    canvas = np.zeros((size, size, 3))
    owner = np.full((size, size), -1, np.int64)
    image = np.empty((size, size, 3), np.uint8)
    ground = paint_background(canvas, stream)
    wanted = whole(stream, 1, most + 1)
    n_lines = whole(stream, 0, look.clutter * 2 + 1)
    paint_clutter(canvas, owner, stream, n_lines, SCENE_UNIT)
    places = np.empty((wanted, 3))
    class_ids = np.empty(wanted, np.int64)
    count = 0
    for _ in range(N_PLACE_TRIES):
        pose = random_pose(stream, size, look, SCENE_UNIT)
        if count == wanted or not _has_room(pose, places, count):
            continue
        which = choices[int(uniform(stream, 0.0, 1.0) * choices.size)]
        picture = pictures[which]
        paint_object(canvas, owner, stream, outlines, which, picture, pose, ground, look, count)
        occlude(canvas, owner, stream, pose, look)
        half = math.sqrt(abs(pose.half_x * pose.half_y))
        places[count, 0], places[count, 1], places[count, 2] = pose.x, pose.y, half
        class_ids[count] = which
        count += 1
    develop(canvas, stream, look, image)
    return image, class_ids[:count], owner
