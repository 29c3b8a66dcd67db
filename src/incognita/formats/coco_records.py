"""Annotation files in COCO's format as they are: every record is kept with all its keys."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from incognita.errors import count
from incognita.files import replacing_text
from incognita.formats.coco_annotations import (
    Records,
    find_classes,
    find_images,
    load_tables,
    read_category_names,
    read_image_ids,
)

ImageId = int | str
Record = Mapping[str, Any]
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
        return {record["id"]: record["name"] for record in self.categories}

    def names_in(self, image_id: ImageId) -> frozenset[str]:
        """Return the names of the categories that an image holds."""
        names = self.category_names
        return frozenset(names[record["category_id"]] for record in self.objects.get(image_id, ()))

    def __repr__(self) -> str:
        n_objects = sum(map(len, self.objects.values()))
        n_images = count(len(self.images), "image")
        return f"Annotations({self.source!r}, {n_images}, {count(n_objects, 'object')})"


def load_annotations(path: Path, *, only: Collection[ImageId] | None = None) -> Annotations:
    """Load an annotation file (`.json`, also compressed by gzip).

    Args:
        path: The file.
        only: The images that are wanted; the objects of others are dropped while the file is
            parsed, which saves most of the memory.
    """
    tables = load_tables(path, only=only)
    names = read_category_names(tables.categories)
    ids = read_image_ids(tables.images)
    tables.images.texts("file_name")
    rows = dict(zip(ids.tolist(), tables.images.rows, strict=True))
    images = {image_id: rows[image_id] for image_id in sorted(rows)}
    if only is not None:
        images = {image_id: row for image_id, row in images.items() if image_id in only}
    return Annotations(
        path.name,
        images,
        _objects_by_image(tables.annotations, ids, names),
        tables.categories.rows,
        {key: tables.others[key] for key in _PASSED_ON if key in tables.others},
    )


def _objects_by_image(
    records: Records, image_ids: np.ndarray, category_names: Mapping[int, str]
) -> dict[ImageId, list[Record]]:
    source, refuse = str(records.path), records.refuse
    of_row = records.identifiers("image_id")
    find_images(of_row, image_ids, source=source, refuse=refuse)
    listed = dict.fromkeys(category_names, 0)
    find_classes(records.integers("category_id"), listed, source=source, refuse=refuse)
    records.boxes("bbox")
    objects: dict[ImageId, list[Record]] = {}
    for image_id, record in zip(of_row.tolist(), records.rows, strict=True):
        objects.setdefault(image_id, []).append(record)
    return objects


def save_annotations(
    path: Path,
    images: Sequence[Record],
    objects: Iterable[Sequence[Record]],
    categories: Sequence[Record],
    *,
    passed_on: Record,
) -> None:
    """Save an annotation file; the same records give the same bytes.

    Args:
        path: The file, replaced as a whole or not at all.
        images: In the order they are written in.
        objects: Those of each image.
        categories: All of them, used or not.
        passed_on: What else the file says.
    """
    annotations = [record for group in objects for record in group]
    ids = [record.get("id") for record in annotations]
    if len(set(ids)) < len(ids):  # two files may have used the same numbers
        annotations = [{**record, "id": k} for k, record in enumerate(annotations, start=1)]
    document = {**passed_on, "categories": list(categories)}
    document |= {"images": list(images), "annotations": annotations}
    with replacing_text(path) as file:
        file.write(json.dumps(document, ensure_ascii=False))
