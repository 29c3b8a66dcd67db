"""Statistics of layer maps: means over an image or a box, Gram matrices, singular directions."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from incognita.errors import InvalidDataError
from incognita.shapes import Float, Int

_POOLED_AT_ONCE = 16  # images; bounds the float32 copy of a bfloat16 map


def channels_by_positions(layer_map: Tensor) -> Float[Tensor, "n channels positions"]:
    """Return the map of a layer as one matrix per image.

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
        f"Expected the map of a layer as [n, channels, height, width], [n, tokens, channels] or "
        f"[n, channels], got shape {list(layer_map.shape)}. Choose other layers."
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
    """Raise to an integer power by repeated squaring."""
    if power == 1:
        return values
    even = _raised(values, power // 2).square()
    return even * values if power % 2 else even


def without_largest_direction(layer_map: Tensor) -> Tensor:
    r"""Remove the largest singular direction of each map: $F - s_1 u_1 v_1^T$.

    The direction is the top eigenvector of the smaller of $F^T F$ and $F F^T$, in float64: at
    7 x 7 positions that is a 49 x 49 problem whatever the number of channels, and exact, where
    power iteration stops early when the two largest singular values are close.

    >>> without_largest_direction(torch.tensor([[[[3.0, 0.0]], [[0.0, 1.0]]]])).tolist()
    [[[[0.0, 0.0]], [[0.0, 1.0]]]]
    """
    matrices = channels_by_positions(layer_map).double()
    is_wide = matrices.shape[1] < matrices.shape[2]
    sides = matrices.mT if is_wide else matrices  # [n, long, short]
    # an image that is not finite fails later, but must not stop the others here
    products = torch.nan_to_num(sides.mT @ sides)
    direction = torch.linalg.eigh(products).eigenvectors[..., -1:]
    rest: Tensor = sides - (sides @ direction) @ direction.mT
    rest = (rest.mT if is_wide else rest).to(layer_map.dtype)
    if layer_map.ndim == 4:
        return rest.reshape(layer_map.shape)
    return rest.transpose(1, 2) if layer_map.ndim == 3 else rest.squeeze(2)


# FindMeIfYouCan takes R = 9 for LaRD (D.2.4); SAFE pools to one cell, and the mean of 9 x 9 cells
# is that cell sampled more densely, so that one column serves both
CELLS = 9
_SAMPLES = 2  # per cell and side
_CANONICAL_SIDE, _CANONICAL_LEVEL = 224.0, 4  # Lin et al., Feature Pyramid Networks, eq. 1


def pool_boxes(
    maps: Mapping[str, Sequence[Tensor]],
    rois: Sequence[Float[Tensor, "_ 4"]],
    input_size: tuple[int, int],
) -> dict[str, Float[Tensor, "_ _"]]:
    """Average each layer over each box, by RoIAlign to 9 x 9 cells and their mean.

    Args:
        maps: The levels of each layer, [n, channels, height, width].
        rois: The boxes of each image in fractions of the input.
        input_size: Height and width of the input.
    """
    boxes = torch.cat(list(rois))
    images = torch.cat(
        [torch.full((len(part),), k, device=part.device) for k, part in enumerate(rois)]
    )
    return {name: _pool(levels, boxes, images, input_size) for name, levels in maps.items()}


def _pool(
    levels: Sequence[Tensor],
    boxes: Float[Tensor, "boxes 4"],
    images: Int[Tensor, "boxes"],
    input_size: tuple[int, int],
) -> Float[Tensor, "boxes channels"]:
    level_of_box = _levels_of(levels, boxes, input_size)
    out = levels[0].new_zeros(len(boxes), levels[0].shape[1], dtype=torch.float32)
    for k, layer_map in enumerate(levels):
        is_here = level_of_box == k
        if is_here.any():
            out[is_here] = _aligned(layer_map.float(), boxes[is_here].float(), images[is_here])
    return out


def _aligned(
    layer_map: Tensor, boxes: Float[Tensor, "boxes 4"], images: Int[Tensor, "boxes"]
) -> Float[Tensor, "boxes channels"]:
    """Average a map over boxes: RoIAlign and the mean of its cells as one product of matrices.

    Samples lie on a grid, and bilinear interpolation is a product of one weight per row and one
    per column. So is the mean of all samples: nothing of size cells x channels is ever made.
    """
    height, width = layer_map.shape[-2:]
    rows = _sample_weights(boxes[:, 1], boxes[:, 3], height)
    columns = _sample_weights(boxes[:, 0], boxes[:, 2], width)
    places = (rows[:, :, None] * columns[:, None, :]).flatten(1)
    out = layer_map.new_empty(len(boxes), layer_map.shape[1])
    for k in sorted(set(images.tolist())):
        here = images == k
        out[here] = places[here] @ layer_map[k].flatten(1).T
    return out


def _sample_weights(
    start: Float[Tensor, "boxes"], stop: Float[Tensor, "boxes"], size: int
) -> Float[Tensor, "boxes size"]:
    """Compute the weight of each position of an axis in the mean of a box's samples.

    Samples as RoIAlign takes them, `aligned`: evenly spaced, half a cell off the corners; one
    beyond the map by a whole cell counts as zero, one at its rim as the rim.
    """
    n = CELLS * _SAMPLES
    offsets = (torch.arange(n, device=start.device, dtype=start.dtype) + 0.5) / n
    at = size * (start[:, None] + (stop - start)[:, None] * offsets) - 0.5
    is_inside = (at >= -1) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor().long().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    share = at - low
    counted = is_inside.to(start.dtype) / n
    weights = start.new_zeros(len(start), size)
    weights.scatter_add_(1, low, (1 - share) * counted)
    return weights.scatter_add_(1, high, share * counted)


def _levels_of(
    levels: Sequence[Tensor], boxes: Float[Tensor, "boxes 4"], input_size: tuple[int, int]
) -> Int[Tensor, "boxes"]:
    """Choose the level of a pyramid for each box, large boxes on coarse levels.

    k = floor(4 + log2(side / 224)) is the level whose stride is 2^k; the available level with the
    nearest stride is chosen.
    """
    if len(levels) == 1:
        return torch.zeros(len(boxes), dtype=torch.long, device=boxes.device)
    height, width = input_size
    sides = ((boxes[:, 2:] - boxes[:, :2]).clamp_min(0) * boxes.new_tensor([width, height])).prod(1)
    level = torch.floor(
        _CANONICAL_LEVEL + torch.log2(sides.sqrt().clamp_min(1e-6) / _CANONICAL_SIDE)
    )
    strides = boxes.new_tensor([height / layer_map.shape[-2] for layer_map in levels])
    return (level[:, None] - torch.log2(strides)[None, :]).abs().argmin(dim=1)
