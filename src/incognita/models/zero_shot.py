"""Zero-shot CLIP: an image tower, and a head made of the texts of the classes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.from_transformers.linear_probe import linear_layer
from incognita.models.introspection.trace import like_weights
from incognita.models.modes import evaluating
from incognita.models.wrap_classifier import WrappedClassifier, wrap_classifier
from incognita.shapes import Float

TEMPLATES = ("a photo of a {}.",)


class ZeroShotCLIP(nn.Module):
    r"""Image tower of CLIP and a head of text embeddings.

    $$ f_c(x) = e^{s} \cos(v(x), t_c) $$ with v the projected image embedding, t_c the embedding of
    the class's texts and s CLIP's `logit_scale`. Features are the normalized image embedding, the
    head's weight is the scaled t_c, its bias zero. Radford et al., Learning Transferable Visual
    Models From Natural Language Supervision, ICML 2021, section 3.1.
    """

    def __init__(self, clip: Any, text_features: Float[Tensor, "classes d"]) -> None:
        super().__init__()
        self.vision_model = clip.vision_model
        self.visual_projection = clip.visual_projection
        weight = clip.logit_scale.detach().exp() * normalize(text_features.detach(), dim=1)
        self.head = linear_layer(Head(weight, torch.zeros_like(weight[:, 0]))).to(weight)

    def forward(self, batch: Tensor) -> Float[Tensor, "n classes"]:
        """Give the scaled cosines between images and classes."""
        pooled = self.vision_model(pixel_values=batch).pooler_output
        return self.head(normalize(self.visual_projection(pooled), dim=1))  # type: ignore[no-any-return]


def clip_zero_shot(
    model: nn.Module,
    class_names: Sequence[str] | None = None,
    *,
    text_features: Float[Tensor, "classes d"] | None = None,
    tokenizer: Callable[..., Any] | None = None,
    templates: Sequence[str] = TEMPLATES,
    preprocess: Callable[..., Any] | None = None,
    layers: Sequence[str] | None = None,
    name: str | None = None,
) -> WrappedClassifier:
    """Make a classifier of a CLIP model: from class names and a tokenizer, or from text features.

    Args:
        model: A `CLIPModel` of transformers, or one with the same parts.
        class_names: What the classes are called in the templates, and in results.
        text_features: One embedding per class, instead of texts; need not be normalized.
        tokenizer: Turns texts into what the text tower takes.
        templates: Texts with `{}` for the class name; their embeddings are averaged.
        preprocess: As for `wrap_classifier`.
        layers: As for `wrap_classifier`.
        name: As for `wrap_classifier`.
    """
    if text_features is None:
        if not class_names or tokenizer is None:
            raise InvalidDataError(
                "Zero-shot CLIP needs class names and a tokenizer, or text features; give either."
            )
        text_features = embed_classes(model, tokenizer, class_names, templates)
    return wrap_classifier(
        ZeroShotCLIP(model, text_features),
        preprocess=preprocess,
        class_names=class_names,
        layers=layers,
        name=name,
    )


def embed_classes(
    model: Any, tokenizer: Callable[..., Any], class_names: Sequence[str], templates: Sequence[str]
) -> Float[Tensor, "classes d"]:
    """Average the normalized embeddings of all templates of each class, and normalize again."""
    rows = []
    with evaluating(model), torch.no_grad():
        for class_name in class_names:
            texts = [template.format(class_name) for template in templates]
            tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            device = like_weights(model, torch.zeros(0)).device
            embedded = model.get_text_features(**{k: v.to(device) for k, v in tokens.items()})
            # a plain tensor before transformers 5
            embedded = getattr(embedded, "pooler_output", embedded)
            rows.append(normalize(embedded, dim=1).mean(dim=0))
    return normalize(torch.stack(rows), dim=1)
