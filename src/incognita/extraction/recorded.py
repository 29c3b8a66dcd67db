"""Recorded outputs in the place of a model: what files hold, as methods and metrics take it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers import ClassifierOutputs, Dataset, Detections, DetectorOutputs, Head
from incognita.errors import InvalidDataError
from incognita.extraction.classifier_pass import identity_of_classifier
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
from incognita.models.classifier import Classifier
from incognita.models.detector import BoxFilter, HeadKind
from incognita.shapes import Float, Shaped

_COMPARED = 256  # rows on which the head is compared with the logits
_N_RECENT = 16  # images that are kept for their next box
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
        embedder: A network whose features of the crops of boxes take the place of the files'.
    """

    name: str
    folder: OutputsFolder
    class_names: Sequence[str]
    example: RecordedImages | RecordedBoxes
    embedder: Classifier | None = None
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
        if self.embedder is not None:  # its features are not those of the detector's head
            return ()
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
        if self.embedder is not None:
            return f"the features are those of {self.embedder.name}"
        return None if self.heads else f"{self.folder.path / HEAD}.npz is not there"

    @cached_property
    def has_features(self) -> bool:
        """Whether the files have features."""
        if isinstance(self.example, RecordedBoxes):
            return self.embedder is not None or "features" in self.example.widths
        return self.example.n_features is not None

    @property
    def has_logits(self) -> bool:
        """Whether the files have logits; boxes of a file may have a confidence only."""
        return not isinstance(self.example, RecordedBoxes) or "logits" in self.example.widths

    @property
    def weights_hash(self) -> str:
        """A hash of the head and the class names; those of the outputs are in the data sets."""
        if self.embedder is None:
            return self.folder.identity()
        backbone = identity_of_classifier(self.embedder)
        return sha256(f"{self.folder.identity()} {backbone}".encode()).hexdigest()

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


@dataclass(frozen=True, eq=False)
class BoxCrops:
    """The parts of images that boxes show, as images of their own; see `Dataset`.

    A box is clipped to its image and widened to whole pixels, at least one; the preprocessing of
    the network resizes it.

    Args:
        boxes: The images.
        found: The boxes in them.
    """

    boxes: RecordedBoxes
    found: Detections
    labels: None = None
    source_classes: None = None
    _recent: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The name of the set."""
        return self.boxes.name

    @cached_property
    def image_ids(self) -> tuple[str, ...]:
        """The third box of image `a` is called `a#2`."""
        places = np.arange(len(self.found)) - self.found.offsets[self.found.image_index]
        names = self.found.image_ids[self.found.image_index].tolist()
        return tuple(f"{name}#{place}" for name, place in zip(names, places, strict=True))

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        image = self._image(int(self.found.image_index[index]))
        return crop(image, self.found.xyxy[index])

    def _image(self, place: int) -> Shaped[np.ndarray, "height width 3"]:
        """Load an image, which has several boxes; several threads load at once."""
        image = self._recent.get(place)
        if image is None:
            image = self._recent[place] = self.boxes.load(place)
            for oldest in list(self._recent)[:-_N_RECENT]:
                self._recent.pop(oldest, None)
        return image

    def fingerprint(self) -> str:
        """Hash the boxes and the images."""
        parts = f"crops 1 {self.boxes.fingerprint()} {self.boxes.images.fingerprint()}"
        return sha256(parts.encode()).hexdigest()

    def subset(self, indices: Sequence[int]) -> "BoxCrops":
        is_kept = np.isin(np.arange(len(self.found)), indices)
        return BoxCrops(self.boxes, self.found[is_kept])


def crop(
    image: Shaped[np.ndarray, "height width 3"], xyxy: Float[np.ndarray, "4"]
) -> Shaped[np.ndarray, "rows columns 3"]:
    """Cut a box out of an image: clipped, in whole pixels, at least one.

    >>> pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    >>> crop(pixels, np.array([0.5, 1.0, 2.0, 9.0])).shape
    (3, 2, 3)
    >>> crop(pixels, np.array([7.0, 7.0, 9.0, 9.0])).shape
    (1, 1, 3)
    """
    height, width = image.shape[:2]
    left, top = (int(np.clip(np.floor(xyxy[k]), 0, n - 1)) for k, n in ((0, width), (1, height)))
    right, bottom = (int(np.clip(np.ceil(xyxy[k]), 0, n)) for k, n in ((2, width), (3, height)))
    return image[top : max(bottom, top + 1), left : max(right, left + 1)]


def with_embedded_features(
    found: Detections, crops: BoxCrops, rows: ClassifierOutputs, embedder: str
) -> Detections:
    """Add the features of crops to boxes, without the images of which a crop failed."""
    if rows.features is None:
        raise InvalidDataError(
            f"Expected features of {embedder}, but it has no linear head whose input they are. "
            f"Name another network."
        )
    place_of = {name: k for k, name in enumerate(rows.image_ids)}
    places = np.array([place_of.get(name, -1) for name in crops.image_ids], np.int64)
    has_failed = np.zeros(found.n_images, np.bool_)
    has_failed[found.image_index[places < 0]] = True
    is_kept = ~has_failed[found.image_index]
    kept = found[is_kept].for_images(found.image_ids[~has_failed])
    return replace(kept, features=rows.features.numpy()[places[is_kept]])


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
    clean = getattr(dataset, "source", None)
    if isinstance(clean, CocoDataset) and tuple(clean.image_ids) == tuple(dataset.image_ids):
        dataset = clean
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
