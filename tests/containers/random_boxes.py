"""Random boxes of a street: objects, and detections that lie on most of them."""

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role

CLASSES = Classes(("car", "bus", "deer"), (Role.KNOWN, Role.KNOWN, Role.UNKNOWN))
SIZE = (640, 480)


def random_boxes(n_images: int = 12, seed: int = 0) -> tuple[Detections, BoxTruth]:
    """Return detections and truth of the same images; some images have neither."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, n_images)
    counts[0] = 0
    n = int(counts.sum())
    corner, size = rng.uniform(0, 300, (n, 2)), rng.uniform(20, 150, (n, 2))
    xyxy = np.concatenate([corner, corner + size], axis=1)
    labels = rng.integers(0, 3, n)
    offsets = np.cumsum([0, *counts])
    ids = np.arange(1, n_images + 1)
    truth = BoxTruth(ids, offsets, xyxy, labels, CLASSES)
    noise = rng.normal(0, 6, (n, 4))
    noise[:, 2:] = np.maximum(noise[:, 2:], 5 - size + noise[:, :2])
    said = np.where(rng.random(n) < 0.8, labels, rng.integers(0, 3, n))
    found = Detections(ids, offsets, xyxy + noise, rng.random(n), said, CLASSES)
    return found[rng.random(n) < 0.9], truth
