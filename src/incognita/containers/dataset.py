"""Datasets: images with ids and truth, from any source."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from incognita.containers._checks import as_integers, check_rows, check_unique
from incognita.containers.boxes import BoxTruth
from incognita.errors import InvalidDataError, count
from incognita.shapes import Int, Shaped


@runtime_checkable
class Dataset(Protocol):
    """A set of images.

    `labels` are indices of known classes, or None for images of unknown classes; `source_classes`
    are the class names of the original data set, if any.
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
        """Load one image as uint8 RGB; raise if it is broken or missing."""

    def fingerprint(self) -> str:
        """Return a hash that changes whenever an image, an id or a label does."""

    def subset(self, indices: Sequence[int]) -> "Dataset":
        """Return the images at these positions, in this order."""


@dataclass(frozen=True, eq=False, repr=False)
class ArrayDataset:
    """Images held in memory, for tests, notebooks and embedded sets.

    Args:
        name: The name of the set, for messages.
        image_ids: One per image.
        images: One uint8 array [n, height, width, 3], or [n, height, width] of gray; or a sequence
            of such images, which need not have one size.
        labels: Indices of known classes, as an array or a list, or None for unknown images.
        source_classes: Class names of the original data set.

    >>> images = ArrayDataset("two", ("a", "b"), np.zeros((2, 4, 4, 3), np.uint8))
    >>> images.load(1).shape, images.subset([1]).image_ids
    ((4, 4, 3), ('b',))
    """

    name: str
    image_ids: Sequence[str]
    images: Any
    labels: Any = None
    source_classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        lengths = {
            "images": len(self.images),
            "labels": None if self.labels is None else len(self.labels),
            "source_classes": None if self.source_classes is None else len(self.source_classes),
        }
        check_rows(f"Images of {self.name}", image_ids=len(self.image_ids), **lengths)
        check_unique(self.name, np.asarray(self.image_ids))
        if self.labels is not None:
            labels = as_integers(f"images of {self.name}", "labels", self.labels, np.int64)
            object.__setattr__(self, "labels", labels)
        for image in self.images[:1] if self._is_one_array else self.images:
            self._check(np.asarray(image))

    @property
    def _is_one_array(self) -> bool:
        """Whether the images are one array, all of one type and size."""
        return isinstance(self.images, np.ndarray) and self.images.dtype != object

    def _check(self, image: Shaped[np.ndarray, "..."]) -> None:
        is_color = image.ndim == 3 and image.shape[2] == 3
        if image.dtype != np.uint8 or not (image.ndim == 2 or is_color):
            raise InvalidDataError(
                f"Expected images of {self.name} as uint8, [height, width, 3] or gray "
                f"[height, width], got {image.dtype} of shape {list(image.shape)}. Convert them."
            )

    def __len__(self) -> int:
        return len(self.image_ids)

    def __repr__(self) -> str:
        return f"ArrayDataset({self.name!r}, {count(len(self), 'image')})"

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        image = np.asarray(self.images[index])
        return image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)

    def fingerprint(self) -> str:
        from hashlib import sha256

        digest = sha256(repr((tuple(self.image_ids), self._shape())).encode())
        for image in self.images:
            digest.update(np.ascontiguousarray(image).tobytes())
        if self.labels is not None:
            digest.update(np.asarray(self.labels, np.int64).tobytes())
        return digest.hexdigest()

    def _shape(self) -> tuple[Any, ...]:
        """Return the shape of all images, as of one array where they have one size."""
        if self._is_one_array:
            return tuple(self.images.shape)
        shapes = [np.shape(image) for image in self.images]
        return (len(shapes), *shapes[0]) if len(set(shapes)) == 1 else tuple(shapes)

    def subset(self, indices: Sequence[int]) -> "ArrayDataset":
        names, images = self.source_classes, self.images
        return ArrayDataset(
            self.name,
            tuple(self.image_ids[k] for k in indices),
            images[list(indices)] if self._is_one_array else [images[k] for k in indices],
            None if self.labels is None else self.labels[list(indices)],
            None if names is None else tuple(names[k] for k in indices),
        )


@runtime_checkable
class BoxDataset(Dataset, Protocol):
    """A dataset with annotated boxes; `labels` and `source_classes` are None.

    The classes of its truth are the known classes of the benchmark, in their order, and then all
    others, at least one of them unknown: class id k is known class k in every set, and every set
    has a class for detections that are called unknown.
    """

    def truth(self) -> BoxTruth:
        """Return the objects of all images, in the order of `image_ids`; always one instance."""

    def subset(self, indices: Sequence[int]) -> "BoxDataset":
        """Return the images at these positions, in this order."""
