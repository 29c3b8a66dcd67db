"""Products of many rows with matrices of a shape that lets part of the work be left out."""

import torch
from torch import Tensor

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
