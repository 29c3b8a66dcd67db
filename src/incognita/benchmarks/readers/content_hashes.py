"""Hashes of files, remembered by size and time, so that a second run does not read them again."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import NamedTuple

MISSING = "missing"
SETTLED = 2.0  # seconds after which a second change can no longer hide behind the same time


class _Known(NamedTuple):
    size: int
    time_ns: int
    content: str


class ContentHashes:
    """The sha256 of files below a folder, kept in one small text file.

    Each line is `sha256 size time_ns path`. The file is replaced as a whole by a rename, so that
    processes may share it; where it cannot be written, nothing is remembered.

    Args:
        root: The folder that paths begin at.
        name: Of the set of files: each set has a file of its own.
        cache_dir: Where the text file lies; None remembers nothing.
    """

    def __init__(self, root: Path, name: str, cache_dir: Path | None) -> None:
        self.root = root
        key = sha256(f"{os.path.realpath(root)}\n{name}".encode()).hexdigest()
        self.path = None if cache_dir is None else cache_dir / f"hashes-{key[:32]}.txt"
        self.known = {} if self.path is None else _load(self.path)
        self.is_changed = False

    def of(self, paths: Sequence[str]) -> list[str]:
        """Give the hash of each file; the same from any number of threads."""
        return [self._of(path) for path in paths]

    def _of(self, path: str) -> str:
        full = f"{self.root}/{path}"
        try:
            facts = os.stat(full)  # noqa: PTH116 - a million paths
            known = self.known.get(path)
            if known and known[:2] == (facts.st_size, facts.st_mtime_ns):
                return known.content
            with open(full, "rb") as stream:  # noqa: PTH123 - a million paths
                content = file_digest(stream, "sha256").hexdigest()
        except OSError:
            return MISSING
        if time.time() - facts.st_mtime > SETTLED and "\n" not in path:
            self.known[path] = _Known(facts.st_size, facts.st_mtime_ns, content)
            self.is_changed = True
        return content

    def save(self) -> None:
        """Write what was learned, where there is a place for it."""
        if self.path is None or not self.is_changed:
            return
        lines = (f"{k.content} {k.size} {k.time_ns} {path}\n" for path, k in self.known.items())
        part = self.path.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):  # a cache that cannot be written costs time, not correctness
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text("".join(lines), encoding="utf-8", errors="surrogateescape", newline="")
            part.replace(self.path)


def _load(path: Path) -> dict[str, _Known]:
    known = {}
    with suppress(OSError, ValueError):  # absent or broken: the files are read again
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        for line in text.split("\n")[:-1]:
            content, size, time_ns, name = line.split(" ", 3)
            known[name] = _Known(int(size), int(time_ns), content)
    return known


def user_cache_dir() -> Path:
    """The folder for what can be computed again: XDG_CACHE_HOME, by default ~/.cache."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "incognita"
