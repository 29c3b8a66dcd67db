"""Input validation shared by the containers."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from incognita.errors import InvalidDataError


def check_rows(what: str, **lengths: int | None) -> None:
    """Raise if columns differ in length; None stands for an absent column.

    >>> check_rows("Detections", xyxy=3, confidence=3, logits=None)
    >>> check_rows("Detections", xyxy=3, confidence=2)
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: Expected columns of one length in Detections, got 3 rows of \
xyxy and 2 of confidence.
    """
    present = {name: n for name, n in lengths.items() if n is not None}
    first, n_first = next(iter(present.items()))
    for name, n in present.items():
        if n != n_first:
            raise InvalidDataError(
                f"Expected columns of one length in {what}, got {n_first} rows of {first} "
                f"and {n} of {name}."
            )


def check_offsets(what: str, offsets: np.ndarray, n_images: int, n_rows: int) -> None:
    """Raise if offsets do not cut the rows into one piece per image."""
    if len(offsets) != n_images + 1:
        raise InvalidDataError(
            f"Expected {n_images + 1} offsets for {n_images} images in {what}, got {len(offsets)}."
        )
    if offsets[0] != 0 or offsets[-1] != n_rows:
        raise InvalidDataError(
            f"Expected offsets of {what} from 0 to the number of rows, {n_rows}, "
            f"got {offsets[0]} to {offsets[-1]}."
        )
    if (falls := np.diff(offsets) < 0).any():
        image = int(falls.argmax())
        raise InvalidDataError(
            f"Expected offsets of {what} that never decrease, "
            f"got {offsets[image + 1]} after {offsets[image]} at position {image + 1}."
        )


def check_unique(what: str, image_ids: np.ndarray) -> None:
    """Raise if an image id is repeated: that image would count twice in every metric."""
    values, counts = np.unique(image_ids, return_counts=True)
    if len(values) != len(image_ids):
        first = int((counts > 1).argmax())
        raise InvalidDataError(
            f"Image id {values[first]!s} appears {counts[first]} times in {what}; "
            f"ids must be unique."
        )


def check_finite(what: str, column: str, values: np.ndarray) -> None:
    """Raise if values contain NaN or infinity, naming the first such row."""
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InvalidDataError(
            f"{column} of {what} must be finite, but row {row} holds {values[row]!s}."
        )


def check_boxes(what: str, xyxy: np.ndarray) -> None:
    """Raise if a right or lower edge lies before the left or upper one."""
    check_finite(what, "xyxy", xyxy)
    is_negative = (xyxy[:, 2] < xyxy[:, 0]) | (xyxy[:, 3] < xyxy[:, 1])
    if is_negative.any():
        row = int(np.flatnonzero(is_negative)[0])
        raise InvalidDataError(
            f"Expected x1 <= x2 and y1 <= y2 in xyxy of {what}, "
            f"got {xyxy[row].tolist()} in row {row}."
        )


def check_class_ids(what: str, class_ids: np.ndarray, n_classes: int) -> None:
    """Raise if a class id is outside the list of classes."""
    unsigned = np.ascontiguousarray(class_ids).view(f"u{class_ids.dtype.itemsize}")
    if len(class_ids) and unsigned.max() >= n_classes:  # a negative id is a large unsigned number
        row = int(np.flatnonzero((class_ids < 0) | (class_ids >= n_classes))[0])
        raise InvalidDataError(
            f"Expected class_ids of {what} from 0 to {n_classes - 1}, "
            f"got {class_ids[row]} in row {row}."
        )


def check_mask(what: str, mask: Any, n_rows: int) -> None:
    """Raise if a mask is not one boolean per row."""
    marks = getattr(mask, "dtype", None)
    if marks is None or "bool" not in str(marks) or len(mask.shape) != 1:
        raise InvalidDataError(
            f"Expected a boolean mask to select {what}, one mark per row, got {mask!r:.80}."
        )
    if len(mask) != n_rows:
        raise InvalidDataError(
            f"Expected a mask of {n_rows} marks, one per row of {what}, got {len(mask)}."
        )


def check_sizes(what: str, sizes: np.ndarray, xyxy: np.ndarray) -> None:
    """Raise if widths and heights differ from those of the boxes by more than rounding."""
    for side in range(2):
        high = xyxy[:, 2 + side]
        gap = high - xyxy[:, side]
        gap -= sizes[:, side]
        np.abs(gap, out=gap)
        if gap.max(initial=0) <= 1e-6:  # the least slack of all, and usually enough
            continue
        is_wrong = gap > 1e-6 * (1 + np.abs(high))
        if is_wrong.any():
            row = int(np.flatnonzero(is_wrong)[0])
            raise InvalidDataError(
                f"Expected sizes of {what} to be the widths and heights of the boxes, "
                f"got {sizes[row].tolist()} for the box {xyxy[row].tolist()} in row {row}."
            )


def check_areas(what: str, sizes: np.ndarray) -> None:
    """Raise if the area of a box overflows."""
    with np.errstate(over="ignore"):
        is_huge = ~np.isfinite(sizes[:, 0] * sizes[:, 1])
    if is_huge.any():
        row = int(np.flatnonzero(is_huge)[0])
        raise InvalidDataError(
            f"Expected boxes of {what} with a finite area, "
            f"got a size of {sizes[row].tolist()} in row {row}."
        )


def as_flags(what: str, column: str, values: Any) -> np.ndarray:
    """Return values as a column of booleans; 0 and 1 are accepted, text is not."""
    array = as_column(what, column, values)
    if array.size and array.dtype.kind not in "biu":
        raise InvalidDataError(f"Expected booleans in {column} of {what}, got {array.dtype}.")
    return array.astype(np.bool_)


def check_parts(parts: Sequence[Any]) -> None:
    """Raise if there is no part to join."""
    if not parts:
        raise InvalidDataError("Expected at least one part to join, got none.")


def as_rows(what: str, column: str, values: Any, n_columns: int) -> np.ndarray:
    """Return values as rows of floats; an empty sequence becomes zero rows."""
    rows = np.asarray(values, np.float64)
    if not rows.size:
        return rows.reshape(0, n_columns)
    if rows.ndim != 2 or rows.shape[1] != n_columns:
        raise InvalidDataError(
            f"Expected {n_columns} numbers per row in {column} of {what}, "
            f"got an array of shape {list(rows.shape)}."
        )
    return rows


def as_column(what: str, column: str, values: Any) -> np.ndarray:
    """Return values as a one-dimensional array."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidDataError(
            f"Expected one column as {column} of {what}, got an array of shape {list(array.shape)}."
        )
    return array


def as_floats(what: str, column: str, values: Any) -> np.ndarray:
    """Return values as a column of floats; float32 is kept, other types become float64."""
    array = as_column(what, column, values)
    if array.dtype.kind == "c":
        raise InvalidDataError(f"Expected real numbers in {column} of {what}, got {array.dtype}.")
    try:
        return array if array.dtype == np.float32 else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(f"Expected numbers in {column} of {what}: {error}.") from error


def as_integers(what: str, column: str, values: Any, dtype: Any) -> np.ndarray:
    """Return values as a column of integers; fractions are refused, not truncated."""
    array = as_column(what, column, values)
    if array.size and array.dtype.kind not in "iu":
        raise InvalidDataError(f"Expected integers in {column} of {what}, got {array.dtype}.")
    cast = array.astype(dtype)
    if not np.array_equal(cast, array):
        row = int(np.flatnonzero(cast != array)[0])
        raise InvalidDataError(
            f"Expected {np.dtype(dtype)} in {column} of {what}, got {array[row]} in row {row}."
        )
    return cast


def as_ids(what: str, image_ids: Any) -> np.ndarray:
    """Return image ids as a column of integers or of text; numpy would mix the two silently."""
    if not isinstance(image_ids, np.ndarray):
        kinds = {isinstance(image_id, str) for image_id in image_ids}
        if len(kinds) > 1:
            raise InvalidDataError(
                f"Expected image_ids of {what} to be all integers or all text, got both."
            )
    array = as_column(what, "image_ids", image_ids)
    if not array.size:
        return array.astype(np.int64) if array.dtype.kind == "f" else array
    if array.dtype.kind not in "iuU":
        raise InvalidDataError(
            f"Expected integers or text as image_ids of {what}, got {array.dtype}."
        )
    return array


def as_matrix(what: str, column: str, values: Any) -> np.ndarray:
    """Return values as a matrix of finite floats, one row per box."""
    array = np.asarray(values)
    array = array.astype(np.float64) if array.dtype.kind in "iu" else array
    if array.ndim != 2 or array.dtype.kind != "f":
        raise InvalidDataError(
            f"Expected a matrix of floats as {column} of {what}, one row per box, "
            f"got {array.dtype} of shape {list(array.shape)}."
        )
    check_finite(what, column, array)
    return array


def as_array(values: Any, dtype: Any = None) -> np.ndarray:
    """Return values as a contiguous, read-only array; memory is shared where possible."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def concatenated_offsets(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Concatenate the per-image offsets of several containers."""
    counts = [np.diff(offsets) for offsets in parts]
    return np.concatenate([[0], np.cumsum(np.concatenate(counts))])
