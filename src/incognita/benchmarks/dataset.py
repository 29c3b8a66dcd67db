"""Images with ids and truth, whatever they are read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from incognita.containers.checks import check_rows, check_unique
from incognita.shapes import Int, Shaped


@runtime_checkable
class Dataset(Protocol):
    """A set of images.

    `labels` are indices of known classes, or None for images that belong to none of them;
    `source_classes` are the names their own data set gives them, where it gives any.
    """

    @property
    def name(self) -> str: ...

    @property
    def image_ids(self) -> Sequence[str]: ...

    @property
    def labels(self) -> Int[np.ndarray, "n"] | None: ...

    @property
    def source_classes(self) -> Sequence[str] | None: ...

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        """Give one uint8 RGB image; raises an error where it is broken or missing."""

    def fingerprint(self) -> str:
        """Give a hash that changes whenever an image, an id or a label does."""

    def subset(self, indices: Sequence[int]) -> "Dataset":
        """Give the images at these places, in this order."""


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """Images held in memory, for tests, notebooks and embedded sets.

    >>> images = ArrayDataset("two", ("a", "b"), np.zeros((2, 4, 4, 3), np.uint8))
    >>> images.load(1).shape, images.subset([1]).image_ids
    ((4, 4, 3), ('b',))
    """

    name: str
    image_ids: Sequence[str]
    images: Any
    labels: Int[np.ndarray, "n"] | None = None
    source_classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        lengths = {
            "images": len(self.images),
            "labels": None if self.labels is None else len(self.labels),
            "source_classes": None if self.source_classes is None else len(self.source_classes),
        }
        check_rows(f"Images of {self.name}", image_ids=len(self.image_ids), **lengths)
        check_unique(self.name, np.asarray(self.image_ids))

    def __len__(self) -> int:
        return len(self.image_ids)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        return np.asarray(self.images[index])

    def fingerprint(self) -> str:
        from hashlib import sha256

        digest = sha256(repr((tuple(self.image_ids), np.asarray(self.images).shape)).encode())
        digest.update(np.ascontiguousarray(self.images).tobytes())
        if self.labels is not None:
            digest.update(np.asarray(self.labels, np.int64).tobytes())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int]) -> "ArrayDataset":
        names = self.source_classes
        return ArrayDataset(
            self.name,
            tuple(self.image_ids[k] for k in indices),
            np.asarray(self.images)[list(indices)],
            None if self.labels is None else self.labels[list(indices)],
            None if names is None else tuple(names[k] for k in indices),
        )
