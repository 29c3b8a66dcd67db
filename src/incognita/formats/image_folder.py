"""Plain folders of images, with one class per folder of the first level where there are any."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from incognita.errors import MissingDataError

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"} | {".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
)


class Listing(NamedTuple):
    """The files of a folder and of those below it, as sorted paths relative to it.

    `left_out` are the ones that are no images by their suffix; hidden files are in neither.
    """

    images: tuple[str, ...]
    left_out: tuple[str, ...]


def list_files(folder: Path) -> Listing:
    """List a folder; hidden folders are not entered, links to folders are followed, each once."""
    if not folder.is_dir():
        raise MissingDataError(f"There is no folder {folder}; put the images there.")
    images: list[str] = []
    left_out: list[str] = []
    for path in _walk(folder):
        is_image = Path(path).suffix.lower() in SUFFIXES
        (images if is_image else left_out).append(path)
    return Listing(tuple(sorted(images)), tuple(sorted(left_out)))


def _walk(folder: Path) -> Iterator[str]:
    seen = {os.path.realpath(folder)}
    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if _is_new(Path(here, name), seen))
        below = Path(here).relative_to(folder)
        for name in files:
            if not name.startswith("."):
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
