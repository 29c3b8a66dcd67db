"""Data sets as a detector saw them: its boxes, the truth, and the classes both speak of."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Role
from incognita.errors import InvalidDataError
from incognita.metrics import conventions
from incognita.metrics.matching import match
from incognita.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class BoxSet:
    """One data set as a detector saw it.

    Args:
        name: Its name in the benchmark.
        group: `known`, the group of unknown sets it belongs to, or `mixed`.
        found: Every box the rules kept, in the classes of the truth.
        truth: What is in the images that could be read.
        is_kept: Which boxes reach the confidence threshold t*: only these are scored.
    """

    name: str
    group: str
    found: Detections
    truth: BoxTruth
    is_kept: Bool[np.ndarray, "boxes"]

    @cached_property
    def kept(self) -> Detections:
        """The boxes that methods score."""
        return self.found[self.is_kept]

    @property
    def n_images(self) -> int:
        """How many images could be read."""
        return self.truth.n_images


def in_classes_of(truth: BoxTruth, detections: Detections) -> Detections:
    """Give detections in the class list of the truth, which begins with the known classes."""
    known = detections.classes.names
    if truth.classes.names[: len(known)] != known or truth.classes.n_known != len(known):
        raise InvalidDataError(
            f"The truth knows the classes {list(truth.classes.known_names)}, but the detector "
            f"{list(known)}; give both the same known classes in the same order."
        )
    if not truth.classes.has_role(Role.UNKNOWN).any():
        raise InvalidDataError(
            "The truth has no unknown class, so that no box could be called unknown; add one to "
            "its classes, if need be without objects."
        )
    return replace(detections, classes=truth.classes)


def called_unknown(detections: Detections, is_unknown: Bool[np.ndarray, "boxes"]) -> Detections:
    """Give some boxes the label unknown: any class with that role stands for all of them."""
    unknown = int(np.flatnonzero(detections.classes.has_role(Role.UNKNOWN))[0])
    return replace(detections, class_ids=np.where(is_unknown, unknown, detections.class_ids))


def labelled_by_logits(detections: Detections) -> tuple[Detections, Bool[np.ndarray, "boxes"]]:
    """Label boxes as FMIYC's code does: by the largest logit, with its softmax as confidence.

    The logit of background takes part, where there is one; the second value says for which boxes
    it is the largest: that code gives them the index of the unknown class, whatever tau.
    """
    logits: Float[np.ndarray, "boxes columns"] = detections.logits.astype(np.float64)
    n_known = logits.shape[1]
    if detections.background is not None:
        logits = np.concatenate([logits, detections.background[:, None]], axis=1)
    if not len(logits):
        return detections, np.zeros(0, np.bool_)
    labels = logits.argmax(axis=1)
    largest = logits.max(axis=1)
    confidence = 1 / np.exp(logits - largest[:, None]).sum(axis=1)
    is_background = labels == n_known
    labels = np.where(is_background, detections.class_ids, labels)
    return replace(detections, class_ids=labels, confidence=confidence), is_background


def true_labels(
    found: Detections, truth: BoxTruth
) -> tuple[Int[np.ndarray, "boxes"], Bool[np.ndarray, "boxes"]]:
    """Give each box the class of the known object it found, and say which boxes found one."""
    table = match(found, truth, convention=conventions.COCO, class_wise=False)
    is_hit = table.is_true_positive()
    labels = found.class_ids.copy()
    labels[is_hit] = truth.class_ids[table.truth_index[is_hit]]
    return labels, is_hit & (labels < truth.classes.n_known)
