"""Tables of unknown scores, CSV or Parquet: one row per image, written by anybody.

    image        what the image is called; rows of one image, such as boxes, belong together
    score        higher means more unknown
    is_unknown   whether the image is of a class the model was not trained on: true, false, 1, 0
    label        true class of a known image, a name or a number; needed for accuracy and risk
    predicted    predicted class, in the same terms; needed for accuracy and risk

Other columns are left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from incognita.errors import InvalidDataError
from incognita.files import check_regular
from incognita.shapes import Bool, Float64, Int

if TYPE_CHECKING:
    import polars

_NEEDED, _OPTIONAL = ("image", "score", "is_unknown"), ("label", "predicted")
_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores and truth of rows, checked.

    Args:
        image_index: The image of each row, from 0 to `n_images` - 1.
        score: Finite; higher means more unknown.
        is_unknown: The truth of each row.
        is_wrong: Whether the predicted class is wrong, false where a row is unknown; None
            without the columns `label` and `predicted`.
    """

    image_index: Int[np.ndarray, "rows"]
    score: Float64[np.ndarray, "rows"]
    is_unknown: Bool[np.ndarray, "rows"]
    is_wrong: Bool[np.ndarray, "rows"] | None

    def __len__(self) -> int:
        return len(self.score)

    @property
    def n_images(self) -> int:
        """The number of different images."""
        return int(self.image_index.max(initial=-1)) + 1

    def count_images(self, keep: Bool[np.ndarray, "rows"]) -> int:
        """Count the images with a row that is kept."""
        return len(np.unique(self.image_index[keep]))


def load_scores(scores: "str | PathLike[str] | polars.DataFrame | Mapping[str, Any]") -> ScoreTable:
    """Load a table of scores from a CSV or Parquet file, a data frame or named columns.

    >>> columns = {"image": ["a", "b"], "score": [0.1, 0.9], "is_unknown": [False, True]}
    >>> load_scores(columns).score.tolist(), load_scores(columns).is_wrong
    ([0.1, 0.9], None)
    """
    import polars

    source = str(scores) if isinstance(scores, str | PathLike) else "the table"
    if isinstance(scores, str | PathLike):
        frame = _read(Path(scores))
    elif isinstance(scores, polars.DataFrame):
        frame = scores
    elif isinstance(scores, Mapping):
        frame = _framed(scores)
    else:
        raise InvalidDataError(
            f"Expected the path of a CSV or Parquet file or a data frame of polars, got "
            f"{type(scores).__name__}."
        )
    _check_columns(frame, source)
    _, index = np.unique(_text(frame["image"], source).to_numpy(), return_inverse=True)
    is_unknown = _truth(frame["is_unknown"], source)
    is_wrong = _is_wrong(frame, is_unknown, source) if _has_classes(frame) else None
    return ScoreTable(index, _numbers(frame["score"], source), is_unknown, is_wrong)


def _framed(columns: Mapping[str, Any]) -> "polars.DataFrame":
    import polars

    lengths = {name: np.size(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:  # polars would repeat a single value
        raise InvalidDataError(f"Expected columns of one length, got {lengths!s:.200}.")
    return polars.DataFrame(dict(columns), strict=False)


def _read(path: Path) -> "polars.DataFrame":
    """Read a file; every cell of a CSV is text, so that one odd cell changes no other."""
    import polars

    check_regular(path, "table of scores", advice="give the path of a CSV or Parquet file")
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise InvalidDataError(
            f"Expected a table of scores that ends in .csv or .parquet, got {path.name}."
        )
    try:
        return (
            polars.read_parquet(path)
            if suffix == ".parquet"
            else polars.read_csv(path, infer_schema=False)
        )
    except (polars.exceptions.PolarsError, OSError, ValueError) as error:
        problem = " ".join(str(error).split())[:120]
        raise InvalidDataError(f"{path} cannot be read ({problem}). Write it again.") from error


def _check_columns(frame: "polars.DataFrame", source: str) -> None:
    for name in _NEEDED:
        if name not in frame.columns:
            given = ", ".join(frame.columns[:20]) or "none"
            raise InvalidDataError(
                f"Expected the columns {', '.join(_NEEDED)} in {source}, got {given:.200}. "
                f"Add {name}."
            )
    if not frame.height:
        raise InvalidDataError(f"Expected rows in {source}, got none. There is nothing to certify.")


def _has_classes(frame: "polars.DataFrame") -> bool:
    return all(name in frame.columns for name in _OPTIONAL)


def _text(column: "polars.Series", source: str) -> "polars.Series":
    import polars

    _check_cells(column, column.is_null().to_numpy(), source, "a value")
    return column.cast(polars.String)


def _numbers(column: "polars.Series", source: str) -> Float64[np.ndarray, "rows"]:
    numbers = _as_floats(column)
    is_odd = ~np.isfinite(numbers)
    _check_cells(column, is_odd, source, "a finite number")
    return numbers


def _as_floats(column: "polars.Series") -> Float64[np.ndarray, "rows"]:
    """Return numbers; NaN where a cell is empty or not a number."""
    import polars

    if column.dtype == polars.String:
        column = column.str.strip_chars()
    elif not column.dtype.is_numeric():
        return np.full(len(column), np.nan)
    return column.cast(polars.Float64, strict=False).fill_null(np.nan).to_numpy()


def _truth(column: "polars.Series", source: str) -> Bool[np.ndarray, "rows"]:
    import polars

    words = column.cast(polars.String).str.strip_chars().str.to_lowercase()
    is_odd = ~words.is_in(list(_TRUTHS)).fill_null(value=False).to_numpy()
    _check_cells(column, is_odd, source, "true or false")
    return words.is_in([word for word, truth in _TRUTHS.items() if truth]).to_numpy()


def _is_wrong(
    frame: "polars.DataFrame", is_unknown: Bool[np.ndarray, "rows"], source: str
) -> Bool[np.ndarray, "rows"]:
    """Compare the classes of known rows: as numbers where all are numbers, else as text."""
    import polars

    is_wrong = np.zeros(frame.height, np.bool_)
    columns = [frame[name] for name in _OPTIONAL]
    for column in columns:
        is_empty = column.is_null().to_numpy() & ~is_unknown
        _check_cells(column, is_empty, source, "a class for every known image")
    known = [column.filter(polars.Series(~is_unknown)) for column in columns]
    label, predicted = (_as_floats(column) for column in known)
    are_numbers = [not np.isnan(numbers).any() for numbers in (label, predicted)]
    if all(are_numbers):
        is_wrong[~is_unknown] = label != predicted
    elif any(are_numbers):
        raise InvalidDataError(
            f"Expected label and predicted in the same terms in {source}, got numbers in one and "
            f"names in the other. Write both as names or both as numbers."
        )
    else:
        names = [column.cast(polars.String).str.strip_chars().to_numpy() for column in known]
        is_wrong[~is_unknown] = names[0] != names[1]
    return is_wrong


def _check_cells(
    column: "polars.Series", is_odd: Bool[np.ndarray, "rows"], source: str, expected: str
) -> None:
    if not is_odd.any():
        return
    row = int(is_odd.argmax())
    raise InvalidDataError(
        f"Expected {expected} in column {column.name} of {source}, got {column[row]!r:.60} in row "
        f"{row + 1} and {int(is_odd.sum()) - 1:,} more. Repair or drop these rows."
    )
