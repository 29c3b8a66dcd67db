"""What an evaluation found: the record of every method, and the tables made of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from incognita.evaluation.classifier_metrics import Measured
from incognita.metrics.intervals import Difference, paired_difference
from incognita.results.evaluation import Findings
from incognita.results.scored_sets import ScoredSet, Scores

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation(Findings):
    """Every method on one benchmark and one classifier; `groups` may be full-spectrum ones.

    Args:
        measured: Values with their bootstrap replicates, by title; the same replicate of two
            methods was drawn from the same images.
        sets: The rows behind the numbers.
        scores: The score of every row, by title and set.
    """

    row: ClassVar[str] = "image"

    measured: Mapping[str, Measured]
    sets: tuple[ScoredSet, ...]
    scores: Mapping[str, Scores]

    def mean_auroc(self, title: str) -> np.ndarray:
        """The mean AUROC over the groups, then its replicates: what the ranking goes by."""
        mine = self.measured[title]
        return np.asarray(np.mean([mine["auroc", group] for group in self.groups], axis=0))

    def ranking(self) -> list[str]:
        """Titles from the best to the worst; of equal ones the first name comes first."""
        return sorted(self.methods, key=lambda title: (-self.mean_auroc(title)[0], title))

    def behind_best(self, title: str) -> Difference:
        """How far a method is behind the best one, compared on the same drawn images."""
        best = self.mean_auroc(self.ranking()[0])
        return paired_difference(self.mean_auroc(title), best)

    def table(self, *, width: int = 156) -> "RenderableType":
        """Give the ranking as a table that `rich` prints."""
        from incognita.results.tables.ranking import ranking_table

        behind = {title: self.behind_best(title) for title in self.ranking()}
        return ranking_table(self.results, self.groups, behind, width=width)

    def known_quality(self) -> dict[str, float]:
        """How good the model is on known images, by the name of the metric."""
        return {"accuracy": self.results[0].get("accuracy", "known").value}

    def further_tables(self) -> "RenderableType | None":
        """Give what follows the ranking: the search, if there was one."""
        return self.search_table()

    def search_table(self) -> "RenderableType | None":
        """Give defaults and tuned parameters side by side; None where nothing was searched."""
        from incognita.results.tables.ranking import search_table

        tuned = [each for each in self.results if each.search and each.search.kind == "tuned"]
        pairs = [(self.methods[each.method], each) for each in tuned if each.method in self.methods]
        return search_table(pairs, self.groups) if pairs else None

    def _more_json(self) -> dict[str, Any]:
        behind = {title: _as_json(self.behind_best(title)) for title in self.ranking()}
        return {"behind_best": behind}


def _as_json(difference: Difference) -> dict[str, float | None]:
    """Without replicates there are no bounds: NaN, which JSON does not know, becomes null."""
    values = difference._asdict()
    return {name: None if math.isnan(value) else value for name, value in values.items()}
