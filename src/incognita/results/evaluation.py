"""What every evaluation gives, of a classifier or of a detector."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from incognita.errors import unknown_name
from incognita.metrics.intervals import Difference, paired_difference
from incognita.results.analysis import (
    Correlations,
    FamilyMean,
    family_means,
    metric_correlations,
    value_of,
)
from incognita.results.method_result import MethodResult
from incognita.results.scored_sets import Measured, ScoredSet, Scores

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings(ABC):
    """The record of every method on one benchmark and one model.

    Args:
        methods: One record per method, by title; tuned ones beside those with default parameters.
        groups: The groups of unknown sets that are averaged for the ranking, such as near and far.
        skipped: Methods that could not run here, and why.
        failed: Methods that broke off, and why.
        failed_images: Images that could not be used: set, id, reason.
        notes: What a reader must be told, such as missing data.
        metadata: The benchmark, the model, the passes that were made.
    """

    methods: Mapping[str, MethodResult]
    groups: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    failed_images: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def ranking(self) -> list[str]:
        """Titles from the best to the worst."""

    @property
    def results(self) -> tuple[MethodResult, ...]:
        """The records, best method first."""
        return tuple(self.methods[title] for title in self.ranking())

    @property
    def is_complete(self) -> bool:
        """Whether every image and every method made it."""
        return not self.failed_images and not self.failed

    def get(self, method: str) -> MethodResult:
        """Give the record of one method."""
        if method not in self.methods:
            raise unknown_name("method of this evaluation", method, self.methods)
        return self.methods[method]

    def as_json(self) -> dict[str, Any]:
        """Give everything but the scores of single rows for a JSON file."""
        return {
            "ranking": self.ranking(),
            "methods": {title: each.as_json() for title, each in self.methods.items()},
            **self._more_json(),
            "skipped": dict(self.skipped),
            "failed": dict(self.failed),
            "broken": [
                dict(zip(("set", "image", "reason"), b, strict=True)) for b in self.failed_images
            ],
            "notes": list(self.notes),
            "facts": dict(self.metadata),
        }

    @abstractmethod
    def _more_json(self) -> dict[str, Any]:
        """Give what only this kind of evaluation has."""


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

    def gap_to_best(self, title: str) -> Difference:
        """How far a method is behind the best one, compared on the same drawn images."""
        best = self.mean_auroc(self.ranking()[0])
        return paired_difference(self.mean_auroc(title), best)

    def table(self, *, width: int = 156) -> "RenderableType":
        """Give the ranking as a table that `rich` prints."""
        from incognita.results.tables.ranking import ranking_table

        behind = {title: self.gap_to_best(title) for title in self.ranking()}
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
        behind = {title: _as_json(self.gap_to_best(title)) for title in self.ranking()}
        return {"behind_best": behind}


def _as_json(difference: Difference) -> dict[str, float | None]:
    """Without replicates there are no bounds: NaN, which JSON does not know, becomes null."""
    values = difference._asdict()
    return {name: None if math.isnan(value) else value for name, value in values.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class DetectorEvaluation(Findings):
    """Every method on one detection benchmark and one detector; its rules are among the facts.

    Args:
        mixed: The sets in which known and unknown objects stand together.
        families: The family of each method, by title.
    """

    row: ClassVar[str] = "box"

    mixed: tuple[str, ...]
    families: Mapping[str, str]

    def ranking(self) -> list[str]:
        """Titles by mean AUROC over the groups; without one, by name at the end."""
        return by_auroc(self.methods, self.groups)

    def known_quality(self) -> dict[str, float]:
        """How good the detector is on known images, by the name of the metric."""
        first = self.results[0]
        return {"AP": first.get("ap", "known").value, "AP50": first.get("ap50", "known").value}

    def correlations(self) -> Correlations:
        """Correlate the metrics over methods and unknown sets (FindMeIfYouCan, figure 15)."""
        return metric_correlations(self.methods.values(), self.groups)

    def family_means(self) -> tuple[FamilyMean, ...]:
        """Average each metric over each family of methods, group by group."""
        return tuple(family_means(self.methods.values(), self.families, self.groups))

    def table(self, *, width: int = 156) -> "RenderableType":
        """Give coverage, both families of metrics, and the mixed sets for `rich` to print."""
        from rich.console import Group

        from incognita.results.tables.detection import coverage_table, detection_table, mixed_table

        first = self.results[0]
        splits = dict.fromkeys(each.split for each in first.results)
        unknown = [s for s in splits if "/" in s and s.partition("/")[0] in self.groups]
        mixed = [f"{name}/all" for name in self.mixed]
        parts: list[RenderableType] = [coverage_table(first, ["known", *unknown, *mixed])]
        if self.groups:
            parts.append(detection_table(self.results, self.groups, width=width))
        parts += [mixed_table(self.results, name, width=width) for name in self.mixed]
        return Group(*parts)

    def further_tables(self) -> "RenderableType | None":
        """Give family means and correlations; None where there are too few methods for either."""
        from rich.console import Group

        from incognita.results.tables.detection import correlation_table, family_table

        if len(self.methods) < 3 or not self.groups:
            return None
        return Group(
            family_table(self.family_means(), self.groups), correlation_table(self.correlations())
        )

    def _more_json(self) -> dict[str, Any]:
        found = self.correlations()
        return {
            "families": [_plain(mean._asdict()) for mean in self.family_means()],
            "correlations": {
                "metrics": list(found.metrics),
                "values": [[_finite(v) for v in row] for row in found.values.tolist()],
                "pairs": found.n_pairs.tolist(),
            },
        }


def by_auroc(methods: Mapping[str, MethodResult], groups: Sequence[str]) -> list[str]:
    """Order titles by mean AUROC over the groups; those without one come last, by name."""
    values = {
        title: float(np.mean([value_of(each, "auroc", group) for group in groups] or [math.nan]))
        for title, each in methods.items()
    }
    return sorted(values, key=lambda t: (math.isnan(values[t]), -np.nan_to_num(values[t]), t))


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _finite(v) if isinstance(v, float) else v for name, v in record.items()}


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
