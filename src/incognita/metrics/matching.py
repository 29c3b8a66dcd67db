"""One table that says of every detection what it found; all box metrics read it.

The table is made once per (detections, truth, convention). It covers all images; a split or a
bootstrap replicate is a choice of image weights on top of it, and needs no matching of its own.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from incognita.containers._checks import as_array
from incognita.containers.boxes import BoxTruth, Detections
from incognita.errors import InvalidDataError
from incognita.kernels.matching import MatchFlags, Pairs, match_best, match_greedy
from incognita.metrics._ordering import arrange, arrange_objects, place_boxes
from incognita.metrics.conventions import COCO, SUPERCLASS, Matching, Pairing
from incognita.metrics.measure import sum_by_label
from incognita.shapes import Bool, Float, Int, UInt, UInt16

EVERY_AREA = np.array([[0.0, 1e10]])
ANY_PAIR = Pairs(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, 0), np.bool_))


@dataclass(frozen=True, eq=False)
class MatchTable:
    """What every detection found, at every IoU threshold and in every range of areas.

    Labels are the classes as the metric sees them: known classes from 0, then, if they take part,
    all unknown classes as one. A detection is a true positive, ignored, or else a false positive.

    Args:
        convention: How it was matched.
        thresholds: The IoU thresholds; bit t of a flag belongs to threshold t.
        areas: Smallest and largest area of each range; the first is usually all areas.
        n_labels: How many labels take part.
        detection_labels: The label of each detection.
        truth_labels: The label of each object.
        confidence: The confidence of each detection as the convention writes it.
        detection_images: The image of each detection.
        truth_images: The image of each object.
        truth_areas: The area of each object.
        is_counted_truth: Objects that ask to be found, whatever their area.
        flags: Per detection, the true-positive bits of each area range, then the ignored bits.
        ranks: Place of each detection among those of its image and label.
        iou: IoU with the object found, zero where none was; only of a table of one threshold.
        truth_index: That object; it means something only where the detection is a true positive.
        by_label: Detections ordered by label, then from the surest down.
        label_starts: Where each label begins in that order.
        n_images: How many images there are.
    """

    convention: Matching
    thresholds: Float[np.ndarray, "t"]
    areas: Float[np.ndarray, "areas 2"]
    n_labels: int
    detection_labels: Int[np.ndarray, "detections"]
    truth_labels: Int[np.ndarray, "objects"]
    confidence: Float[np.ndarray, "detections"]
    detection_images: Int[np.ndarray, "detections"]
    truth_images: Int[np.ndarray, "objects"]
    truth_areas: Float[np.ndarray, "objects"]
    is_counted_truth: Bool[np.ndarray, "objects"]
    flags: UInt16[np.ndarray, "detections words"]
    ranks: UInt16[np.ndarray, "detections"]
    iou: Float[np.ndarray, "pairs"]
    truth_index: Int[np.ndarray, "pairs"]
    by_label: UInt[np.ndarray, "detections"]
    label_starts: Int[np.ndarray, "labels_plus_1"]
    n_images: int

    def is_true_positive(self, threshold: int = 0, area: int = 0) -> Bool[np.ndarray, "detections"]:
        """Whether each detection found an object of its label, at one threshold and area range."""
        return _bit(self.flags[:, area], threshold)

    def is_ignored(self, threshold: int = 0, area: int = 0) -> Bool[np.ndarray, "detections"]:
        """Whether each detection is neither right nor wrong, at one threshold and area range."""
        return _bit(self.flags[:, len(self.areas) + area], threshold)

    def check_known(self, n_known: int) -> None:
        """Refuse a number of known classes that is not that of the labels."""
        if not 0 < n_known <= max(1, self.n_labels - 1):
            raise InvalidDataError(
                f"n_known is {n_known}, but this table has {self.n_labels} labels, the last of "
                f"which is unknown; give truth.classes.n_known."
            )

    def check_one_threshold(self) -> None:
        """Refuse a table of several IoU thresholds, which keeps no pairs to save memory."""
        if len(self.thresholds) > 1:
            raise InvalidDataError(
                f"This metric needs a table matched at one IoU threshold, but it has "
                f"{len(self.thresholds)}; match again with one."
            )

    @cached_property
    def is_found(self) -> Bool[np.ndarray, "objects"]:
        """Whether each object was found; only of a table of one threshold."""
        self.check_one_threshold()
        found = np.zeros(len(self.truth_labels), np.bool_)
        found[self.truth_index[self.is_true_positive()]] = True
        return found

    def n_truth(
        self, weights: Float[np.ndarray, "images replicates"], area: int = 0
    ) -> Float[np.ndarray, "labels replicates"]:
        """How many objects of each label ask to be found, under image weights."""
        low, high = self.areas[area]
        counted = self.is_counted_truth & (self.truth_areas >= low) & (self.truth_areas <= high)
        images, labels = self.truth_images[counted], self.truth_labels[counted]
        is_evaluated = labels < self.n_labels
        ones = np.ones(int(is_evaluated.sum()))
        return sum_by_label(
            ones, labels[is_evaluated], images[is_evaluated], self.n_labels, weights
        )


def _bit(words: UInt16[np.ndarray, "n"], place: int) -> Bool[np.ndarray, "n"]:
    return np.asarray((words >> np.uint16(place)) & np.uint16(1) == 1)


def match(
    detections: Detections,
    truth: BoxTruth,
    *,
    convention: Matching = COCO,
    thresholds: Float[np.ndarray, "t"] | tuple[float, ...] = (0.5,),
    areas: Float[np.ndarray, "areas 2"] = EVERY_AREA,
    class_wise: bool = True,
) -> MatchTable:
    """Pair detections with objects.

    Args:
        detections: What was found; its images must be those of the truth.
        truth: What is there.
        convention: The rules of the pairing.
        thresholds: IoU thresholds, rising, at most sixteen.
        areas: Ranges of object area to evaluate apart.
        class_wise: Labels must agree; otherwise everything is one class (AP_all).

    >>> from incognita.containers.classes import Classes
    >>> classes = Classes(("car",))
    >>> truth = BoxTruth([1], [0, 1], [[0, 0, 10, 10]], [0], classes)
    >>> found = Detections([1], [0, 2], [[0, 0, 10, 8], [0, 0, 9, 9]], [0.6, 0.9], [0, 0], classes)
    >>> table = match(found, truth)
    >>> table.is_true_positive().tolist(), table.iou.tolist()
    ([False, True], [0.0, 0.81])
    """
    _check(detections, truth, thresholds)
    if convention.pairing is Pairing.BEST and len(areas) > 1:
        raise InvalidDataError(
            f"The {convention.name} convention knows no ranges of areas, but {len(areas)} came; "
            f"leave areas out."
        )
    labels = detections.classes.labels
    if class_wise:
        n_labels = detections.classes.n_known + 1
        return _match_labels(
            detections, truth, labels[detections.class_ids], labels[truth.class_ids], n_labels,
            convention, thresholds, areas,
        )  # fmt: skip
    is_set_aside = (labels == detections.classes.n_known + 1)[detections.class_ids]
    zeros = np.zeros(len(truth), np.int32)
    return _match_labels(
        detections, truth, is_set_aside.astype(np.int32), zeros, 1, convention, thresholds, areas
    )


def match_superclasses(detections: Detections, truth: BoxTruth) -> MatchTable:
    """Pair every detection with unknown objects it names rightly: "unknown", or a near relative.

    A known class is a right name for an unknown object of its own super-class. Ammar et al., 2024,
    section 3.4 (AP_sc); greedy by falling confidence at IoU > 0.5, an order the paper leaves open.
    """
    classes = truth.classes
    names = sorted({name for name in truth.superclasses if name is not None})
    codes = {name: code for code, name in enumerate(names)} | {None: len(names)}
    truth_codes = np.array([codes[name] for name in truth.superclasses], np.int32)
    compatible = np.zeros((classes.n_known + 2, len(names) + 1), np.bool_)
    compatible[classes.n_known] = True
    for label, superclass in zip(classes.labels, classes.superclasses, strict=True):
        if label < classes.n_known and superclass in names:
            compatible[label, codes[superclass]] = True
    detection_codes = classes.labels[detections.class_ids]
    is_set_aside = detection_codes == classes.n_known + 1
    return _match_labels(
        detections, truth, is_set_aside.astype(np.int32), np.zeros(len(truth), np.int32), 1,
        SUPERCLASS, (0.5,), EVERY_AREA, Pairs(detection_codes, truth_codes, compatible),
    )  # fmt: skip


def _check(
    detections: Detections, truth: BoxTruth, thresholds: np.ndarray | tuple[float, ...]
) -> None:
    if not np.array_equal(detections.image_ids, truth.image_ids):
        raise InvalidDataError(
            "Detections and truth must list the same images in the same order; "
            "use detections.for_images(truth.image_ids)."
        )
    if detections.classes != truth.classes:
        raise InvalidDataError("Detections and truth must share one list of classes.")
    values = np.asarray(thresholds, np.float64)
    is_rising = bool((np.diff(values) > 0).all() and ((values >= 0) & (values <= 1)).all())
    if not 1 <= len(thresholds) <= 16 or not is_rising:
        raise InvalidDataError(
            f"IoU thresholds must be 1 to 16 rising numbers from 0 to 1, "
            f"but {list(thresholds)} came."
        )


def _match_labels(
    detections: Detections,
    truth: BoxTruth,
    detection_labels: Int[np.ndarray, "detections"],
    truth_labels: Int[np.ndarray, "objects"],
    n_labels: int,
    convention: Matching,
    thresholds: Float[np.ndarray, "t"] | tuple[float, ...],
    areas: Float[np.ndarray, "areas 2"],
    pairs: Pairs = ANY_PAIR,
) -> MatchTable:
    """Match under given labels; label `n_labels` sets a detection aside."""
    placed = place_boxes(detections, truth, convention)
    labels = _without_silent_images(detections, truth, detection_labels, n_labels, convention)
    images = as_array(detections.image_index)
    by_label, starts, boxes = arrange(detections, placed, labels, images, n_labels)
    objects = arrange_objects(truth, placed, truth_labels, n_labels, convention)
    n = len(detections)
    flags = np.zeros((n, 2 * len(areas)), np.uint16)
    n_pairs = n if len(thresholds) == 1 else 0
    found = MatchFlags(
        flags, np.zeros(n, np.uint16), np.zeros(n_pairs), np.zeros(n_pairs, np.int32)
    )
    least = convention.least_iou(np.asarray(thresholds, np.float64))
    if convention.pairing is Pairing.BEST:
        match_best(boxes, objects, least, convention.pixel, found)
    else:
        cap = convention.max_detections or n + 1
        match_greedy(boxes, objects, pairs, least, areas, cap, found)
    return MatchTable(
        convention=convention,
        thresholds=np.asarray(thresholds, np.float64),
        areas=areas,
        n_labels=n_labels,
        detection_labels=labels,
        truth_labels=truth_labels,
        confidence=placed.confidence,
        detection_images=images,
        truth_images=truth.image_index,
        truth_areas=truth.areas,
        is_counted_truth=~objects.is_ignored,
        flags=flags,
        ranks=found.ranks,
        iou=found.iou,
        truth_index=found.truth_index,
        by_label=by_label,
        label_starts=starts,
        n_images=truth.n_images,
    )


def _without_silent_images(
    detections: Detections,
    truth: BoxTruth,
    labels: Int[np.ndarray, "detections"],
    n_labels: int,
    convention: Matching,
) -> Int[np.ndarray, "detections"]:
    if not convention.drops_silent_images:
        return labels
    is_silent = np.diff(truth.offsets) == 0
    return np.where(is_silent[detections.image_index], n_labels, labels).astype(np.int32)
