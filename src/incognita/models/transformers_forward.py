"""One call of a detector of transformers: kept boxes with logits, features and queries."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.ops import box_convert  # type: ignore[import-untyped]

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import (
    DetectionRules,
    DetectorForward,
    FoundBoxes,
    HeadKind,
    Prepared,
)
from incognita.models.fingerprints import hash_weights
from incognita.models.from_transformers.families import Family, Parts
from incognita.models.from_transformers.processors import Prompts, texts_embedded_once
from incognita.models.introspection.head import head_of
from incognita.models.introspection.hooks import MapSource, recording
from incognita.models.modes import evaluating
from incognita.models.sending import Sendable
from incognita.models.taps import attach_input
from incognita.shapes import Float, Int, Shaped

_FEATURES = "features"


@dataclass(eq=False)
class TransformersDetector(Sendable):
    """A network of transformers behind `models.detector.Detector`.

    Made by `wrap_transformers_detector`. Hooks live only during a call.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    preprocess_image: Callable[..., Tensor]
    rules: DetectionRules
    head_kind: HeadKind
    family: Family
    parts: Parts
    sources: tuple[MapSource, ...]
    prompts: Prompts | None = None
    head_reason: str | None = None
    shares_features: bool = True
    source: Path | None = None

    @property
    def heads(self) -> tuple[Head, ...]:
        """The linear layer as its weights are now, without the row of "no object"."""
        if self.parts.head is None:
            return ()
        head = head_of(self.module.get_submodule(self.parts.head))
        if self.head_kind is HeadKind.SOFTMAX:
            head = Head(head.weight[:-1], head.bias[:-1])
        return (head,)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers whose maps are recorded."""
        return tuple(source.layer for source in self.sources)

    @property
    def weights_hash(self) -> str:
        """The sha256 of the network as it is now, and of the texts it is asked for."""
        weights = hash_weights(self.module)
        if self.prompts is None:
            return weights
        return hashlib.sha256(f"{weights} {self.prompts.fingerprint}".encode()).hexdigest()

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> Prepared:
        """Turn one uint8 RGB image into what the network takes."""
        return Prepared(self.preprocess_image(image), image.shape[0], image.shape[1])

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        """Call the network once on preprocessed images of one shape, in evaluation mode.

        All of an image is seen, so the mask of padding that DETR and its descendants take is left
        to them: it is all ones. OWL-ViT and OWLv2 embed their texts once per call.
        """
        _check_sizes(batch, sizes)
        input_size = (batch.shape[2], batch.shape[3])
        if not len(batch):
            return DetectorForward((), {layer: () for layer in self.layers if layers}, input_size)
        found: dict[str, Tensor] = {}
        with evaluating(self.module), ExitStack() as hooks:
            sources, grids = (self.sources, self.parts.grids) if layers else ((), ())
            seen = hooks.enter_context(recording(self.module, sources, grids))
            if self.parts.head is not None:
                attach_input(self.module, self.parts.head, hooks, found, _FEATURES)
            outputs = self._call(batch, hooks)
        features = found.get(_FEATURES, getattr(outputs, "class_embeds", None))
        images = self._found(outputs.logits, outputs.pred_boxes, features, sizes)
        return DetectorForward(images, seen.maps(sources, len(batch)), input_size)

    def with_rules(
        self,
        *,
        score_floor: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "TransformersDetector":
        """Give the same detector with other rules; what is None stays."""
        return replace(self, rules=self.rules.changed(score_floor, max_per_image, nms_iou))

    def _call(self, batch: Tensor, hooks: ExitStack) -> Any:
        if self.prompts is None:
            return self.module(pixel_values=batch)
        owl = self.module.base_model
        hooks.enter_context(texts_embedded_once(owl, len(self.prompts)))
        texts = self.prompts.arguments(len(batch), batch.device)
        return self.module(pixel_values=batch, **texts)

    def _found(
        self,
        logits: Float[Tensor, "n queries columns"],
        boxes: Float[Tensor, "n queries 4"],
        features: Float[Tensor, "n queries d"] | None,
        sizes: Sequence[tuple[int, int]],
    ) -> tuple[FoundBoxes, ...]:
        chosen = self.family.choose(logits, self.rules)
        fractions = box_convert(boxes, "cxcywh", "xyxy")
        images = []
        for k, size in enumerate(sizes):
            kept = _kept(chosen.confidence[k], self.rules)
            source_index = chosen.source_index[k, kept]
            rows, corners = logits[k, source_index], fractions[k, source_index]
            has_background = self.head_kind is HeadKind.SOFTMAX
            images.append(
                FoundBoxes(
                    xyxy=corners * self._scale(size).to(corners),
                    confidence=chosen.confidence[k, kept],
                    class_ids=chosen.class_ids[k, kept],
                    logits=rows[:, :-1] if has_background else rows,
                    background=rows[:, -1] if has_background else None,
                    features=None if features is None else features[k, source_index],
                    source_index=source_index,
                    head_index=torch.zeros_like(source_index),
                    rois=corners.clamp(0, 1),
                )
            )
        return tuple(images)

    def _scale(self, size: tuple[int, int]) -> Tensor:
        height, width = size
        if self.family.is_padded_to_square:
            height = width = max(size)
        return torch.tensor([width, height, width, height])


def _kept(confidence: Float[Tensor, "candidates"], rules: DetectionRules) -> Int[Tensor, "boxes"]:
    """Give the places of the kept boxes, the surest first, equal ones in the library's order."""
    above = (confidence > rules.score_floor).nonzero()[:, 0]
    order = confidence[above].argsort(descending=True, stable=True)
    return above[order[: rules.max_per_image]]


def _check_sizes(batch: Tensor, sizes: Sequence[tuple[int, int]]) -> None:
    if batch.ndim != 4 or len(batch) != len(sizes):
        raise InvalidDataError(
            f"A batch of shape {list(batch.shape)} came with {len(sizes)} sizes; give images "
            f"[n, channels, height, width] and the height and width of each as it was read."
        )
