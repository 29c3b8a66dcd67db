"""Every metric of a certificate under every convention that defines it.

Each function yields (metric, convention, value). A convention that does not define a metric is not
listed. To add a metric, yield it here and describe it in `catalog`.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.metrics import calibration, conventions
from incognita.metrics.conventions import (
    AREA,
    FMIYC_AREA,
    OWOD_AREA,
    POINTS_11,
    POINTS_101,
    Absent,
    AveragePrecisionRule,
    Matching,
)
from incognita.metrics.detection import (
    COCO_AREAS,
    COCO_THRESHOLDS,
    coco_measures,
    label_average_precision,
)
from incognita.metrics.lrp import lrp_error, optimal_lrp
from incognita.metrics.matching import MatchTable, match, match_superclasses
from incognita.metrics.measure import MetricValue
from incognita.metrics.open_set import (
    NO_UNKNOWN_OBJECT,
    UnknownOverlaps,
    false_alarm_rate,
    images_without_detection,
    known_precision,
    known_recall,
    mean_average_precision,
    normalized_open_set_error,
    open_set_error_by_detections,
    open_set_error_by_objects,
    overlap_unknown,
    unknown_average_precision,
    unknown_objects_without_detection,
    unknown_precision,
    unknown_recall,
    wilderness_impact,
    wilderness_ratio,
)
from incognita.shapes import Float


class MatchTables:
    """Detections and truth, and the match tables the metrics read; each is computed once."""

    def __init__(self, detections: Detections, truth: BoxTruth) -> None:
        self.detections = detections
        self.truth = truth
        self.n_known = truth.classes.n_known
        self._tables: dict[tuple[str, float], MatchTable] = {}
        self._overlaps: dict[str, UnknownOverlaps] = {}

    def table(self, convention: Matching, iou: float = 0.5) -> MatchTable:
        """Match class by class at one IoU."""
        key = (convention.name, iou)
        if key not in self._tables:
            self._tables[key] = match(
                self.detections, self.truth, convention=convention, thresholds=(iou,)
            )
        return self._tables[key]

    def overlaps(self, convention: Matching) -> UnknownOverlaps:
        """Find the detections that lie on unknown objects."""
        if convention.name not in self._overlaps:
            self._overlaps[convention.name] = overlap_unknown(
                self.detections, self.truth, convention=convention
            )
        return self._overlaps[convention.name]

    @cached_property
    def coco(self) -> MatchTable:
        """Matches class by class at COCO's ten IoU thresholds and four ranges of areas."""
        return match(
            self.detections,
            self.truth,
            convention=conventions.COCO,
            thresholds=COCO_THRESHOLDS,
            areas=COCO_AREAS,
        )

    @cached_property
    def class_agnostic(self) -> MatchTable:
        """Matches with all classes as one."""
        return match(self.detections, self.truth, convention=conventions.COCO, class_wise=False)

    @cached_property
    def superclasses(self) -> MatchTable:
        """Matches of unknown objects under the label unknown or that of a relative."""
        return match_superclasses(self.detections, self.truth)


Weights = Float[np.ndarray, "images replicates"]
Named = Iterator[tuple[str, str, MetricValue]]
NO_OBJECT = "no object is in these images"


class PublicCode(NamedTuple):
    """The conventions of a public open-set evaluator, and the metrics it lacks."""

    name: str
    matching: conventions.Matching
    rule: AveragePrecisionRule
    leaves_out: frozenset[str] = frozenset()


_NORMALIZED = frozenset({"normalized_open_set_error"})
PUBLIC_CODES = (
    PublicCode("owod", conventions.OWOD, OWOD_AREA, _NORMALIZED),
    PublicCode("owdetr", conventions.OWOD, POINTS_11, _NORMALIZED),
    PublicCode("opendet", conventions.OWOD, OWOD_AREA, _NORMALIZED),
    PublicCode("fmiyc", conventions.FMIYC, FMIYC_AREA),
)
WI_RECALL = 0.8  # of the published tables


def closed_set(tables: MatchTables, weights: Weights) -> Named:
    """Yield average precision and recall of the known classes."""
    for name, measure in coco_measures(tables.coco, tables.n_known, weights=weights).items():
        yield name, "coco", measure


def open_set_papers(tables: MatchTables, weights: Weights, *, unknown_only: bool) -> Named:
    """Yield open-set metrics as the papers define them."""
    yield from core_open_set(tables, weights)
    table = tables.table(conventions.PAPER)
    yield "wilderness_ratio", "paper", wilderness_ratio(table, tables.truth, weights=weights)
    everything = mean_average_precision(
        tables.class_agnostic, 1, rule=POINTS_101, weights=weights, nothing=NO_OBJECT
    )
    yield "ap_all", "paper", everything
    yield "ap_all", "coco", everything
    if unknown_only:  # the paper defines it nowhere else
        related = mean_average_precision(
            tables.superclasses, 1, rule=AREA, weights=weights, nothing=NO_UNKNOWN_OBJECT
        )
        yield "ap_superclass", "paper", related
    alarms = false_alarm_rate(table, tables.n_known, weights=weights)
    yield "false_alarm_rate", "paper", alarms


def core_open_set(tables: MatchTables, weights: Weights) -> Named:
    """Yield how unknown objects are found, misnamed or undetected, and AP of known classes."""
    n_known = tables.n_known
    table, overlaps = tables.table(conventions.PAPER), tables.overlaps(conventions.PAPER)
    known, unknown = _both_precisions(table, n_known, AREA, weights)
    yield "map_known", "paper", known
    yield "unknown_ap", "paper", unknown
    yield "unknown_precision", "paper", unknown_precision(table, n_known, weights=weights)
    yield "unknown_recall", "paper", unknown_recall(table, n_known, weights=weights)
    error = open_set_error_by_objects(table, overlaps, weights=weights)
    yield "open_set_error", "paper", error
    normalized = normalized_open_set_error(error, table, overlaps, weights=weights)
    yield "normalized_open_set_error", "paper", normalized
    yield "images_without_detection", "paper", images_without_detection(table, weights=weights)
    undetected = unknown_objects_without_detection(table, overlaps, weights=weights)
    yield "unknown_objects_without_detection", "paper", undetected


def open_set_codes(tables: MatchTables, weights: Weights, *, wi_recall: float = WI_RECALL) -> Named:
    """Yield open-set metrics as each public code computes them."""
    n_known = tables.n_known
    coco = unknown_average_precision(tables.coco, n_known, rule=POINTS_101, weights=weights)
    yield "unknown_ap", "coco", coco
    known, unknown = _both_precisions(tables.table(conventions.VOC), n_known, POINTS_11, weights)
    yield "ap50", "voc07", known  # one number under both names
    yield "map_known", "voc07", known
    yield "unknown_ap", "voc07", unknown
    for matching in dict.fromkeys(code.matching for code in PUBLIC_CODES):
        shared = dict(_of_matching(matching, tables, weights, wi_recall))
        for code in PUBLIC_CODES:
            if code.matching is matching:
                yield from _named_after(code, shared, tables, weights)


def _both_precisions(
    table: MatchTable, n_known: int, rule: AveragePrecisionRule, weights: Weights
) -> tuple[MetricValue, MetricValue]:
    """Compute AP of the known classes and of the unknown in one pass."""
    labels = label_average_precision(table, weights, rule=rule)
    known = mean_average_precision(table, n_known, rule=rule, weights=weights, labels=labels)
    unknown = unknown_average_precision(table, n_known, rule=rule, weights=weights, labels=labels)
    return known, unknown


def _of_matching(
    matching: conventions.Matching, tables: MatchTables, weights: Weights, wi_recall: float
) -> Iterator[tuple[str, MetricValue]]:
    """Yield what all codes with this matching share."""
    table, overlaps = tables.table(matching), tables.overlaps(matching)
    n_known = tables.n_known
    absent = Absent.ZERO if matching is conventions.FMIYC else Absent.NAN
    yield "known_precision", known_precision(table, n_known, weights=weights)
    yield "known_recall", known_recall(table, n_known, absent=absent, weights=weights)
    yield "unknown_precision", unknown_precision(table, n_known, weights=weights)
    yield "unknown_recall", unknown_recall(table, n_known, weights=weights)
    error = open_set_error_by_detections(table, overlaps, weights=weights)
    yield "open_set_error", error
    normalized = normalized_open_set_error(error, table, overlaps, weights=weights)
    yield "normalized_open_set_error", normalized
    impact = wilderness_impact(table, overlaps, n_known, recall=wi_recall, weights=weights)
    yield "wilderness_impact", impact


def _named_after(
    code: PublicCode, shared: dict[str, MetricValue], tables: MatchTables, weights: Weights
) -> Named:
    table = tables.table(code.matching)
    known, unknown = _both_precisions(table, tables.n_known, code.rule, weights)
    yield "map_known", code.name, known
    yield "unknown_ap", code.name, unknown
    for name, measure in shared.items():
        if name not in code.leaves_out:
            yield name, code.name, measure


def open_set_of_code(code: PublicCode, tables: MatchTables, weights: Weights) -> Named:
    """Yield open-set metrics as one public code computes them."""
    shared = dict(_of_matching(code.matching, tables, weights, WI_RECALL))
    yield from _named_after(code, shared, tables, weights)


def localization_recall_precision(
    tables: MatchTables, weights: Weights, *, tau: float | None
) -> Named:
    """Yield LRP of all detections, its parts, and the optimum over thresholds."""
    for rule, matching in RULES:
        table = tables.table(matching, rule.tau if tau is None else tau)
        is_code = rule is not conventions.PAPER_CALIBRATION
        lrp = lrp_error(table, tables.n_known, weights=weights, skips_all_wrong=is_code)
        yield "lrp", rule.name, lrp.total
        yield "lrp_localization", rule.name, lrp.localization
        yield "lrp_false_positive", rule.name, lrp.false_positive
        yield "lrp_false_negative", rule.name, lrp.false_negative
        # the public codes also cut between equal confidences, which no threshold can do
        best = optimal_lrp(table, tables.n_known, weights=weights, inside_ties=is_code)
        yield "optimal_lrp", rule.name, best.total


RULES = (
    (conventions.PAPER_CALIBRATION, conventions.PAPER),
    (conventions.SAOD, conventions.COCO),
    (conventions.DETECTION_CALIBRATION, conventions.COCO),
)


def calibrated(tables: MatchTables, weights: Weights, *, tau: float | None) -> Named:
    """Yield calibration errors of all detections."""
    n_known = tables.n_known
    for rule, matching in RULES:
        table = tables.table(matching, rule.tau if tau is None else tau)
        yield "laece", rule.name, calibration.laece_of(table, n_known, rule=rule, weights=weights)
        if rule is not conventions.SAOD:
            laace = calibration.laace_of(table, n_known, rule=rule, weights=weights)
            yield "laace", rule.name, laace
            half = tables.table(matching)
            is_code = rule is conventions.DETECTION_CALIBRATION
            d_ece = calibration.d_ece_of(
                half, n_known, weights=weights, skips_absent=is_code, closes_right=is_code
            )
            yield "d_ece", rule.name, d_ece
