"""Means, covariances and Mahalanobis distances, in memory that does not grow with the rows."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from incognita.errors import InvalidDataError
from incognita.methods.chunks import by_chunk, chunks
from incognita.shapes import Float, Int

Transform = Callable[[Tensor], Tensor]

_EPS = torch.finfo(torch.float64).eps
_ROWS = 1024  # a block of distances to 1000 classes then stays in cache
_ROWS_ALIKE = 16  # a product of that many rows rounds each row alike, whatever rows stand beside it
_SMALL = 2**16  # multiplications per row below which float64 costs nothing worth saving
_FLOAT32_ERROR = 5e-6  # of the mean distance; a ResNet-18 on CIFAR-10 has 3e-6
_TRIAL_ROWS = 1024


class ClassMeans(NamedTuple):
    """The mean of each class and how many rows it had; a class without rows has a mean of zeros."""

    means: Float[Tensor, "classes d"]
    counts: Int[Tensor, "classes"]


class WhitenedClasses(NamedTuple):
    """Class means after `(x - shift) @ whitening`, where Mahalanobis distances are Euclidean."""

    shift: Float[Tensor, "d"]
    whitening: Float[Tensor, "d rank"]
    means: Float[Tensor, "classes rank"]


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

    A feature whose deviation is below what float32 can tell from none (about 1e-8 of its mean)
    counts as constant and gets a variance of exactly zero.

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
    """Sum the outer products of the deviations for each class apart, in float64.

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
    """Give W with W W^T = the pseudo-inverse of a covariance, so that W^T x has unit variances.

    Directions with a variance below d * eps of the largest (float64; the rule of scipy's `pinvh`)
    carry no information and are left out. If nothing varies there is no scale to measure in, and
    W is the identity: distances are then Euclidean.

    >>> whitening(torch.tensor([[0.0, 0.0], [0.0, 4.0]], dtype=torch.float64)).abs().tolist()
    [[0.0], [0.5]]
    """
    variances, directions = torch.linalg.eigh(covariance.double())
    largest = variances[-1]
    if not largest > 0:
        return torch.eye(len(covariance), dtype=torch.float64, device=covariance.device)
    is_kept = variances > len(covariance) * _EPS * largest
    root: Tensor = directions[:, is_kept] / variances[is_kept].sqrt()
    return root


def precision(covariance: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Invert a covariance, with the rule of `whitening` where it is singular.

    >>> precision(torch.tensor([[0.0, 0.0], [0.0, 4.0]], dtype=torch.float64)).tolist()
    [[0.0, 0.0], [0.0, 0.25]]
    """
    root = whitening(covariance)
    return root @ root.T


def exact_whitened_classes(
    means: Float[Tensor, "classes d"], covariance: Float[Tensor, "d d"]
) -> WhitenedClasses:
    """Prepare `smallest_class_distance` for one covariance shared by all classes, in float64."""
    root = whitening(covariance)
    shift = means.mean(dim=0).float().double()  # a float32 copy then subtracts the same number
    return WhitenedClasses(shift, root, (means - shift) @ root)


def whitened_classes(
    features: Float[Tensor, "n d"],
    means: Float[Tensor, "classes d"],
    covariance: Float[Tensor, "d d"],
) -> WhitenedClasses:
    """Prepare `smallest_class_distance` in the cheapest precision that is good enough.

    Products are taken in float32 where that pays and where, on some of the `features`, no
    distance is off by more than 5e-6 of their mean; otherwise in float64.
    """
    exact = exact_whitened_classes(means, covariance)
    if exact.whitening.numel() + exact.means.numel() < _SMALL or features.dtype == torch.float64:
        return exact
    fast = WhitenedClasses(*(tensor.float() for tensor in exact))
    trial = features[:: max(1, len(features) // _TRIAL_ROWS)]
    distances = smallest_class_distance(trial, exact)
    error = (smallest_class_distance(trial, fast) - distances).abs().max()
    return fast if error <= _FLOAT32_ERROR * distances.mean() else exact


def smallest_class_distance(
    features: Float[Tensor, "n d"], classes: WhitenedClasses
) -> Float[Tensor, "n"]:
    r"""Give the squared Mahalanobis distance of each row to the nearest class mean.

    $|z - m_c|^2 = |z|^2 - 2 z^T m_c + |m_c|^2$ finds the nearest class with two matrix products;
    its distance is then taken from the difference itself, which does not cancel.
    """
    shift, root, means = (tensor.to(features.device) for tensor in classes)
    half_norms = means.square().sum(dim=1) / 2

    def distance(rows: Tensor) -> Tensor:
        whitened = (_padded(rows).to(root.dtype) - shift) @ root
        nearest = torch.addmm(half_norms, whitened, means.T, alpha=-1).argmin(dim=1)
        gaps = (whitened - means[nearest])[: len(rows)]
        return gaps.square_().sum(dim=1, dtype=torch.float64)

    return by_chunk(distance, features, rows=_ROWS)


def check_labels(labels: Int[Tensor, "n"], n_classes: int) -> None:
    """Refuse labels that are no classes of the model."""
    if not len(labels):
        return
    lowest, highest = (int(x) for x in labels.aminmax())
    if lowest < 0 or highest >= n_classes:
        raise InvalidDataError(
            f"Known labels must be classes 0 to {n_classes - 1}, but one is "
            f"{lowest if lowest < 0 else highest}; give labels in the order of the logits."
        )


def _float64_rows(
    features: Tensor, labels: Tensor, transform: Transform | None
) -> Iterator[tuple[Tensor, Tensor]]:
    for rows, row_labels in chunks(features, labels):
        yield (rows.double() if transform is None else transform(rows.double())), row_labels.long()


def _one_group(features: Tensor) -> Tensor:
    return torch.zeros(1, dtype=torch.int64, device=features.device).expand(len(features))


def _padded(rows: Tensor) -> Tensor:
    return pad(rows, (0, 0, 0, -len(rows) % _ROWS_ALIKE))
