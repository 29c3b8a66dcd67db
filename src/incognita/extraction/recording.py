"""Runs the shards that are missing and puts all of them together."""

import tempfile
from pathlib import Path

from incognita.extraction.joining import Joined, join
from incognita.extraction.loading import shard_rows
from incognita.extraction.output_store import HeldShards, OutputStore, StoredShards
from incognita.extraction.records import PassCount, ShardJob
from incognita.extraction.shards import Progress
from incognita.extraction.workers import Task, run_in_workers


def record_shards(
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
