"""Trains the detector of Terra that ships with incognita.

    python studies/terra/train_detector.py                   # the shipped recipe, GPU or CPU
    python studies/terra/train_detector.py --n-train 500 --epochs 4        # a short try

The scenes are rendered from a seed, so nothing is read and the set is reproducible. Prints
the average precision on validation scenes after every epoch and on test scenes at the end, and
writes the weights in half precision with the recipe, the renderer's version and the precision.
"""

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from measure_detector import detect  # puts src/ on the path
from torch import Tensor
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.image_list import ImageList

from incognita.benchmarks.terra.classes import KNOWN_NAMES
from incognita.benchmarks.terra.datasets import MOST_OBJECTS, terra_scenes
from incognita.benchmarks.terra.rendering import RENDERER_VERSION
from incognita.metrics.detection import CocoNumbers, coco_numbers
from incognita.models.embedded.terra_detector import (
    PIXEL_MEAN,
    PIXEL_STD,
    SCENE_SIZE,
    WEIGHTS,
    build_terra_detector,
)
from incognita.models.load import save_shipped_weights

N_SYMMETRIES = 8
CLIP = 10.0  # maximum norm of the gradient, exceeded only in the first steps


@dataclass(frozen=True)
class Recipe:
    """Everything the weights depend on."""

    n_train: int = 2_000
    n_validation: int = 200
    n_test: int = 500
    epochs: int = 8
    batch: int = 16
    rate: float = 0.02
    momentum: float = 0.9
    weight_decay: float = 1e-4
    data_seed: int = 0
    seed: int = 1


class Scenes(NamedTuple):
    """Training scenes on the device; boxes are padded with zeros to six objects."""

    pixels: Tensor  # [n, 3, 160, 160], bytes
    xyxy: Tensor  # [n, 6, 4]
    labels: Tensor  # [n, 6], 1 to 12
    n_objects: list[int]


def read_recipe() -> tuple[Recipe, Path, str]:
    """Read the recipe, the output path and the device from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = vars(parser.parse_args())
    out, device = given.pop("out"), given.pop("device")
    return Recipe(**given), out, device


def render_training_scenes(recipe: Recipe, device: str) -> Scenes:
    """Render the training scenes in threads; the renderer releases the GIL."""
    n = recipe.n_train
    source = terra_scenes("train", seed=recipe.data_seed, n=n)
    pixels = np.empty((n, 3, SCENE_SIZE, SCENE_SIZE), np.uint8)
    xyxy = np.zeros((n, MOST_OBJECTS, 4), np.float32)
    labels = np.zeros((n, MOST_OBJECTS), np.int64)

    def render(k: int) -> int:
        scene = source.scene(k)
        count = len(scene.xyxy)
        pixels[k] = scene.image.transpose(2, 0, 1)
        xyxy[k, :count], labels[k, :count] = scene.xyxy, scene.class_ids + 1
        return count

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = list(pool.map(render, range(n), chunksize=64))
    images, boxes, classes = (
        torch.from_numpy(array).to(device) for array in (pixels, xyxy, labels)
    )
    return Scenes(images, boxes, classes, counts)


def normalized(pixels: Tensor) -> Tensor:
    """Convert bytes to inputs of the backbone."""
    mean = torch.tensor(PIXEL_MEAN, device=pixels.device).view(3, 1, 1)
    std = torch.tensor(PIXEL_STD, device=pixels.device).view(3, 1, 1)
    return (pixels.float() / 255 - mean) / std


def turn(pixels: Tensor, xyxy: Tensor, symmetry: int) -> tuple[Tensor, Tensor]:
    """Mirror images and boxes by one of the eight symmetries of a square.

    The renderer turns objects by any angle and mirrors every second one, so no class changes.
    """
    left, top, right, bottom = xyxy.unbind(-1)
    if symmetry & 1:
        pixels, left, right = pixels.flip(3), SCENE_SIZE - right, SCENE_SIZE - left
    if symmetry & 2:
        pixels, top, bottom = pixels.flip(2), SCENE_SIZE - bottom, SCENE_SIZE - top
    if symmetry & 4:
        pixels, left, top, right, bottom = pixels.transpose(2, 3), top, left, bottom, right
    return pixels, torch.stack((left, top, right, bottom), dim=-1)


def loss_of(detector: FasterRCNN, scenes: Scenes, rows: Tensor, symmetry: int) -> Tensor:
    """Compute the sum of torchvision's four losses over a batch.

    The parts are called one by one, because the whole network would prepare images one by one.
    """
    pixels, xyxy = turn(normalized(scenes.pixels[rows]), scenes.xyxy[rows], symmetry)
    targets = [
        {"boxes": boxes[:count], "labels": labels[:count]}
        for boxes, labels, count in zip(
            xyxy, scenes.labels[rows], (scenes.n_objects[k] for k in rows.tolist()), strict=True
        )
    ]
    sizes = [(SCENE_SIZE, SCENE_SIZE)] * len(rows)
    maps = detector.backbone(pixels.contiguous(memory_format=torch.channels_last))
    proposals, first = detector.rpn(ImageList(pixels, sizes), maps, targets)
    _, second = detector.roi_heads(maps, proposals, sizes, targets)
    return torch.stack([*first.values(), *second.values()]).sum()


def precision(detector: FasterRCNN, part: str, n: int, recipe: Recipe) -> CocoNumbers:
    """Compute the COCO metrics on known scenes of a part."""
    scenes = terra_scenes(part, seed=recipe.data_seed, n=n)
    detector.eval()
    images = [scenes.load(k) for k in range(n)]
    return coco_numbers(detect(detector, images, scenes.image_ids, batch=50), scenes.truth())


def train(recipe: Recipe, device: str) -> FasterRCNN:
    """Train a detector from scratch."""
    torch.manual_seed(recipe.seed)
    torch.set_float32_matmul_precision("high")
    detector = build_terra_detector().to(device, memory_format=torch.channels_last)
    scenes = render_training_scenes(recipe, device)
    steps = recipe.epochs * (recipe.n_train // recipe.batch)
    optimizer = torch.optim.SGD(
        detector.parameters(),
        lr=recipe.rate,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=True,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.rate, total_steps=steps, pct_start=0.05, cycle_momentum=False
    )
    order_of = torch.Generator().manual_seed(recipe.seed)
    for epoch in range(recipe.epochs):
        started = time.perf_counter()
        loss = train_epoch(detector, scenes, recipe.batch, order_of, optimizer, schedule)
        seconds = time.perf_counter() - started
        found = precision(detector, "validation", recipe.n_validation, recipe)
        print(
            f"epoch {epoch + 1:3d}  loss {loss:.3f}  validation AP50 {found.ap50:.4f} "
            f"AP {found.ap:.4f}  {seconds:.1f} s",
            flush=True,
        )
    return detector


def train_epoch(
    detector: FasterRCNN,
    scenes: Scenes,
    batch: int,
    order_of: torch.Generator,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> float:
    """Train on all full batches once, each mirrored or turned, and return the mean loss."""
    detector.train()
    order = torch.randperm(len(scenes.pixels), generator=order_of)
    total = torch.zeros((), device=scenes.pixels.device)
    n_batches = len(order) // batch
    for k in range(n_batches):
        symmetry = int(torch.randint(N_SYMMETRIES, (), generator=order_of))
        loss = loss_of(detector, scenes, order[k * batch : (k + 1) * batch], symmetry)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(detector.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        total += loss.detach()
    return float(total) / n_batches


def write(detector: FasterRCNN, recipe: Recipe, found: CocoNumbers, out: Path) -> None:
    """Save the weights with their metadata."""
    metadata = {
        "ap50": f"{found.ap50:.4f}",
        "ap": f"{found.ap:.4f}",
        "recipe": json.dumps(asdict(recipe)),
        "renderer_version": str(RENDERER_VERSION),
        "torch": torch.__version__,
    }
    save_shipped_weights(out, detector, class_names=KNOWN_NAMES, metadata=metadata)
    print(f"test AP50 {found.ap50:.4f} AP {found.ap:.4f}, {out.stat().st_size} bytes in {out}")


def main() -> None:
    """Train, measure, write."""
    recipe, out, device = read_recipe()
    print(f"training on {device}: {recipe}")
    detector = train(recipe, device)
    write(detector, recipe, precision(detector, "test", recipe.n_test, recipe), out)


if __name__ == "__main__":
    main()
