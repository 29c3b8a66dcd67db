"""YOLO detectors of ultralytics, YOLOv8 and later, with logits and features of each kept box.

ultralytics is AGPL-3.0: an optional extra, imported only by `part` when one of its models is
wrapped or loaded.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import torch

# with torchvision loaded, ultralytics uses its kernel for non-maximum suppression, else its own
import torchvision  # type: ignore[import-untyped]  # noqa: F401
from PIL import Image
from torch import Tensor, nn
from torch._tensor_str import printoptions

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, MissingDataError
from incognita.models.detector import (
    BoxFilter,
    DetectorAdapter,
    DetectorForward,
    HeadKind,
    ImageDetections,
    PreprocessedImage,
    name_layers,
)
from incognita.models.fingerprints import hash_weights
from incognita.models.introspection import eval_mode, head_of, unwrap
from incognita.models.load import ModelOptions, load_weights, read_weights
from incognita.registry import need
from incognita.shapes import Float, Int, Shaped

# the defaults of `YOLO.predict`
_RULES = BoxFilter(score_threshold=0.25, max_per_image=300, nms_iou=0.7)
_SIDE, _LEAST_STRIDE, _LEAST_TOP_K = 640, 32, 300
_HEADS = ("Detect", "v10Detect")
_LONGEST_REASON = 160
_CLASS_BIAS = r"model\.\d+\.cv3\.0\.2\.bias"  # of the finest level of a head `Detect`

# read when ultralytics is imported: no downloads, no installation, no printing
_SWITCHES = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_VERBOSE": "false"}
# functions that ultralytics replaces for the whole process
_PATCHED: tuple[tuple[Any, str], ...] = (
    (Image, "open"),
    (torch, "save"),
    (cv2, "imread"),
    (cv2, "imwrite"),
    (cv2, "imshow"),
)


@cache
def part(name: str) -> ModuleType:
    """Import a part of ultralytics, such as `utils.ops`, and undo its changes to the process.

    The import replaces functions of PIL, torch and OpenCV, adds warning filters, sets how arrays
    are printed and the number of threads of OpenCV, and leaves variables in the environment that
    child processes inherit.
    """
    environment, n_threads = dict(os.environ), cv2.getNumThreads()
    functions = [(owner, attribute, getattr(owner, attribute)) for owner, attribute in _PATCHED]
    os.environ.update({**_SWITCHES, **environment})
    try:
        with np.printoptions(), printoptions(), warnings.catch_warnings():
            return need(f"ultralytics.{name}", extra="ultralytics")
    finally:
        for owner, attribute, function in functions:
            setattr(owner, attribute, function)
        cv2.setNumThreads(n_threads)
        os.environ.clear()
        os.environ.update(environment)


# one call of a network ------------------------------------------------------------------------


class YoloPass:
    """Tensors recorded in one call: class branch of each level, maps, boxes before top-k."""

    def __init__(self) -> None:
        self.features: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.maps: dict[str, tuple[Tensor, ...]] = {}
        self.boxes: Tensor | None = None

    def take_level(self, _: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Record features and logits, the input and output of the linear layer of a level."""
        self.features.append(args[0])
        self.logits.append(output)

    def taker(self, name: str) -> Callable[..., None]:
        """Return a hook that records the map of a layer."""

        def take(_: nn.Module, args: Any, output: Any) -> None:
            if not isinstance(output, Tensor) or output.ndim != 4:
                raise InvalidDataError(
                    f"Layer {name!r} does not return a map [n, channels, height, width]; choose "
                    f"another."
                )
            # a copy, because the activation after many layers works in place
            self.maps[name] = (*self.maps.get(name, ()), output.clone())

        return take

    def check_maps(self, names: Sequence[str]) -> None:
        """Raise if a layer was not called, such as a list of modules."""
        for name in names:
            if name not in self.maps:
                raise InvalidDataError(f"Layer {name!r} is never called itself; choose another.")

    def marked(self, top_k: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a top-k of a head without NMS that returns anchor indices instead of boxes."""

        def choose(decoded: Tensor, *rest: Any) -> Tensor:
            self.boxes = decoded[..., :4]
            numbers = torch.arange(decoded.shape[1], device=decoded.device, dtype=torch.float32)
            marks = numbers[:, None].expand(len(decoded), -1, 4)
            return top_k(torch.cat([marks, decoded[..., 4:]], dim=-1), *rest)

        return choose

    def levels_of(self, anchors: Int[Tensor, "boxes"]) -> Int[Tensor, "boxes"]:
        """Return the level of each anchor."""
        n_cells = [level.shape[2] * level.shape[3] for level in self.logits]
        ends = torch.tensor(n_cells, device=anchors.device).cumsum(0)
        return torch.bucketize(anchors, ends, right=True)


@contextmanager
def without_cached_grid(head: Any, device: torch.device) -> Iterator[None]:
    """Clear the cached grid of a head within the context, and restore its attributes.

    A head caches the grid while the shape stays the same, but that of `predict` does not allow
    gradients, and it may be on another device or of another precision.
    """
    before = dict(vars(head))
    head.shape, head.export, head.agnostic_nms = None, False, False
    head.stride = head.stride.to(
        device
    )  # not a buffer, so that moving the weights may leave it behind
    try:
        yield
    finally:
        vars(head).clear()
        vars(head).update(before)


def rows_at(
    levels: Sequence[Float[Tensor, "n _ _ _"]], image: int, anchors: Int[Tensor, "boxes"]
) -> Float[Tensor, "boxes d"]:
    """Return the vectors of an image at anchors, counted through all levels, row by row.

    Vectors of narrower levels are padded with zeros.

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
    """Return boxes in fractions of the input, clipped to the image without padding.

    The image, of height and width `size`, was scaled to fit and centered.

    >>> fractions_of_input(torch.tensor([[0.0, 0.0, 32.0, 64.0]]), (64, 64), (50, 100))
    tensor([[0.0000, 0.2500, 0.5000, 0.7500]])
    """
    gain = min(input_size[0] / size[0], input_size[1] / size[1])
    inner = [max(round(side * gain), 1) for side in size]
    # an odd pixel of padding is added below and to the right, as in LetterBox
    top, left = (
        round((outer - side) / 2 - 0.1) for outer, side in zip(input_size, inner, strict=True)
    )
    least = boxes.new_tensor([left, top, left, top])
    most = least + boxes.new_tensor([*inner[::-1], *inner[::-1]])
    return boxes.clamp(least, most) / boxes.new_tensor([*input_size[::-1], *input_size[::-1]])


# the adapter ----------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class UltralyticsDetector(DetectorAdapter):
    """A YOLO, made by `wrap_ultralytics_detector`.

    An image is preprocessed as by `YOLO.predict` of a single image: scaled to fit `image_size` and
    padded to the next multiple of the stride, not to a square. `heads` are the 1 x 1 convolutions
    at the end of the class branch, one per level; `source_index` counts the cells of all levels,
    the finest first, row by row.
    """

    module: Any
    image_size: tuple[int, int]

    def __post_init__(self) -> None:
        _check_rules(self.name, self.rules, self.module.model[-1])

    @property
    def heads(self) -> tuple[Head, ...]:
        """The linear layer of each level, with its current weights."""
        return tuple(head_of(layer) for layer in _linear_layers(self.module.model[-1]))

    @property
    def weights_hash(self) -> str:
        """The sha256 of the network with its current weights."""
        return hash_weights(self.module)

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Scale and pad a uint8 RGB image as `predict` does, and divide by 255."""
        if image.dtype != np.uint8 or not image.size:
            raise InvalidDataError(
                f"Expected a uint8 RGB image with at least one pixel, got shape "
                f"{list(image.shape)} and type {image.dtype}; convert it first."
            )
        letterbox = part("data.augment").LetterBox(
            self.image_size, auto=True, stride=_stride(self.module)
        )
        pixels = torch.from_numpy(letterbox(image=np.ascontiguousarray(image)))
        return PreprocessedImage(pixels.permute(2, 0, 1).float().div_(255), *image.shape[:2])

    def detect(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool
    ) -> DetectorForward:
        """Call the network once and keep boxes as `predict` does."""
        height, width = batch.shape[-2:]
        seen, output = self._run(batch, layers=layers)
        choose = _by_nms if seen.boxes is None else _by_top_k
        images = tuple(
            _detections(seen, place, *kept, input_size=(height, width), size=size)
            for place, (kept, size) in enumerate(
                zip(choose(seen, output, self.rules), sizes, strict=True)
            )
        )
        return DetectorForward(images, seen.maps, (height, width))

    def _run(self, batch: Tensor, *, layers: bool) -> tuple[YoloPass, Tensor]:
        head, seen = self.module.model[-1], YoloPass()
        _check_rules(self.name, self.rules, head)
        with eval_mode(self.module), without_cached_grid(head, batch.device), ExitStack() as hooks:
            for layer in _linear_layers(head):
                hooks.callback(layer.register_forward_hook(seen.take_level).remove)
            for source in self.recorded if layers else ():
                layer = self.module.get_submodule(source.submodule)
                hooks.callback(layer.register_forward_hook(seen.taker(source.layer)).remove)
            if head.end2end:
                head.max_det = max(self.rules.max_per_image, _LEAST_TOP_K)  # as `predict` does
                head.postprocess = seen.marked(head.postprocess)
            output: Tensor = self.module(batch)[0]
        seen.check_maps(self.layers if layers else ())
        return seen, output


def wrap_ultralytics_detector(
    module: nn.Module,
    *,
    class_names: Sequence[str] | None = None,
    rules: BoxFilter | None = None,
    name: str | None = None,
    latent: str | None = None,
    shortcuts: Sequence[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> UltralyticsDetector:
    """Wrap an `ultralytics.YOLO`, or the `DetectionModel` inside, as a detector.

    Boxes, labels and confidence are those of `YOLO.predict`. For a model that also has a head
    without NMS (YOLOv10, YOLO26), its `end2end` decides: the usual head with NMS where it is off,
    the top k of the other head where it is on. Only plain boxes of fixed classes are supported:
    masks, key points, rotated boxes, open-vocabulary models and RT-DETR (wrapped from
    transformers) are refused.

    Args:
        module: The model, of the task detect.
        class_names: One per logit; those of the model by default.
        rules: Which boxes are kept; by default as `predict` does: confidence above 0.25, IoU at
            most 0.7, at most 300 per image.
        name: Name of the detector in results; the name of its definition by default.
        latent: The submodule that LaRD reads; the last of the backbone by default.
        shortcuts: The submodules that SAFE reads; none by default, because these networks have no
            convolution in a shortcut.
        image_size: Side, or height and width, that an image is scaled to fit; the size of training
            by default, or 640 if it is not known.
    """
    network = _network(module)
    name = name or Path(str(network.yaml.get("yaml_file", type(network).__name__))).stem
    head = network.model[-1]
    if rules is None:
        rules = replace(_RULES, nms_iou=None) if head.end2end else _RULES
    size, stride = _image_size(network, image_size), _stride(network)
    return UltralyticsDetector(
        name=name,
        module=network,
        class_names=_checked_names(network, class_names),
        pixel_std=torch.ones(3),
        image_size=size,
        rules=rules,
        head_kind=HeadKind.SIGMOID,
        shares_features=False,
        recorded=name_layers(network, latent or _last_of_backbone(network), shortcuts or ()),
        preprocessing=f"letterbox of ultralytics to fit {size}, multiples of {stride}, over 255",
    )


def load_ultralytics_detector(spec: str, options: ModelOptions) -> UltralyticsDetector:
    """Load a detector from `weights.pt`, or from `yolov8n.yaml` and a weights file.

    Both are local files, or definitions that ship with ultralytics; nothing is downloaded. A .pt
    file of ultralytics is a pickled network. It is opened by the restricted loader of ultralytics,
    `torch.load(weights_only=True)` with a list of its classes, so that no code of the file is
    executed; a file that needs more is refused. To avoid pickle, save
    `YOLO(…).model.state_dict()` as safetensors and name the definition.

    Args:
        spec: The part after `ultralytics:`.
        options: Weights, class names and layers (the one that LaRD reads first).
    """
    if options.preprocess is not None:
        raise InvalidDataError(
            "Detectors of ultralytics do not take preprocess=, because boxes are scaled back "
            "through their own preprocessing; leave it out."
        )
    return wrap_ultralytics_detector(
        open_network(spec, options.weights),
        class_names=options.class_names,
        name=f"ultralytics:{Path(spec).name}",
        latent=options.latent,
        shortcuts=options.shortcuts,
    )


def _by_nms(
    seen: YoloPass, decoded: Float[Tensor, "n _ anchors"], rules: BoxFilter
) -> Iterable[tuple[Float[Tensor, "boxes 6"], Int[Tensor, "boxes"]]]:
    """Return boxes with confidence and class, and their anchors, for each image."""
    rows, anchors = part("utils.nms").non_max_suppression(
        decoded,
        conf_thres=rules.score_threshold,
        iou_thres=rules.nms_iou,
        max_det=rules.max_per_image,
        nc=seen.logits[0].shape[1],
        max_time_img=inf,  # results must not depend on the speed of the machine
        return_idxs=True,
    )
    return zip(rows, (indices.reshape(-1).long() for indices in anchors), strict=True)


def _by_top_k(
    seen: YoloPass, best: Float[Tensor, "n k 6"], rules: BoxFilter
) -> Iterator[tuple[Float[Tensor, "boxes 6"], Int[Tensor, "boxes"]]]:
    """Return the same for a head without NMS, whose rows hold the anchor in place of a box."""
    assert seen.boxes is not None
    for boxes, rows in zip(seen.boxes, best, strict=True):
        kept = rows[rows[:, 4] > rules.score_threshold][: rules.max_per_image]
        anchors = kept[:, 0].long()
        yield torch.cat([boxes[anchors], kept[:, 4:]], dim=1), anchors


def _detections(
    seen: YoloPass,
    place: int,
    rows: Float[Tensor, "boxes 6"],
    anchors: Int[Tensor, "boxes"],
    *,
    input_size: tuple[int, int],
    size: tuple[int, int],
) -> ImageDetections:
    return ImageDetections(
        xyxy=part("utils.ops").scale_boxes(input_size, rows[:, :4].clone(), size),
        confidence=rows[:, 4],
        class_ids=rows[:, 5].long(),
        logits=rows_at(seen.logits, place, anchors),
        background=None,
        features=rows_at(seen.features, place, anchors),
        source_index=anchors,
        head_index=seen.levels_of(anchors),
        rois=fractions_of_input(rows[:, :4], input_size, size),
    )


def _network(module: Any) -> Any:
    tasks, model = part("nn.tasks"), part("engine.model")
    network = unwrap(module.model if isinstance(module, model.Model) else module)
    kind = type(network).__name__
    if isinstance(network, tasks.DetectionModel):
        kind = type(network.model[-1]).__name__
        if kind in _HEADS:
            return network
    raise InvalidDataError(
        f"Expected a YOLO of the task detect with a head {_HEADS[0]} or {_HEADS[1]}, loaded from "
        f".pt or .yaml, got {kind}."
    )


def _linear_layers(head: Any) -> list[nn.Module]:
    levels = head.one2one_cv3 if head.end2end else head.cv3
    return [level[-1] for level in levels]


def _check_rules(name: str, rules: BoxFilter, head: Any) -> None:
    if head.end2end and rules.nms_iou is not None:
        raise InvalidDataError(
            f"Expected nms_iou=None, got {rules.nms_iou}: the head of {name} runs without "
            f"non-maximum suppression; or set end2end of the model to False and wrap it again."
        )
    if not head.end2end and rules.nms_iou is None:
        raise InvalidDataError(
            f"Expected rules with an nms_iou, such as 0.7, because {name} runs non-maximum "
            f"suppression, got None."
        )


def _checked_names(network: Any, given: Sequence[str] | None) -> tuple[str, ...]:
    own = network.names
    names = [own[k] for k in sorted(own)] if isinstance(own, Mapping) else own
    chosen = tuple(str(name) for name in (names if given is None else given))
    if len(chosen) != network.model[-1].nc:
        raise InvalidDataError(
            f"Expected one class name per class, got {len(chosen)} for a model of "
            f"{network.model[-1].nc} classes."
        )
    return chosen


def _last_of_backbone(network: Any) -> str:
    return f"model.{len(network.yaml['backbone']) - 1}"


def _stride(network: Any) -> int:
    return max(int(network.stride.max()), _LEAST_STRIDE)


def _image_size(network: Any, given: int | tuple[int, int] | None) -> tuple[int, int]:
    trained = getattr(network, "args", None) or {}
    trained = trained if isinstance(trained, Mapping) else vars(trained)
    size = trained.get("imgsz", _SIDE) if given is None else given
    height, width = part("utils.checks").check_imgsz(size, stride=_stride(network), min_dim=2)
    return int(height), int(width)


# files of ultralytics -------------------------------------------------------------------------


def open_network(spec: str, weights: Path | None) -> Any:
    """Open `weights.pt`, or build `yolov8n.yaml` for a weights file."""
    is_definition = spec.lower().endswith((".yaml", ".yml"))
    network = _defined(spec, weights) if is_definition else _pickled(Path(spec))
    if weights is not None:
        load_weights(network, weights)
    return network


def _defined(spec: str, weights: Path | None) -> Any:
    """Build the network of a definition with the number of classes of the weights."""
    if weights is None:
        raise InvalidDataError(
            f"{spec} defines a network without weights; pass them with --weights FILE."
        )
    biases = [
        bias for name, bias in read_weights(weights).items() if re.fullmatch(_CLASS_BIAS, name)
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
            f"There is no definition {spec}, neither as a file nor in ultralytics, and nothing is "
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
            f"This version of ultralytics would execute code of {path} to open it; install a newer "
            f"one, or name a definition such as yolov8n.yaml with --weights FILE."
        )
    try:
        content, _ = part("nn.tasks").torch_safe_load(str(path), safe_only=True)
        network = content.get("ema") or content["model"]
        network.args = content.get("train_args") or {}
        return network.float()
    except Exception as error:  # the loader raises anything on a foreign file
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON].rstrip(".")
        raise InvalidDataError(
            f"{path} cannot be opened by ultralytics without executing code of it ({reason}); "
            f"save the model's state_dict() as safetensors, and name its definition with "
            f"--weights FILE."
        ) from error
