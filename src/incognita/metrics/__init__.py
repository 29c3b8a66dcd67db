"""Metrics: pure functions of arrays that return numbers or named results.

Every public name is imported on first use: `from incognita.metrics import auroc`.
"""

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.metrics.calibration import Reliability as Reliability
    from incognita.metrics.calibration import brier_score as brier_score
    from incognita.metrics.calibration import d_ece_of as d_ece_of
    from incognita.metrics.calibration import ece as ece
    from incognita.metrics.calibration import laace_of as laace_of
    from incognita.metrics.calibration import laece as laece
    from incognita.metrics.calibration import laece_of as laece_of
    from incognita.metrics.calibration import reliability as reliability
    from incognita.metrics.calibration import reliability_of as reliability_of
    from incognita.metrics.catalog import Direction as Direction
    from incognita.metrics.catalog import MetricInfo as MetricInfo
    from incognita.metrics.catalog import get_metric as get_metric
    from incognita.metrics.conventions import AveragePrecisionRule as AveragePrecisionRule
    from incognita.metrics.conventions import CalibrationRule as CalibrationRule
    from incognita.metrics.conventions import Matching as Matching
    from incognita.metrics.conventions import get_matching as get_matching
    from incognita.metrics.detection import CocoNumbers as CocoNumbers
    from incognita.metrics.detection import LabelPrecision as LabelPrecision
    from incognita.metrics.detection import PrecisionCurves as PrecisionCurves
    from incognita.metrics.detection import coco_measures as coco_measures
    from incognita.metrics.detection import coco_numbers as coco_numbers
    from incognita.metrics.detection import label_average_precision as label_average_precision
    from incognita.metrics.detection import precision_curves as precision_curves
    from incognita.metrics.lrp import LRP as LRP
    from incognita.metrics.lrp import OptimalLRP as OptimalLRP
    from incognita.metrics.lrp import lrp_error as lrp_error
    from incognita.metrics.lrp import optimal_lrp as optimal_lrp
    from incognita.metrics.matching import MatchTable as MatchTable
    from incognita.metrics.matching import match as match
    from incognita.metrics.matching import match_superclasses as match_superclasses
    from incognita.metrics.measure import Difference as Difference
    from incognita.metrics.measure import Interval as Interval
    from incognita.metrics.measure import MetricValue as MetricValue
    from incognita.metrics.measure import bootstrap_weights as bootstrap_weights
    from incognita.metrics.measure import interval as interval
    from incognita.metrics.measure import paired_difference as paired_difference
    from incognita.metrics.open_set import UnknownOverlaps as UnknownOverlaps
    from incognita.metrics.open_set import false_alarm_rate as false_alarm_rate
    from incognita.metrics.open_set import images_without_detection as images_without_detection
    from incognita.metrics.open_set import mean_average_precision as mean_average_precision
    from incognita.metrics.open_set import normalized_open_set_error as normalized_open_set_error
    from incognita.metrics.open_set import (
        open_set_error_by_detections as open_set_error_by_detections,
    )
    from incognita.metrics.open_set import open_set_error_by_objects as open_set_error_by_objects
    from incognita.metrics.open_set import overlap_unknown as overlap_unknown
    from incognita.metrics.open_set import unknown_average_precision as unknown_average_precision
    from incognita.metrics.open_set import (
        unknown_objects_without_detection as unknown_objects_without_detection,
    )
    from incognita.metrics.open_set import unknown_precision as unknown_precision
    from incognita.metrics.open_set import unknown_recall as unknown_recall
    from incognita.metrics.open_set import wilderness_impact as wilderness_impact
    from incognita.metrics.open_set import wilderness_ratio as wilderness_ratio
    from incognita.metrics.ranking import RankingMetrics as RankingMetrics
    from incognita.metrics.ranking import RankingReplicates as RankingReplicates
    from incognita.metrics.ranking import RocPoints as RocPoints
    from incognita.metrics.ranking import auroc as auroc
    from incognita.metrics.ranking import average_precision as average_precision
    from incognita.metrics.ranking import bootstrap_ranking as bootstrap_ranking
    from incognita.metrics.ranking import fpr_at_known_recall as fpr_at_known_recall
    from incognita.metrics.ranking import fpr_at_unknown_recall as fpr_at_unknown_recall
    from incognita.metrics.ranking import ranking_metrics as ranking_metrics
    from incognita.metrics.ranking import ranking_replicates as ranking_replicates
    from incognita.metrics.ranking import roc_points as roc_points
    from incognita.metrics.selective import OperatingPoint as OperatingPoint
    from incognita.metrics.selective import OscrPoints as OscrPoints
    from incognita.metrics.selective import RiskCoverage as RiskCoverage
    from incognita.metrics.selective import aurc as aurc
    from incognita.metrics.selective import ccr_at_fpr as ccr_at_fpr
    from incognita.metrics.selective import excess_aurc as excess_aurc
    from incognita.metrics.selective import openood_ccr_at_fpr as openood_ccr_at_fpr
    from incognita.metrics.selective import operating_point as operating_point
    from incognita.metrics.selective import oscr as oscr
    from incognita.metrics.selective import oscr_points as oscr_points
    from incognita.metrics.selective import risk_coverage as risk_coverage
    from incognita.metrics.self_awareness import Aggregation as Aggregation
    from incognita.metrics.self_awareness import BalancedAccuracy as BalancedAccuracy
    from incognita.metrics.self_awareness import balanced_accuracy as balanced_accuracy
    from incognita.metrics.self_awareness import balanced_accuracy_saod as balanced_accuracy_saod
    from incognita.metrics.self_awareness import (
        detection_awareness_quality as detection_awareness_quality,
    )
    from incognita.metrics.self_awareness import image_uncertainty as image_uncertainty
    from incognita.metrics.self_awareness import in_distribution_quality as in_distribution_quality

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".ranking": [
            "RankingMetrics",
            "RankingReplicates",
            "RocPoints",
            "auroc",
            "average_precision",
            "bootstrap_ranking",
            "fpr_at_known_recall",
            "fpr_at_unknown_recall",
            "ranking_metrics",
            "ranking_replicates",
            "roc_points",
        ],
        ".selective": [
            "OperatingPoint",
            "OscrPoints",
            "RiskCoverage",
            "aurc",
            "ccr_at_fpr",
            "excess_aurc",
            "openood_ccr_at_fpr",
            "operating_point",
            "oscr",
            "oscr_points",
            "risk_coverage",
        ],
        ".matching": ["MatchTable", "match", "match_superclasses"],
        ".detection": [
            "CocoNumbers",
            "LabelPrecision",
            "PrecisionCurves",
            "coco_measures",
            "coco_numbers",
            "label_average_precision",
            "precision_curves",
        ],
        ".open_set": [
            "UnknownOverlaps",
            "false_alarm_rate",
            "images_without_detection",
            "mean_average_precision",
            "normalized_open_set_error",
            "open_set_error_by_detections",
            "open_set_error_by_objects",
            "overlap_unknown",
            "unknown_average_precision",
            "unknown_objects_without_detection",
            "unknown_precision",
            "unknown_recall",
            "wilderness_impact",
            "wilderness_ratio",
        ],
        ".lrp": ["LRP", "OptimalLRP", "lrp_error", "optimal_lrp"],
        ".calibration": [
            "Reliability",
            "brier_score",
            "d_ece_of",
            "ece",
            "laace_of",
            "laece",
            "laece_of",
            "reliability",
            "reliability_of",
        ],
        ".self_awareness": [
            "Aggregation",
            "BalancedAccuracy",
            "balanced_accuracy",
            "balanced_accuracy_saod",
            "detection_awareness_quality",
            "image_uncertainty",
            "in_distribution_quality",
        ],
        ".conventions": ["AveragePrecisionRule", "CalibrationRule", "Matching", "get_matching"],
        ".measure": [
            "Difference",
            "Interval",
            "MetricValue",
            "bootstrap_weights",
            "interval",
            "paired_difference",
        ],
        ".catalog": ["Direction", "MetricInfo", "get_metric"],
    },
)
