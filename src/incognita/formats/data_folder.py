"""The folder that files of others may name files in: a path that leaves it is refused."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from incognita.errors import InvalidDataError
from incognita.formats.images import real_folders

_ADVICE = "Move the files, or allow it with --allow-outside (allow_outside=True)"


@dataclass(frozen=True)
class DataFolder:
    """A folder, and whether the files in it may name others outside of it.

    A link directly below the folder is followed, since clusters keep data so; any other link must
    stay below the folder, or below the target of such a link.

    Args:
        path: The folder.
        allow_outside: Whether paths may leave it.
    """

    path: Path
    allow_outside: bool = False

    def find(self, name: str, source: str) -> Path:
        """Return the path of a name that `source` gives; refuse one that leaves the folder.

        >>> DataFolder(Path("data")).find("../x", "mine.toml")
        Traceback (most recent call last):
        incognita.errors.InvalidDataError: mine.toml names '../x', which is outside of the data \
folder data. Move the files, or allow it with --allow-outside (allow_outside=True).
        """
        path = self.path / name
        if not self.allow_outside:
            if "\0" in name or self._leaves(path):
                raise self._refusal(name, source)
            if not self._is_followed(path):
                self._check_real(os.path.realpath(path), name, source)
        return path

    def check_images(self, root: Path, paths: Sequence[str], source: str) -> None:
        """Refuse images that lie outside, by their name or through a link."""
        if self.allow_outside:
            return
        for path in paths:
            is_plain = path[:1] != "/" and ".." not in path  # as nearly all of a million are
            if "\0" in path or (not is_plain and self._leaves(root / path)):
                raise self._refusal(path, source)
        folders = real_folders(root, paths)
        for name, folder in folders.items():
            self._check_real(folder.path, str(root / name), source)
        for path in paths:
            parent, _, name = path.rpartition("/")
            folder = folders[parent]
            if name in folder.links and not self._is_followed(root / path):
                self._check_real(os.path.realpath(f"{folder.path}/{name}"), path, source)

    def check_link(self, path: Path, source: str) -> None:
        """Refuse to enter a folder that is a link to the outside."""
        if not self.allow_outside and path.is_symlink() and not self._is_followed(path):
            self._check_real(os.path.realpath(path), str(path), source)

    def notes(self, what: str, *paths: Path) -> tuple[str, ...]:
        """Return notes on `what` if its paths go through links directly below the folder."""
        first = (self.path / os.path.relpath(path, self.path).split("/")[0] for path in paths)
        links = {link.name for link in first if link.is_symlink() and not self._is_inside(link)}
        said = "is a link that leads out of the data folder; it is followed"
        return tuple(f"{what}: {link} {said}" for link in sorted(links))

    @cached_property
    def _roots(self) -> frozenset[str]:
        """Where the folder really is, and the folders that links directly below it lead to."""
        found = {os.path.realpath(self.path)}
        try:
            with os.scandir(self.path) as entries:
                links = [e.path for e in entries if e.is_symlink() and e.is_dir()]
        except OSError:
            links = []
        return frozenset(found | {os.path.realpath(link) for link in links})

    def _leaves(self, path: Path) -> bool:
        """Whether a path leads out by its spelling, before any link is followed."""
        below = os.path.relpath(path, self.path)
        return below == ".." or below.startswith("../")

    def _is_here(self, folder: Path) -> bool:
        return os.path.relpath(folder, self.path) == "."

    def _is_followed(self, path: Path) -> bool:
        """Whether a path is directly below the folder, where links are followed."""
        return self._is_here(Path(os.path.normpath(path)).parent)

    def _is_inside(self, path: Path) -> bool:
        real = Path(os.path.realpath(path))
        return real.is_relative_to(os.path.realpath(self.path))

    def _check_real(self, real: str, name: str, source: str) -> None:
        if real not in self._roots and not any(str(p) in self._roots for p in Path(real).parents):
            raise self._refusal(name, source, real)

    def _refusal(self, name: str, source: str, real: str | None = None) -> InvalidDataError:
        what = "which is" if real is None else f"which leads to {real},"
        return InvalidDataError(
            f"{source} names {name!r}, {what} outside of the data folder {self.path}. {_ADVICE}."
        )
