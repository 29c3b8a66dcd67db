"""A detector of which only some classes count, as one of 80 COCO classes among 91 outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import (
    DetectionRules,
    Detector,
    DetectorForward,
    FoundBoxes,
    HeadKind,
    Prepared,
    check_classes,
    gives_features,
)
from incognita.models.sending import Sendable, source_of
from incognita.shapes import Float, Shaped


@dataclass(eq=False)
class SelectedClasses(Sendable):
    """The same detector with some of its classes, in an order of their own.

    Its rules choose boxes first; those of other classes are then dropped, and of logits and heads
    the columns of the chosen classes stay. `places` are these classes in the inner detector.
    """

    inner: Detector
    class_names: Sequence[str]
    places: tuple[int, ...]
    name: str
    module: nn.Module
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    rules: DetectionRules
    head_kind: HeadKind
    shares_features: bool
    head_reason: str | None
    source: Path | None = None
    note: str | None = None  # what a reader of its numbers must be told

    @property
    def heads(self) -> tuple[Head, ...]:
        """The rows of the chosen classes of each linear layer."""
        rows = list(self.places)
        return tuple(Head(each.weight[rows], each.bias[rows]) for each in self.inner.heads)

    @property
    def has_features(self) -> bool:
        """Whether the inner detector gives features."""
        return gives_features(self.inner)

    @property
    def layers(self) -> Sequence[str]:
        """The names of the recorded maps."""
        return self.inner.layers

    @property
    def weights_hash(self) -> str:
        """The hash of the inner detector and of the choice."""
        return sha256(f"{self.inner.weights_hash} {self.places}".encode()).hexdigest()

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> Prepared:
        """Turn one uint8 RGB image into what the network takes."""
        return self.inner.preprocess(image)

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        """Call the network once and drop the boxes of other classes."""
        out = self.inner.forward(batch, sizes, layers=layers)
        return out._replace(images=tuple(self._chosen(image) for image in out.images))

    def with_rules(
        self,
        *,
        score_floor: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "SelectedClasses":
        """Give the same detector with other rules; what is None stays."""
        inner = self.inner.with_rules(
            score_floor=score_floor, max_per_image=max_per_image, nms_iou=nms_iou
        )
        return select_classes(inner, self.class_names, self.places, note=self.note)

    def _chosen(self, image: FoundBoxes) -> FoundBoxes:
        check_classes(image, len(self.inner.class_names), self.name)
        places = torch.tensor(self.places, device=image.class_ids.device)
        new_id = torch.full((len(self.inner.class_names),), -1, device=places.device)
        new_id[places] = torch.arange(len(places), device=places.device)
        class_ids = new_id[image.class_ids]
        is_ours = class_ids >= 0
        kept: dict[str, Any] = {
            name: None if column is None else column[is_ours]
            for name, column in image._asdict().items()
        }
        kept |= {"class_ids": class_ids[is_ours], "logits": image.logits[is_ours][:, places]}
        return FoundBoxes(**kept)


def select_classes(
    detector: Detector,
    class_names: Sequence[str],
    places: Sequence[int],
    *,
    note: str | None = None,
) -> SelectedClasses:
    """Keep some classes of a detector under these names.

    Args:
        detector: What is run.
        class_names: Their names from now on.
        places: Where they stand among the detector's classes, each once.
        note: What a reader of its numbers must be told.
    """
    n = len(detector.class_names)
    if len(set(places)) != len(places) or len(places) != len(class_names):
        raise InvalidDataError(
            f"{len(class_names)} class names came with the places {list(places)}; give each class "
            f"one place of its own."
        )
    if any(not 0 <= place < n for place in places):
        raise InvalidDataError(
            f"{detector.name} has {n} classes, but place {max(places)} was asked for."
        )
    return SelectedClasses(
        inner=detector,
        class_names=tuple(class_names),
        places=tuple(places),
        name=detector.name,
        module=detector.module,
        pixel_std=detector.pixel_std,
        preprocessing=detector.preprocessing,
        rules=detector.rules,
        head_kind=detector.head_kind,
        shares_features=detector.shares_features,
        head_reason=detector.head_reason,
        source=source_of(detector),
        note=note,
    )
