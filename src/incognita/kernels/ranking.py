"""Every ranking metric from one sort and one linear pass.

Scores are not sorted together with their truth: the keys of unknown and of known rows are sorted
apart, values only, and merging the two sorted halves visits the tie groups from the largest score
down. A permutation and its gathers, which lose the cache at ten million rows, are never made.

Weighted rows do need the permutation; it is made once and serves any number of replicates. Division
follows numpy, not Python: a test for zero in every division would keep replicates from advancing
side by side in vector registers.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from incognita.shapes import Bool, Float64, UInt

# A recall this close below its target has reached it: sums of weights such as 0.1 are rounded, and
# the threshold must not depend on that. Shares of up to 5e10 rows differ by more.
RECALL_TOLERANCE = 1e-12

DIGIT_BITS = 11  # 2048 counters per digit stay in the first-level cache
DIGIT_MASK = (1 << DIGIT_BITS) - 1
LANES = 16  # replicates that advance together
N_METRICS = 9


class _Totals(NamedTuple):
    """What a whole class weighs, and what part of it makes the recall that was asked for."""

    unknown: float
    known: float
    enough_unknown: float
    enough_known: float


class _Sweep(NamedTuple):
    """Where a threshold that falls through the scores stands, and the sums up to there.

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


N_FIELDS = len(_Sweep._fields)


@numba.njit(nogil=True, error_model="numpy")
def _totals(unknown: float, known: float, recall: float) -> _Totals:
    enough = recall - RECALL_TOLERANCE
    return _Totals(unknown, known, enough * unknown, enough * known)


@numba.njit(nogil=True, error_model="numpy")
def _start(totals: _Totals) -> _Sweep:
    """Flag nothing: the precision of nothing is 1, as precision-recall curves have it."""
    prior = totals.known / (totals.known + totals.unknown)
    error = totals.unknown * totals.known
    return _Sweep(0.0, 0.0, 1.0, prior, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, error, error)


@numba.njit(nogil=True, error_model="numpy")
def _advance(before: _Sweep, totals: _Totals, unknown: float, known: float) -> _Sweep:
    """Lower the threshold by one tie group, to where so much of each class is flagged."""
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
    return _Sweep(
        unknown,
        known,
        unknown_precision,
        known_precision,
        before.pairs + new_known * (before.unknown + unknown),
        before.unknown_steps + new_unknown * unknown_precision,
        before.known_steps + new_known * before.known_precision,
        before.unknown_trapezoids + new_unknown * (before.unknown_precision + unknown_precision),
        before.known_trapezoids + new_known * (before.known_precision + known_precision),
        known if lacked_unknown else before.known_at_unknown_recall,
        unknown if keeps_enough_known else before.unknown_at_known_recall,
        error,
        error if keeps_enough_known else before.error_at_known_recall,
    )


@numba.njit(nogil=True, error_model="numpy")
def _shares(end: _Sweep, totals: _Totals) -> tuple[float, ...]:
    """Turn the sums into metrics, in the order of the fields of `RankingMetrics`."""
    pairs = 2.0 * totals.unknown * totals.known
    return (
        end.pairs / pairs,
        end.unknown_steps / totals.unknown,
        end.known_steps / totals.known,
        end.unknown_trapezoids / (2.0 * totals.unknown),
        end.known_trapezoids / (2.0 * totals.known),
        end.known_at_unknown_recall / totals.known,
        (totals.unknown - end.unknown_at_known_recall) / totals.unknown,
        end.error / pairs,
        end.error_at_known_recall / pairs,
    )


@numba.njit(nogil=True, error_model="numpy")
def _split_keys(bits: Any, is_unknown: Any) -> tuple[Any, int]:
    """Map floats, passed as bits, to integers that fall as the float rises; unknown rows first."""
    n_unknown = 0
    for row in range(bits.size):
        n_unknown += is_unknown[row]
    sign = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    keys = np.empty_like(bits)
    next_unknown = 0
    next_known = n_unknown
    for row in range(bits.size):
        value = bits[row]
        if value == sign:  # -0.0 ties with 0.0
            value = bits.dtype.type(0)
        place = next_unknown if is_unknown[row] else next_known
        keys[place] = value if value & sign else ~(value | sign)
        next_unknown += is_unknown[row]
        next_known += not is_unknown[row]
    return keys, n_unknown


@numba.njit(nogil=True, error_model="numpy")
def _radix_sort(keys: Any, scratch: Any) -> Any:
    """Sort unsigned integers from the lowest digit up; digits that all keys share cost nothing."""
    n_digits = -(-8 * keys.itemsize // DIGIT_BITS)
    counts = np.zeros((n_digits, DIGIT_MASK + 1), np.int64)
    for i in range(keys.size):
        for digit in range(n_digits):
            counts[digit, (keys[i] >> (DIGIT_BITS * digit)) & DIGIT_MASK] += 1
    for digit in range(n_digits):
        shift = DIGIT_BITS * digit
        places = counts[digit]
        if places[(keys[0] >> shift) & DIGIT_MASK] == keys.size:
            continue
        total = 0
        for value in range(DIGIT_MASK + 1):
            count = places[value]
            places[value] = total
            total += count
        for i in range(keys.size):
            value = (keys[i] >> shift) & DIGIT_MASK
            scratch[places[value]] = keys[i]
            places[value] += 1
        keys, scratch = scratch, keys
    return keys


@numba.njit(nogil=True, error_model="numpy")
def _merge(unknown: Any, known: Any, recall: float) -> tuple[float, ...]:
    """Walk two sorted halves tie group by tie group."""
    totals = _totals(float(unknown.size), float(known.size), recall)
    sweep = _start(totals)
    i = 0
    j = 0
    while i < unknown.size or j < known.size:
        if j == known.size or (i < unknown.size and unknown[i] <= known[j]):
            key = unknown[i]
        else:
            key = known[j]
        while i < unknown.size and unknown[i] == key:
            i += 1
        while j < known.size and known[j] == key:
            j += 1
        sweep = _advance(sweep, totals, float(i), float(j))
    return _shares(sweep, totals)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def sweep_scores(
    bits: UInt[np.ndarray, "rows"], is_unknown: Bool[np.ndarray, "rows"], recall: float
) -> tuple[float, ...]:
    """Measure scores, passed as their bits, of which at least one is unknown and one known.

    Time grows in line with the rows, and every row takes the memory of two keys.
    """
    keys, n_unknown = _split_keys(bits, is_unknown)
    scratch = np.empty_like(keys)
    unknown = _radix_sort(keys[:n_unknown], scratch[:n_unknown])
    known = _radix_sort(keys[n_unknown:], scratch[n_unknown:])
    return _merge(unknown, known, recall)


@numba.njit(nogil=True, error_model="numpy")
def _sum_by_class(weights: Any, is_unknown: Any) -> tuple[float, float]:
    # Added row by row as the sweep adds, so that after the last row exactly nothing is left.
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
) -> tuple[float, ...]:
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
    return _shares(sweep, totals)


@numba.njit(nogil=True, error_model="numpy")
def _load(state: Any, lane: int) -> _Sweep:
    return _Sweep(
        state[0, lane], state[1, lane], state[2, lane], state[3, lane], state[4, lane],
        state[5, lane], state[6, lane], state[7, lane], state[8, lane], state[9, lane],
        state[10, lane], state[11, lane], state[12, lane],
    )  # fmt: skip


@numba.njit(nogil=True, error_model="numpy")
def _store(state: Any, lane: int, sweep: _Sweep) -> None:
    for field in range(N_FIELDS):
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
) -> Float64[np.ndarray, "lanes 9"]:
    """Measure rows sorted from the largest score down, once per column of counts.

    There must be `LANES` columns: their number is a constant, so that the compiler advances them
    all with the same instructions. NaN stands where one class has no row.
    """
    totals = np.zeros((2, LANES))
    for row in range(counts.shape[0]):
        _add(totals[0 if is_unknown[row] else 1], counts[row])
    state = np.empty((N_FIELDS, LANES))
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
            shares = _shares(_load(state, lane), of_lane)
            for metric in range(N_METRICS):
                metrics[lane, metric] = shares[metric]
    return metrics
