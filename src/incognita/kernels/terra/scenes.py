"""Renders the pictures of Terra: images of one object, and scenes of several with their truth.

numba keeps compiled code as long as this file is not touched, whatever its helpers become: who
changes a helper raises RENDERER_VERSION and touches this file.
"""

import math
from typing import Any

import numba
import numpy as np

from incognita.kernels.terra.painting import (
    Look,
    Pose,
    develop,
    fill_canvas,
    occlude,
    paint_background,
    paint_clutter,
    paint_object,
    random_pose,
)
from incognita.kernels.terra.random import start_stream, uniform, whole
from incognita.kernels.terra.shapes import N_FILLS, Outlines

Array = np.ndarray[Any, Any]
N_TRIES = 30  # to find room for one more object
SCENE_UNIT = 64.0  # pixels of a scene in which an object has the room it has in an image of its own
ROOM = 0.85  # how close two objects may come, as a share of their half sizes together


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
    Returns the image, the class of each object, and of each pixel the number of the object that is
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
    for _ in range(N_TRIES):
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
