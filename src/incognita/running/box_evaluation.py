"""What the evaluation of a detector found: the record of every method, and tables made of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from incognita.results.analysis import (
    Correlations,
    FamilyMean,
    family_means,
    metric_correlations,
    value_of,
)
from incognita.results.evaluation import Findings
from incognita.results.method_result import MethodResult

if TYPE_CHECKING:
    from rich.console import RenderableType


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
