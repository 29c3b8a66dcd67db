"""From a seed to pictures: styles, keys, and calls of the compiled renderer."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

import numpy as np

from incognita.benchmarks.terra.classes import TERRA_CLASSES
from incognita.benchmarks.terra.outlines import pack_outlines
from incognita.errors import unknown_name
from incognita.kernels.terra import scenes as terra_scenes
from incognita.kernels.terra.painting import Look
from incognita.kernels.terra.shapes import Outlines
from incognita.shapes import Bool, Int, Shaped

# Goes up whenever the same seed gives another picture; a test holds it to the bytes.
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
    """Give the settings of a style by its name."""
    if style not in STYLES:
        raise unknown_name("style of Terra", style, STYLES)
    return STYLES[style]


def key_of(*words: str | int) -> int:
    """Give the 64-bit key of the random numbers that belong to these words.

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
    return terra_scenes.render_objects(
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
    return terra_scenes.render_scene(
        _outlines(), places, _pictures(), np.uint64(key), index, look_of(style), size, most
    )


def renderer_hash(style: str) -> str:
    """Give a hash of all that a picture depends on beside its key, class and size."""
    digest = hashlib.sha256(repr((RENDERER_VERSION, look_of(style), TERRA_CLASSES)).encode())
    for column in _outlines():
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


@cache
def _outlines() -> Outlines:
    return pack_outlines([each.outline for each in TERRA_CLASSES])


@cache
def _pictures() -> np.ndarray:
    return np.array([each.picture for each in TERRA_CLASSES], np.int64)
