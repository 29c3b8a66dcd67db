"""One call of a YOLO: what is taken on the way, and what lies behind each anchor."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch._tensor_str import printoptions

from incognita.errors import InvalidDataError, MissingDataError
from incognita.models.weights_io import load_weights, read_weights
from incognita.registry import need
from incognita.shapes import Float, Int

# read when ultralytics is imported: no network is asked, nothing is installed, nothing is printed
_SWITCHES = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_VERBOSE": "false"}


@cache
def part(name: str) -> ModuleType:
    """Import a part of ultralytics, such as `utils.ops`, and undo what that changes elsewhere.

    Importing it looks for a network, sets how arrays are printed and how many threads OpenCV has,
    and leaves variables in the environment that child processes inherit.
    """
    environment, n_threads = dict(os.environ), cv2.getNumThreads()
    os.environ.update({**_SWITCHES, **environment})
    try:
        with np.printoptions(), printoptions():
            return need(f"ultralytics.{name}", extra="ultralytics")
    finally:
        cv2.setNumThreads(n_threads)
        os.environ.clear()
        os.environ.update(environment)


_LONGEST_REASON = 160
_CLASS_BIAS = r"model\.\d+\.cv3\.0\.2\.bias"  # of the finest level of a head `Detect`


def open_network(spec: str, weights: Path | None) -> Any:
    """Open `weights.pt`, or build `yolov8n.yaml` for a weights file."""
    is_definition = spec.lower().endswith((".yaml", ".yml"))
    network = _defined(spec, weights) if is_definition else _pickled(Path(spec))
    if weights is not None:
        load_weights(network, weights)
    return network


def _defined(spec: str, weights: Path | None) -> Any:
    """Build the network of a definition, with as many classes as the weights have."""
    if weights is None:
        raise InvalidDataError(
            f"{spec} defines a network without weights; give them with --weights FILE."
        )
    biases = [
        each for name, each in read_weights(weights).items() if re.fullmatch(_CLASS_BIAS, name)
    ]
    n_classes = len(biases[0]) if biases else None
    return part("nn.tasks").DetectionModel(_definition(spec), nc=n_classes, verbose=False)


def _definition(spec: str) -> dict[str, Any]:
    try:
        if "://" in spec:
            raise FileNotFoundError(spec)
        definition: dict[str, Any] = part("nn.tasks").yaml_model_load(spec)
    except FileNotFoundError as error:
        raise MissingDataError(
            f"There is no definition {spec}, neither at hand nor in ultralytics, and nothing is "
            f"downloaded; name one such as yolov8n.yaml."
        ) from error
    return definition


def _pickled(path: Path) -> Any:
    if not path.is_file():
        raise MissingDataError(
            f"There is no file at {path}, and nothing is downloaded; name a .pt file of "
            f"ultralytics, or a definition such as yolov8n.yaml with --weights FILE."
        )
    if not hasattr(part("utils"), "SAFE_LOAD"):
        raise InvalidDataError(
            f"This version of ultralytics would run code of {path} to open it; install a newer "
            f"one, or give a definition such as yolov8n.yaml with --weights FILE."
        )
    try:
        content, _ = part("nn.tasks").torch_safe_load(str(path), safe_only=True)
        network = content.get("ema") or content["model"]
        network.args = content.get("train_args") or {}
        return network.float()
    except Exception as error:  # a foreign file ends in whatever the loader stumbles over
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON].rstrip(".")
        raise InvalidDataError(
            f"{path} is no model that ultralytics opens without running code of it ({reason}); "
            f"save the model's state_dict() as safetensors, and give its definition with "
            f"--weights FILE."
        ) from error


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
