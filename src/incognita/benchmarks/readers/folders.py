"""Plain folders of images, with one class per folder of the first level where there are any."""

import os
from collections.abc import Iterator
from pathlib import Path

from incognita.errors import MissingDataError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"})


def list_images(folder: Path) -> tuple[str, ...]:
    """List the images of a folder and of those below it, as sorted paths relative to it.

    Hidden files and folders are left out; links to folders are followed, each folder once.
    """
    if not folder.is_dir():
        raise MissingDataError(f"There is no folder {folder}; put the images there.")
    return tuple(sorted(_walk(folder)))


def _walk(folder: Path) -> Iterator[str]:
    seen = {os.path.realpath(folder)}
    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if _is_new(Path(here, name), seen))
        below = Path(here).relative_to(folder)
        for name in files:
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield (below / name).as_posix()


def _is_new(folder: Path, seen: set[str]) -> bool:
    """Whether to enter a folder; links may lead in a circle."""
    real = os.path.realpath(folder)
    if folder.name.startswith(".") or real in seen:
        return False
    seen.add(real)
    return True


def first_folder(path: str) -> str | None:
    """Name the folder of the first level that an image lies in.

    >>> first_folder("cat/young/1.png"), first_folder("1.png")
    ('cat', None)
    """
    first, separator, _ = path.partition("/")
    return first if separator else None
