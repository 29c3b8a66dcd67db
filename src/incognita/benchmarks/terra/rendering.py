"""From a seed to pictures: outlines of objects, styles, keys, and calls of the compiled renderer.

Outlines are polygons and thick lines, added or cut out. Coordinates are in units of the object's
half size, with y down. They are rounded to four digits: the last bit of a cosine differs between
machines, and a rendered image must not.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import cos, pi, sin
from types import MappingProxyType

import numpy as np

from incognita.benchmarks.terra.classes import TERRA_CLASSES
from incognita.errors import unknown_name
from incognita.kernels.terra.painting import Look, render_objects, render_scene
from incognita.kernels.terra.shapes import Outlines
from incognita.shapes import Bool, Int, Shaped

# Goes up whenever the same seed gives another picture; a test pins the bytes.
RENDERER_VERSION = 1

PLAIN = Look(
    half_low=0.24,
    half_high=0.40,
    contrast=0.18,
    clutter=4,
    occlusion=0.4,
    noise_low=0.02,
    noise_high=0.09,
    blur=0,
    range=1.0,
    dim=0.0,
    drawn=0.0,
)
STYLES: Mapping[str, Look] = MappingProxyType(
    {
        "plain": PLAIN,
        "blurred": PLAIN._replace(blur=4),
        "noisy": PLAIN._replace(noise_low=0.12, noise_high=0.2),
        "faded": PLAIN._replace(range=0.4),
        "dim": PLAIN._replace(dim=0.65),
        "drawn": PLAIN._replace(drawn=1.6, contrast=0.3),
    }
)


def look_of(style: str) -> Look:
    """Return the settings of a style by its name."""
    if style not in STYLES:
        raise unknown_name("style of Terra", style, STYLES)
    return STYLES[style]


def key_of(*words: str | int) -> int:
    """Return the 64-bit key of the random numbers that belong to these words.

    >>> key_of(0, "test") == key_of("0", "test"), key_of(0, "test") == key_of(1, "test")
    (True, False)
    """
    return int.from_bytes(hashlib.sha256("/".join(map(str, words)).encode()).digest()[:8], "little")


def render_images(
    class_ids: Int[np.ndarray, "n"],
    keys: Shaped[np.ndarray, "n"],
    indices: Int[np.ndarray, "n"],
    *,
    style: str = "plain",
    size: int = 32,
) -> tuple[Shaped[np.ndarray, "n size size 3"], Bool[np.ndarray, "n size size"]]:
    """Render images of one object each, and the pixels where the object is seen.

    Args:
        class_ids: Places in `TERRA_CLASSES`.
        keys: 64-bit keys, see `key_of`.
        indices: Which image of the key each one is.
        style: A name in `STYLES`.
        size: Width and height in pixels.
    """
    return render_objects(
        _outlines(), class_ids, _pictures()[class_ids], keys, indices, look_of(style), size
    )


def render_scene_of(
    choices: Sequence[int], key: int, index: int, *, style: str, size: int, most: int
) -> tuple[
    Shaped[np.ndarray, "size size 3"],
    Int[np.ndarray, "objects"],
    Int[np.ndarray, "size size"],
]:
    """Render a scene of objects of these classes: image, class ids, and whose each pixel is."""
    places = np.array(choices, np.int64)
    return render_scene(
        _outlines(), places, _pictures(), np.uint64(key), index, look_of(style), size, most
    )


def renderer_hash(style: str) -> str:
    """Hash everything that a picture depends on besides its key, class and size."""
    digest = hashlib.sha256(repr((RENDERER_VERSION, look_of(style), TERRA_CLASSES)).encode())
    for column in _outlines():
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


@cache
def _outlines() -> Outlines:
    return pack_outlines([terra_class.outline for terra_class in TERRA_CLASSES])


@cache
def _pictures() -> np.ndarray:
    return np.array([terra_class.picture for terra_class in TERRA_CLASSES], np.int64)


Number = int | float
Point = tuple[Number, Number]


@dataclass(frozen=True)
class OutlinePart:
    """A polygon or a line through points, thickened by a radius, which is added or cut out."""

    points: tuple[Point, ...]
    radius: Number = 0.0
    is_filled: bool = True
    is_cut: bool = False


def polygon(*points: Point, radius: Number = 0.0) -> OutlinePart:
    """Return a filled polygon with corners rounded outwards."""
    return OutlinePart(points, radius)


def line(*points: Point, radius: Number = 0.17) -> OutlinePart:
    """Return a line of twice the radius through points."""
    return OutlinePart(points, radius, is_filled=False)


def disc(x: Number, y: Number, radius: Number) -> OutlinePart:
    """Return a disc."""
    return OutlinePart(((x, y),), radius, is_filled=False)


def cut(part: OutlinePart) -> OutlinePart:
    """Return a part that is cut out instead of added."""
    return replace(part, is_cut=True)


def arc(
    start: Number, stop: Number, n: int, *, center: Point = (0, 0), radius: Number = 1.0
) -> list[Point]:
    """Return points on a circle, from one share of a turn to another; 0 is right, 0.25 is down.

    >>> arc(0, 0.5, 3)
    [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)]
    """
    turns = [start + (stop - start) * k / (n - 1) for k in range(n)]
    return [
        (
            round(center[0] + radius * cos(2 * pi * turn), 4) + 0.0,
            round(center[1] + radius * sin(2 * pi * turn), 4) + 0.0,
        )
        for turn in turns
    ]


def regular(n: int) -> list[Point]:
    """Return the corners of a regular polygon, the first on top."""
    return arc(-0.25, 0.75 - 1 / n, n)


def star(n: int, inner: Number) -> list[Point]:
    """Return the corners of a star with n points whose notches lie at an inner radius."""
    outer = regular(n)
    notches = arc(-0.25 + 0.5 / n, 0.75 - 0.5 / n, n, radius=inner)
    return [point for pair in zip(outer, notches, strict=True) for point in pair]


_EYES = (cut(disc(-0.35, -0.25, 0.16)), cut(disc(0.35, -0.25, 0.16)))
_SMILE = cut(line(*arc(0.06, 0.44, 7, radius=0.55), radius=0.1))
_ZIGZAG = [(x / 4 - 1, 0.45 * (-1) ** (x // 2) * (x % 2)) for x in range(9)]

OUTLINES: Mapping[str, Sequence[OutlinePart]] = {
    # polygons
    "triangle": [polygon(*regular(3))],
    "square": [polygon(*regular(4))],
    "pentagon": [polygon(*regular(5))],
    "trapezoid": [polygon((-1, 0.55), (1, 0.55), (0.4, -0.55), (-0.4, -0.55))],
    "hexagon": [polygon(*regular(6))],
    "house": [
        polygon(
            (0, -1), (0.85, -0.2), (0.6, -0.2), (0.6, 0.8), (-0.6, 0.8), (-0.6, -0.2), (-0.85, -0.2)
        )
    ],
    # rounds
    "disc": [disc(0, 0, 0.9)],
    "ring": [disc(0, 0, 0.95), cut(disc(0, 0, 0.5))],
    "crescent": [disc(0, 0, 1), cut(disc(0.45, 0, 0.75))],
    "half-disc": [polygon(*arc(0, 0.5, 13, center=(0, -0.4)))],
    "drop": [polygon((0, -1.1), *arc(-0.08, 0.58, 13, center=(0, 0.3), radius=0.68))],
    "heart": [
        polygon((0, 1), (-0.95, -0.1), (0, -0.5), (0.95, -0.1)),
        disc(-0.5, -0.35, 0.5),
        disc(0.5, -0.35, 0.5),
    ],
    # bars
    "plus": [line((-0.8, 0), (0.8, 0), radius=0.2), line((0, -0.8), (0, 0.8), radius=0.2)],
    "tee": [line((-0.8, -0.7), (0.8, -0.7), radius=0.2), line((0, -0.7), (0, 0.8), radius=0.2)],
    "corner": [line((-0.6, -0.8), (-0.6, 0.7), (0.7, 0.7), radius=0.2)],
    "zed": [line((-0.65, -0.7), (0.65, -0.7), (-0.65, 0.7), (0.65, 0.7), radius=0.18)],
    "fork": [
        line((-0.7, -0.75), (0, 0), (0.7, -0.75), radius=0.2),
        line((0, 0), (0, 0.85), radius=0.2),
    ],
    "aitch": [
        line((-0.6, -0.8), (-0.6, 0.8), radius=0.18),
        line((0.6, -0.8), (0.6, 0.8), radius=0.18),
        line((-0.6, 0), (0.6, 0), radius=0.18),
    ],
    # stars
    "four-star": [polygon(*star(4, 0.36))],
    "six-star": [polygon(*star(6, 0.5))],
    "gear": [polygon(*star(8, 0.68), radius=0.04), cut(disc(0, 0, 0.32))],
    "five-star": [polygon(*star(5, 0.42))],
    "flower": [disc(x, y, 0.36) for x, y in arc(0, 0.8, 5, radius=0.62)],
    "three-star": [polygon(*star(3, 0.26))],
    # creatures
    "face": [disc(0, 0, 0.95), *_EYES, _SMILE],
    "fish": [
        polygon(*arc(0, 0.9375, 16, center=(0.25, 0), radius=0.55)),
        polygon((-0.2, 0), (-1, -0.6), (-0.75, 0), (-1, 0.6)),
        polygon((0.1, -0.4), (-0.1, -0.85), (0.5, -0.45)),
        cut(disc(0.5, -0.12, 0.12)),
    ],
    "cat": [
        disc(0, 0.15, 0.72),
        polygon((-0.7, 0.1), (-0.75, -0.95), (-0.1, -0.4)),
        polygon((0.7, 0.1), (0.75, -0.95), (0.1, -0.4)),
        cut(disc(-0.28, 0.05, 0.13)),
        cut(disc(0.28, 0.05, 0.13)),
        cut(line((-0.2, 0.5), (0.2, 0.5), radius=0.06)),
    ],
    # tools
    "key": [
        disc(-0.6, 0, 0.4),
        cut(disc(-0.6, 0, 0.18)),
        line((-0.25, 0), (0.95, 0), radius=0.11),
        line((0.6, 0), (0.6, 0.35), radius=0.1),
        line((0.9, 0), (0.9, 0.35), radius=0.1),
    ],
    "hammer": [
        line((0, -0.5), (0, 0.95), radius=0.12),
        polygon((-0.7, -0.9), (0.5, -0.9), (0.85, -0.6), (0.5, -0.4), (-0.7, -0.4)),
    ],
    "cup": [
        polygon((-0.75, -0.7), (0.45, -0.7), (0.3, 0.75), (-0.6, 0.75)),
        line(*arc(-0.2, 0.2, 7, center=(0.42, -0.1), radius=0.42), radius=0.1),
    ],
    # plants
    "fir": [
        polygon((0, -1), (0.5, -0.3), (-0.5, -0.3)),
        polygon((0, -0.55), (0.7, 0.25), (-0.7, 0.25)),
        polygon((0, -0.1), (0.85, 0.7), (-0.85, 0.7)),
        line((0, 0.7), (0, 0.95), radius=0.12),
    ],
    "twig": [
        line((0, 1), (0, -0.9), radius=0.08),
        line((0, 0.5), (0.65, 0), radius=0.07),
        line((0, 0.15), (-0.65, -0.35), radius=0.07),
        line((0, -0.2), (0.5, -0.65), radius=0.07),
        line((0, 0.7), (-0.5, 0.35), radius=0.07),
    ],
    "tulip": [
        polygon(
            (-0.55, -1),
            (-0.2, -0.6),
            (0, -1),
            (0.2, -0.6),
            (0.55, -1),
            (0.45, -0.25),
            (0, 0),
            (-0.45, -0.25),
        ),
        line((0, 0), (0, 1), radius=0.07),
        line((0, 0.85), (0.5, 0.3), radius=0.12),
    ],
    # fragments
    "bolt": [
        polygon((0.2, -1), (-0.55, 0.15), (-0.05, 0.15), (-0.2, 1), (0.55, -0.2), (0.05, -0.2))
    ],
    "zigzag": [line(*_ZIGZAG, radius=0.15)],
    "pebbles": [disc(-0.5, 0.4, 0.38), disc(0.5, 0.45, 0.3), disc(0.05, -0.5, 0.4)],
    "splinter": [
        polygon((-0.9, 0.2), (-0.1, -0.35), (0.2, -1), (0.35, -0.2), (1, 0.1), (0.1, 0.6))
    ],
    # the frame of another kind of picture, where it is one object among others
    "patch": [polygon((-0.8, -0.65), (0.8, -0.65), (0.8, 0.65), (-0.8, 0.65), radius=0.08)],
}


def pack_outlines(names: Sequence[str]) -> Outlines:
    """Lay the outlines of these names out in flat arrays, one outline per name."""
    outlines = [OUTLINES[name] for name in names]
    parts = [part for outline in outlines for part in outline]
    points = [point for part in parts for point in part.points]
    return Outlines(
        vertices=np.array(points, np.float64),
        starts=_starts([len(part.points) for part in parts]),
        is_filled=np.array([part.is_filled for part in parts], np.bool_),
        is_cut=np.array([part.is_cut for part in parts], np.bool_),
        radii=np.array([part.radius for part in parts], np.float64),
        firsts=_starts([len(outline) for outline in outlines]),
    )


def _starts(counts: Sequence[int]) -> np.ndarray:
    return np.cumsum([0, *counts], dtype=np.int64)
