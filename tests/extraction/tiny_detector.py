"""A detector one can follow by hand: a box for every cell of a grid that looks like something."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.models.detector import (
    BoxFilter,
    DetectorForward,
    HeadKind,
    ImageDetections,
    PreprocessedImage,
)
from incognita.models.fingerprints import hash_weights

GRID = 4
NAMES = ("red", "green", "blue")


class GridNetwork(nn.Module):
    """Means of the cells of a picture, a few features of each, and logits of three classes."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Conv2d(3, 8, 1)
        self.head = nn.Linear(8, 3)
        with torch.no_grad():
            self.embed.weight[:3, :, 0, 0] = torch.eye(3)
            self.head.weight[:, :3] = 8 * torch.eye(3) - 4
            self.embed.bias.zero_()
            self.head.bias.fill_(-2.0)

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        maps = torch.relu(self.embed(nn.functional.adaptive_avg_pool2d(batch, GRID)))
        features = maps.flatten(2).transpose(1, 2)
        return maps, features, self.head(features)


@dataclass(eq=False)
class GridDetector:
    """The network above behind the face of `models.detector.Detector`."""

    module: nn.Module = field(default_factory=GridNetwork)
    name: str = "grid"
    class_names: Sequence[str] = NAMES
    pixel_std: Any = field(default_factory=lambda: torch.ones(3))
    preprocessing: str = "divided by 255"
    rules: BoxFilter = field(default_factory=lambda: BoxFilter(0.3, 100, None))
    head_kind: HeadKind = HeadKind.SIGMOID
    shares_features: bool = True
    head_reason: str | None = None
    layers: tuple[str, ...] = ("latent/embed", "shortcut/embed")

    @property
    def heads(self) -> tuple[Head, ...]:
        return (Head(self.module.head.weight.detach(), self.module.head.bias.detach()),)

    @property
    def weights_hash(self) -> str:
        return hash_weights(self.module)

    def preprocess(self, image: np.ndarray) -> PreprocessedImage:
        pixels = torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255
        return PreprocessedImage(pixels, image.shape[0], image.shape[1])

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        maps, features, logits = self.module(batch)
        images = [self._found(features[k], logits[k], size) for k, size in enumerate(sizes)]
        named = dict.fromkeys(self.layers, (maps,)) if layers else {}
        return DetectorForward(tuple(images), named, tuple(batch.shape[2:]))

    def _found(self, features: Tensor, logits: Tensor, size: tuple[int, int]) -> ImageDetections:
        confidence, labels = logits.sigmoid().max(dim=1)
        order = confidence.argsort(descending=True, stable=True)
        kept = order[confidence[order] >= self.rules.score_threshold][: self.rules.max_per_image]
        row, column = kept // GRID, kept % GRID
        rois = torch.stack([column, row, column + 1, row + 1], dim=1) / GRID
        height, width = size
        return ImageDetections(
            rois * torch.tensor([width, height, width, height]),
            confidence[kept],
            labels[kept],
            logits[kept],
            None,
            features[kept],
            kept,
            torch.zeros_like(kept),
            rois,
        )

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "GridDetector":
        return replace(self, rules=self.rules.changed(score_threshold, max_per_image, nms_iou))
