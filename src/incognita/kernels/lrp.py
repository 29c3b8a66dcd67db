"""The LRP error at every confidence threshold, and where it is smallest."""

import numba
import numpy as np

Array = np.ndarray


@numba.njit(cache=True, nogil=True, error_model="numpy")
def optimal_lrp(
    by_label: Array,
    starts: Array,
    flags: Array,
    ious: Array,
    confidence: Array,
    images: Array,
    weights: Array,
    n_truth: Array,
    tau: float,
    at_ties: bool,
) -> Array:
    """Smallest LRP of every label under every column of image weights.

    Gives arrays [labels, replicates, 5]: the LRP, the confidence it is reached at, the mean
    1 - IoU, 1 - precision and 1 - recall there. `at_ties` looks inside groups of equal confidence
    as well. A label without any true positive has LRP 1, recall 0, and no confidence.
    """
    n_labels, n_replicates = n_truth.shape
    best = np.full((n_labels, n_replicates, 5), np.nan)
    found = np.empty(n_replicates)
    wrong = np.empty(n_replicates)
    loss = np.empty(n_replicates)
    scale = 1.0 / (1.0 - tau)
    for label in range(n_labels):
        found[:] = 0.0
        wrong[:] = 0.0
        loss[:] = 0.0
        for r in range(n_replicates):
            best[label, r, 0] = np.inf
        has_gained = False
        for q in range(starts[label], starts[label + 1]):
            i = by_label[q]
            image = images[i]
            if not flags[i, flags.shape[1] // 2] & 1:
                is_hit = flags[i, 0] & 1
                has_gained |= is_hit != 0
                for r in range(n_replicates):
                    w = weights[image, r]
                    if is_hit:
                        found[r] += w
                        loss[r] += w * (1.0 - ious[i])
                    else:
                        wrong[r] += w
            is_inside = q + 1 < starts[label + 1] and confidence[by_label[q + 1]] == confidence[i]
            if not has_gained or (is_inside and not at_ties):
                continue  # what is only wrong never lowers an error of at most one
            has_gained = False
            for r in range(n_replicates):
                n = n_truth[label, r]
                lrp = (loss[r] * scale + wrong[r] + n - found[r]) / (n + wrong[r])
                if found[r] > 0 and lrp < best[label, r, 0]:  # not on an image of weight zero
                    best[label, r, 0] = lrp
                    best[label, r, 1] = confidence[i]
                    best[label, r, 2] = loss[r] / found[r]
                    best[label, r, 3] = wrong[r] / (found[r] + wrong[r])
                    best[label, r, 4] = 1.0 - found[r] / n
        for r in range(n_replicates):
            if n_truth[label, r] == 0:
                best[label, r, :] = np.nan
            elif found[r] == 0:
                best[label, r, :] = (1.0, np.nan, np.nan, np.nan, 1.0)
    return best
