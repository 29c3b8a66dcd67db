"""Boxes of OpenImages, from the published CSV files to records in COCO's format; its hierarchy.

A box of the CSV file is a share of the image's width and height; ours are pixels, rounded to two
digits as FindMeIfYouCan does it: `x = round(XMin * width, 2)`, `width = round((XMax - XMin) *
width, 2)`. A box around a group is a crowd. Category ids count the lines of the file of class
names from 1, and the id of an annotation is its line in the file of boxes, counted likewise.
"""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from incognita.errors import InvalidDataError, MissingDataError
from incognita.files import load_json, opened
from incognita.formats.coco_annotations import Records
from incognita.formats.coco_records import Annotations, ImageId, Record
from incognita.formats.images import opened_image
from incognita.shapes import Bool, Float, Int

PUBLISHED = "https://storage.googleapis.com/openimages/web/download.html"
CLASS_NAMES = tuple(f"{start}class-descriptions-boxable.csv" for start in ("", "oidv7-", "oidv6-"))
SIZES = "sizes.csv"
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


def find_file(folder: Path, names: Sequence[str]) -> Path:
    """Find a file of OpenImages, whose name differs between versions."""
    for name in names:
        if (path := folder / name).is_file():
            return path
    raise MissingDataError(
        f"There is no {names[0]} in {folder}; get it from {PUBLISHED} and put it there."
    )


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
    return {
        "id": number,
        "image_id": row["ImageID"],
        "category_id": categories[row["LabelName"]][0],
        **box_in_pixels((left, right, top, bottom), size),
        "iscrowd": int(row["IsGroupOf"] == 1),  # -1: unknown
    }


def box_in_pixels(edges: Sequence[float], size: Size) -> dict[str, Any]:
    """Return the bbox and the area of a box from its left, right, upper and lower edge.

    >>> box_in_pixels((0.25, 0.75, 0.0, 1.0), Size(100, 50))
    {'bbox': [25.0, 0.0, 50.0, 50.0], 'area': 2500.0}
    """
    left, right, top, bottom = edges
    width, height = (right - left) * size.width, (bottom - top) * size.height
    bbox = [round(value, 2) for value in (left * size.width, top * size.height, width, height)]
    return {"bbox": bbox, "area": round(bbox[2] * bbox[3], 4)}


def _rows(path: Path, wanted: Collection[str] | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the wanted lines and their numbers, counted from 1 after the header."""
    import polars as pl  # slow to import

    _check_header(path)
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
        raise _unreadable(path) from error
    for row in found.iter_rows(named=True):
        if None in row.values():
            raise InvalidDataError(
                f"{path}: line {row['row'] + 1} is not complete; get the file again."
            )
        yield row["row"], row


def _check_header(path: Path) -> None:
    with opened(path) as file:  # raises if the path is wrong
        header = file.readline().decode("utf-8", "replace").rstrip().split(",")
    for column in _COLUMNS:
        if column not in header:
            raise InvalidDataError(
                f"{path} has no column {column!r}; give a file of boxes as OpenImages publishes "
                f"them, such as train-annotations-bbox.csv."
            )


def _unreadable(path: Path) -> InvalidDataError:
    return InvalidDataError(
        f"{path} cannot be read: its lines are not boxes as OpenImages writes them, with "
        f"numbers in the columns {', '.join(_EDGES)} and IsGroupOf; get the file again."
    )


@dataclass(frozen=True, eq=False)
class BoxColumns:
    """All boxes of a file in columns: the published one has 15 million.

    Args:
        path: The file.
        image_ids: The images, in the order of the file.
        image_index: The image of each box.
        label_index: The label of each box, as its place in the list of labels.
        edges: Left, right, upper and lower edge of each box, as shares of the image.
        is_group: Whether a box is around a group.
    """

    path: Path
    image_ids: Any = field(repr=False)  # a column of text of polars, which takes less memory
    image_index: Int[np.ndarray, "boxes"] = field(repr=False)
    label_index: Int[np.ndarray, "boxes"] = field(repr=False)
    edges: tuple[Float[np.ndarray, "boxes"], ...] = field(repr=False)
    is_group: Bool[np.ndarray, "boxes"] = field(repr=False)

    def __len__(self) -> int:
        return len(self.image_index)


def load_box_columns(path: Path, labels: Sequence[str]) -> BoxColumns:
    """Load the boxes of OpenImages into columns.

    Args:
        path: A file such as train-annotations-bbox.csv.
        labels: The labels of the file of class names; any other is refused.
    """
    import polars as pl

    _check_header(path)
    types: Any = dict.fromkeys(_EDGES, pl.Float64) | {"IsGroupOf": pl.Int8, "ImageID": pl.String}
    label = pl.col("LabelName").cast(pl.Enum(list(labels)), strict=False).to_physical()
    try:
        table = (
            pl.scan_csv(path, schema_overrides=types | {"LabelName": pl.String})
            .select("ImageID", label, *_EDGES, "IsGroupOf")
            .collect()
        )
    except pl.exceptions.PolarsError as error:
        raise _unreadable(path) from error
    if sum(table.null_count().row(0)):
        _refuse_absent(path, table)
    edges = tuple(table[name].to_numpy() for name in _EDGES)
    _check_edges(path, edges)
    ids = table["ImageID"]
    is_first = (ids != ids.shift(1)).fill_null(value=True)  # boxes of an image stand together
    firsts = ids.filter(is_first)
    index = np.cumsum(is_first.to_numpy(), dtype=np.int32) - 1
    if firsts.n_unique() < len(firsts):  # but in files that somebody has shuffled
        codes = firsts.cast(pl.Categorical).to_physical().to_numpy()
        _, first_of, place = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first_of)  # codes may be in any order
        index = np.argsort(order).astype(np.int32)[place][index]
        firsts = firsts[first_of[order]]
    label_index = table["LabelName"].to_numpy().astype(np.int32)
    return BoxColumns(path, firsts, index, label_index, edges, table["IsGroupOf"].to_numpy() == 1)


def _refuse_absent(path: Path, table: Any) -> None:
    """Refuse the first line that lacks something, or whose label no class has."""
    import polars as pl

    absent = table.select(pl.any_horizontal(pl.all().is_null())).to_series().to_numpy()
    row = int(absent.argmax())
    is_label = table["LabelName"][row] is None
    problem = (
        "is of a class that the file of class names does not have; take the two files of one "
        "version."
        if is_label and table[row].drop("LabelName").null_count().sum_horizontal()[0] == 0
        else "is not complete; get the file again."
    )
    raise InvalidDataError(f"{path}: line {row + 2} {problem}")


def _check_edges(path: Path, edges: Sequence[Float[np.ndarray, "boxes"]]) -> None:
    left, right, top, bottom = edges
    is_right = (left >= 0) & (left <= right) & (right <= 1)
    is_right &= (top >= 0) & (top <= bottom) & (bottom <= 1)
    if is_right.all():
        return
    row = int(is_right.argmin())
    box = ", ".join(f"{column[row]:g}" for column in (left, top, right, bottom))
    raise InvalidDataError(
        f"{path}: line {row + 2} has the box {box}, but shares of the image from 0 to 1 are "
        f"expected, the smaller first; correct it."
    )


@dataclass(frozen=True)
class Hierarchy:
    """The classes of OpenImages below each other; a class may stand in several places.

    Args:
        root: The label above all.
        children: The labels directly below each label, in the order of the file.
        parts: The labels that are parts of each label.
    """

    root: str
    children: Mapping[str, tuple[str, ...]] = field(repr=False)
    parts: Mapping[str, tuple[str, ...]] = field(repr=False)

    def below(self, label: str) -> frozenset[str]:
        """Return a label and all below it, without parts."""
        return frozenset(
            {label, *(k for child in self._children(label) for k in self.below(child))}
        )

    def _children(self, label: str) -> tuple[str, ...]:
        return self.children.get(label, ())

    @cached_property
    def depths(self) -> dict[str, int]:
        """The length of the longest way from the root to each label, parts included."""
        depths: dict[str, int] = {}

        def visit(label: str, depth: int) -> None:
            if depth > depths.get(label, -1):
                depths[label] = depth
                for child in (*self._children(label), *self.parts.get(label, ())):
                    visit(child, depth + 1)

        visit(self.root, 0)
        return depths


def load_hierarchy(path: Path) -> Hierarchy:
    """Load the hierarchy of OpenImages, such as bbox_labels_600_hierarchy.json."""
    children: dict[str, dict[str, None]] = {}
    parts: dict[str, dict[str, None]] = {}

    def visit(node: Any, above: tuple[str, ...]) -> str:
        label = node.get("LabelName") if isinstance(node, dict) else None
        if not isinstance(label, str) or not label:
            place = f" below {above[-1]!r}" if above else ""
            raise InvalidDataError(
                f"{path} has an entry{place} without a LabelName; give a hierarchy as OpenImages "
                f"publishes it, such as bbox_labels_600_hierarchy.json."
            )
        if label in above or len(above) > 100:
            raise InvalidDataError(f"{path} has {label!r} below itself; take one of the two out.")
        for key, found in (("Subcategory", children), ("Part", parts)):
            listed = node.get(key, [])
            if not isinstance(listed, list):
                raise InvalidDataError(f"{path}: {key} of {label!r} must be a list; correct it.")
            inside = [visit(entry, (*above, label)) for entry in listed]
            found.setdefault(label, {}).update(dict.fromkeys(inside))
        return label

    root = visit(load_json(path), ())
    try:  # one label below another here, and above it there
        TopologicalSorter({k: [*children[k], *parts[k]] for k in children}).prepare()
    except CycleError as error:
        raise InvalidDataError(
            f"{path} has {error.args[1][0]!r} below itself; take one of the two out."
        ) from None
    return Hierarchy(
        root,
        {label: tuple(found) for label, found in children.items() if found},
        {label: tuple(found) for label, found in parts.items() if found},
    )


def load_class_names(path: Path) -> dict[str, str]:
    """Load the name of each label from class-descriptions-boxable.csv."""
    return {label: name for label, (_, name) in _categories(path).items()}


def _categories(path: Path) -> dict[str, tuple[int, str]]:
    """Return the id and the name of each label; a header line is skipped."""
    rows = _csv_rows(path)
    if rows and rows[0][0] in ("LabelName", "id"):  # as versions 7 and 6 begin
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
