"""Models of transformers in a folder: classifiers, zero-shot CLIP, linear probes, detectors."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.models.classifier import WrappedClassifier, wrap_classifier
from incognita.models.detector import Detector, HeadKind
from incognita.models.from_transformers.detectors import (
    configured_names,
    family_of,
    wrap_transformers_detector,
)
from incognita.models.from_transformers.processors import (
    load_image_processor,
    load_text_processor,
    preprocessing_of,
    transformers,
)
from incognita.models.introspection import eval_mode, first_tensor, like_weights
from incognita.models.load import ModelOptions, load_weights, read_weights
from incognita.shapes import Float

Pooling = Literal["cls", "cls+mean"]
TEMPLATES = ("a photo of a {}.",)
# the seven that the authors of CLIP selected of their 80 for ImageNet, in the notebook
# Prompt_Engineering_for_ImageNet of openai/CLIP
ENSEMBLE = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)
_WNID = re.compile(r"n\d{8}")


def load_transformers(folder: str, options: ModelOptions) -> WrappedClassifier | Detector:
    """Load a model from a folder with `config.json` and safetensors; nothing is downloaded.

    The architecture in the configuration decides: an image classifier or an object detector is
    wrapped, CLIP becomes a zero-shot classifier of `class_names` (in an evaluation, those of the
    benchmark) with the prompts of `ENSEMBLE`, and any other vision model is a backbone whose linear
    probe is the weights file.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise MissingDataError(
            f"{path} has no config.json; name a folder written by save_pretrained of transformers."
        )
    architecture = _architecture(path)
    if "ForObjectDetection" in architecture:
        return load_transformers_detector(folder, options)
    preprocess = options.preprocess or preprocessing_of(path)
    name = f"transformers:{path.name}"
    if "ForImageClassification" in architecture:
        module = _network(architecture, path, options.weights)
        names = options.class_names or configured_names(module)
        return wrap_classifier(
            module, preprocess=preprocess, class_names=names, layers=options.layers, name=name
        )
    if architecture == "CLIPModel":
        return clip_zero_shot(
            _pretrained(architecture, path),
            _readable(options.class_names or options.known_classes, name),
            templates=ENSEMBLE,
            tokenizer=transformers.AutoTokenizer.from_pretrained(path, local_files_only=True),
            preprocess=preprocess,
            layers=options.layers,
            name=name,
        )
    if options.weights is None:
        raise InvalidDataError(
            f"{path} holds a {architecture}, which has no classes; pass the file of a linear probe "
            f"trained on it with --weights FILE."
        )
    return dinov2_probe(
        _pretrained(architecture, path),
        options.weights,
        preprocess=preprocess,
        class_names=options.class_names,
        layers=options.layers,
        name=name,
    )


def load_transformers_detector(folder: str, options: ModelOptions) -> Detector:
    """Load a detector from a folder; OWL-ViT and OWLv2 are prompted with the `class_names`."""
    path = Path(folder)
    architecture = _architecture(path)
    if options.preprocess is not None:
        raise InvalidDataError(
            f"The detector in {path} takes an image processor instead of preprocess=; save it "
            f"there, or wrap the network with wrap_transformers_detector(processor=)."
        )
    module = _network(architecture, path, options.weights)
    is_prompted = family_of(module).head_kind is HeadKind.TEXT
    return wrap_transformers_detector(
        module,
        class_names=options.class_names,
        processor=load_text_processor(path) if is_prompted else load_image_processor(path),
        name=f"transformers:{path.name}",
        latent=options.latent,
        shortcuts=options.shortcuts,
    )


def _architecture(path: Path) -> str:
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidDataError(f"{path / 'config.json'} is not JSON: {error}.") from error
    named = config.get("architectures") if isinstance(config, dict) else None
    if not named:
        raise InvalidDataError(
            f"{path / 'config.json'} names no architecture; save the model with save_pretrained."
        )
    if not hasattr(transformers, named[0]):
        raise unknown_name("transformers architecture", named[0], dir(transformers))
    return str(named[0])


def _network(architecture: str, path: Path, weights: Path | None) -> nn.Module:
    if weights is None:
        return _pretrained(architecture, path)
    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    module: nn.Module = getattr(transformers, architecture)(config)
    load_weights(module, weights)
    return module


def _pretrained(architecture: str, path: Path) -> nn.Module:
    try:
        module, loaded = getattr(transformers, architecture).from_pretrained(
            path, local_files_only=True, output_loading_info=True
        )
    except OSError as error:
        raise MissingDataError(
            f"{path} has no weights that transformers can read ({str(error).splitlines()[0]}); "
            f"put model.safetensors there."
        ) from error
    missing = sorted(loaded["missing_keys"])
    if missing:  # transformers only warns and uses random weights
        raise InvalidDataError(
            f"The weights in {path} lack {len(missing)} tensors of {architecture} (first "
            f"{', '.join(missing[:3])}); use the weights that belong to the configuration."
        )
    network: nn.Module = module.float()
    return network


# zero-shot CLIP -------------------------------------------------------------------------------


def _readable(class_names: Sequence[str] | None, model: str) -> Sequence[str]:
    """Return class names that can stand in a prompt; raise for WordNet ids and numbers."""
    if not class_names:
        raise InvalidDataError(
            f"{model} classifies by the names of classes. Give them: class_names=[...], or a "
            f"benchmark that names its classes."
        )
    for name in class_names:
        if _WNID.fullmatch(name) or name.isdecimal():
            kind = "a number" if name.isdecimal() else "a WordNet id"
            raise InvalidDataError(
                f"{model} classifies by the names of classes, but {name!r} is {kind}. List "
                f"readable names in the benchmark: classes = [...]."
            )
    return class_names


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
        """Compute the scaled cosines between images and classes."""
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
    """Build a zero-shot classifier of CLIP from class names and a tokenizer, or text features.

    Args:
        model: A `CLIPModel` of transformers, or one with the same parts.
        class_names: Names of the classes in the templates and in results.
        text_features: One embedding per class instead of texts; need not be normalized.
        tokenizer: Converts texts to inputs of the text tower.
        templates: Texts with `{}` for the class name; their embeddings are averaged.
        preprocess: As for `wrap_classifier`.
        layers: As for `wrap_classifier`.
        name: As for `wrap_classifier`.
    """
    if text_features is None:
        if not class_names or tokenizer is None:
            raise InvalidDataError(
                "Zero-shot CLIP needs class names and a tokenizer, or text features; pass either."
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
    with eval_mode(model), torch.no_grad():
        for class_name in class_names:
            texts = [template.format(class_name.replace("_", " ")) for template in templates]
            tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            device = like_weights(model, torch.zeros(0)).device
            embedded = model.get_text_features(**{k: v.to(device) for k, v in tokens.items()})
            # before transformers 5 it is a plain tensor
            embedded = getattr(embedded, "pooler_output", embedded)
            rows.append(normalize(embedded, dim=1).mean(dim=0))
    return normalize(torch.stack(rows), dim=1)


# linear probes --------------------------------------------------------------------------------


class LinearProbe(nn.Module):
    """A backbone, the pooling of its features, and a linear probe trained on them.

    Tokens [n, tokens, d] are pooled to the first one (`cls`), or to the first one and the mean of
    the others (`cls+mean`, as in the linear evaluation of DINOv2); maps [n, d, h, w] to their mean;
    vectors are used unchanged.
    """

    def __init__(
        self, backbone: nn.Module, head: Head, *, pooling: Pooling = "cls", n_registers: int = 0
    ) -> None:
        super().__init__()
        self.backbone, self.pooling, self.n_registers = backbone, pooling, n_registers
        self.head = linear_layer(head)

    def forward(self, batch: Tensor) -> Float[Tensor, "n classes"]:
        """Compute the logits of the probe."""
        features = first_tensor(self.backbone(batch))
        if features is None:
            raise InvalidDataError("The backbone returned no tensor; a probe needs its features.")
        return self.head(self._pooled(features))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Show the pooling, which the weights do not reveal."""
        return f"pooling={self.pooling!r}, n_registers={self.n_registers}"

    def _pooled(self, features: Tensor) -> Tensor:
        if features.ndim == 4:
            return features.mean(dim=(2, 3))
        if features.ndim == 2:
            return features
        if self.pooling == "cls":
            return features[:, 0]
        patches = features[:, 1 + self.n_registers :]
        return torch.cat([features[:, 0], patches.mean(dim=1)], dim=1)


def dinov2_probe(
    model: nn.Module,
    head: Head | str | Path,
    *,
    pooling: Pooling | None = None,
    preprocess: Callable[..., Any] | None = None,
    class_names: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    name: str | None = None,
) -> WrappedClassifier:
    """Build a classifier from DINOv2, or any backbone, and a linear probe trained on it.

    Args:
        model: The backbone; its first output is tokens with the class token first, maps or
            vectors.
        head: The probe, or a file with its `weight` [classes, d] and `bias` [classes].
        pooling: How tokens are pooled for the probe; by default the class token, or with the mean
            patch where the probe is twice as wide as the backbone.
        preprocess: As for `wrap_classifier`.
        class_names: As for `wrap_classifier`.
        layers: As for `wrap_classifier`.
        name: As for `wrap_classifier`.
    """
    head = head if isinstance(head, Head) else read_probe(head)
    config = getattr(model, "config", None)
    width = getattr(config, "hidden_size", None)
    if pooling is None:
        is_double = width is not None and head.weight.shape[1] == 2 * width
        pooling = "cls+mean" if is_double else "cls"
    n_registers = getattr(config, "num_register_tokens", 0)
    module = LinearProbe(model, head, pooling=pooling, n_registers=n_registers)
    return wrap_classifier(
        module, preprocess=preprocess, class_names=class_names, layers=layers, name=name
    )


def read_probe(path: str | Path) -> Head:
    """Read a linear layer from a file with one weight matrix and, optionally, its bias."""
    weights = read_weights(path)
    matrices = [tensor for tensor in weights.values() if tensor.ndim == 2]
    vectors = [tensor for tensor in weights.values() if tensor.ndim == 1]
    if len(matrices) != 1 or len(vectors) > 1:
        raise InvalidDataError(
            f"Expected one `weight` [classes, d] and one `bias` [classes] of a linear probe in "
            f"{path}, got {len(matrices)} matrices and {len(vectors)} vectors; save only that "
            f"layer."
        )
    weight = matrices[0].float()
    return Head(weight, vectors[0].float() if vectors else torch.zeros(len(weight)))


def linear_layer(head: Head) -> nn.Linear:
    """Build a linear layer from a head."""
    n_classes, d = head.weight.shape
    layer = nn.Linear(d, n_classes)
    with torch.no_grad():
        layer.weight.copy_(head.weight)
        layer.bias.copy_(head.bias)
    return layer
