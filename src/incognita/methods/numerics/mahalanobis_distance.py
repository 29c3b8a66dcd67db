"""Squared Mahalanobis distances to class means, in float32 where that is accurate enough."""

from typing import NamedTuple

import torch
from torch import Tensor

from incognita.methods.numerics.rows import by_chunk
from incognita.shapes import Float

_ROWS = 1024  # a block of distances to 1000 classes then stays in cache
_ROWS_ALIKE = 16
_SMALL = 2**16  # multiplications per row below which float32 saves nothing
_ERROR = 1e-6  # of the mean distance that float32 may take
_TRIAL_ROWS = 1024


class WhitenedClasses(NamedTuple):
    """Class means after `(x - shift) @ whitening`, where Mahalanobis distances are Euclidean.

    Rows are whitened in the type of `whitening`, and the nearest class is found in the type of
    `search_means`; the distance to it is taken in float64.
    """

    shift: Float[Tensor, "d"]
    whitening: Float[Tensor, "d rank"]
    means: Float[Tensor, "classes rank"]
    search_means: Float[Tensor, "classes rank"]


def exact_whitened_classes(
    means: Float[Tensor, "classes d"], root: Float[Tensor, "d rank"]
) -> WhitenedClasses:
    """Prepare `smallest_class_distance` in float64.

    Args:
        means: Means of the classes.
        root: The `statistics.whitening` of the covariance they share.
    """
    shift = means.mean(dim=0).float().double()  # a float32 copy then subtracts the same number
    centers = (means - shift) @ root
    return WhitenedClasses(shift, root.contiguous(), centers, centers.clone())


def whitened_classes(
    features: Float[Tensor, "n d"],
    means: Float[Tensor, "classes d"],
    root: Float[Tensor, "d rank"],
) -> WhitenedClasses:
    """Prepare `smallest_class_distance` in the cheapest precision that is accurate enough.

    Rows are whitened and classes searched in float32 where, on some of the `features`, no distance
    is off by more than 1e-6 of their mean; else only classes are, by the same rule; else nothing.
    """
    exact = exact_whitened_classes(means, root)
    n_products = exact.whitening.numel() + exact.means.numel()
    if n_products < _SMALL or features.dtype == torch.float64:
        return exact
    trial = features[:: max(1, len(features) // _TRIAL_ROWS)]
    distances = smallest_class_distance(trial, exact)
    search_means = exact.means.float()
    for whitening in (exact.whitening.float(), exact.whitening):
        cheaper = exact._replace(whitening=whitening, search_means=search_means)
        error = (smallest_class_distance(trial, cheaper) - distances).abs()
        if error.max() <= _ERROR * distances.mean():
            return cheaper
    return exact


def smallest_class_distance(
    features: Float[Tensor, "n d"], classes: WhitenedClasses
) -> Float[Tensor, "n"]:
    r"""Compute the squared Mahalanobis distance of each row to the nearest class mean.

    $|z - m_c|^2 = |z|^2 - 2 z^T m_c + |m_c|^2$ finds the nearest class with a matrix product; its
    distance is then taken from the difference itself, which does not cancel.
    """
    shift, whitening, means, search_means = (t.to(features.device) for t in classes)
    shift, half_squares = shift.to(whitening.dtype), search_means.square().sum(dim=1) / 2

    def distance(rows: Tensor) -> Tensor:
        z = centered(rows, shift) @ whitening
        nearest = means
        if len(means) > 1:
            search = z.to(search_means.dtype)
            nearest = means[(torch.addmm(half_squares, search, search_means.T, alpha=-1)).argmin(1)]
        return (z - nearest)[: len(rows)].square_().sum(dim=1)

    return by_chunk(distance, features, rows=_ROWS)


def centered(rows: Float[Tensor, "n d"], shift: Float[Tensor, "d"]) -> Float[Tensor, "more d"]:
    """Subtract the shift, in its type; add rows of zeros up to a multiple of 16.

    A product of that many rows rounds each row alike, whatever the other rows are.

    >>> centered(torch.ones(17, 2), torch.tensor([1.0, 3.0]))[16:18]
    tensor([[ 0., -2.],
            [ 0.,  0.]])
    """
    result = shift.new_zeros(len(rows) + -len(rows) % _ROWS_ALIKE, rows.shape[1])
    torch.sub(rows.to(shift.dtype), shift, out=result[: len(rows)])
    return result


_LEAST_SHARE = 1e-8  # of the distances; what changes them by less is left out
_SHORT = 1e-9  # a whitened length that changes no distance


class RelativeDistances(NamedTuple):
    """The difference of the two distances of RMDS: `offsets - 2 linear + weights * quadratic^2`."""

    shift: Float[Tensor, "d"]
    columns: Float[Tensor, "classes_and_few d"]  # as rows, linear ones, then quadratic ones
    offsets: Float[Tensor, "classes"]
    weights: Float[Tensor, "few"]


def relative_distances(
    means: Float[Tensor, "classes d"],
    mean: Float[Tensor, "d"],
    within: tuple[Float[Tensor, "d rank"], Float[Tensor, "d dropped"]],
    overall: Float[Tensor, "d rank0"],
    length: float,
) -> RelativeDistances | None:
    """Find the few directions in which the distances differ; None where they are not few.

    Args:
        means: Means of the classes.
        mean: Mean of all rows.
        within: What whitens the covariance within classes, and the directions it leaves out.
        overall: What whitens the covariance of all rows.
        length: Typical length of a row after subtracting the mean.
    """
    root, dropped = within
    rank = root.shape[1]
    most = rank // 4 - len(means)
    # coordinates of the second whitening in terms of the first, then of what that leaves out
    first = (root / root.square().sum(dim=0)).T @ overall
    second = dropped.T @ overall
    sizes = second.norm(dim=1)
    matters = sizes * length > _SHORT
    if int(matters.sum()) > most:
        return None
    basis = torch.cat([root, dropped[:, matters] * sizes[matters]], dim=1)
    both = torch.cat([first, second[matters] / sizes[matters, None]])
    form = -(both @ both.T)
    form.diagonal()[:rank] += 1
    weights, turn = torch.linalg.eigh(form)
    is_kept = weights.abs() > _LEAST_SHARE
    if int(is_kept.sum()) > most:
        return None
    centers = (means - mean) @ root
    columns = torch.cat([centers @ root.T, turn[:, is_kept].T @ basis.T])
    return RelativeDistances(mean, columns, centers.square().sum(dim=1), weights[is_kept])


def score_relative(
    features: Float[Tensor, "n d"], classes: RelativeDistances
) -> Float[Tensor, "n"]:
    """Compute the squared distance to the nearest class minus that to all rows as one."""
    shift, columns, offsets, weights = (tensor.to(features.device) for tensor in classes)

    def difference(rows: Tensor) -> Tensor:
        products = (centered(rows, shift) @ columns.T)[: len(rows)]
        linear, quadratic = products.tensor_split([len(offsets)], dim=1)
        return (offsets - 2 * linear).amin(dim=1) + quadratic.square() @ weights

    return by_chunk(difference, features, rows=_ROWS)
