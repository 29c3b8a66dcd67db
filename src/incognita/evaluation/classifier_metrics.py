"""From scores to numbers: every ranking metric of every set, group and setting, with intervals.

The known rows are drawn once per bootstrap replicate and shared by all unknown sets and all
methods: a mean over sets is then a proper replicate of the mean, and two methods can be compared
pair by pair.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import numpy as np

from incognita.benchmarks.benchmark import KNOWN, SHIFTED
from incognita.benchmarks.corruptions.datasets import draw_images
from incognita.metrics.measure import (
    MIN_UNITS,
    MetricValue,
    mean_of_values,
    undefined,
)
from incognita.metrics.ranking import RANKING_METRICS, RankingReplicates, ranking_replicates
from incognita.metrics.selective import aurc
from incognita.results.result import FULL_SPECTRUM, Result, Split
from incognita.results.score_tables import Measured, Replicates, ScoredSet, Scores, known_sets

MISTAKES = Split("misclassified")
_MOST_THREADS = 8
_FEWEST_FOR_THREADS = 200_000  # scores; fewer are ranked before threads have started


def draw(sets: Sequence[ScoredSet], *, n_resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Draw the images of every set once; the seed of a set depends on its name alone."""
    return {
        scored.name: draw_images(
            scored.image_ids, n_resamples=n_resamples, seed=seed + crc32(scored.name.encode())
        )
        for scored in sets
    }


def measure_methods(
    sets: Sequence[ScoredSet], scores: Mapping[str, Scores], *, n_resamples: int, seed: int
) -> tuple[dict[str, Measured], list[Result]]:
    """Measure all methods on the same replicates; also return the accuracy."""
    weights = draw(sets, n_resamples=n_resamples, seed=seed)
    measured = measure_unknown(sets, scores, weights)
    parts = [measure_mistakes(sets, scores, weights)]
    if any(scored.group == SHIFTED for scored in sets):
        parts.append(measure_unknown(sets, scores, weights, with_shifted=True))
    for part in parts:
        for key, values in part.items():
            measured[key] |= values
    return measured, list(accuracy_results(sets, weights))


def measure_unknown(
    sets: Sequence[ScoredSet],
    scores: Mapping[str, Scores],
    weights: Mapping[str, np.ndarray],
    *,
    with_shifted: bool = False,
) -> dict[str, Measured]:
    """Measure every method on every unknown set and on the mean of each group of sets.

    Groups are unweighted means over their sets, as in OpenOOD.
    """
    known = known_sets(sets, with_shifted=with_shifted)
    setting = FULL_SPECTRUM if with_shifted else None
    measured: dict[str, Measured] = {method: {} for method in scores}
    groups: dict[Split, list[Split]] = {}
    for unknown in (scored for scored in sets if scored.is_unknown and len(scored)):
        rows = [*known, unknown]
        counts = np.concatenate([weights[part.name] for part in rows])  # shared by all methods
        is_unknown = np.repeat([part.is_unknown for part in rows], [len(part) for part in rows])
        split = Split(unknown.group, unknown.name, setting)
        groups.setdefault(Split(unknown.group, setting=setting), []).append(split)
        columns = {m: np.concatenate([s[part.name] for part in rows]) for m, s in scores.items()}
        replicates = slice(None if _units(split, sets) >= MIN_UNITS else 1)
        for method, ranked in _ranked(columns, is_unknown, counts).items():
            measured[method] |= {
                (m, split): getattr(ranked, m)[replicates] for m in RANKING_METRICS
            }
    for values in measured.values():
        for group, splits in groups.items():
            values |= {(m, group): _mean(values, m, splits) for m in RANKING_METRICS}
    return measured


def _ranked(
    columns: Mapping[str, np.ndarray], is_unknown: np.ndarray, counts: np.ndarray
) -> dict[str, RankingReplicates]:
    """Rank the scores of every method; many of them in threads, since sorting needs no lock."""

    def rank(column: np.ndarray) -> RankingReplicates:
        return ranking_replicates(column, is_unknown, counts)

    if len(columns) * len(is_unknown) < _FEWEST_FOR_THREADS:
        return {method: rank(column) for method, column in columns.items()}
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        return dict(zip(columns, pool.map(rank, columns.values()), strict=True))


def _mean(values: Measured, metric: str, splits: Sequence[Split]) -> Replicates:
    return mean_of_values([values[metric, split] for split in splits])


def measure_mistakes(
    sets: Sequence[ScoredSet], scores: Mapping[str, Scores], weights: Mapping[str, np.ndarray]
) -> dict[str, Measured]:
    """Measure how well each score detects misclassified known images (FACETS, table VII)."""
    (test,) = [scored for scored in sets if scored.group == KNOWN]
    is_wrong = _is_wrong(test)
    if is_wrong is None or is_wrong.all() or not is_wrong.any():
        return {method: {} for method in scores}
    columns = {method: mine[test.name] for method, mine in scores.items()}
    measured = {}
    for method, ranked in _ranked(columns, is_wrong, weights[test.name]).items():
        values: Measured = {(m, MISTAKES): getattr(ranked, m) for m in RANKING_METRICS}
        values["aurc", MISTAKES] = np.array([aurc(columns[method], is_wrong)])
        measured[method] = values
    return measured


def _is_wrong(known: ScoredSet) -> np.ndarray | None:
    return None if known.labels is None else np.asarray(known.predicted != known.labels)


def accuracy_results(
    sets: Sequence[ScoredSet], weights: Mapping[str, np.ndarray]
) -> Iterator[Result]:
    """Return the records of `accuracy_values`."""
    for split, value in accuracy_values(sets, weights):
        yield Result.from_value("accuracy", "paper", split=split, value=value)


def accuracy_values(
    sets: Sequence[ScoredSet], weights: Mapping[str, np.ndarray]
) -> Iterator[tuple[Split, MetricValue]]:
    """Compute the accuracy on known images, on each shifted set, and on all of them together."""
    labeled = [scored for scored in sets if scored.group in (KNOWN, SHIFTED)]
    parts_of = {
        Split(KNOWN) if scored.group == KNOWN else Split(SHIFTED, scored.name): [scored]
        for scored in labeled
    }
    if any(scored.group == SHIFTED for scored in sets):
        parts_of[Split(KNOWN, setting=FULL_SPECTRUM)] = labeled
    for split, parts in parts_of.items():
        yield split, _accuracy(parts, weights)


def _accuracy(parts: Sequence[ScoredSet], weights: Mapping[str, np.ndarray]) -> MetricValue:
    wrong = [_is_wrong(scored) for scored in parts]
    support = {"images": sum(len(scored) for scored in parts)}
    if any(is_wrong is None for is_wrong in wrong) or not support["images"]:
        return undefined("the images have no true class", support)
    counts = np.concatenate([weights[scored.name] for scored in parts])
    right = ~np.concatenate([is_wrong for is_wrong in wrong if is_wrong is not None])
    weighted = right.astype(np.float64) @ counts
    values = weighted / counts.sum(axis=0, dtype=np.float64)
    return MetricValue(values, support, units=support["images"])


def as_results(measured: Measured, sets: Sequence[ScoredSet]) -> Iterator[Result]:
    """Convert values with their replicates to records."""
    splits = dict.fromkeys(split for _, split in measured)
    supports = {split: _support(split, sets) for split in splits}
    units = {split: _units(split, sets) for split in splits}
    for (metric, split), values in measured.items():
        value = MetricValue(values, supports[split], units=units[split])
        yield Result.from_value(metric, "paper", split=split, value=value)


def _units(split: Split, sets: Sequence[ScoredSet]) -> int:
    """Count the images of the smaller side: the known, or the smallest unknown set of a group."""
    known = known_sets(sets, with_shifted=split.setting is not None)
    n_known = sum(len(scored) for scored in known)
    if split == MISTAKES:
        is_wrong = _is_wrong(known[0])
        n_wrong = 0 if is_wrong is None else int(is_wrong.sum())
        return min(n_wrong, len(known[0]) - n_wrong)
    unknown = [s for s in sets if s.group == split.group and split.set in (None, s.name)]
    return min(n_known, *(len(scored) for scored in unknown if len(scored)))


def _support(split: Split, sets: Sequence[ScoredSet]) -> dict[str, int]:
    """Count the images behind a split."""
    if split == MISTAKES:
        return {"images": sum(len(scored) for scored in sets if scored.group == KNOWN)}
    known = known_sets(sets, with_shifted=split.setting is not None)
    unknown = [s for s in sets if s.group == split.group and split.set in (None, s.name)]
    return {
        "known images": sum(len(scored) for scored in known),
        "unknown images": sum(len(scored) for scored in unknown),
        "sets": len(unknown),
    }
