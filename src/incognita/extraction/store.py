"""Recorded outputs on disk: safetensors files in a folder per key, each committed by a rename.

    <root>/<key>/manifest.json                 what this is, for people
    <root>/<key>/images.npz                    ids, labels and objects of the data set
    <root>/<key>/<group>/group.json            which columns these are
    <root>/<key>/<group>/00000.safetensors     a shard: rows, columns, and the failed images

A file is complete or absent, so that the files are the checkpoint. Each has a checksum of its
numbers: after a power failure a file may keep its name and lose its content.
"""

import json
import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from incognita._version import __version__
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError
from incognita.extraction.settings import Settings, ShardLayout
from incognita.extraction.stored_sets import save_images
from incognita.files import reporting_full_disk

FORMAT = 1
JOINED_IN_MEMORY = 2**30  # bytes of a column; a larger one is backed by a file
_ROWS = "rows"
_COUNTS = "counts"
_COLUMN = "column:"  # before the name of a column: a layer may be called rows
_FAILED = "broken"  # the images without a row; the word is part of the format
_NOTE = "incognita"  # one entry only: the order of several would differ from file to file
Counts = dict[int, int]  # number of rows by image
Columns = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class ShardGroup:
    """One column group of the images of a batch or of a whole shard.

    Args:
        rows: Places in the dataset of the images that have rows, increasing.
        columns: Their rows; empty where every image failed.
        failed_images: The reason why the image at a place has no row.
        counts: The number of rows of each image; None where each has one.
    """

    rows: tuple[int, ...]
    columns: Columns
    failed_images: Mapping[int, str] = field(default_factory=dict)
    counts: tuple[int, ...] | None = None

    @staticmethod
    def concatenate(parts: Sequence["ShardGroup"]) -> "ShardGroup":
        """Join the batches of a shard."""
        filled = [part for part in parts if part.rows]
        names = filled[0].columns if filled else {}
        failed = {place: why for part in parts for place, why in part.failed_images.items()}
        has_counts = any(part.counts is not None for part in filled)
        return ShardGroup(
            tuple(row for part in filled for row in part.rows),
            {name: torch.cat([part.columns[name] for part in filled]) for name in names},
            dict(sorted(failed.items())),
            tuple(n for part in filled for n in part.counts or ()) if has_counts else None,
        )

    def of_images(self, kept: Counts) -> Columns:
        """Return the rows of some of the images."""
        if tuple(kept) == self.rows:
            return self.columns
        is_kept = torch.tensor([row in kept for row in self.rows])
        counts = torch.tensor(self.counts or (1,) * len(self.rows))
        is_kept = torch.repeat_interleave(is_kept, counts)
        return {name: column[is_kept] for name, column in self.columns.items()}


@dataclass(frozen=True)
class OutputStore:
    """A folder of recorded outputs of any number of models and datasets."""

    root: Path

    def open(
        self,
        name: str,
        identity: Mapping[str, Any],
        dataset: Dataset,
        settings: Settings,
        layout: ShardLayout,
    ) -> "StoredShards":
        """Find or create the folder of one model, dataset and settings.

        `identity` holds everything about the model that could change an output; `name` does not.
        """
        fingerprint = dataset.fingerprint()
        contents = _contents(identity, fingerprint, settings, layout)
        folder = self.find(identity, fingerprint, settings, layout).folder
        with reporting_full_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        description = {
            "model": name,
            "dataset": dataset.name,
            "images": len(dataset.image_ids),
            "versions": {"incognita": __version__, "torch": torch.__version__},
        }
        _write_json(folder / "manifest.json", contents | description)
        save_images(folder, dataset)
        return StoredShards(folder)

    def find(
        self,
        identity: Mapping[str, Any],
        fingerprint: str,
        settings: Settings,
        layout: ShardLayout,
    ) -> "StoredShards":
        """Return the folder of one model, dataset and settings, which may not be there."""
        contents = _contents(identity, fingerprint, settings, layout)
        key = sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
        return StoredShards(Path(self.root) / key)


def _contents(
    identity: Mapping[str, Any], fingerprint: str, settings: Settings, layout: ShardLayout
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **identity,
        "fingerprint": fingerprint,
        "shard_size": layout.shard_size,
        "batch_size": layout.batch_size,
        "precision": settings.precision,
    }


@dataclass(frozen=True)
class StoredShards:
    """The shards of one key on disk."""

    folder: Path

    def has(self, index: int, group: str) -> bool:
        """Check whether a group of a shard is there, complete and as it was written."""
        path = self._path(index, group)
        if not path.exists():
            return False
        try:
            tensors, note = _read(path)
            is_whole = note["checksum"] == _checksum(tensors)
            return bool(is_whole) and _is_shard(tensors, note)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
            return False  # truncated, or written by another program

    def write(self, index: int, group: str, shard: ShardGroup) -> None:
        """Commit a group of a shard."""
        path = self._path(index, group)
        path.parent.mkdir(exist_ok=True)
        if not (path.parent / "group.json").exists():
            _write_json(path.parent / "group.json", {"group": group})
        tensors = {f"{_COLUMN}{name}": column for name, column in shard.columns.items()}
        tensors[_ROWS] = torch.tensor(shard.rows, dtype=torch.int32)
        if shard.counts is not None:
            tensors[_COUNTS] = torch.tensor(shard.counts, dtype=torch.int32)
        note = {_FAILED: list(shard.failed_images.items()), "checksum": _checksum(tensors)}
        draft = path.with_suffix(f".{os.getpid()}.draft")
        try:
            with reporting_full_disk(path):
                save_file(tensors, draft, metadata={_NOTE: json.dumps(note)})
                draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def read(self, index: int, group: str) -> ShardGroup:
        """Load a group of a shard."""
        tensors, note = _read(self._path(index, group))
        rows = tuple(tensors.pop(_ROWS).tolist())
        counts = tuple(tensors.pop(_COUNTS).tolist()) if _COUNTS in tensors else None
        columns = {name.removeprefix(_COLUMN): tensor for name, tensor in tensors.items()}
        return ShardGroup(rows, columns, dict(note[_FAILED]), counts)

    def rows(self, index: int, group: str) -> Counts:
        """Load only which images have rows, and how many."""
        with safe_open(self._path(index, group), framework="pt") as file:
            rows = file.get_tensor(_ROWS).tolist()
            has_counts = _COUNTS in file.keys()  # noqa: SIM118
            counts = file.get_tensor(_COUNTS).tolist() if has_counts else [1] * len(rows)
        return dict(zip(rows, counts, strict=True))

    def _path(self, index: int, group: str) -> Path:
        name = sha256(group.encode()).hexdigest()[:16]
        return self.folder / name / f"{index:05d}.safetensors"


class MemoryShards:
    """Shards in memory, for runs without a store; reading a group releases it."""

    folder = None

    def __init__(self) -> None:
        self._groups: dict[tuple[int, str], ShardGroup] = {}

    def has(self, index: int, group: str) -> bool:
        """Check whether a group of a shard was recorded."""
        return (index, group) in self._groups

    def write(self, index: int, group: str, shard: ShardGroup) -> None:
        """Keep a group of a shard."""
        self._groups[index, group] = shard

    def read(self, index: int, group: str) -> ShardGroup:
        """Return a group of a shard and release it."""
        return self._groups.pop((index, group))

    def rows(self, index: int, group: str) -> Counts:
        """Return which images have rows, and how many."""
        shard = self._groups[index, group]
        return dict(zip(shard.rows, shard.counts or (1,) * len(shard.rows), strict=True))


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        note = json.loads(file.metadata()[_NOTE])
        return {name: file.get_tensor(name) for name in file.keys()}, note  # noqa: SIM118


def _is_shard(tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> bool:
    """Check that rows, counts and columns fit together, and that failures are pairs."""
    rows = tensors[_ROWS]
    counts = tensors.get(_COUNTS, torch.ones_like(rows))
    if rows.ndim != 1 or rows.shape != counts.shape or rows.is_floating_point():
        return False
    n_rows = int(counts.sum())
    columns = (value for name, value in tensors.items() if name.startswith(_COLUMN))
    return all(column.ndim > 0 and len(column) == n_rows for column in columns) and all(
        isinstance(place, int) and isinstance(reason, str) for place, reason in note[_FAILED]
    )


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].numpy().data, total)
    return total


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        with reporting_full_disk(path):
            draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class JoinedShards:
    """The images that every group of every shard has, with their number of rows and columns."""

    rows: tuple[int, ...]
    counts: tuple[int, ...]
    columns: Mapping[str, Columns]
    failed_images: Mapping[int, str]

    @property
    def n_bytes(self) -> int:
        """Size of the columns."""
        return sum(c.nbytes for columns in self.columns.values() for c in columns.values())


def join(shards: StoredShards | MemoryShards, n: int, groups: Sequence[str]) -> JoinedShards:
    """Load and join `n` shards of several groups.

    Memory beyond the result is that of one shard, and a result beyond `JOINED_IN_MEMORY` is backed
    by an unnamed file beside the shards: 1.28 million rows of 2048 features take 10 GB of disk.
    """
    kept = [_in_all([shards.rows(index, group) for group in groups]) for index in range(n)]
    failed_images: dict[int, str] = {}
    columns: dict[str, Columns] = {}
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
    """Return the images that every group has, checking that their row counts agree."""
    common = sorted(set.intersection(*(set(counts) for counts in groups)))
    for counts in groups[1:]:
        if any(counts[row] != groups[0][row] for row in common):
            raise InvalidDataError(
                "Stored outputs disagree on the number of boxes of an image: they were recorded on "
                "machines that compute differently. Use another folder for the outputs."
            )
    return {row: groups[0][row] for row in common}


class _Table:
    """Columns that are filled from top to bottom."""

    def __init__(self, n: int, folder: Path | None):
        self._n, self._folder, self._filled = n, folder, 0
        self.columns: dict[str, Tensor] = {}

    def add(self, shard: ShardGroup, kept: Counts) -> None:
        """Copy the rows of the kept images."""
        if not kept:
            return
        last = self._filled + sum(kept.values())
        if self._filled and set(shard.columns) != set(self.columns):
            raise InvalidDataError(
                f"Some images have {sorted(set(shard.columns) ^ set(self.columns))[0]} and others "
                f"do not. Let the model return it for all images or for none."
            )
        for name, part in shard.of_images(kept).items():
            if len(part) == self._n:  # this shard holds all rows: no copy
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
        # the mapping outlives the name
        with (
            reporting_full_disk(self._folder),
            tempfile.NamedTemporaryFile(dir=self._folder) as file,
        ):
            # a full disk is an error here, and would kill the process when the mapping is filled
            os.posix_fallocate(file.fileno(), 0, max(n_bytes, 1))
            return torch.from_file(file.name, shared=True, size=prod(shape), dtype=part.dtype).view(
                shape
            )
