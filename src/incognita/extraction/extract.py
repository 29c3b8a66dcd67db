"""Runs a model over a dataset once and gives everything that was asked for."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from incognita.benchmarks.dataset import Dataset
from incognita.containers.classification import ClassifierOutputs
from incognita.containers.needs import Probe
from incognita.extraction.joining import Joined, join
from incognita.extraction.loading import n_shards, shard_rows
from incognita.extraction.output_store import HeldShards, OutputStore, StoredShards
from incognita.extraction.probes import check_wanted
from incognita.extraction.records import (
    LAYERS,
    OUTPUTS,
    BrokenImage,
    PassCount,
    Settings,
    ShardJob,
    Wanted,
)
from incognita.extraction.shards import Progress
from incognita.extraction.workers import Task, run_in_workers
from incognita.models.adapter import Classifier

__all__ = ["BrokenImage", "Extracted", "OutputStore", "PassCount", "Settings", "extract"]


@dataclass(frozen=True, eq=False)
class Extracted:
    """What one pass gave, and what it cost.

    Args:
        outputs: One row per image that could be read, in the order of the dataset.
        broken: The others.
        passes: How often the network was run; what was found in the store cost none.
        seconds: From the call to the outputs.
        n_bytes: Size of the columns.
    """

    outputs: ClassifierOutputs
    broken: tuple[BrokenImage, ...]
    passes: PassCount
    seconds: float
    n_bytes: int


def extract(
    classifier: Classifier,
    dataset: Dataset,
    *,
    probes: Sequence[Probe] = (),
    layers: bool = False,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    store: OutputStore | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Extracted:
    """Record logits, features and whatever else is asked for, in one pass over the images.

    The dataset is cut into shards of 512 images. With a store each finished shard is kept, and a
    later call runs the network only for what is missing. An image that cannot be read, or for
    which the network gives no finite number, is listed in `broken` and has no row.

    Args:
        classifier: What is run; it is left as it is.
        dataset: The images.
        probes: What to record beside logits and features.
        layers: Whether to record the pooled maps of the classifier's layers.
        settings: How to run it.
        store: Where to find and keep outputs.
        on_progress: Is told the number of images after every batch, and of every shard found.
    """
    start = perf_counter()
    unique = {probe.key: probe for probe in probes}
    wanted = Wanted(layers=layers, probes=tuple(unique.values()))
    check_wanted(wanted, layers=classifier.layers, name=classifier.name)
    task = Task(classifier, dataset, wanted, settings)
    with tempfile.TemporaryDirectory(prefix="incognita-") as temporary:
        if store is None and settings.workers > 1:
            store = OutputStore(Path(temporary))
        shards = HeldShards() if store is None else store.open(classifier, dataset, settings)
        passes = _run_missing(task, shards, on_progress or (lambda _: None))
        joined = join(shards, n_shards(len(dataset.image_ids)), list(wanted))
    outputs = _outputs(task, joined)
    broken = tuple(BrokenImage(dataset.image_ids[k], why) for k, why in joined.broken.items())
    n_bytes = sum(c.nbytes for columns in joined.columns.values() for c in columns.values())
    return Extracted(outputs, broken, passes, perf_counter() - start, n_bytes)


def _run_missing(task: Task, shards: StoredShards | HeldShards, on_progress: Progress) -> PassCount:
    jobs = []
    n_images = len(task.dataset.image_ids)
    for index in range(n_shards(n_images)):
        missing = frozenset(group for group in task.wanted if not shards.has(index, group))
        if missing:
            jobs.append(ShardJob(index, missing))
        else:
            on_progress(len(shard_rows(index, n_images)))
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


def _outputs(task: Task, joined: Joined) -> ClassifierOutputs:
    classifier, dataset = task.classifier, task.dataset
    if not joined.rows:
        return ClassifierOutputs.empty(len(classifier.class_names), classifier.head)
    rows = list(joined.rows)
    labels = None if dataset.labels is None else torch.as_tensor(dataset.labels[rows]).long()
    probes: dict[str, Tensor] = {
        f"{probe.key}/{name}": column
        for probe in task.wanted.probes
        for name, column in joined.columns[probe.key].items()
    }
    return ClassifierOutputs(
        tuple(dataset.image_ids[row] for row in rows),
        joined.columns[OUTPUTS]["logits"],
        joined.columns[OUTPUTS].get("features"),
        labels,
        classifier.head,
        joined.columns.get(LAYERS),
        probes or None,
    )
