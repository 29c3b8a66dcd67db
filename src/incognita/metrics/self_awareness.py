"""Self-awareness of detectors: balanced accuracy (BA), IDQ and DAQ.

Oksuz et al., Towards building self-aware object detectors, CVPR 2023, sections 4 and 6. The paper's
text calls balanced accuracy the harmonic mean of "TPR and FPR"; TPR and TNR is meant and computed.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from incognita.containers.boxes import Detections
from incognita.errors import InvalidDataError
from incognita.shapes import Float

_EMPTY_SHARE = 4  # places of a table for each value in it


class Aggregation(Enum):
    """How the uncertainties of an image's detections are combined."""

    SUM = "sum"
    MEAN = "mean"
    TOP_MEAN = "mean of the m smallest"
    MIN = "min"


class BalancedAccuracy(NamedTuple):
    """Harmonic mean of the share of known images accepted and of unknown images rejected."""

    value: float
    true_positive_rate: float
    true_negative_rate: float


def image_uncertainty(
    detections: Detections,
    uncertainty: Float[np.ndarray, "boxes"] | None = None,
    *,
    aggregation: Aggregation = Aggregation.TOP_MEAN,
    top: int = 3,
) -> Float[np.ndarray, "images"]:
    """Compute one uncertainty per image from those of its detections.

    An image without a detection is infinitely uncertain: it is rejected at every threshold. The
    public code writes 1e12 for it, which decides the same; ranking metrics, which refuse infinity,
    can be given `np.minimum(uncertainty, 1e12)` as well.

    Args:
        detections: The detections, image by image.
        uncertainty: Of each detection; by default 1 - confidence, the best in the paper's table 3.
        aggregation: The paper's baseline is the mean of the three smallest.
        top: The number of smallest ones; all where an image has fewer.

    >>> from incognita.containers.classes import Classes
    >>> boxes, classes = np.tile([0.0, 0.0, 1.0, 1.0], (2, 1)), Classes(("car",))
    >>> found = Detections([1, 2], [0, 2, 2], boxes, [0.75, 0.25], [0, 0], classes)
    >>> image_uncertainty(found).tolist()
    [0.5, inf]
    """
    return image_uncertainties(detections, uncertainty, [(aggregation, top)])[0]


def image_uncertainties(
    detections: Detections,
    uncertainty: Float[np.ndarray, "boxes"] | None,
    ways: Sequence[tuple[Aggregation, int]],
) -> list[Float[np.ndarray, "images"]]:
    """Compute `image_uncertainty` for several pairs of aggregation and top, sorting once."""
    values = 1.0 - detections.confidence if uncertainty is None else uncertainty
    if len(values) != len(detections):
        raise InvalidDataError(
            f"Expected one uncertainty per detection, got {len(values)} for {len(detections)}."
        )
    images = detections.image_index
    place = np.arange(len(values)) - detections.offsets[images]  # rank inside the image
    ordered = _sorted_inside(values, images, place, detections.n_images)
    return [_aggregate(ordered, place, images, detections.n_images, *way) for way in ways]


def _sorted_inside(
    values: np.ndarray, images: np.ndarray, place: np.ndarray, n_images: int
) -> np.ndarray:
    """Sort the values of each image; a table with a row per image is sorted much faster."""
    width = int(place.max(initial=-1)) + 1
    if n_images * width > _EMPTY_SHARE * len(values):  # one image with very many boxes
        return np.asarray(values[np.lexsort((values, images))])
    table = np.full((n_images, width), np.nan)  # NaN is sorted to the end
    table[images, place] = values
    table.sort(axis=1)
    return np.asarray(table[images, place])


def _aggregate(
    ordered: np.ndarray,
    place: np.ndarray,
    images: np.ndarray,
    n_images: int,
    aggregation: Aggregation,
    top: int,
) -> np.ndarray:
    if aggregation is Aggregation.TOP_MEAN and top < 1:
        raise InvalidDataError(f"top must be at least 1, but it is {top}.")
    limit = {Aggregation.TOP_MEAN: top, Aggregation.MIN: 1}.get(aggregation, len(ordered))
    kept = place < limit
    n = np.bincount(images[kept], minlength=n_images)
    totals = np.bincount(images[kept], ordered[kept], minlength=n_images)
    totals = totals.astype(np.float64)  # without any box they are integers
    if aggregation is not Aggregation.SUM:
        np.divide(totals, n, out=totals, where=n > 0)
    return np.where(n > 0, totals, np.inf)


def balanced_accuracy(
    known: Float[np.ndarray, "known"],
    unknown: Float[np.ndarray, "unknown"],
    *,
    threshold: float,
) -> BalancedAccuracy:
    """Compute the balanced accuracy of accepting images with at most this uncertainty.

    The rule of the paper's algorithm A.2, which rejects only above the threshold.

    >>> balanced_accuracy(np.array([0.1, 0.2]), np.array([0.2, 0.9]), threshold=0.2).value
    0.6666666666666666
    """
    _check_both(known, unknown)
    accepted, rejected = float(np.mean(known <= threshold)), float(np.mean(unknown > threshold))
    return BalancedAccuracy(harmonic_mean(accepted, rejected), accepted, rejected)


def balanced_accuracy_saod(
    known: Float[np.ndarray, "known"],
    unknown: Float[np.ndarray, "unknown"],
    *,
    threshold: float,
) -> BalancedAccuracy:
    """Compute balanced accuracy as the public SAOD code: one ROC point past the threshold.

    The code takes the first point of scikit-learn's ROC curve, from which collinear points are
    dropped, whose uncertainty exceeds the threshold; if there is none it takes the curve's start
    and reports 0.
    """
    _check_both(known, unknown)
    levels = roc_levels(known, unknown)
    beyond = levels[levels > threshold]
    if not len(beyond):
        return BalancedAccuracy(0.0, 0.0, 1.0)
    return balanced_accuracy(known, unknown, threshold=float(beyond[0]))


def roc_levels(
    known: Float[np.ndarray, "known"], unknown: Float[np.ndarray, "unknown"]
) -> Float[np.ndarray, "levels"]:
    """Return the uncertainties at which scikit-learn's ROC curve has a point, in rising order.

    Of the values that occur, an inner one is left out if as many known and as many unknown images
    have it as have the next one: its point lies on a line between its neighbors.

    >>> roc_levels(np.array([0.1, 0.2, 0.3]), np.array([0.5])).tolist()
    [0.1, 0.3, 0.5]
    """
    levels, places = np.unique(np.concatenate([known, unknown]), return_inverse=True)
    accepted = np.cumsum(np.bincount(places[: len(known)], minlength=len(levels)))
    passed = np.cumsum(np.bincount(places[len(known) :], minlength=len(levels)))
    bends = (np.diff(accepted, 2) != 0) | (np.diff(passed, 2) != 0)
    is_kept = np.concatenate([[True], bends, [True]])[: len(levels)]
    return np.asarray(levels[is_kept])


def in_distribution_quality(lrp: float, laece: float) -> float:
    """Compute IDQ: harmonic mean of 1 - LRP and 1 - LaECE; 0 when either is 0.

    >>> in_distribution_quality(1.0, 0.2), round(in_distribution_quality(0.749, 0.173), 3)
    (0.0, 0.385)
    """
    return harmonic_mean(1.0 - lrp, 1.0 - laece)


def detection_awareness_quality(
    balanced_accuracy: float, quality: float, shifted_quality: float
) -> float:
    """Compute DAQ: harmonic mean of BA, IDQ, and IDQ on corrupted images; 0 when any of them is 0.

    >>> round(detection_awareness_quality(0.877, 0.385, 0.262), 3)  # SA-F-RCNN, table 6
    0.397
    """
    return harmonic_mean(balanced_accuracy, quality, shifted_quality)


def harmonic_mean(*parts: float) -> float:
    """Compute the harmonic mean; 0 where a part is 0, NaN where a part is NaN."""
    if any(np.isnan(part) for part in parts):
        return float("nan")
    if any(part < 0 or part > 1 for part in parts):
        raise InvalidDataError(f"Expected parts of a quality between 0 and 1, got {list(parts)}.")
    if any(part == 0 for part in parts):
        return 0.0
    return len(parts) / sum(1.0 / part for part in parts)


def _check_both(known: np.ndarray, unknown: np.ndarray) -> None:
    if not len(known) or not len(unknown):
        raise InvalidDataError(
            f"Balanced accuracy needs known and unknown images, got {len(known)} known and "
            f"{len(unknown)} unknown."
        )
