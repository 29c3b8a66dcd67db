"""Runs the shards that are missing and puts all of them together."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Generic, TypeVar

from incognita.extraction.image_loader import shard_rows
from incognita.extraction.joining import Joined, join
from incognita.extraction.settings import BrokenImage, PassCount, ShardJob
from incognita.extraction.shards import Progress
from incognita.extraction.store import HeldShards, OutputStore, StoredShards
from incognita.extraction.workers import Task, run_in_workers

Outputs = TypeVar("Outputs")


@dataclass(frozen=True, eq=False)
class Extracted(Generic[Outputs]):
    """What one pass gave, and what it cost.

    Args:
        outputs: What was recorded of the images that could be used, in the order of the dataset.
        broken: The other images.
        passes: How often the network was run; what was found in the store cost none.
        seconds: From the call to the outputs.
        n_bytes: Size of the columns.
        n_images: How many images could be used.
    """

    outputs: Outputs
    broken: tuple[BrokenImage, ...]
    passes: PassCount
    seconds: float
    n_bytes: int
    n_images: int


def record(
    task: Task,
    outputs_of: Callable[[Joined], Outputs],
    store: OutputStore | None,
    on_progress: Progress | None,
) -> Extracted[Outputs]:
    """Run what is missing and make outputs of everything, keeping the account."""
    start = perf_counter()
    joined, passes = _record_shards(task, store, on_progress)
    outputs = outputs_of(joined)
    return Extracted(
        outputs,
        tuple(BrokenImage(task.dataset.image_ids[k], why) for k, why in joined.broken.items()),
        passes,
        perf_counter() - start,
        joined.n_bytes,
        len(joined.rows),
    )


def _record_shards(
    task: Task, store: OutputStore | None, on_progress: Progress | None
) -> tuple[Joined, PassCount]:
    """Give every column of every image, running the model only for what the store lacks."""
    with tempfile.TemporaryDirectory(prefix="incognita-") as temporary:
        if store is None and task.settings.workers > 1:
            store = OutputStore(Path(temporary))
        shards = task.shards(store)
        passes = _run_missing(task, shards, on_progress or (lambda _: None))
        return join(shards, task.n_shards, list(task.wanted)), passes


def _run_missing(task: Task, shards: StoredShards | HeldShards, on_progress: Progress) -> PassCount:
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
