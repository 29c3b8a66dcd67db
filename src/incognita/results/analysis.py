"""What many results say together: means over families of methods, correlations among metrics."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from incognita.errors import UnknownNameError
from incognita.results.method_result import MethodResult
from incognita.shapes import Float, Int

# the old metrics, then the open-set ones, in the order of FindMeIfYouCan
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
    """Pearson's correlation of each pair of metrics over methods and sets.

    Args:
        metrics: Their names, of rows and columns.
        values: NaN where fewer than three pairs are there or one of the metrics never changes.
        n_pairs: How many pairs stand behind each value.
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
    """Give a value, NaN where there is none."""
    try:
        return result.get(metric, split, convention).value
    except UnknownNameError:
        return float("nan")


def metric_correlations(
    results: Iterable[MethodResult],
    groups: Sequence[str],
    metrics: Sequence[str] = BOTH_FAMILIES,
) -> Correlations:
    """Correlate metrics over all methods and unknown sets, as figure 15 of FindMeIfYouCan.

    A row is one method on one set; results of several detectors may come together. Values are as
    they are: AUROC, which is better high, and FPR, which is better low, correlate negatively.
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


def _set_splits(result: MethodResult, groups: Sequence[str]) -> list[str]:
    """Give the splits of single unknown sets, such as `near/coco-near`."""
    splits = dict.fromkeys(each.split for each in result.results)
    return [split for split in splits if split.partition("/")[0] in groups and "/" in split]


def family_means(
    results: Iterable[MethodResult],
    families: Mapping[str, str],
    groups: Sequence[str],
    metrics: Sequence[str] = BOTH_FAMILIES,
) -> Iterator[FamilyMean]:
    """Average each metric over the methods of each family; an undefined value is left out."""
    members: dict[str, list[MethodResult]] = {}
    for result in results:
        members.setdefault(families[result.title], []).append(result)
    for family, mine in sorted(members.items()):
        for group in groups:
            for metric in metrics:
                values = np.array([value_of(each, metric, group) for each in mine])
                defined = values[~np.isnan(values)]
                mean = float(defined.mean()) if len(defined) else float("nan")
                yield FamilyMean(family, group, metric, mean, len(defined))
