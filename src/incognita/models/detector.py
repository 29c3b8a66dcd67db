"""What the rest of incognita asks of a detector, whatever library it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.shapes import Float, Int, Shaped

LATENT = "latent/"  # before the name of the layer that LaRD reads
SHORTCUT = "shortcut/"  # before the names of the layers that SAFE reads


class HeadKind(StrEnum):
    """How a detector turns logits into confidence; the adapter knows, nobody guesses."""

    SOFTMAX = "softmax with background"
    SIGMOID = "sigmoid"
    TEXT = "text-conditioned sigmoid"


@dataclass(frozen=True)
class BoxFilter:
    """Which boxes of a detector are kept; they are part of every result.

    Args:
        score_threshold: The smallest confidence of a kept box.
        max_per_image: The most boxes of an image, the surest first.
        nms_iou: Overlap above which the less sure of two boxes of a class is dropped; None for
            families that do not drop any.
    """

    score_threshold: float = 0.05
    max_per_image: int = 100
    nms_iou: float | None = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.score_threshold < 1:
            raise InvalidDataError(
                f"score_threshold must be at least 0 and below 1, but it is {self.score_threshold}."
            )
        if self.max_per_image < 1:
            raise InvalidDataError(
                f"max_per_image must be at least 1, but it is {self.max_per_image}."
            )
        if self.nms_iou is not None and not 0 < self.nms_iou <= 1:
            raise InvalidDataError(
                f"nms_iou must lie above 0 and not above 1, but it is {self.nms_iou}."
            )

    def changed(
        self, score_threshold: float | None, max_per_image: int | None, nms_iou: float | None
    ) -> "BoxFilter":
        """Give these rules with what is not None put in their place."""
        if nms_iou is not None and self.nms_iou is None:
            raise InvalidDataError(
                f"nms_iou {nms_iou} was given, but this detector drops no overlapping boxes; "
                f"leave it out."
            )
        given: dict[str, Any] = {
            "score_threshold": score_threshold, "max_per_image": max_per_image, "nms_iou": nms_iou
        }  # fmt: skip
        return replace(self, **{name: value for name, value in given.items() if value is not None})


class PreprocessedImage(NamedTuple):
    """One image as the network takes it, and its size as it was read."""

    pixels: Float[Tensor, "channels height width"]
    height: int
    width: int


class ImageDetections(NamedTuple):
    """The kept boxes of one image, the surest first.

    Args:
        xyxy: Corners in pixels of the image as it was read.
        confidence: As the library gives it.
        class_ids: Places in `class_names`; the kept label, which need not be the largest logit.
        logits: The row behind each box, one column per class, without background.
        background: The logit of background, where the head has one.
        features: What the linear head saw, zeros behind where it is narrower than the widest.
        source_index: The proposal, query, patch or anchor of the image the box came from.
        head_index: Which of `heads` gave the logits; zeros where there is one or none.
        rois: The box in fractions of the network's input [0, 1], padding included.
    """

    xyxy: Float[Tensor, "boxes 4"]
    confidence: Float[Tensor, "boxes"]
    class_ids: Int[Tensor, "boxes"]
    logits: Float[Tensor, "boxes classes"]
    background: Float[Tensor, "boxes"] | None
    features: Float[Tensor, "boxes d"] | None
    source_index: Int[Tensor, "boxes"]
    head_index: Int[Tensor, "boxes"]
    rois: Float[Tensor, "boxes 4"]


class DetectorForward(NamedTuple):
    """What one call of a detector gives.

    `maps` are the outputs of the recorded layers, [n, channels, height, width], several where a
    layer is called once per level. `input_size` is the height and width of what the first layer
    saw, padding included.
    """

    images: tuple[ImageDetections, ...]
    maps: Mapping[str, tuple[Tensor, ...]]
    input_size: tuple[int, int]


@runtime_checkable
class Detector(Protocol):
    """A network that finds objects, with its preprocessing and its rules for keeping boxes.

    `weights_hash`, `preprocessing` and `rules` go into the key of stored outputs. `pixel_std` is
    what a pixel between 0 and 1 is divided by before `forward`. `heads` are the linear layers that
    give the logits (the rows of background left out): one, one per level or anchor, or none, and
    then `head_reason` says why. `shares_features` says whether the features of all heads lie in
    one space. `layers` names the recorded maps: `latent/…` first, then `shortcut/…`.

    A detector may have one attribute more, `has_features`; see `gives_features`.
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

    @property
    def heads(self) -> tuple[Head, ...]: ...

    @property
    def layers(self) -> Sequence[str]: ...

    @property
    def weights_hash(self) -> str: ...

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Turn one uint8 RGB image into what the network takes."""

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        """Call the network once on preprocessed images of one shape.

        `sizes` are their heights and widths as they were read. Gradients are followed where the
        caller allows them. `layers` asks for the maps.
        """

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "Detector":
        """Give the same detector with other rules; what is None stays."""


def gives_features(detector: Detector) -> bool:
    """Say whether the boxes of a detector come with features.

    They do if it has heads, which see them, and also otherwise unless it says
    `has_features = False`.
    """
    return bool(detector.heads) or bool(getattr(detector, "has_features", True))


def check_classes(image: ImageDetections, n_classes: int, detector: str) -> None:
    """Refuse logits and class ids that are not of so many classes; background is none of them."""
    if tuple(image.logits.shape[1:]) != (n_classes,):
        raise InvalidDataError(
            f"{detector} gave logits of shape {list(image.logits.shape)} for its {n_classes} "
            f"classes; give one column per class, and background, which is no class, apart."
        )
    outside = image.class_ids[(image.class_ids < 0) | (image.class_ids >= n_classes)]
    if len(outside):
        raise InvalidDataError(
            f"{detector} gave a box the class id {int(outside[0])}, but its classes are 0 to "
            f"{n_classes - 1}; correct its forward."
        )


def finds_objects(model: object) -> TypeGuard[Detector]:
    """Tell a detector from a classifier by its methods alone.

    `isinstance` of a protocol reads every property, and the hash of the weights is one of them:
    0.1 s for a ResNet-50.
    """
    return callable(getattr(type(model), "with_filter", None))
