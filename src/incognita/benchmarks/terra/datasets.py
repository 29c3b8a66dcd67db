"""Terra as data sets, rendered on demand: labelled images, and scenes of several objects."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from incognita.benchmarks.terra.classes import (
    KNOWN_NAMES,
    TERRA_CLASSES,
    select_classes,
    terra_classes,
)
from incognita.benchmarks.terra.rendering import (
    key_of,
    look_of,
    render_images,
    render_scene_of,
    renderer_hash,
)
from incognita.containers import BoxTruth, Classes
from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Float, Int, Shaped

PARTS = ("train", "validation", "test")
MOST_OBJECTS = 6  # of a scene
P = TypeVar("P", bound="TerraPictures")


@dataclass(frozen=True, eq=False, repr=False)
class TerraPictures:
    """Pictures rendered on demand, each from its number.

    Args:
        name: Of the set, from its classes and its style.
        part: `train`, `validation` or `test`.
        seed: Of the world.
        class_ids: Places in the tree of the classes that may be shown.
        numbers: Which pictures of the part these are.
        size: Width and height in pixels.
        style: `plain`, or a shifted look.
    """

    name: str
    part: str
    seed: int
    class_ids: tuple[int, ...]
    numbers: Int[np.ndarray, "n"] = field(repr=False)
    size: int
    style: str

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def image_ids(self) -> tuple[str, ...]:
        """Ids such as `terra/0/test/near/000123`."""
        start = f"terra/{self.seed}/{self.part}/{self.name}"
        return tuple(f"{start}/{number:06d}" for number in self.numbers)

    def fingerprint(self) -> str:
        what = (self.name, self.part, self.seed, self.class_ids, self.size, self.style)
        digest = hashlib.sha256(repr((renderer_hash(self.style), what)).encode())
        digest.update(np.ascontiguousarray(self.numbers).tobytes())
        return digest.hexdigest()

    def subset(self: P, indices: Sequence[int]) -> P:
        return replace(self, numbers=self.numbers[np.asarray(indices, np.int64)])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what was rendered."""
        given = (getattr(self, field.name) for field in fields(self) if field.init)
        return type(self), tuple(given)

    def __repr__(self) -> str:
        what = f"{self.name}, {self.part}, {len(self):,} images of {self.size} x {self.size} pixels"
        return f"{type(self).__name__}({what}, seed {self.seed})"


def check_request(part: str, style: str, *, n: int, size: int, least: int, what: str) -> None:
    """Check that part and style exist, and that there are pictures of a sufficient size.

    Args:
        part: `train`, `validation` or `test`.
        style: A name in `STYLES`.
        n: How many pictures.
        size: Their width and height.
        least: The smallest size that shows anything.
        what: One picture, for the message.
    """
    if part not in PARTS:
        raise unknown_name("part of Terra", part, PARTS)
    if n < 1 or size < least:
        raise InvalidDataError(
            f"Expected at least 1 {what} of at least {least} pixels, got {n} of {size} pixels."
        )
    look_of(style)


def set_name(classes: str | Sequence[str], style: str) -> str:
    """Name a set after its classes and its style.

    >>> set_name(["known", "near"], "noisy"), set_name("far", "plain")
    ('known+near-noisy', 'far')
    """
    names = classes if isinstance(classes, str) else "+".join(classes)
    return names if style == "plain" else f"{names}-{style}"


_BLOCK = 256  # images rendered together: one call of compiled code each
_N_BLOCKS = 8  # kept for readers in random order


@dataclass(frozen=True, eq=False, repr=False)
class TerraDataset(TerraPictures):
    """Images of one object each.

    Image number k of a set shows class k modulo the number of its classes; its random numbers
    depend on the seed, the part, the class and k alone, whatever else is rendered. The same number
    in another style is the same object in another light.
    """

    _blocks: "OrderedDict[int, Any]" = field(default_factory=OrderedDict, init=False, repr=False)

    @cached_property
    def _class_of_image(self) -> np.ndarray:
        return np.take(np.array(self.class_ids, np.int64), self.numbers % len(self.class_ids))

    @cached_property
    def labels(self) -> Int[np.ndarray, "n"] | None:
        """The known class of each image, or None where some image shows none."""
        # the known classes stand first in the tree, so a label is a place in it
        if max(self.class_ids) >= len(KNOWN_NAMES):
            return None
        return self._class_of_image.copy()

    @cached_property
    def source_classes(self) -> tuple[str, ...]:
        """The class of each image by name, known or not."""
        return tuple(TERRA_CLASSES[k].name for k in self._class_of_image)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"Image {index} of {self.name} does not exist; it has {len(self)} images."
            )
        block, place = divmod(index % len(self), _BLOCK)
        if block not in self._blocks:
            stop = min((block + 1) * _BLOCK, len(self))
            self._blocks[block] = self.render(np.arange(block * _BLOCK, stop))
            while len(self._blocks) > _N_BLOCKS:
                self._blocks.popitem(last=False)
        return np.array(self._blocks[block][place])  # a copy: what is kept must not be changed

    def render(
        self, indices: Int[np.ndarray, "some"] | None = None
    ) -> Shaped[np.ndarray, "some height width 3"]:
        """Render many images at once, by default all."""
        wanted = slice(None) if indices is None else indices
        class_ids = self._class_of_image[wanted]
        keys = np.zeros(len(TERRA_CLASSES), np.uint64)
        for k in self.class_ids:
            keys[k] = key_of(self.seed, self.part, TERRA_CLASSES[k].name)
        return render_images(
            class_ids, keys[class_ids], self.numbers[wanted], style=self.style, size=self.size
        )[0]


def terra_dataset(
    part: str,
    *,
    seed: int = 0,
    n: int,
    size: int = 32,
    classes: str | Sequence[str] = "known",
    style: str = "plain",
) -> TerraDataset:
    """Return a set of Terra images, of its classes in turn.

    Args:
        part: `train`, `validation` or `test`; no image is in two of them.
        seed: Another seed is another world with the same classes.
        n: How many images.
        size: Width and height in pixels.
        classes: A group, a super-class or a class of the tree, or several of them.
        style: `plain`, or a shifted look: `blurred`, `noisy`, `faded`, `dim`, `drawn`.

    >>> images = terra_dataset("test", n=3, classes=["disc", "star-shaped"])
    Traceback (most recent call last):
    incognita.errors.UnknownNameError: No group or class of Terra is called 'star-shaped'. \
Did you mean stars?
    >>> images = terra_dataset("test", n=3, classes="known", style="noisy")
    >>> images.image_ids[1], images.source_classes, images.load(0).shape
    ('terra/0/test/known-noisy/000001', ('triangle', 'square', 'pentagon'), (32, 32, 3))
    """
    check_request(part, style, n=n, size=size, least=8, what="image")
    name = set_name(classes, style)
    return TerraDataset(name, part, seed, select_classes(classes), np.arange(n), size, style)


class Scene(NamedTuple):
    """A picture of several objects.

    `owner` is the object that is seen at each pixel, -1 where there is none. `areas` count
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


@dataclass(frozen=True, eq=False, repr=False)
class TerraScenes(TerraPictures):
    """Scenes as a set of images; `truth()` returns the objects in them, see `BoxDataset`."""

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
        """Render every scene once and keep its objects."""
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
    """Return a set of scenes, whose objects have classes drawn from the given ones.

    Args:
        part: `train`, `validation` or `test`; no scene is in two of them.
        seed: Another seed is another world with the same classes.
        n: How many scenes.
        size: Width and height in pixels.
        classes: A group, a super-class or a class of the tree, or several: `["known", "near"]`
            gives scenes that show known and unknown objects together.
        style: `plain`, or a shifted look: `blurred`, `noisy`, `faded`, `dim`, `drawn`.

    >>> truth = terra_scenes("test", n=2, classes="far").truth()
    >>> bool(truth.is_unknown.all()), truth.n_images
    (True, 2)
    """
    check_request(part, style, n=n, size=size, least=64, what="scene")
    wanted = (classes,) if isinstance(classes, str) else tuple(classes)
    name = f"scenes-{set_name(wanted, style)}"
    return TerraScenes(name, part, seed, select_classes(wanted), np.arange(n), size, style)
