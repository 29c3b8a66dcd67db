"""How well scores say how good detections are. Sources: SAOD paper eq. 4; notes, table 1.6."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from tests.oracles.boxes import mean
from tests.oracles.matching import Matched, match
from tests.oracles.scenes import Scene

Mode = Literal["paper", "saod", "detection-calibration"]

MATCHING = {"paper": "paper", "saod": "coco", "detection-calibration": "coco"}
TAU = {"paper": 0.1, "saod": 0.1, "detection-calibration": 0.0}


# --- bins -----------------------------------------------------------------------------------------


def edges(n_bins: int) -> list[float]:
    """Give the edges of equal bins of [0, 1], as numpy spaces them."""
    return np.linspace(0.0, 1.0, n_bins + 1).tolist()


def bin_closed_below(score: float, n_bins: int) -> int | None:
    """Find the bin [lo, hi) of a score; 1.0 is in none (SAOD code)."""
    bounds = edges(n_bins)
    for j in range(n_bins):
        if bounds[j] <= score < bounds[j + 1]:
            return j
    return None


def bin_closed_at_end(score: float, n_bins: int) -> int | None:
    """Find the bin [lo, hi) of a score, the last one closed (paper; netcal)."""
    return n_bins - 1 if score == 1.0 else bin_closed_below(score, n_bins)


def bin_closed_above(score: float, n_bins: int) -> int | None:
    """Find the bin (lo, hi] of a score, the first one closed (detection_calibration)."""
    bounds = edges(n_bins)
    for j in range(n_bins):
        if bounds[j] < score <= bounds[j + 1] or (j == 0 and score == 0.0):
            return j
    return None


BINNING: dict[Mode, Callable[[float, int], int | None]] = {
    "paper": bin_closed_at_end,
    "saod": bin_closed_below,
    "detection-calibration": bin_closed_above,
}


def binned_error(
    scores: Sequence[float],
    targets: Sequence[float],
    n_bins: int,
    bin_of: Callable[[float, int], int | None] = bin_closed_at_end,
) -> float:
    """Sum over bins of share of samples times |mean score - mean target|; NaN of nothing.

    A score in no bin adds nothing, but is one of the samples the shares are taken of.
    """
    if not scores:
        return math.nan
    error = 0.0
    for j in range(n_bins):
        inside = [i for i, score in enumerate(scores) if bin_of(score, n_bins) == j]
        if inside:
            mean_score = mean([scores[i] for i in inside])
            mean_target = mean([targets[i] for i in inside])
            error += len(inside) / len(scores) * abs(mean_score - mean_target)
    return error


def ece(confidences: Sequence[float], correct: Sequence[bool], n_bins: int = 10) -> float:
    """Give the expected calibration error of right or wrong answers; the last bin is closed."""
    return binned_error(confidences, [float(c) for c in correct], n_bins)


def brier(confidences: Sequence[float], correct: Sequence[bool]) -> float:
    """Give the mean squared distance of confidence and being right."""
    return mean([(p - float(c)) ** 2 for p, c in zip(confidences, correct, strict=True)])


# --- detections -----------------------------------------------------------------------------------


def target_of(detection: Matched) -> float:
    """Give what the score should be: the IoU of a true positive, 0 of any other (SAOD A.30)."""
    return detection.iou if detection.status == "tp" else 0.0


def class_laece(
    scene: Scene, label: str, mode: Mode, tau: float | None = None, n_bins: int = 25
) -> float:
    """Give LaECE^c (SAOD eq. 4).

    Precision times mean IoU of the true positives of a bin is the sum of their IoU over the number
    of detections of the bin (SAOD A.35), that is the mean of `target_of`.

    NaN where the class is no part of the mean: without a counted detection in "paper", without
    objects or with an error of exactly 0 in "detection-calibration". In "saod" it is 0 instead.
    """
    matching = match(scene, MATCHING[mode], TAU[mode] if tau is None else tau, label)
    counted = matching.counted
    if mode != "paper" and matching.n_truth == 0:
        counted = []
    scores, targets = [each.score for each in counted], [target_of(each) for each in counted]
    error = binned_error(scores, targets, n_bins, BINNING[mode])
    if mode == "saod":
        return 0.0 if math.isnan(error) else error
    if mode == "detection-calibration" and error == 0.0:
        return math.nan
    return error


def laece(scene: Scene, mode: Mode, tau: float | None = None, n_bins: int = 25) -> float:
    """Give the localisation-aware ECE, the mean over the known labels (SAOD 5.1; notes 1.6)."""
    errors = [class_laece(scene, label, mode, tau, n_bins) for label in scene.known_labels]
    return mean([error for error in errors if not math.isnan(error)])


def class_laace(
    scene: Scene,
    label: str,
    mode: Literal["paper", "detection-calibration"],
    tau: float | None = None,
) -> float:
    """Give the mean of |score - target| over the detections of a label (notes 1.6, LaACE).

    "paper": over counted detections. "detection-calibration": ignored ones too, with target 0; NaN
    for a class without objects or with an error of exactly 0.
    """
    matching = match(scene, MATCHING[mode], TAU[mode] if tau is None else tau, label)
    if mode == "paper":
        return mean([abs(each.score - target_of(each)) for each in matching.counted])
    if matching.n_truth == 0:
        return math.nan
    error = mean([abs(each.score - target_of(each)) for each in matching.ranked])
    return math.nan if error == 0.0 else error


def laace(
    scene: Scene, mode: Literal["paper", "detection-calibration"], tau: float | None = None
) -> float:
    """Give the localisation-aware adaptive error, the mean over the known labels."""
    errors = [class_laace(scene, label, mode, tau) for label in scene.known_labels]
    return mean([error for error in errors if not math.isnan(error)])


def pooled(
    scene: Scene, threshold: float = 0.5, convention: str = "coco"
) -> tuple[list[float], list[bool]]:
    """Give score and rightness of the counted detections of all known labels, matched by label."""
    counted = [
        each
        for label in scene.known_labels
        for each in match(scene, convention, threshold, label).counted
    ]
    return [each.score for each in counted], [each.status == "tp" for each in counted]


def detection_ece(
    scene: Scene, threshold: float = 0.5, n_bins: int = 10, convention: str = "coco"
) -> float:
    """Give D-ECE: precision against mean score in bins, all known labels pooled (notes 1.6)."""
    return ece(*pooled(scene, threshold, convention), n_bins)


def detection_ece_of_toolbox(scene: Scene) -> float:
    """Give D-ECE of detection_calibration: bins (lo, hi], labels without objects left out."""
    scores, correct = [], []
    for label in scene.known_labels:
        matching = match(scene, "coco", 0.5, label)
        if matching.n_truth:
            scores += [each.score for each in matching.counted]
            correct += [float(each.status == "tp") for each in matching.counted]
    return binned_error(scores, correct, 10, bin_closed_above)


def detection_brier(scene: Scene, threshold: float = 0.5, convention: str = "coco") -> float:
    """Give the Brier score of the counted detections of all known labels."""
    return brier(*pooled(scene, threshold, convention))
