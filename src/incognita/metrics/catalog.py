"""The catalog of metrics: title, direction, group and meaning of each name."""

from enum import Enum
from typing import NamedTuple

from incognita.errors import unknown_name


class Direction(Enum):
    """Whether more is better."""

    HIGHER = "higher is better"
    LOWER = "lower is better"

    @property
    def arrow(self) -> str:
        """The arrow that tables print beside the name."""
        return "↑" if self is Direction.HIGHER else "↓"


class MetricInfo(NamedTuple):
    """Title, direction, group and meaning of a metric."""

    title: str
    direction: Direction
    group: str
    meaning: str
    is_count: bool = False


_UP, _DOWN = Direction.HIGHER, Direction.LOWER

# of images: a detector flags those in which it calls something unknown
_FALSE_ALARMS = MetricInfo(
    "false alarms", _DOWN, "operating point", "known images flagged as unknown"
)

# of detections, which a certificate holds
BOX_METRICS: dict[str, MetricInfo] = {
    "ap": MetricInfo("AP", _UP, "closed set", "known classes, IoU 0.50 to 0.95"),
    "ap50": MetricInfo("AP50", _UP, "closed set", "known classes, IoU 0.50"),
    "ap75": MetricInfo("AP75", _UP, "closed set", "known classes, IoU 0.75"),
    "ap_small": MetricInfo("AP small", _UP, "closed set", "objects below 32 x 32 pixels"),
    "ap_medium": MetricInfo("AP medium", _UP, "closed set", "objects up to 96 x 96 pixels"),
    "ap_large": MetricInfo("AP large", _UP, "closed set", "objects above 96 x 96 pixels"),
    "ar1": MetricInfo("AR 1", _UP, "closed set", "recall with one detection per image and class"),
    "ar10": MetricInfo("AR 10", _UP, "closed set", "recall with ten detections"),
    "ar100": MetricInfo("AR 100", _UP, "closed set", "recall with a hundred detections"),
    "ar_small": MetricInfo("AR small", _UP, "closed set", "recall of small objects"),
    "ar_medium": MetricInfo("AR medium", _UP, "closed set", "recall of medium objects"),
    "ar_large": MetricInfo("AR large", _UP, "closed set", "recall of large objects"),
    "map_known": MetricInfo("mAP_k", _UP, "open set", "AP50 of known classes, unknowns around"),
    "known_precision": MetricInfo("P_k", _UP, "open set", "detections of known classes, right"),
    "known_recall": MetricInfo("R_k", _UP, "open set", "known objects found, class by class"),
    "unknown_ap": MetricInfo("AP_U", _UP, "open set", "average precision of the label unknown"),
    "unknown_precision": MetricInfo("P_U", _UP, "open set", "detections called unknown that are"),
    "unknown_recall": MetricInfo("R_U", _UP, "open set", "unknown objects found as unknown"),
    "open_set_error": MetricInfo(
        "A-OSE", _DOWN, "open set", "unknown objects detected as known", True
    ),
    "normalized_open_set_error": MetricInfo("nOSE", _DOWN, "open set", "A-OSE per unknown object"),
    "wilderness_impact": MetricInfo("WI", _DOWN, "open set", "open-set errors per known detection"),
    "wilderness_ratio": MetricInfo(
        "WI ratio", _DOWN, "open set", "precision lost to unknown images"
    ),
    "ap_all": MetricInfo("AP_all", _UP, "open set", "objects detected, whatever their label"),
    "ap_superclass": MetricInfo("AP_sc", _UP, "open set", "unknown or a relative is correct"),
    "images_without_detection": MetricInfo(
        "no prediction", _DOWN, "open set", "images without a detection"
    ),
    "unknown_objects_without_detection": MetricInfo(
        "undetected", _DOWN, "open set", "unknown objects no detection overlaps"
    ),
    "lrp": MetricInfo("LRP", _DOWN, "errors (LRP)", "of all detections given"),
    "lrp_localization": MetricInfo("LRP loc", _DOWN, "errors (LRP)", "1 - IoU"),
    "lrp_false_positive": MetricInfo("LRP FP", _DOWN, "errors (LRP)", "1 - precision"),
    "lrp_false_negative": MetricInfo("LRP FN", _DOWN, "errors (LRP)", "1 - recall"),
    "optimal_lrp": MetricInfo("oLRP", _DOWN, "errors (LRP)", "at the best threshold per class"),
    "laece": MetricInfo("LaECE", _DOWN, "calibration", "confidence against precision x IoU"),
    "laace": MetricInfo("LaACE", _DOWN, "calibration", "the same, without bins"),
    "d_ece": MetricInfo("D-ECE", _DOWN, "calibration", "confidence against precision"),
    "false_alarm_rate": _FALSE_ALARMS,
}

_AT_95 = "at 95 % recall of the"

# of scores, confidences and decisions, given as columns
COLUMN_METRICS: dict[str, MetricInfo] = {
    "accuracy": MetricInfo("accuracy", _UP, "closed set", "known images classified correctly"),
    "auroc": MetricInfo("AUROC", _UP, "ranking", "an unknown scores above a known; a tie is half"),
    "aupr_unknown": MetricInfo("AUPR unknown", _UP, "ranking", "average precision of the unknown"),
    "aupr_known": MetricInfo("AUPR known", _UP, "ranking", "average precision of the known"),
    "aupr_unknown_trapezoid": MetricInfo("AUPR-out", _UP, "ranking", "by trapezoids, as OpenOOD"),
    "aupr_known_trapezoid": MetricInfo("AUPR-in", _UP, "ranking", "by trapezoids, as OpenOOD"),
    "fpr_at_95_unknown_recall": MetricInfo(
        "FPR@95 unknown", _DOWN, "ranking", f"known flagged {_AT_95} unknown (OpenOOD)"
    ),
    "fpr_at_95_known_recall": MetricInfo(
        "FPR@95 known", _DOWN, "ranking", f"unknown passed {_AT_95} known (FMIYC, VOS, FACETS)"
    ),
    "detection_error": MetricInfo("detection error", _DOWN, "ranking", "at the best threshold"),
    "detection_error_at_95_known_recall": MetricInfo(
        "detection error@95", _DOWN, "ranking", "that keeps 95 % of the known (FACETS)"
    ),
    "oscr": MetricInfo("OSCR", _UP, "ranking", "right answers kept against unknowns passed"),
    "ccr_at_fpr": MetricInfo("CCR", _UP, "ranking", "right answers kept at a rate of unknowns"),
    "aurc": MetricInfo("AURC", _DOWN, "ranking", "risk over coverage"),
    "excess_aurc": MetricInfo("E-AURC", _DOWN, "ranking", "AURC above the best possible"),
    "coverage": MetricInfo("coverage", _UP, "operating point", "images accepted"),
    "selective_risk": MetricInfo("risk", _DOWN, "operating point", "accepted images, wrong"),
    "false_alarm_rate": _FALSE_ALARMS,
    "missed_unknown_rate": MetricInfo(
        "missed unknown", _DOWN, "operating point", "unknown images accepted"
    ),
    "ece": MetricInfo("ECE", _DOWN, "calibration", "confidence against accuracy"),
    "brier_score": MetricInfo("Brier", _DOWN, "calibration", "squared distance from the truth"),
    "balanced_accuracy": MetricInfo("BA", _UP, "self-awareness", "known accepted, unknown not"),
    "known_accepted": MetricInfo("TPR", _UP, "self-awareness", "known images accepted"),
    "unknown_rejected": MetricInfo("TNR", _UP, "self-awareness", "unknown images rejected"),
    "in_distribution_quality": MetricInfo("IDQ", _UP, "self-awareness", "accurate and calibrated"),
    "detection_awareness_quality": MetricInfo("DAQ", _UP, "self-awareness", "BA, IDQ, shifted IDQ"),
}
METRICS = BOX_METRICS | COLUMN_METRICS


def get_metric(name: str) -> MetricInfo:
    """Return the catalog entry of a metric.

    >>> get_metric("unknown_recall").direction.arrow
    '↑'
    """
    if name not in METRICS:
        raise unknown_name("metric", name, METRICS)
    return METRICS[name]
