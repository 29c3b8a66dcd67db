r"""How much farther rows are from the nearest class than from all known rows taken as one.

With $w = W^T (x - \mu_0)$ and $w_0 = W_0^T (x - \mu_0)$, where W whitens within classes, $W_0$ over
all and $m_c = W^T (\mu_c - \mu_0)$, the difference of the squared distances is
$\min_c (|m_c|^2 - 2 w^T m_c) + |w|^2 - |w_0|^2$. Both covariances differ by the spread of the class
means alone, so in all but a few directions $|w|^2$ and $|w_0|^2$ are the same: what is left is a
quadratic form of low rank, and neither whitening has to be multiplied out.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from incognita.methods.numerics.rows import by_chunk
from incognita.methods.products import centered, narrow_product
from incognita.shapes import Float

_ROWS = 1024
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
