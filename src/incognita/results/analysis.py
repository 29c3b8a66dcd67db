"""Analyses over many results: means over families of methods, correlations among metrics."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from incognita.errors import UnknownNameError
from incognita.metrics.catalog import Direction, get_metric
from incognita.results.method_result import MethodResult
from incognita.results.result import ALL_BOXES, Split
from incognita.shapes import Float, Int

# ranking metrics, then open-set metrics, in the order of FindMeIfYouCan
RANKING = ("auroc", "fpr_at_95_known_recall")
OPEN_SET = (
    "unknown_ap",
    "unknown_precision",
    "unknown_recall",
    "normalized_open_set_error",
)
BOTH_FAMILIES = RANKING + OPEN_SET
FEWEST = 3  # pairs; two points always lie on a line


@dataclass(frozen=True, eq=False)
class Correlations:
    """Pearson correlation of each pair of metrics over methods and sets.

    Args:
        metrics: Names of the rows and columns.
        values: The correlations; NaN for fewer than three pairs or a constant metric.
        n_pairs: Number of pairs behind each value.
    """

    metrics: tuple[str, ...]
    values: Float[np.ndarray, "metrics metrics"]
    n_pairs: Int[np.ndarray, "metrics metrics"]


class FamilyMean(NamedTuple):
    """The mean of a metric over the methods of a family on one group of sets."""

    family: str
    group: str
    metric: str
    value: float
    n_methods: int


def value_of(result: MethodResult, metric: str, split: str, convention: str | None = None) -> float:
    """Return a value, or NaN if there is none."""
    try:
        return result.get(metric, split, convention).value
    except UnknownNameError:
        return float("nan")


# what ranks methods without AUROC, the most important first
WITHOUT_AUROC = ("unknown_ap", "unknown_recall", "normalized_open_set_error")


def place_without_auroc(result: MethodResult, splits: Sequence[str]) -> tuple[float, ...]:
    """Return a key that sorts results without AUROC, the best first; undefined values come last.

    By the mean over splits of AP_U (higher is better), then R_U (higher), then nOSE (lower).
    """
    key = []
    for metric in WITHOUT_AUROC:
        values = [value_of(result, metric, split) for split in splits]
        mean = sum(values) / len(values) if values else math.nan
        is_higher_better = get_metric(metric).direction is Direction.HIGHER
        key.append(math.inf if math.isnan(mean) else -mean if is_higher_better else mean)
    return tuple(key)


def metric_correlations(
    results: Iterable[MethodResult],
    groups: Sequence[str],
    metrics: Sequence[str] = BOTH_FAMILIES,
) -> Correlations:
    """Correlate metrics over all methods and unknown sets, as figure 15 of FindMeIfYouCan.

    A row is one method on one set; results of several detectors may be combined. Values are not
    oriented: AUROC (higher is better) and FPR (lower is better) correlate negatively.
    """
    table = np.array(
        [
            [value_of(result, metric, split) for metric in metrics]
            for result in results
            for split in _set_splits(result, groups)
        ]
    ).reshape(-1, len(metrics))
    n = len(metrics)
    values, pairs = np.full((n, n), np.nan), np.zeros((n, n), np.int64)
    for i in range(n):
        for j in range(n):
            both = table[~np.isnan(table[:, [i, j]]).any(axis=1)][:, [i, j]]
            pairs[i, j] = len(both)
            if len(both) >= FEWEST and (np.ptp(both, axis=0) > 0).all():
                values[i, j] = np.corrcoef(both.T)[0, 1]
    return Correlations(tuple(metrics), values, pairs)


def _set_splits(result: MethodResult, groups: Sequence[str]) -> list[Split]:
    """Return the splits of single unknown sets, such as `near/coco-near`."""
    splits = dict.fromkeys(Split.parse(found.split) for found in result.results)
    return [
        split
        for split in splits
        if split.group in groups and split.set is not None and split.setting != ALL_BOXES
    ]


def family_means(
    results: Iterable[MethodResult],
    families: Mapping[str, str],
    groups: Sequence[str],
    metrics: Sequence[str] = BOTH_FAMILIES,
) -> Iterator[FamilyMean]:
    """Average each metric over the methods of each family; undefined values are skipped."""
    members: dict[str, list[MethodResult]] = {}
    for result in results:
        members.setdefault(families[result.title], []).append(result)
    for family, mine in sorted(members.items()):
        for group in groups:
            for metric in metrics:
                values = np.array([value_of(result, metric, group) for result in mine])
                defined = values[~np.isnan(values)]
                mean = float(defined.mean()) if len(defined) else float("nan")
                yield FamilyMean(family, group, metric, mean, len(defined))
