"""Recorded outputs in the place of a model: what files hold, as methods and metrics take it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.boxes import Detections
from incognita.containers.dataset import Dataset
from incognita.containers.outputs import ClassifierOutputs, DetectorOutputs, Head
from incognita.errors import InvalidDataError
from incognita.files import replacing
from incognita.formats.coco_dataset import CocoDataset
from incognita.formats.coco_results import save_detections
from incognita.formats.recorded_outputs import (
    HEAD,
    HeadArrays,
    OutputsFolder,
    RecordedBoxes,
    RecordedImages,
    images_file,
    save_arrays,
)
from incognita.models.detector import BoxFilter, HeadKind
from incognita.shapes import Float, Shaped

_COMPARED = 256  # rows on which the head is compared with the logits
_TOLERANCE = 0.02  # of the largest logit: some networks compute in half precision


@dataclass(eq=False)
class RecordedModel:
    """A model that was run elsewhere: its classes, its head, and where its outputs are.

    It is a `Classifier` and a `Detector` as far as results depend on them, and cannot be run.

    Args:
        name: Its name in results.
        folder: The folder with the outputs.
        class_names: The known classes of the benchmark.
        example: One of the sets; all have the same columns.
    """

    name: str
    folder: OutputsFolder
    class_names: Sequence[str]
    example: RecordedImages | RecordedBoxes
    module: nn.Module = field(default_factory=nn.Identity)
    pixel_std: Float[Tensor, "channels"] = field(default_factory=lambda: torch.ones(3))
    preprocessing: str = "recorded outputs"
    rules: BoxFilter = BoxFilter(0.0, 2**31, None)  # noqa: RUF009 - it is frozen
    head_kind: HeadKind = HeadKind.RECORDED
    shares_features: bool = True
    layers: tuple[str, ...] = ()

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """The linear layers of the logits, restricted to the known classes."""
        heads = [Head(*map(torch.from_numpy, (h.weight, h.bias))) for h in self.folder.heads()]
        if isinstance(self.example, RecordedBoxes) and self.example.numbering.is_listed:
            rows = list(self.example.numbering.places)
            heads = [Head(head.weight[rows], head.bias[rows]) for head in heads]
        return tuple(heads)

    @property
    def head(self) -> Head | None:
        """The linear layer of a classifier."""
        return self.heads[0] if self.heads else None

    @cached_property
    def head_reason(self) -> str | None:
        """Why there is no head."""
        return None if self.heads else f"{self.folder.path / HEAD}.npz is not there"

    @cached_property
    def has_features(self) -> bool:
        """Whether the files have features."""
        if isinstance(self.example, RecordedBoxes):
            return "features" in self.example.widths
        return self.example.n_features is not None

    @property
    def has_logits(self) -> bool:
        """Whether the files have logits; boxes of a file may have a confidence only."""
        return not isinstance(self.example, RecordedBoxes) or "logits" in self.example.widths

    @property
    def weights_hash(self) -> str:
        """A hash of the head and the class names; those of the outputs are in the data sets."""
        return self.folder.identity()

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> Any:
        """Raise: no image is read."""
        raise InvalidDataError(f"{self.name} is a folder of outputs and cannot be run.")

    def forward(self, batch: Tensor, *args: Any, **options: Any) -> Any:
        """Raise: there is no network."""
        raise InvalidDataError(f"{self.name} is a folder of outputs and cannot be run.")

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "RecordedModel":
        """Return itself; raise for a filter, since boxes in files are taken as they are."""
        given = {"score_threshold": score_threshold, "max_per_image": max_per_image}
        for name, value in (given | {"nms_iou": nms_iou}).items():
            if value is not None:
                raise InvalidDataError(
                    f"Expected no {name} with boxes from files, which are taken as they are; got "
                    f"{value}. Filter the files instead."
                )
        return self

    def outputs(self, dataset: Dataset) -> ClassifierOutputs | DetectorOutputs:
        """Load the outputs of a set; raise if the head does not compute the logits."""
        if isinstance(dataset, RecordedBoxes):
            found = DetectorOutputs(dataset.detections(), self.heads)
            _check_heads(dataset.path.name, found.rows())
            return found
        assert isinstance(dataset, RecordedImages)
        table = dataset.table()
        columns = (table.logits, table.features, table.labels)
        logits, features, labels = (None if c is None else torch.from_numpy(c) for c in columns)
        assert logits is not None
        rows = ClassifierOutputs(table.image_ids, logits, features, labels, self.head)
        _check_heads(dataset.path.name, rows)
        return rows


def _check_heads(name: str, rows: ClassifierOutputs) -> None:
    """Raise if features and head do not give the logits: one of them belongs to another model."""
    rows = rows[torch.arange(len(rows)) < _COMPARED]
    parts = [rows.of_head(k) for k in range(len(rows.heads))] if rows.heads else [rows]
    for part in parts:
        if part.head is None or part.features is None or not len(part):
            continue
        difference = float((part.head(part.features) - part.logits).abs().max())
        largest = float(part.logits.abs().max())
        if difference > _TOLERANCE * max(largest, 1.0):
            raise InvalidDataError(
                f"The head does not compute the logits of {name} from its features: they differ "
                f"by up to {difference:.3g}, where the largest is {largest:.3g}. Save the inputs "
                f"of the last linear layer, or leave the head out."
            )


def save_outputs(
    path: Path, outputs: ClassifierOutputs | DetectorOutputs, dataset: Dataset, names: Sequence[str]
) -> None:
    """Save the outputs of one set, with the head and the class names beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder, heads = OutputsFolder(path.parent), outputs.heads
    if isinstance(outputs, ClassifierOutputs) and outputs.head is not None:
        heads = (outputs.head,)
    folder.save_classes(names, are_boxes=isinstance(outputs, DetectorOutputs))
    folder.save_head([HeadArrays(_array(head.weight), _array(head.bias)) for head in heads])
    if isinstance(outputs, DetectorOutputs):
        _save_boxes(path, outputs.detections, dataset)
        return
    columns = {"logits": outputs.logits, "features": outputs.features, "labels": outputs.labels}
    arrays = {name: _array(column) for name, column in columns.items() if column is not None}
    save_arrays(path, arrays | {"image_ids": np.array(outputs.image_ids, np.str_)})


def _save_boxes(path: Path, found: Detections, dataset: Dataset) -> None:
    if path.suffix != ".json":
        raise InvalidDataError(f"Expected a file that ends in .json for boxes, got {path.name}.")
    if isinstance(dataset, CocoDataset):  # the ids of the annotation file
        record_of = dict(zip(map(str, dataset.image_ids), dataset.record_ids, strict=True))
        found = replace(found, image_ids=np.array([record_of[i] for i in found.image_ids.tolist()]))
    numbers = {k: k for k in range(len(found.classes))}
    sidecar = path.with_suffix(".safetensors")
    save_detections(found, path, categories=numbers, sidecar=sidecar)
    with replacing(images_file(path)) as unfinished:
        unfinished.write_text(json.dumps(found.image_ids.tolist()) + "\n", encoding="utf-8")


def _array(column: Tensor) -> np.ndarray:
    return np.ascontiguousarray(column.detach().cpu().numpy())
