"""Extracts slowly into a store, to be killed in the middle: python slow_run.py STORE [SECONDS]."""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from tests.extraction.tiny import TinyClassifier, images

from incognita.extraction.extra_outputs import GramRows, InputStep
from incognita.extraction.extract import OutputStore, Settings, extract

EXTRA_OUTPUTS = (GramRows((1, 2)), InputStep(0.001))
N_IMAGES = 2300


class SlowImages:
    """Images that take their time once a thousand of them are read."""

    source_classes = None

    def __init__(self, seconds: float):
        dataset = images(N_IMAGES, size=8)
        self.name, self.image_ids, self.labels = dataset.name, dataset.image_ids, dataset.labels
        self.fingerprint, self.subset, self._dataset = dataset.fingerprint, dataset.subset, dataset
        self._seconds = seconds

    def load(self, index: int) -> np.ndarray:
        time.sleep(self._seconds if index > 1000 else 0)
        return self._dataset.load(index)


def run(root: Path, seconds: float = 0.0, device: str = "cpu"):
    settings = Settings(batch_size=100, device=device)
    dataset, store = SlowImages(seconds), OutputStore(root)
    classifier = TinyClassifier()
    return extract(
        classifier,
        dataset,
        layers=True,
        extra_outputs=EXTRA_OUTPUTS,
        settings=settings,
        store=store,
    )


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    run(Path(sys.argv[1]), float(sys.argv[2]))
