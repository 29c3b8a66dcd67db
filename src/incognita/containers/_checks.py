"""The checks every container makes at its door."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from incognita.errors import InvalidDataError


def check_rows(what: str, **lengths: int | None) -> None:
    """Refuse columns of different lengths; None stands for a column that is absent.

    >>> check_rows("Detections", xyxy=3, confidence=3, logits=None)
    >>> check_rows("Detections", xyxy=3, confidence=2)
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: Detections need columns of one length, but xyxy has 3 rows \
and confidence has 2.
    """
    present = {name: n for name, n in lengths.items() if n is not None}
    first, n_first = next(iter(present.items()))
    for name, n in present.items():
        if n != n_first:
            raise InvalidDataError(
                f"{what} need columns of one length, but {first} has {n_first} rows "
                f"and {name} has {n}."
            )


def check_offsets(what: str, offsets: np.ndarray, n_images: int, n_rows: int) -> None:
    """Refuse offsets that do not cut the rows into one piece per image."""
    if len(offsets) != n_images + 1:
        raise InvalidDataError(
            f"{what} of {n_images} images need {n_images + 1} offsets, but {len(offsets)} came."
        )
    if offsets[0] != 0 or offsets[-1] != n_rows:
        raise InvalidDataError(
            f"The offsets of {what} must rise from 0 to the number of rows, {n_rows}, "
            f"but they go from {offsets[0]} to {offsets[-1]}."
        )
    if (falls := np.diff(offsets) < 0).any():
        image = int(falls.argmax())
        raise InvalidDataError(
            f"The offsets of {what} must never fall, "
            f"but {offsets[image + 1]} follows {offsets[image]} at position {image + 1}."
        )


def check_unique(what: str, image_ids: np.ndarray) -> None:
    """Refuse repeated image ids: a repeated image counts twice in every metric."""
    values, counts = np.unique(image_ids, return_counts=True)
    if len(values) != len(image_ids):
        first = int((counts > 1).argmax())
        raise InvalidDataError(
            f"Image id {values[first]!s} appears {counts[first]} times in {what}; "
            f"every id must be there once."
        )


def check_finite(what: str, column: str, values: np.ndarray) -> None:
    """Refuse NaN and infinity, naming the first row that holds one."""
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InvalidDataError(
            f"{column} of {what} must be finite, but row {row} holds {values[row]!s}."
        )


def check_boxes(what: str, xyxy: np.ndarray) -> None:
    """Refuse boxes whose right or lower edge lies before the left or upper one."""
    check_finite(what, "xyxy", xyxy)
    is_negative = (xyxy[:, 2] < xyxy[:, 0]) | (xyxy[:, 3] < xyxy[:, 1])
    if is_negative.any():
        row = int(np.flatnonzero(is_negative)[0])
        raise InvalidDataError(
            f"xyxy of {what} must have x1 <= x2 and y1 <= y2, "
            f"but row {row} is {xyxy[row].tolist()}."
        )


def check_class_ids(what: str, class_ids: np.ndarray, n_classes: int) -> None:
    """Refuse class ids outside the list of classes."""
    unsigned = np.ascontiguousarray(class_ids).view(f"u{class_ids.dtype.itemsize}")
    if len(class_ids) and unsigned.max() >= n_classes:  # a negative id is a large unsigned number
        row = int(np.flatnonzero((class_ids < 0) | (class_ids >= n_classes))[0])
        raise InvalidDataError(
            f"class_ids of {what} must be at least 0 and below the number of classes, "
            f"{n_classes}, but row {row} is {class_ids[row]}."
        )


def check_mask(what: str, mask: Any, n_rows: int) -> None:
    """Refuse a mask that does not say of each row whether to keep it."""
    marks = getattr(mask, "dtype", None)
    if marks is None or "bool" not in str(marks) or len(mask.shape) != 1:
        raise InvalidDataError(
            f"{what} are chosen by a mask of booleans, one per row, but {mask!r:.80} came."
        )
    if len(mask) != n_rows:
        raise InvalidDataError(
            f"A mask over {what} needs one mark per row, {n_rows}, but {len(mask)} came."
        )


def check_sizes(what: str, sizes: np.ndarray, xyxy: np.ndarray) -> None:
    """Refuse widths and heights that are not those of the boxes, up to rounding."""
    slack = 1e-6 * (1 + np.abs(xyxy[:, 2:]))
    is_wrong = (np.abs(xyxy[:, 2:] - xyxy[:, :2] - sizes) > slack).any(axis=1)
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise InvalidDataError(
            f"sizes of {what} must be the widths and heights of the boxes, "
            f"but row {row} is {sizes[row].tolist()} for the box {xyxy[row].tolist()}."
        )


def check_areas(what: str, sizes: np.ndarray) -> None:
    """Refuse boxes so large that their area is no number."""
    with np.errstate(over="ignore"):
        is_huge = ~np.isfinite(sizes[:, 0] * sizes[:, 1])
    if is_huge.any():
        row = int(np.flatnonzero(is_huge)[0])
        raise InvalidDataError(
            f"Boxes of {what} must have a finite area, "
            f"but row {row} is {sizes[row].tolist()} large."
        )


def as_flags(what: str, column: str, values: Any) -> np.ndarray:
    """Give values as a column of booleans; 0 and 1 will do, text will not."""
    array = as_column(what, column, values)
    if array.size and array.dtype.kind not in "biu":
        raise InvalidDataError(f"{column} of {what} must be booleans, but {array.dtype} came.")
    return array.astype(np.bool_)


def check_parts(parts: Sequence[Any]) -> None:
    """Refuse to join nothing: it would have no classes, no columns and no method."""
    if not parts:
        raise InvalidDataError("There is nothing to join; give at least one part.")


def as_rows(what: str, column: str, values: Any, n_columns: int) -> np.ndarray:
    """Give values as rows of floats; no values at all are no rows."""
    rows = np.asarray(values, np.float64)
    if not rows.size:
        return rows.reshape(0, n_columns)
    if rows.ndim != 2 or rows.shape[1] != n_columns:
        raise InvalidDataError(
            f"{column} of {what} needs {n_columns} numbers per row, "
            f"but an array of shape {list(rows.shape)} came."
        )
    return rows


def as_column(what: str, column: str, values: Any) -> np.ndarray:
    """Give values as one column."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidDataError(
            f"{column} of {what} must be one column, "
            f"but an array of shape {list(array.shape)} came."
        )
    return array


def as_floats(what: str, column: str, values: Any) -> np.ndarray:
    """Give values as a column of floats; float32 is kept, because sorting it is twice as fast."""
    array = as_column(what, column, values)
    if array.dtype.kind == "c":
        raise InvalidDataError(f"{column} of {what} must be real numbers, but complex ones came.")
    try:
        return array if array.dtype == np.float32 else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(f"{column} of {what} must be numbers: {error}.") from error


def as_integers(what: str, column: str, values: Any, dtype: Any) -> np.ndarray:
    """Give values as a column of integers; a fraction is refused, not cut off."""
    array = as_column(what, column, values)
    if array.size and array.dtype.kind not in "iu":
        raise InvalidDataError(
            f"{column} of {what} must be integers, but numbers of type {array.dtype} came."
        )
    cast = array.astype(dtype)
    if not np.array_equal(cast, array):
        row = int(np.flatnonzero(cast != array)[0])
        raise InvalidDataError(
            f"{column} of {what} must fit into {np.dtype(dtype)}, but row {row} is {array[row]}."
        )
    return cast


def as_ids(what: str, image_ids: Any) -> np.ndarray:
    """Give image ids as one column of integers or of text; numpy would mix the two silently."""
    if not isinstance(image_ids, np.ndarray):
        kinds = {isinstance(image_id, str) for image_id in image_ids}
        if len(kinds) > 1:
            raise InvalidDataError(
                f"image_ids of {what} must be all integers or all text, but both came."
            )
    array = as_column(what, "image_ids", image_ids)
    if not array.size:
        return array.astype(np.int64) if array.dtype.kind == "f" else array
    if array.dtype.kind not in "iuU":
        raise InvalidDataError(
            f"image_ids of {what} must be integers or text, but {array.dtype} came."
        )
    return array


def as_matrix(what: str, column: str, values: Any) -> np.ndarray:
    """Give values as a matrix of finite numbers, one row per box."""
    array = np.asarray(values)
    array = array.astype(np.float64) if array.dtype.kind in "iu" else array
    if array.ndim != 2 or array.dtype.kind != "f":
        raise InvalidDataError(
            f"{column} of {what} must be a matrix of floats, one row per box, "
            f"but {array.dtype} of shape {list(array.shape)} came."
        )
    check_finite(what, column, array)
    return array


def as_array(values: Any, dtype: Any = None) -> np.ndarray:
    """Give values as a contiguous array that nobody can write to through the container."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def concatenated_offsets(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Join per-image offsets of several containers into one list of offsets."""
    counts = [np.diff(offsets) for offsets in parts]
    return np.concatenate([[0], np.cumsum(np.concatenate(counts))])
