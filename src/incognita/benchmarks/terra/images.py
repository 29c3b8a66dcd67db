"""Terra as sets of labelled images, rendered when they are asked for."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from incognita.benchmarks.terra.classes import KNOWN_NAMES, TERRA_CLASSES, select_classes
from incognita.benchmarks.terra.rendering import key_of, look_of, render_images, renderer_hash
from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Int, Shaped

PARTS = ("train", "validation", "test")
P = TypeVar("P", bound="TerraPictures")


@dataclass(frozen=True, eq=False)
class TerraPictures:
    """Pictures that are rendered when they are asked for, each from its number.

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
        """Leave what was rendered behind when going to another process."""
        given = (getattr(self, each.name) for each in fields(self) if each.init)
        return type(self), tuple(given)


def check_request(part: str, style: str, *, n: int, size: int, least: int, what: str) -> None:
    """Refuse a part or a style that does not exist, no picture at all, and pictures too small.

    Args:
        part: The part asked for.
        style: The style asked for.
        n: How many pictures.
        size: Their width and height.
        least: The smallest size that shows anything.
        what: One picture, for the sentence.
    """
    if part not in PARTS:
        raise unknown_name("part of Terra", part, PARTS)
    if n < 1 or size < least:
        raise InvalidDataError(
            f"A set of {n} {what}s of {size} pixels was asked for; "
            f"ask for at least 1 {what} of at least {least} pixels."
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
_N_BLOCKS = 8  # kept for whoever reads in another order than from first to last


@dataclass(frozen=True, eq=False)
class TerraDataset(TerraPictures):
    """Images of one object each.

    Image number k of a set shows class k modulo the number of its classes; its random numbers
    depend on the seed, the part, the class and k alone, whatever else is rendered. The same number
    in another style is the same object in another light.
    """

    _blocks: "OrderedDict[int, Any]" = field(default_factory=OrderedDict, init=False, repr=False)

    @cached_property
    def _class_of_each(self) -> np.ndarray:
        return np.take(np.array(self.class_ids, np.int64), self.numbers % len(self.class_ids))

    @cached_property
    def labels(self) -> Int[np.ndarray, "n"] | None:
        """The known class of each image, or None where some image shows none."""
        # the known classes stand first in the tree, so a label is a place in it
        if max(self.class_ids) >= len(KNOWN_NAMES):
            return None
        return self._class_of_each.copy()

    @cached_property
    def source_classes(self) -> tuple[str, ...]:
        """The class of each image by name, known or not."""
        return tuple(TERRA_CLASSES[k].name for k in self._class_of_each)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"Image {index} was asked of {self.name}, which has {len(self)}.")
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
        class_ids = self._class_of_each[wanted]
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
    """Give a set of Terra images, of its classes in turn.

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
