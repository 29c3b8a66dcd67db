"""Metrics with `update`, `compute` and `reset`, for training loops and several processes.

Numbers are those of `incognita.metrics` on all rows of all processes: scores and boxes are kept
until `compute`, in float64, and gathered from the processes as torchmetrics does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role
from incognita.errors import InvalidDataError
from incognita.metrics import ranking_metrics
from incognita.metrics.ranking import RANKING_METRICS
from incognita.metrics.suite import (
    MatchTables,
    closed_set,
    open_set_codes,
    open_set_papers,
)
from incognita.registry import need

Metric: Any = need("torchmetrics", extra="torchmetrics").Metric
_OF_BOX = (
    6  # numbers of a detection: corners, confidence, label; of an object: corners, crowd, label
)
_FORMATS = ("xyxy", "xywh", "cxcywh")
_CONVENTIONS = ("paper", "coco", "voc07", "owod", "owdetr", "opendet", "fmiyc")


class UnknownRanking(Metric):  # type: ignore[misc]
    """AUROC, AUPR and FPR at 95 % recall of unknown scores, as `metrics.ranking_metrics`.

    A higher score means more unknown, and unknown is the positive class. All metrics are NaN while
    known or unknown rows are missing, as in the sanity check of a trainer.

    Args:
        options: Those of `torchmetrics.Metric`, such as `dist_sync_on_step`.

    >>> metric = UnknownRanking()
    >>> metric.update(torch.tensor([0.9, 0.4]), torch.tensor([True, True]))
    >>> metric.update(torch.tensor([0.4, 0.1]), torch.tensor([False, False]))
    >>> float(metric.compute()["auroc"])
    0.875
    """

    is_differentiable: ClassVar[bool] = False
    full_state_update: ClassVar[bool] = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.set_dtype(torch.float64)
        self.add_state("scores", default=[], dist_reduce_fx="cat")
        self.add_state("truths", default=[], dist_reduce_fx="cat")

    def update(self, unknown_score: Tensor, is_unknown: Tensor) -> None:
        """Add rows.

        Args:
            unknown_score: One number per row, on any scale.
            is_unknown: The truth of each row, as booleans or as 0 and 1.
        """
        if unknown_score.ndim != 1 or unknown_score.shape != is_unknown.shape:
            raise InvalidDataError(
                f"Expected one unknown_score and one is_unknown per row, got the shapes "
                f"{list(unknown_score.shape)} and {list(is_unknown.shape)}."
            )
        self.scores.append(unknown_score.detach().double())
        self.truths.append(is_unknown.detach().bool().double())

    def compute(self) -> dict[str, Tensor]:
        """Compute all ranking metrics over the rows of all processes."""
        scores, truths = _array(self.scores), _array(self.truths) > 0
        if truths.all() or not truths.any():
            return {name: self._number(np.nan) for name in RANKING_METRICS}
        found = ranking_metrics(scores, truths)
        return {name: self._number(getattr(found, name)) for name in RANKING_METRICS}

    def _number(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float64, device=self.device)


class OpenSetDetection(Metric):  # type: ignore[misc]
    """Open-set metrics of a detector: U-Recall, AP_U, A-OSE, WI, and mAP of the known classes.

    Takes what `torchmetrics.detection.MeanAveragePrecision` takes. Labels below `n_known` are
    known classes, all others are unknown, in predictions and targets alike.

    Args:
        n_known: The number of known classes, or their names in the order of the labels.
        convention: Whose definitions: `paper`, or a public code such as `owod` or `fmiyc`.
        box_format: `xyxy`, `xywh` or `cxcywh`, in pixels.
        options: Those of `torchmetrics.Metric`, such as `dist_sync_on_step`.

    >>> metric = OpenSetDetection(n_known=1)
    >>> boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    >>> found = {"boxes": boxes, "scores": torch.tensor([0.9, 0.8]), "labels": torch.tensor([0, 1])}
    >>> metric.update([found], [{"boxes": boxes, "labels": torch.tensor([0, 7])}])
    >>> numbers = metric.compute()
    >>> float(numbers["unknown_recall"]), float(numbers["open_set_error"])
    (1.0, 0.0)
    """

    is_differentiable: ClassVar[bool] = False
    full_state_update: ClassVar[bool] = False

    def __init__(
        self,
        n_known: int | Sequence[str],
        *,
        convention: str = "paper",
        box_format: str = "xyxy",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.classes = _classes(n_known)
        self.convention = _choice("convention", convention, _CONVENTIONS)
        self.box_format = _choice("box_format", box_format, _FORMATS)
        self.set_dtype(torch.float64)
        # flat, because a process without images has a vector of zero numbers to gather
        for name in ("found", "objects", "counts"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(
        self, preds: Sequence[Mapping[str, Tensor]], target: Sequence[Mapping[str, Tensor]]
    ) -> None:
        """Add images.

        Args:
            preds: For each image `boxes`, `scores` and `labels`.
            target: For each image `boxes` and `labels`, and `iscrowd` where there are crowds.
        """
        if len(preds) != len(target):
            raise InvalidDataError(
                f"Expected as many predictions as targets, got {len(preds)} and {len(target)}."
            )
        for found, objects in zip(preds, target, strict=True):
            crowds = objects.get("iscrowd", torch.zeros_like(objects["labels"]))
            self.found.append(self._rows(found, found["scores"]))
            self.objects.append(self._rows(objects, crowds))
            counts = [len(found["boxes"]), len(objects["boxes"])]
            self.counts.append(torch.tensor(counts, dtype=torch.float64, device=self.device))

    def _rows(self, image: Mapping[str, Tensor], column: Tensor) -> Tensor:
        """Return boxes, a column and labels of one image as a flat vector."""
        boxes, labels = image["boxes"].detach().reshape(-1, 4).double(), image["labels"]
        if not len(boxes) == len(labels) == len(column):
            raise InvalidDataError(
                f"Expected one label and one score per box, got {len(boxes)} boxes, "
                f"{len(labels)} labels and {len(column)} scores or crowds."
            )
        known = labels.clamp(max=self.classes.n_known)
        columns = (_as_xyxy(boxes, self.box_format), column[:, None], known[:, None])
        return torch.cat([part.detach().double() for part in columns], dim=1).flatten()

    def compute(self) -> dict[str, Tensor]:
        """Compute the metrics of the convention over the images of all processes."""
        tables = MatchTables(*self._boxes())
        weights = np.ones((tables.truth.n_images, 1))
        if not len(weights):
            raise InvalidDataError("Expected images before compute, got none. Call update first.")
        wanted = {}
        for name, convention, value in _all_of(tables, weights):
            if convention == self.convention:
                wanted[name] = torch.tensor(float(value.values[0]), device=self.device)
        return wanted

    def _boxes(self) -> tuple[Detections, BoxTruth]:
        found, objects = (_array(part).reshape(-1, _OF_BOX) for part in (self.found, self.objects))
        counts = _array(self.counts).reshape(-1, 2).astype(np.int64)
        offsets = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(counts, axis=0)])
        image_ids = np.arange(len(counts))
        detections = Detections(
            image_ids, offsets[:, 0], found[:, :4], found[:, 4], found[:, 5].astype(int),
            self.classes,
        )  # fmt: skip
        truth = BoxTruth(
            image_ids, offsets[:, 1], objects[:, :4], objects[:, 5].astype(int), self.classes,
            is_crowd=objects[:, 4] > 0,
        )  # fmt: skip
        return detections, truth


def _all_of(tables: MatchTables, weights: np.ndarray) -> Any:
    yield from closed_set(tables, weights)
    yield from open_set_papers(tables, weights, unknown_only=False)
    yield from open_set_codes(tables, weights)


def _classes(n_known: int | Sequence[str]) -> Classes:
    names = list(map(str, range(n_known))) if isinstance(n_known, int) else list(n_known)
    if not names or "unknown" in names:
        raise InvalidDataError(
            f"Expected known classes, as a number above 0 or as names, got {n_known!r}. Leave "
            f"'unknown' out: it is any label from {len(names)} on."
        )
    roles = (Role.KNOWN,) * len(names) + (Role.UNKNOWN,)
    return Classes((*names, "unknown"), roles)


def _choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InvalidDataError(f"Expected {name} to be one of {', '.join(choices)}, got {value!r}.")
    return value


def _as_xyxy(boxes: Tensor, box_format: str) -> Tensor:
    if box_format == "xyxy":
        return boxes
    first, size = boxes[:, :2], boxes[:, 2:]
    corner = first if box_format == "xywh" else first - size / 2
    return torch.cat([corner, corner + size], dim=1)


def _array(state: list[Tensor] | Tensor) -> np.ndarray:
    """Return a state as one array; after gathering it is one tensor already."""
    parts = [state] if isinstance(state, Tensor) else state
    if not parts:
        return np.zeros(0)
    joined: np.ndarray = torch.cat([part.reshape(-1) for part in parts]).cpu().numpy()
    return joined
