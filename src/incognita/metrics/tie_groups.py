"""Scores from the largest down, with the ends of the groups that share one score.

A threshold cannot part rows of equal score, so curves have one point per tie group and the order
of rows inside a group never matters.
"""

from typing import NamedTuple

import numpy as np

from incognita.shapes import Bool, Float, Int, Real, Shaped


class TieGroups(NamedTuple):
    """Rows in falling order of score, and which of them close a tie group."""

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
