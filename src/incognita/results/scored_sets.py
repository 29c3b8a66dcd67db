"""The rows that methods score: which images, from which set, known or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from incognita.shapes import Float, Float64, Int

Scores = Mapping[str, Float64[np.ndarray, "n"]]
KNOWN, SHIFTED, TEST = "known", "shifted", "test"  # two groups, and the set of known images
MIXED = "mixed"  # the group of sets in which known and unknown objects stand together


@dataclass(frozen=True, eq=False)
class ScoredSet:
    """One data set as a model saw it.

    Args:
        name: Its name in the benchmark.
        group: `known`, `shifted`, or the group of unknown sets it belongs to, such as `near`.
        image_ids: One per row.
        predicted: The class the model named.
        labels: The true class, for known and shifted images.
    """

    name: str
    group: str
    image_ids: Sequence[str]
    predicted: Int[np.ndarray, "n"]
    labels: Int[np.ndarray, "n"] | None

    def __len__(self) -> int:
        return len(self.image_ids)

    @property
    def is_unknown(self) -> bool:
        """Whether its images belong to no known class."""
        return self.group not in (KNOWN, SHIFTED)


def known_sets(sets: Sequence[ScoredSet], *, with_shifted: bool = False) -> list[ScoredSet]:
    """Give the sets that count as known; with shifted ones in the full-spectrum setting."""
    groups = (KNOWN, SHIFTED) if with_shifted else (KNOWN,)
    return [each for each in sets if each.group in groups]


Replicates = Float[np.ndarray, "replicates"]


# (metric, split) -> the value, then its bootstrap replicates
Measured = dict[tuple[str, str], Replicates]
