"""Corrupting an image of 640 x 480: ours, and the fastest peer of the same definitions.

The 15 kinds of `imagenet-c` at severity 3, and their sum. Random draws differ between the two; the
tests compare what comes out. Then the share of the time that ResNet-18 at 224 waits for images of
500 x 375 when they are corrupted as they are read, and when they are not.
"""

import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

from bench.harness import Measurement, Row, Run, at_least, compare, measure, peer, waited
from incognita.benchmarks.corruptions import corrupt, kinds_of

OURS, PEER = "incognita", "imagecorruptions-imaug"
SEVERITY = 3
BARS = {PEER: at_least(10)}


def rows() -> list[Row]:
    """Compare kind by kind, then the sums."""
    import cv2

    cv2.setNumThreads(1)
    image = scene()
    table, sums = [], {OURS: 0.0, PEER: 0.0}
    for kind in kinds_of("imagenet-c"):
        cases = cases_of(image, kind)
        measured = measure(cases)
        table += compare(kind, cases, measured, ours=OURS, bars={})
        for name, cost in measured.items():
            sums[name] += cost.seconds
    total = {name: Measurement(seconds, None) for name, seconds in sums.items() if seconds}
    table += compare("sum of 15", dict.fromkeys(sums), total, ours=OURS, bars=BARS)
    return table + waiting()


def cases_of(image: np.ndarray, kind: str) -> dict[str, Run | None]:
    return {
        OURS: lambda: corrupt(image, kind, SEVERITY, image_id="a"),
        PEER: peer("imagecorruptions", lambda: peer_corrupt(image, kind)),
    }


def peer_corrupt(image: np.ndarray, kind: str) -> Run:
    warnings.filterwarnings("ignore")
    import imagecorruptions

    return lambda: imagecorruptions.corrupt(image, severity=SEVERITY, corruption_name=kind)


def scene() -> np.ndarray:
    """Draw smooth colors with disks on them: what JPEG does with noise is not its usual work."""
    import cv2

    rng = np.random.default_rng(0)
    image = cv2.resize(rng.integers(0, 256, (30, 40, 3), np.uint8), (640, 480))
    for _ in range(20):
        center = (int(rng.integers(640)), int(rng.integers(480)))
        color = rng.integers(0, 256, 3).tolist()
        cv2.circle(image, center, int(rng.integers(5, 90)), color, -1)
    return image


def waiting(n_images: int = 512) -> list[Row]:
    """Measure how long the network waits for images, on two threads."""
    import torch
    import torchvision

    from incognita.benchmarks.corruptions.datasets import corrupted
    from incognita.extraction.extract import extract
    from incognita.extraction.settings import Settings
    from incognita.formats.images import FileDataset
    from incognita.models.classifier import wrap_classifier

    torch.set_num_threads(2)
    network = torchvision.models.resnet18().eval()
    how = "size=256 crop=224 mean=imagenet std=imagenet"
    classifier = wrap_classifier(network, preprocess=how, example=torch.zeros(2, 3, 224, 224))
    with tempfile.TemporaryDirectory() as folder:
        names = written_images(Path(folder), n_images)
        clean = FileDataset("clean", Path(folder), names)
        sets = {"clean": clean, "saod, severity 3": corrupted(clean, "saod", 3)}
        extract(classifier, sets["saod, severity 3"].subset(range(64)))  # compiles
        rows = []
        for name, dataset in sets.items():
            seconds: list[float] = []
            start = time.perf_counter()
            with patch("incognita.extraction.shards.Loader.batches", timing(seconds)):
                extract(classifier, dataset, settings=Settings(batch_size=32))
            total = time.perf_counter() - start
            # the first batch cannot be there before anything was read
            rows.append(waited("the network waits", name, sum(seconds[1:]), total))
    return rows


def timing(seconds: list[float]) -> object:
    """Return `Loader.batches` that notes how long each batch was waited for."""
    from incognita.extraction.shards import Loader

    original = Loader.batches

    def batches(self: Loader, jobs: object) -> Iterator[object]:
        found = original(self, jobs)  # type: ignore[arg-type]
        while True:
            start = time.perf_counter()
            batch = next(found, None)
            if batch is None:
                return
            seconds.append(time.perf_counter() - start)
            yield batch

    return batches


def written_images(folder: Path, n_images: int) -> tuple[str, ...]:
    import cv2

    image = cv2.resize(scene(), (500, 375))
    names = tuple(f"{k:04d}.jpg" for k in range(n_images))
    for k, name in enumerate(names):
        cv2.imwrite(str(folder / name), np.roll(image, k, axis=1))
    return names
