"""Trains the classifier of Terra that ships with incognita.

    python studies/terra/train_classifier.py                 # the shipped recipe, GPU or CPU
    python studies/terra/train_classifier.py --n-train 12000 --epochs 8     # a short try

The images are rendered from a seed, so nothing is read and the same set can be had again. Prints
the accuracy on validation images after every epoch and on test images at the end, and writes the
weights in half precision with the recipe, the renderer's version and the accuracy beside them.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from incognita.benchmarks.terra.classes import KNOWN_NAMES  # noqa: E402
from incognita.benchmarks.terra.datasets import terra_dataset  # noqa: E402
from incognita.benchmarks.terra.rendering import RENDERER_VERSION  # noqa: E402
from incognita.models.embedded.terra_classifier import (  # noqa: E402
    PIXEL_MEAN,
    PIXEL_STD,
    WEIGHTS,
    build_terra_classifier,
)
from incognita.models.load import save_shipped_weights  # noqa: E402


@dataclass(frozen=True)
class Recipe:
    """Everything the weights depend on."""

    n_train: int = 16_000
    n_validation: int = 2_400
    n_test: int = 6_000
    epochs: int = 40
    batch: int = 64
    rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    data_seed: int = 0
    seed: int = 1


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


def load_images(part: str, n: int, recipe: Recipe, device: str) -> tuple[Tensor, Tensor]:
    """Render a part as bytes on the device, [n, 3, 32, 32], with its labels."""
    images = terra_dataset(part, seed=recipe.data_seed, n=n)
    pixels = torch.from_numpy(images.render()).permute(0, 3, 1, 2).contiguous()
    return pixels.to(device), torch.from_numpy(images.labels).to(device)


def normalized(pixels: Tensor) -> Tensor:
    """Turn bytes into what the network takes."""
    mean = torch.tensor(PIXEL_MEAN, device=pixels.device).view(3, 1, 1)
    std = torch.tensor(PIXEL_STD, device=pixels.device).view(3, 1, 1)
    return (pixels.float() / 255 - mean) / std


def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Compute the accuracy, in single precision."""
    network.eval()
    with torch.inference_mode():
        parts = [network(normalized(part)).argmax(1) for part in images.split(500)]
    return float((torch.cat(parts) == labels).double().mean())


def train(recipe: Recipe, device: str) -> tuple[nn.Module, float]:
    """Train a network from scratch; return it with its accuracy on test images."""
    torch.manual_seed(recipe.seed)
    torch.backends.cudnn.deterministic = True
    network = build_terra_classifier(len(KNOWN_NAMES))
    network = network.to(device, memory_format=torch.channels_last)
    images, labels = load_images("train", recipe.n_train, recipe, device)
    validation = load_images("validation", recipe.n_validation, recipe, device)
    steps = recipe.epochs * (len(images) // recipe.batch)
    optimizer = torch.optim.SGD(
        network.parameters(),
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
        order = torch.randperm(len(images), generator=order_of).to(device)
        loss = train_epoch(network, images, labels, order, recipe.batch, optimizer, schedule)
        correct = accuracy(network, *validation)
        seconds = time.perf_counter() - started
        print(f"epoch {epoch + 1:3d}  loss {loss:.3f}  validation {correct:.4f}  {seconds:.1f} s")
    return network, accuracy(network, *load_images("test", recipe.n_test, recipe, device))


def train_epoch(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    order: Tensor,
    batch: int,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> float:
    """Train on all full batches once, half of each mirrored, and return the mean loss."""
    network.train()
    total = torch.zeros((), device=images.device)
    n_batches = len(order) // batch
    for k in range(n_batches):
        rows = order[k * batch : (k + 1) * batch]
        pixels = normalized(images[rows])
        pixels[: batch // 2] = pixels[: batch // 2].flip(3)
        # half the time on processors that have bfloat16, and no accuracy lost
        with torch.autocast(images.device.type, torch.bfloat16):
            logits = network(pixels.contiguous(memory_format=torch.channels_last))
        loss = nn.functional.cross_entropy(logits.float(), labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.detach()
    return float(total) / n_batches


def write(network: nn.Module, recipe: Recipe, correct: float, out: Path) -> None:
    """Write the weights with the facts about them."""
    metadata = {
        "accuracy": f"{correct:.4f}",
        "recipe": json.dumps(asdict(recipe)),
        "renderer_version": str(RENDERER_VERSION),
        "torch": torch.__version__,
    }
    save_shipped_weights(out, network, class_names=KNOWN_NAMES, metadata=metadata)
    print(f"test accuracy {correct:.4f}, {out.stat().st_size} bytes in {out}")


def main() -> None:
    """Train, measure, write."""
    recipe, out, device = read_recipe()
    print(f"training on {device}: {recipe}")
    network, correct = train(recipe, device)
    write(network, recipe, correct, out)


if __name__ == "__main__":
    main()
