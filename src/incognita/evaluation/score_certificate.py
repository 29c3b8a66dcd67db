"""From a table of scores to a certificate: what a classifier that flags unknown images is worth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from incognita._version import __version__
from incognita.errors import InvalidDataError, count
from incognita.evaluation.certify import check_numbers, file_hashes
from incognita.formats.scores import ScoreTable, load_scores
from incognita.metrics.measure import MetricValue, bootstrap_weights, undefined
from incognita.metrics.ranking import RANKING_METRICS, ranking_replicates
from incognita.metrics.selective import aurc, operating_point, oscr
from incognita.results.certificate import Certificate
from incognita.results.claims import Claim, as_claims, check_claims
from incognita.results.result import Result, interval_notes
from incognita.shapes import Bool, Float

if TYPE_CHECKING:
    import polars

N_SCORE_STEPS = 4
NO_CLASSES = "the table has no columns label and predicted"
NO_THRESHOLD = "there is no operating point; give a threshold"
ALL, KNOWN_ONLY = "all", "known-only"


def certify_scores(
    scores: "str | PathLike[str] | polars.DataFrame | Mapping[str, Any]",
    *,
    threshold: float | None = None,
    criteria: str | PathLike[str] | Sequence[Claim] | None = None,
    n_resamples: int = 200,
    seed: int = 0,
    on_step: Callable[[str], None] | None = None,
) -> Certificate:
    """Measure a classifier from the unknown scores of its images; no model is needed.

    Ranking metrics compare unknown with known images. Accuracy, AURC and OSCR need the columns
    `label` and `predicted`; coverage, risk, false alarms and missed unknowns need a threshold.
    Bootstrap replicates draw images, known and unknown ones together.

    Args:
        scores: A CSV or Parquet file, a data frame or named columns, as in `formats.scores`.
        threshold: The operating point: scores above it are flagged as unknown. It should not be
            chosen on these images.
        criteria: Claims, or a TOML file of them, to check.
        n_resamples: Bootstrap replicates behind each interval; zero for none.
        seed: Random seed of the bootstrap.
        on_step: Called with a description before each of the `N_SCORE_STEPS` steps.

    >>> columns = {"image": [1, 2, 3], "score": [0.1, 0.4, 0.9], "is_unknown": [False, False, True]}
    >>> certify_scores(columns, threshold=0.3, n_resamples=0).get("false_alarm_rate").value
    0.5
    """
    check_numbers(threshold=threshold, n_resamples=n_resamples, seed=seed)
    if threshold is not None and not np.isfinite(threshold):
        raise InvalidDataError(f"Expected a finite threshold, got {threshold}.")
    claims = as_claims(criteria)  # a mistake in the file is reported before any work
    table = load_scores(scores)
    drawn = bootstrap_weights(table.n_images, n_resamples=n_resamples, seed=seed)
    counts = drawn[table.image_index]
    results: list[Result] = []
    for name, step in _steps(table, counts, threshold).items():
        if on_step is not None:
            on_step(name)
        results += step()
    inputs = {"incognita": __version__} | file_hashes(scores=scores, criteria=criteria)
    options = {"threshold": threshold, "resamples": n_resamples, "seed": seed}
    notes = (*_notes(table), *interval_notes(results, n_resamples))
    found = check_claims(claims, results, options)
    return Certificate(tuple(results), (), (), notes, options | inputs, found)


def _steps(
    table: ScoreTable, counts: Float[np.ndarray, "rows replicates"], threshold: float | None
) -> dict[str, Callable[[], Iterator[Result]]]:
    return {
        "ranking": partial(_ranking, table, counts),
        "accuracy": partial(_accuracy, table, counts),
        "risk over coverage": partial(_selective, table, counts),
        "operating point": partial(_operating_point, table, counts, threshold),
    }


def _result(metric: str, split: str, value: MetricValue) -> Result:
    return Result.from_value(metric, "paper", split=split, value=value)


def _support(table: ScoreTable) -> dict[str, int]:
    n_unknown = int(table.is_unknown.sum())
    return {"known rows": len(table) - n_unknown, "unknown rows": n_unknown}


def _ranking(table: ScoreTable, counts: Float[np.ndarray, "rows replicates"]) -> Iterator[Result]:
    support, lacks = _support(table), _missing_side(table)
    if lacks is not None:
        for metric in RANKING_METRICS:
            yield _result(metric, ALL, undefined(lacks, support))
        return
    ranked = ranking_replicates(table.score, table.is_unknown, counts)
    units = _fewer_images(table)
    for metric in RANKING_METRICS:
        yield _result(metric, ALL, MetricValue(getattr(ranked, metric), support, units=units))


def _missing_side(table: ScoreTable) -> str | None:
    """Return why known and unknown cannot be compared, if they cannot."""
    if table.is_unknown.all():
        return "no image is known"
    return None if table.is_unknown.any() else "no image is unknown"


def _fewer_images(table: ScoreTable) -> int:
    """Count the images of the smaller side, which limits how much is known."""
    return min(table.count_images(table.is_unknown), table.count_images(~table.is_unknown))


def _accuracy(table: ScoreTable, counts: Float[np.ndarray, "rows replicates"]) -> Iterator[Result]:
    is_known = ~table.is_unknown
    support = {"known rows": int(is_known.sum())}
    if table.is_wrong is None or not is_known.any():
        reason = NO_CLASSES if table.is_wrong is None else "no image is known"
        yield _result("accuracy", KNOWN_ONLY, undefined(reason, support))
        return
    right = (is_known & ~table.is_wrong).astype(np.float64) @ counts
    whole = is_known.astype(np.float64) @ counts
    values = np.full(len(whole), np.nan)
    np.divide(right, whole, out=values, where=whole > 0)
    units = table.count_images(is_known)
    yield _result("accuracy", KNOWN_ONLY, MetricValue(values, support, units=units))


def _selective(table: ScoreTable, counts: Float[np.ndarray, "rows replicates"]) -> Iterator[Result]:
    """Yield AURC of all and of known images, and OSCR."""
    support, is_unknown = _support(table), table.is_unknown
    if table.is_wrong is None:
        for metric, split in (("aurc", ALL), ("aurc", KNOWN_ONLY), ("oscr", ALL)):
            yield _result(metric, split, undefined(NO_CLASSES, support))
        return
    is_wrong = table.is_wrong
    for split, keep in ((ALL, np.ones_like(is_unknown)), (KNOWN_ONLY, ~is_unknown)):
        if not keep.any():
            yield _result("aurc", split, undefined("no image is known", support))
            continue
        columns = (table.score[keep], (is_wrong | is_unknown)[keep])
        values = _replicates(aurc, columns, counts[keep])
        units = table.count_images(keep)
        yield _result("aurc", split, MetricValue(values, {"rows": int(keep.sum())}, units=units))
    if (lacks := _missing_side(table)) is not None:
        yield _result("oscr", ALL, undefined(lacks, support))
        return
    values = _replicates(oscr, (table.score, is_unknown, ~is_wrong), counts)
    yield _result("oscr", ALL, MetricValue(values, support, units=_fewer_images(table)))


def _replicates(
    metric: Callable[..., float],
    columns: tuple[np.ndarray, ...],
    counts: Float[np.ndarray, "rows replicates"],
) -> Float[np.ndarray, "replicates"]:
    """Compute a metric of rows that are repeated as often as each replicate draws them."""
    rising = np.argsort(columns[0], kind="stable")  # sorted scores are sorted again faster
    ordered = [column[rising] for column in columns]
    values = np.full(counts.shape[1], np.nan)
    for k in range(len(values)):
        times = counts[rising, k].astype(np.int64)
        try:
            values[k] = metric(*(np.repeat(column, times) for column in ordered))
        except InvalidDataError:  # the draw has no row, or none of one side
            if k == 0:
                raise
    return values


def _operating_point(
    table: ScoreTable, counts: Float[np.ndarray, "rows replicates"], threshold: float | None
) -> Iterator[Result]:
    """Yield what the threshold does to all images, and to the known ones alone."""
    is_wrong = np.zeros_like(table.is_unknown) if table.is_wrong is None else table.is_wrong
    everything = np.ones_like(table.is_unknown)
    at_threshold = partial(operating_point, threshold=np.inf if threshold is None else threshold)
    at_all = at_threshold(table.score, table.is_unknown, is_wrong, counts=counts)
    known = ~table.is_unknown
    at_known = at_threshold(
        table.score[known], table.is_unknown[known], is_wrong[known], counts=counts[known]
    )
    accepted = everything if threshold is None else table.score <= threshold
    no_classes = NO_CLASSES if table.is_wrong is None else None
    share = partial(_share, table, threshold)
    yield share("coverage", ALL, at_all.coverage, everything)
    yield share("coverage", KNOWN_ONLY, at_known.coverage, known)
    yield share("selective_risk", ALL, at_all.selective_risk, accepted, no_classes)
    yield share("selective_risk", KNOWN_ONLY, at_known.selective_risk, accepted & known, no_classes)
    yield share("false_alarm_rate", ALL, at_all.false_alarm_rate, known)
    yield share("missed_unknown_rate", ALL, at_all.missed_unknown_rate, table.is_unknown)


def _share(
    table: ScoreTable,
    threshold: float | None,
    metric: str,
    split: str,
    values: Float[np.ndarray, "replicates"],
    whole: Bool[np.ndarray, "rows"],
    reason: str | None = None,
) -> Result:
    """Build the record of a share of some rows; undefined without a threshold or such rows."""
    support = {"rows": int(whole.sum())}
    if threshold is None:
        return _result(metric, split, undefined(NO_THRESHOLD, support))
    if reason is None and not whole.any():
        reason = "no image is accepted" if metric == "selective_risk" else _missing_side(table)
    if reason is not None:
        return _result(metric, split, undefined(reason, support, threshold=threshold))
    units = table.count_images(whole)
    return _result(
        metric, split, MetricValue(values, support, None, {"threshold": threshold}, units)
    )


def _notes(table: ScoreTable) -> Iterator[str]:
    """Yield notes for the reader."""
    if table.n_images < len(table):
        yield (
            f"{count(len(table), 'row')} of {count(table.n_images, 'image')}: intervals come from "
            f"drawing images, not rows."
        )
    if (lacks := _missing_side(table)) is not None:
        yield f"{lacks.capitalize()}: the ranking metrics do not apply."
