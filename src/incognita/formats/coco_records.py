"""Annotation files in COCO's format as they are: every record is kept with all its keys."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from incognita.errors import InvalidDataError
from incognita.files import RepeatedKeyObject, load_json, object_from_pairs, replacing_text
from incognita.formats._records import Records

ImageId = int | str
Record = Mapping[str, Any]
_PARTS = ("images", "annotations", "categories")
_PASSED_ON = ("info", "licenses")


@dataclass(frozen=True, eq=False)
class Annotations:
    """Images and what is annotated in them.

    Args:
        source: The file, for messages.
        images: The record of each image, in the order of the ids.
        objects: The annotations of each image that has some, in the order of the file.
        categories: The records of the categories.
        passed_on: What else a file should say, such as licenses.
    """

    source: str
    images: Mapping[ImageId, Record] = field(repr=False)
    objects: Mapping[ImageId, Sequence[Record]] = field(repr=False)
    categories: Sequence[Record] = field(repr=False)
    passed_on: Record = field(default_factory=dict, repr=False)

    @cached_property
    def category_names(self) -> dict[int, str]:
        """Name of each category id."""
        return {each["id"]: each["name"] for each in self.categories}

    def names_in(self, image_id: ImageId) -> frozenset[str]:
        """Give the names of the categories that an image holds."""
        names = self.category_names
        return frozenset(names[each["category_id"]] for each in self.objects.get(image_id, ()))


def load_annotations(path: Path, *, only: Collection[ImageId] | None = None) -> Annotations:
    """Read an annotation file (`.json`, also compressed by gzip).

    Args:
        path: The file.
        only: The images that are wanted; the objects of others are dropped while the file is
            read: 1,330 images of a file as large as instances_train2017.json (470 MB) take 25
            seconds and 1.1 GB, all of them 91 seconds and 3.5 GB.
    """
    document = load_json(
        path, build=object_from_pairs if only is None else _wanted(frozenset(only))
    )
    images, annotations, categories = _tables(path, document)
    category_ids = categories.integers("id").tolist()
    categories.refuse_repeats("id", category_ids)
    categories.refuse_repeats("name", categories.texts("name"))
    by_id = _images_by_id(images, only)
    return Annotations(
        path.name,
        by_id,
        _objects_by_image(annotations, by_id, frozenset(category_ids)),
        categories.rows,
        {key: document[key] for key in _PASSED_ON if key in document},
    )


def _wanted(only: frozenset[ImageId]) -> Callable[[list[tuple[str, Any]]], Any]:
    """Give a builder of objects that drops annotations of other images."""

    def build(pairs: list[tuple[str, Any]]) -> Any:
        record = object_from_pairs(pairs)
        image_id = record.get("image_id")
        is_other = type(image_id) in (int, str) and image_id not in only
        return None if is_other else record

    return build


def _tables(path: Path, document: Any) -> tuple[Records, Records, Records]:
    for part in _PARTS:
        if not isinstance(document, dict) or not isinstance(document.get(part), list):
            raise InvalidDataError(
                f"{path} has no list called {part!r}; an annotation file is an object with images, "
                f"annotations and categories, if need be empty."
            )
    if isinstance(document, RepeatedKeyObject):
        raise InvalidDataError(f"{path} holds the key {document.repeated!r} twice; keep one.")
    wanted = [each for each in document["annotations"] if each is not None]
    return (
        Records(path, "image", document["images"]),
        Records(path, "annotation", wanted),
        Records(path, "category", document["categories"]),
    )


def _images_by_id(records: Records, only: Collection[ImageId] | None) -> dict[ImageId, Record]:
    ids = records.identifiers("id").tolist()
    records.refuse_repeats("id", ids)
    records.texts("file_name")
    rows = dict(zip(ids, records.rows, strict=True))
    return {each: rows[each] for each in sorted(rows) if only is None or each in only}


def _objects_by_image(
    records: Records, images: Mapping[ImageId, Record], category_ids: frozenset[int]
) -> dict[ImageId, list[Record]]:
    image_ids = records.identifiers("image_id").tolist()
    categories = records.integers("category_id").tolist()
    records.boxes("bbox")
    objects: dict[ImageId, list[Record]] = {}
    for row, (image_id, category) in enumerate(zip(image_ids, categories, strict=True)):
        if image_id not in images:
            raise records.refuse(row, f"belongs to image {image_id!r}, which is not there; add it.")
        if category not in category_ids:
            raise records.refuse(row, f"is of category {category}, which is not there; add it.")
        objects.setdefault(image_id, []).append(records.rows[row])
    return objects


def save_annotations(
    path: Path,
    images: Sequence[Record],
    objects: Iterable[Sequence[Record]],
    categories: Sequence[Record],
    *,
    passed_on: Record,
) -> None:
    """Write an annotation file; the same records give the same bytes.

    Args:
        path: The file, replaced as a whole or not at all.
        images: In the order they are written in.
        objects: Those of each image.
        categories: All of them, used or not.
        passed_on: What else the file says.
    """
    annotations = [each for group in objects for each in group]
    ids = [each.get("id") for each in annotations]
    if len(set(ids)) < len(ids):  # two files may have used the same numbers
        annotations = [{**each, "id": place} for place, each in enumerate(annotations, start=1)]
    document = {**passed_on, "categories": list(categories)}
    document |= {"images": list(images), "annotations": annotations}
    with replacing_text(path) as file:
        file.write(json.dumps(document, ensure_ascii=False))
