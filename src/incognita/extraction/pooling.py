"""Arithmetic on the map of a layer: its mean, its Gram matrices, its largest direction."""

from collections.abc import Sequence

import torch
from torch import Tensor

from incognita.errors import InvalidDataError
from incognita.shapes import Float

_POOLED_AT_ONCE = 16  # images; new memory for a whole bfloat16 map as float32 costs 5 x the mean


def channels_by_positions(layer_map: Tensor) -> Float[Tensor, "n channels positions"]:
    """Give the map of a layer as one matrix per image.

    >>> channels_by_positions(torch.zeros(2, 5, 3, 3)).shape  # a convolution
    torch.Size([2, 5, 9])
    >>> channels_by_positions(torch.zeros(2, 9, 5)).shape  # tokens
    torch.Size([2, 5, 9])
    """
    if layer_map.ndim == 4:
        return layer_map.flatten(2)
    if layer_map.ndim == 3:
        return layer_map.transpose(1, 2)
    if layer_map.ndim == 2:  # a layer of a perceptron: one position
        return layer_map.unsqueeze(2)
    raise InvalidDataError(
        f"The map of a layer must be [n, channels, height, width], [n, tokens, channels] or "
        f"[n, channels], but one of shape {list(layer_map.shape)} came; choose other layers."
    )


def pooled(layer_map: Tensor) -> Float[Tensor, "n channels"]:
    """Average a map over its positions, in float32.

    >>> pooled(torch.tensor([[[[1.0, 3.0]], [[0.0, 1.0]]]]))
    tensor([[2.0000, 0.5000]])
    """
    parts = torch.split(channels_by_positions(layer_map), _POOLED_AT_ONCE)
    return torch.cat([part.float().mean(dim=2) for part in parts])


def gram_rows(layer_map: Tensor, powers: Sequence[int]) -> Float[Tensor, "n powers channels"]:
    r"""Sum the rows of Gram matrices of several orders.

    For a map F [channels, positions] and order p it is the p-th root, with the sign kept, of the
    row sums of $F^p F^{pT}$, powers element by element (Sastry and Oore, Detecting
    Out-of-Distribution Examples with Gram Matrices, 2020, in the authors' code; the paper writes
    the root inside the sum). A row sum is $F^p$ times the sum of its rows, so that no Gram matrix
    is ever made. F is divided by its largest element first and the result multiplied by its
    square, which changes nothing but keeps $F^{10}$ inside float32.

    >>> gram_rows(torch.tensor([[[[1.0, 2.0]], [[0.0, -1.0]]]]), (1, 2))
    tensor([[[ 3.0000, -1.0000],
             [ 4.5826,  2.2361]]])
    """
    matrices = channels_by_positions(layer_map).float()
    largest = matrices.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-30)
    matrices = matrices / largest
    sums = []
    for power in powers:
        raised = _raised(matrices, power)
        rows = (raised @ raised.sum(dim=1)[:, :, None])[:, :, 0]
        sums.append(rows.abs().pow(1 / power).copysign(rows))
    return torch.stack(sums, dim=1) * largest.square()


def _raised(values: Tensor, power: int) -> Tensor:
    """Raise to a whole power by squaring, several times as fast as `pow`."""
    if power == 1:
        return values
    even = _raised(values, power // 2).square()
    return even * values if power % 2 else even


def without_largest_direction(layer_map: Tensor) -> Tensor:
    r"""Take the largest singular direction out of each map: $F - s_1 u_1 v_1^T$.

    The direction is the top eigenvector of the smaller of $F^T F$ and $F F^T$, in float64: at
    7 x 7 positions that is a 49 x 49 problem whatever the number of channels, and exact, where
    power iteration stops early when the two largest singular values are close.

    >>> without_largest_direction(torch.tensor([[[[3.0, 0.0]], [[0.0, 1.0]]]])).tolist()
    [[[[0.0, 0.0]], [[0.0, 1.0]]]]
    """
    matrices = channels_by_positions(layer_map).double()
    is_wide = matrices.shape[1] < matrices.shape[2]
    sides = matrices.mT if is_wide else matrices  # [n, long, short]
    # an image that already is not finite has no row in the end, but must not stop the others
    products = torch.nan_to_num(sides.mT @ sides)
    direction = torch.linalg.eigh(products).eigenvectors[..., -1:]
    rest: Tensor = sides - (sides @ direction) @ direction.mT
    rest = (rest.mT if is_wide else rest).to(layer_map.dtype)
    if layer_map.ndim == 4:
        return rest.reshape(layer_map.shape)
    return rest.transpose(1, 2) if layer_map.ndim == 3 else rest.squeeze(2)
