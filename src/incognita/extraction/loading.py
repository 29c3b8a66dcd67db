"""Reads images and joins them to batches, in threads of this process or in processes of their own.

Readers resize and crop; where the preprocessing allows it they return whole levels, a quarter of
the bytes, and the device of the network normalizes them.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from incognita.containers import Dataset
from incognita.errors import InvalidDataError, WorkerError
from incognita.extraction.settings import ShardJob, ShardLayout
from incognita.models.detector import PreprocessedImage
from incognita.models.preprocessing import InputSteps

Inputs = Tensor | tuple[PreprocessedImage, ...]
LONGEST_REASON = 300
PATIENCE = 600.0  # seconds without an image, after which a reader counts as hanging
_AHEAD = 2  # batches being loaded while the network works on one
_IMAGES_PER_TASK = 16
_BLOCK = 32_768  # images of a data set that readers hold at once: whole shards, so whole batches


@dataclass(frozen=True, eq=False)
class ReadImages:
    """The images of one batch as they were read.

    Args:
        rows: Places in the dataset of the images that could be read.
        inputs: One tensor, or images of several sizes; None where no image could be read.
        failed_images: The reason why the image at a place could not be read.
    """

    rows: tuple[int, ...]
    inputs: Inputs | None
    failed_images: Mapping[int, str]

    def pin_memory(self) -> "ReadImages":
        """Return a copy in pinned memory, from which a GPU reads by itself."""
        if self.inputs is None:
            return self
        if isinstance(self.inputs, Tensor):
            return ReadImages(self.rows, self.inputs.pin_memory(), self.failed_images)
        pinned = tuple(i._replace(pixels=i.pixels.pin_memory()) for i in self.inputs)
        return ReadImages(self.rows, pinned, self.failed_images)


@dataclass(frozen=True, eq=False)
class LoadedBatch:
    """A batch of a shard: its images, and whether the shard ends with it."""

    job: ShardJob
    images: ReadImages
    is_last: bool


@dataclass(frozen=True, eq=False)
class BatchReader:
    """Reads the images of a data set and converts them to inputs of a network.

    Args:
        dataset: The images.
        steps: How an image becomes an input.
        first: The place of the first image, where these are a part of a larger data set.
    """

    dataset: Dataset
    steps: InputSteps
    first: int = 0

    def read(self, row: int) -> Tensor | PreprocessedImage | str:
        """Return the network's input for one image, or the reason why there is none."""
        try:
            image = self.dataset.load(row - self.first)
            inputs = None if (fault := _fault(image)) else self.steps.read(image)
        except MemoryError:  # not the fault of this image
            raise
        except Exception as error:  # whatever a file or a decoder may raise
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_REASON]
        if inputs is None:
            return fault
        if isinstance(inputs, np.ndarray | list | tuple) and not isinstance(
            inputs, PreprocessedImage
        ):
            inputs = torch.as_tensor(np.require(inputs, requirements="W"))
        if not isinstance(inputs, Tensor | PreprocessedImage):
            return f"preprocess gave {type(inputs).__name__}, not a tensor"
        return inputs

    def join(
        self, results: Mapping[int, Tensor | PreprocessedImage | str], *, pin: bool = False
    ) -> ReadImages:
        """Join the images of a batch, in pinned memory if a GPU shall read from it."""
        self._check_shapes(results)
        read = {row: found for row, found in results.items() if not isinstance(found, str)}
        failed = {row: reason for row, reason in results.items() if isinstance(reason, str)}
        inputs = _joined(list(read.values()), pin=pin) if read else None
        return ReadImages(tuple(read), inputs, failed)

    def _check_shapes(self, results: Mapping[int, Tensor | PreprocessedImage | str]) -> None:
        """Raise if tensors cannot be one batch, which is the fault of no single image."""
        shapes = {k: _shape(found) for k, found in results.items() if isinstance(found, Tensor)}
        if not shapes:
            return
        first = next(iter(shapes))
        for row, shape in shapes.items():
            if shape != shapes[first]:
                ids = self.dataset.image_ids
                raise InvalidDataError(
                    f"The preprocessing returns different shapes, {shapes[first]} for "
                    f"{ids[first - self.first]} and {shape} for {ids[row - self.first]}, which "
                    f"cannot be one batch. Resize and crop all images to one size, such as "
                    f'--preprocess "size=256 crop=224 …".'
                )


def _shape(pixels: Tensor) -> list[int]:
    """Return the shape of an input; of levels, the one they have after normalization."""
    is_levels = pixels.dtype == torch.uint8 and pixels.ndim == 3
    return list(pixels.permute(2, 0, 1).shape if is_levels else pixels.shape)


def _joined(inputs: list[Tensor | PreprocessedImage], *, pin: bool) -> Inputs:
    images = tuple(image for image in inputs if isinstance(image, PreprocessedImage))
    if images:
        return images
    tensors = [tensor for tensor in inputs if isinstance(tensor, Tensor)]
    first = tensors[0]
    batch = torch.empty((len(tensors), *first.shape), dtype=first.dtype, pin_memory=pin)
    torch.stack(tensors, out=batch)
    if batch.ndim == 4 and batch.dtype != torch.uint8:  # whole levels have channels last already
        return batch.contiguous(memory_format=torch.channels_last)
    return batch


def _fault(image: object) -> str:
    if not isinstance(image, np.ndarray):
        return f"the image is a {type(image).__name__}, not an array"
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        return (
            f"the image is {image.dtype} of shape {list(image.shape)}, not uint8 [height, width, 3]"
        )
    return ""


@dataclass(frozen=True, eq=False)
class Loader:
    """Loads the batches of shards, in order.

    Args:
        dataset: The images.
        steps: How an image becomes an input of the network.
        layout: Images per shard and per batch; every shard starts a new batch, so that batches do
            not depend on the number of readers.
        threads: Images read at the same time, where this process reads.
        pin: Whether to copy batches to pinned memory.
        readers: Processes that read; None reads in threads of this one.
    """

    dataset: Dataset
    steps: InputSteps
    layout: ShardLayout
    threads: int
    pin: bool = False
    readers: "ReaderProcesses | None" = None

    def batches(self, jobs: Iterable[ShardJob]) -> Generator[LoadedBatch, None, None]:
        """Load batches ahead of the consumer; jobs are taken one by one, as needed."""
        planned: deque[tuple[ShardJob, bool]] = deque()
        batches = self._planned(jobs, planned)
        by = self._in_threads(batches) if self.readers is None else self._in_readers(batches)
        try:
            for images in by:
                job, is_last = planned.popleft()
                yield LoadedBatch(job, images, is_last)
        finally:
            by.close()

    def _planned(
        self, jobs: Iterable[ShardJob], planned: deque[tuple[ShardJob, bool]]
    ) -> Iterator[range]:
        """Yield the rows of batch after batch; note which shard each is part of."""
        size = self.layout.batch_size
        for job in jobs:
            rows = self.layout.rows(job.shard, len(self.dataset.image_ids))
            for k in range(0, len(rows), size):
                planned.append((job, k + size >= len(rows)))
                yield rows[k : k + size]

    def _in_threads(self, batches: Iterator[range]) -> Generator[ReadImages, None, None]:
        readers, joiner = ThreadPoolExecutor(self.threads), ThreadPoolExecutor(1)
        waiting: deque[Future[ReadImages]] = deque()
        try:
            for rows in batches:
                waiting.append(joiner.submit(self._read, readers, rows))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # a consumer that stops early waits only for the images being read now
            joiner.shutdown(wait=False, cancel_futures=True)
            readers.shutdown(wait=True, cancel_futures=True)
            joiner.shutdown(wait=True)

    def _read(self, readers: ThreadPoolExecutor, rows: range) -> ReadImages:
        reader = BatchReader(self.dataset, self.steps)
        parts = [rows[k : k + _IMAGES_PER_TASK] for k in range(0, len(rows), _IMAGES_PER_TASK)]
        read = readers.map(lambda part: [reader.read(row) for row in part], parts)
        results = dict(zip(rows, (result for part in read for result in part), strict=True))
        return reader.join(results, pin=self.pin)

    def _in_readers(self, batches: Iterator[range]) -> Generator[ReadImages, None, None]:
        assert self.readers is not None
        with tempfile.TemporaryDirectory(prefix="incognita-readers-") as folder:
            blocks = _Blocks(self.dataset, self.steps, Path(folder))
            yield from self.readers.read(map(blocks.task, batches))


@dataclass(frozen=True)
class _Task:
    """What a reader is sent: a file with a part of the data set, and the rows of a batch."""

    block: str
    rows: range


@dataclass(eq=False)
class _Blocks:
    """A data set in parts that readers load when they come to them, and then keep for a while."""

    dataset: Dataset
    steps: InputSteps
    folder: Path
    written: dict[int, str] = field(default_factory=dict)

    def task(self, rows: range) -> _Task:
        """Return the task of a batch, after saving the part that it is of."""
        start = rows.start // _BLOCK * _BLOCK
        if start not in self.written:
            path = self.folder / f"{start}.pickle"
            path.write_bytes(pickled(self._reader(start), "The images or their preprocessing"))
            self.written[start] = str(path)
        return _Task(self.written[start], rows)

    def _reader(self, start: int) -> BatchReader:
        n_images = len(self.dataset.image_ids)
        if n_images <= _BLOCK:
            return BatchReader(self.dataset, self.steps)
        part = self.dataset.subset(range(start, min(start + _BLOCK, n_images)))
        return BatchReader(part, self.steps, first=start)


def pickled(thing: object, what: str) -> bytes:
    """Return what is sent to other processes; raise a sentence about what cannot be."""
    try:
        return pickle.dumps(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidDataError(
            f"{what} cannot be sent to other processes ({error}). Define functions at the top of a "
            f"module, or use one device and no workers."
        ) from error


@lru_cache(maxsize=2)
def _load_block(path: str) -> BatchReader:
    reader: BatchReader = pickle.loads(Path(path).read_bytes())
    return reader


@dataclass(eq=False)
class _ReadInProcess(torch.utils.data.Dataset[Any]):
    """What runs in a reader; `now` tells this process which image each reader works on."""

    now: Any  # one whole number per reader, in shared memory

    def __getitem__(self, task: _Task) -> ReadImages | InvalidDataError:
        worker = get_worker_info()
        assert worker is not None
        reader = _load_block(task.block)
        results = {}
        for row in task.rows:
            self.now[worker.id] = row
            results[row] = reader.read(row)
        self.now[worker.id] = -1
        try:
            return reader.join(results)
        except InvalidDataError as error:  # as it would be raised in this process
            return error


@dataclass(eq=False)
class _Tasks(torch.utils.data.Sampler[_Task]):
    """The tasks of the data set that is read now."""

    pending: Iterator[_Task] = field(default_factory=lambda: iter(()))

    def __iter__(self) -> Iterator[_Task]:
        return self.pending


class ReaderProcesses:
    """Processes that read images, started when they are first used and kept for every data set.

    They never hold the network: each is sent the images and the preprocessing alone. They end with
    `close`, with the context, or with the object.

    Args:
        n: How many.
        pin: Whether batches are copied to pinned memory, from which a GPU reads by itself.
        patience: Seconds without a batch after which a reader counts as hanging.
    """

    def __init__(self, n: int, *, pin: bool = False, patience: float = PATIENCE) -> None:
        self.n = n
        self._pin, self._patience = pin, patience
        self._tasks = _Tasks()
        self._loader: DataLoader[Any] | None = None
        self._now: Any = None

    def __enter__(self) -> "ReaderProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def read(self, tasks: Iterator[_Task]) -> Generator[ReadImages, None, None]:
        """Yield the batches of the tasks, in order."""
        self._tasks.pending = tasks
        with warnings.catch_warnings():
            # more readers than cores is what the caller asked for; and Python warns of any fork of
            # a process with threads, of which readers use none
            warnings.simplefilter("ignore")
            batches = iter(self._start())
        for batch in batches:
            if isinstance(batch, InvalidDataError):
                raise batch
            yield batch

    def _start(self) -> DataLoader[Any]:
        if self._loader is None:
            name = "fork" if sys.platform == "linux" else "spawn"
            context = multiprocessing.get_context(name)
            self._now = context.RawArray("q", [-1] * self.n)
            self._loader = DataLoader(
                _ReadInProcess(self._now),
                batch_size=None,
                sampler=self._tasks,
                num_workers=self.n,
                persistent_workers=True,
                pin_memory=self._pin,
                collate_fn=_unchanged,
                multiprocessing_context=context,
                worker_init_fn=_prepare_reader,
                timeout=self._patience,
            )
        return self._loader

    def failure(self, error: RuntimeError, dataset: Dataset) -> WorkerError:
        """Explain an error of torch's loader; the processes are of no use any more."""
        text = " ".join(str(error).split())
        rows = [row for row in self._now or () if row >= 0]
        ids = ", ".join(str(dataset.image_ids[row]) for row in sorted(rows)[:4]) or "no image"
        self.close()
        if "timed out" in text:
            return WorkerError(
                f"Nothing was read for {self._patience:g} seconds; readers are at {ids}. Check the "
                f"disk and the files; finished shards are kept."
            )
        return WorkerError(
            f"A reader process failed ({text[:LONGEST_REASON]}) near {ids}. Finished shards are "
            f"kept; start again, with fewer workers if memory was short."
        )

    def close(self) -> None:
        """End the processes."""
        loader, self._loader = self._loader, None
        iterator = getattr(loader, "_iterator", None)
        if iterator is not None:
            with suppress(Exception):  # whatever a process that died leaves behind
                iterator._shutdown_workers()


def is_of_a_reader(error: Exception) -> bool:
    """Whether an error is due to a reader: torch raises it wherever this process is just then."""
    return isinstance(error, RuntimeError) and "DataLoader" in str(error)


def _unchanged(batch: Any) -> Any:
    return batch


def _prepare_reader(_: int) -> None:
    """Keep libraries from using threads, which a forked process does not have; end quietly."""
    warnings.simplefilter("ignore")
    # the process that runs the network reports the end of a run, and not its readers
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)
