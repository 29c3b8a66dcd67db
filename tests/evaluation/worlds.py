"""A benchmark of small pictures and a network that can tell them apart, made in a moment."""

import numpy as np
import torch
from torch import nn

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.dataset import ArrayDataset

N_CLASSES = 3


class TinyNet(nn.Module):
    """Two convolutions and a head; its weights come from the seed, not from training."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.stage1 = nn.Sequential(nn.Conv2d(8, 12, 3, 2, padding=1), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv2d(12, 16, 3, 2, padding=1), nn.ReLU())
        self.head = nn.Linear(16, N_CLASSES)

    def forward(self, x):
        x = self.stage2(self.stage1(self.stem(x)))
        return self.head(x.mean(dim=(2, 3)) * 10)


def pictures(name, n, *, seed, classes=None):
    """Stripes whose color and width depend on the class; without classes, noise."""
    rng = np.random.default_rng(seed)
    labels = None if classes is None else rng.integers(0, classes, n)
    images = rng.integers(0, 60, (n, 8, 8, 3), dtype=np.uint8)
    if labels is None:
        images = images * 4
    else:
        for image, label in zip(images, labels, strict=True):
            image[:, :, label] += np.uint8(150)
    ids = tuple(f"{name}/{k}" for k in range(n))
    return ArrayDataset(name, ids, images, labels)


def tiny_benchmark(**changes):
    parts = {
        "name": "tiny",
        "version": 1,
        "title": "stripes and noise",
        "classes": ("red", "green", "blue"),
        "train": pictures("train", 70, seed=1, classes=N_CLASSES),
        "validation": pictures("validation", 40, seed=2, classes=N_CLASSES),
        "test": pictures("test", 60, seed=3, classes=N_CLASSES),
        "unknown": {
            "near": {"a": pictures("a", 30, seed=4), "b": pictures("b", 20, seed=5)},
            "far": {"c": pictures("c", 25, seed=6)},
        },
        "shifted": {"dim": pictures("dim", 15, seed=7, classes=N_CLASSES)},
        "unknown_validation": pictures("unknown-validation", 20, seed=8),
    }
    return Benchmark(**(parts | changes))


def n_images(benchmark):
    parts = [benchmark.train, benchmark.validation, benchmark.test, benchmark.unknown_validation]
    parts += benchmark.shifted.values()
    parts += [each for group in benchmark.unknown.values() for each in group.values()]
    return sum(len(part) for part in parts)
