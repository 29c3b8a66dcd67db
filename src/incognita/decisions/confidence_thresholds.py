"""Policies that choose t*, the threshold on the detector's confidence, overall or per class."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.decisions.thresholds import (
    ConfidencePolicy,
    ConfidenceThreshold,
    check_number,
    mean_inside,
)
from incognita.errors import InvalidDataError
from incognita.metrics.conventions import COCO
from incognita.metrics.detection import COCO_THRESHOLDS, PrecisionCurves, precision_curves
from incognita.metrics.lrp import optimal_lrp
from incognita.metrics.matching import match
from incognita.shapes import Bool, Float64


@dataclass(frozen=True)
class F1Optimal(ConfidencePolicy):
    r"""One confidence for all classes: the mean of the F1-optimal ones of each class.

    $$ t^* = \frac1C \sum_c \bar s_c(r_c), \quad
    r_c = \arg\max_r \frac{2 \, r \, \bar p_c(r)}{r + \bar p_c(r)} $$
    with p the precision of class c and s the confidence at COCO's 101 recalls r, both averaged over
    the IoU thresholds 0.50 to 0.95; of equal F1 the smallest recall. A recall that is not reached
    at an IoU counts with confidence 0 there. This is the t* of VOS (Du et al., ICLR 2022; code at
    6dd9c27, `compute_average_precision.py`, printed as "Classification Score at Optimal F-1").

    C counts the classes with a best F1 and a confidence above zero; the others are named in
    `metadata["without_threshold"]`. Departure: the code also averages the -1 of a class without
    objects, and the highest confidence of a class without a true positive (its 0 / 0 is NaN, which
    `argmax` takes for the largest); both are left out here.

    >>> from incognita.containers.classes import Classes
    >>> classes, car, bus = Classes(("car",)), [0, 0, 9, 9], [20, 0, 29, 9]
    >>> truth = BoxTruth([1], [0, 1], [car], [0], classes)
    >>> found = Detections([1], [0, 2], [car, bus], [0.75, 0.5], [0, 0], classes)
    >>> F1Optimal().fit(found, truth).per_class.tolist()
    [0.75]
    """

    name: ClassVar[str] = "f1"

    def fit(self, detections: Detections, truth: BoxTruth) -> ConfidenceThreshold:
        _check_positive(detections)
        names = truth.classes.known_names
        table = match(detections, truth, convention=COCO, thresholds=COCO_THRESHOLDS)
        values, f1 = _best_confidences(precision_curves(table, len(names)))
        is_defined = (values > 0) & (f1 > 0)
        _check_any(str(self), is_defined, truth)
        one = float(mean_inside(values[is_defined]))
        metadata = {
            "per_class": _named(names, values, is_defined),
            "f1": _named(names, f1, is_defined),
            "without_threshold": _left_out(names, is_defined),
        }
        per_class = np.full(len(names), one)
        return ConfidenceThreshold(per_class, str(self), metadata, names, other_classes=one)


@dataclass(frozen=True)
class LRPOptimal(ConfidencePolicy):
    """The confidence of each class at which its LRP error is smallest.

    Oksuz et al., One metric to measure them all, TPAMI 2021; self-aware detection (CVPR 2023)
    chooses its detection thresholds this way. Only thresholds that can be applied are considered,
    see `metrics.lrp.optimal_lrp`.

    A class without objects or without a true positive has no such confidence. None of its boxes is
    kept, and `metadata["without_threshold"]` names it: the public code keeps all of them when it
    prepares its data and none when it is used (NaN compared in two ways), and -1 keeps all boxes of
    a class without objects.

    Args:
        tau: The IoU a true positive of LRP needs (not the threshold on the unknown score); 0.1 as
            in self-aware detection.

    >>> from incognita.containers.classes import Classes
    >>> classes, car, bus = Classes(("car", "bus")), [0, 0, 9, 9], [20, 0, 29, 9]
    >>> truth = BoxTruth([1], [0, 1], [car], [0], classes)
    >>> found = Detections([1], [0, 2], [car, bus], [0.75, 0.5], [0, 0], classes)
    >>> LRPOptimal().fit(found, truth).per_class.tolist()
    [0.75, inf]
    """

    tau: float = 0.1
    name: ClassVar[str] = "lrp"

    def __post_init__(self) -> None:
        check_number("tau", self.name, self.tau)
        if not 0 <= self.tau < 1:
            raise InvalidDataError(
                f"Expected tau of {self.name} to be an IoU of at least 0 and below 1, "
                f"got {self.tau}."
            )

    def fit(self, detections: Detections, truth: BoxTruth) -> ConfidenceThreshold:
        names = truth.classes.known_names
        table = match(detections, truth, convention=COCO, thresholds=(float(self.tau),))
        best = optimal_lrp(table, len(names))
        is_defined = ~np.isnan(best.thresholds)
        _check_any(str(self), is_defined, truth)
        metadata = {
            "lrp": _named(names, best.per_class, is_defined),
            "without_threshold": _left_out(names, is_defined),
        }
        per_class = np.where(is_defined, best.thresholds, np.inf)
        return ConfidenceThreshold(per_class, str(self), metadata, names)


@dataclass(frozen=True)
class FixedConfidence(ConfidencePolicy):
    """A given confidence, the same for all classes.

    >>> from incognita.containers.classes import Classes
    >>> nothing = BoxTruth.empty([1], Classes(("car", "bus")))
    >>> found = Detections.empty([1], nothing.classes)
    >>> FixedConfidence(0.25).fit(found, nothing).per_class.tolist()
    [0.25, 0.25]
    """

    value: float
    name: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        check_number("value", self.name, self.value)

    def fit(self, detections: Detections, truth: BoxTruth) -> ConfidenceThreshold:
        names, value = truth.classes.known_names, float(self.value)
        per_class = np.full(len(names), value)
        return ConfidenceThreshold(per_class, str(self), {}, names, other_classes=value)


def _best_confidences(
    curves: PrecisionCurves,
) -> tuple[Float64[np.ndarray, "classes"], Float64[np.ndarray, "classes"]]:
    """Return the confidence at the best F1 of each class, and that F1; 0 where undefined."""
    precision = np.nan_to_num(curves.precision.mean(axis=0), nan=0.0)
    confidence = np.nan_to_num(mean_inside(curves.confidence), nan=0.0)
    recalls = curves.recalls[:, None]
    both = precision + recalls
    f1 = np.divide(2 * precision * recalls, both, out=np.zeros_like(both), where=both > 0)
    best = f1.argmax(axis=0)[None]
    return (
        np.take_along_axis(confidence, best, axis=0)[0],
        np.take_along_axis(f1, best, axis=0)[0],
    )


def _check_positive(detections: Detections) -> None:
    is_negative = detections.confidence < 0
    if is_negative.any():
        raise InvalidDataError(
            f"f1 averages confidences with the 0 of recalls that are not reached, so they must not "
            f"be negative, but row {int(is_negative.argmax())} is "
            f"{detections.confidence[is_negative.argmax()]}; pass probabilities, or use lrp."
        )


def _check_any(policy: str, is_defined: Bool[np.ndarray, "classes"], truth: BoxTruth) -> None:
    if not is_defined.any():
        raise InvalidDataError(
            f"{policy} found no threshold: no detection with a confidence finds an object of its "
            f"class among the {len(truth)} objects of {truth.n_images} images; pass detections on "
            f"annotated known images, or a fixed number."
        )


def _named(
    names: tuple[str, ...],
    values: Float64[np.ndarray, "classes"],
    is_defined: Bool[np.ndarray, "classes"],
) -> dict[str, float]:
    return {names[k]: float(values[k]) for k in np.flatnonzero(is_defined)}


def _left_out(names: tuple[str, ...], is_defined: Bool[np.ndarray, "classes"]) -> list[str]:
    return [names[k] for k in np.flatnonzero(~is_defined)]
