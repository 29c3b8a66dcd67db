"""Trains the classifier of scikit-learn's digits that ships with incognita, in seconds.

    python studies/digits/train_classifier.py

Prints the accuracy on validation and test digits and writes the weights in half precision with
the recipe beside them.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from incognita.benchmarks.sources.digits import KNOWN_DIGITS, digits_part  # noqa: E402
from incognita.models.embedded.digits import (  # noqa: E402
    PIXEL_MEAN,
    PIXEL_STD,
    WEIGHTS,
    build_digits_classifier,
)
from incognita.models.load import save_shipped_weights  # noqa: E402


@dataclass(frozen=True)
class Recipe:
    """Everything the weights depend on."""

    epochs: int = 40
    batch: int = 32
    rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 1


def load_part(part: str) -> tuple[Tensor, Tensor]:
    """Return normalized pixels [n, 3, 8, 8] and labels."""
    digits = digits_part(part)
    pixels = torch.from_numpy(digits.images).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (PIXEL_MEAN, PIXEL_STD))
    return (pixels - mean) / std, torch.from_numpy(digits.labels)


def accuracy(network: nn.Module, part: str) -> float:
    """Compute the accuracy on a part."""
    pixels, labels = load_part(part)
    network.eval()
    with torch.inference_mode():
        return float((network(pixels).argmax(1) == labels).double().mean())


def train(recipe: Recipe) -> nn.Module:
    """Train a network from scratch."""
    torch.manual_seed(recipe.seed)
    network = build_digits_classifier(len(KNOWN_DIGITS)).train()
    pixels, labels = load_part("train")
    n_batches = len(pixels) // recipe.batch
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=recipe.rate,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=True,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs * n_batches)
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(pixels))[: n_batches * recipe.batch].split(recipe.batch):
            loss = nn.functional.cross_entropy(network(pixels[rows]), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
    return network


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    out = parser.parse_args().out
    recipe = Recipe()
    network = train(recipe)
    correct = accuracy(network, "test")
    metadata = {
        "accuracy": f"{correct:.4f}",
        "recipe": json.dumps(asdict(recipe)),
        "torch": torch.__version__,
    }
    save_shipped_weights(out, network, class_names=KNOWN_DIGITS, metadata=metadata)
    print(f"validation accuracy {accuracy(network, 'validation'):.4f}")
    print(f"test accuracy {correct:.4f}, {out.stat().st_size} bytes in {out}")


if __name__ == "__main__":
    main()
