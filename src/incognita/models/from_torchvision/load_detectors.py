"""Detectors of torchvision by name, with weights from a file or from torch's cache."""

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision import models  # type: ignore[import-untyped]

from incognita.models.from_torchvision.detectors import (
    TorchvisionDetector,
    wrap_torchvision_detector,
)
from incognita.models.load import ModelOptions
from incognita.models.weights_io import load_weights, read_weights

# their builders do this to the published weights, which an older torchvision trained
_WITHOUT_EPSILON = {
    "FasterRCNN_ResNet50_FPN_Weights.COCO_V1",
    "KeypointRCNN_ResNet50_FPN_Weights.COCO_V1",
    "MaskRCNN_ResNet50_FPN_Weights.COCO_V1",
    "RetinaNet_ResNet50_FPN_Weights.COCO_V1",
}


def load_torchvision_detector(
    name: str, published: Any, path: Path, options: ModelOptions
) -> TorchvisionDetector:
    """Make a detector from `fasterrcnn_resnet50_fpn` or `fasterrcnn_resnet50_fpn.COCO_V1`.

    Args:
        name: What stands behind `torchvision:`.
        published: The entry of the weights enum: its class names, where they fit the file.
        path: The file with the weights, which decides the number of classes.
        options: Class names, preprocessing and layers (the one that LaRD reads first) of the user.
    """
    architecture = name.partition(".")[0]
    n_labels = _n_labels(architecture, path, published)
    module = _network(architecture, n_labels)
    _load(module, path)
    if options.weights is None and str(published) in _WITHOUT_EPSILON:
        for each in module.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.eps = 0.0
    return wrap_torchvision_detector(
        module,
        class_names=options.class_names or _class_names(n_labels, published),
        name=f"torchvision:{name}",
        preprocess=options.preprocess,
        latent=options.latent,
        shortcuts=options.shortcuts,
    )


def _network(architecture: str, n_labels: int) -> nn.Module:
    network: nn.Module = models.get_model(
        architecture, weights=None, weights_backbone=None, num_classes=n_labels
    )
    return network


def _load(module: nn.Module, path: Path) -> None:
    """Load weights; names of older files are brought up to date by the parts of the network."""
    with suppress(RuntimeError):  # another shape, which is said better below
        left = module.load_state_dict(read_weights(path), strict=False)
        counters = [each.endswith("num_batches_tracked") for each in left.missing_keys]
        if all(counters) and not left.unexpected_keys:
            return
    load_weights(module, path)


def _n_labels(architecture: str, path: Path, published: Any) -> int:
    """Read the number of labels off the first tensor that grows with it."""
    with torch.device("meta"):
        two, three = (_network(architecture, n).state_dict() for n in (2, 3))
    name = next(each for each in two if len(two[each].shape) and len(two[each]) != len(three[each]))
    per_label = len(three[name]) - len(two[name])
    weights = read_weights(path)
    n_rows = len(weights[name]) if name in weights else 0
    return n_rows // per_label or len(published.meta["categories"])


def _class_names(n_labels: int, published: Any) -> tuple[str, ...] | None:
    """Give the published names behind the first, which is background; "N/A" is there ten times."""
    names = list(published.meta["categories"])
    if n_labels != len(names):
        return None
    n_times = Counter(names)
    unique = [each if n_times[each] == 1 else f"{each} {k}" for k, each in enumerate(names)]
    return tuple(unique[1:])
