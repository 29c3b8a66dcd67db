"""The loop: images are read in threads, run through a model, and committed shard by shard."""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers import Dataset, ExtraOutput
from incognita.errors import IncognitaError, InvalidDataError
from incognita.extraction.settings import (
    OutputRequest,
    PassCount,
    Settings,
    ShardJob,
    ShardLayout,
)
from incognita.extraction.store import Columns, ShardGroup
from incognita.models.detector import PreprocessedImage

Inputs = Tensor | tuple[PreprocessedImage, ...]
_AHEAD = 2  # batches being loaded while the network works on one
_IMAGES_PER_TASK = 16
_LONGEST_REASON = 300
Commit = Callable[[int, str, ShardGroup], None]
Progress = Callable[[int], None]


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
        results = dict(zip(rows, read, strict=True))
        self._check_shapes(results)
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
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_REASON]
        if inputs is None:
            return fault
        if not isinstance(inputs, Tensor | PreprocessedImage):
            return f"preprocess gave {type(inputs).__name__}, not a tensor"
        return inputs

    def _check_shapes(self, results: Mapping[int, Tensor | PreprocessedImage | str]) -> None:
        """Raise if tensors cannot be one batch, which is the fault of no single image."""
        shapes = {k: list(found.shape) for k, found in results.items() if isinstance(found, Tensor)}
        if not shapes:
            return
        first = next(iter(shapes))
        for row, shape in shapes.items():
            if shape != shapes[first]:
                ids = self.dataset.image_ids
                raise InvalidDataError(
                    f"The preprocessing returns different shapes, {shapes[first]} for {ids[first]} "
                    f"and {shape} for {ids[row]}, which cannot be one batch. Resize and crop all "
                    f'images to one size, such as --preprocess "size=256 crop=224 …".'
                )

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


class ModelPass(ABC):
    """A model in evaluation mode on its device; `close` restores the caller's module.

    Gradients with respect to weights are switched off; those with respect to inputs are followed
    where an extra output has a `gradient_key`.
    """

    def __init__(self, module: nn.Module, pixel_std: Tensor, settings: Settings):
        self.device = torch.device(settings.device)
        self.pixel_std = pixel_std.to(self.device, torch.float32).view(1, -1, 1, 1)
        self.passes = PassCount()
        self.close = _restoring(module)
        module.eval().requires_grad_(False)
        module.to(self.device)

    @abstractmethod
    def record(
        self, inputs: Inputs, request: OutputRequest
    ) -> tuple[dict[str, Columns], tuple[int, ...] | None]:
        """Run the model on a batch; return the columns by group and the rows of each image.

        The number of rows is None where each image has one.
        """

    def count(self, **passes: int) -> None:
        """Add to the number of passes."""
        self.passes = self.passes.plus(PassCount(**passes))

    def gradients(
        self, extra_outputs: Iterable[ExtraOutput], base: Any, inputs: Tensor
    ) -> dict[Hashable, Tensor]:
        """Differentiate every distinct objective; the last one releases the graph."""
        distinct = {extra.gradient_key: extra for extra in extra_outputs}
        gradients = {}
        for n_done, (key, extra) in enumerate(distinct.items(), start=1):
            objective = extra.objective_values(base)
            if not objective.numel():  # no box in any image
                gradients[key] = torch.zeros_like(inputs)
                continue
            self.count(backward=len(inputs))
            (gradients[key],) = torch.autograd.grad(
                objective.sum(), inputs, retain_graph=n_done < len(distinct)
            )
        return gradients

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Make CUDA compute in the requested precision, and the same in every run."""
        if self.device.type != "cuda":
            yield
            return
        allow_tf32 = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            with torch.backends.cudnn.flags(
                enabled=True, benchmark=False, deterministic=True, allow_tf32=False
            ):
                yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allow_tf32


def _restoring(module: nn.Module) -> Callable[[], None]:
    """Note the state of a module and return a function that restores it."""
    modes = [(part, part.training) for part in module.modules()]
    weights = [(weight, weight.device, weight.requires_grad) for weight in module.parameters()]
    buffers = [(buffer, buffer.device) for buffer in module.buffers()]

    def restore() -> None:
        for part, is_training in modes:
            part.training = is_training
        for weight, device, requires_grad in weights:
            weight.data = weight.data.to(device).contiguous()
            weight.requires_grad_(requires_grad)
        for buffer, device in buffers:
            buffer.data = buffer.data.to(device).contiguous()

    return restore


@dataclass(eq=False)
class ShardRunner:
    """Runs a model over shards and commits each group when its shard is complete.

    Args:
        model: The model; it counts its passes.
        loader: The source of its batches.
        request: The groups that may be recorded.
        turn: Held while the model computes (see `run_in_workers`).
    """

    model: ModelPass
    loader: Loader
    request: OutputRequest
    turn: AbstractContextManager[object]

    def run(self, jobs: Iterable[ShardJob], commit: Commit, on_progress: Progress) -> None:
        """Run shards one after another, calling `on_progress` after each batch."""
        parts: dict[str, list[ShardGroup]] = defaultdict(list)
        with closing(self.loader.batches(jobs)) as batches:
            for batch in batches:
                for recorded in self._record(batch):
                    for group, part in recorded.items():
                        parts[group].append(part)
                if batch.is_last:
                    for group in batch.job.groups:
                        commit(batch.job.shard, group, ShardGroup.concatenate(parts.pop(group)))
                on_progress(len(batch.rows) + len(batch.failed_images))

    def _record(self, batch: LoadedBatch) -> Iterator[dict[str, ShardGroup]]:
        yield dict.fromkeys(batch.job.groups, ShardGroup((), {}, batch.failed_images))
        if batch.inputs is not None:
            request = self.request.only(batch.job.groups)
            yield from self._record_images(batch.rows, batch.inputs, request)

    def _record_images(
        self, rows: tuple[int, ...], inputs: Inputs, request: OutputRequest
    ) -> Iterator[dict[str, ShardGroup]]:
        """Run images together; if the model fails, one by one, to find those it fails on."""
        passes = self.model.passes
        try:
            with self.turn, self.model.exact():
                groups, counts = self.model.record(inputs, request)
                groups = {group: _on_host(columns) for group, columns in groups.items()}
        except Exception as error:  # whatever a model may raise
            if not _is_of_the_image(error):
                raise
            self.model.passes = passes
            if len(rows) == 1:
                failed = {rows[0]: _failure(error)}
                yield dict.fromkeys(request, ShardGroup((), {}, failed))
                return
        else:
            yield {group: _finite(rows, part, counts) for group, part in groups.items()}
            return
        for k in range(len(rows)):
            yield from self._record_images(rows[k : k + 1], inputs[k : k + 1], request)


def _finite(rows: tuple[int, ...], columns: Columns, counts: tuple[int, ...] | None) -> ShardGroup:
    """Leave out the images that have NaN or infinity in any of their rows."""
    n_rows = torch.tensor(counts or (1,) * len(rows))
    image_of_row = torch.repeat_interleave(torch.arange(len(rows)), n_rows)
    is_kept = torch.ones(len(rows), dtype=torch.bool)
    failed = {}
    for name, column in columns.items():
        is_wrong = torch.zeros(len(rows), dtype=torch.bool)
        is_finite = column.isfinite()
        if column.ndim > 1:
            is_finite = is_finite.flatten(1).all(dim=1)
        is_wrong[image_of_row[~is_finite]] = True
        for k in (is_kept & is_wrong).nonzero().flatten().tolist():
            failed[rows[k]] = f"{name} of the network is not finite"
        is_kept &= ~is_wrong
    if is_kept.all():
        return ShardGroup(rows, columns, {}, counts)
    kept = is_kept.nonzero().flatten().tolist()
    return ShardGroup(
        tuple(rows[k] for k in kept),
        {name: column[is_kept[image_of_row]] for name, column in columns.items()},
        failed,
        None if counts is None else tuple(counts[k] for k in kept),
    )


def _is_of_the_image(error: Exception) -> bool:
    """Whether an error may be due to an image: not to memory, the device or an adapter."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError | IncognitaError):
        return False
    return not any(words in str(error) for words in ("CUDA error", "allocate memory"))


def _failure(error: Exception) -> str:
    """Format the failure as one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"the network failed on it: {text}"[:_LONGEST_REASON]


def _on_host(columns: Columns) -> Columns:
    """Copy columns to the host, floats in single precision."""
    return {
        # `clone` leaves inference mode: a method may change or differentiate a column
        name: column.detach()
        .to("cpu", torch.float32 if column.is_floating_point() else column.dtype)
        .clone(memory_format=torch.contiguous_format)
        for name, column in columns.items()
    }
