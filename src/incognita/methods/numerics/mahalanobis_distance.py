"""Squared Mahalanobis distances to class means, in the cheapest precision that is good enough.

Turning the whitened space leaves distances as they are, so a whitening matrix is turned until all
above its diagonal is zero: up to half of the product is then never computed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from incognita.methods.numerics.rows import by_chunk
from incognita.shapes import Float

_ROWS_ALIKE = 16
_COLUMNS = 96  # of a trapezoid multiplied at once; powers of two are slower


def centered(rows: Float[Tensor, "n d"], shift: Float[Tensor, "d"]) -> Float[Tensor, "more d"]:
    """Subtract the shift, in its type; add rows of zeros up to a multiple of 16.

    A product of that many rows rounds each row alike, whatever rows stand beside it.

    >>> centered(torch.ones(17, 2), torch.tensor([1.0, 3.0]))[16:18]
    tensor([[ 0., -2.],
            [ 0.,  0.]])
    """
    result = shift.new_empty(len(rows) + -len(rows) % _ROWS_ALIKE, rows.shape[1])
    result[: len(rows)] = rows
    result[: len(rows)] -= shift
    result[len(rows) :] = 0
    return result


def narrow_product(
    rows: Float[Tensor, "n d"], transposed: Float[Tensor, "few d"]
) -> Float[Tensor, "n few"]:
    """Multiply with few columns, given as rows; the other way round takes up to twice as long.

    >>> narrow_product(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 10.0]]))
    tensor([[21.],
            [43.]])
    """
    return (transposed @ rows.T).T


def trapezoid(root: Float[Tensor, "d rank"]) -> Float[Tensor, "d rank"]:
    """Turn the columns of a matrix among themselves until all above the diagonal is zero.

    Lengths of rows multiplied with it stay as they are.

    >>> trapezoid(torch.tensor([[3.0, 4.0], [0.0, 5.0]])).abs()
    tensor([[5., 0.],
            [4., 3.]])
    """
    turned: Tensor = torch.linalg.qr(root.T, mode="r").R.T.contiguous()
    return turned


def trapezoid_product(
    rows: Float[Tensor, "n d"], root: Float[Tensor, "d rank"]
) -> Float[Tensor, "n rank"]:
    """Multiply with a matrix that is zero above its diagonal, leaving out most of the zeros.

    >>> trapezoid_product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 0.0], [4.0, 5.0]]))
    tensor([[11., 10.]])
    """
    product = rows.new_empty(len(rows), root.shape[1])
    for first in range(0, root.shape[1], _COLUMNS):
        part = slice(first, first + _COLUMNS)
        product[:, part] = rows[:, first:] @ root[first:, part]
    return product


_LEAST_SHARE = 1e-8  # of the distances; what changes them by less is left out
_SHORT = 1e-9  # a whitened length that no distance feels


class RelativeDistances(NamedTuple):
    """Where the two distances differ, `offsets - 2 linear` and `weights * quadratic^2`."""

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
        means: Of the classes.
        mean: Of all rows.
        within: What whitens the covariance within classes, and the directions it leaves out.
        overall: What whitens the covariance of all rows.
        length: Of a usual row, after the mean is taken off.
    """
    root, dropped = within
    rank = root.shape[1]
    most = rank // 4 - len(means)
    # coordinates of the second whitening in terms of the first, then of what that leaves out
    first = (root / root.square().sum(dim=0)).T @ overall
    second = dropped.T @ overall
    sizes = second.norm(dim=1)
    is_felt = sizes * length > _SHORT
    if int(is_felt.sum()) > most:
        return None
    basis = torch.cat([root, dropped[:, is_felt] * sizes[is_felt]], dim=1)
    both = torch.cat([first, second[is_felt] / sizes[is_felt, None]])
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
    """Give the squared distance to the nearest class less that to all rows as one."""
    shift, columns, offsets, weights = (tensor.to(features.device) for tensor in classes)

    def difference(rows: Tensor) -> Tensor:
        products = narrow_product(centered(rows, shift), columns)[: len(rows)]
        linear, quadratic = products.tensor_split([len(offsets)], dim=1)
        return (offsets - 2 * linear).amin(dim=1) + quadratic.square() @ weights

    return by_chunk(difference, features, rows=_ROWS)


_ROWS = 1024  # a block of distances to 1000 classes then stays in cache
_SMALL = 2**16  # multiplications per row below which float64 costs nothing worth saving
_FLOAT32_ERROR = 1e-6  # of the mean distance, where all directions are taken in float32
_ROUGH_ERROR = 5e-7  # of a distance, where only some directions are taken in float32
_LEADING = 8  # directions without which most rows are short
_TRIAL_ROWS = 1024


class WhitenedClasses(NamedTuple):
    """Class means after `(x - shift) @ whitening`, where Mahalanobis distances are Euclidean.

    Float32 loses digits where a direction varies much less than rows are long. Where that matters,
    `whitening` holds in float64 first the leading directions, which vary most, then those that vary
    least; `rough_whitening` holds all others in float32. They are applied to what is left of a row
    without its leading directions, `row - coordinates @ leading`, which is short. Elsewhere there
    are no leading and no rough directions, and `whitening` is a lower trapezoid; as is the rough.
    """

    shift: Float[Tensor, "d"]
    whitening: Float[Tensor, "d rank"]
    means: Float[Tensor, "classes rank"]
    leading: Float[Tensor, "lead d"]
    rough_whitening: Float[Tensor, "d rough"]
    rough_means: Float[Tensor, "classes rough"]


def whitened_classes(
    features: Float[Tensor, "n d"],
    means: Float[Tensor, "classes d"],
    root: Float[Tensor, "d rank"],
) -> WhitenedClasses:
    """Prepare `smallest_class_distance` in the cheapest precision that is good enough.

    Products are taken in float32 where that pays and where, on some of the `features`, no
    distance is off by more than 1e-6 of their mean; in float32 for those directions that leave
    every distance right to about 1e-6 where these are most; otherwise in float64.

    Args:
        features: Known rows.
        means: Of the classes.
        root: The `statistics.whitening` of the covariance they share.
    """
    exact = exact_whitened_classes(means, root)
    cheaper = float32_if_right(features, exact, _FLOAT32_ERROR)
    if cheaper is not exact or not _is_worth_it(features, exact):
        return cheaper
    trial = _some(features)
    distances = smallest_class_distance(trial, exact)
    mixed = _of_two_precisions(trial, means, root)
    error = (smallest_class_distance(trial, mixed) - distances).abs()
    is_right = (error <= 2 * _ROUGH_ERROR * _at_least_usual(distances)).all()
    return mixed if is_right and mixed.rough_whitening.shape[1] > root.shape[1] // 2 else exact


def float32_if_right(
    features: Float[Tensor, "n d"], exact: WhitenedClasses, most: float
) -> WhitenedClasses:
    """Give the same in float32 if that pays and errs, on some rows, by no more of their mean."""
    if not _is_worth_it(features, exact):
        return exact
    trial = _some(features)
    distances = smallest_class_distance(trial, exact)
    fast = WhitenedClasses(*(tensor.float() for tensor in exact))
    error = (smallest_class_distance(trial, fast) - distances).abs()
    return fast if error.max() <= most * distances.mean() else exact


def exact_whitened_classes(
    means: Float[Tensor, "classes d"], root: Float[Tensor, "d rank"]
) -> WhitenedClasses:
    """Prepare `smallest_class_distance` in float64."""
    return without_rough(means, trapezoid(root))


def without_rough(
    means: Float[Tensor, "classes d"], root: Float[Tensor, "d rank"]
) -> WhitenedClasses:
    """Prepare the same where the root is a trapezoid already."""
    shift = _shift_of(means)
    none = shift.new_zeros(0, len(shift)), shift.new_zeros(len(shift), 0)
    centers = (means - shift) @ root
    return WhitenedClasses(shift, root, centers, *none, centers[:, :0])


def smallest_class_distance(
    features: Float[Tensor, "n d"], classes: WhitenedClasses
) -> Float[Tensor, "n"]:
    r"""Give the squared Mahalanobis distance of each row to the nearest class mean.

    $|z - m_c|^2 = |z|^2 - 2 z^T m_c + |m_c|^2$ finds the nearest class with two matrix products;
    its distance is then taken from the difference itself, which does not cancel.
    """
    on_device = WhitenedClasses(*(tensor.to(features.device) for tensor in classes))
    means = (on_device.means, on_device.rough_means)

    def distance(rows: Tensor) -> Tensor:
        whitened = _whiten(rows, on_device)
        gaps = (
            z.sub_(m)[: len(rows)] for z, m in zip(whitened, _nearest(whitened, means), strict=True)
        )
        return torch.stack([gap.square_().sum(dim=1, dtype=torch.float64) for gap in gaps]).sum(0)

    return by_chunk(distance, features, rows=_ROWS)


def _of_two_precisions(trial: Tensor, means: Tensor, root: Tensor) -> WhitenedClasses:
    """Leave as many directions to float32 as a trial shows to be harmless.

    The columns of `root` are in order of rising variance.
    """
    shift = _shift_of(means)
    others, lead = root.tensor_split([root.shape[1] - _LEADING], dim=1)
    leading = (lead / lead.square().sum(dim=0)).T.contiguous()  # unit directions times deviations
    rows = trial.double() - shift
    centers = (means - shift) @ root
    whitened = rows @ root
    (nearest,) = _nearest([whitened], [centers])
    exact = (whitened - nearest).square_()
    rest = torch.addmm(rows, rows @ lead, leading, alpha=-1)
    rough = (rest.float() @ others.float()).sub_(nearest[:, : others.shape[1]].float())
    errors = (rough.double().square_() - exact[:, : others.shape[1]]).flip(1).cumsum(dim=1)
    allowed = _ROUGH_ERROR * _at_least_usual(exact.sum(dim=1))
    n_rough = int((errors.abs() <= allowed[:, None]).all(dim=0).cumprod(dim=0).sum())
    narrow, wide = others.tensor_split([others.shape[1] - n_rough], dim=1)
    both, turned = torch.cat([lead, narrow], dim=1), trapezoid(wide)
    rough_means = (means - shift) @ turned
    return WhitenedClasses(
        shift, both, (means - shift) @ both, leading, turned.float(), rough_means.float()
    )


def _is_worth_it(features: Tensor, exact: WhitenedClasses) -> bool:
    n_products = exact.whitening.numel() + exact.means.numel()
    return n_products >= _SMALL and features.dtype != torch.float64


def _some(features: Tensor) -> Tensor:
    return features[:: max(1, len(features) // _TRIAL_ROWS)]


def _shift_of(means: Tensor) -> Float[Tensor, "d"]:
    return means.mean(dim=0).float().double()  # a float32 copy then subtracts the same number


def _at_least_usual(distances: Tensor) -> Float[Tensor, "n"]:
    """Give distances to relate errors to; a row on its mean has none worth the name."""
    return distances.clamp_min(1e-3 * float(distances.mean()))


def _whiten(rows: Tensor, classes: WhitenedClasses) -> tuple[Tensor, Tensor]:
    """Give the coordinates of rows along exact and along rough directions."""
    gaps, n_leading = centered(rows, classes.shift), len(classes.leading)
    if not n_leading:
        return trapezoid_product(gaps, classes.whitening), gaps[:, :0]
    exact = gaps @ classes.whitening
    rest = gaps.addmm_(exact[:, :n_leading], classes.leading, alpha=-1)
    return exact, trapezoid_product(rest.float(), classes.rough_whitening)


def _nearest(whitened: Sequence[Tensor], means: Sequence[Tensor]) -> list[Tensor]:
    """Give the nearest mean of each row, in all tables that hold some of the coordinates."""
    if len(means[0]) == 1:
        return list(means)
    halves = [
        torch.addmm(m.square().sum(dim=1) / 2, z, m.T, alpha=-1)
        for z, m in zip(whitened, means, strict=True)
        if m.shape[1]
    ]
    nearest = (halves[0] if len(halves) == 1 else halves[0] + halves[1]).argmin(dim=1)
    return [m[nearest] for m in means]
