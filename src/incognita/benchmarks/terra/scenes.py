"""Terra as scenes of several objects, with the box, class and super-class of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from incognita.benchmarks.terra.classes import TERRA_CLASSES, select_classes, terra_classes
from incognita.benchmarks.terra.images import TerraPictures, check_request, set_name
from incognita.benchmarks.terra.rendering import key_of, render_scene_of
from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import Classes
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
    return _render(choices, _key_of(seed, part, choices), index, size=size, style=style)


def _key_of(seed: int, part: str, choices: Sequence[int]) -> int:
    return key_of(seed, part, "scene", *(TERRA_CLASSES[k].name for k in choices))


def _render(choices: Sequence[int], key: int, index: int, *, size: int, style: str) -> Scene:
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
class TerraScenes(TerraPictures):
    """Scenes as a set of images; `truth()` says what is in them, see `BoxDataset`."""

    @property
    def labels(self) -> None:
        """A scene shows several classes."""
        return

    @property
    def source_classes(self) -> None:
        """A scene shows several classes."""
        return

    @property
    def classes(self) -> Classes:
        """All classes of the tree with their roles, the known ones first."""
        return terra_classes()

    @property
    def object_classes(self) -> frozenset[str]:
        """The names of the classes that objects may have."""
        return frozenset(TERRA_CLASSES[k].name for k in self.class_ids)

    def scene(self, index: int) -> Scene:
        """Render one scene with its truth."""
        number = int(self.numbers[index])
        return _render(self.class_ids, self._key, number, size=self.size, style=self.style)

    @cached_property
    def _key(self) -> int:
        return _key_of(self.seed, self.part, self.class_ids)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        return self.scene(index).image

    def truth(self) -> BoxTruth:
        """Render every scene, once, and keep its objects: 2 milliseconds for each on one core."""
        return self._truth

    @cached_property
    def _truth(self) -> BoxTruth:
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
    check_request(part, style, n=n, size=size, least=64, what="scene")
    wanted = (classes,) if isinstance(classes, str) else tuple(classes)
    name = f"scenes-{set_name(wanted, style)}"
    return TerraScenes(name, part, seed, select_classes(wanted), np.arange(n), size, style)
