"""How sure a number is: bootstrap over images, and paired comparison of two methods.

A bootstrap replicate draws as many images as there are, with replacement; it is a column of counts,
one per image. Metrics take such columns as weights, so nothing is matched or sorted again. Two
methods that get the same columns are compared pair by pair, which cancels what the images share.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from incognita.errors import InvalidDataError
from incognita.metrics.ranking import RankingReplicates, ranking_replicates
from incognita.shapes import Bool, Float

Weights = Float[np.ndarray, "images replicates"]


class Interval(NamedTuple):
    """The bounds between which the middle share of the replicates lies; NaN without replicates."""

    low: float
    high: float


class Difference(NamedTuple):
    """How much larger the first of two values is, and how sure that is.

    Larger is better or worse as the catalog says of the metric.
    `share_above` is the share of replicates in which the difference is positive, ties counting
    half: near 0 or 1 the two differ, near one half they cannot be told apart.
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
) -> Weights:
    """How often each image counts: first once each, then in bootstrap replicates.

    Args:
        n_images: How many images there are.
        n_resamples: How many replicates to draw; zero for none.
        seed: The same seed gives the same columns.
        keep: The images of a split; the others weigh nothing, and only these are drawn.

    >>> bootstrap_weights(4, n_resamples=2, seed=0).sum(axis=0).tolist()
    [4.0, 4.0, 4.0]
    """
    if n_resamples < 0:
        raise InvalidDataError(f"n_resamples must be at least 0, but it is {n_resamples}.")
    if keep is not None and len(keep) != n_images:
        raise InvalidDataError(f"keep has {len(keep)} marks for {n_images} images; give one each.")
    rng = np.random.default_rng(seed)
    images = np.arange(n_images) if keep is None else np.flatnonzero(keep)
    weights = np.zeros((n_images, 1 + n_resamples), np.float32)
    weights[images, 0] = 1
    for k in range(1, 1 + n_resamples if len(images) else 1):
        drawn = images[rng.integers(len(images), size=len(images))]
        weights[:, k] = np.bincount(drawn, minlength=n_images)
    return weights


def interval(replicates: Float[np.ndarray, "replicates"], *, level: float = 0.95) -> Interval:
    """The percentile interval of bootstrap replicates; those that are undefined are left out.

    >>> interval(np.arange(101.0), level=0.5)
    Interval(low=25.0, high=75.0)
    """
    if not 0 < level < 1:
        raise InvalidDataError(f"level must lie between 0 and 1, but it is {level}.")
    defined = replicates[~np.isnan(replicates)]
    if not len(defined):
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def paired_difference(
    first: Float[np.ndarray, "values"],
    second: Float[np.ndarray, "as_many_values"],
    *,
    level: float = 0.95,
) -> Difference:
    """Compare two measures computed with the same image weights.

    Args:
        first: Values of one method: of the data as they are, then of each replicate.
        second: Values of the other, column by column of the same weights.
        level: Share of replicates the interval covers.

    >>> paired_difference(np.array([0.9, 0.8, 1.0]), np.array([0.7, 0.7, 0.7])).value.__round__(6)
    0.2
    """
    if len(first) != len(second):
        raise InvalidDataError(
            f"Paired values need the same replicates, but {len(first)} and {len(second)} came."
        )
    difference = first - second
    replicates = difference[1:][~np.isnan(difference[1:])]
    bounds = interval(replicates, level=level)
    signs = np.sign(replicates)
    share = float(np.mean((signs + 1) / 2)) if len(signs) else float("nan")
    return Difference(float(difference[0]), bounds.low, bounds.high, share)


def bootstrap_ranking(
    unknown_score: Float[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    *,
    images: Sequence[Any] | np.ndarray | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> RankingReplicates:
    """Every ranking metric of the data as they are, then of each bootstrap replicate.

    Args:
        unknown_score: Higher means more unknown.
        is_unknown: The truth of each row.
        images: The image id of each row, numbers or text, where an image has several rows, as a
            detector's has; images are drawn, not rows. By default each row is an image.
        n_resamples: How many replicates.
        seed: The same seed draws the same images, so two methods can be paired.

    >>> score, truth = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    >>> bootstrap_ranking(score, truth, n_resamples=10).auroc[0]
    np.float64(0.75)
    """
    ids = np.arange(len(unknown_score)) if images is None else np.asarray(images)
    if len(ids) != len(unknown_score):
        raise InvalidDataError(f"{len(ids)} image ids came for {len(unknown_score)} scores.")
    distinct, rows = np.unique(ids, return_inverse=True)
    n_images = len(distinct)
    weights = bootstrap_weights(n_images, n_resamples=n_resamples, seed=seed)
    return ranking_replicates(unknown_score, is_unknown, weights[rows])
