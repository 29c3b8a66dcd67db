"""The match tables that a certificate reads, each made once and only if somebody asks for it."""

from functools import cached_property

from incognita.containers.boxes import BoxTruth, Detections
from incognita.metrics import conventions
from incognita.metrics.conventions import Matching
from incognita.metrics.detection import COCO_AREAS, COCO_THRESHOLDS
from incognita.metrics.matching import MatchTable, match, match_superclasses
from incognita.metrics.open_set import UnknownOverlaps, overlap_unknown


class Evidence:
    """Detections and truth, matched in every way the metrics need."""

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
        """Which detections lie on unknown objects."""
        if convention.name not in self._overlaps:
            self._overlaps[convention.name] = overlap_unknown(
                self.detections, self.truth, convention=convention
            )
        return self._overlaps[convention.name]

    @cached_property
    def coco(self) -> MatchTable:
        """Class by class at COCO's ten IoU thresholds and four ranges of areas."""
        return match(
            self.detections,
            self.truth,
            convention=conventions.COCO,
            thresholds=COCO_THRESHOLDS,
            areas=COCO_AREAS,
        )

    @cached_property
    def class_agnostic(self) -> MatchTable:
        """Everything as one class."""
        return match(self.detections, self.truth, convention=conventions.COCO, class_wise=False)

    @cached_property
    def superclasses(self) -> MatchTable:
        """Unknown objects under the name unknown or that of a relative."""
        return match_superclasses(self.detections, self.truth)
