"""Detectors of torchvision: Faster R-CNN, RetinaNet, FCOS and SSD behind one face."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.models import detection  # type: ignore[import-untyped]
from torchvision.models.detection.generalized_rcnn import (  # type: ignore[import-untyped]
    GeneralizedRCNN,
)
from torchvision.models.detection.transform import resize_boxes  # type: ignore[import-untyped]

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
from incognita.models.fingerprints import PicklableAdapter, describe_callable, hash_weights
from incognita.models.from_torchvision.families import (
    Family,
    SelectedBoxes,
    settings_text,
    shortcuts_of,
)
from incognita.models.from_torchvision.one_stage import FCOS, RETINANET, SSD
from incognita.models.from_torchvision.two_stage import TwoStage
from incognita.models.introspection.hooks import MapSource, eval_mode, recording, unwrap
from incognita.models.preprocessing import Preprocessing
from incognita.shapes import Float, Shaped

_FAMILIES: tuple[tuple[type[nn.Module], Family], ...] = (
    (GeneralizedRCNN, TwoStage()),
    (detection.RetinaNet, RETINANET),
    (detection.FCOS, FCOS),
    (detection.ssd.SSD, SSD),
)


@dataclass(eq=False)
class TorchvisionDetector(PicklableAdapter):
    """A detector of torchvision behind the face of `models.detector.Detector`.

    Its network is called part by part and its boxes are kept by the rules here, so that nothing of
    the module is changed. `first_label` is the library's label of the first class.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    rules: BoxFilter
    head_kind: HeadKind
    shares_features: bool
    head_reason: str | None
    preprocess_image: Callable[..., Any]
    family: Family
    first_label: int
    sources: tuple[MapSource, ...]
    source: Path | None = None

    @property
    def heads(self) -> tuple[Head, ...]:
        """The linear layers behind the logits, as the weights are now."""
        first = self.first_label
        heads = self.family.heads(self.module)
        return tuple(Head(each.weight[first:], each.bias[first:]) for each in heads)

    @property
    def has_features(self) -> bool:
        """Whether boxes come with what the class layer saw."""
        return self.family.has_features(self.module)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers whose maps are recorded."""
        return tuple(each.layer for each in self.sources)

    @property
    def weights_hash(self) -> str:
        """The sha256 of the network as it is now, and of the settings that are no weights."""
        text = f"{hash_weights(self.module)} {settings_text(self.module)} {self.first_label}"
        return hashlib.sha256(text.encode()).hexdigest()

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Turn one uint8 RGB image into what the network takes."""
        pixels = torch.as_tensor(self.preprocess_image(image))
        return PreprocessedImage(pixels, *image.shape[:2])

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        """Call the network once on preprocessed images of one shape.

        It runs in evaluation mode, whatever mode it is in before and after.
        """
        if len(sizes) != len(batch):
            raise InvalidDataError(
                f"{len(sizes)} sizes came for {len(batch)} images; give the height and width of "
                f"each as it was read."
            )
        sources = self.sources if layers else ()
        if not len(batch):
            maps: dict[str, tuple[Tensor, ...]] = {each.layer: () for each in sources}
            return DetectorForward((), maps, (batch.shape[2], batch.shape[3]))
        network: Any = self.module
        with eval_mode(network), recording(network, sources, ()) as seen:
            images, _ = network.transform(list(batch))
            features = network.backbone(images.tensors)
            levels = {"0": features} if isinstance(features, Tensor) else features
            kept = self.family.find(network, images, levels, self.rules)
        height, width = images.tensors.shape[-2:]
        found = tuple(
            self._found(each, resized, (height, width), size)
            for each, resized, size in zip(kept, images.image_sizes, sizes, strict=True)
        )
        return DetectorForward(found, seen.maps(sources, len(batch)), (height, width))

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "TorchvisionDetector":
        """Give a detector that shares the network and keeps boxes by other rules."""
        return replace(self, rules=self.rules.changed(score_threshold, max_per_image, nms_iou))

    def to(
        self, device: str | torch.device | None = None, dtype: torch.dtype | None = None
    ) -> "TorchvisionDetector":
        """Move the network to a device or a floating type, in place."""
        self.module.to(device=device, dtype=dtype)
        self.pixel_std = self.pixel_std.to(device=device)
        return self

    def _found(
        self,
        kept: SelectedBoxes,
        resized: tuple[int, int],
        padded: tuple[int, int],
        size: tuple[int, int],
    ) -> ImageDetections:
        """Say it in our words; a box whose label is no class (an unused column) is left out."""
        is_class = kept.labels >= self.first_label
        columns: Any = (None if column is None else column[is_class] for column in kept)
        kept = SelectedBoxes(*columns)
        sides = kept.xyxy.new_tensor([padded[1], padded[0], padded[1], padded[0]])
        return ImageDetections(
            xyxy=resize_boxes(kept.xyxy, resized, size),
            confidence=kept.confidence,
            class_ids=kept.labels - self.first_label,
            logits=kept.logits[:, self.first_label :],
            background=kept.logits[:, 0] if self.head_kind is HeadKind.SOFTMAX else None,
            features=kept.features,
            source_index=kept.source_index,
            head_index=kept.head_index,
            rois=kept.xyxy / sides,
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
    """Make a detector of a network of `torchvision.models.detection`.

    Kept boxes, labels and confidence are those of the module for the same thresholds. Faster R-CNN
    and SSD have background as label 0, so that label i is class i - 1. RetinaNet and FCOS have no
    background: label 0 is a column like the others, but torchvision's own weights never use it
    (its `num_classes` counts background in). With a name per column, label i is class i; with one
    name fewer, column 0 is unused, label i is class i - 1, and boxes that carry label 0 are left
    out after everything else.

    Args:
        module: A FasterRCNN (also MaskRCNN, KeypointRCNN), RetinaNet, FCOS or SSD.
        class_names: The known classes, without background; a first name `__background__`, as the
            weights of torchvision have it, is dropped. `class 0`, `class 1`, … by default.
        rules: Which boxes are kept; by default what the module says. `topk_candidates` and what
            the proposals are chosen by stay the module's own.
        name: What results call the detector; the class of the network by default.
        preprocess: Turns a uint8 RGB array into a float tensor [3, height, width]; by default
            pixels are divided by 255, since the network itself resizes and normalizes.
        latent: The submodule whose maps LaRD reads; `rpn.head.conv`, or the last stage of the
            backbone, by default.
        shortcuts: Those that SAFE reads; the `downsample` layers of the backbone, or its stages
            where there are none, by default.

    >>> from incognita.models.embedded.terra_detector import CLASS_NAMES, build_terra_detector
    >>> detector = wrap_torchvision_detector(build_terra_detector(), class_names=CLASS_NAMES)
    >>> detector.heads[0].weight.shape, detector.layers[0], detector.rules.nms_iou
    (torch.Size([12, 256]), 'latent/rpn.head.conv', 0.5)
    """
    module = unwrap(module)
    family = _family(module)
    kind = name or type(module).__name__
    names, first_label = _named(class_names, family.n_columns(module), family.head_kind, kind)
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
        sources=_sources(module, latent or family.latent(module), shortcuts),
    )


def _family(module: nn.Module) -> Family:
    for kind, family in _FAMILIES:
        if isinstance(module, kind):
            return family
    raise InvalidDataError(
        f"A {type(module).__name__} came, but the detectors of torchvision are FasterRCNN, "
        f"MaskRCNN, KeypointRCNN, RetinaNet, FCOS and SSD; give one of them."
    )


def _named(
    names: Sequence[str] | None, n_columns: int, kind: HeadKind, detector: str
) -> tuple[tuple[str, ...], int]:
    """Give the class names and the library's label of the first of them."""
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
        f"{len(names)} class names came, but {detector} has {n_columns} labels, of which the first "
        f"is {first}; give {expected} names, in their order."
    )


def _checked(rules: BoxFilter, detector: str) -> BoxFilter:
    if rules.nms_iou is None:
        raise InvalidDataError(
            f"The rules have no nms_iou, but {detector} drops overlapping boxes; give it, 1 to "
            f"keep them all."
        )
    return rules


def _sources(
    module: nn.Module, latent: str, shortcuts: Sequence[str] | None
) -> tuple[MapSource, ...]:
    if shortcuts is None:
        shortcuts = [f"backbone.{each}" for each in shortcuts_of(module.get_submodule("backbone"))]
    submodules = [name for name, _ in module.named_modules() if name]
    for each in (latent, *shortcuts):
        if each not in submodules:
            raise unknown_name("layer", each, submodules)
    named = [MapSource(f"{LATENT}{latent}", latent)]
    return (*named, *(MapSource(f"{SHORTCUT}{each}", each) for each in shortcuts))
