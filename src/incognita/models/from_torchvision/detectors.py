"""Detectors of torchvision: Faster R-CNN, RetinaNet, FCOS and SSD, wrapped or loaded by name."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision import models  # type: ignore[import-untyped]
from torchvision.models.detection.generalized_rcnn import (  # type: ignore[import-untyped]
    GeneralizedRCNN,
)
from torchvision.models.detection.transform import resize_boxes  # type: ignore[import-untyped]

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import (
    BoxFilter,
    DetectorAdapter,
    DetectorForward,
    HeadKind,
    ImageDetections,
    PreprocessedImage,
    detector_steps,
    name_layers,
)
from incognita.models.fingerprints import describe_callable, hash_weights
from incognita.models.from_torchvision.families import (
    FCOS,
    RETINANET,
    SSD,
    SelectedBoxes,
    TorchvisionFamily,
    TwoStage,
    settings_text,
    shortcuts_of,
)
from incognita.models.introspection import eval_mode, recording, unwrap
from incognita.models.load import ModelOptions, load_weights, read_weights
from incognita.models.preprocessing import InputSteps, Preprocessing
from incognita.shapes import Shaped

_FAMILIES: tuple[tuple[type[nn.Module], TorchvisionFamily], ...] = (
    (GeneralizedRCNN, TwoStage()),
    (models.detection.RetinaNet, RETINANET),
    (models.detection.FCOS, FCOS),
    (models.detection.ssd.SSD, SSD),
)

# the builders set the epsilon of batch norm to zero for these weights of an older torchvision
_WITHOUT_EPSILON = {
    "FasterRCNN_ResNet50_FPN_Weights.COCO_V1",
    "KeypointRCNN_ResNet50_FPN_Weights.COCO_V1",
    "MaskRCNN_ResNet50_FPN_Weights.COCO_V1",
    "RetinaNet_ResNet50_FPN_Weights.COCO_V1",
}


@dataclass(eq=False, repr=False, kw_only=True)
class TorchvisionDetector(DetectorAdapter):
    """A detector of torchvision, made by `wrap_torchvision_detector`.

    The parts of the network are called one by one and boxes are kept by `rules`, so that the module
    is not changed. `first_label` is the library's label of the first class.
    """

    preprocess_image: Callable[..., Any]
    family: TorchvisionFamily
    first_label: int

    @property
    def heads(self) -> tuple[Head, ...]:
        """The linear layers that compute the logits, with their current weights."""
        first = self.first_label
        heads = self.family.heads(self.module)
        return tuple(Head(head.weight[first:], head.bias[first:]) for head in heads)

    @property
    def has_features(self) -> bool:
        """Whether boxes come with the input of the class layer."""
        return self.family.has_features(self.module)

    @property
    def weights_hash(self) -> str:
        """The sha256 of the network with its current weights and settings."""
        text = f"{hash_weights(self.module)} {settings_text(self.module)} {self.first_label}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def input_steps(self) -> InputSteps:
        """What readers do with an image, and what is left to the device of the network."""
        return detector_steps(self.preprocess_image)

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Convert one uint8 RGB image to an input of the network."""
        pixels = torch.as_tensor(self.preprocess_image(image))
        return PreprocessedImage(pixels, *image.shape[:2])

    def detect(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool
    ) -> DetectorForward:
        """Call backbone and head, and keep boxes as the library does."""
        sources = self.recorded if layers else ()
        network: Any = self.module
        with eval_mode(network), recording(network, sources, ()) as seen:
            images, _ = network.transform(list(batch))
            features = network.backbone(images.tensors)
            levels = {"0": features} if isinstance(features, Tensor) else features
            selected = self.family.find(network, images, levels, self.rules)
        height, width = images.tensors.shape[-2:]
        detections = tuple(
            self._in_image(boxes, resized, (height, width), size)
            for boxes, resized, size in zip(selected, images.image_sizes, sizes, strict=True)
        )
        return DetectorForward(detections, seen.maps(sources, len(batch)), (height, width))

    def _in_image(
        self,
        boxes: SelectedBoxes,
        resized: tuple[int, int],
        padded: tuple[int, int],
        size: tuple[int, int],
    ) -> ImageDetections:
        """Convert labels and coordinates; boxes of an unused first column are left out."""
        is_class = boxes.labels >= self.first_label
        columns: Any = (None if column is None else column[is_class] for column in boxes)
        boxes = SelectedBoxes(*columns)
        sides = boxes.xyxy.new_tensor([padded[1], padded[0], padded[1], padded[0]])
        return ImageDetections(
            xyxy=resize_boxes(boxes.xyxy, resized, size),
            confidence=boxes.confidence,
            class_ids=boxes.labels - self.first_label,
            logits=boxes.logits[:, self.first_label :],
            background=boxes.logits[:, 0] if self.head_kind is HeadKind.SOFTMAX else None,
            features=boxes.features,
            source_index=boxes.source_index,
            head_index=boxes.head_index,
            rois=boxes.xyxy / sides,
        )


def wrap_torchvision_detector(
    module: nn.Module,
    *,
    class_names: Sequence[str] | None = None,
    rules: BoxFilter | None = None,
    name: str | None = None,
    preprocess: Callable[..., Any] | None = None,
    latent: str | None = None,
    shortcuts: Sequence[str] | None = None,
) -> TorchvisionDetector:
    """Wrap a network of `torchvision.models.detection` as a detector.

    Kept boxes, labels and confidence are those of the module for the same thresholds. Faster R-CNN
    and SSD have background as label 0, so that label i is class i - 1. RetinaNet and FCOS have no
    background: label 0 is an ordinary column, but the published weights never use it (their
    `num_classes` includes background). With one name per column, label i is class i; with one name
    less, column 0 is unused, label i is class i - 1, and boxes with label 0 are left out at the
    end.

    Args:
        module: A FasterRCNN (also MaskRCNN, KeypointRCNN), RetinaNet, FCOS or SSD.
        class_names: The known classes, without background; a first name `__background__`, as in
            the published weights, is dropped. `class 0`, `class 1`, … by default.
        rules: Which boxes are kept; the settings of the module by default. `topk_candidates` and
            the settings of proposals are always those of the module.
        name: Name of the detector in results; the class of the network by default.
        preprocess: Converts a uint8 RGB array to a float tensor [3, height, width]; by default
            pixels are divided by 255, since the network itself resizes and normalizes.
        latent: The submodule whose maps LaRD reads; `rpn.head.conv`, or the last stage of the
            backbone, by default.
        shortcuts: The submodules that SAFE reads; the `downsample` layers of the backbone, or its
            stages where there are none, by default.

    >>> from incognita.models.embedded.terra_detector import CLASS_NAMES, build_terra_detector
    >>> detector = wrap_torchvision_detector(build_terra_detector(), class_names=CLASS_NAMES)
    >>> detector.heads[0].weight.shape, detector.layers[0], detector.rules.nms_iou
    (torch.Size([12, 256]), 'latent/rpn.head.conv', 0.5)
    """
    module = unwrap(module)
    family = _family(module)
    kind = name or type(module).__name__
    names, first_label = _labels(class_names, family.n_columns(module), family.head_kind, kind)
    if shortcuts is None:
        shortcuts = [f"backbone.{name}" for name in shortcuts_of(module.get_submodule("backbone"))]
    preprocess = Preprocessing() if preprocess is None else preprocess
    std = preprocess.std if isinstance(preprocess, Preprocessing) else (1.0, 1.0, 1.0)
    return TorchvisionDetector(
        name=kind,
        module=module,
        class_names=names,
        pixel_std=torch.tensor(std),
        preprocessing=describe_callable(preprocess),
        rules=_checked(rules or family.rules(module), kind),
        head_kind=family.head_kind,
        shares_features=family.shares_features,
        head_reason=family.head_reason(module),
        preprocess_image=preprocess,
        family=family,
        first_label=first_label,
        recorded=name_layers(module, latent or family.latent(module), shortcuts),
    )


def _family(module: nn.Module) -> TorchvisionFamily:
    for kind, family in _FAMILIES:
        if isinstance(module, kind):
            return family
    raise InvalidDataError(
        f"Expected a FasterRCNN, MaskRCNN, KeypointRCNN, RetinaNet, FCOS or SSD of torchvision, "
        f"got {type(module).__name__}."
    )


def _labels(
    names: Sequence[str] | None, n_columns: int, kind: HeadKind, detector: str
) -> tuple[tuple[str, ...], int]:
    """Return the class names and the library's label of the first of them."""
    has_background = kind is HeadKind.SOFTMAX
    if names is None:
        names = [f"class {k}" for k in range(n_columns - has_background)]
    elif len(names) == n_columns and names[0].strip("_").casefold() == "background":
        names = names[1:]
    first_label = n_columns - len(names)
    if first_label == 1 or (first_label == 0 and not has_background):
        return tuple(names), first_label
    expected = f"{n_columns - 1}" if has_background else f"{n_columns - 1} or {n_columns}"
    first = "background" if has_background else "a class or unused"
    raise InvalidDataError(
        f"Expected {expected} class names, got {len(names)}: {detector} has {n_columns} labels, of "
        f"which the first is {first}."
    )


def _checked(rules: BoxFilter, detector: str) -> BoxFilter:
    if rules.nms_iou is None:
        raise InvalidDataError(
            f"Expected rules with an nms_iou, because {detector} runs non-maximum suppression; set "
            f"it to 1 to keep all boxes."
        )
    return rules


def load_torchvision_detector(
    name: str, published: Any, path: Path, options: ModelOptions
) -> TorchvisionDetector:
    """Load `fasterrcnn_resnet50_fpn` or `fasterrcnn_resnet50_fpn.COCO_V1`.

    Args:
        name: The part after `torchvision:`.
        published: The entry of the weights enum, with class names if their number fits.
        path: The weights file, which determines the number of classes.
        options: Class names, preprocessing and layers (the one that LaRD reads first).
    """
    architecture = name.partition(".")[0]
    n_labels = _n_labels(architecture, path, published)
    module = _network(architecture, n_labels)
    _load(module, path)
    if options.weights is None and str(published) in _WITHOUT_EPSILON:
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eps = 0.0
    return wrap_torchvision_detector(
        module,
        class_names=options.class_names or _published_names(n_labels, published),
        name=f"torchvision:{name}",
        preprocess=options.preprocess,
        latent=options.latent,
        shortcuts=options.shortcuts,
    )


def _network(architecture: str, n_labels: int) -> nn.Module:
    network: nn.Module = models.get_model(
        architecture, weights=None, weights_backbone=None, num_classes=n_labels
    )
    return network


def _load(module: nn.Module, path: Path) -> None:
    """Load weights; the network itself converts the names of older files."""
    with suppress(RuntimeError):  # a wrong shape, reported by load_weights
        left = module.load_state_dict(read_weights(path), strict=False)
        counters = [key.endswith("num_batches_tracked") for key in left.missing_keys]
        if all(counters) and not left.unexpected_keys:
            return
    load_weights(module, path)


def _n_labels(architecture: str, path: Path, published: Any) -> int:
    """Read the number of labels from the first tensor whose length depends on it."""
    with torch.device("meta"):
        two, three = (_network(architecture, n).state_dict() for n in (2, 3))
    name = next(key for key in two if len(two[key].shape) and len(two[key]) != len(three[key]))
    per_label = len(three[name]) - len(two[name])
    weights = read_weights(path)
    n_rows = len(weights[name]) if name in weights else 0
    return n_rows // per_label or len(published.meta["categories"])


def _published_names(n_labels: int, published: Any) -> tuple[str, ...] | None:
    """Return the published names without background, the first; "N/A" occurs ten times."""
    names = list(published.meta["categories"])
    if n_labels != len(names):
        return None
    n_times = Counter(names)
    unique = [name if n_times[name] == 1 else f"{name} {k}" for k, name in enumerate(names)]
    return tuple(unique[1:])
