"""How unknown each image or box is, with the truth of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from incognita.containers._checks import (
    as_array,
    as_column,
    as_floats,
    as_ids,
    check_finite,
    check_mask,
    check_parts,
    check_rows,
)
from incognita.errors import InvalidDataError
from incognita.shapes import Bool


@dataclass(frozen=True, eq=False)
class UnknownScores:
    """One unknown score per row; higher means more unknown, and unknown is the positive class.

    Args:
        image_ids: The image of each row; a detector may have several rows per image, or none.
        unknown_score: What a method gave.
        is_unknown: Whether the row really is unknown.
        method: Who gave the scores, for tables.

    >>> scores = UnknownScores(["a", "b"], [0.1, 0.8], [False, True], method="energy")
    >>> len(scores), scores[scores.is_unknown].image_ids.tolist()
    (2, ['b'])
    """

    image_ids: Any
    unknown_score: Any
    is_unknown: Any
    method: str = ""

    def __post_init__(self) -> None:
        what = "UnknownScores"
        score = as_floats(what, "unknown_score", self.unknown_score)
        truth = as_column(what, "is_unknown", self.is_unknown)
        object.__setattr__(self, "image_ids", as_array(as_ids(what, self.image_ids)))
        object.__setattr__(self, "unknown_score", as_array(score))
        object.__setattr__(self, "is_unknown", as_array(truth, np.bool_))
        rows = {n: len(getattr(self, n)) for n in ("image_ids", "unknown_score", "is_unknown")}
        check_rows("UnknownScores", **rows)
        check_finite("UnknownScores", "unknown_score", self.unknown_score)

    def __len__(self) -> int:
        return len(self.unknown_score)

    def __getitem__(self, keep: Bool[np.ndarray, "rows"]) -> "UnknownScores":
        """Keep the rows that a mask marks."""
        check_mask("UnknownScores", keep, len(self))
        columns = (self.image_ids[keep], self.unknown_score[keep], self.is_unknown[keep])
        return UnknownScores(*columns, method=self.method)

    @classmethod
    def empty(cls, method: str = "") -> "UnknownScores":
        """Give scores of no row."""
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_), method)

    @classmethod
    def concatenate(cls, parts: Sequence["UnknownScores"]) -> "UnknownScores":
        """Join the rows of several sets scored by one method."""
        check_parts(parts)
        methods = {part.method for part in parts}
        if len(methods) > 1:
            raise InvalidDataError(
                f"Scores of different methods cannot be joined: {sorted(methods)}."
            )
        image_ids = np.concatenate([part.image_ids for part in parts])
        score = np.concatenate([part.unknown_score for part in parts])
        is_unknown = np.concatenate([part.is_unknown for part in parts])
        return cls(image_ids, score, is_unknown, methods.pop())
