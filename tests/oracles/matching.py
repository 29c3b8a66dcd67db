"""Which detection finds which object, under the conventions of five evaluators.

Sources: notes/detection.md table 1.1, one column each; the SAOD paper, appendix D.1, steps 1 to 3
(the COCO algorithm in words). The public evaluators that sort with an unstable sort are given the
stable order here: score, then image, then place in the list.

| name  | match       | which object      | crowd           | difficult | boxes              | cap |
|-------|-------------|-------------------|-----------------|-----------|--------------------|-----|
| coco  | IoU >= t    | best free one     | ignored region  | normal    | as given           | 100 |
| paper | IoU >= t    | best free one     | ignored region  | ignored   | as given           | -   |
| voc   | IoU > t     | the one best      | as difficult    | ignored   | +1 areas           | -   |
| owod  | IoU > t     | the one best      | normal          | ignored   | written, +1 areas  | -   |
| fmiyc | IoU > t     | the one best      | normal          | normal    | written, +1 areas  | -   |
"""

from dataclasses import dataclass
from typing import Literal

from tests.oracles.scenes import Detection, Scene, Truth, Xyxy

Status = Literal["tp", "fp", "ignored"]
AreaRange = tuple[float, float]


@dataclass(frozen=True)
class Convention:
    """How one evaluator reads boxes and matches them."""

    name: str
    is_greedy: bool  # COCO: the best object that is still free; else the one best object, or none
    ignores_crowd: bool
    ignores_difficult: bool
    has_crowd_regions: bool  # a crowd takes many detections, by their share inside it
    adds_one: bool  # a box from 3 to 5 is 3 pixels wide
    rounds_detections: bool  # rounded and shifted in a text file
    rounds_truth: bool
    drops_unannotated: bool  # detections on images without any annotation are not looked at
    max_detections: int | None = None


CONVENTIONS = {
    "coco": Convention("coco", True, True, False, True, False, False, False, False, 100),
    "paper": Convention("paper", True, True, True, True, False, False, False, False),
    "voc": Convention("voc", False, True, True, False, True, False, False, False),
    "owod": Convention("owod", False, False, True, False, True, True, True, False),
    "fmiyc": Convention("fmiyc", False, False, False, False, True, True, False, True),
}


@dataclass(frozen=True)
class Matched:
    """A detection and what became of it; `truth` is the place of its object in the scene."""

    place: int
    label: str
    score: float  # as the convention reads it
    status: Status
    truth: int | None = None
    iou: float = 0.0


@dataclass(frozen=True)
class Matching:
    """All detections in descending order of score, and how many objects were asked for."""

    ranked: list[Matched]
    n_truth: int

    @property
    def counted(self) -> list[Matched]:
        """The detections that are right or wrong, not ignored."""
        return [each for each in self.ranked if each.status != "ignored"]

    @property
    def found_truths(self) -> set[int]:
        """The objects that have a true positive."""
        return {each.truth for each in self.ranked if each.status == "tp"}


def match(
    scene: Scene,
    convention: str,
    threshold: float = 0.5,
    label: str | None = None,
    area_range: AreaRange | None = None,
    max_detections: int | Literal["as convention"] | None = "as convention",
) -> Matching:
    """Match the detections of one label with the objects of that label; None: all as one class.

    Args:
        scene: The detections and objects.
        convention: A name of the table above.
        threshold: The IoU a match needs.
        label: A known label, "unknown", or None for the class-agnostic matching.
        area_range: Objects outside are ignored, and so are unmatched detections outside (COCO).
        max_detections: So many detections per image (of the label) are looked at.
    """
    how = CONVENTIONS[convention]
    cap = how.max_detections if max_detections == "as convention" else max_detections
    matched: list[Matched] = []
    n_truth = 0
    for image in range(scene.n_images):
        truths = _truths_of(scene, image, label)
        unasked = {j: _is_ignored(how, scene.truths[j], area_range) for j in truths}
        n_truth += sum(not ignored for ignored in unasked.values())
        ranked = sorted(_detections_of(scene, image, label), key=lambda i: -score_of(how, scene, i))
        if how.drops_unannotated and not any(t.image == image for t in scene.truths):
            # the code's loop passes over them, but its lists keep a place for each
            labels = scene.detections
            matched += [
                Matched(i, labels[i].label, score_of(how, scene, i), "ignored") for i in ranked
            ]
            continue
        ranked = ranked if cap is None else ranked[:cap]
        matcher = _match_greedily if how.is_greedy else _match_single_best
        matched += matcher(scene, how, threshold, ranked, truths, unasked, area_range)
    return Matching(sorted(matched, key=lambda each: -each.score), n_truth)


def _detections_of(scene: Scene, image: int, label: str | None) -> list[int]:
    """List detections of an image; all labels together come category by category, as in COCO."""
    here = [i for i, d in enumerate(scene.detections) if d.image == image]
    labels = scene.labels if label is None else [label]
    return [i for name in labels for i in here if scene.detections[i].label == name]


def _truths_of(scene: Scene, image: int, label: str | None) -> list[int]:
    here = [j for j, t in enumerate(scene.truths) if t.image == image]
    labels = scene.labels if label is None else [label]
    return [j for name in labels for j in here if scene.truths[j].target == name]


def _is_ignored(how: Convention, truth: Truth, area_range: AreaRange | None) -> bool:
    if truth.crowd and how.ignores_crowd:
        return True
    if truth.difficult and how.ignores_difficult:
        return True
    return _is_outside(truth.area, area_range)


def is_ignored(convention: str, truth: Truth) -> bool:
    """Say whether a convention does not ask for this object."""
    return _is_ignored(CONVENTIONS[convention], truth, None)


def _is_outside(area: float, area_range: AreaRange | None) -> bool:
    return area_range is not None and (area < area_range[0] or area > area_range[1])


def _match_greedily(
    scene: Scene,
    how: Convention,
    threshold: float,
    ranked: list[int],
    truths: list[int],
    unasked: dict[int, bool],
    area_range: AreaRange | None,
) -> list[Matched]:
    """Give each detection the best object that is still free; an ignored one only if no other.

    Of equal overlaps the later object wins. A crowd region stays free. With a threshold of 0 an
    object without any overlap is a match too (notes, table 1.5).
    """
    needed = min(threshold, 1 - 1e-10)
    taken: set[int] = set()
    matched = []
    for i in ranked:
        best, best_iou = None, 0.0
        for ignored in (False, True):
            for j in truths:
                stays_free = scene.truths[j].crowd and how.has_crowd_regions
                if unasked[j] != ignored or (j in taken and not stays_free):
                    continue
                iou = overlap(how, scene.detections[i], scene.truths[j])
                if iou >= needed and (best is None or iou >= best_iou):
                    best, best_iou = j, iou
            if best is not None:
                taken.add(best)
                break
        detection = scene.detections[i]
        if best is not None:
            status: Status = "ignored" if unasked[best] else "tp"
        else:
            status = "ignored" if _is_outside(detection.area, area_range) else "fp"
        score = score_of(how, scene, i)
        matched.append(Matched(i, detection.label, score, status, best, best_iou))
    return matched


def _match_single_best(
    scene: Scene,
    how: Convention,
    threshold: float,
    ranked: list[int],
    truths: list[int],
    unasked: dict[int, bool],
    area_range: AreaRange | None,
) -> list[Matched]:
    """Look at the one object a detection overlaps best, the first of equals; taken means wrong."""
    assert area_range is None, "only COCO has area ranges"
    taken: set[int] = set()
    matched = []
    for i in ranked:
        best, best_iou = None, -1.0
        for j in truths:
            iou = overlap(how, scene.detections[i], scene.truths[j])
            if iou > best_iou:
                best, best_iou = j, iou
        status: Status = "fp"
        if best is not None and best_iou > threshold:
            if unasked[best]:
                status = "ignored"
            elif best not in taken:
                status = "tp"
                taken.add(best)
        is_match = status != "fp"
        detection = scene.detections[i]
        matched.append(
            Matched(
                i,
                detection.label,
                score_of(how, scene, i),
                status,
                best if is_match else None,
                best_iou if is_match else 0.0,
            )
        )
    return matched


# --- boxes as the evaluators read them ------------------------------------------------------------


def score_of(how: Convention, scene: Scene, place: int) -> float:
    """Give the score of a detection; text files keep three decimals."""
    score = scene.detections[place].score
    return float(f"{score:.3f}") if how.rounds_detections else score


def read_detection(how: Convention, detection: Detection) -> Xyxy:
    """Give the corners of a detection; text files count from 1 and keep one decimal."""
    if not how.rounds_detections:
        return detection.xyxy
    x1, y1, x2, y2 = detection.xyxy
    return tuple(float(f"{value:.1f}") for value in (x1 + 1, y1 + 1, x2, y2))


def read_truth(how: Convention, truth: Truth) -> Xyxy:
    """Give the corners of an object; the converters of the OWOD family write whole numbers."""
    if not how.rounds_truth:
        return truth.xyxy
    (x, y), (w, h) = truth.xyxy[:2], truth.size
    return float(int(x + 1)), float(int(y + 1)), float(int(x + w + 1)), float(int(y + h + 1))


def overlap(how: Convention, detection: Detection, truth: Truth) -> float:
    """Give the IoU of two boxes; of a crowd region, the share of the detection inside it."""
    one = 1.0 if how.adds_one else 0.0
    a, b = read_detection(how, detection), read_truth(how, truth)
    width = min(a[2], b[2]) - max(a[0], b[0]) + one
    height = min(a[3], b[3]) - max(a[1], b[1]) + one
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    if how.adds_one:
        detection_area = (a[2] - a[0] + 1) * (a[3] - a[1] + 1)
        truth_area = (b[2] - b[0] + 1) * (b[3] - b[1] + 1)
    else:  # from the sizes as given: the area of the outline is not meant
        detection_area = detection.size[0] * detection.size[1]
        truth_area = truth.size[0] * truth.size[1]
    if truth.crowd and how.has_crowd_regions:
        return shared / detection_area
    return shared / (detection_area + truth_area - shared)


def reaches(how: Convention, iou: float, threshold: float) -> bool:
    """Say whether an overlap is large enough under a convention."""
    return iou >= min(threshold, 1 - 1e-10) if how.is_greedy else iou > threshold
