"""Average precision in all its forms, by definition. Sources: notes, tables 1.3 and 1.4."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from tests.oracles.matching import (
    CONVENTIONS,
    AreaRange,
    Matched,
    Matching,
    is_ignored,
    match,
    overlap,
    score_of,
)
from tests.oracles.scenes import UNKNOWN, Detection, Scene, Truth

Points = Literal["101", "area", "11"]
NoTruth = Literal["left out", "nan if detected", "zero"]

# A protocol is a way to match, a way to integrate, and a value for a class without any object
# (notes, tables 1.1 "class without GT" and 1.3 "AP_U"). Plain `voc` with the exact area is not in
# the notes; it follows owod, whose code descends from it.
PROTOCOLS: dict[str, tuple[str, Points, NoTruth]] = {
    "coco": ("coco", "101", "left out"),
    "paper": ("paper", "101", "left out"),
    "voc": ("voc", "area", "nan if detected"),
    "voc07": ("voc", "11", "zero"),
    "owod": ("owod", "area", "nan if detected"),
    "owdetr": ("owod", "11", "zero"),
    "fmiyc": ("fmiyc", "area", "zero"),
}

RECALLS_101 = np.linspace(0.0, 1.0, 101).tolist()
RECALLS_11 = np.arange(0.0, 1.1, 0.1).tolist()
IOUS = np.linspace(0.5, 0.95, 10).tolist()
AREAS: dict[str, AreaRange] = {
    "all": (0.0, 1e10),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, 1e10),
}


def mean(values: Sequence[float]) -> float:
    """Average; of nothing it is NaN."""
    return math.fsum(values) / len(values) if values else math.nan


def nan_mean(values: Sequence[float]) -> float:
    """Average of the values that are defined."""
    return mean([value for value in values if not math.isnan(value)])


# --- curves and areas -----------------------------------------------------------------------------


def curve(ranked: Sequence[Matched], n_truth: int) -> tuple[list[float], list[float]]:
    """Give recall and precision after each detection; ignored ones change neither."""
    recalls, precisions = [], []
    tp = fp = 0
    for each in ranked:
        tp += each.status == "tp"
        fp += each.status == "fp"
        recalls.append(tp / n_truth if n_truth else math.nan)
        precisions.append(tp / (tp + fp) if tp + fp else 0.0)
    return recalls, precisions


def precision_from(recalls: list[float], precisions: list[float], recall: float) -> float:
    """Give the best precision at this recall or more; 0 if it is never reached."""
    reached = [p for r, p in zip(recalls, precisions, strict=True) if r >= recall]
    return max(reached, default=0.0)


def average_precision(matching: Matching, points: Points) -> float:
    """Give the area under the curve of best precisions; NaN if no object was asked for.

    "101" and "11" average over equally spaced recalls (COCO, VOC 2007); "area" is exact: the sum
    over rises of recall of rise times the best precision from there on (FMIYC eq. 7 and 8).
    """
    if matching.n_truth == 0:
        return math.nan
    recalls, precisions = curve(matching.ranked, matching.n_truth)
    if points != "area":
        grid = RECALLS_101 if points == "101" else RECALLS_11
        return mean([precision_from(recalls, precisions, recall) for recall in grid])
    area, before = 0.0, 0.0
    for recall in recalls:
        area += (recall - before) * precision_from(recalls, precisions, recall)
        before = recall
    return area


def class_ap(scene: Scene, protocol: str, label: str, threshold: float = 0.5) -> float:
    """Give the AP of one label with the protocol's own answer for a class without objects."""
    convention, points, no_truth = PROTOCOLS[protocol]
    matching = match(scene, convention, threshold, label)
    ap = average_precision(matching, points)
    if not math.isnan(ap) or no_truth == "left out":
        return ap
    if no_truth == "nan if detected" and matching.ranked:
        return math.nan
    return 0.0


def map_known(scene: Scene, protocol: str, threshold: float = 0.5) -> float:
    """Give mAP_k, the mean AP over the known labels (notes 1.3).

    Where classes without objects are left out, NaN means "skip"; elsewhere NaN spoils the mean.
    """
    aps = [class_ap(scene, protocol, label, threshold) for label in scene.known_labels]
    return nan_mean(aps) if PROTOCOLS[protocol][2] == "left out" else mean(aps)


def ap_unknown(scene: Scene, protocol: str, threshold: float = 0.5) -> float:
    """Give AP_U: the AP of the label "unknown" (notes 1.3)."""
    return class_ap(scene, protocol, UNKNOWN, threshold)


def precision_unknown(scene: Scene, convention: str, threshold: float = 0.5) -> float:
    """Give P_U = TP_U / (TP_U + FP_U) (FMIYC eq. 4); NaN if nothing was called unknown."""
    counted = match(scene, convention, threshold, UNKNOWN).counted
    return mean([float(each.status == "tp") for each in counted])


def recall_unknown(scene: Scene, convention: str, threshold: float = 0.5) -> float:
    """Give R_U = TP_U / (TP_U + FN_U), also called U-Recall (FMIYC eq. 5)."""
    matching = match(scene, convention, threshold, UNKNOWN)
    return len(matching.found_truths) / matching.n_truth if matching.n_truth else math.nan


def ap_all(scene: Scene, threshold: float = 0.5) -> float:
    """Give AP_all: every box and every object as one class (OSOD-B 3.4; COCO with useCats=0).

    Equal scores within an image come category by category, the order COCO has.
    """
    return average_precision(match(scene, "coco", threshold, label=None), "101")


# --- the twelve numbers of COCO -------------------------------------------------------------------


def coco_ap(
    scene: Scene,
    labels: Sequence[str | None],
    thresholds: Sequence[float] = IOUS,
    area: str = "all",
) -> float:
    """Give the mean AP over labels and IoU thresholds; labels without objects are left out."""
    aps = [
        average_precision(match(scene, "coco", threshold, label, AREAS[area]), "101")
        for label in labels
        for threshold in thresholds
    ]
    return nan_mean(aps)


def coco_ar(
    scene: Scene, labels: Sequence[str | None], area: str = "all", max_detections: int = 100
) -> float:
    """Give the mean of the last recall over labels and IoU thresholds."""
    recalls = []
    for label in labels:
        for threshold in IOUS:
            matching = match(scene, "coco", threshold, label, AREAS[area], max_detections)
            if matching.n_truth:
                tp = sum(each.status == "tp" for each in matching.ranked)
                recalls.append(tp / matching.n_truth)
    return mean(recalls)


def coco_numbers(scene: Scene, labels: Sequence[str | None]) -> dict[str, float]:
    """Give what pycocotools prints, NaN where it prints -1; labels [None] is useCats=0."""
    return {
        "AP": coco_ap(scene, labels),
        "AP50": coco_ap(scene, labels, IOUS[:1]),
        "AP75": coco_ap(scene, labels, IOUS[5:6]),
        "AP_small": coco_ap(scene, labels, area="small"),
        "AP_medium": coco_ap(scene, labels, area="medium"),
        "AP_large": coco_ap(scene, labels, area="large"),
        "AR_1": coco_ar(scene, labels, max_detections=1),
        "AR_10": coco_ar(scene, labels, max_detections=10),
        "AR_100": coco_ar(scene, labels, max_detections=100),
        "AR_small": coco_ar(scene, labels, area="small"),
        "AR_medium": coco_ar(scene, labels, area="medium"),
        "AR_large": coco_ar(scene, labels, area="large"),
    }


# --- splits and AP_sc -----------------------------------------------------------------------------


def split_images(scene: Scene, split: Literal["all", "known-only", "unknown-only"]) -> list[int]:
    """List the images of a split (OSOD-B 3.1); every object counts, crowd and difficult too.

    An image without objects is in "all" only.
    """
    if split == "all":
        return list(range(scene.n_images))
    kinds = {image: set() for image in range(scene.n_images)}
    for truth in scene.truths:
        kinds[truth.image].add(truth.unknown)
    wanted = {"known-only": {False}, "unknown-only": {True}}[split]
    return [image for image, kind in kinds.items() if kind == wanted]


def restrict(scene: Scene, images: Sequence[int]) -> Scene:
    """Keep some images of a scene and number them anew."""
    number = {image: i for i, image in enumerate(images)}
    detections = [
        Detection(**{**vars(d), "image": number[d.image]})
        for d in scene.detections
        if d.image in number
    ]
    truths = [
        Truth(**{**vars(t), "image": number[t.image]}) for t in scene.truths if t.image in number
    ]
    return Scene(len(images), detections, truths, scene.known_labels, scene.superclass_of)


def fits_superclass(scene: Scene, label: str, truth: Truth) -> bool:
    """Say whether a label is right for AP_sc: unknown, or known and of the same super-class."""
    if label == UNKNOWN:
        return True
    own = scene.superclass_of.get(label)
    return own is not None and own == truth.superclass


def ap_superclass(scene: Scene, threshold: float = 0.5) -> float:
    """Give AP_sc (OSOD-B 3.4), read as in notes 1.3: greedy, IoU strictly above, exact area.

    On unknown-only images. In descending score, each detection of any label takes the free object
    of fitting super-class that it overlaps best (of equals the later); else it is ignored if it
    so overlaps a fitting crowd (many times) or difficult object (once); else it is false.
    """
    how = CONVENTIONS["paper"]
    pure = restrict(scene, split_images(scene, "unknown-only"))
    asked = [j for j, t in enumerate(pure.truths) if not is_ignored("paper", t)]
    ignored = [j for j, t in enumerate(pure.truths) if is_ignored("paper", t)]
    ranked = sorted(
        range(len(pure.detections)),
        key=lambda i: (-score_of(how, pure, i), pure.detections[i].image),
    )
    taken: set[int] = set()
    matched = []
    for i in ranked:
        detection = pure.detections[i]
        status, best, best_iou = "fp", None, 0.0
        for choice, name in ((asked, "tp"), (ignored, "ignored")):
            for j in choice:
                truth = pure.truths[j]
                if truth.image != detection.image or (j in taken and not truth.crowd):
                    continue
                iou = overlap(how, detection, truth)
                fits = fits_superclass(scene, detection.label, truth)
                if fits and iou > threshold and iou >= best_iou:
                    status, best, best_iou = name, j, iou
            if best is not None:
                taken.add(best)
                break
        matched.append(Matched(i, detection.label, detection.score, status, best, best_iou))
    return average_precision(Matching(matched, len(asked)), "area")
