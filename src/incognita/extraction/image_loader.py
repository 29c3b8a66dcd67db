"""Reads and preprocesses images in threads, a few batches ahead of the network."""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from incognita.containers.dataset import Dataset
from incognita.extraction.settings import CLASSIFIER_UNIT, ShardJob, ShardLayout
from incognita.models.detector import PreprocessedImage

Inputs = Tensor | tuple[PreprocessedImage, ...]
_AHEAD = 2  # batches in the making while the network works on one
_IMAGES_PER_TASK = 16
LONGEST_REASON = 300


@dataclass(frozen=True, eq=False)
class LoadedBatch:
    """The images of one batch that could be read, and why the others could not.

    Args:
        job: The shard the batch is part of.
        rows: Places in the dataset of the images that could be read.
        inputs: What the network takes: one tensor, or images of several sizes; None where no image
            could be read.
        failed_images: Why the image at a place could not be read.
        is_last: Whether the shard ends with this batch.
    """

    job: ShardJob
    rows: tuple[int, ...]
    inputs: Inputs | None
    failed_images: Mapping[int, str]
    is_last: bool


@dataclass(frozen=True, eq=False)
class Loader:
    """Gives the batches of shards, in order.

    Args:
        dataset: Where the images come from.
        preprocess: Turns one image into what the network takes.
        unit: Images per shard and per batch; batches begin anew with each shard, so that they
            never depend on who runs it.
        threads: Images read at the same time.
        pin: Whether to put batches where a GPU can fetch them by itself.
    """

    dataset: Dataset
    preprocess: Callable[[np.ndarray], Any]
    unit: ShardLayout
    threads: int
    pin: bool = False

    def batches(self, jobs: Iterable[ShardJob]) -> Generator[LoadedBatch, None, None]:
        """Load batches ahead of whoever asks for them; jobs are taken one by one, as needed."""
        readers, joiner = ThreadPoolExecutor(self.threads), ThreadPoolExecutor(1)
        waiting: deque[Future[LoadedBatch]] = deque()
        try:
            for job in jobs:
                for rows in self._batches_of(job.shard):
                    waiting.append(joiner.submit(self._load, readers, job, rows))
                    if len(waiting) > _AHEAD:
                        yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # whoever stops early waits for the images now being read, not for all
            joiner.shutdown(wait=False, cancel_futures=True)
            readers.shutdown(wait=True, cancel_futures=True)
            joiner.shutdown(wait=True)

    def _batches_of(self, index: int) -> list[range]:
        shard, size = self._rows_of(index), self.unit.batch_size
        return [shard[k : k + size] for k in range(0, len(shard), size)]

    def _rows_of(self, index: int) -> range:
        return shard_rows(index, len(self.dataset.image_ids), self.unit)

    def _load(self, readers: ThreadPoolExecutor, job: ShardJob, rows: range) -> LoadedBatch:
        parts = [rows[k : k + _IMAGES_PER_TASK] for k in range(0, len(rows), _IMAGES_PER_TASK)]
        read = [result for part in readers.map(self._read_all, parts) for result in part]
        results = _same_shaped(dict(zip(rows, read, strict=True)))
        inputs = {row: each for row, each in results.items() if not isinstance(each, str)}
        failed_images = {row: each for row, each in results.items() if isinstance(each, str)}
        joined = self._joined(list(inputs.values())) if inputs else None
        is_last = rows.stop == self._rows_of(job.shard).stop
        return LoadedBatch(job, tuple(inputs), joined, failed_images, is_last)

    def _read_all(self, rows: range) -> list[Tensor | PreprocessedImage | str]:
        return [self._read(row) for row in rows]

    def _read(self, row: int) -> Tensor | PreprocessedImage | str:
        """Give what the network takes for one image, or the reason why there is nothing."""
        try:
            image = self.dataset.load(row)
            inputs = None if (fault := _fault(image)) else self.preprocess(image)
        except MemoryError:  # says nothing about the image
            raise
        except Exception as error:  # whatever a file or a decoder may raise
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_REASON]
        if inputs is None:
            return fault
        if not isinstance(inputs, Tensor | PreprocessedImage):
            return f"preprocess gave {type(inputs).__name__}, not a tensor"
        return inputs

    def _joined(self, inputs: Sequence[Tensor | PreprocessedImage]) -> Inputs:
        prepared = tuple(each for each in inputs if isinstance(each, PreprocessedImage))
        if prepared:
            return prepared
        batch = torch.stack([each for each in inputs if isinstance(each, Tensor)])
        if batch.ndim == 4:
            batch = batch.contiguous(memory_format=torch.channels_last)
        return batch.pin_memory() if self.pin else batch


def n_shards(n_images: int, unit: ShardLayout = CLASSIFIER_UNIT) -> int:
    """Give the number of shards.

    >>> n_shards(0), n_shards(512), n_shards(513)
    (0, 1, 2)
    """
    return -(-n_images // unit.shard_size)


def shard_rows(index: int, n_images: int, unit: ShardLayout = CLASSIFIER_UNIT) -> range:
    """Give the places of a shard's images.

    >>> shard_rows(1, 600)
    range(512, 600)
    """
    return range(index * unit.shard_size, min((index + 1) * unit.shard_size, n_images))


def _fault(image: object) -> str:
    if not isinstance(image, np.ndarray):
        return f"the image is a {type(image).__name__}, not an array"
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        return (
            f"the image is {image.dtype} of shape {list(image.shape)}, not uint8 [height, width, 3]"
        )
    return ""


def _same_shaped(
    results: dict[int, Tensor | PreprocessedImage | str],
) -> dict[int, Tensor | PreprocessedImage | str]:
    """Mark the tensors that cannot stand in one batch with the others."""
    shapes = Counter(each.shape for each in results.values() if isinstance(each, Tensor))
    if len(shapes) < 2:
        return results
    common = shapes.most_common(1)[0][0]
    return {
        row: each
        if not isinstance(each, Tensor) or each.shape == common
        else f"preprocess gave shape {list(each.shape)}, but {list(common)} for its neighbors"
        for row, each in results.items()
    }
