"""From scores to numbers: every ranking metric of every set, group and setting, with intervals.

The known rows are drawn once per bootstrap replicate and shared by all unknown sets and all
methods: a mean over sets is then a proper replicate of the mean, and two methods can be compared
pair by pair.
"""

from collections.abc import Iterator, Mapping, Sequence
from zlib import crc32

import numpy as np

from incognita.metrics.intervals import bootstrap_weights
from incognita.metrics.measure import MetricValue, undefined
from incognita.metrics.ranking import RankingReplicates, ranking_replicates
from incognita.metrics.selective import aurc
from incognita.results.result import Result
from incognita.results.scored_sets import (
    KNOWN,
    SHIFTED,
    Measured,
    Replicates,
    ScoredSet,
    Scores,
    known_sets,
)

RANKED = (
    "auroc",
    "aupr_unknown",
    "aupr_known",
    "aupr_unknown_trapezoid",
    "aupr_known_trapezoid",
    "fpr_at_95_unknown_recall",
    "fpr_at_95_known_recall",
    "detection_error",
    "detection_error_at_95_known_recall",
)
FULL_SPECTRUM = "full-spectrum "
MISTAKES = "misclassified"


def draw(sets: Sequence[ScoredSet], *, n_resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Draw the images of every set once; the seed of a set depends on its name alone."""
    return {
        each.name: bootstrap_weights(
            len(each), n_resamples=n_resamples, seed=seed + crc32(each.name.encode())
        )
        for each in sets
    }


def measure_unknown(
    sets: Sequence[ScoredSet],
    scores: Mapping[str, Scores],
    weights: Mapping[str, np.ndarray],
    *,
    with_shifted: bool = False,
) -> dict[str, Measured]:
    """Measure every method on every unknown set and on the mean of each group of sets.

    Groups are unweighted means over their sets, as OpenOOD averages them.
    """
    known = known_sets(sets, with_shifted=with_shifted)
    prefix = FULL_SPECTRUM if with_shifted else ""
    measured: dict[str, Measured] = {method: {} for method in scores}
    groups: dict[str, list[str]] = {}
    for each in (one for one in sets if one.is_unknown and len(one)):
        rows = [*known, each]
        counts = np.concatenate([weights[one.name] for one in rows])  # shared by all methods
        is_unknown = np.repeat([one.is_unknown for one in rows], [len(one) for one in rows])
        split = f"{prefix}{each.group}/{each.name}"
        groups.setdefault(f"{prefix}{each.group}", []).append(split)
        for method, mine in scores.items():
            column = np.concatenate([mine[one.name] for one in rows])
            ranked = ranking_replicates(column, is_unknown, counts)
            measured[method] |= {(m, split): getattr(ranked, m) for m in RANKED}
    for values in measured.values():
        for group, splits in groups.items():
            values |= {(m, group): _mean(values, m, splits) for m in RANKED}
    return measured


def _mean(values: Measured, metric: str, splits: Sequence[str]) -> Replicates:
    return np.asarray(np.mean([values[metric, split] for split in splits], axis=0))


def measure_mistakes(
    sets: Sequence[ScoredSet], scores: Mapping[str, Scores], weights: Mapping[str, np.ndarray]
) -> dict[str, Measured]:
    """Measure how well each score tells wrong answers on known images (FACETS, table VII)."""
    (test,) = known_sets(sets)
    is_wrong = _is_wrong(test)
    if is_wrong is None or is_wrong.all() or not is_wrong.any():
        return {method: {} for method in scores}
    counts = weights[test.name]
    measured = {}
    for method, mine in scores.items():
        ranked: RankingReplicates = ranking_replicates(mine[test.name], is_wrong, counts)
        values: Measured = {(m, MISTAKES): getattr(ranked, m) for m in RANKED}
        values["aurc", MISTAKES] = np.array([aurc(mine[test.name], is_wrong)])
        measured[method] = values
    return measured


def _is_wrong(known: ScoredSet) -> np.ndarray | None:
    return None if known.labels is None else np.asarray(known.predicted != known.labels)


def accuracy_results(
    sets: Sequence[ScoredSet], weights: Mapping[str, np.ndarray]
) -> Iterator[Result]:
    """Give the accuracy on known images, on each shifted set, and on all of them together."""
    named = {
        (KNOWN if s.group == KNOWN else f"shifted/{s.name}"): [s]
        for s in known_sets(sets, with_shifted=True)
    }
    if any(each.group == SHIFTED for each in sets):
        named[f"{FULL_SPECTRUM}known"] = known_sets(sets, with_shifted=True)
    for split, parts in named.items():
        wrong = [_is_wrong(each) for each in parts]
        n = sum(len(each) for each in parts)
        if any(each is None for each in wrong) or not n:
            measure = undefined("the images have no true class", {"images": n})
        else:
            counts = np.concatenate([weights[each.name] for each in parts])
            right = ~np.concatenate([each for each in wrong if each is not None])
            weighted = right.astype(np.float64) @ counts
            measure = MetricValue(weighted / counts.sum(axis=0, dtype=np.float64), {"images": n})
        yield Result.from_measure("accuracy", "paper", split=split, measure=measure)


def as_results(measured: Measured, sets: Sequence[ScoredSet]) -> Iterator[Result]:
    """Turn values with their replicates into records."""
    for (metric, split), values in measured.items():
        support = _support(split, sets)
        if support.get("unknown images", 2) <= support.get("sets", 1):
            values = values[:1]  # a single image, drawn again and again, would look certain
        yield Result.from_measure(
            metric, "paper", split=split, measure=MetricValue(values, support)
        )


def _support(split: str, sets: Sequence[ScoredSet]) -> dict[str, int]:
    """How many images stand behind a split."""
    if split == MISTAKES:
        return {"images": sum(len(each) for each in known_sets(sets))}
    bare = split.removeprefix(FULL_SPECTRUM)
    known = known_sets(sets, with_shifted=split != bare)
    group, _, name = bare.partition("/")
    unknown = [s for s in sets if s.group == group and name in ("", s.name)]
    return {
        "known images": sum(len(each) for each in known),
        "unknown images": sum(len(each) for each in unknown),
        "sets": len(unknown),
    }
