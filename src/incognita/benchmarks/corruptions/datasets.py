"""Corrupted copies of a data set, made while its images are read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

import numpy as np

from incognita.benchmarks.corruptions import (
    CorruptedImage,
    check_severity,
    corrupt,
    draw_kind,
    kinds_of,
    spread_evenly,
)
from incognita.containers import BoxDataset, BoxTruth, Dataset
from incognita.metrics.measure import bootstrap_weights
from incognita.shapes import Float, Int, Shaped

# goes up whenever a corruption yields other pixels: stored outputs are then computed again
_VERSION = 1
_PAIR = re.compile(r"#[a-z_]+-[1-5]$")  # at the end of an id: the kind and the severity


def corrupted(
    dataset: Dataset,
    kinds: str | Sequence[str],
    severity: int | Sequence[int],
    *,
    seed: int = 0,
    sample: int | None = None,
) -> "CorruptedImages":
    """Return a corrupted copy of a data set; nothing is written.

    With one severity and without a sample, each image is there once and keeps its id, and one of
    the kinds is drawn for it. Otherwise every kind at every severity has its share: of all images,
    or of a sample that is spread evenly over them.

    Args:
        dataset: The images.
        kinds: A list (`saod`, `imagenet-c`), a kind such as `fog`, or several of these.
        severity: From 1 to 5, or several of them.
        seed: Of the random numbers, of the kinds drawn and of the sample.
        sample: Number of corrupted images.

    >>> from incognita.containers.dataset import ArrayDataset
    >>> two = ArrayDataset("two", ("a", "b"), np.zeros((2, 8, 8, 3), np.uint8))
    >>> corrupted(two, "fog", [1, 5]).image_ids
    ('a#fog-1', 'a#fog-5', 'b#fog-1', 'b#fog-5')
    """
    names = [kinds] if isinstance(kinds, str) else kinds
    drawn_from = tuple(dict.fromkeys(kind for name in names for kind in kinds_of(name)))
    is_spread = not isinstance(severity, int) or sample is not None
    severities = [severity] if isinstance(severity, int) else list(dict.fromkeys(severity))
    for level in severities:
        check_severity(level)
    if not is_spread:
        (level,) = severities
        images = [
            CorruptedImage(k, draw_kind(drawn_from, image_id, level, seed), level)
            for k, image_id in enumerate(dataset.image_ids)
        ]
    else:
        n_images = len(dataset.image_ids)
        images = spread_evenly(n_images, drawn_from, severities, sample=sample, seed=seed)
    if isinstance(dataset, BoxDataset):
        return CorruptedScenes(dataset, tuple(images), seed, is_spread)
    return CorruptedImages(dataset, tuple(images), seed, is_spread)


def clean_ids(image_ids: Sequence[object]) -> list[str]:
    """Return the ids of the clean images behind corrupted ones; other ids are returned as they are.

    >>> clean_ids(["a.jpg#fog-3", "b.jpg", 7])
    ['a.jpg', 'b.jpg', '7']
    """
    return [_PAIR.sub("", str(image_id)) for image_id in image_ids]


def draw_images(
    image_ids: Sequence[object], *, n_resamples: int, seed: int
) -> Float[np.ndarray, "images replicates"]:
    """Draw bootstrap replicates of images; corrupted copies of one image are drawn together.

    Copies are not independent: drawn one by one, they would make intervals too narrow.
    """
    clean, places = np.unique(clean_ids(image_ids), return_inverse=True)
    weights = bootstrap_weights(len(clean), n_resamples=n_resamples, seed=seed)
    return weights[places] if len(clean) < len(places) else weights


@dataclass(frozen=True, eq=False, repr=False)
class CorruptedImages:
    """A data set whose images are corrupted as they are read; see `Dataset`.

    Args:
        source: The clean images.
        images: Which clean image becomes which corrupted one.
        seed: Of the random numbers.
        is_spread: Whether an image may be there several times; kind and severity are part of its
            id then.
    """

    source: Dataset
    images: tuple[CorruptedImage, ...]
    seed: int = 0
    is_spread: bool = False

    @property
    def name(self) -> str:
        """The name of the source, and what was done to it."""
        return f"{self.source.name} (corrupted)"

    @cached_property
    def image_ids(self) -> tuple[str, ...]:
        """The ids of the source, with the kind and the severity where an image may be repeated."""
        ids = self.source.image_ids
        if not self.is_spread:
            return tuple(ids[image.image_index] for image in self.images)
        return tuple(f"{ids[i]}#{kind}-{severity}" for i, kind, severity in self.images)

    @cached_property
    def labels(self) -> Int[np.ndarray, "n"] | None:
        """Those of the clean images."""
        return None if self.source.labels is None else self.source.labels[self._places]

    @cached_property
    def source_classes(self) -> tuple[str, ...] | None:
        """Those of the clean images."""
        names = self.source.source_classes
        return None if names is None else tuple(names[k] for k in self._places)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        n_kinds = len({image.kind for image in self.images})
        return f"{type(self).__name__}({self.source.name}, {len(self):,} images, {n_kinds} kinds)"

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        """Load a clean image and corrupt it."""
        place, kind, severity = self.images[index]
        image_id = self.source.image_ids[place]
        return corrupt(self.source.load(place), kind, severity, image_id=image_id, seed=self.seed)

    def fingerprint(self) -> str:
        """Hash the source and what is done to each image."""
        what = (_VERSION, self.seed, self.is_spread, [tuple(image) for image in self.images])
        return sha256(f"corrupted {what}\n{self.source.fingerprint()}".encode()).hexdigest()

    def subset(self, indices: Sequence[int]) -> "CorruptedImages":
        """Return the images at these positions, in this order."""
        return replace(self, images=tuple(self.images[k] for k in indices))

    @cached_property
    def _places(self) -> Int[np.ndarray, "n"]:
        return np.array([image.image_index for image in self.images], np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class CorruptedScenes(CorruptedImages):
    """A data set with boxes whose images are corrupted as they are read; see `BoxDataset`."""

    source: BoxDataset

    def subset(self, indices: Sequence[int]) -> "CorruptedScenes":
        """Return the images at these positions, in this order."""
        return replace(self, images=tuple(self.images[k] for k in indices))

    def truth(self) -> BoxTruth:
        """Return the objects of the clean images; always one instance."""
        return self._truth

    @cached_property
    def _truth(self) -> BoxTruth:
        return self.source.truth().at_images(self._places, np.array(self.image_ids, np.str_))
