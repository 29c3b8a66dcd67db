"""The loop: shards in, recorded column groups out."""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from incognita.errors import IncognitaError, InvalidDataError
from incognita.extraction.image_loader import (
    LONGEST_REASON,
    Inputs,
    LoadedBatch,
    Loader,
)
from incognita.extraction.settings import OutputRequest, PassCount, ShardGroup, ShardJob
from incognita.extraction.store import MemoryShards, StoredShards

JOINED_IN_MEMORY = 2**30  # bytes of a column; a larger one lies in a file that memory can forget
Counts = dict[int, int]  # rows of each image that is there


@dataclass(frozen=True, eq=False)
class JoinedShards:
    """The images of all shards that every group has, and how many rows each of them has."""

    rows: tuple[int, ...]
    counts: tuple[int, ...]
    columns: Mapping[str, Mapping[str, Tensor]]
    failed_images: Mapping[int, str]

    @property
    def n_bytes(self) -> int:
        """Size of the columns."""
        return sum(c.nbytes for columns in self.columns.values() for c in columns.values())


def join(shards: StoredShards | MemoryShards, n: int, groups: list[str]) -> JoinedShards:
    """Load and join `n` shards of several groups.

    Memory beyond the result is that of one shard, and a result beyond `JOINED_IN_MEMORY` lies in
    an unnamed file beside the shards: 1.28 million rows of 2048 features take 10 GB of disk.
    """
    kept = [_in_all([shards.rows(index, group) for group in groups]) for index in range(n)]
    failed_images: dict[int, str] = {}
    columns: dict[str, dict[str, Tensor]] = {}
    for group in groups:
        table = _Table(sum(sum(counts.values()) for counts in kept), shards.folder)
        for index in range(n):
            shard = shards.read(index, group)
            table.add(shard, kept[index])
            failed_images = {**shard.failed_images, **failed_images}
        columns[group] = table.columns
    rows = tuple(row for part in kept for row in part)
    counts = tuple(count for part in kept for count in part.values())
    return JoinedShards(rows, counts, columns, dict(sorted(failed_images.items())))


def _in_all(groups: list[Counts]) -> Counts:
    """Give the images that every group has; those must have as many rows in each."""
    common = sorted(set.intersection(*(set(counts) for counts in groups)))
    for counts in groups[1:]:
        if any(counts[row] != groups[0][row] for row in common):
            raise InvalidDataError(
                "Stored outputs disagree on how many boxes an image has: they were recorded on "
                "machines that compute differently; name another folder for the outputs."
            )
    return {row: groups[0][row] for row in common}


class _Table:
    """Columns that are filled from top to bottom."""

    def __init__(self, n: int, folder: Path | None):
        self._n, self._folder, self._filled = n, folder, 0
        self.columns: dict[str, Tensor] = {}

    def add(self, shard: ShardGroup, kept: Counts) -> None:
        """Copy the rows of the images that are kept."""
        if not kept:
            return
        last = self._filled + sum(kept.values())
        if self._filled and set(shard.columns) != set(self.columns):
            raise InvalidDataError(
                f"Some images have {sorted(set(shard.columns) ^ set(self.columns))[0]} and others "
                f"do not; let the model give it for all or for none."
            )
        is_kept = None if tuple(kept) == shard.rows else _rows_of(shard, kept)
        for name, column in shard.columns.items():
            part = column if is_kept is None else column[is_kept]
            if len(part) == self._n:  # all there is
                self.columns[name] = part
                continue
            if name not in self.columns:
                self.columns[name] = self._new_column(part)
            self.columns[name][self._filled : last] = part
        self._filled = last

    def _new_column(self, part: Tensor) -> Tensor:
        shape = (self._n, *part.shape[1:])
        n_bytes = part.element_size() * prod(shape)
        if self._folder is None or n_bytes <= JOINED_IN_MEMORY:
            return torch.empty(shape, dtype=part.dtype)
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:  # the mapping outlives the name
            return torch.from_file(file.name, shared=True, size=prod(shape), dtype=part.dtype).view(
                shape
            )


def _rows_of(shard: ShardGroup, kept: Counts) -> Tensor:
    """Mark the rows of a shard whose images are kept."""
    is_kept = torch.tensor([row in kept for row in shard.rows])
    counts = torch.tensor(shard.counts or (1,) * len(shard.rows))
    return torch.repeat_interleave(is_kept, counts)


Columns = dict[str, Tensor]
Commit = Callable[[int, str, ShardGroup], None]
Progress = Callable[[int], None]


class BatchOutputs(NamedTuple):
    """The columns of each group for one batch; `counts` as in `ShardGroup`."""

    groups: dict[str, Columns]
    counts: tuple[int, ...] | None = None


@runtime_checkable
class Runnable(Protocol):
    """A model made ready to be run, whatever it emits."""

    passes: PassCount

    def record(self, inputs: Inputs, wanted: OutputRequest) -> BatchOutputs:
        """Run it on a batch and give the columns of each group."""

    def exact(self) -> AbstractContextManager[None]:
        """Make the device compute the same in every run."""

    def close(self) -> None:
        """Leave the module as it was found."""


@dataclass(eq=False)
class ShardRunner:
    """Runs a network over shards and hands over each group when its shard is complete.

    Args:
        network: What is run; it counts its passes.
        loader: Where its batches come from.
        wanted: The groups that may be asked for.
        turn: Held while the network computes (see `workers`).
    """

    network: Runnable
    loader: Loader
    wanted: OutputRequest
    turn: AbstractContextManager[object]

    def run(self, jobs: Iterable[ShardJob], commit: Commit, on_progress: Progress) -> None:
        """Run shards one after another; `on_progress` hears of each batch."""
        drafts: dict[str, _Draft] = {}
        with closing(self.loader.batches(jobs)) as batches:
            for batch in batches:
                drafts = drafts or {group: _Draft() for group in batch.job.groups}
                self._add(batch, drafts)
                if batch.is_last:
                    for group, draft in drafts.items():
                        commit(batch.job.shard, group, draft.finished())
                    drafts = {}
                on_progress(len(batch.rows) + len(batch.failed_images))

    def _add(self, batch: LoadedBatch, drafts: dict[str, "_Draft"]) -> None:
        for draft in drafts.values():
            draft.failed_images |= batch.failed_images
        if batch.inputs is not None:
            self._add_rows(batch.rows, batch.inputs, drafts)

    def _add_rows(self, rows: tuple[int, ...], inputs: Inputs, drafts: dict[str, "_Draft"]) -> None:
        """Run images together; if the network fails, one by one, to tell which it fails on."""
        wanted, passes = self.wanted.only(frozenset(drafts)), self.network.passes
        try:
            with self.turn, self.network.exact():
                groups, counts = self.network.record(inputs, wanted)
                groups = {name: _on_host(columns) for name, columns in groups.items()}
        except Exception as error:  # whatever a network may raise
            if _is_of_the_run(error):
                raise
            self.network.passes = passes
            if len(rows) > 1:
                for k in range(len(rows)):
                    self._add_rows(rows[k : k + 1], inputs[k : k + 1], drafts)
                return
            for draft in drafts.values():
                draft.failed_images[rows[0]] = _failure(error)
            return
        for group, columns in groups.items():
            drafts[group].add(rows, columns, counts)


@dataclass(eq=False)
class _Draft:
    """A group of a shard in the making."""

    rows: list[int] = field(default_factory=list)
    parts: list[Columns] = field(default_factory=list)
    failed_images: dict[int, str] = field(default_factory=dict)
    counts: list[int] | None = None

    def add(
        self, rows: tuple[int, ...], columns: Columns, counts: tuple[int, ...] | None = None
    ) -> None:
        """Add the images of a batch; one with NaN or infinity in any of its rows is broken."""
        each = torch.tensor(counts or (1,) * len(rows))
        image_of_row = torch.repeat_interleave(torch.arange(len(rows)), each)
        is_kept = torch.ones(len(rows), dtype=torch.bool)
        for name, column in columns.items():
            is_finite = _finite_rows(column)
            wrong = torch.zeros(len(rows), dtype=torch.bool)
            wrong[image_of_row[~is_finite]] = True
            for k in (is_kept & wrong).nonzero().flatten().tolist():
                self.failed_images[rows[k]] = f"{name} of the network is not finite"
            is_kept &= ~wrong
        if not is_kept.any():
            return
        kept = is_kept.tolist()
        self.rows += [row for row, is_in in zip(rows, kept, strict=True) if is_in]
        if counts is not None:
            now = [n for n, is_in in zip(counts, kept, strict=True) if is_in]
            self.counts = (self.counts or []) + now
        if not all(kept):
            columns = {name: column[is_kept[image_of_row]] for name, column in columns.items()}
        self.parts.append(columns)

    def finished(self) -> ShardGroup:
        """Join the batches."""
        names = self.parts[0] if self.parts else {}
        columns = {name: torch.cat([part[name] for part in self.parts]) for name in names}
        counts = None if self.counts is None else tuple(self.counts)
        return ShardGroup(
            tuple(self.rows), columns, dict(sorted(self.failed_images.items())), counts
        )


def _is_of_the_run(error: Exception) -> bool:
    """Tell errors that say nothing about an image: of memory, of the device, of an adapter."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError | IncognitaError):
        return True
    return any(words in str(error) for words in ("CUDA error", "allocate memory"))


def _failure(error: Exception) -> str:
    """Say in one line that and how the network failed."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"the network failed on it: {text}"[:LONGEST_REASON]


def _on_host(columns: Columns) -> Columns:
    return {name: _plain(column) for name, column in columns.items()}


def _plain(column: Tensor) -> Tensor:
    """Give a column on the host, floats in single precision."""
    kind = torch.float32 if column.is_floating_point() else column.dtype
    # `clone` leaves inference mode behind: a method may want to change or differentiate a column
    return column.detach().to("cpu", kind).clone(memory_format=torch.contiguous_format)


def _finite_rows(column: Tensor) -> Tensor:
    is_finite = column.isfinite()
    return is_finite if column.ndim == 1 else is_finite.flatten(1).all(dim=1)
