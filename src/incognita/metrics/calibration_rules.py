"""How detections are binned and classes averaged: the paper's rule and those of the codes."""

from dataclasses import dataclass
from enum import Enum


class Empty(Enum):
    """Which classes take part in the mean over classes."""

    WITH_DETECTIONS = "classes with at least one counted detection"
    ALL_AS_ZERO = "all classes; one without detection or without object contributes zero"
    NON_ZERO = "classes with objects whose error is not exactly zero"


@dataclass(frozen=True)
class CalibrationRule:
    """How detections are binned and classes averaged.

    Args:
        name: What results call it.
        n_bins: Bins of equal width between 0 and 1.
        closes_right: Bins are (low, high], the first closed; else [low, high).
        last_is_closed: A confidence of exactly 1 falls into the last bin.
        empty: Which classes are averaged.
        counts_ignored: Detections on crowd regions count as wrong in LaACE.
        tau: The IoU from which a detection is true, where the user names none.
    """

    name: str
    n_bins: int = 25
    closes_right: bool = False
    last_is_closed: bool = True
    empty: Empty = Empty.WITH_DETECTIONS
    counts_ignored: bool = False
    tau: float = 0.1


PAPER = CalibrationRule("paper")
SAOD = CalibrationRule("saod", last_is_closed=False, empty=Empty.ALL_AS_ZERO)
DETECTION_CALIBRATION = CalibrationRule(
    "detection-calibration",
    closes_right=True,
    empty=Empty.NON_ZERO,
    counts_ignored=True,
    tau=0.0,
)
D_ECE = CalibrationRule("d-ece", n_bins=10, tau=0.5)
