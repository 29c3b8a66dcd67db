"""Classifiers of timm by name, with the preprocessing of their configuration."""

from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlparse

import torch
from torch import nn

from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.models.classifier import WrappedClassifier, wrap_classifier
from incognita.models.load import ModelOptions, load_weights, read_weights
from incognita.models.preprocessing import FromPIL, Preprocessing
from incognita.registry import need

timm = need("timm", extra="timm")
data = need("timm.data", extra="timm")

_NO_OPTIONS = ModelOptions()
_HUB_FILES = ("model.safetensors", "pytorch_model.bin")


def load_timm(name: str, options: ModelOptions) -> WrappedClassifier:
    """Load a classifier by a name such as `resnet18.a1_in1k`.

    Without a weights file the published weights are read from the cache of the Hugging Face hub
    or of torch.
    """
    names = timm.list_pretrained() if "." in name else timm.list_models()
    if name not in names:
        raise unknown_name("timm model", name, names)
    if options.weights is None:
        module = _pretrained(name)
    else:
        module = timm.create_model(name, pretrained=False, **_n_classes(name, options.weights))
        load_weights(module, options.weights)
    return wrap_timm(module, options, name=f"timm:{name}")


def wrap_timm(
    module: nn.Module, options: ModelOptions = _NO_OPTIONS, *, name: str | None = None
) -> WrappedClassifier:
    """Wrap a timm network as a classifier, with its preprocessing and class names."""
    if module.num_classes == 0:
        raise InvalidDataError(
            f"{name or 'This network of timm'} has no classes, only features; add a linear probe "
            f"with incognita.models.from_transformers.classifiers.dinov2_probe."
        )
    return wrap_classifier(
        module,
        preprocess=options.preprocess or preprocessing_of(module),
        class_names=options.class_names or _configured_names(module),
        layers=options.layers,
        name=name,
    )


def preprocessing_of(module: nn.Module) -> Preprocessing | FromPIL:
    """Return the preprocessing that timm uses to evaluate this network."""
    config = data.resolve_model_data_config(module)
    _, height, width = config["input_size"]
    is_plain = config["interpolation"] != "random" and config["input_size"][0] == 3
    if not is_plain or config["crop_mode"] == "border" or height != width:
        return FromPIL(data.create_transform(**config, is_training=False))
    scaled = int(height / config["crop_pct"])
    return Preprocessing(
        (scaled, scaled) if config["crop_mode"] == "squash" else scaled,
        height,
        tuple(config["mean"]),
        tuple(config["std"]),
        config["interpolation"],
    )


def _pretrained(name: str) -> nn.Module:
    file = _cached_file(timm.get_pretrained_cfg(name))
    if file is None:
        raise MissingDataError(
            f"The weights of timm:{name} are not in a local cache, and nothing is downloaded; "
            f"pass a file with --weights FILE, or fill the cache of the Hugging Face hub first."
        )
    # a file in the configuration takes precedence over URLs, so nothing is downloaded
    network: nn.Module = timm.create_model(
        name, pretrained=True, pretrained_cfg_overlay={"file": str(file)}
    )
    return network


def _cached_file(config: Any) -> Path | None:
    if config.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        repository, _, revision = config.hf_hub_id.partition("@")
        for file in [config.hf_hub_filename] if config.hf_hub_filename else _HUB_FILES:
            found = try_to_load_from_cache(repository, file, revision=revision or None)
            if isinstance(found, str):
                return Path(found)
    if config.url:
        file = PurePosixPath(urlparse(config.url).path).name
        path = Path(torch.hub.get_dir()) / "checkpoints" / file
        return path if path.is_file() else None
    return None


def _n_classes(name: str, path: Path) -> dict[str, int]:
    """Read the number of classes from the head in the weights file."""
    head = getattr(timm.get_pretrained_cfg(name), "classifier", None)
    weight = read_weights(path).get(f"{head}.weight") if isinstance(head, str) else None
    return {} if weight is None else {"num_classes": len(weight)}


def _configured_names(module: nn.Module) -> tuple[str, ...] | None:
    config = getattr(module, "pretrained_cfg", {})
    if config.get("label_names") and len(config["label_names"]) == module.num_classes:
        return tuple(config["label_names"])
    # a network with another thousand classes cannot be told apart from ImageNet here
    subset = data.infer_imagenet_subset(module) if config.get("num_classes") == 1000 else None
    if subset is None or module.num_classes != config["num_classes"]:
        return None
    return tuple(data.ImageNetInfo(subset).label_descriptions())
