"""Annotations of YOLO, one text file per image, as records in COCO's format.

A line is `class x y width height`: a class counted from 0, and center and size as shares of the
image. A sixth number, the confidence of a detector, is refused: these are not annotations.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from incognita.errors import InvalidDataError, MissingDataError
from incognita.files import check_regular, opened
from incognita.formats.coco_records import Annotations, ImageId, Record
from incognita.formats.images import opened_image
from incognita.registry import need

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
_NAME_FILES = ("classes.txt", "obj.names", "data.yaml", "data.yml", "dataset.yaml")
_ROUNDING = 1e-6  # exporters round shares to six digits


def load_yolo(
    folder: Path, *, split: str = "", classes: Sequence[str] | None = None
) -> Annotations:
    """Load annotations of YOLO; an image without a text file has no objects.

    Args:
        folder: Holds images and labels, with the same folders inside; class names stand in
            classes.txt, obj.names (one in each line) or data.yaml.
        split: The folder inside those two, such as `val`.
        classes: Names of the classes, in place of such a file.
    """
    names = _load_names(folder) if classes is None else list(classes)
    root, labels = folder / "images" / split, folder / "labels" / split
    for place in (root, labels):
        if not place.is_dir():
            raise MissingDataError(
                f"There is no folder {place}; name a folder with images and labels inside, and "
                f"the split below them if there is one."
            )
    images: dict[ImageId, Record] = {}
    objects: dict[ImageId, list[Record]] = {}
    n_objects = 0
    for path in sorted(path for path in root.rglob("*") if path.suffix.lower() in _SUFFIXES):
        with opened_image(path) as image:
            width, height = image.size
        place = path.relative_to(root)
        image_id = place.with_suffix("").as_posix()
        if image_id in images:
            raise InvalidDataError(
                f"{root} holds two images called {image_id}, which share a text file; keep one."
            )
        name = path.relative_to(folder).as_posix()
        images[image_id] = {"id": image_id, "file_name": name, "width": width, "height": height}
        for category_id, box in _boxes(labels / place.with_suffix(".txt"), names, width, height):
            n_objects += 1
            objects.setdefault(image_id, []).append(
                {"id": n_objects, "image_id": image_id, "category_id": category_id, "bbox": box,
                 "area": box[2] * box[3], "iscrowd": 0}
            )  # fmt: skip
    categories = [{"id": number, "name": name} for number, name in enumerate(names, start=1)]
    ordered = {image_id: images[image_id] for image_id in sorted(images, key=str)}
    return Annotations(folder.name, ordered, objects, categories)


def _boxes(
    path: Path, names: Sequence[str], width: int, height: int
) -> Iterator[tuple[int, list[float]]]:
    """Yield the category id and the box in pixels of each line."""
    if not path.is_file():
        return
    with opened(path) as file:
        text = file.read().decode("utf-8-sig", "replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if not (words := line.split()):
            continue
        where = f"{path}: line {number}"
        values = [_share(where, word) for word in words[1:]]
        if len(values) != 4:
            raise InvalidDataError(
                f"{where} has {len(words)} fields, but five are expected: class x y width height."
            )
        if not words[0].isdecimal() or int(words[0][:9]) >= len(names):
            raise InvalidDataError(
                f"{where} has the class {words[0]!r:.40}, but a number from 0 to {len(names) - 1} "
                f"is expected, as there are {len(names)} class names."
            )
        x, y, w, h = values
        box = [(x - w / 2) * width, (y - h / 2) * height, w * width, h * height]
        yield int(words[0]) + 1, [round(value, 4) for value in box]


def _share(where: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not -_ROUNDING <= value <= 1 + _ROUNDING:
        raise InvalidDataError(
            f"{where} holds {word!r:.40}, but a share of the image from 0 to 1 is expected."
        )
    return value


def _load_names(folder: Path) -> list[str]:
    path = next((path for name in _NAME_FILES if (path := folder / name).is_file()), None)
    if path is None:
        raise MissingDataError(
            f"There is no {_NAME_FILES[0]} and no {_NAME_FILES[2]} in {folder}; write the class "
            f"names into {_NAME_FILES[0]}, one in each line."
        )
    check_regular(path)
    text = path.read_bytes().decode("utf-8-sig", "replace")
    names = _names_of_yaml(path, text) if path.suffix.startswith(".y") else text.splitlines()
    names = [str(name).strip() for name in names]
    while names and not names[-1]:  # lines after the last name
        names.pop()
    if not all(names) or not names or len(set(names)) < len(names):
        raise InvalidDataError(f"{path} must name every class once; correct the names.")
    return names


def _names_of_yaml(path: Path, text: str) -> list[Any]:
    yaml = need("yaml", extra="ultralytics", needed_by=f"Reading {path.name}")
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidDataError(f"{path} is not YAML; write the file again.") from error
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        return [names[number] for number in range(len(names))]
    if not isinstance(names, list):
        raise InvalidDataError(f"{path} has no list called names; add the names of the classes.")
    return names
