"""Detectors of transformers: DETR, Deformable DETR, RT-DETR, OWL-ViT and OWLv2.

A family names the parts of its networks and chooses boxes as the post-processing of the library.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.ops import box_convert  # type: ignore[import-untyped]

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import (
    SHORTCUT,
    BoxFilter,
    DetectorAdapter,
    DetectorForward,
    HeadKind,
    ImageDetections,
    PreprocessedImage,
    detector_steps,
    name_layers,
)
from incognita.models.fingerprints import hash_weights
from incognita.models.from_transformers.processors import (
    TEMPLATE,
    ByProcessor,
    Prompts,
    describe_processor,
    make_prompts,
    pixel_std_of,
    texts_embedded_once,
    transformers,
)
from incognita.models.introspection import (
    MapSource,
    attach_input,
    eval_mode,
    head_of,
    recording,
    unwrap,
)
from incognita.models.preprocessing import FromPIL, InputSteps
from incognita.shapes import Float, Int, Shaped

_FEATURES = "features"
_LIBRARY_TOP = 100  # the default number of pairs in the post-processing of Deformable DETR
_NO_LINEAR_HEAD = (
    "its logits are cosines with text embeddings, shifted and scaled per patch, not a linear layer"
)


# families: parts of networks, and the boxes that the library chooses -------------------------


class QueryLabels(NamedTuple):
    """The boxes of a batch that the library compares with its threshold, in its order."""

    confidence: Float[Tensor, "n candidates"]
    class_ids: Int[Tensor, "n candidates"]
    source_index: Int[Tensor, "n candidates"]


class Parts(NamedTuple):
    """Names of submodules.

    Args:
        head: The linear layer that computes the logits, if any.
        latent: The layer for LaRD.
        stages: The layer that returns the maps for SAFE, one per stage, if any.
        grids: The layers whose maps have the heights and widths on which tokens lie.
    """

    head: str | None
    latent: str
    stages: str | None
    grids: tuple[str, ...]


@dataclass(frozen=True)
class TransformersFamily:
    """A kind of detector in transformers.

    Args:
        head_kind: How its logits become confidence.
        choose: The post-processing of the library before its threshold.
        find_parts: Finds the parts in a network of this kind.
        processor: The class of its image processor.
        is_padded_to_square: Whether both coordinates of boxes are fractions of the longer side of
            the image, because the processor pads below or on the right.
    """

    head_kind: HeadKind
    choose: Callable[[Tensor, BoxFilter], QueryLabels]
    find_parts: Callable[[Any], Parts]
    processor: str
    is_padded_to_square: bool = False


def family_of(module: Any) -> TransformersFamily:
    """Return the family of a network by the name of its class, or of a base class."""
    for kind in type(module).__mro__:
        if kind.__name__ in FAMILIES:
            return FAMILIES[kind.__name__]
    raise InvalidDataError(
        f"Expected one of the supported detectors of transformers ({', '.join(FAMILIES)}), got "
        f"{type(module).__name__}."
    )


def best_label_per_query(
    logits: Float[Tensor, "n queries columns"], rules: BoxFilter
) -> QueryLabels:
    """Choose the most probable class of each query; the last column is "no object".

    >>> logits = torch.tensor([[[0.0, 2.0, 5.0]]])  # exp: 1, 7.389, 148.413
    >>> chosen = best_label_per_query(logits, BoxFilter())
    >>> chosen.class_ids.tolist(), round(chosen.confidence.item(), 3)
    ([[1]], 0.047)
    """
    confidence, class_ids = logits.softmax(-1)[..., :-1].max(-1)
    return QueryLabels(confidence, class_ids, _every_place(class_ids))


def top_pairs(logits: Float[Tensor, "n queries classes"], rules: BoxFilter) -> QueryLabels:
    """Choose the 100 or more most confident pairs of query and class.

    >>> chosen = top_pairs(torch.tensor([[[0.0, 2.0], [1.0, -1.0]]]), BoxFilter())
    >>> chosen.source_index.tolist(), chosen.class_ids.tolist()
    ([[0, 1, 0, 1]], [[1, 0, 0, 1]])
    """
    return _top_pairs(logits, max(_LIBRARY_TOP, rules.max_per_image))


def top_pairs_per_query(
    logits: Float[Tensor, "n queries classes"], rules: BoxFilter
) -> QueryLabels:
    """Choose as many most confident pairs of query and class as there are queries."""
    return _top_pairs(logits, logits.shape[1])


def best_text_per_patch(logits: Float[Tensor, "n patches texts"], rules: BoxFilter) -> QueryLabels:
    """Choose the most confident text of each patch."""
    best = logits.max(-1)
    return QueryLabels(best.values.sigmoid(), best.indices, _every_place(best.indices))


def _top_pairs(logits: Float[Tensor, "n queries classes"], n_pairs: int) -> QueryLabels:
    n_classes = logits.shape[2]
    confidence = logits.sigmoid().flatten(1)
    top = confidence.topk(min(n_pairs, confidence.shape[1]), dim=1)
    return QueryLabels(top.values, top.indices % n_classes, top.indices // n_classes)


def _every_place(class_ids: Int[Tensor, "n places"]) -> Int[Tensor, "n places"]:
    return torch.arange(class_ids.shape[1], device=class_ids.device).expand_as(class_ids)


def _detr_parts(module: Any) -> Parts:
    projection = "model.input_projection"
    return Parts("class_labels_classifier", "model.encoder", "model.backbone", (projection,))


def _deformable_parts(module: Any) -> Parts:
    # a two-stage network has one more layer, which chooses proposals
    head = f"class_embed.{module.config.decoder_layers - 1}"
    grids = _numbered("model.input_proj", module.model.input_proj)
    return Parts(head, "model.encoder", "model.backbone", grids)


def _rt_parts(module: Any) -> Parts:
    if not module.config.use_focal_loss:
        raise InvalidDataError(
            "Expected use_focal_loss = True in the configuration of RT-DETR: without it the "
            "post-processing of the library takes the softmax over the images of a batch."
        )
    head = f"model.decoder.class_embed.{module.config.decoder_layers - 1}"
    grids = _numbered("model.encoder_input_proj", module.model.encoder_input_proj)
    # called `encoder` before transformers 5
    attention = "aifi" if hasattr(module.model.encoder, "aifi") else "encoder"
    return Parts(head, f"model.encoder.{attention}.0", "model.backbone", grids)


def _owl_parts(module: Any) -> Parts:
    patches = f"{module.base_model_prefix}.vision_model.embeddings.patch_embedding"
    return Parts(None, "layer_norm", None, (patches,))  # its output is `image_embeds`


def _numbered(name: str, modules: Any) -> tuple[str, ...]:
    return tuple(f"{name}.{k}" for k in range(len(modules)))


_RT = TransformersFamily(
    HeadKind.SIGMOID, top_pairs_per_query, _rt_parts, processor="RTDetrImageProcessor"
)

FAMILIES = {
    "DetrForObjectDetection": TransformersFamily(
        HeadKind.SOFTMAX,
        best_label_per_query,
        _detr_parts,
        processor="DetrImageProcessor",
    ),
    "DeformableDetrForObjectDetection": TransformersFamily(
        HeadKind.SIGMOID, top_pairs, _deformable_parts, processor="DeformableDetrImageProcessor"
    ),
    "RTDetrForObjectDetection": _RT,
    "RTDetrV2ForObjectDetection": _RT,
    "Owlv2ForObjectDetection": TransformersFamily(
        HeadKind.TEXT,
        best_text_per_patch,
        _owl_parts,
        processor="Owlv2ImageProcessor",
        is_padded_to_square=True,
    ),
    "OwlViTForObjectDetection": TransformersFamily(
        HeadKind.TEXT, best_text_per_patch, _owl_parts, processor="OwlViTImageProcessor"
    ),
}


# the adapter ----------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class TransformersDetector(DetectorAdapter):
    """A detector of transformers, made by `wrap_transformers_detector`."""

    preprocess_image: Callable[..., Tensor]
    family: TransformersFamily
    parts: Parts
    prompts: Prompts | None = None

    @property
    def heads(self) -> tuple[Head, ...]:
        """The linear layer with its current weights, without the row of "no object"."""
        if self.parts.head is None:
            return ()
        head = head_of(self.module.get_submodule(self.parts.head))
        if self.head_kind is HeadKind.SOFTMAX:
            head = Head(head.weight[:-1], head.bias[:-1])
        return (head,)

    @property
    def weights_hash(self) -> str:
        """The sha256 of the network with its current weights, and of its prompts."""
        weights = hash_weights(self.module)
        if self.prompts is None:
            return weights
        return hashlib.sha256(f"{weights} {self.prompts.fingerprint}".encode()).hexdigest()

    @property
    def input_steps(self) -> InputSteps:
        """What readers do with an image, and what is left to the device of the network."""
        return detector_steps(self.preprocess_image)

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Convert one uint8 RGB image to an input of the network."""
        return PreprocessedImage(self.preprocess_image(image), image.shape[0], image.shape[1])

    def detect(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool
    ) -> DetectorForward:
        """Call the network once and keep boxes as the library does.

        Images are not padded, so the padding mask of DETR is left to its default, all ones. OWL-ViT
        and OWLv2 embed their texts once per call.
        """
        input_size = (batch.shape[2], batch.shape[3])
        found: dict[str, Tensor] = {}
        with eval_mode(self.module), ExitStack() as hooks:
            sources, grids = (self.recorded, self.parts.grids) if layers else ((), ())
            seen = hooks.enter_context(recording(self.module, sources, grids))
            if self.parts.head is not None:
                attach_input(self.module, self.parts.head, hooks, found, _FEATURES)
            outputs = self._call(batch, hooks)
        features = found.get(_FEATURES, getattr(outputs, "class_embeds", None))
        images = self._detections(outputs.logits, outputs.pred_boxes, features, sizes)
        return DetectorForward(images, seen.maps(sources, len(batch)), input_size)

    def _call(self, batch: Tensor, hooks: ExitStack) -> Any:
        if self.prompts is None:
            return self.module(pixel_values=batch)
        owl = self.module.base_model
        hooks.enter_context(texts_embedded_once(owl, len(self.prompts)))
        texts = self.prompts.arguments(len(batch), batch.device)
        return self.module(pixel_values=batch, **texts)

    def _detections(
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
    """Return the indices of the kept boxes, most confident first, ties in the library's order."""
    above = (confidence > rules.score_threshold).nonzero()[:, 0]
    order = confidence[above].argsort(descending=True, stable=True)
    return above[order[: rules.max_per_image]]


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
    """Wrap a DETR, Deformable DETR, RT-DETR (v1, v2), OWL-ViT or OWLv2 as a detector.

    Kept boxes, labels and confidence are those of the library's `post_process_object_detection`
    (for OWLv2, `post_process_grounded_object_detection`) above the threshold `score_threshold`. The
    `max_per_image` most confident of them are kept, without non-maximum suppression. For
    Deformable DETR `top_k` is `max_per_image`, but at least 100.

    Args:
        module: The network, with its weights.
        class_names: One per class; those of the configuration by default, for OWL-ViT and OWLv2
            the prompts.
        rules: Which boxes are kept; confidence above 0.05, at most 100 per image by default.
        name: Name of the detector in results; the class of the network by default.
        processor: The image processor, or for OWL-ViT and OWLv2 one with a tokenizer. By default
            that of the family with the values of transformers: DETR and Deformable DETR resize the
            shorter side to 800 and the longer to at most 1333 and normalize as for ImageNet;
            RT-DETR resizes to 640 x 640 and only divides by 255; OWLv2 divides, pads to a square,
            resizes to the size of the network and normalizes as for CLIP; OWL-ViT does the same
            without padding.
        prompts: OWL-ViT and OWLv2 only: one text per class, or their token ids. By default
            "a photo of a …" with the class names.
        latent: The submodule for LaRD. By default the encoder of DETR and Deformable DETR, the
            first attention of RT-DETR's encoder, the `image_embeds` of OWL-ViT and OWLv2.
        shortcuts: The submodules for SAFE; by default the stages of a convolutional backbone.
    """
    module = unwrap(module)
    family = family_of(module)
    parts = family.find_parts(module)
    if processor is None:
        processor = _default_processor(family, module)
    texts = _prompts(module, family, prompts, class_names, getattr(processor, "tokenizer", None))
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
        recorded=_recorded(module, parts, latent, shortcuts),
        prompts=texts,
        head_reason=None if parts.head is not None else _NO_LINEAR_HEAD,
    )
    _check_names(detector)
    return detector


def _prompts(
    module: Any,
    family: TransformersFamily,
    prompts: Sequence[str] | Tensor | Mapping[str, Any] | None,
    class_names: Sequence[str] | None,
    tokenizer: Any,
) -> Prompts | None:
    is_text = family.head_kind is HeadKind.TEXT
    if not is_text and prompts is None:
        return None
    if not is_text:
        raise InvalidDataError(
            f"The classes of {type(module).__name__} are fixed; leave out prompts=."
        )
    if prompts is None and class_names is None:
        raise InvalidDataError(
            f"{type(module).__name__} is prompted by text; pass class_names or prompts."
        )
    if prompts is None:
        prompts = [TEMPLATE.format(name) for name in class_names or ()]
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
        return _id2label(module)
    if isinstance(prompts, Mapping):
        prompts = prompts["input_ids"]
    is_text = not isinstance(prompts, Tensor)
    return tuple(str(text) if is_text else f"class {k}" for k, text in enumerate(prompts))


def configured_names(module: Any) -> tuple[str, ...] | None:
    """Return the class names in the configuration; None if they are only numbered."""
    items = module.config.id2label.items()
    return None if all(str(name) == f"LABEL_{k}" for k, name in items) else _id2label(module)


def _id2label(module: Any) -> tuple[str, ...]:
    names = module.config.id2label
    return tuple(str(names[k]) for k in sorted(names))


def _check_names(detector: TransformersDetector) -> None:
    n_names = len(detector.class_names)
    prompts = detector.prompts
    n_classes = len(detector.heads[0].bias) if prompts is None else len(prompts)
    if n_names != n_classes:
        what = "logits" if prompts is None else "prompts"
        raise InvalidDataError(
            f"Expected one class name per class, got {n_names} names and {n_classes} {what} of "
            f'{detector.name}; pass class_names= in their order, without "no object".'
        )


def _checked_rules(rules: BoxFilter | None) -> BoxFilter:
    rules = rules or BoxFilter(nms_iou=None)
    if rules.nms_iou is not None:
        raise InvalidDataError(
            f"Expected rules with nms_iou=None, got {rules.nms_iou}: detectors of transformers run "
            f"without non-maximum suppression."
        )
    return rules


def _recorded(
    module: nn.Module, parts: Parts, latent: str | None, shortcuts: Sequence[str] | None
) -> tuple[MapSource, ...]:
    named = name_layers(module, latent or parts.latent, shortcuts or ())
    if shortcuts is not None or parts.stages is None:
        return named
    sizes: Any = module.get_submodule(parts.stages).intermediate_channel_sizes
    stages = (
        MapSource(f"{SHORTCUT}{parts.stages}.{k}", parts.stages, k) for k in range(len(sizes))
    )
    return (*named, *stages)


def _default_processor(family: TransformersFamily, module: Any) -> Any:
    """Build the image processor of a family with the default values of transformers.

    OWL-ViT and OWLv2 have learned positions, so that the size is that of the network.
    """
    kind = getattr(transformers, family.processor)
    if family.head_kind is not HeadKind.TEXT:
        return kind()
    side = module.config.vision_config.image_size
    return kind(size={"height": side, "width": side})
