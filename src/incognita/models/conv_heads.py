"""A convolution as a linear layer: one head per anchor, and the patch that each of them saw."""

import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.models.introspection.head import head_of
from incognita.shapes import Float, Int


def conv_reason(conv: nn.Conv2d) -> str | None:
    """Say why a convolution is no linear layer of the patch at each place, where it is none."""
    is_plain = conv.groups == 1 and conv.stride == (1, 1) and conv.padding_mode == "zeros"
    if is_plain and not isinstance(conv.padding, str):
        return None
    return (
        f"The class layer {conv} has groups, a stride or a padding that leaves no patch per place."
    )


def conv_heads(conv: nn.Conv2d, n_columns: int) -> tuple[Head, ...]:
    """Cut a convolution into one linear head per anchor; they share its memory.

    >>> heads = conv_heads(nn.Conv2d(8, 6, 3), n_columns=2)
    >>> len(heads), heads[0].weight.shape
    (3, torch.Size([2, 72]))
    """
    whole = head_of(conv)
    starts = range(0, conv.out_channels, n_columns)
    places = [slice(start, start + n_columns) for start in starts]
    return tuple(Head(whole.weight[each], whole.bias[each]) for each in places)


def patches_at(
    conv: nn.Conv2d, seen: Float[Tensor, "channels height width"], places: Int[Tensor, "n"]
) -> Float[Tensor, "n d"]:
    """Give what a convolution saw at some places of a map, counted row by row; zeros outside.

    >>> conv = nn.Conv2d(1, 1, 3, padding=1)
    >>> patches_at(conv, torch.arange(1.0, 7).reshape(1, 2, 3), torch.tensor([0, 4]))
    tensor([[0., 0., 0., 0., 1., 2., 0., 4., 5.],
            [1., 2., 3., 4., 5., 6., 0., 0., 0.]])
    """
    height, width = seen.shape[1:]
    rows, is_row = _reach(conv, 0, places // width, height)
    columns, is_column = _reach(conv, 1, places % width, width)
    patches = seen[:, rows[:, :, None], columns[:, None, :]]
    is_inside = is_row[:, :, None] & is_column[:, None, :]
    return (patches * is_inside).transpose(0, 1).flatten(1)


def _reach(
    conv: nn.Conv2d, axis: int, places: Int[Tensor, "n"], side: int
) -> tuple[Int[Tensor, "n kernel"], Tensor]:
    """Give the rows or columns that the kernel covers at each place, and which of them exist."""
    kernel = torch.arange(conv.kernel_size[axis], device=places.device) * conv.dilation[axis]
    covered = places[:, None] + kernel - int(conv.padding[axis])
    return covered.clamp(0, side - 1), (covered >= 0) & (covered < side)
