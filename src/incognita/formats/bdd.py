"""Annotations of BDD100K: a JSON list of frames with labelled boxes (labels det_20 and 2018)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from incognita.errors import InvalidDataError
from incognita.files import json_batches
from incognita.formats.coco_annotations import Records
from incognita.formats.coco_records import Annotations, ImageId, Record

ATTRIBUTES = ("weather", "timeofday", "scene")  # of an image
BDD_WIDTH, BDD_HEIGHT = 1280, 720  # of every image


class Label(NamedTuple):
    """An object of BDD100K."""

    name: str
    xyxy: tuple[float, float, float, float]


class Frame(NamedTuple):
    """An image of BDD100K."""

    name: str
    attributes: Mapping[str, str]
    labels: list[Label]


def read_frames(
    path: Path,
    *,
    listed: Collection[str] | None = None,
    advice: str = "",
    on_read: Callable[[int], None] = lambda _: None,
) -> Iterator[Frame]:
    """Read the frames of a file of gigabytes, one after the other.

    Args:
        path: Such as det_train.json.
        listed: Categories that may appear; any other is refused. By default all may.
        advice: Ends the sentence about a category that is not listed.
        on_read: Called with the number of bytes read so far.
    """
    for batch in json_batches(path, on_read=on_read):
        if batch.name:
            raise InvalidDataError(
                f"{path} is an object with the key {batch.name!r}, but a list of frames is "
                f"expected, as in the labels det_20 of BDD100K; get that file."
            )
        records = Records(path, "frame", batch.records, batch.first)
        for index, name in enumerate(records.texts("name")):
            row = records.rows[index]
            stated, held = row.get("attributes") or {}, row.get("labels") or []
            if not isinstance(stated, dict) or not isinstance(held, list):
                raise records.refuse(
                    index, "has attributes or labels that are not an object and a list; get the "
                    "labels det_20.",
                )  # fmt: skip
            attributes = {key: str(stated.get(key, "undefined")) for key in ATTRIBUTES}
            boxes = [label for label in held if _is_box(label)]
            labels = [_read_label(records, index, label, listed, advice) for label in boxes]
            yield Frame(name, attributes, labels)


def _is_box(label: Any) -> bool:
    """Whether a label is of an object; files of 2018 also label lanes and drivable areas."""
    return not isinstance(label, dict) or "box2d" in label or "poly2d" not in label


def _read_label(
    records: Records, index: int, label: Any, listed: Collection[str] | None, advice: str
) -> Label:
    box = label.get("box2d") if isinstance(label, dict) else None
    xyxy = [box.get(key) for key in ("x1", "y1", "x2", "y2")] if isinstance(box, dict) else []
    corners = [float(value) for value in xyxy if _is_number(value)]
    if len(corners) != 4:
        raise records.refuse(
            index, "has a label without a box2d of x1, y1, x2 and y2; get the labels det_20."
        )
    name = label.get("category")
    if not isinstance(name, str) or not name or (listed is not None and name not in listed):
        known = "" if listed is None else ", which the tables do not list"
        raise records.refuse(
            index, f"has a label of the category {name!r}{known}; get the labels det_20 of BDD100K"
            f"{advice}.",
        )  # fmt: skip
    return Label(name, (corners[0], corners[1], corners[2], corners[3]))


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and abs(value) < 1e300


def load_bdd(path: Path) -> Annotations:
    """Load a file of BDD100K; ids of images are their names, categories are in order of the names.

    Args:
        path: Such as det_val.json.
    """
    frames: dict[ImageId, Frame] = {}
    for frame in read_frames(path):
        if frame.name in frames:
            raise InvalidDataError(f"{path} has two frames called {frame.name!r}; keep one.")
        frames[frame.name] = frame
    names = sorted({label.name for frame in frames.values() for label in frame.labels})
    numbers = {name: number for number, name in enumerate(names, start=1)}
    images: dict[ImageId, Record] = {
        key: {"id": key, "file_name": key, "width": BDD_WIDTH, "height": BDD_HEIGHT,
              **frames[key].attributes}
        for key in sorted(frames, key=str)
    }  # fmt: skip
    objects: dict[ImageId, list[Record]] = {}
    n_objects = 0
    for key in images:
        for label in frames[key].labels:
            n_objects += 1
            x, y, right, bottom = label.xyxy
            if right < x or bottom < y:
                raise InvalidDataError(
                    f"{path}: frame {key!r} has a box whose second corner is before its first; "
                    f"correct it."
                )
            objects.setdefault(key, []).append(
                {"id": n_objects, "image_id": key, "category_id": numbers[label.name],
                 "bbox": [x, y, right - x, bottom - y], "area": (right - x) * (bottom - y),
                 "iscrowd": 0}
            )  # fmt: skip
    categories = [{"id": number, "name": name} for name, number in numbers.items()]
    return Annotations(path.name, images, objects, categories)
