"""Detections in COCO's results format, with logits and features in a file beside it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from io import BufferedIOBase
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.errors import InvalidDataError
from incognita.files import (
    RepeatedKeyObject,
    check_regular,
    load_json,
    opened,
    replacing,
    replacing_text,
)
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
from incognita.kernels.coco_json import (
    AFTER_LIST,
    BEFORE_LIST,
    MALFORMED,
    N_IDS,
    N_VALUES,
    SHORTEST_RECORD,
    scan_results,
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


_CHUNK = 1 << 20  # bytes; more is not faster
_ROWS_PER_CHUNK = _CHUNK // SHORTEST_RECORD + 1
_N_HARD = 4096


def decode_results(stream: BufferedIOBase) -> ResultColumns | None:
    """Decode a results list chunk by chunk; None if `json` has to look at it.

    The memory is that of the columns, 56 bytes per detection, and of a chunk. Left to `json` are
    image ids that are text, NaN, and whatever is wrong and needs a sentence.
    """
    scan = _Scan(stream)
    while scan.read_chunk():
        if not scan.take_records():
            return None
    return scan.columns if scan.is_complete else None


class _Scan:
    """The state of one scan: a window on the file, and the columns read so far."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self._stream = stream
        self._window = np.zeros(_CHUNK + 1, np.uint8)  # one byte more for the 0 at the end
        self._start = self._end = 0
        self._state = BEFORE_LIST
        self._ids = np.empty((_ROWS_PER_CHUNK, N_IDS), np.int64)
        self._values = np.empty((_ROWS_PER_CHUNK, N_VALUES), np.float64)
        self._hard = np.empty((_N_HARD, 4), np.int64)
        self._n_rows = 0

    @property
    def is_complete(self) -> bool:
        return self._state == AFTER_LIST and self._start == self._end

    @property
    def columns(self) -> ResultColumns:
        ids, values = self._ids[: self._n_rows], self._values[: self._n_rows]
        return ResultColumns(ids[:, 0], ids[:, 1], values[:, :4], values[:, 4])

    def read_chunk(self) -> bool:
        """Move the window on; False at the end of the file."""
        held = self._end - self._start
        if held > len(self._window) // 2:  # one record fills the window
            self._window = np.concatenate([self._window, np.zeros_like(self._window)])
        self._window[:held] = self._window[self._start : self._end]
        n_read = self._stream.readinto(self._window.data[held:-1])
        self._start, self._end = 0, held + n_read
        self._window[self._end] = 0
        return n_read > 0

    def take_records(self) -> bool:
        """Read the whole records in the window; False if something there is not plain."""
        while True:
            before = self._start
            self._make_room()
            ids, values = self._ids[self._n_rows :], self._values[self._n_rows :]
            self._state, self._start, n_rows, n_hard = scan_results(
                self._window, before, self._end, self._state, ids, values, self._hard
            )
            if self._state == MALFORMED:
                return False
            for row, column, start, end in self._hard[:n_hard].tolist():
                values[row, column] = float(self._window[start:end].tobytes())
            self._n_rows += n_rows
            if self._start in (before, self._end):
                return True

    def _make_room(self) -> None:
        """Let the columns grow in place: joining parts would need the memory twice."""
        if self._n_rows + _ROWS_PER_CHUNK > len(self._ids):
            n_rows = len(self._ids) * 9 // 8 + _ROWS_PER_CHUNK
            self._ids.resize((n_rows, N_IDS), refcheck=False)
            self._values.resize((n_rows, N_VALUES), refcheck=False)


_NAMES = ("logits", "features", "covariance")
_FURTHER = ("background", "source_index", "head_index")  # one number per row; see `Detections`


def load_sidecar(path: Path, n_rows: int) -> dict[str, Shaped[np.ndarray, "rows ..."]]:
    """Load `logits` [rows, classes], `features` [rows, d], `covariance` [rows, 4], or some of them.

    `background`, `source_index` and `head_index` of `Detections` may be there too.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    check_regular(path, "safetensors file")
    try:
        arrays = load_file(path)
    except (SafetensorError, TypeError, KeyError, AttributeError, ValueError, OSError) as error:
        # the second to fourth are what a type NumPy does not have, as bfloat16, ends in
        raise InvalidDataError(
            f"{path} cannot be read as safetensors: {error}; write float16, float32 or float64."
        ) from error
    if not set(arrays) & set(_NAMES) or set(arrays) - {*_NAMES, *_FURTHER}:
        raise InvalidDataError(
            f"{path} holds {sorted(arrays)}, but logits, features or both are expected; rename "
            f"them."
        )
    for name, values in arrays.items():
        _check(path, name, values, n_rows)
    return arrays


def sidecar_widths(path: Path) -> dict[str, int]:
    """Return the number of columns of logits and features, without reading them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InvalidDataError(f"{path} cannot be read as safetensors: {error}.") from error
    return {name: shape[1] for name, shape in shapes.items() if len(shape) == 2}


def save_sidecar(path: Path, arrays: Mapping[str, Shaped[np.ndarray, "rows ..."]]) -> None:
    """Save arrays as safetensors, as a whole or not at all."""
    from safetensors.numpy import save_file

    with replacing(path) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary)


def _check(path: Path, name: str, array: np.ndarray, n_rows: int) -> None:
    n_axes, kind = (2 if name in _NAMES else 1), ("i" if name.endswith("_index") else "f")
    if array.ndim != n_axes or array.dtype.kind != kind:
        what = "floats in rows and columns" if name in _NAMES else "one number per row"
        raise InvalidDataError(
            f"{path}: {name} must be {what}, but they are {array.dtype} of shape "
            f"{list(array.shape)}."
        )
    if len(array) != n_rows:
        raise InvalidDataError(
            f"{path}: {name} have {len(array)} rows, but there are {n_rows} detections; "
            f"write one row per record of the list, in its order."
        )
    is_wrong = ~np.isfinite(array if array.ndim == 2 else array[:, None]).all(axis=1)
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
        **arrays,
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
        sidecar: A safetensors file for the logits and features; needed if there are any. It also
            keeps `background`, `source_index` and `head_index`.
    """
    kept = {name: getattr(detections, name) for name in _NAMES}
    arrays = {name: array for name, array in kept.items() if array is not None}
    if bool(arrays) != (sidecar is not None):
        state = f"have {' and '.join(arrays)}" if arrays else "have neither logits nor features"
        advice = "name a sidecar file for them" if arrays else "name no sidecar file"
        raise InvalidDataError(f"The detections {state}; {advice}.")
    further = {name: getattr(detections, name) for name in _FURTHER if arrays}
    arrays |= {name: array for name, array in further.items() if array is not None}
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
