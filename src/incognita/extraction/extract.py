"""Runs a model over a dataset once and gives everything that was asked for."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from incognita.containers.boxes import Detections
from incognita.containers.classes import Classes, Role
from incognita.containers.dataset import Dataset
from incognita.containers.needs import ExtraOutput
from incognita.containers.outputs import ClassifierOutputs, DetectorOutputs
from incognita.errors import InvalidDataError
from incognita.extraction.classifier_pass import check_wanted
from incognita.extraction.detector_pass import PLACE, check_boxes_wanted
from incognita.extraction.image_loader import (
    shard_rows,
)
from incognita.extraction.settings import (
    LAYERS,
    OUTPUTS,
    BrokenImage,
    OutputRequest,
    PassCount,
    Settings,
    ShardJob,
)
from incognita.extraction.shards import JoinedShards, Progress, join
from incognita.extraction.store import MemoryShards, OutputStore, StoredShards
from incognita.extraction.workers import Task, run_in_workers
from incognita.models.classifier import Classifier
from incognita.models.detector import Detector

Outputs = TypeVar("Outputs")


@dataclass(frozen=True, eq=False)
class Extracted(Generic[Outputs]):
    """What one pass gave, and what it cost.

    Args:
        outputs: What was recorded of the images that could be used, in the order of the dataset.
        failed_images: The other images.
        passes: How often the network was run; what was found in the store cost none.
        seconds: From the call to the outputs.
        n_bytes: Size of the columns.
        n_images: How many images could be used.
    """

    outputs: Outputs
    failed_images: tuple[BrokenImage, ...]
    passes: PassCount
    seconds: float
    n_bytes: int
    n_images: int


def record(
    task: Task,
    outputs_of: Callable[[JoinedShards], Outputs],
    store: OutputStore | None,
    on_progress: Progress | None,
) -> Extracted[Outputs]:
    """Run what is missing and make outputs of everything, keeping the account."""
    start = perf_counter()
    joined, passes = _record_shards(task, store, on_progress)
    outputs = outputs_of(joined)
    return Extracted(
        outputs,
        tuple(
            BrokenImage(task.dataset.image_ids[k], why) for k, why in joined.failed_images.items()
        ),
        passes,
        perf_counter() - start,
        joined.n_bytes,
        len(joined.rows),
    )


def _record_shards(
    task: Task, store: OutputStore | None, on_progress: Progress | None
) -> tuple[JoinedShards, PassCount]:
    """Give every column of every image, running the model only for what the store lacks."""
    with tempfile.TemporaryDirectory(prefix="incognita-") as temporary:
        if store is None and task.settings.workers > 1:
            store = OutputStore(Path(temporary))
        shards = task.shards(store)
        passes = _run_missing(task, shards, on_progress or (lambda _: None))
        return join(shards, task.n_shards, list(task.wanted)), passes


def _run_missing(
    task: Task, shards: StoredShards | MemoryShards, on_progress: Progress
) -> PassCount:
    jobs = []
    n_images = len(task.dataset.image_ids)
    for index in range(task.n_shards):
        missing = frozenset(group for group in task.wanted if not shards.has(index, group))
        if missing:
            jobs.append(ShardJob(index, missing))
        else:
            on_progress(len(shard_rows(index, n_images, task.unit)))
    if not jobs:
        return PassCount()
    if isinstance(shards, StoredShards) and task.settings.workers > 1:
        return run_in_workers(task, shards, jobs, on_progress)
    runner = task.runner()
    try:
        runner.run(jobs, shards.write, on_progress)
    finally:
        runner.network.close()
    return runner.network.passes


_LARGEST_DRIFT = 0.01  # pixels between boxes that two runs call the same


def extract_boxes(
    detector: Detector,
    dataset: Dataset,
    *,
    extra_outputs: Sequence[ExtraOutput] = (),
    layers: bool = False,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    store: OutputStore | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Extracted[DetectorOutputs]:
    """Record boxes, logits, features and whatever else is asked for, in one pass over the images.

    The dataset is cut into shards of 64 images. With a store each finished shard is kept, and a
    later call runs the network only for what is missing. An image that cannot be read, or for
    which the network gives no finite number, is listed in `failed_images` and left out.

    Args:
        detector: What is run; it is left as it is.
        dataset: The images.
        extra_outputs: What to record beside boxes, logits and features.
        layers: Whether to record the detector's layers, pooled over each box.
        settings: How to run it.
        store: Where to find and keep outputs.
        on_progress: Is told the number of images after every batch, and of every shard found.
    """
    unique = {extra.key: extra for extra in extra_outputs}
    wanted = OutputRequest(layers=layers, extra_outputs=tuple(unique.values()))
    check_boxes_wanted(detector, wanted, settings)
    task = Task(detector, dataset, wanted, settings)
    return record(task, partial(_detector_outputs, detector, dataset, wanted), store, on_progress)


def classes_of(detector: Detector) -> Classes:
    """Give the detector's classes, all of them known.

    A name that comes again gets its place behind it: COCO's detectors have several "N/A".
    """
    given = list(detector.class_names)
    names = [name if given.index(name) == k else f"{name} ({k})" for k, name in enumerate(given)]
    return Classes(tuple(names), (Role.KNOWN,) * len(names))


def _detector_outputs(
    detector: Detector, dataset: Dataset, wanted: OutputRequest, joined: JoinedShards
) -> DetectorOutputs:
    image_ids = [str(dataset.image_ids[row]) for row in joined.rows]
    columns = joined.columns[OUTPUTS] if joined.rows else _no_columns(detector)
    found = {name: column.numpy() for name, column in columns.items()}
    classes = classes_of(detector)
    offsets = np.concatenate([[0], np.cumsum(joined.counts, dtype=np.int64)])
    detections = Detections(image_ids, offsets.astype(np.int64), classes=classes, **found)
    groups = {group: _same_boxes(joined.columns[group], found["xyxy"]) for group in wanted}
    extra_outputs = {
        f"{extra.key}/{name}": column
        for extra in wanted.extra_outputs
        for name, column in groups[extra.key].items()
    }
    return DetectorOutputs(
        detections, detector.heads, groups.get(LAYERS) or None, extra_outputs or None
    )


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


def extract(
    classifier: Classifier,
    dataset: Dataset,
    *,
    extra_outputs: Sequence[ExtraOutput] = (),
    layers: bool = False,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    store: OutputStore | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Extracted[ClassifierOutputs]:
    """Record logits, features and whatever else is asked for, in one pass over the images.

    The dataset is cut into shards of 512 images. With a store each finished shard is kept, and a
    later call runs the network only for what is missing. An image that cannot be read, or for
    which the network gives no finite number, is listed in `failed_images` and has no row.

    Args:
        classifier: What is run; it is left as it is.
        dataset: The images.
        extra_outputs: What to record beside logits and features.
        layers: Whether to record the pooled maps of the classifier's layers.
        settings: How to run it.
        store: Where to find and keep outputs.
        on_progress: Is told the number of images after every batch, and of every shard found.
    """
    unique = {extra.key: extra for extra in extra_outputs}
    wanted = OutputRequest(layers=layers, extra_outputs=tuple(unique.values()))
    check_wanted(wanted, layers=classifier.layers, name=classifier.name)
    task = Task(classifier, dataset, wanted, settings)
    return record(
        task, partial(_classifier_outputs, classifier, dataset, wanted), store, on_progress
    )


def _classifier_outputs(
    classifier: Classifier, dataset: Dataset, wanted: OutputRequest, joined: JoinedShards
) -> ClassifierOutputs:
    if not joined.rows:
        return ClassifierOutputs.empty(len(classifier.class_names), classifier.head)
    rows = list(joined.rows)
    labels = None if dataset.labels is None else torch.as_tensor(dataset.labels[rows]).long()
    extra_outputs: dict[str, Tensor] = {
        f"{extra.key}/{name}": column
        for extra in wanted.extra_outputs
        for name, column in joined.columns[extra.key].items()
    }
    return ClassifierOutputs(
        tuple(dataset.image_ids[row] for row in rows),
        joined.columns[OUTPUTS]["logits"],
        joined.columns[OUTPUTS].get("features"),
        labels,
        classifier.head,
        joined.columns.get(LAYERS),
        extra_outputs or None,
    )
