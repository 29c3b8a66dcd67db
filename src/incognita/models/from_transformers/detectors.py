"""Detectors of transformers: each kept box with its row of logits, its features and its query."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from incognita.errors import InvalidDataError, unknown_name
from incognita.models.detector import LATENT, SHORTCUT, DetectionRules, HeadKind
from incognita.models.from_transformers.families import Family, Parts, family_of
from incognita.models.from_transformers.processors import TEMPLATE, Prompts, make_prompts
from incognita.models.introspection.hooks import MapSource
from incognita.models.preprocessing import FromPIL
from incognita.models.replicas import bare
from incognita.models.transformers_forward import TransformersDetector
from incognita.models.transformers_processors import (
    ByProcessor,
    default_processor,
    describe_processor,
    pixel_std_of,
)

_NO_LINEAR_HEAD = (
    "its logits are cosines with text embeddings, shifted and scaled per patch, not a linear layer"
)


def wrap_transformers_detector(
    module: nn.Module,
    *,
    class_names: Sequence[str] | None = None,
    rules: DetectionRules | None = None,
    name: str | None = None,
    processor: Any = None,
    prompts: Sequence[str] | Tensor | Mapping[str, Any] | None = None,
    latent: str | None = None,
    shortcuts: Sequence[str] | None = None,
) -> TransformersDetector:
    """Make a detector of a DETR, Deformable DETR, RT-DETR (v1, v2), OWL-ViT or OWLv2.

    Kept boxes, labels and confidence are those of the library's `post_process_object_detection`
    (of OWLv2, `post_process_grounded_object_detection`) with `score_floor` as its threshold: a
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
    module = bare(module)
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


def _checked_rules(rules: DetectionRules | None) -> DetectionRules:
    rules = rules or DetectionRules(nms_iou=None)
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
