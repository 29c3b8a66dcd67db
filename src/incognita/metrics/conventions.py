"""How boxes are matched and averaged, as named objects: one per paper and per public code.

Most disagreements between published numbers come from the choices below. A convention is a value
that is stored with every result; it is never a flag.
"""

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from incognita.errors import unknown_name
from incognita.shapes import Float


class Empty(Enum):
    """Which classes take part in the mean over classes."""

    WITH_DETECTIONS = "classes with at least one counted detection"
    ALL_AS_ZERO = "all classes; one without detection or without object contributes zero"
    NON_ZERO = "classes with objects whose error is not exactly zero"


@dataclass(frozen=True)
class CalibrationRule:
    """How detections are binned and classes averaged.

    Args:
        name: The name stored with results.
        n_bins: Bins of equal width between 0 and 1.
        closes_right: Bins are (low, high], the first closed; else [low, high).
        last_is_closed: A confidence of exactly 1 falls into the last bin.
        empty: Which classes are averaged.
        counts_ignored: Detections on crowd regions count as wrong in LaACE.
        tau: The default IoU from which a detection is a true positive.
    """

    name: str
    n_bins: int = 25
    closes_right: bool = False
    last_is_closed: bool = True
    empty: Empty = Empty.WITH_DETECTIONS
    counts_ignored: bool = False
    tau: float = 0.1


PAPER_CALIBRATION = CalibrationRule("paper")
SAOD = CalibrationRule("saod", last_is_closed=False, empty=Empty.ALL_AS_ZERO)
DETECTION_CALIBRATION = CalibrationRule(
    "detection-calibration",
    closes_right=True,
    empty=Empty.NON_ZERO,
    counts_ignored=True,
    tau=0.0,
)
D_ECE = CalibrationRule("d-ece", n_bins=10, tau=0.5)


class Pairing(Enum):
    """Which object a detection may be paired with."""

    BEST_FREE = "the best object that is still free"
    BEST = "the best object only; a second detection of it is wrong"


@dataclass(frozen=True)
class Matching:
    """When a detection matches an object.

    Args:
        name: The name stored with results.
        pairing: Whether a detection may fall back on a second-best object.
        is_strict: IoU must exceed the threshold (VOC) instead of reaching it (COCO).
        pixel: Added to every side: 1 where boxes are inclusive pixel ranges.
        ignores_crowd: Crowd boxes need not be found; under COCO they also absorb detections.
        ignores_difficult: Difficult objects need not be found.
        max_detections: Maximum detections of one class per image; None for all.
        rounds_detections: Boxes and confidences are rounded as the VOC result files hold them.
        rounds_truth: Truth is rounded as the COCO to VOC converters write it.
        drops_unannotated_images: Detections on images without any annotation are ignored; they
            keep their place in the list.
    """

    name: str
    pairing: Pairing = Pairing.BEST_FREE
    is_strict: bool = False
    pixel: float = 0.0
    ignores_crowd: bool = True
    ignores_difficult: bool = True
    max_detections: int | None = None
    rounds_detections: bool = False
    rounds_truth: bool = False
    drops_unannotated_images: bool = False

    def least_iou(self, thresholds: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t"]:
        """The smallest IoU that matches: a strict test is a test against the next number."""
        capped = np.minimum(thresholds, 1 - 1e-10)  # as COCO: identical boxes match at 1.0
        return np.asarray(np.nextafter(capped, np.inf) if self.is_strict else capped)


PAPER = Matching("paper")
COCO = Matching("coco", ignores_difficult=False, max_detections=100)
VOC = Matching("voc", pairing=Pairing.BEST, is_strict=True, pixel=1.0)
OWOD = Matching(
    "owod",
    pairing=Pairing.BEST,
    is_strict=True,
    pixel=1.0,
    ignores_crowd=False,
    rounds_detections=True,
    rounds_truth=True,
)
FMIYC = Matching(
    "fmiyc",
    pairing=Pairing.BEST,
    is_strict=True,
    pixel=1.0,
    ignores_crowd=False,
    ignores_difficult=False,
    rounds_detections=True,
    drops_unannotated_images=True,
)
# for truth that holds the whole pixels of VOC's XML files, counted from 1: nothing to convert
OWOD_XML = replace(OWOD, name="owod-xml", rounds_truth=False)
SUPERCLASS = Matching("superclass", is_strict=True)

MATCHINGS = {rule.name: rule for rule in (PAPER, COCO, VOC, OWOD, OWOD_XML, FMIYC, SUPERCLASS)}


def get_matching(name: str) -> Matching:
    """Return the matching convention with this name.

    >>> get_matching("owod").is_strict
    True
    """
    if name not in MATCHINGS:
        raise unknown_name("matching convention", name, MATCHINGS)
    return MATCHINGS[name]


class Absent(Enum):
    """What a class without any object contributes to a mean over classes."""

    SKIPPED = "left out"
    ZERO = "zero"
    NAN = "NaN if it has detections, else zero"


@dataclass(frozen=True)
class AveragePrecisionRule:
    """How a precision-recall curve becomes one number.

    Args:
        name: The name stored with results.
        recalls: The recalls at which precision is read; empty for the exact area.
        epsilon: Added to the denominator of the precision (pycocotools adds 2.2e-16).
        absent: What classes without an object contribute.
    """

    name: str
    recalls: tuple[float, ...] = ()
    epsilon: float = 0.0
    absent: Absent = Absent.SKIPPED


POINTS_101 = AveragePrecisionRule("101-point", tuple(np.linspace(0, 1, 101)), float(np.spacing(1)))
AREA = AveragePrecisionRule("area")
OWOD_AREA = AveragePrecisionRule("area", absent=Absent.NAN)
FMIYC_AREA = AveragePrecisionRule("area", absent=Absent.ZERO)
# np.arange, not linspace: the public code compares recall with 0.30000000000000004
POINTS_11 = AveragePrecisionRule("11-point", tuple(np.arange(0, 1.1, 0.1)), absent=Absent.ZERO)


def round_as_written(
    values: Float[np.ndarray, "*shape"], decimals: int
) -> Float[np.ndarray, "*shape"]:
    """Round as a text file with this number of decimals would.

    `np.round` scales before it rounds and so turns 0.35, which is 0.34999…, into 0.4; a file says
    0.3. Numbers close to a half are therefore rounded by the formatter itself.

    >>> round_as_written(np.array([0.35, 0.25, 1.26]), 1).tolist()
    [0.3, 0.2, 1.3]
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a huge number has no decimals to lose
        rounded = np.where(np.abs(values) < 1e15, np.round(values, decimals), values)
        scaled = np.abs(values) * 10.0**decimals
        is_close = np.abs(scaled - np.floor(scaled) - 0.5) < 1e-6
    if is_close.any():
        rounded[is_close] = [float(f"{value:.{decimals}f}") for value in values[is_close]]
    return rounded
