"""Checked columns of a list of JSON objects, with errors that name the record."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from reprlib import Repr
from typing import Any

import numpy as np

from incognita.errors import InvalidDataError
from incognita.files import RepeatedKeyObject
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

    >>> Records(Path("gt.json"), "image", [{"id": 7}, {"id": 9}]).identifiers("id").tolist()
    [7, 9]
    """

    path: Path
    kind: str
    rows: list[Any]

    def __post_init__(self) -> None:
        if set(map(type, self.rows)) <= {dict}:
            return
        for index, row in enumerate(self.rows):
            if not isinstance(row, dict):
                problem = f"is {_shorten.repr(row)}, but an object in braces is expected."
                raise refusal(self.path, self.kind, index, problem)
            if isinstance(row, RepeatedKeyObject):
                raise self.refuse(index, f"holds the key {row.repeated!r} twice; keep one.")

    def __len__(self) -> int:
        return len(self.rows)

    def refuse(self, index: int, problem: str) -> InvalidDataError:
        """Build the error about a record."""
        own_id = self.rows[index].get("id")
        name = "" if own_id is None else f"(id {_shorten.repr(own_id)}) "
        return refusal(self.path, self.kind, index, name + problem)

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
        if not values or not isinstance(values[0], str):
            return self.integers(key)
        self._require(key, values, _is_identifier, f"text without NUL, as {self.kind} 0 has,")
        return np.array(values, np.str_)

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
        self._require(key, values, lambda value: value is None or type(value) is str, "text")
        return values

    def refuse_repeats(self, key: str, values: Sequence[Any]) -> None:
        """Refuse a value that two records share; None may be repeated."""
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
    return isinstance(value, str) and "\0" not in value


def _is_number(value: Any) -> bool:
    return type(value) in _NUMERIC


def _is_box(value: Any) -> bool:
    return type(value) is list and len(value) == 4 and _NUMERIC.issuperset(map(type, value))


def _is_flag(value: Any) -> bool:
    return type(value) in (int, bool) and value in (0, 1)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


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
