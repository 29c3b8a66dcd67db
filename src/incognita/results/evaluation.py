"""An evaluation: the record of every method on one benchmark and one model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from incognita.containers.dataset import Dataset
from incognita.errors import count, unknown_name
from incognita.metrics.measure import Difference, mean_of_values, paired_difference
from incognita.results.analysis import (
    Correlations,
    FamilyMean,
    family_means,
    metric_correlations,
    place_without_auroc,
    value_of,
)
from incognita.results.export import WIDTH, Report
from incognita.results.method_result import MethodResult
from incognita.results.result import Split
from incognita.results.score_tables import Measured, ScoredSet, Scores

if TYPE_CHECKING:
    import polars
    from rich.console import RenderableType

N_NAMED = 9  # failed images that are named
TABLES = {"image": "ranking", "box": "detection"}  # the module that lays out tables, by row
# how good the model is on known images, by row
QUALITY = {"image": {"accuracy": "accuracy"}, "box": {"AP": "ap", "AP50": "ap50"}}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Evaluation(Report):
    """Every method on one benchmark and one model; its rows are images or boxes.

    Args:
        row: `image` for a classifier, `box` for a detector.
        methods: One record per method, by title; tuned ones beside those with default parameters.
        groups: The groups of unknown sets that the ranking averages, such as near and far.
        families: The family of each method, by title.
        mixed: For a detector, the sets with known and unknown objects in one image.
        measured: For a classifier, values with their bootstrap replicates, by title; the same
            replicate of two methods was drawn from the same images.
        sets: For a classifier, the images behind the numbers.
        scores: For a classifier, the score of every image, by title and set.
        boxes: For a detector, the table of every scored box, by title.
        objects: For a detector, the table of every annotated object; None where an earlier version
            stored the run.
        images: The data sets behind the numbers, by name, where the run was made in this process.
        skipped: Methods that cannot run here, and why.
        failed: Methods that failed, and why.
        failed_images: Images that could not be used: set, id, reason.
        notes: Notes for the reader, such as missing data.
        metadata: The benchmark, the model, the passes that were run.
    """

    row: Literal["image", "box"]
    methods: Mapping[str, MethodResult]
    groups: tuple[Split, ...]
    families: Mapping[str, str] = field(default_factory=dict)
    mixed: tuple[str, ...] = ()
    measured: Mapping[str, Measured] = field(default_factory=dict)
    sets: tuple[ScoredSet, ...] = ()
    scores: Mapping[str, Scores] = field(default_factory=dict)
    boxes: Mapping[str, "polars.DataFrame"] = field(default_factory=dict)
    objects: "polars.DataFrame | None" = None
    images: Mapping[str, Dataset] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    failed_images: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        benchmark = self.metadata.get("benchmark", "?")
        best = f", best {self.ranking()[0]}" if self.methods else ""
        n_methods = count(len(self.methods), "method")
        return f"Evaluation({benchmark}, {self.model_name}, {n_methods}{best})"

    @property
    def model_name(self) -> str:
        """What the model is called: the name given to it, or one made from its class or file."""
        return str(self.metadata.get("name", self.metadata.get("model", "?")))

    def mean_auroc(self, title: str) -> np.ndarray:
        """Return the mean AUROC over the groups, then its replicates where there are any."""
        if title in self.measured:
            values = [self.measured[title]["auroc", group] for group in self.groups]
        else:
            values = [np.array([value_of(self.methods[title], "auroc", g)]) for g in self.groups]
        return mean_of_values(values) if values else np.array([math.nan])

    def ranking(self) -> list[str]:
        """Return the titles by mean AUROC over the groups, ties by name.

        Those without AUROC, such as the own labels of an open-set detector, follow by AP_U, then
        R_U, then nOSE.
        """
        splits = self.groups or [Split(name, "all") for name in self.mixed]

        def place(title: str) -> tuple[Any, ...]:
            auroc = float(self.mean_auroc(title)[0])
            without = place_without_auroc(self.methods[title], splits) if math.isnan(auroc) else ()
            return math.isnan(auroc), -np.nan_to_num(auroc), without, title

        return sorted(self.methods, key=place)

    @property
    def results(self) -> tuple[MethodResult, ...]:
        """The records, best method first."""
        return tuple(self.methods[title] for title in self.ranking())

    @property
    def distinct_results(self) -> tuple[MethodResult, ...]:
        """The records, best method first, without tuned ones that repeat the default numbers."""
        same = self.unchanged_by_search()
        return tuple(r for r in self.results if not (r.title.tuned and r.method in same))

    def unchanged_by_search(self) -> list[str]:
        """Return the methods whose tuned numbers are those of the default parameters."""
        tuned = [record for record in self.methods.values() if record.title.tuned]
        return [record.method for record in tuned if self._is_as_default(record)]

    def _is_as_default(self, tuned: MethodResult) -> bool:
        default = self.methods.get(tuned.method)
        return default is not None and _numbers(default) == _numbers(tuned)

    @property
    def is_complete(self) -> bool:
        """Whether every set was there, and every image and every method succeeded."""
        return not self.failed_images and not self.failed and not self.metadata.get("absent")

    def get(self, method: str) -> MethodResult:
        """Return the record of one method."""
        if method not in self.methods:
            raise unknown_name("method of this evaluation", method, self.methods)
        return self.methods[method]

    def gap_to_best(self, title: str) -> Difference:
        """Compute the difference to the best method, compared on the same replicates."""
        best = self.mean_auroc(self.ranking()[0])
        return paired_difference(self.mean_auroc(title), best)

    def known_quality(self) -> dict[str, float]:
        """Return how good the model is on known images, by the name of the metric."""
        first = self.results[0]
        return {title: first.get(m, "known").value for title, m in QUALITY[self.row].items()}

    def correlations(self) -> Correlations:
        """Correlate the metrics over methods and unknown sets (FindMeIfYouCan, figure 15)."""
        return metric_correlations(self.methods.values(), self.groups)

    def family_means(self) -> tuple[FamilyMean, ...]:
        """Average each metric over each family of methods, group by group."""
        return tuple(family_means(self.methods.values(), self.families, self.groups))

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return the main table that `rich` prints."""
        return self._tables().evaluation_table(self, width=width)  # type: ignore[no-any-return]

    def further_tables(self, *, width: int = WIDTH) -> "RenderableType | None":
        """Return the tables that follow the main one, if there are any."""
        return self._tables().further_tables(self, width=width)  # type: ignore[no-any-return]

    def _tables(self) -> ModuleType:
        return import_module(f"incognita.results.tables.{TABLES[self.row]}")

    def remarks(self) -> list[tuple[str, str]]:
        """Return the notes, the methods that were skipped or failed, and the images that failed."""
        images = [f"{image} of {name}: {why}" for name, image, why in self.failed_images]
        if len(images) > N_NAMED:
            images[N_NAMED:] = [f"and {len(images) - N_NAMED} more"]
        same = ", ".join(self.unchanged_by_search())
        return [
            *(("note", note) for note in self.notes),
            *(("missing set", f"{k}: {at}") for k, at in self.metadata.get("absent", {}).items()),
            *([("note", f"the search changed no number of {same}")] if same else []),
            *(("skipped", f"{names}: {why}") for why, names in _by_reason(self.skipped).items()),
            *(("failed", f"{names}: {why}") for why, names in _by_reason(self.failed).items()),
            *(("failed image", image) for image in images),
        ]

    def summary(self) -> str:
        """Return the model, its quality on known images, the passes, and the best methods."""
        best = [
            f"{k}. {title}: {self._in_words(title)}" for k, title in enumerate(self.ranking(), 1)
        ]
        return "\n".join([self.headline(), *best[:3]])

    def _in_words(self, title: str) -> str:
        values = {group: value_of(self.methods[title], "auroc", group) for group in self.groups}
        return ", ".join(
            f"AUROC {'-' if math.isnan(value) else f'{100 * value:.1f} %'} on {group}"
            for group, value in values.items()
        )

    def headline(self) -> str:
        """Return one line: the benchmark, the model, its quality, and the passes it took."""
        known = "".join(
            f", {title} {100 * value:.1f} %"
            for title, value in self.known_quality().items()
            if not math.isnan(value)
        )
        boxes = boxes_in_words(self.results[0].thresholds)
        done = self.metadata["passes"]
        passes = (
            f"{count(done['images'], 'image')} through the network, {done['forward']:,} forward "
            f"and {count(done['backward'], 'backward pass', 'backward passes')}"
            if done["images"]
            else "nothing left to run through the network"
        )
        benchmark = f"{self.metadata['benchmark']} v{self.metadata['version']}"
        return f"{benchmark}: {self.model_name}{known}{boxes}; {passes}"

    def records(self) -> list[dict[str, Any]]:
        """Return one record per method, metric, convention and split, best method first."""
        return [
            {"method": str(record.title), **result.as_row()}
            for record in self.results
            for result in record.results
        ]

    def as_json(self) -> dict[str, Any]:
        """Return everything but the scores of single rows for a JSON file."""
        return {
            "ranking": self.ranking(),
            "methods": {title: record.as_json() for title, record in self.methods.items()},
            **(self._analysis() if self.row == "box" else self._gaps()),
            "skipped": dict(self.skipped),
            "failed": dict(self.failed),
            "broken": [
                {"set": name, "image": image, "reason": reason}
                for name, image, reason in self.failed_images
            ],
            "notes": list(self.notes),
            "facts": dict(self.metadata),
        }

    def _gaps(self) -> dict[str, Any]:
        gaps = {title: self.gap_to_best(title)._asdict() for title in self.ranking()}
        return {"behind_best": {title: _without_nan(gap) for title, gap in gaps.items()}}

    def _analysis(self) -> dict[str, Any]:
        found = self.correlations()
        return {
            "families": [_without_nan(mean._asdict()) for mean in self.family_means()],
            "correlations": {
                "metrics": list(found.metrics),
                "values": [[_finite(v) for v in row] for row in found.values.tolist()],
                "pairs": found.n_pairs.tolist(),
            },
        }


def boxes_in_words(thresholds: Mapping[str, Mapping[str, Any]]) -> str:
    """Return which boxes of a detector are scored, as the end of a sentence."""
    chosen = thresholds.get("t*", {})
    values = [value for value in chosen.get("per class", []) if isinstance(value, float)]
    if not values:
        return ""
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    shown = f"{values[0]:.3f}" if len(set(values)) == 1 else f"{low} to {high}"
    return f", boxes with confidence ≥ t* = {shown} ({chosen['policy']}, {chosen['chosen on']})"


def _by_reason(reasons: Mapping[str, str]) -> dict[str, str]:
    """Join the names that have a reason in common.

    >>> _by_reason({"odin": "needs gradients", "msp": "failed", "godin": "needs gradients"})
    {'needs gradients': 'odin, godin', 'failed': 'msp'}
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return {reason: ", ".join(same) for reason, same in names.items()}


def _numbers(record: MethodResult) -> list[dict[str, Any]]:
    return [result.as_json() for result in record.results]


def _without_nan(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _finite(v) if isinstance(v, float) else v for name, v in record.items()}


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
