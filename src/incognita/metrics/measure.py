"""Values of metrics under image weights, their bootstrap replicates and intervals.

A bootstrap replicate draws as many images as there are, with replacement; it is a column of counts,
one per image. Metrics take such columns as weights, so nothing is matched or sorted again. Two
methods measured with the same columns are compared pair by pair, which cancels what the images
share.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from incognita.errors import InvalidDataError
from incognita.kernels.precision_recall import weighted_sums
from incognita.shapes import Bool, Float, Int, Real


@dataclass(frozen=True, eq=False)
class MetricValue:
    """The value of one metric on a set of images, and on bootstrap replicates of it.

    Args:
        values: The value of the data, then one per bootstrap replicate.
        support: Numbers of images, objects, classes or detections it is computed from.
        reason: Why the value is NaN, if it is.
        parameters: Parameters of the metric: a threshold, a recall.
        units: How many images contribute a row, of the smaller side where known and unknown images
            are compared; None if that is not counted.
    """

    values: Float[np.ndarray, "replicates"]
    support: Mapping[str, int]
    reason: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    units: int | None = None

    def __post_init__(self) -> None:
        if np.isnan(self.value) and self.reason is None:
            raise InvalidDataError("A value that is NaN needs a reason.")

    @property
    def value(self) -> float:
        """The value of the data, without resampling."""
        return float(self.values[0])

    def __float__(self) -> float:
        return self.value


def undefined(
    reason: str, support: Mapping[str, int], n: int = 1, **parameters: Any
) -> MetricValue:
    """Return a value that is NaN, with the reason."""
    return MetricValue(np.full(n, np.nan), support, reason, parameters)


def ratio(
    parts: Float[np.ndarray, "replicates"],
    whole: Float[np.ndarray, "replicates"],
    support: Mapping[str, int],
    reason: str,
    units: int | None = None,
) -> MetricValue:
    """Compute parts / whole; NaN, with the reason, where the whole is zero.

    >>> ratio(np.array([1.0]), np.array([4.0]), {"objects": 4}, "there is no object").value
    0.25
    """
    values = np.full(len(parts), np.nan)
    np.divide(parts, whole, out=values, where=whole > 0)
    return MetricValue(values, support, reason if np.isnan(values[0]) else None, units=units)


def every_image_once(n_images: int) -> Float[np.ndarray, "images 1"]:
    """Return weights under which every image counts once."""
    return np.ones((n_images, 1), np.float32)


def image_weights(
    weights: Real[np.ndarray, "rows columns"] | None, n_images: int
) -> Float[np.ndarray, "images replicates"]:
    """Return checked image weights; by default every image counts once.

    Weights are counts, which float32 holds exactly.
    """
    if weights is None:
        return every_image_once(n_images)
    if weights.ndim != 2 or len(weights) != n_images or not weights.shape[1]:
        raise InvalidDataError(
            f"Expected image weights with one row for each of the {n_images} images and at least "
            f"one column, got an array of shape {list(weights.shape)}."
        )
    return np.ascontiguousarray(weights, np.float32)


def count_weighted(
    images: Int[np.ndarray, "rows"],
    keep: Bool[np.ndarray, "rows"],
    weights: Float[np.ndarray, "images replicates"],
) -> Float[np.ndarray, "replicates"]:
    """Count the kept rows, each with the weight of its image."""
    per_image = np.bincount(images[keep], minlength=len(weights)).astype(np.float64)
    return np.asarray(per_image @ weights)


def n_images_in(weights: Float[np.ndarray, "images replicates"]) -> int:
    """Return the number of images that count in the first column; a row may stand for several."""
    return int(weights[:, 0].sum(dtype=np.float64))


def count_units(
    images: Int[np.ndarray, "rows"],
    keep: Bool[np.ndarray, "rows"],
    weights: Float[np.ndarray, "images replicates"],
) -> int:
    """Count the images of the first column that contribute a kept row."""
    has_row = np.bincount(images[keep], minlength=len(weights)) > 0
    return int((has_row & (weights[:, 0] > 0)).sum())


def lost_labels(
    n_truth: Float[np.ndarray, "labels replicates"],
) -> Bool[np.ndarray, "labels replicates"]:
    """Return which labels have an object in the data, the first column, but none in a replicate.

    A mean over classes leaves them out: that they are missing is an accident of the draw.
    """
    return np.asarray((n_truth[:, :1] > 0) & (n_truth == 0))


def sum_by_label(
    values: Float[np.ndarray, "rows"],
    labels: Int[np.ndarray, "rows"],
    images: Int[np.ndarray, "rows"],
    n_labels: int,
    weights: Float[np.ndarray, "images replicates"],
) -> Float[np.ndarray, "labels replicates"]:
    """Sum values per label, each with the weight of its image."""
    return np.asarray(weighted_sums(values, labels, images, weights, n_labels))


def sum_along(
    values: Real[np.ndarray, "*shape"], *, axis: int
) -> Real[np.ndarray, "*shape_without_axis"]:
    """Sum so that the last bit of a column does not depend on the number of columns.

    numpy adds in another order when a single column happens to be contiguous.
    """
    return np.asarray(np.ascontiguousarray(np.moveaxis(values, axis, -1)).sum(axis=-1))


def mean_over(
    values: Float[np.ndarray, "labels replicates"],
) -> Float[np.ndarray, "replicates"]:
    """Average over the defined labels; NaN, without a warning, where none is."""
    is_defined = ~np.isnan(values)
    totals = sum_along(np.where(is_defined, values, 0.0), axis=0)
    counts = is_defined.sum(axis=0)
    means = np.full(values.shape[1], np.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means


def mean_of_values(
    parts: Sequence[Float[np.ndarray, "_"]],
) -> Float[np.ndarray, "replicates"]:
    """Average values and their replicates; of the values alone if one part has no replicates.

    >>> mean_of_values([np.array([1.0, 2.0]), np.array([3.0])]).tolist()
    [2.0]
    """
    shortest = min(len(part) for part in parts)
    return np.asarray(np.mean([part[:shortest] for part in parts], axis=0))


class Interval(NamedTuple):
    """The bounds of a percentile interval; NaN without replicates."""

    low: float
    high: float


class Difference(NamedTuple):
    """The difference between two paired values, with its interval.

    `share_above` is the share of replicates in which the difference is positive, ties counting
    half: near 0 or 1 the two differ, near one half the data do not distinguish them.
    """

    value: float
    low: float
    high: float
    share_above: float


def bootstrap_weights(
    n_images: int,
    *,
    n_resamples: int,
    seed: int,
    keep: Bool[np.ndarray, "images"] | None = None,
    row_of_image: Int[np.ndarray, "images"] | None = None,
) -> Float[np.ndarray, "rows replicates"]:
    """Draw bootstrap replicates: image counts, first of the data itself, then of each replicate.

    Args:
        n_images: The number of images.
        n_resamples: The number of replicates; zero for none.
        seed: The same seed draws the same columns.
        keep: The images of a split; only these are drawn, the others count zero.
        row_of_image: The row in which each image is counted; by default each has its own. The
            draw is the same.

    >>> bootstrap_weights(4, n_resamples=2, seed=0).sum(axis=0).tolist()
    [4.0, 4.0, 4.0]
    """
    if n_resamples < 0:
        raise InvalidDataError(f"n_resamples must be at least 0, but it is {n_resamples}.")
    if keep is not None and len(keep) != n_images:
        raise InvalidDataError(
            f"keep has {len(keep)} marks for {n_images} images; pass one per image."
        )
    rng = np.random.default_rng(seed)
    rows = np.arange(n_images) if row_of_image is None else row_of_image
    n_rows = int(rows.max(initial=-1)) + 1
    rows = rows if keep is None else rows[keep]
    weights = np.zeros((n_rows, 1 + n_resamples), np.float32)
    weights[:, 0] = np.bincount(rows, minlength=n_rows)
    for k in range(1, 1 + n_resamples if len(rows) else 1):
        drawn = rows.take(rng.integers(len(rows), size=len(rows)))
        weights[:, k] = np.bincount(drawn, minlength=n_rows)
    return weights


def interval(replicates: Float[np.ndarray, "replicates"], *, level: float = 0.95) -> Interval:
    """Compute the percentile interval of bootstrap replicates, undefined ones left out.

    >>> interval(np.arange(101.0), level=0.5)
    Interval(low=25.0, high=75.0)
    """
    if not 0 < level < 1:
        raise InvalidDataError(f"level must lie between 0 and 1, but it is {level}.")
    defined = replicates[~np.isnan(replicates)]
    if not len(defined):
        return Interval(float("nan"), float("nan"))
    ordered = np.sort(defined)
    return Interval(_quantile(ordered, (1 - level) / 2), _quantile(ordered, (1 + level) / 2))


def _quantile(ordered: Float[np.ndarray, "n"], share: float) -> float:
    """Compute a quantile of sorted numbers bit by bit as `np.quantile`, in a tenth of its time."""
    place = (len(ordered) - 1) * share
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    part = place - below
    step = high - low
    return high - step * (1 - part) if part >= 0.5 else low + step * part


MIN_UNITS = 10  # images below which resampling says nothing
MIN_REPLICATES, FEW_REPLICATES = 10, 100  # too few for an interval, and for a steady one


def interval_of(value: MetricValue, *, level: float = 0.95) -> Interval:
    """Compute the interval of a value, which it always contains; NaN if too little is behind it.

    There is none below 10 images that contribute a row or 10 replicates. Replicates are often
    biased: a calibration error grows by resampling. Where the percentile interval misses its
    value, it is moved by that bias, the median of the replicates minus the value.

    >>> interval_of(MetricValue(np.arange(50.0, 151.0), {}, units=9))
    Interval(low=nan, high=nan)
    """
    replicates = value.values[1:][~np.isnan(value.values[1:])]
    is_small = value.units is not None and value.units < MIN_UNITS
    if np.isnan(value.value) or is_small or len(replicates) < MIN_REPLICATES:
        return Interval(float("nan"), float("nan"))
    return _around(value.value, interval(replicates, level=level), replicates)


def _around(
    value: float, bounds: Interval, replicates: Float[np.ndarray, "replicates"]
) -> Interval:
    """Move bounds that miss the value by the bias; not past 0 or 1 where nothing else is."""
    if bounds.low <= value <= bounds.high:
        return bounds
    shift = value - float(np.median(replicates))
    low, high = bounds.low + shift, bounds.high + shift
    if min(value, replicates.min()) >= 0:
        low = max(low, 0.0)
    if max(value, replicates.max()) <= 1:
        high = min(high, 1.0)
    return Interval(min(low, value), max(high, value))


def replicates_note(n_resamples: int) -> str | None:
    """Return a note for the reader if there are too few replicates; None if not, or on purpose.

    >>> replicates_note(200), replicates_note(0)
    (None, None)
    """
    if n_resamples == 0 or n_resamples >= FEW_REPLICATES:
        return None
    if n_resamples < MIN_REPLICATES:
        return (
            f"There are no intervals: the number of bootstrap replicates is {n_resamples}, and "
            f"{FEW_REPLICATES} or more are needed for steady ones."
        )
    return (
        f"The intervals are rough: the number of bootstrap replicates is {n_resamples}. Use "
        f"{FEW_REPLICATES} or more."
    )


def paired_difference(
    first: Float[np.ndarray, "values"],
    second: Float[np.ndarray, "as_many_values"],
    *,
    level: float = 0.95,
) -> Difference:
    """Compare two metrics computed with the same image weights.

    Args:
        first: Values of one method: of the data, then of each replicate.
        second: Values of the other, column by column of the same weights.
        level: Share of replicates the interval covers.

    >>> paired_difference(np.array([0.9, 0.8, 1.0]), np.array([0.7, 0.7, 0.7])).value.__round__(6)
    0.2

    There are no bounds below 10 replicates.
    """
    if len(first) != len(second):
        raise InvalidDataError(
            f"Expected paired values with the same replicates, got {len(first)} and {len(second)}."
        )
    difference = first - second
    replicates = difference[1:][~np.isnan(difference[1:])]
    bounds = interval_of(MetricValue(difference, {}, "undefined"), level=level)
    signs = np.sign(replicates)
    share = float(np.mean((signs + 1) / 2)) if len(signs) else float("nan")
    return Difference(float(difference[0]), bounds.low, bounds.high, share)


class Share(NamedTuple):
    """A share of rows, with its interval; NaN, between 0 and 1, where there are no rows."""

    value: float
    low: float
    high: float
    n_counted: int
    n: int

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}] of {self.n}"

    @property
    def complement(self) -> "Share":
        """The share of the other rows."""
        value, low, high = 1 - self.value, 1 - self.high, 1 - self.low
        return Share(value, low, high, self.n - self.n_counted, self.n)


def share_of(count: int, n: int, *, n_units: int | None = None, level: float = 0.95) -> Share:
    r"""Compute a share with Wilson's interval.

    $$ \frac{p + z^2 / 2n \pm z \sqrt{p (1 - p) / n + z^2 / 4n^2}}{1 + z^2 / n} $$ with z the
    quantile of the normal distribution.

    Args:
        count: How many rows have the property.
        n: How many rows there are.
        n_units: Of how many images, where rows are boxes: the interval is then that of so many
            rows, since boxes of one image may all be alike.
        level: The probability that the interval covers the share.

    >>> share_of(95, 100)
    Share(value=0.95, low=0.8882..., high=0.9784..., n_counted=95, n=100)
    """
    if not n:
        return Share(math.nan, 0.0, 1.0, 0, 0)
    p, m = count / n, n_units or n
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    center, width = p + z2 / (2 * m), math.sqrt(z2 * (p * (1 - p) / m + z2 / (4 * m * m)))
    # at 0 and 1 the two terms are equal, but for rounding
    low = 0.0 if count == 0 else (center - width) / (1 + z2 / m)
    high = 1.0 if count == n else (center + width) / (1 + z2 / m)
    return Share(p, low, high, count, n)
