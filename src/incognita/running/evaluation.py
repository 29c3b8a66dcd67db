"""What an evaluation found: the record of every method, and the tables made of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from incognita.errors import unknown_name
from incognita.metrics.intervals import Difference, paired_difference
from incognita.results.method_result import MethodResult
from incognita.running.ranking_results import Measured
from incognita.running.scored_sets import ScoredSet, Scores

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every method on one benchmark and one model.

    Args:
        methods: One record per method, by title; tuned ones beside those with default parameters.
        groups: The splits that are averaged for the ranking: `near` and `far`, or their
            full-spectrum versions.
        measured: Values with their bootstrap replicates, by title; the same replicate of two
            methods was drawn from the same images.
        sets: The rows behind the numbers.
        scores: The score of every row, by title and set.
        skipped: Methods that could not run here, and why.
        failed: Methods that broke off, and why.
        broken: Images that could not be used: set, id, reason.
        notes: What a reader must be told, such as missing data.
        facts: The benchmark, the model, the passes that were made.
    """

    row: ClassVar[str] = "image"

    methods: Mapping[str, MethodResult]
    groups: tuple[str, ...]
    measured: Mapping[str, Measured]
    sets: tuple[ScoredSet, ...]
    scores: Mapping[str, Scores]
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    broken: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def results(self) -> tuple[MethodResult, ...]:
        """The records, best method first."""
        return tuple(self.methods[title] for title in self.ranking())

    @property
    def is_complete(self) -> bool:
        """Whether every image and every method made it."""
        return not self.broken and not self.failed

    def get(self, method: str) -> MethodResult:
        """Give the record of one method."""
        if method not in self.methods:
            raise unknown_name("method of this evaluation", method, self.methods)
        return self.methods[method]

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
        from incognita.results.ranking_table import ranking_table

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
        from incognita.results.ranking_table import search_table

        tuned = [each for each in self.results if each.search and each.search.kind == "tuned"]
        pairs = [(self.methods[each.method], each) for each in tuned if each.method in self.methods]
        return search_table(pairs, self.groups) if pairs else None

    def as_json(self) -> dict[str, Any]:
        """Give everything but the scores of single images for a JSON file."""
        return {
            "ranking": self.ranking(),
            "methods": {title: each.as_json() for title, each in self.methods.items()},
            "behind_best": {title: _as_json(self.behind_best(title)) for title in self.ranking()},
            "skipped": dict(self.skipped),
            "failed": dict(self.failed),
            "broken": [dict(zip(("set", "image", "reason"), b, strict=True)) for b in self.broken],
            "notes": list(self.notes),
            "facts": dict(self.facts),
        }


def _as_json(difference: Difference) -> dict[str, float | None]:
    """Without replicates there are no bounds: NaN, which JSON does not know, becomes null."""
    values = difference._asdict()
    return {name: None if math.isnan(value) else value for name, value in values.items()}
