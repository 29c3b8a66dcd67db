"""One call of a YOLO: what is taken on the way, and what lies behind each anchor."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from incognita.errors import InvalidDataError
from incognita.shapes import Float, Int


class YoloPass:
    """What hooks take from a call: the class branch of each level, maps, boxes before a top-k."""

    def __init__(self) -> None:
        self.features: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.maps: dict[str, tuple[Tensor, ...]] = {}
        self.boxes: Tensor | None = None

    def take_level(self, _: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Hook of the linear layer of a level: its input are features, its output is logits."""
        self.features.append(args[0])
        self.logits.append(output)

    def taker(self, name: str) -> Callable[..., None]:
        """Give the hook that takes the map of a layer."""

        def take(_: nn.Module, args: Any, output: Any) -> None:
            if not isinstance(output, Tensor) or output.ndim != 4:
                raise InvalidDataError(
                    f"Layer {name!r} gives no map [n, channels, height, width]; choose another."
                )
            # a copy, because the activation behind many layers writes into its input
            self.maps[name] = (*self.maps.get(name, ()), output.clone())

        return take

    def check_maps(self, names: Sequence[str]) -> None:
        """Refuse layers that the call did not come through, such as a list of others."""
        for name in names:
            if name not in self.maps:
                raise InvalidDataError(f"Layer {name!r} is never called itself; choose another.")

    def marked(self, top_k: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Let the top-k of a head without NMS carry the number of the anchor instead of its box."""

        def choose(decoded: Tensor, *rest: Any) -> Tensor:
            self.boxes = decoded[..., :4]
            numbers = torch.arange(decoded.shape[1], device=decoded.device, dtype=torch.float32)
            marks = numbers[:, None].expand(len(decoded), -1, 4)
            return top_k(torch.cat([marks, decoded[..., 4:]], dim=-1), *rest)

        return choose

    def levels_of(self, anchors: Int[Tensor, "boxes"]) -> Int[Tensor, "boxes"]:
        """Tell which level each anchor belongs to."""
        n_cells = [each.shape[2] * each.shape[3] for each in self.logits]
        ends = torch.tensor(n_cells, device=anchors.device).cumsum(0)
        return torch.bucketize(anchors, ends, right=True)


@contextmanager
def forgetful(head: Any, device: torch.device) -> Iterator[None]:
    """Let a head forget the grid of its last call, and leave it afterwards as it was found.

    A head keeps the grid while the shape is the same, but the one that `predict` made cannot be
    differentiated through, and one may be left from another device or precision.
    """
    before = dict(vars(head))
    head.shape, head.export, head.agnostic_nms = None, False, False
    head.stride = head.stride.to(device)  # no buffer: what moves the weights may leave it behind
    try:
        yield
    finally:
        vars(head).clear()
        vars(head).update(before)


def rows_at(
    levels: Sequence[Float[Tensor, "n _ _ _"]], image: int, anchors: Int[Tensor, "boxes"]
) -> Float[Tensor, "boxes d"]:
    """Take the columns of an image at anchors, counted through all levels, row by row.

    Rows of a level that is narrower than the widest end in zeros.

    >>> fine, coarse = torch.arange(8.0).view(1, 2, 2, 2), torch.full((1, 1, 1, 1), 9.0)
    >>> rows_at([fine, coarse], 0, torch.tensor([4, 1]))
    tensor([[9., 0.],
            [1., 5.]])
    """
    rows = levels[0].new_zeros(len(anchors), max(level.shape[1] for level in levels))
    first = 0
    for level in levels:
        cells = level[image].flatten(1)
        is_here = (anchors >= first) & (anchors < first + cells.shape[1])
        rows[is_here, : len(cells)] = cells[:, anchors[is_here] - first].T
        first += cells.shape[1]
    return rows


def fractions_of_input(
    boxes: Float[Tensor, "boxes 4"], input_size: tuple[int, int], size: tuple[int, int]
) -> Float[Tensor, "boxes 4"]:
    """Give boxes in fractions of the input, cut off where the image ends and the padding begins.

    The image, of a height and width `size`, was scaled to fit and put into the middle.

    >>> fractions_of_input(torch.tensor([[0.0, 0.0, 32.0, 64.0]]), (64, 64), (50, 100))
    tensor([[0.0000, 0.2500, 0.5000, 0.7500]])
    """
    gain = min(input_size[0] / size[0], input_size[1] / size[1])
    inner = [max(round(side * gain), 1) for side in size]
    # an odd pixel of padding goes below and to the right, as where the image was padded
    top, left = (
        round((outer - side) / 2 - 0.1) for outer, side in zip(input_size, inner, strict=True)
    )
    least = boxes.new_tensor([left, top, left, top])
    most = least + boxes.new_tensor([*inner[::-1], *inner[::-1]])
    return boxes.clamp(least, most) / boxes.new_tensor([*input_size[::-1], *input_size[::-1]])
