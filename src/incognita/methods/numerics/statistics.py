"""Means and covariances, in memory that does not grow with the rows."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from incognita.errors import InvalidDataError
from incognita.methods.numerics.rows import chunks
from incognita.shapes import Float, Int

Transform = Callable[[Tensor], Tensor]

_EPS = torch.finfo(torch.float64).eps


class ClassMeans(NamedTuple):
    """The mean and the number of rows of each class; a class without rows has a mean of zeros."""

    means: Float[Tensor, "classes d"]
    counts: Int[Tensor, "classes"]


def class_means(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    n_classes: int,
    *,
    transform: Transform | None = None,
) -> ClassMeans:
    """Average the rows of each class in float64; `transform` is applied to rows first.

    >>> class_means(torch.tensor([[1.0], [3.0], [8.0]]), torch.tensor([0, 0, 2]), 3).means.tolist()
    [[2.0], [0.0], [8.0]]
    """
    check_labels(labels, n_classes)
    sums = features.new_zeros(n_classes, features.shape[1], dtype=torch.float64)
    for rows, row_labels in _float64_rows(features, labels, transform):
        sums.index_add_(0, row_labels, rows)
    counts = torch.bincount(labels, minlength=n_classes)
    return ClassMeans(sums / counts.clamp_min(1)[:, None], counts)


def overall_mean(
    features: Float[Tensor, "n d"], *, transform: Transform | None = None
) -> Float[Tensor, "d"]:
    """Average all rows in float64."""
    total = features.new_zeros(features.shape[1], dtype=torch.float64)
    for rows, _ in _float64_rows(features, _one_group(features), transform):
        total += rows.sum(dim=0)
    return total / len(features)


def pooled_covariance(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    means: Float[Tensor, "classes d"],
    *,
    transform: Transform | None = None,
) -> Float[Tensor, "d d"]:
    """Average the outer products of each row's deviation from the mean of its class, in float64.

    A feature whose deviation is below the resolution of float32 (about 1e-8 of its mean) counts as
    constant and gets a variance of exactly zero.

    >>> features = torch.tensor([[0.0, 5.0], [2.0, 5.0], [7.0, 5.0]])
    >>> labels = torch.tensor([0, 0, 1])
    >>> pooled_covariance(features, labels, class_means(features, labels, 2).means)[0, 0].item()
    0.6666666666666666
    """
    total = features.new_zeros(features.shape[1], features.shape[1], dtype=torch.float64)
    for rows, row_labels in _float64_rows(features, labels, transform):
        deviations = rows - means[row_labels]
        total.addmm_(deviations.T, deviations)
    covariance = total / len(features)
    varies = covariance.diagonal() > _EPS * means.square().amax(dim=0)
    return covariance * varies * varies[:, None]


def class_scatters(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    means: Float[Tensor, "classes d"],
    *,
    transform: Transform | None = None,
) -> Float[Tensor, "classes d d"]:
    """Sum the outer products of the deviations of each class, in float64.

    >>> features, labels = torch.tensor([[0.0], [2.0], [7.0]]), torch.tensor([0, 0, 1])
    >>> class_scatters(features, labels, class_means(features, labels, 2).means).tolist()
    [[[2.0]], [[0.0]]]
    """
    d = features.shape[1]
    scatters = features.new_zeros(len(means), d, d, dtype=torch.float64)
    for rows, row_labels in _float64_rows(features, labels, transform):
        deviations = rows - means[row_labels]
        for label in torch.bincount(row_labels).nonzero()[:, 0].tolist():
            own = deviations[row_labels == label]
            scatters[label].addmm_(own.T, own)
    return scatters


def overall_covariance(
    features: Float[Tensor, "n d"],
    mean: Float[Tensor, "d"],
    *,
    transform: Transform | None = None,
) -> Float[Tensor, "d d"]:
    """Average the outer products of each row's deviation from one mean, in float64."""
    return pooled_covariance(features, _one_group(features), mean[None], transform=transform)


def whitening(covariance: Float[Tensor, "d d"]) -> Float[Tensor, "d rank"]:
    """Compute W with W W^T = the pseudo-inverse of a covariance: W^T x has unit variances.

    Directions with a variance below d * eps of the largest (float64; the rule of scipy's `pinvh`)
    carry no information and are left out. If nothing varies there is no scale to measure in, and
    W is the identity: distances are then Euclidean. Columns are in order of rising variance.

    >>> whitening(torch.tensor([[0.0, 0.0], [0.0, 4.0]], dtype=torch.float64)).abs().tolist()
    [[0.0], [0.5]]
    """
    return whitening_and_dropped(covariance)[0]


def whitening_and_dropped(
    covariance: Float[Tensor, "d d"],
) -> tuple[Float[Tensor, "d rank"], Float[Tensor, "d dropped"]]:
    """Compute the whitening, and the directions of unit length that it leaves out."""
    variances, directions = torch.linalg.eigh(covariance.double())
    largest = variances[-1]
    if not largest > 0:
        return torch.eye(len(covariance)).to(variances), directions[:, :0]
    is_kept = variances > len(covariance) * _EPS * largest
    return directions[:, is_kept] / variances[is_kept].sqrt(), directions[:, ~is_kept]


def precision(covariance: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Invert a covariance, with the rule of `whitening` where it is singular.

    >>> precision(torch.tensor([[0.0, 0.0], [0.0, 4.0]], dtype=torch.float64)).tolist()
    [[0.0, 0.0], [0.0, 0.25]]
    """
    root = whitening(covariance)
    return root @ root.T


def check_labels(labels: Int[Tensor, "n"], n_classes: int) -> None:
    """Raise for labels that are not classes of the model."""
    if not len(labels):
        return
    lowest, highest = (int(x) for x in labels.aminmax())
    if lowest < 0 or highest >= n_classes:
        raise InvalidDataError(
            f"Known labels must be classes 0 to {n_classes - 1}, but one is "
            f"{lowest if lowest < 0 else highest}; pass labels in the order of the logits."
        )


def _float64_rows(
    features: Tensor, labels: Tensor, transform: Transform | None
) -> Iterator[tuple[Tensor, Tensor]]:
    for rows, row_labels in chunks(features, labels):
        yield (rows.double() if transform is None else transform(rows.double())), row_labels.long()


def _one_group(features: Tensor) -> Tensor:
    return torch.zeros(1, dtype=torch.int64, device=features.device).expand(len(features))
