"""Counts of known detections at the place where a wanted recall is reached."""

from typing import NamedTuple

import numba
import numpy as np

Array = np.ndarray


class Counts(NamedTuple):
    """What the detections so far add up to, one entry per replicate."""

    found: Array
    counted: Array
    errors: Array
    nearest: Array


@numba.njit(inline="always")
def _note_nearest(
    at: Array, counts: Counts, weights: Array, n_truth: Array, level: float, is_hit: int
) -> int:
    """Keep the counts where the recall comes nearer to the level; gives how many have none yet.

    The recall moves only at true positives, so only they can come nearer; other detections matter
    where they are the first of all.
    """
    n_open = 0
    for r in range(weights.size):
        is_first = np.isinf(counts.nearest[r])
        if weights[r] > 0 and (is_hit or is_first):
            distance = abs(counts.found[r] / n_truth[r] - level)
            if is_first or distance < counts.nearest[r]:
                # a label without objects has no recall: its first detection is never replaced
                counts.nearest[r] = -1.0 if np.isnan(distance) else distance
                at[r, 0] = counts.found[r]
                at[r, 1] = counts.counted[r]
                at[r, 2] = counts.errors[r]
        n_open += np.isinf(counts.nearest[r])
    return n_open


@numba.njit(cache=True, nogil=True, error_model="numpy")
def counts_at_recall(
    by_label: Array, starts: Array, flags: Array, is_open_error: Array, images: Array,
    weights: Array, n_truth: Array, level: float,
) -> Array:  # fmt: skip
    """Counts of each label at the detection whose recall is nearest to a level.

    Gives [labels, replicates, 3]: found, found + wrong, and detections that lie on unknown objects,
    all cumulative; NaN where a label has no detection. The first of equally near places counts, and
    a label without objects, whose recall is undefined, is read at its first detection.
    """
    n_labels, n_replicates = n_truth.shape
    at = np.full((n_labels, n_replicates, 3), np.nan)
    for label in range(n_labels):
        counts = Counts(
            np.zeros(n_replicates), np.zeros(n_replicates), np.zeros(n_replicates),
            np.full(n_replicates, np.inf),
        )  # fmt: skip
        n_open = n_replicates
        for q in range(starts[label], starts[label + 1]):
            i = by_label[q]
            row = weights[images[i]]
            is_hit = flags[i, 0] & 1
            is_counted = not flags[i, 1] & 1
            for r in range(n_replicates):
                counts.found[r] += row[r] * is_hit
                counts.counted[r] += row[r] * is_counted
                counts.errors[r] += row[r] * is_open_error[i]
            if is_hit or n_open:
                n_open = _note_nearest(at[label], counts, row, n_truth[label], level, is_hit)
    return at
