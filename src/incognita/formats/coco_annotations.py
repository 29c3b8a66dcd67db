"""Annotations in COCO's instances format: images, categories and objects with boxes."""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from reprlib import Repr
from typing import Any, NamedTuple, NoReturn

import numpy as np

from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import Classes
from incognita.errors import InvalidDataError
from incognita.files import RepeatedKeyObject, load_json, object_from_pairs, replacing_text
from incognita.formats.class_roles import ClassMap, Translation, with_known
from incognita.shapes import Bool, Float, Int, Shaped

Refuse = Callable[[int, str], InvalidDataError]


_ABSENT = object()


_NUMERIC = {int, float}  # by exact type: a bool is an int too, but not a number here


_shorten = Repr()


_shorten.maxstring = _shorten.maxother = 60


def refusal(path: Path, kind: str, index: int, problem: str) -> InvalidDataError:
    """Build the error about a record, counted from 0 as in its list.

    >>> refusal(Path("dets.json"), "detection", 17, "has no score.")
    InvalidDataError('dets.json: detection 17 has no score.')
    """
    return InvalidDataError(f"{path}: {kind} {index} {problem}")


def check_finite(key: str, values: Float[np.ndarray, "rows"], refuse: Refuse) -> None:
    """Refuse NaN and infinity."""
    is_wrong = ~np.isfinite(values)
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise refuse(row, f"has {values[row]} as {key}, but a finite number is expected.")


def check_boxes(xywh: Float[np.ndarray, "rows 4"], refuse: Refuse) -> None:
    """Refuse boxes that are not finite, or have a negative width or height."""
    for column, name in enumerate(("x", "y", "width", "height")):
        check_finite(name, xywh[:, column], refuse)
    for column, name in ((2, "width"), (3, "height")):
        is_wrong = xywh[:, column] < 0
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise refuse(
                row,
                f"has a negative {name}, {xywh[row, column]}; a bbox is x, y, width, height, "
                f"not two corners.",
            )
    with np.errstate(over="ignore"):  # what overflows is refused with a sentence
        check_finite("x + width", xywh[:, 0] + xywh[:, 2], refuse)
        check_finite("y + height", xywh[:, 1] + xywh[:, 3], refuse)


def corners(xywh: Float[np.ndarray, "rows 4"]) -> Float[np.ndarray, "rows 4"]:
    """Turn x, y, width, height into x1, y1, x2, y2."""
    xyxy = xywh.copy()
    xyxy[:, 2:] += xyxy[:, :2]
    return xyxy


@dataclass(frozen=True)
class Records:
    """The records of one kind in one file; most methods return one column of them.

    Args:
        path: The file.
        kind: What a record is called in messages.
        rows: The records.
        first: The place of the first one in the list of the file, where a part of it was read.

    >>> Records(Path("gt.json"), "image", [{"id": 7}, {"id": 9}]).identifiers("id").tolist()
    [7, 9]
    """

    path: Path
    kind: str
    rows: list[Any]
    first: int = 0

    def __post_init__(self) -> None:
        if set(map(type, self.rows)) <= {dict}:
            return
        for index, row in enumerate(self.rows):
            if not isinstance(row, dict):
                problem = f"is {_shorten.repr(row)}, but an object in braces is expected."
                raise refusal(self.path, self.kind, self.first + index, problem)
            if isinstance(row, RepeatedKeyObject):
                raise self.refuse(index, f"holds the key {row.repeated!r} twice; keep one.")

    def __len__(self) -> int:
        return len(self.rows)

    def refuse(self, index: int, problem: str) -> InvalidDataError:
        """Build the error about a record."""
        own_id = self.rows[index].get("id")
        name = "" if own_id is None else f"(id {_shorten.repr(own_id)}) "
        return refusal(self.path, self.kind, self.first + index, name + problem)

    def column(self, key: str) -> list[Any]:
        """Return the values of a key that every record must have."""
        values = [row.get(key, _ABSENT) for row in self.rows]
        if _ABSENT in values:
            raise self.refuse(values.index(_ABSENT), f"has no {key}; add it.")
        return values

    def integers(self, key: str) -> Int[np.ndarray, "rows"]:
        """Return a column of whole numbers; 3.0 passes for 3."""
        values = self.column(key)
        self._require(key, values, _is_whole, "a whole number of at most 64 bits")
        return np.array([int(value) for value in values], np.int64)

    def identifiers(self, key: str) -> Shaped[np.ndarray, "rows"]:
        """Return a column of ids, either all whole numbers or all text."""
        values = self.column(key)
        is_text = [isinstance(value, str) for value in values]
        n_text = sum(is_text)
        if n_text and n_text < len(values):
            self._refuse_mixture(key, is_text)
        if not n_text:
            return self.integers(key)
        self._require(key, values, _is_identifier, "text without NUL and half characters")
        return np.array(values, np.str_)

    def _refuse_mixture(self, key: str, is_text: list[bool]) -> NoReturn:
        """Refuse ids of two kinds; the first one of the rarer kind is taken for the wrong one."""
        is_wrong = 2 * sum(is_text) <= len(is_text)  # whether text is the rarer kind
        index, other = is_text.index(is_wrong), is_text.index(not is_wrong)
        raise self.refuse(
            index,
            f"has {_shorten.repr(self.rows[index][key])} as {key}, but "
            f"{'a whole number' if is_wrong else 'text'} is expected, as {self.kind} {other} has; "
            f"write all alike.",
        )

    def numbers(
        self, key: str, otherwise: Float[np.ndarray, "rows"] | None = None
    ) -> Float[np.ndarray, "rows"]:
        """Return a column of finite numbers; `otherwise` is used for absent and null values."""
        if otherwise is None:
            values = self.column(key)
        else:
            pairs = zip(self.rows, otherwise.tolist(), strict=True)
            values = [spare if row.get(key) is None else row[key] for row, spare in pairs]
        self._require(key, values, _is_number, "a number")
        numbers = _as_float64(values)
        check_finite(key, numbers, self.refuse)
        return numbers

    def boxes(self, key: str) -> Float[np.ndarray, "rows 4"]:
        """Return a column of boxes: x, y, width and height."""
        values = self.column(key)
        self._require(key, values, _is_box, "a list of four numbers (x, y, width, height)")
        xywh = _as_float64(list(chain.from_iterable(values))).reshape(-1, 4)
        check_boxes(xywh, self.refuse)
        return xywh

    def flags(self, key: str) -> Bool[np.ndarray, "rows"]:
        """Return a column of 0 and 1, or false and true; absent means 0."""
        values = [row.get(key, 0) for row in self.rows]
        self._require(key, values, _is_flag, "0 or 1")
        return np.array(values, np.bool_)

    def texts(self, key: str) -> list[str]:
        """Return a column of text that is not empty."""
        values = self.column(key)
        self._require(key, values, _is_text, "text")
        return values

    def optional_texts(self, key: str, otherwise: Sequence[str | None]) -> list[str | None]:
        """Return a column of text or null; `otherwise` is used where the key is absent."""
        pairs = zip(self.rows, otherwise, strict=True)
        values = [row.get(key, spare) for row, spare in pairs]
        self._require(key, values, _is_optional_text, "text")
        return values

    def refuse_repeats(self, key: str, values: Sequence[Any]) -> None:
        """Refuse a value that two records share; None may be repeated."""
        if len(set(values)) == len(values):
            return
        first: dict[Any, int] = {}
        for index, value in enumerate(values):
            if value is not None and first.setdefault(value, index) != index:
                problem = f"has {value!r} as {key}, as {self.kind} {first[value]} has; keep one."
                raise self.refuse(index, problem)

    def _require(
        self, key: str, values: list[Any], is_right: Callable[[Any], bool], expected: str
    ) -> None:
        for index, value in enumerate(values):
            if not is_right(value):
                problem = f"has {_shorten.repr(value)} as {key}, but {expected} is expected."
                raise self.refuse(index, problem)


def _is_whole(value: Any) -> bool:
    if type(value) is float:
        return value.is_integer() and abs(value) <= 2**53
    return type(value) is int and -(2**63) <= value < 2**63


def _is_identifier(value: Any) -> bool:
    # NumPy drops NUL at the end of text, which could make two ids one
    return isinstance(value, str) and "\0" not in value and _is_unicode(value)


def _is_number(value: Any) -> bool:
    return type(value) in _NUMERIC


def _is_box(value: Any) -> bool:
    return type(value) is list and len(value) == 4 and _NUMERIC.issuperset(map(type, value))


def _is_flag(value: Any) -> bool:
    return type(value) in (int, bool) and value in (0, 1)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value and _is_unicode(value)


def _is_optional_text(value: Any) -> bool:
    return value is None or (type(value) is str and _is_unicode(value))


def _is_unicode(text: str) -> bool:
    """Whether text has no half of a character, which JSON may spell and files cannot hold."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _as_float64(values: list[Any]) -> Float[np.ndarray, "rows"]:
    try:
        return np.array(values, np.float64)
    except OverflowError:  # an integer of more than 308 digits
        return np.array([_to_float(value) for value in values], np.float64)


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


class Located(NamedTuple):
    """Where ids stand in a list; a position means nothing where the id is not listed."""

    positions: Int[np.ndarray, "rows"]
    is_listed: Bool[np.ndarray, "rows"]


class RowOrder(NamedTuple):
    """Rows ordered by image: the permutation, None if they were in order, and the offsets."""

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
    """Return the position of each record's image among the images that `source` lists."""
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
    """Return the class id of each record's category id, as `source` lists them."""
    located = locate(category_ids, np.array(list(categories), np.int64))
    if not located.is_listed.all():
        row = int(located.is_listed.argmin())
        problem = f"has {category_ids[row]} as category_id, which {source} does not list"
        raise refuse(row, f"{problem} among its categories; add it there or in a class map.")
    of_category = np.array(list(categories.values()), np.int32)
    return np.take(of_category, located.positions)


def order_by_image(image_index: Int[np.ndarray, "rows"], n_images: int) -> RowOrder:
    """Order rows by image, keeping the order of the file inside each image.

    >>> order_by_image(np.array([1, 0, 1]), 3)
    RowOrder(order=array([1, 0, 2]), offsets=array([0, 1, 3, 3]))
    """
    counts = np.bincount(image_index, minlength=n_images)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if (image_index[1:] >= image_index[:-1]).all():
        return RowOrder(None, offsets)
    return RowOrder(np.argsort(image_index, kind="stable"), offsets)


_PARTS = ("images", "annotations", "categories")
_KEYS_OF_TRUTH = frozenset({
    *_PARTS, "id", "image_id", "category_id", "bbox", "area", "iscrowd", "difficult", "ignore",
    "name", "supercategory",
})  # fmt: skip
_NO_SUPERCLASS = (None, "", "none", "None")  # what exporters write where there is none


@dataclass(frozen=True, eq=False)
class CocoTruth:
    """The truth of a file, with what is needed to load detections that refer to that file.

    Args:
        boxes: Images sorted by id; the objects of an image in the order of the file.
        categories: Class id of each category id; several ids may stand for one class.
        source: The file the categories come from, for error messages.
    """

    boxes: BoxTruth
    categories: Mapping[int, int]
    source: str = "the truth"

    def __repr__(self) -> str:
        return f"CocoTruth({self.boxes!r}, {len(self.categories)} categories, {self.source!r})"

    def for_images_of(self, path: str | PathLike[str]) -> "CocoTruth":
        """Return the same categories for the images of another file, without objects.

        For images without any known object: what else they show does not matter.
        """
        image_ids = np.sort(read_image_ids(load_tables(Path(path)).images))
        boxes = BoxTruth.empty(image_ids, self.boxes.classes)
        return replace(self, boxes=boxes, source=f"{path} or {self.source}")


class CocoTables(NamedTuple):
    """The three lists of an instances file, and whatever else the file holds."""

    images: Records
    annotations: Records
    categories: Records
    others: Mapping[str, Any]


def load_truth(
    path: str | PathLike[str],
    *,
    class_map: ClassMap | None = None,
    known: Sequence[str] | None = None,
) -> CocoTruth:
    """Load a COCO instances file (`.json`, also compressed by gzip).

    Images are sorted by id, as the COCO evaluators visit them: with equal confidences the order
    decides. Classes are sorted by category id, those of the class map alone behind them.

    Args:
        path: The file.
        class_map: Which categories are known, unknown or ignored; by default all are known but
            one called "unknown".
        known: The known categories, as the short form of a class map.

    Raises:
        InvalidDataError: A record is wrong; the sentence names it, counted from 0.
        MissingDataError: There is no such file.
        UnknownNameError: The class map or `known` names a category the file does not have.
    """
    tables = load_tables(Path(path), keys=_KEYS_OF_TRUTH)
    return read_truth(tables, with_known(class_map, known))


def read_truth(tables: CocoTables, class_map: ClassMap) -> CocoTruth:
    """Read the truth from the lists of a file; see `load_truth`."""
    category_ids, names, superclasses = _read_categories(tables.categories, class_map)
    source = str(tables.images.path)
    translated = class_map.translate(names, superclasses, source=source)
    image_ids = np.sort(read_image_ids(tables.images))
    boxes = _read_objects(tables.annotations, image_ids, category_ids, translated)
    categories = dict(zip(category_ids, translated.class_ids.tolist(), strict=True))
    return CocoTruth(boxes, categories, source)


def save_truth(
    truth: BoxTruth, path: str | PathLike[str], *, categories: Mapping[int, int] | None = None
) -> None:
    """Save a COCO instances file that `load_truth` reads back to the same numbers.

    Roles are not part of the format: give the same class map when reading. Boxes are written as
    x, y and `sizes`, so that a box is restored bit for bit.

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
    """Return the category id under which each class is written: the first of those it has."""
    first: dict[int, int] = {}
    for category_id, class_id in categories.items():
        first.setdefault(class_id, category_id)
    missing = [name for class_id, name in enumerate(classes.names) if class_id not in first]
    if missing:
        raise InvalidDataError(
            f"Class {missing[0]!r} has no category id to be written under; add one to categories."
        )
    return [first[class_id] for class_id in range(len(classes))]


def load_tables(
    path: Path,
    *,
    only: Collection[int | str] | None = None,
    keys: frozenset[str] | None = None,
) -> CocoTables:
    """Load the lists of an instances file.

    Args:
        path: The file.
        only: Ids of images whose annotations are kept; those of others are dropped while the file
            is parsed, which saves most of the memory.
        keys: Keys that are kept, of any record; by default all.
    """
    build = object_from_pairs if keys is None else _keeping(keys)
    build = build if only is None else _dropping_others(frozenset(only))
    document = load_json(path, build=build)
    if isinstance(document, list):
        raise InvalidDataError(
            f"{path} is a list, as detections are, but the truth is an object with images, "
            f"annotations and categories; are the two files swapped?"
        )
    if not isinstance(document, dict):
        raise InvalidDataError(
            f"{path} does not hold an object; the truth is one with images, annotations and "
            f"categories."
        )
    if isinstance(document, RepeatedKeyObject):
        raise InvalidDataError(f"{path} holds the key {document.repeated!r} twice; keep one.")
    for part in _PARTS:
        if not isinstance(document.get(part), list):
            raise InvalidDataError(
                f"{path} has no list called {part!r}; the truth needs images, annotations and "
                f"categories, if need be empty."
            )
    images, annotations, categories = (document.pop(part) for part in _PARTS)
    if only is not None:
        annotations = [record for record in annotations if record is not None]
    return CocoTables(
        Records(path, "image", images),
        Records(path, "annotation", annotations),
        Records(path, "category", categories),
        document,
    )


def _keeping(keys: frozenset[str]) -> Callable[[list[tuple[str, Any]]], Any]:
    """Return a builder of JSON objects that drops other keys: names and addresses of images."""

    def build(pairs: list[tuple[str, Any]]) -> Any:
        if len(dict(pairs)) < len(pairs):
            return object_from_pairs(pairs)  # marked
        return {key: value for key, value in pairs if key in keys}

    return build


def _dropping_others(only: frozenset[int | str]) -> Callable[[list[tuple[str, Any]]], Any]:
    """Return a builder of JSON objects that drops annotations of other images."""

    def build(pairs: list[tuple[str, Any]]) -> Any:
        record = object_from_pairs(pairs)
        image_id = record.get("image_id")
        is_other = type(image_id) in (int, str) and image_id not in only
        return None if is_other else record

    return build


def read_image_ids(records: Records) -> Shaped[np.ndarray, "rows"]:
    """Return the ids of images in the order of the file, each of which must be unique."""
    ids = records.identifiers("id")
    records.refuse_repeats("id", ids.tolist())
    return ids


def read_category_names(records: Records) -> dict[int, str]:
    """Return the name of each category id in the order of the file; both must be unique."""
    ids, names = records.integers("id").tolist(), records.texts("name")
    records.refuse_repeats("id", ids)
    records.refuse_repeats("name", names)
    return dict(zip(ids, names, strict=True))


class _Categories(NamedTuple):
    ids: list[int]
    names: list[str]
    superclasses: list[str | None]


def _read_categories(records: Records, class_map: ClassMap) -> _Categories:
    """Return the categories of the file and of the class map, those of the file sorted by id."""
    listed = read_category_names(records)
    above = dict(zip(listed.values(), _superclasses(records, [None] * len(listed)), strict=True))
    name_of = dict(sorted(listed.items()))
    for category_id, name in class_map.categories.items():
        if name_of.setdefault(category_id, name) != name:
            raise InvalidDataError(
                f"The class map calls category {category_id} {name!r}, but {records.path} calls "
                f"it {name_of[category_id]!r}; correct the class map."
            )
    names = list(name_of.values())
    return _Categories(list(name_of), names, [above.get(name) for name in names])


def _read_objects(
    records: Records,
    image_ids: Shaped[np.ndarray, "images"],
    category_ids: Sequence[int],
    translated: Translation,
) -> BoxTruth:
    own_ids = (row.get("id") for row in records.rows)
    records.refuse_repeats("id", [i if type(i) in (int, str) else None for i in own_ids])
    source, refuse = str(records.path), records.refuse
    images = find_images(records.identifiers("image_id"), image_ids, source=source, refuse=refuse)
    places = {category_id: place for place, category_id in enumerate(category_ids)}
    category = find_classes(records.integers("category_id"), places, source=source, refuse=refuse)
    class_ids = translated.class_ids[category]
    superclasses = [translated.superclasses[place] for place in category.tolist()]
    xywh = records.boxes("bbox")
    order, offsets = order_by_image(images, len(image_ids))
    rows = np.arange(len(records)) if order is None else order
    return BoxTruth(
        image_ids,
        offsets,
        corners(xywh)[rows],
        class_ids[rows],
        translated.classes,
        sizes=xywh[rows, 2:],
        areas=_areas(records, xywh)[rows],
        is_crowd=records.flags("iscrowd")[rows],
        is_difficult=(records.flags("difficult") | records.flags("ignore"))[rows],
        superclasses=np.array(_superclasses(records, superclasses), object)[rows],
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
    """Yield the objects as COCO annotations; values that are the default are left out."""
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
