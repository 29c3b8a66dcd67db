"""Self-aware detection, box by box: SAOD algorithms A.1 and A.2, appendix C.2.1 and C.3."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.oracles import calibration, lrp
from tests.oracles.awareness import (
    balanced_accuracy,
    harmonic_mean,
    image_uncertainty,
    rates,
    roc_thresholds,
)
from tests.oracles.boxes import mean, restrict
from tests.oracles.calibration import target_of
from tests.oracles.matching import match
from tests.oracles.scenes import Detection, Scene
from tests.oracles.thresholds import best_harmonic_mean, lrp_thresholds
from tests.oracles.thresholds import harmonic_mean as exact_harmonic_mean


def entropy(probabilities: Sequence[float]) -> float:
    """Compute the entropy of a categorical distribution (eq. A.6)."""
    return -math.fsum(p * math.log(p) for p in probabilities if p > 0)


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    return [weight / math.fsum(weights) for weight in weights]


def sigmoid_entropy(logit: float) -> float:
    """Compute the entropy of one Bernoulli variable (one term of eq. A.17)."""
    p = 1 / (1 + math.exp(-logit))
    return entropy([p, 1 - p])


def dempster_shafer(logits: Sequence[float]) -> float:
    """Compute C / (C + sum of exp) over all C logits (eq. A.7, A.8)."""
    return len(logits) / (len(logits) + math.fsum(map(math.exp, logits)))


def gaussian_entropy(variances: Sequence[float]) -> float:
    """Compute the entropy of a Gaussian in four dimensions (eq. A.12)."""
    return 2 + 2 * math.log(2 * math.pi) + math.log(math.prod(variances)) / 2


@dataclass(frozen=True)
class Rules:
    u: float
    v: list[float]
    lines: list[tuple[float, float]]  # intercept and slope; (0, 1) for a class without detections


def fit(scene: Scene, pseudo_unknown: Scene) -> Rules:
    """Follow algorithm A.1 with the paper's choices and a slope that is not negative."""
    with_objects = {truth.image for truth in scene.truths if not truth.unknown}
    known = [g for image, g in enumerate(uncertainties(scene)) if image in with_objects]
    u, _ = best_harmonic_mean(known, uncertainties(pseudo_unknown))
    v = lrp_thresholds(scene, 0.1)
    kept = replace(scene, detections=[d for d in scene.detections if is_kept(scene, v, d)])
    return Rules(u, v, [line_of(kept, label) for label in scene.known_labels])


def uncertainties(scene: Scene) -> list[float]:
    """List the mean of the three smallest 1 - confidence of each image."""
    by_image = [[] for _ in range(scene.n_images)]
    for detection in scene.detections:
        by_image[detection.image].append(1 - detection.score)
    return [image_uncertainty(values, "top", 3) for values in by_image]


def is_kept(scene: Scene, v: list[float], detection: Detection) -> bool:
    return detection.score >= v[scene.known_labels.index(detection.label)]


def line_of(kept: Scene, label: str, tau: float = 0.1) -> tuple[float, float]:
    """Fit target = intercept + slope * confidence by least squares, the slope not negative."""
    counted = match(kept, "coco", tau, label).counted
    scores, targets = [each.score for each in counted], [target_of(each) for each in counted]
    if not counted:
        return 0.0, 1.0
    if len(set(scores)) == 1:
        return statistics.fmean(targets), 0.0
    line = statistics.linear_regression(scores, targets)
    if line.slope <= 0:
        return statistics.fmean(targets), 0.0
    return line.intercept, line.slope


def use(scene: Scene, rules: Rules) -> tuple[list[bool], list[tuple[Detection, float]]]:
    """Follow algorithm A.2: which images are accepted, and the kept boxes with their confidence."""
    accepted = [g <= rules.u for g in uncertainties(scene)]
    boxes = []
    for detection in scene.detections:
        if accepted[detection.image] and is_kept(scene, rules.v, detection):
            intercept, slope = rules.lines[scene.known_labels.index(detection.label)]
            boxes.append((detection, min(1.0, max(0.0, intercept + slope * detection.score))))
    return accepted, boxes


# --- as the public code does it: notes 1.5, 1.7, 1.8 and 4 ----------------------------------------


def fit_saod(scene: Scene, pseudo_unknown: Scene) -> Rules:
    """Follow the public code, with its NaN and -1 as thresholds.

    u is one of the points of scikit-learn's ROC curve, the first of equals; v and the lines see the
    detections on images with objects alone; `score < v` drops a detection, which NaN never does.
    """
    with_objects = {truth.image for truth in scene.truths if not truth.unknown}
    known = [g for image, g in enumerate(uncertainties(scene)) if image in with_objects]
    unknown = uncertainties(pseudo_unknown)
    points = roc_thresholds(known, unknown)
    u = max(points, key=lambda point: exact_harmonic_mean(known, unknown, point))
    seen = replace(scene, detections=[d for d in scene.detections if d.image in with_objects])
    v = thresholds_saod(seen)
    left = [d for d in seen.detections if not d.score < v[scene.known_labels.index(d.label)]]
    left_scene = replace(seen, detections=left)
    return Rules(u, v, [line_of_saod(left_scene, label) for label in scene.known_labels])


def thresholds_saod(scene: Scene) -> list[float]:
    """List the score at the best place of each ranking, also inside ties; NaN or -1 without one."""
    thresholds = []
    for label in scene.known_labels:
        matching = match(scene, "coco", 0.1, label)
        best = lrp.optimal_lrp_of(matching.ranked, matching.n_truth, 0.1, "any")
        thresholds.append(best.threshold if matching.n_truth else -1.0)
    return thresholds


def line_of_saod(kept: Scene, label: str) -> tuple[float, float]:
    """Fit a line of any slope; without objects or detections the confidence stays as it is."""
    matching = match(kept, "coco", 0.1, label)
    counted = matching.counted
    scores, targets = [each.score for each in counted], [target_of(each) for each in counted]
    if not matching.n_truth or not counted:
        return 0.0, 1.0
    if len(set(scores)) == 1:
        return statistics.fmean(targets), 0.0
    line = statistics.linear_regression(scores, targets)
    return line.intercept, line.slope


def use_saod(scene: Scene, rules: Rules) -> tuple[list[bool], list[tuple[Detection, float]]]:
    """Accept if G < u; keep if score >= v, which is never true of NaN."""
    accepted = [g < rules.u for g in uncertainties(scene)]
    boxes = []
    for detection in scene.detections:
        if accepted[detection.image] and is_kept(scene, rules.v, detection):
            intercept, slope = rules.lines[scene.known_labels.index(detection.label)]
            boxes.append((detection, min(1.0, max(0.0, intercept + slope * detection.score))))
    return accepted, boxes


def quantile_saod(known: Sequence[float], share: float) -> float:
    """Give the value at the place int(share * n) of the sorted list."""
    return sorted(known)[int(share * len(known))]


# --- the parts of DAQ, and what the tables of a study are made of ---------------------------------


@dataclass(frozen=True)
class Trial:
    """Test scenes; the images of a free shifted one may be rejected without penalty."""

    known: Scene
    shifted: dict[str, Scene]
    free: set[str]
    unknown: dict[str, Scene]


def awareness(trial: Trial, rules: Rules) -> dict[str, float]:
    """Compute DAQ and its parts (SAOD section 6) from scenes and rules."""
    unknown = [g for scene in trial.unknown.values() for g in uncertainties(scene)]
    known = uncertainties(trial.known)
    tpr, tnr = rates(known, unknown, rules.u)
    ba = balanced_accuracy(known, unknown, rules.u)
    parts = []
    for name, scene in trial.shifted.items():
        accepted, left = decided(scene, rules)
        images = [k for k in range(scene.n_images) if name not in trial.free or accepted[k]]
        parts.append(restrict(left, images))
    idq = quality(decided(trial.known, rules)[1])
    idq_t = quality(joined(parts))
    daq = harmonic_mean(ba, idq["idq"], idq_t["idq"])
    shifted = {f"{name}_t": value for name, value in idq_t.items()}
    return {"daq": daq, "ba": ba, "tpr": tpr, "tnr": tnr, **idq, **shifted}


def decided(scene: Scene, rules: Rules) -> tuple[list[bool], Scene]:
    """Return which images are accepted, and the scene of what is left."""
    accepted, boxes = use(scene, rules)
    return accepted, replace(scene, detections=[replace(d, score=p) for d, p in boxes])


def joined(scenes: list[Scene]) -> Scene:
    """Put scenes behind each other, each with its own images."""
    detections, truths, start = [], [], 0
    for scene in scenes:
        detections += [replace(d, image=d.image + start) for d in scene.detections]
        truths += [replace(t, image=t.image + start) for t in scene.truths]
        start += scene.n_images
    return replace(scenes[0], n_images=start, detections=detections, truths=truths)


def quality(scene: Scene, tau: float = 0.1) -> dict[str, float]:
    """Compute LRP, LaECE and IDQ of a scene; without a detection LaECE does not count."""
    error = lrp.mean_lrp(list(lrp.class_lrps(scene, tau).values())).error
    laece = calibration.laece(scene, "paper", tau)
    idq = harmonic_mean(1 - error, 1 - (0.0 if math.isnan(laece) else laece))
    return {"idq": idq, "laece": laece, "lrp": error}


def kept(scene: Scene, v: list[float]) -> Scene:
    """Keep the detections that reach the threshold of their class."""
    return replace(scene, detections=[d for d in scene.detections if is_kept(scene, v, d)])


def mapped(scene: Scene, lines: list[tuple[float, float]]) -> Scene:
    """Map every confidence by the line of its class, inside 0 to 1."""
    mapped = []
    for d in scene.detections:
        intercept, slope = lines[scene.known_labels.index(d.label)]
        mapped.append(replace(d, score=min(1.0, max(0.0, intercept + slope * d.score))))
    return replace(scene, detections=mapped)


def auroc(known: Sequence[float], unknown: Sequence[float]) -> float:
    """Compute the share of pairs in which the unknown one is higher, a tie counting half."""
    return mean([(u > k) + (u == k) / 2 for u in unknown for k in known])


def diagram(scene: Scene, n_bins: int) -> list[tuple[float, float, int]]:
    """Average confidence and precision x IoU in each bin over classes, and count (SAOD 5.1)."""
    columns = []
    for j in range(n_bins):
        confidences, qualities, n = [], [], 0
        for label in scene.known_labels:
            inside = [
                each
                for each in match(scene, "coco", 0.1, label).counted
                if calibration.bin_closed_at_end(each.score, n_bins) == j
            ]
            n += len(inside)
            if inside:
                confidences.append(mean([each.score for each in inside]))
                qualities.append(mean([target_of(each) for each in inside]))
        columns.append((mean(confidences), mean(qualities), n))
    return columns
