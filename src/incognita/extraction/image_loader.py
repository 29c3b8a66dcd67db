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
from incognita.extraction.settings import ShardJob, ShardLayout
from incognita.models.detector import PreprocessedImage

Inputs = Tensor | tuple[PreprocessedImage, ...]
_AHEAD = 2  # batches being loaded while the network works on one
_IMAGES_PER_TASK = 16
LONGEST_REASON = 300


@dataclass(frozen=True, eq=False)
class LoadedBatch:
    """The images of one batch, and the reasons why some could not be read.

    Args:
        job: The shard the batch is part of.
        rows: Places in the dataset of the images that could be read.
        inputs: The inputs of the network: one tensor, or images of several sizes; None where no
            image could be read.
        failed_images: The reason why the image at a place could not be read.
        is_last: Whether the shard ends with this batch.
    """

    job: ShardJob
    rows: tuple[int, ...]
    inputs: Inputs | None
    failed_images: Mapping[int, str]
    is_last: bool


@dataclass(frozen=True, eq=False)
class Loader:
    """Loads the batches of shards, in order.

    Args:
        dataset: The images.
        preprocess: Converts one image to an input of the network.
        layout: Images per shard and per batch; every shard starts a new batch, so that batches do
            not depend on the number of processes.
        threads: Images read at the same time.
        pin: Whether to copy batches to pinned memory, from which a GPU reads by itself.
    """

    dataset: Dataset
    preprocess: Callable[[np.ndarray], Any]
    layout: ShardLayout
    threads: int
    pin: bool = False

    def batches(self, jobs: Iterable[ShardJob]) -> Generator[LoadedBatch, None, None]:
        """Load batches ahead of the consumer; jobs are taken one by one, as needed."""
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
        finally:  # a consumer that stops early waits only for the images being read now
            joiner.shutdown(wait=False, cancel_futures=True)
            readers.shutdown(wait=True, cancel_futures=True)
            joiner.shutdown(wait=True)

    def _batches_of(self, index: int) -> list[range]:
        shard, size = self._rows_of(index), self.layout.batch_size
        return [shard[k : k + size] for k in range(0, len(shard), size)]

    def _rows_of(self, index: int) -> range:
        return self.layout.rows(index, len(self.dataset.image_ids))

    def _load(self, readers: ThreadPoolExecutor, job: ShardJob, rows: range) -> LoadedBatch:
        parts = [rows[k : k + _IMAGES_PER_TASK] for k in range(0, len(rows), _IMAGES_PER_TASK)]
        read = [result for part in readers.map(self._read_all, parts) for result in part]
        results = _same_shaped(dict(zip(rows, read, strict=True)))
        inputs = {row: result for row, result in results.items() if not isinstance(result, str)}
        failed_images = {row: reason for row, reason in results.items() if isinstance(reason, str)}
        joined = self._joined(list(inputs.values())) if inputs else None
        is_last = rows.stop == self._rows_of(job.shard).stop
        return LoadedBatch(job, tuple(inputs), joined, failed_images, is_last)

    def _read_all(self, rows: range) -> list[Tensor | PreprocessedImage | str]:
        return [self._read(row) for row in rows]

    def _read(self, row: int) -> Tensor | PreprocessedImage | str:
        """Return the network's input for one image, or the reason why there is none."""
        try:
            image = self.dataset.load(row)
            inputs = None if (fault := _fault(image)) else self.preprocess(image)
        except MemoryError:  # not the fault of this image
            raise
        except Exception as error:  # whatever a file or a decoder may raise
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_REASON]
        if inputs is None:
            return fault
        if not isinstance(inputs, Tensor | PreprocessedImage):
            return f"preprocess gave {type(inputs).__name__}, not a tensor"
        return inputs

    def _joined(self, inputs: Sequence[Tensor | PreprocessedImage]) -> Inputs:
        images = tuple(image for image in inputs if isinstance(image, PreprocessedImage))
        if images:
            return images
        batch = torch.stack([tensor for tensor in inputs if isinstance(tensor, Tensor)])
        if batch.ndim == 4:
            batch = batch.contiguous(memory_format=torch.channels_last)
        return batch.pin_memory() if self.pin else batch


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
    """Replace tensors whose shape differs from the most common one by a reason."""
    shapes = Counter(result.shape for result in results.values() if isinstance(result, Tensor))
    if len(shapes) < 2:
        return results
    common = shapes.most_common(1)[0][0]
    return {
        row: result
        if not isinstance(result, Tensor) or result.shape == common
        else f"preprocess gave shape {list(result.shape)}, but {list(common)} for its neighbors"
        for row, result in results.items()
    }
