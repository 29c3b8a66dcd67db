"""Reads and writes the truth in COCO's instances format: images, categories, annotations."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import Classes
from incognita.errors import InvalidDataError
from incognita.files import RepeatedKeyObject, load_json, replacing_text
from incognita.formats._records import Records, Refuse, corners
from incognita.formats.class_roles import ClassMap, with_known
from incognita.shapes import Bool, Float, Int, Shaped


class Located(NamedTuple):
    """Where ids stand in a list; a position means nothing where the id is not listed."""

    positions: Int[np.ndarray, "rows"]
    is_listed: Bool[np.ndarray, "rows"]


class Layout(NamedTuple):
    """Rows ordered by image: which row comes when, None if they were in order, and the offsets."""

    order: Int[np.ndarray, "rows"] | None
    offsets: Int[np.ndarray, "images_plus_1"]


def locate(ids: Shaped[np.ndarray, "rows"], listed: Shaped[np.ndarray, "n"]) -> Located:
    """Find ids in a list of ids of the same kind.

    >>> locate(np.array([7, 7, 8]), np.array([9, 7, 5])).is_listed.tolist()
    [True, True, False]
    """
    if not len(listed) or not len(ids):
        return Located(np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_))
    # files keep the records of an image together: one search per run, not per record
    is_first = np.concatenate([[True], ids[1:] != ids[:-1]])
    run_ids, run_of_row = ids[is_first], np.cumsum(is_first) - 1
    ascending = np.argsort(listed, kind="stable")
    place = np.searchsorted(listed, run_ids, sorter=ascending).clip(max=len(listed) - 1)
    found = ascending[place]
    return Located(found[run_of_row], (listed[found] == run_ids)[run_of_row])


def find_images(
    ids: Shaped[np.ndarray, "rows"],
    listed: Shaped[np.ndarray, "images"],
    *,
    source: str,
    refuse: Refuse,
) -> Int[np.ndarray, "rows"]:
    """Give the position of each record's image among the images that `source` lists."""
    if len(ids) and (ids.dtype.kind == "U") != (listed.dtype.kind == "U"):
        kind = "text" if listed.dtype.kind == "U" else "numbers"
        problem = f"has {ids[0].item()!r} as image_id, but the image ids of {source} are {kind}"
        raise refuse(0, f"{problem}; write both alike.")
    located = locate(ids, listed)
    if not located.is_listed.all():
        row = int(located.is_listed.argmin())
        problem = f"is on image {ids[row].item()!r}, which {source} does not list"
        raise refuse(row, f"{problem}; add the image there or remove the record.")
    return located.positions


def find_classes(
    category_ids: Int[np.ndarray, "rows"],
    categories: Mapping[int, int],
    *,
    source: str,
    refuse: Refuse,
) -> Int[np.ndarray, "rows"]:
    """Give the class id of each record's category id, as `source` lists them."""
    located = locate(category_ids, np.array(list(categories), np.int64))
    if not located.is_listed.all():
        row = int(located.is_listed.argmin())
        problem = f"has {category_ids[row]} as category_id, which {source} does not list"
        raise refuse(row, f"{problem} among its categories; add it there or in a class map.")
    of_category = np.array(list(categories.values()), np.int32)
    return np.take(of_category, located.positions)


def lay_out(image_index: Int[np.ndarray, "rows"], n_images: int) -> Layout:
    """Order rows by image, keeping the order of the file inside each image.

    >>> lay_out(np.array([1, 0, 1]), 3)
    Layout(order=array([1, 0, 2]), offsets=array([0, 1, 3, 3]))
    """
    counts = np.bincount(image_index, minlength=n_images)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if (image_index[1:] >= image_index[:-1]).all():
        return Layout(None, offsets)
    return Layout(np.argsort(image_index, kind="stable"), offsets)


_PARTS = ("images", "annotations", "categories")
_NO_SUPERCLASS = (None, "", "none", "None")  # what exporters write where there is none


@dataclass(frozen=True, eq=False)
class CocoTruth:
    """The truth of a file, with what one needs to read detections that refer to that file.

    Args:
        truth: Images sorted by id; the objects of an image in the order of the file.
        categories: Class id of each category id; several ids may stand for one class.
        source: The file the categories come from, for error messages.
    """

    truth: BoxTruth
    categories: Mapping[int, int]
    source: str = "the truth"


class CocoTables(NamedTuple):
    """The three lists of an instances file, of which nothing is checked but that they are lists."""

    images: Records
    annotations: Records
    categories: Records


def load_truth(
    path: str | PathLike[str],
    *,
    class_map: ClassMap | None = None,
    known: Sequence[str] | None = None,
) -> CocoTruth:
    """Read a COCO instances file (`.json`, also compressed by gzip).

    Images come sorted by id, as the COCO evaluators visit them: with equal confidences the order
    decides. Classes come sorted by category id, those only the class map has behind them.

    Args:
        path: The file.
        class_map: Which categories are known, unknown or ignored; by default all are known but
            one called "unknown".
        known: The known categories, if only these have to be said.

    Raises:
        InvalidDataError: A record is wrong; the sentence names it, counted from 0.
        MissingDataError: There is no such file.
        UnknownNameError: The class map or `known` names a category the file does not have.
    """
    return read_truth(load_tables(Path(path)), with_known(class_map, known))


def read_truth(tables: CocoTables, class_map: ClassMap) -> CocoTruth:
    """Read the truth from the lists of a file; see `load_truth`."""
    categories, classes = _read_categories(tables.categories, class_map)
    image_ids = tables.images.identifiers("id")
    tables.images.refuse_repeats("id", image_ids.tolist())
    truth = _read_objects(tables.annotations, np.sort(image_ids), categories, classes)
    return CocoTruth(truth, categories, str(tables.images.path))


def save_truth(
    truth: BoxTruth, path: str | PathLike[str], *, categories: Mapping[int, int] | None = None
) -> None:
    """Write a COCO instances file that `load_truth` reads back to the same numbers.

    Roles are not part of the format: give the same class map when reading. Boxes are written as
    x, y and `sizes`, so that a box read from such a file comes back bit for bit.

    Args:
        truth: What to write.
        path: The file; `.gz` compresses. It is replaced as a whole, or not at all.
        categories: Class id of each category id; by default ids count from 1.
    """
    if categories is None:
        categories = {class_id + 1: class_id for class_id in range(len(truth.classes))}
    category_ids = category_id_of_class(categories, truth.classes)
    listed = zip(truth.classes.names, truth.classes.superclasses, category_ids, strict=True)
    document = {
        "images": [{"id": image_id} for image_id in truth.image_ids.tolist()],
        "categories": [
            {"id": category_id, "name": name} | ({"supercategory": above} if above else {})
            for name, above, category_id in listed
        ],
        "annotations": list(_annotations(truth, category_ids)),
    }
    with replacing_text(Path(path)) as file:
        file.write(json.dumps(document))


def category_id_of_class(categories: Mapping[int, int], classes: Classes) -> list[int]:
    """Give the category id under which each class is written: the first of those it has."""
    first: dict[int, int] = {}
    for category_id, class_id in categories.items():
        first.setdefault(class_id, category_id)
    missing = [name for class_id, name in enumerate(classes.names) if class_id not in first]
    if missing:
        raise InvalidDataError(
            f"Class {missing[0]!r} has no category id to be written under; add one to categories."
        )
    return [first[class_id] for class_id in range(len(classes))]


def load_tables(path: Path) -> CocoTables:
    """Read the lists of an instances file."""
    document = load_json(path)
    if isinstance(document, list):
        raise InvalidDataError(
            f"{path} is a list, as detections are, but the truth is an object with images, "
            f"annotations and categories; are the two files swapped?"
        )
    if not isinstance(document, dict):
        raise InvalidDataError(
            f"{path} holds no object; the truth is one with images, annotations and categories."
        )
    if isinstance(document, RepeatedKeyObject):
        raise InvalidDataError(f"{path} holds the key {document.repeated!r} twice; keep one.")
    for part in _PARTS:
        if not isinstance(document.get(part), list):
            raise InvalidDataError(
                f"{path} has no list called {part!r}; the truth needs images, annotations and "
                f"categories, if need be empty."
            )
    kinds = ("image", "annotation", "category")
    rows = (document[part] for part in _PARTS)
    return CocoTables(*(Records(path, kind, each) for kind, each in zip(kinds, rows, strict=True)))


def _read_categories(records: Records, class_map: ClassMap) -> tuple[dict[int, int], Classes]:
    """Give the class id of each category id, and the classes."""
    ids, names = records.integers("id").tolist(), records.texts("name")
    records.refuse_repeats("id", ids)
    records.refuse_repeats("name", names)
    above = _superclasses(records, [None] * len(records))
    order = np.argsort(ids).tolist()
    name_of = {ids[row]: names[row] for row in order}
    superclasses = {names[row]: above[row] for row in order}
    for category_id, name in class_map.categories.items():
        if name_of.setdefault(category_id, name) != name:
            raise InvalidDataError(
                f"The class map calls category {category_id} {name!r}, but {records.path} calls "
                f"it {name_of[category_id]!r}; correct the class map."
            )
        superclasses.setdefault(name, None)
    listed = tuple(superclasses)
    classes = class_map.classes_of(listed, tuple(superclasses.values()), source=str(records.path))
    return {category_id: listed.index(name) for category_id, name in name_of.items()}, classes


def _read_objects(
    records: Records,
    image_ids: Shaped[np.ndarray, "images"],
    categories: Mapping[int, int],
    classes: Classes,
) -> BoxTruth:
    own_ids = (row.get("id") for row in records.rows)
    records.refuse_repeats("id", [each if type(each) in (int, str) else None for each in own_ids])
    source, refuse = str(records.path), records.refuse
    images = find_images(records.identifiers("image_id"), image_ids, source=source, refuse=refuse)
    class_ids = find_classes(
        records.integers("category_id"), categories, source=source, refuse=refuse
    )
    xywh = records.boxes("bbox")
    layout = lay_out(images, len(image_ids))
    rows = np.arange(len(records)) if layout.order is None else layout.order
    of_class = [classes.superclasses[class_id] for class_id in class_ids.tolist()]
    return BoxTruth(
        image_ids,
        layout.offsets,
        corners(xywh)[rows],
        class_ids[rows],
        classes,
        sizes=xywh[rows, 2:],
        areas=_areas(records, xywh)[rows],
        is_crowd=records.flags("iscrowd")[rows],
        is_difficult=(records.flags("difficult") | records.flags("ignore"))[rows],
        superclasses=np.array(_superclasses(records, of_class), object)[rows],
    )


def _areas(records: Records, xywh: Float[np.ndarray, "rows 4"]) -> Float[np.ndarray, "rows"]:
    with np.errstate(over="ignore"):  # what overflows is refused with a sentence
        areas = records.numbers("area", xywh[:, 2] * xywh[:, 3])
    if (areas < 0).any():
        row = int((areas < 0).argmax())
        raise records.refuse(row, f"has a negative area, {areas[row]}; correct it.")
    return areas


def _superclasses(records: Records, otherwise: Sequence[str | None]) -> list[str | None]:
    values = records.optional_texts("supercategory", otherwise)
    return [None if value in _NO_SUPERCLASS else value for value in values]


def _annotations(truth: BoxTruth, category_ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Give the objects as COCO annotations; what a reader would assume anyway is left out."""
    of_class = truth.classes.superclasses
    columns = (
        truth.image_ids[truth.image_index].tolist(),
        truth.class_ids.tolist(),
        np.hstack([truth.xyxy[:, :2], truth.sizes]).tolist(),
        truth.areas.tolist(),
        truth.is_crowd.tolist(),
        truth.is_difficult.tolist(),
        truth.superclasses.tolist(),
    )
    for own_id, row in enumerate(zip(*columns, strict=True), start=1):
        image_id, class_id, xywh, area, is_crowd, is_difficult, superclass = row
        annotation = {
            "id": own_id,
            "image_id": image_id,
            "category_id": category_ids[class_id],
            "bbox": xywh,
            "area": area,
            "iscrowd": int(is_crowd),
        }
        if is_difficult:
            annotation["difficult"] = 1
        if superclass != of_class[class_id]:
            annotation["supercategory"] = superclass
        yield annotation
