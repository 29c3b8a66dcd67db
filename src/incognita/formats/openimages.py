"""Boxes of OpenImages, from the published CSV files to records in COCO's format.

A box of the CSV file is a share of the image's width and height; ours are pixels, rounded to two
digits as FindMeIfYouCan does it: `x = round(XMin * width, 2)`, `width = round((XMax - XMin) *
width, 2)`. A box around a group is a crowd. Category ids count the lines of the file of class
names from 1, and the id of an annotation is its line in the file of boxes, counted likewise.
"""

import csv
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from incognita.errors import InvalidDataError, MissingDataError
from incognita.files import opened
from incognita.formats.coco_annotations import Records
from incognita.formats.coco_records import Annotations, ImageId, Record
from incognita.formats.images import opened_image

_LONGEST_SIDE = 1_000_000  # pixels
_EDGES = ("XMin", "XMax", "YMin", "YMax")
_COLUMNS = ("ImageID", "LabelName", *_EDGES, "IsGroupOf")


class Size(NamedTuple):
    """Of an image in pixels."""

    width: int
    height: int


class OpenImages(NamedTuple):
    """The annotations, and images of unknown size, whose boxes cannot be given in pixels."""

    annotations: Annotations
    unsized: tuple[str, ...]


def load_openimages(
    boxes: Path,
    class_names: Path,
    *,
    sizes: Mapping[str, Size],
    only: Collection[str] | None = None,
    also: Collection[str] = (),
) -> OpenImages:
    """Load the boxes of OpenImages.

    The file is streamed, and lines of other images are dropped at once.

    Args:
        boxes: A file such as train-annotations-bbox.csv.
        class_names: The file class-descriptions-boxable.csv.
        sizes: Size of each image, as far as known.
        only: The images that are wanted, if they have boxes; None stands for all.
        also: Images that are there whether they have boxes or not.
    """
    categories = _categories(class_names)
    wanted = None if only is None else {*only, *also}
    objects: dict[ImageId, list[Record]] = {}
    unsized: set[str] = {image_id for image_id in also if image_id not in sizes}
    for number, row in _rows(boxes, wanted):
        image_id = row["ImageID"]
        if image_id not in sizes:
            unsized.add(image_id)
            continue
        record = _record(boxes, number, row, sizes[image_id], categories)
        objects.setdefault(image_id, []).append(record)
    ids = sorted({*objects, *(image_id for image_id in also if image_id in sizes)})
    images = {image_id: _image(str(image_id), sizes[str(image_id)]) for image_id in ids}
    listed = [{"id": number, "name": name} for number, name in categories.values()]
    return OpenImages(Annotations(boxes.name, images, objects, listed), tuple(sorted(unsized)))


def _image(image_id: str, size: Size) -> Record:
    return {
        "id": image_id,
        "file_name": f"{image_id}.jpg",
        "width": size.width,
        "height": size.height,
    }


def _record(
    path: Path,
    number: int,
    row: Mapping[str, Any],
    size: Size,
    categories: Mapping[str, tuple[int, str]],
) -> Record:
    left, right, top, bottom = (row[name] for name in _EDGES)
    if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
        raise InvalidDataError(
            f"{path}: line {number + 1} has the box {left}, {top}, {right}, {bottom}, but shares "
            f"of the image from 0 to 1 are expected, the smaller first; correct it."
        )
    if row["LabelName"] not in categories:
        raise InvalidDataError(
            f"{path}: line {number + 1} is of class {row['LabelName']!r}, which the file of class "
            f"names does not have; take the two files of one version."
        )
    width, height = (right - left) * size.width, (bottom - top) * size.height
    bbox = [left * size.width, top * size.height, width, height]
    bbox = [round(value, 2) for value in bbox]
    return {
        "id": number,
        "image_id": row["ImageID"],
        "category_id": categories[row["LabelName"]][0],
        "bbox": bbox,
        "area": round(bbox[2] * bbox[3], 4),
        "iscrowd": int(row["IsGroupOf"] == 1),  # -1: unknown
    }


def _rows(path: Path, wanted: Collection[str] | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the wanted lines and their numbers, counted from 1 after the header."""
    import polars as pl  # slow to import

    with opened(path) as file:  # raises if the path is wrong
        header = file.readline().decode("utf-8", "replace").rstrip().split(",")
    for column in _COLUMNS:
        if column not in header:
            raise InvalidDataError(
                f"{path} has no column {column!r}; give a file of boxes as OpenImages publishes "
                f"them, such as train-annotations-bbox.csv."
            )
    if wanted is not None and not wanted:
        return
    types = dict.fromkeys(_EDGES, pl.Float64) | {"IsGroupOf": pl.Int64, "ImageID": pl.String}
    lines = pl.scan_csv(
        path, schema_overrides=types, row_index_name="row", row_index_offset=1
    ).select("row", *_COLUMNS)
    if wanted is not None:
        lines = lines.filter(pl.col("ImageID").is_in(sorted(wanted)))
    try:
        found = lines.collect(engine="streaming").sort("row")
    except pl.exceptions.PolarsError as error:
        raise InvalidDataError(
            f"{path} cannot be read: its lines are not boxes as OpenImages writes them, with "
            f"numbers in the columns {', '.join(_EDGES)} and IsGroupOf; get the file again."
        ) from error
    for row in found.iter_rows(named=True):
        if None in row.values():
            raise InvalidDataError(
                f"{path}: line {row['row'] + 1} is not complete; get the file again."
            )
        yield row["row"], row


def _categories(path: Path) -> dict[str, tuple[int, str]]:
    """Return the id and the name of each label; a header line is skipped."""
    rows = _csv_rows(path)
    if rows and rows[0][0] == "LabelName":
        rows = rows[1:]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:
            raise InvalidDataError(
                f"{path}: class {number} has {len(row)} fields, but a label and a name are "
                f"expected, as in class-descriptions-boxable.csv."
            )
    named = [{"label": label, "name": name} for label, name in rows]
    for key in ("label", "name"):
        Records(path, "class", named).refuse_repeats(key, [record[key] for record in named])
    return {label: (number, name) for number, (label, name) in enumerate(rows, start=1)}


def _csv_rows(path: Path) -> list[list[str]]:
    with opened(path) as file:
        text = file.read().decode("utf-8-sig", "replace")
    return [row for row in csv.reader(text.splitlines()) if row]


def sizes_from_csv(path: Path) -> dict[str, Size]:
    """Read the sizes of images from a CSV file with the columns id, width and height."""
    rows = _csv_rows(path)
    if not rows or rows[0][:3] != ["id", "width", "height"]:
        raise InvalidDataError(f"{path} must begin with the line: id,width,height")
    sizes: dict[str, Size] = {}
    for number, row in enumerate(rows[1:], start=2):
        is_right = len(row) >= 3 and all(_is_side(text) for text in row[1:3])
        if not is_right:
            raise InvalidDataError(
                f"{path}: line {number} does not hold an id and two whole numbers from 1 to "
                f"{_LONGEST_SIDE:,}; correct it."
            )
        size = Size(int(row[1]), int(row[2]))
        if (first := sizes.setdefault(row[0], size)) != size:
            raise InvalidDataError(
                f"{path}: line {number} gives {row[0]!r} the size {size.width} x {size.height}, "
                f"an earlier line {first.width} x {first.height}; keep the right one."
            )
    return sizes


def _is_side(text: str) -> bool:
    return text.isdecimal() and len(text) < 10 and 0 < int(text) <= _LONGEST_SIDE


def sizes_from_images(folder: Path, image_ids: Collection[str]) -> dict[str, Size]:
    """Read the sizes of those images that lie in a folder as `id.jpg`; pixels are not read."""
    sizes = {}
    for image_id in image_ids:
        if "/" in image_id:  # an id is the name of a file, not a path to somewhere else
            continue
        with suppress(MissingDataError), opened_image(folder / f"{image_id}.jpg") as image:
            sizes[image_id] = Size(*image.size)
    return sizes
