"""The loop: batches are run through a model, and committed shard by shard.

Reading, computing and writing overlap: readers are ahead of the model, and a thread behind it
copies, checks and writes what it returned.
"""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from incognita.containers import ExtraOutput
from incognita.errors import IncognitaError
from incognita.extraction.loading import (
    LONGEST_REASON,
    Inputs,
    LoadedBatch,
    Loader,
    is_of_a_reader,
)
from incognita.extraction.settings import OutputRequest, PassCount, Settings, ShardJob
from incognita.extraction.store import Columns, ShardGroup
from incognita.models.detector import steps_of
from incognita.models.preprocessing import normalize

Commit = Callable[[int, str, ShardGroup], None]
Progress = Callable[[int], None]
_AHEAD = 2  # batches whose results wait to be copied, checked and written


class ModelPass(ABC):
    """A model in evaluation mode on its device; `close` restores the caller's module.

    Gradients with respect to weights are switched off; those with respect to inputs are followed
    where an extra output has a `gradient_key`.
    """

    def __init__(self, module: nn.Module, model: Any, settings: Settings):
        self.device = torch.device(settings.device)
        self._allows_tf32 = settings.precision == "tf32"
        statistics = steps_of(model).statistics
        self._values = None if statistics is None else statistics.on(self.device)
        self.pixel_std = model.pixel_std.to(self.device, torch.float32).view(1, -1, 1, 1)
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

    def on_device(self, pixels: Tensor) -> Tensor:
        """Copy a batch to the device, and normalize it there if readers left that to it."""
        pixels = pixels.to(self.device, non_blocking=True)
        return pixels if self._values is None else normalize(pixels, self._values)

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
        """Make CUDA compute in the requested precision, and the same in every run.

        Convolutions are chosen by rule and not by timing, and only among deterministic ones;
        TF32, which keeps 10 bits behind the point, is used where it was asked for.
        """
        if self.device.type != "cuda":
            yield
            return
        allow_tf32 = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = self._allows_tf32
        try:
            with torch.backends.cudnn.flags(
                enabled=True, benchmark=False, deterministic=True, allow_tf32=self._allows_tf32
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


class _Recorded(NamedTuple):
    """What the model returned for some images, perhaps still on its way to the host."""

    rows: tuple[int, ...]
    groups: dict[str, Columns]
    counts: tuple[int, ...] | None
    is_copied: Callable[[], None]

    def finished(self) -> dict[str, ShardGroup]:
        """Wait for the copies, and leave out images with NaN or infinity."""
        self.is_copied()
        return {name: _finite(self.rows, part, self.counts) for name, part in self.groups.items()}


@dataclass(eq=False)
class ShardRunner:
    """Runs a model over shards and commits each group when its shard is complete.

    Args:
        model: The model; it counts its passes.
        loader: The source of its batches.
        request: The groups that may be recorded.
        turn: Held while the model computes (see `run_on_devices`).
    """

    model: ModelPass
    loader: Loader
    request: OutputRequest
    turn: AbstractContextManager[object]
    _parts: dict[str, list[ShardGroup]] = field(default_factory=lambda: defaultdict(list))

    def run(self, jobs: Iterable[ShardJob], commit: Commit, on_progress: Progress) -> None:
        """Run shards one after another, calling `on_progress` after each batch."""
        waiting: deque[Future[int]] = deque()
        with ThreadPoolExecutor(1) as writer, closing(self.loader.batches(jobs)) as batches:
            try:
                for batch in batches:
                    recorded = list(self._record(batch))
                    waiting.append(writer.submit(self._finish, batch, recorded, commit))
                    if len(waiting) > _AHEAD:
                        on_progress(waiting.popleft().result())
                while waiting:
                    on_progress(waiting.popleft().result())
            finally:
                for future in waiting:
                    future.cancel()

    def _record(self, batch: LoadedBatch) -> Iterator[_Recorded | dict[str, ShardGroup]]:
        images = batch.images
        yield dict.fromkeys(batch.job.groups, ShardGroup((), {}, images.failed_images))
        if images.inputs is not None:
            request = self.request.only(batch.job.groups)
            yield from self._record_images(images.rows, images.inputs, request)

    def _record_images(
        self, rows: tuple[int, ...], inputs: Inputs, request: OutputRequest
    ) -> Iterator[_Recorded | dict[str, ShardGroup]]:
        """Run images together; if the model fails, one by one, to find those it fails on."""
        passes = self.model.passes
        try:
            with self.turn, self.model.exact():
                groups, counts = self.model.record(inputs, request)
                recorded = _Recorded(rows, *_to_host(groups, self.model.device, counts))
        except Exception as error:  # whatever a model may raise
            if not _is_of_the_image(error):
                raise
            self.model.passes = passes
            if len(rows) == 1:
                failed = {rows[0]: _failure(error)}
                yield dict.fromkeys(request, ShardGroup((), {}, failed))
                return
        else:
            yield recorded
            return
        for k in range(len(rows)):
            yield from self._record_images(rows[k : k + 1], inputs[k : k + 1], request)

    def _finish(
        self,
        batch: LoadedBatch,
        recorded: Iterable[_Recorded | dict[str, ShardGroup]],
        commit: Commit,
    ) -> int:
        """Add a batch to its shard, commit the shard with its last batch; return its images."""
        for part in recorded:
            groups = part.finished() if isinstance(part, _Recorded) else part
            for name, group in groups.items():
                self._parts[name].append(group)
        if batch.is_last:
            for name in batch.job.groups:
                commit(batch.job.shard, name, ShardGroup.concatenate(self._parts.pop(name)))
        return len(batch.images.rows) + len(batch.images.failed_images)


def _to_host(
    groups: dict[str, Columns], device: torch.device, counts: tuple[int, ...] | None
) -> tuple[dict[str, Columns], tuple[int, ...] | None, Callable[[], None]]:
    """Copy columns to the host, floats in single precision; a GPU goes on meanwhile."""
    is_cuda = device.type == "cuda"
    copied: dict[str, Columns] = {
        group: {name: _copy(column, pin=is_cuda) for name, column in columns.items()}
        for group, columns in groups.items()
    }
    if not is_cuda:
        return copied, counts, lambda: None
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record(torch.cuda.current_stream(device))
    return copied, counts, done.synchronize


def _copy(column: Tensor, *, pin: bool) -> Tensor:
    dtype = torch.float32 if column.is_floating_point() else column.dtype
    with torch.inference_mode(mode=False):  # a method may change or differentiate a column
        host = torch.empty(column.shape, dtype=dtype, pin_memory=pin)
    return host.copy_(column.detach(), non_blocking=pin)


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
    """Whether an error may be due to an image: not to memory, the device, a reader, an adapter."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError | IncognitaError):
        return False
    if is_of_a_reader(error):
        return False
    return not any(words in str(error) for words in ("CUDA error", "allocate memory"))


def _failure(error: Exception) -> str:
    """Format the failure as one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"the network failed on it: {text}"[:LONGEST_REASON]
