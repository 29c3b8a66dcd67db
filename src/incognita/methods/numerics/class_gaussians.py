"""Squared distances under one Gaussian per class.

A class with few rows varies in few directions: outside their span its covariance is the added noise
alone, and only products with the span are needed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from incognita.methods.numerics.mahalanobis_distance import (
    WhitenedClasses,
    centered,
    smallest_class_distance,
    whitened_classes,
)
from incognita.methods.numerics.rows import chunks
from incognita.shapes import Float, Int

_TRIAL_ROWS = 1024  # of a class, to compare precisions on


class ThinGaussian(NamedTuple):
    r"""A class of n rows X, centered, in more dimensions, with noise added to every variance.

    The inverse of its covariance $X^T X / (n - 1) + \epsilon I$ is $(I - B B^T) / \epsilon$ with B
    the span, $B B^T = X^T (X X^T + (n - 1) \epsilon I)^{-1} X$.
    """

    mean: Float[Tensor, "d"]
    span: Float[Tensor, "d n"]
    log_volume: float  # half the logarithm of the determinant


class FullGaussian(NamedTuple):
    """A class with a covariance of full rank."""

    classes: WhitenedClasses
    log_volume: float


class ThinClasses(NamedTuple):
    """Several thin Gaussians: `(x - shift) @ spans - offsets` are the coordinates in all spans."""

    shift: Float[Tensor, "d"]
    centers: Float[Tensor, "classes d"]  # means, less the shift
    spans: Float[Tensor, "d rows"]
    offsets: Float[Tensor, "rows"]
    sizes: Int[Tensor, "classes"]
    noise: Float[Tensor, ""]


def fit_classes(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    means: Float[Tensor, "classes d"],
    pooled: Float[Tensor, "d d"],
    noise: float,
) -> list[ThinGaussian | FullGaussian | None]:
    """Fit a Gaussian to each label that occurs, in their order; None where it is singular.

    Args:
        features: Known rows.
        labels: Their classes.
        means: Means of the classes that occur.
        pooled: The covariance, noise included, of a class with one row.
        noise: Added to every variance.
    """
    fitted: list[ThinGaussian | FullGaussian | None] = []
    present = torch.bincount(labels).nonzero()[:, 0]
    for mean, label in zip(means, present, strict=True):
        rows = (labels == label).nonzero()[:, 0]
        if 1 < len(rows) <= features.shape[1] // 2 and noise > 0:
            fitted.append(_fit_thin(features, rows, mean, noise))
            continue
        covariance = pooled
        if len(rows) > 1:
            covariance = scatter(features, rows, mean) / (len(rows) - 1)
            covariance.diagonal().add_(noise)
        fitted.append(_fit_full(features, rows, mean, covariance))
    return fitted


def join_classes(
    gaussians: Sequence[ThinGaussian | FullGaussian], noise: float
) -> dict[str, dict[str, Tensor]]:
    """Return all Gaussians as state of a method: the thin ones side by side, then each full one."""
    thin = [gaussian for gaussian in gaussians if isinstance(gaussian, ThinGaussian)]
    joined = {"thin": _join_thin(thin, noise)._asdict()} if thin else {}
    for gaussian in gaussians:
        if isinstance(gaussian, FullGaussian):
            joined[f"full {len(joined)}"] = gaussian.classes._asdict()
    is_full = torch.tensor([isinstance(gaussian, FullGaussian) for gaussian in gaussians])
    joined["order"] = {"places": is_full.argsort(stable=True).argsort()}
    return joined


def class_distances(
    rows: Float[Tensor, "n d"], gaussians: Mapping[str, Mapping[str, Tensor]]
) -> Float[Tensor, "n classes"]:
    """Compute the squared distance of each row under each Gaussian."""
    parts = [
        _thin_distances(rows, ThinClasses(**classes))
        if name == "thin"
        else smallest_class_distance(rows, WhitenedClasses(**classes))[:, None]
        for name, classes in gaussians.items()
        if name != "order"
    ]
    return torch.cat(parts, dim=1)[:, gaussians["order"]["places"].to(rows.device)]


def _fit_thin(
    features: Float[Tensor, "n d"],
    rows: Int[Tensor, "rows"],
    mean: Float[Tensor, "d"],
    noise: float,
) -> ThinGaussian:
    """Fit the few rows of a class."""
    deviations = features[rows].double() - mean
    n, d = deviations.shape
    gram = deviations @ deviations.T
    gram.diagonal().add_((n - 1) * noise)
    root = torch.linalg.cholesky(gram)
    span = torch.linalg.solve_triangular(root, deviations, upper=False).T
    log_volume = root.diagonal().log().sum() + ((d - n) * math.log(noise) - n * math.log(n - 1)) / 2
    return ThinGaussian(mean, span, float(log_volume))


def _fit_full(
    features: Float[Tensor, "n d"],
    rows: Int[Tensor, "rows"],
    mean: Float[Tensor, "d"],
    covariance: Float[Tensor, "d d"],
) -> FullGaussian | None:
    """Prepare distances under a given covariance; None if it is singular."""
    root, failed_at = torch.linalg.cholesky_ex(covariance)
    if failed_at > 0:
        return None
    whiten = torch.linalg.solve_triangular(root, torch.eye(len(root)).to(root), upper=False).T
    some = features[rows[:: max(1, len(rows) // _TRIAL_ROWS)]]
    classes = whitened_classes(some, mean[None], whiten)
    return FullGaussian(classes, float(root.diagonal().log().sum()))


def scatter(
    features: Float[Tensor, "n d"], rows: Int[Tensor, "rows"], mean: Float[Tensor, "d"]
) -> Float[Tensor, "d d"]:
    """Sum the outer products of the deviations of some rows from their mean, in float64.

    >>> scatter(torch.tensor([[0.0], [2.0], [7.0]]), torch.tensor([0, 1]), torch.ones(1).double())
    tensor([[2.]], dtype=torch.float64)
    """
    total = mean.new_zeros(len(mean), len(mean))
    for (part,) in chunks(rows):
        deviations = features[part].double() - mean
        total.addmm_(deviations.T, deviations)
    return total


def _join_thin(gaussians: Sequence[ThinGaussian], noise: float) -> ThinClasses:
    """Put thin Gaussians side by side, so that one product serves all."""
    means = torch.stack([gaussian.mean for gaussian in gaussians])
    shift = means.mean(dim=0)
    spans = torch.cat([gaussian.span for gaussian in gaussians], dim=1)
    offsets = torch.cat([(gaussian.mean - shift) @ gaussian.span for gaussian in gaussians])
    sizes = torch.tensor([gaussian.span.shape[1] for gaussian in gaussians])
    return ThinClasses(shift, means - shift, spans, offsets, sizes, means.new_tensor(noise))


def _thin_distances(
    features: Float[Tensor, "n d"], classes: ThinClasses
) -> Float[Tensor, "n classes"]:
    shift, centers, spans, offsets, sizes, noise = (t.to(features.device) for t in classes)
    gaps = centered(features, shift)
    inside = (gaps @ spans).sub_(offsets).square_().tensor_split(sizes.cumsum(0)[:-1].cpu(), dim=1)
    # for a row of the class itself both nearly cancel: float64 leaves eight digits of the rest
    outside = [
        (gaps - center).square_().sum(dim=1) - part.sum(dim=1)
        for center, part in zip(centers, inside, strict=True)
    ]
    return torch.stack(outside, dim=1)[: len(features)].clamp_min(0) / noise
