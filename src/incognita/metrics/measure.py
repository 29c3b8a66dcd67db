"""The number a metric gives, with what it was computed from, and the reason where there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from incognita.errors import InvalidDataError
from incognita.kernels.precision_recall import weighted_sums
from incognita.shapes import Bool, Float, Int, Real


@dataclass(frozen=True, eq=False)
class MetricValue:
    """One metric on one set of images, and on resamples of it.

    Args:
        values: The value of the data as they are, then one per bootstrap replicate.
        support: How many images, objects, classes or detections stand behind it.
        reason: Why the value is NaN, where it is.
        parameters: What the value depends on: a threshold, a recall.
    """

    values: Float[np.ndarray, "replicates"]
    support: Mapping[str, int]
    reason: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if np.isnan(self.value) and self.reason is None:
            raise InvalidDataError("A measure that is NaN needs a reason.")

    @property
    def value(self) -> float:
        """The value of the data as they are."""
        return float(self.values[0])

    def __float__(self) -> float:
        return self.value


def undefined(
    reason: str, support: Mapping[str, int], n: int = 1, **parameters: Any
) -> MetricValue:
    """Give the measure of something that has no value here, with the reason."""
    return MetricValue(np.full(n, np.nan), support, reason, parameters)


def ratio(
    parts: Float[np.ndarray, "replicates"],
    whole: Float[np.ndarray, "replicates"],
    support: Mapping[str, int],
    reason: str,
) -> MetricValue:
    """Give parts / whole, NaN with the reason where the whole is zero.

    >>> ratio(np.array([1.0]), np.array([4.0]), {"objects": 4}, "there is no object").value
    0.25
    """
    values = np.full(len(parts), np.nan)
    np.divide(parts, whole, out=values, where=whole > 0)
    return MetricValue(values, support, reason if np.isnan(values[0]) else None)


def every_image_once(n_images: int) -> Float[np.ndarray, "images 1"]:
    """The weights of the data as they are."""
    return np.ones((n_images, 1), np.float32)


def image_weights(
    weights: Real[np.ndarray, "rows columns"] | None, n_images: int
) -> Float[np.ndarray, "images replicates"]:
    """Give the weights of the images, by default each once; refuse those of other images.

    Kernels read them unchecked. Weights are counts, which float32 holds exactly.
    """
    if weights is None:
        return every_image_once(n_images)
    if weights.ndim != 2 or len(weights) != n_images or not weights.shape[1]:
        raise InvalidDataError(
            f"Image weights need one row for each of the {n_images} images and at least one "
            f"column, but an array of shape {list(weights.shape)} came."
        )
    return np.ascontiguousarray(weights, np.float32)


def count_weighted(
    images: Int[np.ndarray, "rows"],
    keep: Bool[np.ndarray, "rows"],
    weights: Float[np.ndarray, "images replicates"],
) -> Float[np.ndarray, "replicates"]:
    """How many of the kept rows there are when images count as often as their weights say."""
    per_image = np.bincount(images[keep], minlength=len(weights)).astype(np.float64)
    return np.asarray(per_image @ weights)


def n_images_in(weights: Float[np.ndarray, "images replicates"]) -> int:
    """How many images the data as they are have."""
    return int((weights[:, 0] > 0).sum())


def sum_by_label(
    values: Float[np.ndarray, "rows"],
    labels: Int[np.ndarray, "rows"],
    images: Int[np.ndarray, "rows"],
    n_labels: int,
    weights: Float[np.ndarray, "images replicates"],
) -> Float[np.ndarray, "labels replicates"]:
    """Sum values per label when images count as often as their weights say."""
    return np.asarray(weighted_sums(values, labels, images, weights, n_labels))


def sum_along(
    values: Real[np.ndarray, "*shape"], *, axis: int
) -> Real[np.ndarray, "*shape_without_axis"]:
    """Sum so that the last bit of a column does not depend on how many columns there are.

    numpy adds in another order when a single column happens to be contiguous.
    """
    return np.asarray(np.ascontiguousarray(np.moveaxis(values, axis, -1)).sum(axis=-1))


def mean_over(
    values: Float[np.ndarray, "labels replicates"],
) -> Float[np.ndarray, "replicates"]:
    """Mean over the labels that are defined; NaN, without a warning, where none is."""
    is_defined = ~np.isnan(values)
    totals = sum_along(np.where(is_defined, values, 0.0), axis=0)
    counts = is_defined.sum(axis=0)
    means = np.full(values.shape[1], np.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means
