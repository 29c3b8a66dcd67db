"""Where the parts of transformers' detectors are, and which of their boxes the library chooses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from incognita.errors import InvalidDataError
from incognita.models.detector import BoxFilter, HeadKind
from incognita.shapes import Float, Int

_LIBRARY_TOP = 100  # Deformable DETR's post-processing keeps as many pairs unless it is told more


class Chosen(NamedTuple):
    """The boxes of a batch that the library compares with its threshold, in its order."""

    confidence: Float[Tensor, "n candidates"]
    class_ids: Int[Tensor, "n candidates"]
    source_index: Int[Tensor, "n candidates"]


class Parts(NamedTuple):
    """Names of submodules.

    Args:
        head: The linear layer that gives the logits; None where there is none.
        latent: The layer for LaRD.
        stages: The layer that gives the maps for SAFE, one per stage; None where there is none.
        grids: Those whose maps have the heights and widths on which tokens lie.
    """

    head: str | None
    latent: str
    stages: str | None
    grids: tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """A kind of detector in transformers.

    Args:
        head_kind: How its logits become confidence.
        choose: Does what the library's post-processing does before its threshold.
        find_parts: Finds the parts in a network of this kind.
        processor: The class of its image processor.
        is_padded_to_square: Whether boxes are fractions of the longer side of the image, for both
            sides: the processor pads below or on the right.
    """

    head_kind: HeadKind
    choose: Callable[[Tensor, BoxFilter], Chosen]
    find_parts: Callable[[Any], Parts]
    processor: str
    is_padded_to_square: bool = False


def family_of(module: Any) -> Family:
    """Give the family of a network by the name of its class, or of one it is derived from."""
    for kind in type(module).__mro__:
        if kind.__name__ in FAMILIES:
            return FAMILIES[kind.__name__]
    raise InvalidDataError(
        f"A {type(module).__name__} came, but of transformers' detectors these are known: "
        f"{', '.join(FAMILIES)}; give one of them."
    )


def surest_label_beside_background(
    logits: Float[Tensor, "n queries columns"], rules: BoxFilter
) -> Chosen:
    """Choose the surest class of each query; the last column, "no object", only takes its share.

    >>> logits = torch.tensor([[[0.0, 2.0, 5.0]]])  # exp: 1, 7.389, 148.413
    >>> chosen = surest_label_beside_background(logits, BoxFilter())
    >>> chosen.class_ids.tolist(), round(chosen.confidence.item(), 3)
    ([[1]], 0.047)
    """
    confidence, class_ids = logits.softmax(-1)[..., :-1].max(-1)
    return Chosen(confidence, class_ids, _every_place(class_ids))


def surest_pairs(logits: Float[Tensor, "n queries classes"], rules: BoxFilter) -> Chosen:
    """Choose the surest pairs of query and class, 100 or more; a query may come twice.

    >>> chosen = surest_pairs(torch.tensor([[[0.0, 2.0], [1.0, -1.0]]]), BoxFilter())
    >>> chosen.source_index.tolist(), chosen.class_ids.tolist()
    ([[0, 1, 0, 1]], [[1, 0, 0, 1]])
    """
    return _top_pairs(logits, max(_LIBRARY_TOP, rules.max_per_image))


def as_many_pairs_as_queries(
    logits: Float[Tensor, "n queries classes"], rules: BoxFilter
) -> Chosen:
    """Choose the surest pairs of query and class, one per query on average."""
    return _top_pairs(logits, logits.shape[1])


def surest_text(logits: Float[Tensor, "n patches texts"], rules: BoxFilter) -> Chosen:
    """Choose the surest text of each patch."""
    best = logits.max(-1)
    return Chosen(best.values.sigmoid(), best.indices, _every_place(best.indices))


def _top_pairs(logits: Float[Tensor, "n queries classes"], n_pairs: int) -> Chosen:
    n_classes = logits.shape[2]
    confidence = logits.sigmoid().flatten(1)
    top = confidence.topk(min(n_pairs, confidence.shape[1]), dim=1)
    return Chosen(top.values, top.indices % n_classes, top.indices // n_classes)


def _every_place(class_ids: Int[Tensor, "n places"]) -> Int[Tensor, "n places"]:
    return torch.arange(class_ids.shape[1], device=class_ids.device).expand_as(class_ids)


def _detr_parts(module: Any) -> Parts:
    projection = "model.input_projection"
    return Parts("class_labels_classifier", "model.encoder", "model.backbone", (projection,))


def _deformable_parts(module: Any) -> Parts:
    # a two-stage network has one layer more, which chooses proposals
    head = f"class_embed.{module.config.decoder_layers - 1}"
    grids = _numbered("model.input_proj", module.model.input_proj)
    return Parts(head, "model.encoder", "model.backbone", grids)


def _rt_parts(module: Any) -> Parts:
    if not module.config.use_focal_loss:
        raise InvalidDataError(
            "The configuration has use_focal_loss = False, but then the library's post-processing "
            "of RT-DETR takes the softmax over the images of a batch; only networks with "
            "use_focal_loss = True, whose classes have a sigmoid each, are wrapped."
        )
    head = f"model.decoder.class_embed.{module.config.decoder_layers - 1}"
    grids = _numbered("model.encoder_input_proj", module.model.encoder_input_proj)
    # its name before transformers 5 was `encoder`
    attention = "aifi" if hasattr(module.model.encoder, "aifi") else "encoder"
    return Parts(head, f"model.encoder.{attention}.0", "model.backbone", grids)


def _owl_parts(module: Any) -> Parts:
    patches = f"{module.base_model_prefix}.vision_model.embeddings.patch_embedding"
    return Parts(None, "layer_norm", None, (patches,))  # what it gives are the `image_embeds`


def _numbered(name: str, modules: Any) -> tuple[str, ...]:
    return tuple(f"{name}.{k}" for k in range(len(modules)))


_RT = Family(
    HeadKind.SIGMOID, as_many_pairs_as_queries, _rt_parts, processor="RTDetrImageProcessor"
)

FAMILIES = {
    "DetrForObjectDetection": Family(
        HeadKind.SOFTMAX,
        surest_label_beside_background,
        _detr_parts,
        processor="DetrImageProcessor",
    ),
    "DeformableDetrForObjectDetection": Family(
        HeadKind.SIGMOID, surest_pairs, _deformable_parts, processor="DeformableDetrImageProcessor"
    ),
    "RTDetrForObjectDetection": _RT,
    "RTDetrV2ForObjectDetection": _RT,
    "Owlv2ForObjectDetection": Family(
        HeadKind.TEXT,
        surest_text,
        _owl_parts,
        processor="Owlv2ImageProcessor",
        is_padded_to_square=True,
    ),
    "OwlViTForObjectDetection": Family(
        HeadKind.TEXT, surest_text, _owl_parts, processor="OwlViTImageProcessor"
    ),
}
