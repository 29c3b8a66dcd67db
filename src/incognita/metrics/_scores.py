"""Input validation and tie groups of the metrics on scores.

Columns are returned as read-only views: nothing is copied unnecessarily, and kernels, which are
compiled once per array type, see only one type.
"""

from typing import NamedTuple

import numpy as np

from incognita.containers._checks import as_array
from incognita.errors import InvalidDataError
from incognita.shapes import Bool, Float, Float64, Int, Real, Shaped


class TieGroups(NamedTuple):
    """Rows in falling order of score, and which of them end a tie group."""

    order: Int[np.ndarray, "rows"]
    is_last: Bool[np.ndarray, "rows"]

    def cumulative(self, values: Shaped[np.ndarray, "rows"]) -> Real[np.ndarray, "groups_plus_1"]:
        """Sum values over the rows at or above each distinct score; nothing stands first."""
        sums = np.cumsum(values[self.order])[self.is_last]
        return np.concatenate([np.zeros(1, sums.dtype), sums])


def tie_groups(score: Float[np.ndarray, "rows"]) -> TieGroups:
    """Sort rows by falling score and mark where the score changes.

    >>> groups = tie_groups(np.array([0.5, 0.9, 0.5]))
    >>> groups.is_last.tolist(), groups.cumulative(np.array([1, 1, 1])).tolist()
    ([True, False, True], [0, 1, 3])
    """
    order = np.argsort(score)[::-1]
    falling = score[order]
    is_last = np.ones(len(score), np.bool_)
    np.not_equal(falling[1:], falling[:-1], out=is_last[:-1])
    return TieGroups(order, is_last)


def as_scores(unknown_score: np.ndarray) -> Float[np.ndarray, "rows"]:
    """Return finite scores in one axis; float32 is kept, other types become float64.

    >>> as_scores(np.array([3, 1])).dtype
    dtype('float64')
    """
    score = np.asarray(unknown_score)
    if score.ndim != 1:
        raise InvalidDataError(
            f"unknown_score must have one axis, but its shape is {score.shape}; "
            f"pass one score per row."
        )
    check_numeric("unknown_score", score)
    dtype = np.float32 if score.dtype == np.float32 else np.float64
    check_finite("unknown_score", score)
    return as_array(score, dtype)


def as_mask(name: str, mask: np.ndarray, n_rows: int) -> Bool[np.ndarray, "rows"]:
    """Return one boolean per score; labels such as -1 are refused, because -1 counts as true."""
    mask = np.asarray(mask)
    if mask.dtype != np.bool_:
        raise InvalidDataError(
            f"{name} must be boolean, but is {mask.dtype}; "
            f"compare it with a label, as in labels == -1."
        )
    check_length(name, mask, n_rows)
    return as_array(mask)


def as_truth(is_unknown: np.ndarray, n_rows: int) -> Bool[np.ndarray, "rows"]:
    """Return a mask under which both classes have at least one row."""
    is_unknown = as_mask("is_unknown", is_unknown, n_rows)
    n_unknown = np.count_nonzero(is_unknown)
    if n_unknown in (0, n_rows):
        raise InvalidDataError(
            f"is_unknown marks {n_unknown} of {n_rows} rows, but a ranking needs both classes; "
            f"add {'known' if n_unknown else 'unknown'} rows."
        )
    return is_unknown


def as_weights(
    weights: np.ndarray, is_unknown: Bool[np.ndarray, "rows"]
) -> Float64[np.ndarray, "rows"]:
    """Return weights under which no class has zero weight, scaled to at most 1.

    The scale is a power of two and therefore exact; without it products of tiny weights vanish.
    """
    check_numeric("weights", np.asarray(weights))
    weights = np.asarray(weights, dtype=np.float64)
    check_length("weights", weights, len(is_unknown))
    check_weights("weights", weights)
    for name, is_member in (("unknown", is_unknown), ("known", ~is_unknown)):
        if not weights[is_member].any():
            raise InvalidDataError(
                f"The weights of all {np.count_nonzero(is_member)} {name} rows are zero, "
                f"but a ranking needs both classes; give one of these rows a weight."
            )
    scaled: np.ndarray = np.ldexp(weights, -np.frexp(weights.max())[1])
    return scaled


def check_length(name: str, values: np.ndarray, n_rows: int) -> None:
    """Raise if a column does not have one value per score."""
    if values.shape != (n_rows,):
        raise InvalidDataError(
            f"{name} has shape {values.shape} beside {n_rows} scores; pass one value per score."
        )


def check_numeric(name: str, values: np.ndarray) -> None:
    """Raise if values are not real numbers, such as text.

    >>> check_numeric("unknown_score", np.array(["0.5"]))
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: unknown_score must be numbers, but is <U3; convert it.
    """
    if values.dtype.kind not in "fiub":
        raise InvalidDataError(f"{name} must be numbers, but is {values.dtype}; convert it.")


def check_finite(name: str, values: np.ndarray) -> None:
    """Raise if values contain NaN or infinity, with their number and the first row."""
    is_finite = np.isfinite(values)
    if not is_finite.all():
        row = int(np.argmin(is_finite.reshape(len(values), -1).all(axis=1)))
        raise InvalidDataError(
            f"{name} must be finite, but {np.count_nonzero(~is_finite)} of {values.size} values "
            f"are not, the first in row {row}; repair or drop these rows."
        )


def check_weights(name: str, weights: np.ndarray) -> None:
    """Raise if weights are negative, NaN or infinite."""
    check_finite(name, weights)
    if weights.size and weights.min() < 0:
        is_negative = (weights < 0).reshape(len(weights), -1)
        raise InvalidDataError(
            f"{name} must not be negative, but {np.count_nonzero(is_negative)} of {weights.size} "
            f"values are, the first in row {int(np.argmax(is_negative.any(axis=1)))}; "
            f"pass zero for a row that must not count."
        )


def check_share(name: str, value: float) -> None:
    """Raise if a share is not above 0 and at most 1."""
    if not 0 < value <= 1:
        raise InvalidDataError(
            f"{name} must be above 0 and at most 1, but is {value}; write 95 % as 0.95."
        )
