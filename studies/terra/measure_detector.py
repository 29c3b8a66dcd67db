"""Measures the detector of Terra that ships with incognita.

    python studies/terra/measure_detector.py

Prints the average precision on known test scenes, what is found in scenes of unknown objects at a
confidence of one half or more, and how long one scene takes one processor core.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torchvision.models.detection import FasterRCNN

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from incognita.benchmarks.terra.classes import terra_classes  # noqa: E402
from incognita.benchmarks.terra.datasets import terra_scenes  # noqa: E402
from incognita.containers.boxes import Detections  # noqa: E402
from incognita.metrics.detection import coco_numbers  # noqa: E402
from incognita.models.embedded.terra_detector import load_terra_detector  # noqa: E402

GROUPS = ("known", "near", "far", "farther")
SURE = 0.5


def detect(
    detector: FasterRCNN, images: Sequence[np.ndarray], image_ids: Sequence[str], batch: int = 1
) -> Detections:
    """Run the detector on these images; label 1 is the first class of the tree."""
    device = next(detector.parameters()).device
    found = []
    with torch.inference_mode():
        for start in range(0, len(images), batch):
            pixels = [torch.from_numpy(image) for image in images[start : start + batch]]
            found += detector([image.to(device).permute(2, 0, 1).float() / 255 for image in pixels])
    columns = {
        name: torch.cat([image[name] for image in found]).cpu().double().numpy()
        for name in ("boxes", "scores", "labels")
    }
    return Detections(
        image_ids,
        np.cumsum([0, *(len(image["boxes"]) for image in found)]),
        columns["boxes"],
        columns["scores"],
        columns["labels"].astype(np.int64) - 1,
        terra_classes(),
    )


def describe(detector: FasterRCNN, group: str, n: int) -> str:
    """Return a line of the table: results on test scenes of a group."""
    scenes = terra_scenes("test", n=n, classes=group)
    images = [scenes.load(k) for k in range(n)]
    started = time.process_time()  # of one thread: what else the machine does is not counted
    found = detect(detector, images, scenes.image_ids)
    milliseconds = 1000 * (time.process_time() - started) / n
    n_sure = np.diff(found[found.confidence >= SURE].offsets)
    truth = scenes.truth()
    precision = "|"
    if group == "known":
        numbers = coco_numbers(found, truth)
        precision = f"{100 * numbers.ap50:.1f} % | {100 * numbers.ap:.1f} %"
    return (
        f"| {group} | {precision} | {n_sure.mean():.2f} of {len(truth) / n:.2f} "
        f"| {100 * (n_sure == 0).mean():.1f} % | {milliseconds:.1f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=500, help="scenes of each group")
    n = parser.parse_args().n
    torch.set_num_threads(1)
    detector = load_terra_detector()
    print("| scenes | AP50 | AP | sure boxes a scene | scenes without one | ms a scene |")
    print("| --- | --- | --- | --- | --- | --- |")
    for group in GROUPS:
        print(describe(detector, group, n))


if __name__ == "__main__":
    main()
