"""Detectors of transformers: each kept box with its row of logits, its features and its query."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.ops import box_convert  # type: ignore[import-untyped]

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
from incognita.models.from_transformers.families import Family, Parts, family_of
from incognita.models.from_transformers.processors import (
    TEMPLATE,
    ByProcessor,
    Prompts,
    default_processor,
    describe_processor,
    make_prompts,
    pixel_std_of,
    texts_embedded_once,
)
from incognita.models.introspection.head import head_of
from incognita.models.introspection.hooks import (
    MapSource,
    attach_input,
    eval_mode,
    recording,
    unwrap,
)
from incognita.models.preprocessing import FromPIL
from incognita.shapes import Float, Int, Shaped

_FEATURES = "features"


@dataclass(eq=False)
class TransformersDetector(PicklableAdapter):
    """A network of transformers behind `models.detector.Detector`.

    Made by `wrap_transformers_detector`. Hooks live only during a call.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    preprocess_image: Callable[..., Tensor]
    rules: BoxFilter
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

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Turn one uint8 RGB image into what the network takes."""
        return PreprocessedImage(self.preprocess_image(image), image.shape[0], image.shape[1])

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
        with eval_mode(self.module), ExitStack() as hooks:
            sources, grids = (self.sources, self.parts.grids) if layers else ((), ())
            seen = hooks.enter_context(recording(self.module, sources, grids))
            if self.parts.head is not None:
                attach_input(self.module, self.parts.head, hooks, found, _FEATURES)
            outputs = self._call(batch, hooks)
        features = found.get(_FEATURES, getattr(outputs, "class_embeds", None))
        images = self._found(outputs.logits, outputs.pred_boxes, features, sizes)
        return DetectorForward(images, seen.maps(sources, len(batch)), input_size)

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "TransformersDetector":
        """Give the same detector with other rules; what is None stays."""
        return replace(self, rules=self.rules.changed(score_threshold, max_per_image, nms_iou))

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
    ) -> tuple[ImageDetections, ...]:
        chosen = self.family.choose(logits, self.rules)
        fractions = box_convert(boxes, "cxcywh", "xyxy")
        images = []
        for k, size in enumerate(sizes):
            kept = _kept(chosen.confidence[k], self.rules)
            source_index = chosen.source_index[k, kept]
            rows, corners = logits[k, source_index], fractions[k, source_index]
            has_background = self.head_kind is HeadKind.SOFTMAX
            images.append(
                ImageDetections(
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


def _kept(confidence: Float[Tensor, "candidates"], rules: BoxFilter) -> Int[Tensor, "boxes"]:
    """Give the places of the kept boxes, the surest first, equal ones in the library's order."""
    above = (confidence > rules.score_threshold).nonzero()[:, 0]
    order = confidence[above].argsort(descending=True, stable=True)
    return above[order[: rules.max_per_image]]


def _check_sizes(batch: Tensor, sizes: Sequence[tuple[int, int]]) -> None:
    if batch.ndim != 4 or len(batch) != len(sizes):
        raise InvalidDataError(
            f"A batch of shape {list(batch.shape)} came with {len(sizes)} sizes; give images "
            f"[n, channels, height, width] and the height and width of each as it was read."
        )


_NO_LINEAR_HEAD = (
    "its logits are cosines with text embeddings, shifted and scaled per patch, not a linear layer"
)


def wrap_transformers_detector(
    module: nn.Module,
    *,
    class_names: Sequence[str] | None = None,
    rules: BoxFilter | None = None,
    name: str | None = None,
    processor: Any = None,
    prompts: Sequence[str] | Tensor | Mapping[str, Any] | None = None,
    latent: str | None = None,
    shortcuts: Sequence[str] | None = None,
) -> TransformersDetector:
    """Make a detector of a DETR, Deformable DETR, RT-DETR (v1, v2), OWL-ViT or OWLv2.

    Kept boxes, labels and confidence are those of the library's `post_process_object_detection`
    (of OWLv2, `post_process_grounded_object_detection`) with `score_threshold` as its threshold: a
    box must lie above it. The surest `max_per_image` of them are kept; none is dropped for its
    overlap. Of Deformable DETR the `top_k` is `max_per_image`, and 100 at least.

    Args:
        module: The network, with its weights.
        class_names: One per class; those of the configuration by default, for OWL-ViT and OWLv2
            the prompts.
        rules: Which boxes are kept; confidence above 0.05, at most 100 per image by default.
        name: What results call the detector; the class of the network by default.
        processor: The image processor, or for OWL-ViT and OWLv2 one with a tokenizer. By default
            the family's own as transformers makes it: DETR and Deformable DETR resize to a shorter
            side of 800 and a longer of 1333 at most and normalize as for ImageNet, RT-DETR resizes
            to 640 x 640 and only divides by 255, OWLv2 divides, pads to a square, resizes and
            normalizes as for CLIP, OWL-ViT does so without padding; both to the network's size.
        prompts: OWL-ViT and OWLv2 only: one text per class, or their token ids. By default
            "a photo of a …" with the class names.
        latent: The submodule for LaRD. By default the encoder of DETR and Deformable DETR, the
            first attention of RT-DETR's encoder, the `image_embeds` of OWL-ViT and OWLv2.
        shortcuts: The submodules for SAFE; by default the stages of the backbone where it is
            convolutional.
    """
    module = unwrap(module)
    family = family_of(module)
    parts = family.find_parts(module)
    if processor is None:
        processor = default_processor(family, module)
    asked = _asked(module, family, prompts, class_names, getattr(processor, "tokenizer", None))
    image_processor = getattr(processor, "image_processor", processor)
    detector = TransformersDetector(
        name=name or type(module).__name__,
        module=module,
        class_names=_names(module, class_names, prompts),
        pixel_std=pixel_std_of(image_processor),
        preprocessing=describe_processor(image_processor),
        preprocess_image=FromPIL(ByProcessor(image_processor)),
        rules=_checked_rules(rules),
        head_kind=family.head_kind,
        family=family,
        parts=parts,
        sources=_sources(module, parts, latent, shortcuts),
        prompts=asked,
        head_reason=None if parts.head is not None else _NO_LINEAR_HEAD,
    )
    _check_names(detector)
    return detector


def _asked(
    module: Any,
    family: Family,
    prompts: Sequence[str] | Tensor | Mapping[str, Any] | None,
    class_names: Sequence[str] | None,
    tokenizer: Any,
) -> Prompts | None:
    is_text = family.head_kind is HeadKind.TEXT
    if not is_text and prompts is None:
        return None
    if not is_text:
        raise InvalidDataError(
            f"Prompts came for a {type(module).__name__}, whose classes are fixed; leave them out."
        )
    if prompts is None and class_names is None:
        raise InvalidDataError(
            f"A {type(module).__name__} looks for what it is told; give class_names or prompts."
        )
    if prompts is None:
        prompts = [TEMPLATE.format(each) for each in class_names or ()]
    return make_prompts(
        prompts, tokenizer, n_tokens=module.config.text_config.max_position_embeddings
    )


def _names(
    module: Any,
    class_names: Sequence[str] | None,
    prompts: Sequence[str] | Tensor | Mapping[str, Any] | None,
) -> tuple[str, ...]:
    if class_names is not None:
        return tuple(class_names)
    if prompts is None:
        configured = module.config.id2label
        return tuple(str(configured[k]) for k in sorted(configured))
    if isinstance(prompts, Mapping):
        prompts = prompts["input_ids"]
    is_text = not isinstance(prompts, Tensor)
    return tuple(str(each) if is_text else f"class {k}" for k, each in enumerate(prompts))


def _check_names(detector: TransformersDetector) -> None:
    n_names = len(detector.class_names)
    prompts = detector.prompts
    n_classes = len(detector.heads[0].bias) if prompts is None else len(prompts)
    if n_names != n_classes:
        what = "logits" if prompts is None else "prompts"
        raise InvalidDataError(
            f"{detector.name} has {n_names} class names and {n_classes} {what}; give one name per "
            f'class with class_names=, in their order, and none for "no object".'
        )


def _checked_rules(rules: BoxFilter | None) -> BoxFilter:
    rules = rules or BoxFilter(nms_iou=None)
    if rules.nms_iou is not None:
        raise InvalidDataError(
            f"The rules have nms_iou {rules.nms_iou}, but transformers' detectors drop no "
            f"overlapping boxes; give nms_iou=None."
        )
    return rules


def _sources(
    module: nn.Module, parts: Parts, latent: str | None, shortcuts: Sequence[str] | None
) -> tuple[MapSource, ...]:
    named = [parts.latent if latent is None else latent, *(shortcuts or ())]
    submodules = {each for each, _ in module.named_modules() if each}
    for each in named:
        if each not in submodules:
            raise unknown_name("submodule", each, submodules)
    first = MapSource(f"{LATENT}{named[0]}", named[0])
    if shortcuts is not None:
        return first, *(MapSource(f"{SHORTCUT}{each}", each) for each in shortcuts)
    if parts.stages is None:
        return (first,)
    sizes: Any = module.get_submodule(parts.stages).intermediate_channel_sizes
    stages = (
        MapSource(f"{SHORTCUT}{parts.stages}.{k}", parts.stages, k) for k in range(len(sizes))
    )
    return first, *stages
