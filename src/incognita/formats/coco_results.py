"""Reads and writes detections in COCO's results format, with logits and features beside it."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from incognita.benchmarks.readers.alignment import find_classes, find_images, lay_out
from incognita.benchmarks.readers.result_scan import ResultColumns, scan_stream
from incognita.benchmarks.readers.sidecar import load_sidecar, save_sidecar
from incognita.containers.boxes import Detections
from incognita.errors import InvalidDataError
from incognita.files import load_json, opened, replacing_text
from incognita.formats._records import (
    Records,
    RepeatedKeyObject,
    check_boxes,
    check_finite,
    corners,
    refusal,
)
from incognita.formats.coco_annotations import CocoTruth, category_id_of_class

_ROWS_AT_ONCE = 50_000


def load_detections(
    path: str | PathLike[str], truth: CocoTruth, *, sidecar: str | PathLike[str] | None = None
) -> Detections:
    """Read a COCO results file (`.json`, also compressed by gzip) for the images of a truth.

    The detections of an image keep the order of the file; an image without any is kept too. The
    confidence is the `score` of the file; any other key is skipped.

    Args:
        path: A list of `{"image_id", "category_id", "bbox", "score"}`, which may be empty, or an
            object that holds such a list as `results` or `annotations`.
        truth: What the image and category ids refer to.
        sidecar: A safetensors file with `logits` and `features`, or one of them; one row per
            record of the list.

    Raises:
        InvalidDataError: A record is wrong; the sentence names it, counted from 0.
        MissingDataError: There is no such file.
    """
    path = Path(path)
    columns = load_columns(path)
    refuse = partial(refusal, path, "detection")
    boxes, source = truth.truth, truth.source
    images = find_images(columns.image_ids, boxes.image_ids, source=source, refuse=refuse)
    class_ids = find_classes(columns.category_ids, truth.categories, source=source, refuse=refuse)
    arrays = {} if sidecar is None else load_sidecar(Path(sidecar), len(class_ids))
    order, offsets = lay_out(images, boxes.n_images)
    xywh, confidence = columns.xywh, columns.confidence
    if order is not None:
        xywh, confidence, class_ids = xywh[order], confidence[order], class_ids[order]
        arrays = {name: array[order] for name, array in arrays.items()}
    return Detections(
        boxes.image_ids,
        offsets,
        corners(xywh),
        confidence,
        class_ids,
        boxes.classes,
        sizes=xywh[:, 2:],
        logits=arrays.get("logits"),
        features=arrays.get("features"),
    )


def load_columns(path: Path) -> ResultColumns:
    """Read a results file as columns in the order of the file, with every number checked."""
    with opened(path) as file:
        columns = scan_stream(file)
    if columns is None:
        return _load_with_json(path)
    refuse = partial(refusal, path, "detection")
    check_boxes(columns.xywh, refuse)
    check_finite("score", columns.confidence, refuse)
    return columns


def save_detections(
    detections: Detections,
    path: str | PathLike[str],
    *,
    categories: Mapping[int, int],
    sidecar: str | PathLike[str] | None = None,
) -> None:
    """Write a COCO results file that `load_detections` reads back to the same numbers.

    Args:
        detections: What to write.
        path: The file; `.gz` compresses. It is replaced as a whole, or not at all.
        categories: Class id of each category id, as `load_truth` gives them.
        sidecar: A safetensors file for the logits and features; needed if there are any.
    """
    kept = {"logits": detections.logits, "features": detections.features}
    arrays = {name: array for name, array in kept.items() if array is not None}
    if bool(arrays) != (sidecar is not None):
        state = f"have {' and '.join(arrays)}" if arrays else "have neither logits nor features"
        advice = "name a sidecar file for them" if arrays else "name no sidecar file"
        raise InvalidDataError(f"The detections {state}; {advice}.")
    category_ids = category_id_of_class(categories, detections.classes)
    with replacing_text(Path(path)) as file:
        file.write("[")
        for text in _texts(detections, category_ids):
            file.write(text)
        file.write("]\n")
        if sidecar is not None:  # before the list takes its place, so that both do or neither
            save_sidecar(Path(sidecar), arrays)


def _load_with_json(path: Path) -> ResultColumns:
    """Read what the scanner left aside: text ids, NaN, and all that deserves a sentence."""
    records = Records(path, "detection", _results_list(path, load_json(path)))
    return ResultColumns(
        records.identifiers("image_id"),
        records.integers("category_id"),
        records.boxes("bbox"),
        records.numbers("score"),
    )


def _results_list(path: Path, document: Any) -> list[Any]:
    if isinstance(document, list):
        return document
    if isinstance(document, RepeatedKeyObject):
        raise InvalidDataError(f"{path} holds the key {document.repeated!r} twice; keep one.")
    if not isinstance(document, dict):
        raise InvalidDataError(f"{path} holds no list; detections are a list of objects.")
    if "images" in document or "categories" in document:
        raise InvalidDataError(
            f"{path} has images or categories, as the truth does, but detections are a list; "
            f"are the two files swapped?"
        )
    lists = [document[key] for key in ("results", "annotations") if key in document]
    if len(lists) != 1 or not isinstance(lists[0], list):
        raise InvalidDataError(
            f"{path} is an object, but detections are a list, or an object with one list called "
            f"results or annotations."
        )
    return lists[0]


def _texts(detections: Detections, category_ids: list[int]) -> Iterator[str]:
    """Give the records as JSON, many at a time; `repr` of a float is the shortest exact text."""
    images = detections.image_index
    spell = json.dumps if detections.image_ids.dtype.kind == "U" else repr
    for start in range(0, len(detections), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        image_ids = detections.image_ids[images[part]].tolist()
        columns = zip(
            map(spell, image_ids),
            np.array(category_ids)[detections.class_ids[part]].tolist(),
            detections.xyxy[part, :2].tolist(),
            detections.sizes[part].tolist(),
            detections.confidence[part].tolist(),
            strict=True,
        )
        records = [
            f'{{"image_id": {image_id}, "category_id": {category_id}, '
            f'"bbox": [{x!r}, {y!r}, {width!r}, {height!r}], "score": {confidence!r}}}'
            for image_id, category_id, (x, y), (width, height), confidence in columns
        ]
        yield (",\n" if start else "") + ",\n".join(records)
