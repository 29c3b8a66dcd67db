"""Runs shards in local processes, with the same bytes as in one.

Sums of floats depend on how many threads share them: on one machine ResNet-18, ViT, Swin,
MobileNet and VGG all gave other bytes with 4 threads than with 1, mostly in gradients and in the
last, smaller batch. So a batch is always computed by as many threads as torch has in the parent,
in whichever process. To keep processes from treading on each other they take turns: no more
batches are computed at once than there are cores for. By default torch has a thread per core, one
batch is computed at a time, and the other processes read images meanwhile; whoever sets torch to
one thread has as many batches at once as workers.
"""

import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError, WorkerError
from incognita.extraction.classifier_pass import ProbedNetwork, identity_of_classifier
from incognita.extraction.detector_pass import DetectorNetwork, identity_of_detector
from incognita.extraction.image_loader import Loader, n_shards
from incognita.extraction.settings import (
    CLASSIFIER_UNIT,
    DETECTOR_UNIT,
    OutputRequest,
    PassCount,
    Settings,
    ShardJob,
    ShardLayout,
)
from incognita.extraction.shards import Progress, Runnable, ShardRunner
from incognita.extraction.store import MemoryShards, OutputStore, StoredShards
from incognita.models.classifier import Classifier
from incognita.models.detector import Detector, finds_objects
from incognita.models.fingerprints import importable, source_of

_MOST_THREADS = 8


class Task(NamedTuple):
    """What every process must know."""

    model: Classifier | Detector
    dataset: Dataset
    wanted: OutputRequest
    settings: Settings

    @property
    def unit(self) -> ShardLayout:
        """Images per shard and per call of the network."""
        unit = DETECTOR_UNIT if finds_objects(self.model) else CLASSIFIER_UNIT
        return unit._replace(batch_size=self.settings.batch_size or unit.batch_size)

    @property
    def n_shards(self) -> int:
        """How many shards the dataset has."""
        return n_shards(len(self.dataset.image_ids), self.unit)

    def shards(self, store: OutputStore | None) -> "StoredShards | MemoryShards":
        """Open the place where the shards are or will be."""
        if store is None:
            return MemoryShards()
        if finds_objects(self.model):
            identity = identity_of_detector(self.model)
        else:
            identity = identity_of_classifier(cast("Classifier", self.model))
        return store.open(self.model.name, identity, self.dataset, self.settings, self.unit)

    def runner(self, turn: AbstractContextManager[object] | None = None) -> ShardRunner:
        """Make what runs shards in this process."""
        settings = self.settings
        threads = max(1, min(_MOST_THREADS, n_cores()) // settings.workers)
        is_cuda = torch.device(settings.device).type == "cuda"
        loader = Loader(self.dataset, self.model.preprocess, self.unit, threads, pin=is_cuda)
        network: Runnable
        if finds_objects(self.model):
            network = DetectorNetwork(self.model, settings)
        else:
            network = ProbedNetwork(cast("Classifier", self.model), settings)
        return ShardRunner(network, loader, self.wanted, turn or nullcontext())


def n_cores() -> int:
    """Give the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_workers(
    task: Task, shards: StoredShards, jobs: Sequence[ShardJob], on_progress: Progress
) -> PassCount:
    """Deal shards out to processes, each taking the next one when it is free."""
    context = get_context("spawn")
    is_cuda = torch.device(task.settings.device).type == "cuda"
    at_once = max(1, n_cores() // torch.get_num_threads())
    # the GPU arranges turns by itself
    turns = context.Semaphore(task.settings.workers if is_cuda else at_once)
    shared = (
        source_of(task.model),
        _pickled(task),
        shards,
        list(jobs),
        context.Value("q", 0),
        turns,
    )
    workers: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(min(task.settings.workers, len(jobs))):
            reader, writer = context.Pipe(duplex=False)
            process = context.Process(
                target=_work, args=(*shared, torch.get_num_threads(), writer), daemon=True
            )
            workers[reader] = process
            with _interrupts_blocked():
                process.start()
            writer.close()  # so that the end of the process is the end of the pipe
        return _listen(workers, on_progress)
    finally:
        for process in workers.values():
            if process.pid is not None:  # it was started
                process.terminate()
                process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start a process so that Ctrl-C is left to its parent, even while it still imports torch.

    Interrupts are blocked, which a process inherits, and not ignored: here one would be lost.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(workers: dict[Connection, SpawnProcess], on_progress: Progress) -> PassCount:
    passes, open_pipes = PassCount(), set(workers)
    while open_pipes:
        for pipe in wait(list(open_pipes)):
            assert isinstance(pipe, Connection)
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                workers[pipe].join()
                raise WorkerError(
                    f"A worker process died with exit code {workers[pipe].exitcode}, perhaps for "
                    f"lack of memory; finished shards are kept, so start again with fewer workers."
                ) from None
            if isinstance(message, int):
                on_progress(message)
            elif isinstance(message, PassCount):
                passes = passes.plus(message)
                open_pipes.discard(pipe)
            elif isinstance(message, InvalidDataError):  # as it would be raised here
                raise message
            else:
                raise WorkerError(
                    f"A worker process failed with {message}; finished shards are kept, so start "
                    f"again when this is corrected."
                )
    return passes


def _work(
    source: Path | None,
    pickled: bytes,
    shards: StoredShards,
    jobs: Sequence[ShardJob],
    counter: Any,
    turns: Any,
    n_threads: int,
    pipe: Connection,
) -> None:
    """Run in a worker process until no shard is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends its workers
    torch.set_num_threads(n_threads)
    try:
        with importable(source):  # a class of the model may stand there
            runner = pickle.loads(pickled).runner(turns)
        runner.run(_dealt(jobs, counter), shards.write, pipe.send)
        pipe.send(runner.network.passes)
    except InvalidDataError as error:
        pipe.send(InvalidDataError(str(error)))
    except Exception as error:
        pipe.send(" ".join(f"{type(error).__name__}: {error}".split()))


def _dealt(jobs: Sequence[ShardJob], counter: Any) -> Iterator[ShardJob]:
    parent = parent_process()
    while parent is None or parent.is_alive():  # nobody waits for an orphan
        with counter.get_lock():
            place = counter.value
            counter.value += 1
        if place >= len(jobs):
            return
        yield jobs[place]


def _pickled(task: Task) -> bytes:
    try:
        return pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidDataError(
            f"The model or the dataset cannot be sent to worker processes ({error}); define its "
            f"functions at the top of a module, or use workers=1."
        ) from error
