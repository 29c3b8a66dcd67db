"""Runs a detector over a dataset once and gives its boxes with everything asked for."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from incognita.containers.boxes import Detections
from incognita.containers.classes import Classes, Role
from incognita.containers.dataset import Dataset
from incognita.containers.detector_outputs import DetectorOutputs
from incognita.containers.needs import Probe
from incognita.errors import InvalidDataError
from incognita.extraction.detector_pass import PLACE, check_boxes_wanted
from incognita.extraction.joining import Joined
from incognita.extraction.recording import Extracted, record
from incognita.extraction.settings import (
    LAYERS,
    OUTPUTS,
    Settings,
    Wanted,
)
from incognita.extraction.store import OutputStore
from incognita.extraction.workers import Task
from incognita.models.detector import Detector

_LARGEST_DRIFT = 0.01  # pixels between boxes that two runs call the same


def extract_boxes(
    detector: Detector,
    dataset: Dataset,
    *,
    probes: Sequence[Probe] = (),
    layers: bool = False,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    store: OutputStore | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Extracted[DetectorOutputs]:
    """Record boxes, logits, features and whatever else is asked for, in one pass over the images.

    The dataset is cut into shards of 64 images. With a store each finished shard is kept, and a
    later call runs the network only for what is missing. An image that cannot be read, or for
    which the network gives no finite number, is listed in `broken` and is not among the images.

    Args:
        detector: What is run; it is left as it is.
        dataset: The images.
        probes: What to record beside boxes, logits and features.
        layers: Whether to record the detector's layers, pooled over each box.
        settings: How to run it.
        store: Where to find and keep outputs.
        on_progress: Is told the number of images after every batch, and of every shard found.
    """
    unique = {probe.key: probe for probe in probes}
    wanted = Wanted(layers=layers, probes=tuple(unique.values()))
    check_boxes_wanted(detector, wanted, settings)
    task = Task(detector, dataset, wanted, settings)
    return record(task, partial(_outputs, detector, dataset, wanted), store, on_progress)


def classes_of(detector: Detector) -> Classes:
    """Give the detector's classes, all of them known.

    A name that comes again gets its place behind it: COCO's detectors have several "N/A".
    """
    given = list(detector.class_names)
    names = [name if given.index(name) == k else f"{name} ({k})" for k, name in enumerate(given)]
    return Classes(tuple(names), (Role.KNOWN,) * len(names))


def _outputs(
    detector: Detector, dataset: Dataset, wanted: Wanted, joined: Joined
) -> DetectorOutputs:
    image_ids = [str(dataset.image_ids[row]) for row in joined.rows]
    columns = joined.columns[OUTPUTS] if joined.rows else _no_columns(detector)
    found = {name: column.numpy() for name, column in columns.items()}
    classes = classes_of(detector)
    offsets = np.concatenate([[0], np.cumsum(joined.counts, dtype=np.int64)])
    detections = Detections(image_ids, offsets.astype(np.int64), classes=classes, **found)
    groups = {group: _same_boxes(joined.columns[group], found["xyxy"]) for group in wanted}
    probes = {
        f"{probe.key}/{name}": column
        for probe in wanted.probes
        for name, column in groups[probe.key].items()
    }
    return DetectorOutputs(detections, detector.heads, groups.get(LAYERS) or None, probes or None)


def _same_boxes(columns: Mapping[str, Tensor], xyxy: np.ndarray) -> dict[str, Tensor]:
    """Give the columns of a group, if they are of the boxes we have."""
    if PLACE in columns and len(xyxy):
        drift = (columns[PLACE] - torch.from_numpy(xyxy)).abs().max()
        if float(drift) > _LARGEST_DRIFT:
            raise InvalidDataError(
                "Stored outputs disagree on where the boxes are: they were recorded on machines "
                "that compute differently; name another folder for the outputs."
            )
    return {name: column for name, column in columns.items() if name != PLACE}


def _no_columns(detector: Detector) -> dict[str, Tensor]:
    """Give the columns of no image."""
    n = len(detector.class_names)
    widths = [head.weight.shape[1] for head in detector.heads]
    none = torch.zeros(0)
    columns = {"xyxy": torch.zeros(0, 4), "confidence": none, "logits": torch.zeros(0, n)}
    if widths:
        columns["features"] = torch.zeros(0, max(widths))
    whole = torch.zeros(0, dtype=torch.int64)
    return columns | dict.fromkeys(("class_ids", "source_index", "head_index"), whole)
