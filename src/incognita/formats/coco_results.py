"""Detections in COCO's results format, with logits and features in a file beside it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from io import BufferedIOBase
from itertools import chain
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import msgspec
import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.errors import InvalidDataError, MissingDataError
from incognita.files import RepeatedKeyObject, load_json, opened, replacing, replacing_text
from incognita.formats.class_roles import ClassMap, load_class_map
from incognita.formats.coco_annotations import (
    CocoTruth,
    Records,
    category_id_of_class,
    check_boxes,
    check_finite,
    corners,
    find_classes,
    find_images,
    load_truth,
    order_by_image,
    refusal,
)
from incognita.shapes import Float, Int, Shaped


class CocoPair(NamedTuple):
    """The truth and the detections of one set of images."""

    truth: BoxTruth
    detections: Detections


@overload
def load_coco(
    truth: str | PathLike[str],
    detections: None = None,
    *,
    known: Sequence[str] | None = None,
    classes: str | PathLike[str] | ClassMap | None = None,
) -> tuple[BoxTruth, None]: ...


@overload
def load_coco(
    truth: str | PathLike[str],
    detections: str | PathLike[str],
    *,
    known: Sequence[str] | None = None,
    classes: str | PathLike[str] | ClassMap | None = None,
) -> CocoPair: ...


def load_coco(
    truth: str | PathLike[str],
    detections: str | PathLike[str] | None = None,
    *,
    known: Sequence[str] | None = None,
    classes: str | PathLike[str] | ClassMap | None = None,
) -> Any:
    """Load a COCO annotation file and the results of a detector on its images.

    Args:
        truth: The annotation file (`.json`, also compressed by gzip).
        detections: The results file; None loads the truth alone.
        known: Names of the known categories; every other one is unknown.
        classes: A class map or the path of its TOML file, for unknown and ignored categories and
            super-classes.

    Returns:
        A named tuple with the fields `truth` and `detections`.

    Raises:
        InvalidDataError: A record is wrong; the sentence names it, counted from 0.
        MissingDataError: There is no such file.
        UnknownNameError: `known` or the class map names a category the file does not have.
    """
    if isinstance(known, str):
        raise InvalidDataError(f"known must be a list of names, got the text {known!r}.")
    class_map = classes if isinstance(classes, ClassMap | None) else load_class_map(classes)
    annotated = load_truth(truth, class_map=class_map, known=known)
    found = None if detections is None else load_detections(detections, annotated)
    return CocoPair(annotated.boxes, cast(Any, found))


class ResultColumns(NamedTuple):
    """The columns of a results list, one row per detection, in the order of the file."""

    image_ids: Shaped[np.ndarray, "rows"]
    category_ids: Int[np.ndarray, "rows"]
    xywh: Float[np.ndarray, "rows 4"]
    confidence: Float[np.ndarray, "rows"]


class _Result(msgspec.Struct, gc=False):
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    score: float


_KEYS = _Result.__struct_fields__
_ROW = np.dtype(list(zip(_KEYS, ("i8", "i8", "4f8", "f8"), strict=True)))
_QUOTES = 2 * len(_KEYS)  # of a record without other keys and without text
_decode = msgspec.json.Decoder(list[_Result]).decode
_CHUNK = 1 << 17  # bytes; larger chunks no longer fit the cache of the processor
_ESCAPED_LETTER = re.compile(rb"\\u00[567]")  # may spell one of our keys
# all records but the last; in a list inside a record this ends too early, which is noticed
_WHOLE_RECORDS = re.compile(rb".*\}(?=\s*,\s*\{)", re.DOTALL)


def decode_results(stream: BufferedIOBase) -> ResultColumns | None:
    """Decode a results list chunk by chunk; None if `json` has to look at it.

    The memory is that of the columns, 56 bytes per detection, and of a chunk. Left to `json` are
    image ids that are text, NaN, and whatever is wrong and needs a sentence: msgspec neither names
    the record nor notices repeated keys and broken text in values that are skipped.
    """
    data = bytearray()
    try:
        for records in _lists(stream):
            data += _as_rows(records).tobytes()
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, _RepeatedKeyError):
        return None
    rows = np.frombuffer(data, _ROW)
    return ResultColumns(*(rows[key] for key in _KEYS))


class _RepeatedKeyError(Exception):
    """A record may hold a key twice."""


def _lists(stream: BufferedIOBase) -> Iterator[list[_Result]]:
    """Yield the records of a list, those of about one chunk at a time."""
    rest = stream.read(_CHUNK).lstrip()
    if rest[:1] != b"[":
        raise msgspec.DecodeError("not a list")
    rest = rest[1:]
    while more := stream.read(max(_CHUNK, len(rest))):
        rest += more
        if (whole := _WHOLE_RECORDS.match(rest)) is None:
            continue
        text = b"[" + whole[0] + b"]"
        try:
            records = _decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # not the end of a record: try again with twice the text
            continue
        _check_skipped_values(text, len(records))
        yield records
        rest = rest[whole.end() :].lstrip()[1:]
    text = b"[" + rest
    records = _decode(text)
    _check_skipped_values(text, len(records))
    yield records


def _check_skipped_values(text: bytes, n_records: int) -> None:
    """Raise where a record might hold a key twice, or text that is not UTF-8."""
    if text.count(b'"') == _QUOTES * n_records:  # every record has the four keys: nothing else
        return
    if not text.isascii():
        text.decode()
    counts = (text.count(f'"{key}"'.encode()) for key in _KEYS)
    if _ESCAPED_LETTER.search(text) or any(count != n_records for count in counts):
        raise _RepeatedKeyError


def _as_rows(records: list[_Result]) -> Shaped[np.ndarray, "rows"]:
    n = len(records)
    rows = np.empty(n, _ROW)
    for key in ("image_id", "category_id", "score"):
        rows[key] = np.fromiter(map(attrgetter(key), records), _ROW[key], n)
    boxes = chain.from_iterable(map(attrgetter("bbox"), records))
    rows["bbox"] = np.fromiter(boxes, np.float64, 4 * n).reshape(n, 4)
    return rows


_NAMES = ("logits", "features")


def load_sidecar(path: Path, n_rows: int) -> dict[str, Shaped[np.ndarray, "rows _"]]:
    """Load `logits` [rows, classes] and `features` [rows, d], or one of them."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise MissingDataError(f"There is no safetensors file at {path}; check the path.")
    try:
        arrays = load_file(path)
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:
        # the last three are what a type NumPy does not have, as bfloat16, ends in
        raise InvalidDataError(
            f"{path} cannot be read as safetensors: {error}; write float16, float32 or float64."
        ) from error
    if not arrays or set(arrays) - set(_NAMES):
        raise InvalidDataError(
            f"{path} holds {sorted(arrays)}, but logits, features or both are expected; rename "
            f"them."
        )
    for name, values in arrays.items():
        _check(path, name, values, n_rows)
    return arrays


def save_sidecar(path: Path, arrays: Mapping[str, Shaped[np.ndarray, "rows _"]]) -> None:
    """Save arrays as safetensors, as a whole or not at all."""
    from safetensors.numpy import save_file

    with replacing(path) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary)


def _check(path: Path, name: str, array: np.ndarray, n_rows: int) -> None:
    if array.ndim != 2 or array.dtype.kind != "f":
        raise InvalidDataError(
            f"{path}: {name} must be floats in rows and columns, but they are {array.dtype} of "
            f"shape {list(array.shape)}."
        )
    if len(array) != n_rows:
        raise InvalidDataError(
            f"{path}: {name} have {len(array)} rows, but there are {n_rows} detections; "
            f"write one row per record of the list, in its order."
        )
    is_wrong = ~np.isfinite(array).all(axis=1)
    if is_wrong.any():
        raise InvalidDataError(
            f"{path}: row {int(is_wrong.argmax())} of {name} is not finite; look at that detection."
        )


_ROWS_AT_ONCE = 50_000


def load_detections(
    path: str | PathLike[str], truth: CocoTruth, *, sidecar: str | PathLike[str] | None = None
) -> Detections:
    """Load a COCO results file (`.json`, also compressed by gzip) for the images of a truth.

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
    boxes, source = truth.boxes, truth.source
    images = find_images(columns.image_ids, boxes.image_ids, source=source, refuse=refuse)
    class_ids = find_classes(columns.category_ids, truth.categories, source=source, refuse=refuse)
    arrays = {} if sidecar is None else load_sidecar(Path(sidecar), len(class_ids))
    order, offsets = order_by_image(images, boxes.n_images)
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
    """Load a results file as columns in the order of the file, with every number checked."""
    with opened(path) as file:
        columns = decode_results(file)
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
    """Save a COCO results file that `load_detections` reads back to the same numbers.

    Args:
        detections: What to write.
        path: The file; `.gz` compresses. It is replaced as a whole, or not at all.
        categories: Class id of each category id, as in `CocoTruth.categories`.
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
    """Read with `json` and check record by record: text ids, NaN, and all that is wrong."""
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
        raise InvalidDataError(f"{path} does not hold a list; detections are a list of objects.")
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
    """Yield the records as JSON, many at a time; `repr` of a float is the shortest exact text."""
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
