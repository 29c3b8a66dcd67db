"""Detectors of ultralytics, YOLOv8 and later, with what stands behind each box they keep.

ultralytics is AGPL-3.0: an extra that is imported when a model of it is wrapped or loaded, through
`models.ultralytics_parts` and nowhere else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch

# ultralytics drops boxes by torchvision's kernel where that is loaded, else by its own: here always
import torchvision  # type: ignore[import-untyped]  # noqa: F401
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, unknown_name
from incognita.models.detector import (
    LATENT,
    SHORTCUT,
    BoxFilter,
    DetectorForward,
    HeadKind,
    ImageDetections,
    PreprocessedImage,
)
from incognita.models.fingerprints import PicklableAdapter, hash_weights
from incognita.models.from_ultralytics.yolo import (
    YoloPass,
    forgetful,
    fractions_of_input,
    open_network,
    part,
    rows_at,
)
from incognita.models.introspection.head import head_of
from incognita.models.introspection.hooks import eval_mode, unwrap
from incognita.models.load import ModelOptions
from incognita.shapes import Float, Int, Shaped

# those of `YOLO.predict`
_RULES = BoxFilter(score_threshold=0.25, max_per_image=300, nms_iou=0.7)
_SIDE, _LEAST_STRIDE, _LEAST_TOP_K = 640, 32, 300
_HEADS = ("Detect", "v10Detect")


@dataclass(eq=False)
class UltralyticsDetector(PicklableAdapter):
    """A YOLO behind the face of `models.detector.Detector`; made by `wrap_ultralytics_detector`.

    An image becomes what `YOLO.predict` makes of it when it is alone: scaled to fit `image_size`
    and padded to the next multiple of the stride, not to a square. `heads` are the 1 x 1
    convolutions that end the class branch, one per level; `source_index` counts the cells of all
    levels, the finest first, row by row.
    """

    name: str
    module: Any
    class_names: Sequence[str]
    image_size: tuple[int, int]
    rules: BoxFilter
    layers: Sequence[str]
    preprocessing: str
    pixel_std: Float[Tensor, "channels"] = field(default_factory=lambda: torch.ones(3))
    head_kind: HeadKind = HeadKind.SIGMOID
    shares_features: bool = False
    head_reason: str | None = None
    source: Path | None = None

    def __post_init__(self) -> None:
        _check_rules(self.name, self.rules, self.module.model[-1])

    @property
    def heads(self) -> tuple[Head, ...]:
        """The linear layer of each level, as the weights are now."""
        return tuple(head_of(layer) for layer in _linear_layers(self.module.model[-1]))

    @property
    def weights_hash(self) -> str:
        """The sha256 of the network as it is now."""
        return hash_weights(self.module)

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Scale and pad a uint8 RGB image as `predict` does, and divide it by 255."""
        if image.dtype != np.uint8 or not image.size:
            raise InvalidDataError(
                f"An image of shape {list(image.shape)} and type {image.dtype} came, but a "
                f"detector takes uint8 RGB with at least one pixel; convert it first."
            )
        letterbox = part("data.augment").LetterBox(
            self.image_size, auto=True, stride=_stride(self.module)
        )
        pixels = torch.from_numpy(letterbox(image=np.ascontiguousarray(image)))
        return PreprocessedImage(pixels.permute(2, 0, 1).float().div_(255), *image.shape[:2])

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        """Call the network once on preprocessed images of one shape; see `Detector`."""
        if len(sizes) != len(batch):
            raise InvalidDataError(
                f"{len(sizes)} sizes came for {len(batch)} images; give the height and width of "
                f"each as it was read."
            )
        height, width = batch.shape[-2:]
        if not len(batch):
            none: dict[str, tuple[Tensor, ...]] = {name: () for name in self.layers if layers}
            return DetectorForward((), none, (height, width))
        seen, output = self._run(batch, layers=layers)
        choose = _by_nms if seen.boxes is None else _by_top_k
        images = tuple(
            _found(seen, place, *kept, input_size=(height, width), size=size)
            for place, (kept, size) in enumerate(
                zip(choose(seen, output, self.rules), sizes, strict=True)
            )
        )
        return DetectorForward(images, seen.maps, (height, width))

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "UltralyticsDetector":
        """Give the same detector with other rules; what is None stays."""
        return replace(self, rules=self.rules.changed(score_threshold, max_per_image, nms_iou))

    def _run(self, batch: Tensor, *, layers: bool) -> tuple[YoloPass, Tensor]:
        head, seen = self.module.model[-1], YoloPass()
        _check_rules(self.name, self.rules, head)
        with eval_mode(self.module), forgetful(head, batch.device), ExitStack() as hooks:
            for layer in _linear_layers(head):
                hooks.callback(layer.register_forward_hook(seen.take_level).remove)
            for name in self.layers if layers else ():
                layer = self.module.get_submodule(name.partition("/")[2])
                hooks.callback(layer.register_forward_hook(seen.taker(name)).remove)
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
    """Make a detector of an `ultralytics.YOLO` or of the `DetectionModel` inside.

    Boxes, labels and confidence are those of `YOLO.predict`. A model that also has a head without
    NMS (YOLOv10, YOLO26) is read as it stands: by NMS of the usual head where its `end2end` is
    off, by the best of the other head where it is on. What finds no plain boxes of fixed classes
    is refused: masks, key points, rotated boxes, classes given as text, and RT-DETR, which
    transformers has too.

    Args:
        module: The model, of the task detect.
        class_names: One per logit; those of the model by default.
        rules: Which boxes are kept; by default as `predict` does: confidence above 0.25, overlap
            at most 0.7, at most 300 of an image.
        name: What results call the detector; the name of its definition by default.
        latent: The submodule that LaRD reads; the last of the backbone by default.
        shortcuts: The submodules that SAFE reads. There are none by default: these networks have
            no convolution in a shortcut.
        image_size: Side, or height and width, that an image is scaled to fit; what the model was
            trained with by default, and 640 if it does not say.
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
        class_names=_class_names(network, class_names),
        image_size=size,
        rules=rules,
        layers=_layers(network, latent, shortcuts or ()),
        preprocessing=f"letterbox of ultralytics to fit {size}, multiples of {stride}, over 255",
    )


def load_ultralytics_detector(spec: str, options: ModelOptions) -> UltralyticsDetector:
    """Make a detector from `weights.pt`, or from `yolov8n.yaml` and a weights file.

    Both are files at hand, or definitions that come with ultralytics; nothing is downloaded. A .pt
    file of ultralytics is a pickled network. It is opened by the restricted loader of ultralytics,
    `torch.load(weights_only=True)` with a list of its own classes, so that no code of the file is
    run; a file that needs more is refused. To do without, save `YOLO(…).model.state_dict()` as
    safetensors and name the definition.

    Args:
        spec: What stands behind `ultralytics:`.
        options: The weights, class names and layers (the one that LaRD reads first) of the user.
    """
    if options.preprocess is not None:
        raise InvalidDataError(
            "A preprocessing of one's own was given, but boxes are scaled back through that of "
            "ultralytics; leave it out."
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
    """Give the boxes of each image with confidence and class, and the anchors they came from."""
    rows, anchors = part("utils.nms").non_max_suppression(
        decoded,
        conf_thres=rules.score_threshold,
        iou_thres=rules.nms_iou,
        max_det=rules.max_per_image,
        nc=seen.logits[0].shape[1],
        max_time_img=inf,  # the time a machine takes must not decide what is found
        return_idxs=True,
    )
    return zip(rows, (each.reshape(-1).long() for each in anchors), strict=True)


def _by_top_k(
    seen: YoloPass, best: Float[Tensor, "n k 6"], rules: BoxFilter
) -> Iterator[tuple[Float[Tensor, "boxes 6"], Int[Tensor, "boxes"]]]:
    """Give the same for a head without NMS, whose best rows name their anchor in place of a box."""
    assert seen.boxes is not None
    for boxes, rows in zip(seen.boxes, best, strict=True):
        kept = rows[rows[:, 4] > rules.score_threshold][: rules.max_per_image]
        anchors = kept[:, 0].long()
        yield torch.cat([boxes[anchors], kept[:, 4:]], dim=1), anchors


def _found(
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
        f"A model that ends in {kind} came, but boxes are read from the heads {_HEADS[0]} and "
        f"{_HEADS[1]} of ultralytics; give a YOLO of the task detect, loaded from .pt or .yaml."
    )


def _linear_layers(head: Any) -> list[nn.Module]:
    levels = head.one2one_cv3 if head.end2end else head.cv3
    return [level[-1] for level in levels]


def _check_rules(name: str, rules: BoxFilter, head: Any) -> None:
    if head.end2end and rules.nms_iou is not None:
        raise InvalidDataError(
            f"The head of {name} drops no overlapping boxes, but nms_iou is {rules.nms_iou}; give "
            f"rules with nms_iou=None, or set end2end of the model to False and wrap it again."
        )
    if not head.end2end and rules.nms_iou is None:
        raise InvalidDataError(
            f"{name} drops overlapping boxes, but nms_iou is None; give rules with an nms_iou, "
            f"such as 0.7."
        )


def _class_names(network: Any, given: Sequence[str] | None) -> tuple[str, ...]:
    own = network.names
    names = [own[k] for k in sorted(own)] if isinstance(own, Mapping) else own
    chosen = tuple(str(each) for each in (names if given is None else given))
    if len(chosen) != network.model[-1].nc:
        raise InvalidDataError(
            f"{len(chosen)} class names came for a model of {network.model[-1].nc} classes; give "
            f"one per class."
        )
    return chosen


def _layers(network: Any, latent: str | None, shortcuts: Sequence[str]) -> tuple[str, ...]:
    last = len(network.yaml["backbone"]) - 1
    latent = (latent or f"model.{last}").removeprefix(LATENT)
    shortcuts = [each.removeprefix(SHORTCUT) for each in shortcuts]
    names = [name for name, _ in network.named_modules() if name]
    for each in (latent, *shortcuts):
        if each not in names:
            raise unknown_name("layer", each, names)
    return (LATENT + latent, *(SHORTCUT + each for each in shortcuts))


def _stride(network: Any) -> int:
    return max(int(network.stride.max()), _LEAST_STRIDE)


def _image_size(network: Any, given: int | tuple[int, int] | None) -> tuple[int, int]:
    trained = getattr(network, "args", None) or {}
    trained = trained if isinstance(trained, Mapping) else vars(trained)
    size = trained.get("imgsz", _SIDE) if given is None else given
    height, width = part("utils.checks").check_imgsz(size, stride=_stride(network), min_dim=2)
    return int(height), int(width)
