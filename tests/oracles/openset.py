"""What happens to unknown objects: open-set errors, wilderness impact, coverage.

Sources: notes, table 1.3; FMIYC appendix C, eq. 3 to 9; OSOD-B sections 2.2 and 3.4.
"""

import math
from dataclasses import dataclass
from typing import Literal

from tests.oracles.boxes import curve, precision_from, restrict, split_images
from tests.oracles.matching import CONVENTIONS, is_ignored, match, overlap, reaches
from tests.oracles.scenes import UNKNOWN, Scene

# --- open-set error -------------------------------------------------------------------------------


def open_set_detections(
    scene: Scene, convention: str, threshold: float = 0.5, *, with_ignored: bool = True
) -> set[int]:
    """Give the known-label detections that lie on an unknown object (notes 1.3, A-OSE as coded).

    One to one or not plays no role, nor does a known object under the same box. Difficult and
    crowd objects are not excluded, unless `with_ignored` is False.
    """
    how = CONVENTIONS[convention]
    places = set()
    for i, detection in enumerate(scene.detections):
        if detection.label == UNKNOWN:
            continue
        for truth in scene.truths:
            if not truth.unknown or truth.image != detection.image:
                continue
            if is_ignored(convention, truth) and not with_ignored:
                continue
            if reaches(how, overlap(how, detection, truth), threshold):
                places.add(i)
    return places


def aose_by_detections(
    scene: Scene, convention: str, threshold: float = 0.5, *, with_ignored: bool = True
) -> int:
    """Give A-OSE as all public evaluators code it: a number of detections."""
    return len(open_set_detections(scene, convention, threshold, with_ignored=with_ignored))


def nose_by_detections(scene: Scene, convention: str, threshold: float = 0.5) -> float:
    """Give A-OSE by detections over the unknown objects asked for; may exceed 1 (notes 1.3)."""
    n = match(scene, convention, threshold, UNKNOWN).n_truth
    return aose_by_detections(scene, convention, threshold) / n if n else math.nan


@dataclass(frozen=True)
class UnknownFates:
    """What became of each unknown object that is asked for; the four numbers add up to all.

    Args:
        found: TP_U, matched by a detection with the label "unknown".
        misclassified: FN_U^M, not found, but overlapped by a detection with a known label.
        dismissed: FN_U^D, overlapped by no detection at all.
        outmatched: Overlapped only by "unknown" detections that were given to other objects. The
            paper has no name for it, so its eq. 3, FN_U = FN_U^D + FN_U^M, holds without it only.
    """

    found: int
    misclassified: int
    dismissed: int
    outmatched: int

    @property
    def total(self) -> int:
        return self.found + self.misclassified + self.dismissed + self.outmatched


def unknown_fates(scene: Scene, convention: str = "paper", threshold: float = 0.5) -> UnknownFates:
    """Sort the unknown objects into found, misclassified, dismissed (FMIYC appendix C, eq. 3)."""
    how = CONVENTIONS[convention]
    found = match(scene, convention, threshold, UNKNOWN).found_truths
    counts = {"found": 0, "misclassified": 0, "dismissed": 0, "outmatched": 0}
    for j, truth in enumerate(scene.truths):
        if not truth.unknown or is_ignored(convention, truth):
            continue
        over = {
            detection.label
            for detection in scene.detections
            if detection.image == truth.image
            and reaches(how, overlap(how, detection, truth), threshold)
        }
        if j in found:
            counts["found"] += 1
        elif over - {UNKNOWN}:
            counts["misclassified"] += 1
        elif not over:
            counts["dismissed"] += 1
        else:
            counts["outmatched"] += 1
    return UnknownFates(**counts)


def aose_by_objects(scene: Scene, convention: str = "paper", threshold: float = 0.5) -> int:
    """Give A-OSE as the papers define it: FN_U^M, a number of unknown objects."""
    return unknown_fates(scene, convention, threshold).misclassified


def nose_by_objects(scene: Scene, convention: str = "paper", threshold: float = 0.5) -> float:
    """Give nOSE = FN_U^M / (TP_U + FN_U) (FMIYC eq. 9)."""
    fates = unknown_fates(scene, convention, threshold)
    return fates.misclassified / fates.total if fates.total else math.nan


# --- wilderness impact ----------------------------------------------------------------------------


def wilderness_impact_owod(
    scene: Scene, convention: str = "owod", recall: float = 0.8, threshold: float = 0.5
) -> float:
    """Give WI(r) as the OWOD family codes it (notes 1.3): a ratio of two means over classes.

    For each known class with a detection, i_c is the first place in its ranking whose recall is
    nearest to r (place 0 if the class has no object). Above: detections up to i_c that lie on an
    unknown object. Below: true and false positives up to i_c. NaN if there is nothing below.
    """
    open_set = open_set_detections(scene, convention, threshold)
    above, below = [], []
    for label in scene.known_labels:
        matching = match(scene, convention, threshold, label)
        if not matching.ranked:
            continue
        recalls, _ = curve(matching.ranked, matching.n_truth)
        place = 0
        for i, value in enumerate(recalls):
            if abs(value - recall) < abs(recalls[place] - recall):
                place = i
        head = matching.ranked[: place + 1]
        above.append(sum(each.place in open_set for each in head))
        below.append(sum(each.status != "ignored" for each in head))
    return sum(above) / sum(below) if sum(below) else math.nan


def known_precision(scene: Scene, convention: str = "owod") -> float:
    """Give P_k: the mean over known labels of the last precision, 0 without a detection."""
    last = []
    for label in scene.known_labels:
        matching = match(scene, convention, 0.5, label)
        last.append(curve(matching.ranked, matching.n_truth)[1][-1] if matching.ranked else 0.0)
    return sum(last) / len(last)


def known_recall(scene: Scene, convention: str = "owod") -> float:
    """Give R_k: the mean over known labels of the last recall, 0 without a detection.

    A label with detections but without objects has NaN in the OWOD family and 0 in FMIYC's code.
    """
    last = []
    for label in scene.known_labels:
        matching = match(scene, convention, 0.5, label)
        recall = curve(matching.ranked, matching.n_truth)[0][-1] if matching.ranked else 0.0
        last.append(0.0 if convention == "fmiyc" and matching.n_truth == 0 else recall)
    return sum(last) / len(last)


def wilderness_impact_dhamija(
    scene: Scene,
    recall: float,
    convention: str = "paper",
    threshold: float = 0.5,
    closed: Literal["detections", "images"] = "detections",
) -> float:
    """Give WI = P_closed / P_open - 1 (Dhamija et al. 2020; notes 1.3).

    Both precisions are the mean over the known classes with objects of the best precision at this
    recall of known objects or more, 0 for a class that never reaches it; NaN if P_open is 0.

    "detections": P_open ranks all detections; P_closed leaves out the open-set false positives,
    those that are false and lie on an unknown object. A true positive stays in both.
    "images", as the paper sets its data up: P_closed ranks the images without unknown objects,
    P_open these and the images with unknown objects only. Images with both kinds are in neither.
    """
    if closed == "images":
        unknown_only = set(split_images(scene, "unknown-only"))
        with_unknown = {truth.image for truth in scene.truths if truth.unknown}
        tame = [i for i in range(scene.n_images) if i not in with_unknown]
        wild = sorted({*tame, *unknown_only})
        scenes = (restrict(scene, tame), restrict(scene, wild))
    else:
        scenes = (scene, scene)
    sums = [0.0, 0.0]
    for which, part in enumerate(scenes):
        open_set = open_set_detections(part, convention, threshold)
        for label in part.known_labels:
            matching = match(part, convention, threshold, label)
            if matching.n_truth == 0:
                continue
            ranked = matching.ranked
            if closed == "detections" and which == 0:
                ranked = [e for e in ranked if not (e.status == "fp" and e.place in open_set)]
            recalls, precisions = curve(ranked, matching.n_truth)
            sums[which] += precision_from(recalls, precisions, recall)
    return sums[0] / sums[1] - 1 if sums[1] else math.nan


# --- coverage -------------------------------------------------------------------------------------


def silent_images(scene: Scene) -> float:
    """Give the share of images without any detection (FMIYC table 12; notes 1.2)."""
    if not scene.n_images:
        return math.nan
    return 1 - len({d.image for d in scene.detections}) / scene.n_images


def false_alarms(scene: Scene) -> float:
    """Return the share of images without unknown objects that have a detection called unknown."""
    with_unknown = {truth.image for truth in scene.truths if truth.unknown}
    known = [image for image in range(scene.n_images) if image not in with_unknown]
    called = [d.image for d in scene.detections if d.label == UNKNOWN]
    return sum(image in called for image in known) / len(known) if known else math.nan


def overlooked_unknowns(scene: Scene, convention: str = "paper", threshold: float = 0.5) -> float:
    """Give the share of unknown objects that no detection of any label overlaps: FN_U^D / all."""
    fates = unknown_fates(scene, convention, threshold)
    return fates.dismissed / fates.total if fates.total else math.nan
