"""Faster R-CNN of torchvision, and Mask and Keypoint R-CNN by their boxes."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection.faster_rcnn import (  # type: ignore[import-untyped]
    FastRCNNPredictor,
)
from torchvision.models.detection.image_list import ImageList  # type: ignore[import-untyped]
from torchvision.ops import clip_boxes_to_image, remove_small_boxes  # type: ignore[import-untyped]

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import BoxFilter, HeadKind
from incognita.models.from_torchvision.families import SelectedBoxes, rules_of, surest
from incognita.models.introspection.head import head_of
from incognita.models.introspection.hooks import attach_input, eval_mode
from incognita.shapes import Float, Int

_CLASS_LAYER = "roi_heads.box_predictor.cls_score"
_SMALLEST_SIDE = 1e-2  # pixels; the library drops smaller boxes before it compares any


@dataclass(frozen=True)
class TwoStage:
    """A network that proposes boxes, and names and refines each of them.

    Label 0 is background. Each proposal has a box and a confidence per class, so that one proposal
    may be kept under several labels: they share a row of logits.
    """

    head_kind: HeadKind = HeadKind.SOFTMAX
    shares_features: bool = True

    def rules(self, module: nn.Module) -> BoxFilter:
        return rules_of(module.roi_heads)

    def n_columns(self, module: nn.Module) -> int:
        return len(_class_layer(module).weight)

    def heads(self, module: nn.Module) -> tuple[Head, ...]:
        is_headless = self.head_reason(module) is not None
        return () if is_headless else (head_of(_class_layer(module)),)

    def head_reason(self, module: nn.Module) -> str | None:
        layer = _class_layer(module)
        if type(layer).forward is not nn.Linear.forward:
            return f"{_CLASS_LAYER} is a {type(layer).__name__}, which is not linear."
        if _gives_logits(module, layer):
            return None
        return f"The logits of the box predictor are not what {_CLASS_LAYER} gives."

    def has_features(self, module: nn.Module) -> bool:
        return True

    def latent(self, module: nn.Module) -> str:
        return "rpn.head.conv"

    def find(
        self, module: Any, images: ImageList, maps: Mapping[str, Tensor], rules: BoxFilter
    ) -> list[SelectedBoxes]:
        proposals, _ = module.rpn(images, maps)
        pooled = module.roi_heads.box_roi_pool(maps, proposals, images.image_sizes)
        seen: dict[str, Tensor] = {}
        with ExitStack() as hooks:
            attach_input(module, _CLASS_LAYER, hooks, seen, "features")
            logits, codes = module.roi_heads.box_predictor(module.roi_heads.box_head(pooled))
        xyxy = module.roi_heads.box_coder.decode(codes, proposals).reshape(*logits.shape, 4)
        counts = [len(each) for each in proposals]
        parts = (each.split(counts) for each in (xyxy, logits, seen["features"]))
        return [
            _kept(boxes, rows, features, size, rules)
            for boxes, rows, features, size in zip(*parts, images.image_sizes, strict=True)
        ]


def _class_layer(module: nn.Module) -> Any:
    try:
        layer = module.get_submodule(_CLASS_LAYER)
    except AttributeError:
        layer = None
    if not isinstance(getattr(layer, "weight", None), Tensor):
        raise InvalidDataError(
            f"{type(module).__name__} has no layer {_CLASS_LAYER} with a weight per class, where "
            f"torchvision keeps the class layer; give the one of its box predictor that name."
        )
    return layer


def _gives_logits(module: Any, layer: nn.Linear) -> bool:
    """Say whether the class layer is the last step to the logits, by a call if need be."""
    predictor = module.roi_heads.box_predictor
    if type(predictor).forward is FastRCNNPredictor.forward and "forward" not in vars(predictor):
        return True
    given: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _, args, output: given.append(output))
    tried = torch.linspace(-1, 1, 2 * layer.in_features).reshape(2, -1).to(layer.weight)
    try:
        with torch.no_grad(), eval_mode(predictor):
            logits = predictor(tried)[0]
    except Exception:  # a predictor of the user's own that takes something else
        return False
    finally:
        hook.remove()
    return len(given) == 1 and logits.shape == given[0].shape and torch.equal(logits, given[0])


def _kept(
    xyxy: Float[Tensor, "proposals columns 4"],
    logits: Float[Tensor, "proposals columns"],
    features: Float[Tensor, "proposals d"],
    size: tuple[int, int],
    rules: BoxFilter,
) -> SelectedBoxes:
    confidence = logits.softmax(dim=-1)
    source, label = _above(confidence, rules.score_threshold)
    xyxy = clip_boxes_to_image(xyxy[source, label], size)
    large = remove_small_boxes(xyxy.detach(), _SMALLEST_SIDE)
    source, label, xyxy = source[large], label[large], xyxy[large]
    kept = surest(xyxy, confidence[source, label], label, rules)
    source, label, xyxy = source[kept], label[kept], xyxy[kept]
    return SelectedBoxes(
        xyxy=xyxy,
        confidence=confidence[source, label],
        labels=label,
        logits=logits[source],
        features=features[source],
        source_index=source,
        head_index=torch.zeros_like(source),
    )


def _above(
    confidence: Float[Tensor, "proposals columns"], floor: float
) -> tuple[Int[Tensor, "found"], Int[Tensor, "found"]]:
    """Give proposal and label of each confidence above the floor; background is no label."""
    source, column = torch.nonzero(confidence[:, 1:] > floor, as_tuple=True)
    return source, column + 1
