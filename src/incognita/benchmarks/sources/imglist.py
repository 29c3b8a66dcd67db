"""Image lists as OpenOOD writes them: a path and a label in each line, -1 for unknown."""

from os import PathLike
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal, NamedTuple

import numpy as np

from incognita.benchmarks.sources.entry import N_SHOWN, DataContext, LoadedSet, SetEntry
from incognita.errors import InvalidDataError, MissingDataError
from incognita.files import check_regular
from incognita.formats.images import FileDataset, are_present
from incognita.shapes import Bool, Int

_LONGEST_LABEL = 18  # digits of a class, which surely fit 64 bits


class ImglistSet(SetEntry):
    """Images that a list names, a path and a label in each line, as OpenOOD writes them.

    Args:
        kind: imglist.
        list: The list file.
        root: The folder that its paths begin at.
        one_class_per_folder: Whether the folder an image lies in is its own class.
        source_classes: A file with the own class of each image of the list, line by line.
    """

    kind: Literal["imglist"]
    list: str
    root: str = "."
    one_class_per_folder: bool = False
    source_classes: str | None = None

    @property
    def place(self) -> str:
        return f"{self.root}, listed in {self.list}"

    def load(self, context: DataContext) -> LoadedSet:
        source = f"Set {self.name!r} of {context.benchmark}"
        path = context.folder.find(self.list, source)
        try:
            listed = load_imglist(path, allow_outside=context.allow_outside)
        except MissingDataError:
            return LoadedSet(self, None, self.count, (str(path),))
        if self.count is not None and len(listed.paths) != self.count:
            raise InvalidDataError(
                f"{path} lists {len(listed.paths):,} images, but set {self.name!r} of "
                f"{context.benchmark} has {self.count:,}; it is another version of the list: get "
                f"the one that `incognita data plan {context.typed}` names."
            )
        self.check_labels(listed.labels, context)
        return self._load_present(listed, context)

    def _load_present(self, listed: "ImageList", context: DataContext) -> LoadedSet:
        root = context.folder.find(self.root, f"Set {self.name!r} of {context.benchmark}")
        context.folder.check_images(root, listed.paths, self.list)
        is_there = are_present(root, listed.paths) | (not context.needs_images)
        absent = np.flatnonzero(~is_there)[:N_SHOWN]
        missing = tuple(str(root / listed.paths[k]) for k in absent)
        if not is_there.any():
            return LoadedSet(self, None, len(is_there), missing)
        paths = tuple(path for path, there in zip(listed.paths, is_there, strict=True) if there)
        labels = None if listed.labels is None else listed.labels[is_there]
        own = self._own_classes(listed, is_there, context)
        dataset = FileDataset(self.name, root, paths, labels, own, context.cache_dir)
        notes = context.folder.notes(self.name, root)
        return LoadedSet(self, dataset, len(is_there), missing, notes=notes)

    def _own_classes(
        self, listed: "ImageList", is_there: Bool[np.ndarray, "n"], context: DataContext
    ) -> tuple[str, ...] | None:
        """Return the class of each image in its own data set, where the definition tells it."""
        if self.source_classes is not None:
            path = context.folder.find(
                self.source_classes, f"Set {self.name!r} of {context.benchmark}"
            )
            check_regular(path, "list of classes", advice="put it there")
            names = path.read_text(encoding="utf-8").splitlines()
            if len(names) != len(listed.paths):
                raise InvalidDataError(
                    f"Expected a class for each of {len(listed.paths):,} images in {path}, got "
                    f"{len(names):,} lines. Write one line per image."
                )
        elif self.one_class_per_folder:
            names = [path.split("/")[-2] if "/" in path else "" for path in listed.paths]
        else:
            return None
        return tuple(name for name, there in zip(names, is_there, strict=True) if there)


class ImageList(NamedTuple):
    """Relative paths, and the known class of each image; None where all of them are unknown."""

    paths: tuple[str, ...]
    labels: Int[np.ndarray, "n"] | None


def load_imglist(path: str | PathLike[str], *, allow_outside: bool = False) -> ImageList:
    """Load a list; every line must name one image and one class.

    The last blank of a line separates, so that a path may hold blanks; blanks at the end and empty
    lines do not count. OpenOOD's lists of groups (MOS) hold two labels in braces and are refused.

    Args:
        path: The list.
        allow_outside: Whether its paths may be absolute or lead upwards.
    """
    path = Path(path)
    check_regular(path, "image list", advice="put it there")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{path} is not UTF-8 text; give an image list.") from error
    rows = [
        _parse(line, path, number, allow_outside=allow_outside)
        for number, line in enumerate(text.split("\n"), start=1)
        if line and not line.isspace()
    ]
    if not rows:
        raise InvalidDataError(f"{path} lists no image; give one line per image: path label")
    paths = tuple(image for image, _ in rows)
    _refuse_repeats(paths, path)
    return ImageList(paths, _labels([label for _, label in rows], path))


def _parse(line: str, source: Path, number: int, *, allow_outside: bool) -> tuple[str, int]:
    line = line.strip()
    image, _, label = line.rpartition(" ")
    image = image.rstrip()
    try:
        class_id = int(label)
    except ValueError:
        image = ""
    if not image or "\0" in image or len(label) > _LONGEST_LABEL:
        raise InvalidDataError(f"{source}, line {number} {_problem(line)}")
    if image[0] not in "./\\" and "/." not in image and "//" not in image and ":" not in image:
        return image, class_id
    if allow_outside:
        return str(PurePosixPath(image)), class_id
    return _inside(image, f"{source}, line {number}"), class_id


def _problem(line: str) -> str:
    if line.endswith("}"):
        return (
            "holds labels in braces, as lists for MOS do; give the plain list of these images, "
            "with one number after each path."
        )
    return "is not a path, a blank and the number of a class; correct it or give another list."


def _inside(image: str, place: str) -> str:
    """Normalize a path, which must not leave the image folder."""
    parts = PurePosixPath(image)
    if parts.is_absolute() or PureWindowsPath(image).drive or ".." in parts.parts:
        raise InvalidDataError(
            f"{place} names {image!r}, which leads out of the image folder; give paths below it."
        )
    return str(parts)


def _refuse_repeats(paths: tuple[str, ...], source: Path) -> None:
    if len(set(paths)) == len(paths):
        return
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise InvalidDataError(
                f"{source} lists {path!r} twice, so that it would count twice; keep one line."
            )
        seen.add(path)


def _labels(labels: list[int], source: Path) -> Int[np.ndarray, "n"] | None:
    column = np.array(labels, np.int64)
    if column.min() < -1:
        raise InvalidDataError(
            f"{source} holds the label {column.min()}; expected the number of a class, "
            f"or -1 for unknown."
        )
    is_unknown = column == -1
    if is_unknown.any() and not is_unknown.all():
        raise InvalidDataError(
            f"{source} mixes known images with {is_unknown.sum()} unknown ones (label -1); "
            f"put them into lists of their own."
        )
    return None if is_unknown.all() else column
