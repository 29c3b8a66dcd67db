"""Threshold policies from their definitions, in loops. Sources: notes 1.2, 1.3, 1.5, 1.7 and 4."""

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction

from tests.oracles import lrp
from tests.oracles.boxes import IOUS, RECALLS_101, mean
from tests.oracles.matching import Matching, match
from tests.oracles.scenes import Scene


def share_at_most(scores: Sequence[float], value: float) -> Fraction:
    """Count the scores up to a value, as an exact share."""
    return Fraction(sum(score <= value for score in scores), len(scores))


def known_quantile(known: Sequence[float], share: str) -> float:
    """Give the smallest known score that at least a share, as written, does not exceed."""
    for value in sorted(known):
        if share_at_most(known, value) >= Fraction(share):
            return value
    raise AssertionError("the largest score accepts all")


def known_gaussian(known: Sequence[float], n_std: float) -> float:
    """Give mean plus deviations, from the standard library's exact sums, divided by n."""
    return statistics.mean(known) + n_std * statistics.pstdev(known)


def harmonic_mean(known: Sequence[float], unknown: Sequence[float], value: float) -> Fraction:
    """Give the harmonic mean of known accepted and unknown rejected, exactly; 0 if one is 0."""
    accepted, rejected = share_at_most(known, value), 1 - share_at_most(unknown, value)
    if accepted == 0 or rejected == 0:
        return Fraction(0)
    return 2 / (1 / accepted + 1 / rejected)


def best_harmonic_mean(known: Sequence[float], unknown: Sequence[float]) -> tuple[float, Fraction]:
    """Give the smallest of the scores with the largest harmonic mean, and that mean."""
    best, best_mean = math.nan, Fraction(-1)
    for value in sorted({*known, *unknown}):
        here = harmonic_mean(known, unknown, value)
        if here > best_mean:
            best, best_mean = value, here
    return best, best_mean


# --- F1 over confidence ---------------------------------------------------------------------------


def point_at(matching: Matching, recall: float) -> tuple[float, float]:
    """Give the precision and the score at a recall, walking down until it is reached.

    Precision is the largest at this place or further down. The walk looks at every detection, the
    first even before it is asked whether it is right, so that recall 0 is reached by the surest
    one. A recall that is never reached has 0 for both.
    """
    found = 0
    for i, each in enumerate(matching.ranked):
        found += each.status == "tp"
        if found / matching.n_truth >= recall:
            return best_precision_from(matching, i), each.score
    return 0.0, 0.0


def best_precision_from(matching: Matching, first: int) -> float:
    best, found, counted = 0.0, 0, 0
    for i, each in enumerate(matching.ranked):
        found += each.status == "tp"
        counted += each.status in ("tp", "fp")
        if i >= first and counted:
            best = max(best, found / counted)
    return best


def f1_points(scene: Scene, label: str) -> list[tuple[float, float]]:
    """List F1 and score at the 101 recalls, precision and score averaged over the ten IoUs."""
    matchings = [match(scene, "coco", iou, label) for iou in IOUS]
    if not matchings[0].n_truth:
        return []
    points = []
    for recall in RECALLS_101:
        read = [point_at(matching, recall) for matching in matchings]
        precision = mean([p for p, _ in read])
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        points.append((f1, mean([score for _, score in read])))
    return points


def f1_thresholds(scene: Scene) -> dict[str, list[float]]:
    """List for each known label the scores with the best F1 up to rounding; none if F1 is 0."""
    by_label = {}
    for label in scene.known_labels:
        points = f1_points(scene, label)
        best = max((f1 for f1, _ in points), default=0.0)
        good = [score for f1, score in points if f1 > best - 1e-12]
        by_label[label] = good if best > 0 and good[0] > 0 else []
    return by_label


# --- LRP ------------------------------------------------------------------------------------------


def lrp_thresholds(scene: Scene, tau: float) -> list[float]:
    """Give the optimal threshold of each known label, infinity where there is none."""
    best = lrp.class_optimal_lrps(scene, tau, "ties").values()
    return [math.inf if math.isnan(each.threshold) else each.threshold for each in best]
