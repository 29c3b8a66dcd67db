"""Terra as scenes of several objects, with the box, class and super-class of each."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from incognita.benchmarks.terra.class_tree import TERRA_CLASSES, select_classes, terra_classes
from incognita.benchmarks.terra.classification import PARTS
from incognita.benchmarks.terra.rendering import (
    key_of,
    look_of,
    render_scene_of,
    renderer_hash,
)
from incognita.containers.classes import Classes
from incognita.containers.detection import BoxTruth
from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Float, Int, Shaped

MOST_OBJECTS = 6


class Scene(NamedTuple):
    """A picture of several objects.

    `owner` says of each pixel which object is seen there, -1 where there is none. `areas` count
    the pixels of each object, and `xyxy` is the tightest box around them.
    """

    image: Shaped[np.ndarray, "size size 3"]
    xyxy: Float[np.ndarray, "objects 4"]
    areas: Float[np.ndarray, "objects"]
    class_ids: Int[np.ndarray, "objects"]
    owner: Int[np.ndarray, "size size"]


def render_scene(
    seed: int,
    index: int,
    *,
    part: str = "test",
    size: int = 160,
    classes: str | Sequence[str] = "known",
    style: str = "plain",
) -> Scene:
    """Render one scene of one to six objects of these classes; see `terra_scenes`.

    Classes that are another kind of picture altogether appear as patches of it.

    >>> scene = render_scene(0, 0)
    >>> scene.image.shape, len(scene.xyxy) == len(scene.class_ids)
    ((160, 160, 3), True)
    """
    choices = select_classes(classes)
    key = key_of(seed, part, "scene", *(TERRA_CLASSES[k].name for k in choices))
    image, class_ids, owner = render_scene_of(
        choices, key, index, style=style, size=size, most=MOST_OBJECTS
    )
    xyxy, areas = _boxes_of(owner, len(class_ids))
    is_seen = areas > 0
    return Scene(image, xyxy[is_seen], areas[is_seen], class_ids[is_seen], owner)


def _boxes_of(owner: np.ndarray, n_objects: int) -> tuple[np.ndarray, np.ndarray]:
    xyxy, areas = np.zeros((n_objects, 4)), np.zeros(n_objects)
    for k in range(n_objects):
        rows, columns = np.nonzero(owner == k)
        areas[k] = len(rows)
        if len(rows):
            xyxy[k] = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    return xyxy, areas


@dataclass(frozen=True, eq=False)
class TerraScenes:
    """Scenes as a set of images; `truth()` says what is in them."""

    name: str
    part: str
    seed: int
    wanted: tuple[str, ...]
    numbers: Int[np.ndarray, "n"]
    size: int = 160
    style: str = "plain"
    labels: None = None
    source_classes: None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def image_ids(self) -> tuple[str, ...]:
        """Ids such as `terra/0/test/scenes-known/000123`."""
        start = f"terra/{self.seed}/{self.part}/{self.name}"
        return tuple(f"{start}/{number:06d}" for number in self.numbers)

    @property
    def classes(self) -> Classes:
        """All classes of the tree with their roles: the list that class ids point into."""
        return terra_classes()

    def scene(self, index: int) -> Scene:
        """Render one scene with its truth."""
        return render_scene(
            self.seed,
            int(self.numbers[index]),
            part=self.part,
            size=self.size,
            classes=self.wanted,
            style=self.style,
        )

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        return self.scene(index).image

    def truth(self) -> BoxTruth:
        """Render every scene and give its objects as known or unknown boxes."""
        scenes = [self.scene(k)[1:4] for k in range(len(self))]
        counts = [len(areas) for _, areas, _ in scenes]
        return BoxTruth(
            self.image_ids,
            np.cumsum([0, *counts], dtype=np.int64),
            np.concatenate([xyxy for xyxy, _, _ in scenes]),
            np.concatenate([class_ids for _, _, class_ids in scenes]),
            self.classes,
            areas=np.concatenate([areas for _, areas, _ in scenes]),
        )

    def fingerprint(self) -> str:
        what = (self.name, self.part, self.seed, self.wanted, self.size, self.style)
        digest = hashlib.sha256(repr((renderer_hash(self.style), what)).encode())
        digest.update(np.ascontiguousarray(self.numbers).tobytes())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int]) -> "TerraScenes":
        return replace(self, numbers=self.numbers[np.asarray(indices, np.int64)])


def terra_scenes(
    part: str,
    *,
    seed: int = 0,
    n: int,
    size: int = 160,
    classes: str | Sequence[str] = "known",
    style: str = "plain",
) -> TerraScenes:
    """Give a set of scenes; every object has a class drawn from those asked for.

    Args:
        part: `train`, `validation` or `test`; no scene is in two of them.
        seed: Another seed is another world with the same classes.
        n: How many scenes.
        size: Width and height in pixels.
        classes: A group, a super-class or a class of the tree, or several: `["known", "near"]`
            gives scenes in which known and unknown objects stand together.
        style: `plain`, or a shifted look: `blurred`, `noisy`, `faded`, `dim`, `drawn`.

    >>> truth = terra_scenes("test", n=2, classes="far").truth()
    >>> bool(truth.is_unknown.all()), truth.n_images
    (True, 2)
    """
    if part not in PARTS:
        raise unknown_name("part of Terra", part, PARTS)
    if n < 1 or size < 64:
        raise InvalidDataError(
            f"A set of {n} scenes of {size} pixels was asked for; "
            f"ask for at least 1 scene of at least 64 pixels."
        )
    look_of(style)
    wanted = (classes,) if isinstance(classes, str) else tuple(classes)
    select_classes(wanted)
    name = "scenes-" + "+".join(wanted) + ("" if style == "plain" else f"-{style}")
    return TerraScenes(name, part, seed, wanted, np.arange(n), size, style)
