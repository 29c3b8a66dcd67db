"""FindMeIfYouCan's protocol from its definitions: by the paper, and as its public code does it.

Sources: the paper, sections 2.1, 4.2, 5.2, appendix C (eq. 3 to 9) and D.1 (eq. 13); for the code
notes/detection.md, tables 1.1 to 1.3 and 1.8. Boxes come with scores; what is measured is a
`Scene`, so that matching and areas under curves are those of the other oracles.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.oracles import boxes, openset, thresholds
from tests.oracles.matching import match
from tests.oracles.scenes import UNKNOWN, Detection, Scene, Truth, Xyxy

SPLITS = ("all", "known-only", "unknown-only")


@dataclass(frozen=True)
class ScoredBox:
    """A box of a detector with the score of a method; the logits are for the code's own labels."""

    image: int
    xyxy: Xyxy
    confidence: float
    label: str
    unknown_score: float = math.nan
    logits: tuple[float, ...] = ()
    background: float | None = None


@dataclass(frozen=True)
class Part:
    """One data set: how many images, the boxes that are kept, what is really there."""

    n_images: int
    boxes: Sequence[ScoredBox]
    truths: Sequence[Truth]
    known: Sequence[str]


# --- the two thresholds ---------------------------------------------------------------------------


def reaching(found: Sequence[ScoredBox], t_star: Mapping[str, float]) -> list[ScoredBox]:
    """Keep the boxes whose confidence reaches t* of their class (appendix D.1)."""
    return [box for box in found if box.confidence >= t_star[box.label]]


def tau_of_paper(known_scores: Sequence[float]) -> float:
    """Give the smallest score that leaves 95 % of the known boxes on its side (section 5.2)."""
    return thresholds.known_quantile(known_scores, "0.95")


def tau_of_code(known_scores: Sequence[float]) -> float:
    """Give mean and 1.645 deviations towards the unknown (notes 1.3, "unknown decision")."""
    return thresholds.known_gaussian(known_scores, 1.645)


# --- what boxes are called ------------------------------------------------------------------------


def scene_of_paper(part: Part, tau: float) -> Scene:
    """Call boxes unknown whose score exceeds tau; all others keep label and confidence."""
    found = []
    for box in part.boxes:
        label = UNKNOWN if box.unknown_score > tau else box.label
        found.append(Detection(box.image, box.xyxy, box.confidence, label))
    return Scene(part.n_images, found, list(part.truths), list(part.known))


def scene_of_code(part: Part, tau: float) -> Scene:
    """Take label and confidence from the logits instead (notes 1.3, "label used", "score used").

    The label is the largest of all logits. Background has the index of the unknown class, so that
    such a box is unknown whatever its score. The confidence is the largest softmax.
    """
    found = []
    for box in part.boxes:
        named = dict(zip(part.known, box.logits, strict=True))
        if box.background is not None:
            named[UNKNOWN] = box.background
        label = max(named, key=lambda name: named[name])
        total = math.fsum(math.exp(value - named[label]) for value in named.values())
        if box.unknown_score > tau:
            label = UNKNOWN
        found.append(Detection(box.image, box.xyxy, 1 / total, label))
    return Scene(part.n_images, found, list(part.truths), list(part.known))


# --- numbers --------------------------------------------------------------------------------------


def ranking_numbers(known: Sequence[float], unknown: Sequence[float]) -> dict[str, float]:
    """Compare every box on known images with every box on unknown ones, wherever they lie.

    AUROC is the share of pairs in which the unknown box scores higher, an equal pair counting one
    half; FPR the share of unknown boxes accepted where 95 % of the known ones are.
    """
    credit = 0.0
    for of_unknown in unknown:
        for of_known in known:
            credit += 1.0 if of_unknown > of_known else 0.5 if of_unknown == of_known else 0.0
    accepted = [score for score in unknown if score <= tau_of_paper(known)]
    return {
        "auroc": credit / (len(known) * len(unknown)),
        "fpr_at_95_known_recall": len(accepted) / len(unknown),
    }


def numbers_of_paper(scene: Scene) -> dict[str, float]:
    """Give the open-set metrics of appendix C, and what no score can see."""
    fates = openset.unknown_fates(scene)
    classes = [_area(scene, "paper", label) for label in scene.known_labels]
    return {
        "map_known": boxes.nan_mean(classes),
        "unknown_ap": _area(scene, "paper", UNKNOWN),
        "unknown_precision": boxes.precision_unknown(scene, "paper"),
        "unknown_recall": fates.found / fates.total if fates.total else math.nan,
        "open_set_error": float(fates.misclassified),
        "normalized_open_set_error": openset.nose_by_objects(scene),
        "images_without_detection": openset.silent_images(scene),
        "unknown_objects_without_detection": openset.overlooked_unknowns(scene),
    }


def numbers_of_code(scene: Scene) -> dict[str, float]:
    """Give them as the code computes them: boxes as written, IoU above one half, single best."""
    has_unknown = any(truth.unknown for truth in scene.truths)
    has_known = not all(truth.unknown for truth in scene.truths)
    return {
        "map_known": boxes.map_known(scene, "fmiyc") if has_known else math.nan,
        "unknown_ap": boxes.ap_unknown(scene, "fmiyc") if has_unknown else math.nan,
        "unknown_precision": boxes.precision_unknown(scene, "fmiyc"),
        "unknown_recall": boxes.recall_unknown(scene, "fmiyc"),
        "open_set_error": float(openset.aose_by_detections(scene, "fmiyc")),
        "normalized_open_set_error": openset.nose_by_detections(scene, "fmiyc"),
        "wilderness_impact": openset.wilderness_impact_owod(scene, "fmiyc")
        if has_known
        else math.nan,
    }


def further_numbers_of_paper(scene: Scene, split: str) -> dict[str, float]:
    """Give what is defined only where known and unknown objects may stand together."""
    numbers = {
        "wilderness_ratio": openset.wilderness_impact_dhamija(scene, 0.5, closed="images"),
        "ap_all": boxes.ap_all(scene),
    }
    if split == "unknown-only":
        numbers["ap_superclass"] = boxes.ap_superclass(scene)
    return numbers


def split_of(scene: Scene, split: str) -> Scene:
    """Give the images of a split alone."""
    return boxes.restrict(scene, boxes.split_images(scene, split))


def resampled(part: Part, counts: Sequence[float]) -> Part:
    """Let each image stand there as often as it was drawn; an image not drawn is gone."""
    found: list[ScoredBox] = []
    truths: list[Truth] = []
    number = 0
    for image, count in enumerate(counts):
        for _ in range(int(count)):
            mine = [box for box in part.boxes if box.image == image]
            objects = [truth for truth in part.truths if truth.image == image]
            found += [ScoredBox(**{**vars(box), "image": number}) for box in mine]
            truths += [Truth(**{**vars(truth), "image": number}) for truth in objects]
            number += 1
    return Part(number, found, truths, part.known)


def _area(scene: Scene, convention: str, label: str) -> float:
    """Give the area under the interpolated curve of one label (eq. 7 and 8)."""
    return boxes.average_precision(match(scene, convention, 0.5, label), "area")
