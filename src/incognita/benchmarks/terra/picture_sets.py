"""What the images and the scenes of Terra share: how they are asked for, named and told apart."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from incognita.benchmarks.terra.rendering import look_of, renderer_hash
from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Int

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
