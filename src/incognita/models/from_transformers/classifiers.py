"""Models of transformers in a local folder: classifiers, CLIP, probed backbones, detectors."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.models.detector import Detector, HeadKind
from incognita.models.from_transformers.detectors import wrap_transformers_detector
from incognita.models.from_transformers.families import family_of
from incognita.models.from_transformers.linear_probe import dinov2_probe, linear_layer
from incognita.models.introspection.hooks import eval_mode
from incognita.models.introspection.trace import like_weights
from incognita.models.load import ModelOptions
from incognita.models.preprocessing import Interpolation, Preprocessing
from incognita.models.weights_io import load_weights
from incognita.models.wrap_classifier import WrappedClassifier, wrap_classifier
from incognita.registry import need
from incognita.shapes import Float, Shaped

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
    with eval_mode(model), torch.no_grad():
        for class_name in class_names:
            texts = [template.format(class_name) for template in templates]
            tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            device = like_weights(model, torch.zeros(0)).device
            embedded = model.get_text_features(**{k: v.to(device) for k, v in tokens.items()})
            # a plain tensor before transformers 5
            embedded = getattr(embedded, "pooler_output", embedded)
            rows.append(normalize(embedded, dim=1).mean(dim=0))
    return normalize(torch.stack(rows), dim=1)


transformers = need("transformers", extra="transformers")

# what these do is resize, crop, rescale and normalize, and nothing else
_PLAIN = {"Beit", "Bit", "CLIP", "ConvNext", "DeiT", "Siglip", "ViT"}
_FILTERS: tuple[Interpolation, ...] = (  # by the numbers PIL gives them
    "nearest",
    "lanczos",
    "bilinear",
    "bicubic",
    "box",
    "hamming",
)
_SQUASHED_FROM = 384  # ConvNeXt's processor crops below this side, and distorts from it on


def load_transformers(folder: str, options: ModelOptions) -> WrappedClassifier | Detector:
    """Make a model from a folder with `config.json` and safetensors; nothing is downloaded.

    The architecture in the configuration decides: an image classifier is wrapped as it is, CLIP
    becomes a zero-shot classifier of `class_names`, an object detector is a detector, and any
    other vision model is a backbone whose linear probe is the weights file.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise MissingDataError(
            f"{path} has no config.json; name a folder that save_pretrained of transformers wrote."
        )
    architecture = _architecture(path)
    if "ForObjectDetection" in architecture:
        return load_transformers_detector(folder, options)
    preprocess = options.preprocess or preprocessing_of(path)
    name = f"transformers:{path.name}"
    if "ForImageClassification" in architecture:
        module = _network(architecture, path, options.weights)
        names = options.class_names or _class_names(module)
        return wrap_classifier(
            module, preprocess=preprocess, class_names=names, layers=options.layers, name=name
        )
    if architecture == "CLIPModel":
        return clip_zero_shot(
            _pretrained(architecture, path),
            options.class_names,
            tokenizer=transformers.AutoTokenizer.from_pretrained(path, local_files_only=True),
            preprocess=preprocess,
            layers=options.layers,
            name=name,
        )
    if options.weights is None:
        raise InvalidDataError(
            f"{path} holds a {architecture}, which has no classes; give the file of a linear probe "
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
    """Make a detector from a folder; OWL-ViT and OWLv2 look for the `class_names`."""
    path = Path(folder)
    architecture = _architecture(path)
    if options.preprocess is not None:
        raise InvalidDataError(
            f"preprocess was given, but the detector in {path} takes an image processor instead; "
            f"save it there, or wrap the network with wrap_transformers_detector(processor=)."
        )
    module = _network(architecture, path, options.weights)
    is_asked_by_text = family_of(module).head_kind is HeadKind.TEXT
    return wrap_transformers_detector(
        module,
        class_names=options.class_names,
        processor=_text_processor(path) if is_asked_by_text else _processor(path),
        name=f"transformers:{path.name}",
        latent=options.latent,
        shortcuts=options.shortcuts,
    )


@dataclass(frozen=True)
class FromProcessor:
    """An image processor of transformers as preprocessing, where it does more than the usual."""

    processor: Any

    def __call__(self, image: Shaped[np.ndarray, "_ _ 3"]) -> Tensor:
        """Apply the processor to the image."""
        batch = self.processor(images=Image.fromarray(image), return_tensors="pt")
        return batch["pixel_values"][0]  # type: ignore[no-any-return]


def preprocessing_of(source: str | Path | Any) -> Preprocessing | FromProcessor:
    """Give the preprocessing of an image processor, or of the one in a folder.

    Resizing is PIL's, as when the models were made; the processors of transformers 5 resize with
    torchvision unless they are told `backend="pil"`, which may move a pixel by one level.
    """
    processor = _processor(Path(source)) if isinstance(source, str | Path) else source
    family = type(processor).__name__.partition("ImageProcessor")[0]
    factor = getattr(processor, "rescale_factor", None) or 0.0
    is_usual = processor.do_rescale and abs(255 * factor - 1) < 1e-6
    size = _entries(getattr(processor, "size", None))
    if family not in _PLAIN or not is_usual or "longest_edge" in size or processor.do_pad:
        return FromProcessor(processor)
    resize, crop = _geometry(processor, family, size)
    normalizes = processor.do_normalize
    return Preprocessing(
        size=resize,
        crop=crop,
        mean=tuple(processor.image_mean) if normalizes else (0.0,) * 3,
        std=tuple(processor.image_std) if normalizes else (1.0,) * 3,
        interpolation=_FILTERS[int(processor.resample or 2)],
        crop_corner="smaller",
    )


def _geometry(
    processor: Any, family: str, size: Mapping[str, int]
) -> tuple[int | tuple[int, int] | None, tuple[int, int] | None]:
    entries = _entries(getattr(processor, "crop_size", None))
    crop = (entries["height"], entries["width"]) if processor.do_center_crop else None
    if not processor.do_resize:
        return None, crop
    if "shortest_edge" not in size:
        return (size["height"], size["width"]), crop
    shortest = size["shortest_edge"]
    if family != "ConvNext":
        return shortest, crop
    if shortest >= _SQUASHED_FROM:
        return (shortest, shortest), crop
    return int(shortest / processor.crop_pct), (shortest, shortest)


def _entries(size: Any) -> dict[str, int]:
    """Read a size of a processor: a mapping in every version, with empty entries in some."""
    return {} if size is None else {key: each for key, each in dict(size).items() if each}


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


def _processor(path: Path) -> Any:
    if not (path / "preprocessor_config.json").is_file():
        raise MissingDataError(
            f"{path} has no preprocessor_config.json, so what the model takes is not known; save "
            f"the image processor there, or give preprocess=."
        )
    return transformers.AutoImageProcessor.from_pretrained(path, local_files_only=True)


def _text_processor(path: Path) -> Any:
    try:
        return transformers.AutoProcessor.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise MissingDataError(
            f"{path} has no image processor with a tokenizer ({str(error).splitlines()[0]}); save "
            f"the processor of the model there."
        ) from error


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
    if missing:  # transformers would only warn, and use random numbers
        raise InvalidDataError(
            f"The weights in {path} lack {len(missing)} tensors of {architecture} (first "
            f"{', '.join(missing[:3])}); use those the configuration belongs to."
        )
    network: nn.Module = module.float()
    return network


def _class_names(module: Any) -> tuple[str, ...] | None:
    names = module.config.id2label
    is_generic = all(str(name) == f"LABEL_{k}" for k, name in names.items())
    return None if is_generic else tuple(str(names[k]) for k in sorted(names))
