"""Counts of known detections at the place where a wanted recall is reached."""

import numba
import numpy as np

Array = np.ndarray


@numba.njit(cache=True, nogil=True, error_model="numpy")
def counts_at_recall(
    by_label: Array,
    starts: Array,
    flags: Array,
    is_open_error: Array,
    images: Array,
    weights: Array,
    n_truth: Array,
    level: float,
) -> Array:
    """Counts of each label at the detection whose recall is nearest to a level.

    Gives [labels, replicates, 3]: found, found + wrong, and detections that lie on unknown objects,
    all cumulative; NaN where a label has no detection. The first of equally near places counts, and
    a label without objects, whose recall is undefined, is read at its first detection.
    """
    n_labels, n_replicates = n_truth.shape
    at = np.full((n_labels, n_replicates, 3), np.nan)
    found = np.empty(n_replicates)
    counted = np.empty(n_replicates)
    errors = np.empty(n_replicates)
    nearest = np.empty(n_replicates)
    for label in range(n_labels):
        found[:] = 0.0
        counted[:] = 0.0
        errors[:] = 0.0
        nearest[:] = np.inf
        for q in range(starts[label], starts[label + 1]):
            i = by_label[q]
            is_hit = flags[i, 0] & 1
            is_counted = not flags[i, 1] & 1
            for r in range(n_replicates):
                w = weights[images[i], r]
                if w == 0:
                    continue
                found[r] += w * is_hit
                counted[r] += w * is_counted
                errors[r] += w * is_open_error[i]
                distance = abs(found[r] / n_truth[label, r] - level)
                if distance < nearest[r] or np.isnan(at[label, r, 0]):
                    nearest[r] = distance
                    at[label, r, 0] = found[r]
                    at[label, r, 1] = counted[r]
                    at[label, r, 2] = errors[r]
    return at
