"""Puts the shards of a dataset together, a shard at a time."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from incognita.extraction.output_store import HeldShards, StoredShards
from incognita.extraction.records import ShardGroup

JOINED_IN_MEMORY = 2**30  # bytes of a column; a larger one lies in a file that memory can forget


@dataclass(frozen=True, eq=False)
class Joined:
    """The rows of all shards that every group has."""

    rows: tuple[int, ...]
    columns: Mapping[str, Mapping[str, Tensor]]
    broken: Mapping[int, str]


def join(shards: StoredShards | HeldShards, n: int, groups: list[str]) -> Joined:
    """Load and join `n` shards of several groups.

    Memory beyond the result is that of one shard, and a result beyond `JOINED_IN_MEMORY` lies in
    an unnamed file beside the shards: 1.28 million rows of 2048 features take 10 GB of disk.
    """
    kept = [_in_all([shards.rows(index, group) for group in groups]) for index in range(n)]
    broken: dict[int, str] = {}
    columns: dict[str, dict[str, Tensor]] = {}
    for group in groups:
        table = _Table(sum(len(rows) for rows in kept), shards.folder)
        for index in range(n):
            shard = shards.read(index, group)
            table.add(shard, kept[index])
            broken = {**shard.broken, **broken}
        columns[group] = table.columns
    rows = tuple(row for part in kept for row in part)
    return Joined(rows, columns, dict(sorted(broken.items())))


def _in_all(groups: list[tuple[int, ...]]) -> tuple[int, ...]:
    if all(rows == groups[0] for rows in groups):
        return groups[0]
    return tuple(sorted(set.intersection(*map(set, groups))))


class _Table:
    """Columns that are filled from top to bottom."""

    def __init__(self, n: int, folder: Path | None):
        self._n, self._folder, self._filled = n, folder, 0
        self.columns: dict[str, Tensor] = {}

    def add(self, shard: ShardGroup, kept: tuple[int, ...]) -> None:
        """Copy the rows of a shard that are kept."""
        if not kept:
            return
        last = self._filled + len(kept)
        for name, column in shard.columns.items():
            part = column
            if kept != shard.rows:
                wanted = set(kept)
                part = column[torch.tensor([row in wanted for row in shard.rows])]
            if len(part) == self._n:  # all there is
                self.columns[name] = part
                continue
            if name not in self.columns:
                self.columns[name] = self._new_column(part)
            self.columns[name][self._filled : last] = part
        self._filled = last

    def _new_column(self, part: Tensor) -> Tensor:
        shape = (self._n, *part.shape[1:])
        if self._folder is None or 4 * prod(shape) <= JOINED_IN_MEMORY:
            return torch.empty(shape)
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:  # the mapping outlives the name
            return torch.from_file(file.name, shared=True, size=prod(shape)).view(shape)
