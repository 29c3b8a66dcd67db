"""Recorded outputs on disk: safetensors files in a folder per key, each committed by a rename.

    <root>/<key>/manifest.json                 what this is, for people
    <root>/<key>/<group>/group.json            which columns these are
    <root>/<key>/<group>/00000.safetensors     a shard: rows, columns, and the broken images

A file is there complete or not at all, so that the files are the checkpoint. Each carries a
checksum of its numbers: a machine that loses power may keep a file's name and lose its content.
"""

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from incognita._version import __version__
from incognita.containers.dataset import Dataset
from incognita.extraction.settings import Settings, ShardGroup, ShardLayout

FORMAT = 1
_ROWS = "rows"
_COUNTS = "counts"
_COLUMN = "column:"  # before the name of a column: a layer may be called rows
_NOTE = "incognita"  # one entry only: the order of several would differ from file to file


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
        unit: ShardLayout,
    ) -> "StoredShards":
        """Find or make the folder for one model, dataset and way of running.

        `identity` holds everything about the model that could change an output; `name` does not.
        """
        contents = {
            "format": FORMAT,
            **identity,
            "fingerprint": dataset.fingerprint(),
            "shard_size": unit.shard_size,
            "batch_size": unit.batch_size,
            "precision": settings.precision,
        }
        key = sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
        folder = Path(self.root) / key
        folder.mkdir(parents=True, exist_ok=True)
        people = {
            "model": name,
            "dataset": dataset.name,
            "images": len(dataset.image_ids),
            "versions": {"incognita": __version__, "torch": torch.__version__},
        }
        _write_json(folder / "manifest.json", contents | people)
        return StoredShards(folder)


@dataclass(frozen=True)
class StoredShards:
    """The shards of one key on disk."""

    folder: Path

    def has(self, index: int, group: str) -> bool:
        """Say whether a group of a shard is there, complete and as it was written."""
        path = self._path(index, group)
        if not path.exists():
            return False
        try:
            tensors, note = _read(path)
            is_whole = note["checksum"] == _checksum(tensors)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError):
            return False  # cut off, or written by somebody else
        return is_whole and _ROWS in tensors and "broken" in note

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
        note = {"broken": list(shard.failed_images.items()), "checksum": _checksum(tensors)}
        draft = path.with_suffix(f".{os.getpid()}.draft")
        try:
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
        return ShardGroup(rows, columns, dict(note["broken"]), counts)

    def rows(self, index: int, group: str) -> dict[int, int]:
        """Load only which images are there, and how many rows each has."""
        with safe_open(self._path(index, group), framework="pt") as file:
            rows = file.get_tensor(_ROWS).tolist()
            has_counts = _COUNTS in file.keys()  # noqa: SIM118
            counts = file.get_tensor(_COUNTS).tolist() if has_counts else [1] * len(rows)
        return dict(zip(rows, counts, strict=True))

    def _path(self, index: int, group: str) -> Path:
        name = sha256(group.encode()).hexdigest()[:16]
        return self.folder / name / f"{index:05d}.safetensors"


class MemoryShards:
    """The same in memory, for whoever gives no store. A group can be read once: it is let go."""

    folder = None

    def __init__(self) -> None:
        self._groups: dict[tuple[int, str], ShardGroup] = {}

    def has(self, index: int, group: str) -> bool:
        """Say whether a group of a shard was recorded."""
        return (index, group) in self._groups

    def write(self, index: int, group: str, shard: ShardGroup) -> None:
        """Keep a group of a shard."""
        self._groups[index, group] = shard

    def read(self, index: int, group: str) -> ShardGroup:
        """Give a group of a shard away."""
        return self._groups.pop((index, group))

    def rows(self, index: int, group: str) -> dict[int, int]:
        """Say which images are there, and how many rows each has."""
        shard = self._groups[index, group]
        return dict(zip(shard.rows, shard.counts or (1,) * len(shard.rows), strict=True))


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        note = json.loads(file.metadata()[_NOTE])
        return {name: file.get_tensor(name) for name in file.keys()}, note  # noqa: SIM118


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].numpy().data, total)
    return total


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
