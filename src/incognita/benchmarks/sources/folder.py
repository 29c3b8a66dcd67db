"""Plain folders of images, with one class per folder of the first level where there are any."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import model_validator

from incognita.benchmarks.sources.entry import DataContext, LoadedSet, SetEntry
from incognita.containers.classes import plain
from incognita.errors import InvalidDataError
from incognita.formats.images import FileDataset
from incognita.shapes import Int

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"} | {".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
)


class FolderSet(SetEntry):
    """All images of a folder and of those below it.

    Args:
        kind: folder.
        path: The folder.
        one_class_per_folder: Whether each folder of the first level is a class.
        folders: The class that a folder stands for, where the two have different names.
    """

    kind: Literal["folder"]
    path: str
    one_class_per_folder: bool = True
    folders: Mapping[str, str] = {}

    @model_validator(mode="after")
    def _known_images_have_classes(self) -> "FolderSet":
        if self.is_labeled and not self.one_class_per_folder:
            raise ValueError(
                "its images are known, and their classes are the names of folders; leave "
                "one_class_per_folder = false out"
            )
        return self

    @property
    def place(self) -> str:
        return self.path

    def load(self, context: DataContext) -> LoadedSet:
        source = f"Set {self.name!r} of {context.benchmark}"
        root = context.folder.find(self.path, source)
        paths, left_out = list_files(root, lambda path: context.folder.check_link(path, source))
        context.folder.check_images(root, paths, source)
        if not paths:
            return LoadedSet(self, None, self.count, (str(root),), left_out)
        folders = [first_folder(path) for path in paths]
        labels = self._labels(folders, context) if self.is_labeled else None
        own = tuple(folder or "" for folder in folders) if self.one_class_per_folder else None
        dataset = FileDataset(self.name, root, paths, labels, own, context.cache_dir)
        return LoadedSet(
            self, dataset, self.count, (), left_out, notes=context.folder.notes(self.name, root)
        )

    def _labels(self, folders: Sequence[str | None], context: DataContext) -> Int[np.ndarray, "n"]:
        """Find the known class that each folder is called after."""
        if not context.has_names:
            raise InvalidDataError(
                f"Set {self.name!r} of {context.benchmark} takes its classes from folders, but the "
                f"definition gives no names; list them: classes = [...]."
            )
        if None in folders:
            raise InvalidDataError(
                f"{context.data / self.path} holds images outside any folder; put each known image "
                f"of set {self.name!r} into the folder of its class."
            )
        names = {folder: self.folders.get(folder, folder) for folder in set(folders) if folder}
        numbers = {plain(name): number for number, name in enumerate(context.classes)}
        for folder, name in names.items():
            if plain(name) not in numbers:
                problem = context.unknown_class(name)
                where = context.data / self.path / folder
                raise InvalidDataError(f"{where}: {problem}") from problem
        return np.array([numbers[plain(names[f])] for f in folders if f], np.int64)


class Listing(NamedTuple):
    """The files of a folder and of those below it, as sorted paths relative to it.

    `left_out` are those without the suffix of an image; hidden files are in neither.
    """

    images: tuple[str, ...]
    left_out: tuple[str, ...]


def list_files(folder: Path, check_link: Callable[[Path], None] = lambda _: None) -> Listing:
    """List a folder, which may be missing; hidden folders are skipped, links followed once.

    `check_link` is called with each folder before it is entered, and may raise.
    """
    images: list[str] = []
    left_out: list[str] = []
    for path in _walk(folder, check_link):
        is_image = Path(path).suffix.lower() in SUFFIXES
        (images if is_image else left_out).append(path)
    return Listing(tuple(sorted(images)), tuple(sorted(left_out)))


def _walk(folder: Path, check_link: Callable[[Path], None]) -> Iterator[str]:
    seen = {os.path.realpath(folder)}
    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if _is_new(Path(here, name), seen))
        for name in folders:
            check_link(Path(here, name))
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
    """Return the folder of the first level that an image lies in.

    >>> first_folder("cat/young/1.png"), first_folder("1.png")
    ('cat', None)
    """
    first, separator, _ = path.partition("/")
    return first if separator else None
