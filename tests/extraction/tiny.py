"""A small network with an adapter written by hand, and images to show it."""

from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.dataset import ArrayDataset
from incognita.containers.outputs import Head
from incognita.models.classifier import Forward

MEAN, STD = 0.45, (0.2, 0.25, 0.3)
N_CLASSES = 5


class TinyNet(nn.Module):
    """Three convolutions and a linear head; logits are h / g where `divided`."""

    def __init__(self, seed: int = 0, *, divided: bool = False):
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU())
        self.stage1 = nn.Sequential(nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv2d(8, 7, 3, stride=2, padding=1), nn.ReLU())
        self.fc = nn.Linear(7, N_CLASSES)
        self.divisor = nn.Linear(7, 1) if divided else None
        nn.init.normal_(self.fc.weight, std=1.0)

    def forward(self, batch: Tensor, replace_map: Any = None) -> Forward:
        maps: dict[str, Tensor] = {}
        out = batch
        for name in ("stem", "stage1", "stage2"):
            out = getattr(self, name)(out)
            if replace_map is not None and replace_map[0] == name:
                out = replace_map[1](out)
            maps[name] = out
        features = out.mean(dim=(2, 3))
        logits = self.fc(features)
        if self.divisor is None:
            return Forward(logits, features, maps)
        return Forward(logits / self.divisor(features).sigmoid(), features, maps, logits)


class TinyClassifier:
    """What `wrap_classifier` would make of it."""

    def __init__(self, seed: int = 0, *, divided: bool = False):
        self.name = "tiny"
        self.module = TinyNet(seed, divided=divided).eval()
        self.class_names = [f"class {k}" for k in range(N_CLASSES)]
        fc = self.module.fc
        self.head = None if divided else Head(fc.weight.detach(), fc.bias.detach())
        self.layers = ("stem", "stage1", "stage2")
        self.pixel_std = torch.tensor(STD)
        self.preprocessing = "divide by 255, normalize"
        weights = b"".join(weight.detach().numpy().tobytes() for weight in self.module.parameters())
        self.weights_hash = sha256(weights).hexdigest()

    def preprocess(self, image: np.ndarray) -> Tensor:
        pixels = torch.from_numpy(image.astype(np.float32) / 255).permute(2, 0, 1)
        return (pixels - MEAN) / self.pixel_std.view(3, 1, 1)

    def forward(self, batch: Tensor, *, replace_map: Any = None) -> Forward:
        return self.module(batch, replace_map)


def images(n: int, *, size: int = 12, seed: int = 0, labels: bool = True) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (n, size, size, 3), dtype=np.uint8)
    ids = tuple(f"image-{k}" for k in range(n))
    return ArrayDataset("noise", ids, pixels, np.arange(n) % N_CLASSES if labels else None)


def batch_of(classifier: TinyClassifier, dataset: ArrayDataset) -> Tensor:
    return torch.stack([classifier.preprocess(image) for image in dataset.images])


class FailingImages:
    """Images some of which cannot be read, or are not what they should be."""

    source_classes = None

    def __init__(self, dataset: ArrayDataset, faults: dict[int, Any]):
        self.name, self.image_ids, self.labels = dataset.name, dataset.image_ids, dataset.labels
        self._dataset, self._faults = dataset, faults

    def load(self, index: int) -> Any:
        fault = self._faults.get(index)
        if isinstance(fault, BaseException):
            raise fault
        return self._dataset.load(index) if fault is None else fault

    def fingerprint(self) -> str:
        return self._dataset.fingerprint() + repr(sorted(self._faults))

    def subset(self, indices: Any) -> Any:
        raise NotImplementedError
