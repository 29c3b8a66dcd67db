"""Every ranking metric from sorted scores and one linear pass.

Scores are not sorted together with their truth: unknown and known scores are sorted apart, values
only, and merging the two visits the tie groups from the largest score down. No permutation of the
rows is needed.

Weighted rows do need the permutation; it is computed once and serves any number of replicates.
Division follows numpy, not Python: a test for zero in every division would keep replicates from
advancing side by side in vector registers.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

from incognita.shapes import Bool, Float, Float64, Int

# A recall this close below its target has reached it: sums of weights such as 0.1 are rounded, and
# the threshold must not depend on that. Shares of up to 5e10 rows differ by more.
RECALL_TOLERANCE = 1e-12

LANES = 16  # replicates that advance together


class Ranking(NamedTuple):
    """The ranking metrics; `metrics.ranking.RankingMetrics` explains each of them.

    To add one, add a field here, its value in `_metrics`, and a line in `metrics.catalog`.
    """

    auroc: float
    aupr_unknown: float
    aupr_known: float
    aupr_unknown_trapezoid: float
    aupr_known_trapezoid: float
    fpr_at_unknown_recall: float
    fpr_at_known_recall: float
    detection_error: float
    detection_error_at_known_recall: float
    recall: float
    n_known: float
    n_unknown: float


class _Totals(NamedTuple):
    """The weight of each class, and the part of it that reaches the recall."""

    unknown: float
    known: float
    enough_unknown: float
    enough_known: float


class _Sweep(NamedTuple):
    """The sums up to a threshold that moves down through the scores.

    A row is flagged as unknown when its score is at or above the threshold, else it is accepted.
    Errors are counted as (missed unknown) * (all known) + (flagged known) * (all unknown).
    """

    unknown: float  # flagged unknown
    known: float  # flagged known
    unknown_precision: float  # share of unknown among the flagged
    known_precision: float  # share of known among the accepted
    pairs: float  # twice the pairs in the right order, a tie being half right
    unknown_steps: float
    known_steps: float
    unknown_trapezoids: float  # twice the area
    known_trapezoids: float  # twice the area
    known_at_unknown_recall: float
    unknown_at_known_recall: float
    error: float
    error_at_known_recall: float


N_SUMS = len(_Sweep._fields)
N_METRICS = len(Ranking._fields)


@numba.njit(nogil=True, error_model="numpy")
def _totals(unknown: float, known: float, recall: float) -> _Totals:
    enough = recall - RECALL_TOLERANCE
    return _Totals(unknown, known, enough * unknown, enough * known)


@numba.njit(nogil=True, error_model="numpy")
def _start(totals: _Totals) -> _Sweep:
    """Flag nothing: the precision of nothing is 1, as precision-recall curves have it."""
    error = totals.unknown * totals.known
    return _Sweep(
        unknown=0.0,
        known=0.0,
        unknown_precision=1.0,
        known_precision=totals.known / (totals.known + totals.unknown),
        pairs=0.0,
        unknown_steps=0.0,
        known_steps=0.0,
        unknown_trapezoids=0.0,
        known_trapezoids=0.0,
        known_at_unknown_recall=0.0,
        unknown_at_known_recall=0.0,
        error=error,
        error_at_known_recall=error,
    )


@numba.njit(nogil=True, error_model="numpy")
def _advance(before: _Sweep, totals: _Totals, unknown: float, known: float) -> _Sweep:
    """Lower the threshold by one tie group, to where this weight of each class is flagged."""
    new_unknown = unknown - before.unknown
    new_known = known - before.known
    kept_unknown = totals.unknown - unknown
    kept_known = totals.known - known
    kept = kept_unknown + kept_known
    flagged = unknown + known  # nothing, where the first rows have no weight
    unknown_precision = unknown / flagged if flagged > 0 else 1.0
    known_precision = kept_known / kept if kept > 0 else 1.0
    error = min(before.error, kept_unknown * totals.known + known * totals.unknown)
    lacked_unknown = before.unknown < totals.enough_unknown
    keeps_enough_known = kept_known >= totals.enough_known
    both_unknown_precisions = before.unknown_precision + unknown_precision
    both_known_precisions = before.known_precision + known_precision
    return _Sweep(
        unknown=unknown,
        known=known,
        unknown_precision=unknown_precision,
        known_precision=known_precision,
        pairs=before.pairs + new_known * (before.unknown + unknown),
        unknown_steps=before.unknown_steps + new_unknown * unknown_precision,
        known_steps=before.known_steps + new_known * before.known_precision,
        unknown_trapezoids=before.unknown_trapezoids + new_unknown * both_unknown_precisions,
        known_trapezoids=before.known_trapezoids + new_known * both_known_precisions,
        known_at_unknown_recall=known if lacked_unknown else before.known_at_unknown_recall,
        unknown_at_known_recall=unknown if keeps_enough_known else before.unknown_at_known_recall,
        error=error,
        error_at_known_recall=error if keeps_enough_known else before.error_at_known_recall,
    )


@numba.njit(nogil=True, error_model="numpy")
def _metrics(end: _Sweep, totals: _Totals, recall: float) -> Ranking:
    """Turn the sums after the last tie group into metrics."""
    pairs = 2.0 * totals.unknown * totals.known
    return Ranking(
        auroc=end.pairs / pairs,
        aupr_unknown=end.unknown_steps / totals.unknown,
        aupr_known=end.known_steps / totals.known,
        aupr_unknown_trapezoid=end.unknown_trapezoids / (2.0 * totals.unknown),
        aupr_known_trapezoid=end.known_trapezoids / (2.0 * totals.known),
        fpr_at_unknown_recall=end.known_at_unknown_recall / totals.known,
        fpr_at_known_recall=(totals.unknown - end.unknown_at_known_recall) / totals.unknown,
        detection_error=end.error / pairs,
        detection_error_at_known_recall=end.error_at_known_recall / pairs,
        recall=recall,
        n_known=totals.known,
        n_unknown=totals.unknown,
    )


@numba.njit(cache=True, nogil=True)
def split_scores(
    score: Float[np.ndarray, "rows"], is_unknown: Bool[np.ndarray, "rows"], n_unknown: int
) -> tuple[Float[np.ndarray, "unknown"], Float[np.ndarray, "known"]]:
    """Copy the scores of unknown and of known rows."""
    unknown = np.empty(n_unknown + 1, score.dtype)  # one more: every row is written to both
    known = np.empty(score.size - n_unknown + 1, score.dtype)
    i = 0
    j = 0
    for row in range(score.size):
        unknown[i] = score[row]
        known[j] = score[row]
        i += is_unknown[row]
        j += not is_unknown[row]
    return unknown[:-1], known[:-1]


@numba.njit(cache=True, nogil=True)
def flip_negative(bits: Int[np.ndarray, "rows"], out: Int[np.ndarray, "rows"]) -> None:
    """Turn the bits of floats into integers of the same order, or back."""
    rest = bits.dtype.type(~np.uint64(0) >> np.uint64(65 - 8 * bits.itemsize))
    for row in range(bits.size):
        out[row] = bits[row] ^ (bits[row] >> (8 * bits.itemsize - 1) & rest)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def sweep_scores(
    unknown: Float[np.ndarray, "unknown"], known: Float[np.ndarray, "known"], recall: float
) -> Ranking:
    """Measure the rising scores of unknown and of known rows, at least one of each."""
    n_unknown, n_known = unknown.size, known.size
    totals = _totals(float(n_unknown), float(n_known), recall)
    sweep = _start(totals)
    i = n_unknown
    j = n_known
    highest_unknown = unknown[i - 1]
    highest_known = known[j - 1]
    while i > 0 or j > 0:
        score = max(highest_unknown, highest_known)
        # by arithmetic: which class comes next is random, and a wrong guess of a branch is slow
        i -= highest_unknown == score
        j -= highest_known == score
        highest_unknown = unknown[i - 1] if i > 0 else -np.inf
        highest_known = known[j - 1] if j > 0 else -np.inf
        if highest_unknown != score and highest_known != score:
            sweep = _advance(sweep, totals, float(n_unknown - i), float(n_known - j))
    return _metrics(sweep, totals, recall)


@numba.njit(nogil=True, error_model="numpy")
def _sum_by_class(weights: Any, is_unknown: Any) -> tuple[float, float]:
    # Added row by row as in the sweep, so that exactly nothing is left after the last row.
    unknown = 0.0
    known = 0.0
    for row in range(weights.size):
        unknown += weights[row] if is_unknown[row] else 0.0
        known += 0.0 if is_unknown[row] else weights[row]
    return unknown, known


@numba.njit(cache=True, nogil=True, error_model="numpy")
def sweep_weights(
    weights: Float64[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    is_last: Bool[np.ndarray, "rows"],
    recall: float,
) -> Ranking:
    """Measure weighted rows, sorted from the largest score down.

    `is_last` marks the row that closes each tie group; both classes must weigh something.
    """
    all_unknown, all_known = _sum_by_class(weights, is_unknown)
    totals = _totals(all_unknown, all_known, recall)
    sweep = _start(totals)
    unknown = 0.0
    known = 0.0
    for row in range(weights.size):
        unknown += weights[row] if is_unknown[row] else 0.0
        known += 0.0 if is_unknown[row] else weights[row]
        if is_last[row]:
            sweep = _advance(sweep, totals, unknown, known)
    return _metrics(sweep, totals, recall)


@numba.njit(nogil=True, error_model="numpy")
def _load(state: Any, lane: int) -> _Sweep:
    return _Sweep(*to_fixed_tuple(state[:, lane], N_SUMS))  # type: ignore[call-arg]


@numba.njit(nogil=True, error_model="numpy")
def _store(state: Any, lane: int, sweep: _Sweep) -> None:
    for field in range(N_SUMS):
        state[field, lane] = sweep[field]


@numba.njit(nogil=True, error_model="numpy")
def _add(sums: Any, counts: Any) -> None:
    for lane in range(LANES):
        sums[lane] += counts[lane]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def sweep_replicates(
    counts: Float64[np.ndarray, "rows lanes"],
    is_unknown: Bool[np.ndarray, "rows"],
    is_last: Bool[np.ndarray, "rows"],
    recall: float,
) -> Float64[np.ndarray, "lanes metrics"]:
    """Measure rows sorted from the largest score down, once per column of counts.

    There must be `LANES` columns: their number is a constant, so that the compiler advances them
    all with the same instructions. Returned columns are the fields of `Ranking`; a lane in which
    a class has no row is NaN.
    """
    totals = np.zeros((2, LANES))
    for row in range(counts.shape[0]):
        _add(totals[0 if is_unknown[row] else 1], counts[row])
    state = np.empty((N_SUMS, LANES))
    for lane in range(LANES):
        _store(state, lane, _start(_totals(totals[0, lane], totals[1, lane], recall)))
    flagged = np.zeros((2, LANES))
    for row in range(counts.shape[0]):
        _add(flagged[0 if is_unknown[row] else 1], counts[row])
        if is_last[row]:
            for lane in range(LANES):
                of_lane = _totals(totals[0, lane], totals[1, lane], recall)
                sweep = _advance(_load(state, lane), of_lane, flagged[0, lane], flagged[1, lane])
                _store(state, lane, sweep)
    metrics = np.full((LANES, N_METRICS), np.nan)
    for lane in range(LANES):
        of_lane = _totals(totals[0, lane], totals[1, lane], recall)
        if of_lane.unknown > 0 and of_lane.known > 0:
            values = _metrics(_load(state, lane), of_lane, recall)
            for metric in range(N_METRICS):
                metrics[lane, metric] = values[metric]
    return metrics
