"""The loop: shards in, recorded column groups out."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field

import torch
from torch import Tensor

from incognita.extraction.loading import LoadedBatch, Loader
from incognita.extraction.network import Network
from incognita.extraction.probes import Columns, record
from incognita.extraction.records import ShardGroup, ShardJob, Wanted

Commit = Callable[[int, str, ShardGroup], None]
Progress = Callable[[int], None]


@dataclass(eq=False)
class ShardRunner:
    """Runs a network over shards and hands over each group when its shard is complete.

    Args:
        network: What is run; it counts its passes.
        loader: Where its batches come from.
        wanted: The groups that may be asked for.
        turn: Held while the network computes (see `workers`).
    """

    network: Network
    loader: Loader
    wanted: Wanted
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
                on_progress(len(batch.rows) + len(batch.broken))

    def _add(self, batch: LoadedBatch, drafts: dict[str, "_Draft"]) -> None:
        for draft in drafts.values():
            draft.broken |= batch.broken
        if batch.inputs is None:
            return
        with self.turn, self.network.exact():
            inputs = batch.inputs.to(self.network.device, non_blocking=True)
            groups = record(self.network, inputs, self.wanted.only(batch.job.groups))
            groups = {name: _on_host(columns) for name, columns in groups.items()}
        for group, columns in groups.items():
            drafts[group].add(batch.rows, columns)


@dataclass(eq=False)
class _Draft:
    """A group of a shard in the making."""

    rows: list[int] = field(default_factory=list)
    parts: list[Columns] = field(default_factory=list)
    broken: dict[int, str] = field(default_factory=dict)

    def add(self, rows: tuple[int, ...], columns: Columns) -> None:
        """Add the rows of a batch; one that holds NaN or infinity is broken."""
        is_kept = torch.ones(len(rows), dtype=torch.bool)
        for name, column in columns.items():
            is_finite = column.isfinite().flatten(1).all(dim=1)
            for k in (is_kept & ~is_finite).nonzero().flatten().tolist():
                self.broken[rows[k]] = f"{name} of the network is not finite"
            is_kept &= is_finite
        if is_kept.all():
            self.rows += rows
            self.parts.append(columns)
        elif is_kept.any():
            self.rows += [row for row, kept in zip(rows, is_kept.tolist(), strict=True) if kept]
            self.parts.append({name: column[is_kept] for name, column in columns.items()})

    def finished(self) -> ShardGroup:
        """Join the batches."""
        names = self.parts[0] if self.parts else {}
        columns = {name: torch.cat([part[name] for part in self.parts]) for name in names}
        return ShardGroup(tuple(self.rows), columns, dict(sorted(self.broken.items())))


def _on_host(columns: Columns) -> Columns:
    return {name: _as_float32(column) for name, column in columns.items()}


def _as_float32(column: Tensor) -> Tensor:
    # `clone` leaves inference mode behind: a method may want to change or differentiate a column
    return column.to("cpu", torch.float32).clone(memory_format=torch.contiguous_format)
