"""Image lists as OpenOOD writes them: a path and a label in each line, -1 for unknown."""

from os import PathLike
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

import numpy as np

from incognita.errors import InvalidDataError, MissingDataError
from incognita.shapes import Int


class ImageList(NamedTuple):
    """Relative paths, and the known class of each image; None where all of them are unknown."""

    paths: tuple[str, ...]
    labels: Int[np.ndarray, "n"] | None


def load_imglist(path: str | PathLike[str]) -> ImageList:
    """Read a list; what does not name one image and one class in each line is refused.

    The last blank of a line separates, so that a path may hold blanks; blanks at the end and empty
    lines do not count. OpenOOD's lists of groups (MOS) hold two labels in braces and are refused.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"There is no image list at {path}; put it there.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{path} is not UTF-8 text; give an image list.") from error
    rows = [
        _parse(line, path, number)
        for number, line in enumerate(text.split("\n"), start=1)
        if line and not line.isspace()
    ]
    if not rows:
        raise InvalidDataError(f"{path} lists no image; give one line per image: path label")
    paths = tuple(image for image, _ in rows)
    _refuse_repeats(paths, path)
    return ImageList(paths, _labels([label for _, label in rows], path))


def _parse(line: str, source: Path, number: int) -> tuple[str, int]:
    line = line.strip()
    image, _, label = line.rpartition(" ")
    image = image.rstrip()
    try:
        class_id = int(label)
    except ValueError:
        image = ""
    if not image:
        raise InvalidDataError(f"{source}, line {number} {_problem(line)}")
    if image[0] not in "./\\" and "/." not in image and "//" not in image and ":" not in image:
        return image, class_id
    return _inside(image, f"{source}, line {number}"), class_id


def _problem(line: str) -> str:
    if line.endswith("}"):
        return (
            "holds labels in braces, as lists for MOS do; give the plain list of these images, "
            "with one number after each path."
        )
    return f"is {line!r:.80}; expected a path, a blank and the number of a class."


def _inside(image: str, place: str) -> str:
    """Give the path in its shortest form; one that leaves the image folder is refused."""
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
                f"{source} lists {path!r} twice; an image that is there twice counts twice: "
                f"keep one line."
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
