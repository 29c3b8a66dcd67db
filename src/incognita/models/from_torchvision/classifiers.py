"""Models of torchvision by name: classifiers with their preprocessing, and detectors."""

from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlparse

import torch
from torch import nn
from torchvision import models  # type: ignore[import-untyped]

from incognita.errors import MissingDataError, unknown_name
from incognita.models.classifier import WrappedClassifier, wrap_classifier
from incognita.models.from_torchvision.detectors import (
    TorchvisionDetector,
    load_torchvision_detector,
)
from incognita.models.load import ModelOptions, load_weights, read_weights
from incognita.models.preprocessing import FromPIL, Preprocessing


def load_torchvision(name: str, options: ModelOptions) -> WrappedClassifier | TorchvisionDetector:
    """Load a classifier or a detector by name.

    The name is `resnet18`, or `resnet18.IMAGENET1K_V1` to choose the weights. Without a weights
    file the published weights are read from the cache of torch.
    """
    architecture, _, chosen = name.partition(".")
    classifiers = models.list_models(module=models)
    detectors = models.list_models(module=models.detection)
    if architecture not in (*classifiers, *detectors):
        raise unknown_name("torchvision model", architecture, [*classifiers, *detectors])
    published = _published(architecture, chosen)
    path = options.weights or _cached(name, published)
    if architecture in detectors:
        return load_torchvision_detector(name, published, path, options)
    module = _network(architecture, _n_classes(architecture, path))
    load_weights(module, path)
    return wrap_classifier(
        module,
        preprocess=options.preprocess or preprocessing_of(published),
        class_names=options.class_names or _published_names(module, published),
        layers=options.layers,
        name=f"torchvision:{name}",
    )


def preprocessing_of(weights: Any) -> Preprocessing | FromPIL:
    """Return the preprocessing of an entry of a weights enum, e.g. `ResNet18_Weights.DEFAULT`."""
    transform = weights.transforms()
    if type(transform).__name__ != "ImageClassification":
        return FromPIL(transform)
    (size,), (crop,) = transform.resize_size, transform.crop_size
    interpolation = transform.interpolation.value
    return Preprocessing(size, crop, tuple(transform.mean), tuple(transform.std), interpolation)


def _published(architecture: str, chosen: str) -> Any:
    entries = models.get_model_weights(architecture)
    if not chosen:
        return entries["DEFAULT"]
    if chosen not in entries.__members__:
        raise unknown_name(f"weights of {architecture}", chosen, entries.__members__)
    return entries[chosen]


def _cached(name: str, published: Any) -> Path:
    file = PurePosixPath(urlparse(published.url).path).name
    path = Path(torch.hub.get_dir()) / "checkpoints" / file
    if not path.is_file():
        raise MissingDataError(
            f"The weights of torchvision:{name} are not at {path}, and nothing is downloaded; "
            f"pass a file with --weights FILE, or download {published.url} to that path."
        )
    return path


def _network(architecture: str, n_classes: int) -> nn.Module:
    # skips a slow initialization of weights that are replaced anyway
    quick = {"init_weights": False} if architecture in ("googlenet", "inception_v3") else {}
    network: nn.Module = models.get_model(
        architecture, weights=None, num_classes=n_classes, **quick
    )
    return network


def _n_classes(architecture: str, path: Path) -> int:
    """Read the number of classes from the last weight, the head in every torchvision network."""
    with torch.device("meta"):
        last = list(_network(architecture, 2).state_dict())[-1]
    weights = read_weights(path)
    return len(weights[last]) if last in weights else 1000


def _published_names(module: nn.Module, published: Any) -> tuple[str, ...] | None:
    names = tuple(published.meta["categories"])
    *_, last = module.state_dict().values()
    return names if len(last) == len(names) else None
