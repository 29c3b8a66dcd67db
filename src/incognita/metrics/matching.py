"""The match table, from which all box metrics are read.

It is computed once per (detections, truth, convention) and covers all images; a split or a
bootstrap replicate is a choice of image weights on top of it and needs no matching of its own.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from incognita.containers._checks import as_array
from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Role
from incognita.errors import InvalidDataError
from incognita.kernels.matching import (
    Boxes,
    MatchFlags,
    Objects,
    Pairs,
    match_best,
    match_greedy,
    order_by_group,
)
from incognita.metrics.conventions import COCO, SUPERCLASS, Matching, Pairing, round_as_written
from incognita.metrics.measure import count_units, sum_by_label
from incognita.shapes import Bool, Float, Int, UInt, UInt16

EVERY_AREA = np.array([[0.0, 1e10]])
ANY_PAIR = Pairs(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, 0), np.bool_))


@dataclass(frozen=True, eq=False)
class MatchTable:
    """What each detection matched, at every IoU threshold and in every range of areas.

    Labels are the classes as the metric sees them: known classes from 0, then, if they take part,
    all unknown classes as one. A detection is a true positive, ignored, or else a false positive.

    Args:
        convention: The rules of the matching.
        thresholds: The IoU thresholds; bit t of a flag belongs to threshold t.
        areas: Smallest and largest area of each range; the first is usually all areas.
        n_labels: The number of labels that take part.
        detection_labels: The label of each detection.
        truth_labels: The label of each object.
        confidence: The confidence of each detection as the convention writes it.
        detection_images: The image of each detection.
        truth_images: The image of each object.
        truth_areas: The area of each object.
        is_counted_truth: Objects that must be found, whatever their area.
        flags: Per detection, the true-positive bits of each area range, then the ignored bits.
        ranks: Rank of each detection among those of its image and label.
        iou: IoU with the matched object, zero without one; only in a table of one threshold.
        truth_index: The matched object; valid only where the detection is a true positive.
        by_label: Detections ordered by label, then by falling confidence.
        label_starts: Where each label begins in that order.
        n_images: The number of images.
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
        """Return whether each detection matches an object of its label."""
        return _bit(self.flags[:, area], threshold)

    def is_ignored(self, threshold: int = 0, area: int = 0) -> Bool[np.ndarray, "detections"]:
        """Return whether each detection is neither a true nor a false positive."""
        return _bit(self.flags[:, len(self.areas) + area], threshold)

    def ignoring(self, rows: Bool[np.ndarray, "detections"]) -> "MatchTable":
        """Return the table with some detections left out, which keep their objects occupied.

        Detections are matched by falling confidence, image by image, so that leaving out those
        below a confidence, or all of an image, is the same as matching without them.
        """
        n = len(self.areas)
        flags = self.flags.copy()
        flags[rows, :n], flags[rows, n:] = 0, (1 << len(self.thresholds)) - 1
        return replace(self, flags=flags)

    def check_known(self, n_known: int) -> None:
        """Raise if the number of known classes does not fit the labels."""
        if not 0 < n_known <= max(1, self.n_labels - 1):
            raise InvalidDataError(
                f"n_known is {n_known}, but this table has {self.n_labels} labels, the last of "
                f"which is unknown; pass truth.classes.n_known."
            )

    def check_one_threshold(self) -> None:
        """Raise if there are several IoU thresholds: pairs are then not kept, to save memory."""
        if len(self.thresholds) > 1:
            raise InvalidDataError(
                f"This metric needs a table matched at one IoU threshold, but it has "
                f"{len(self.thresholds)}; match again with one."
            )

    @cached_property
    def is_found(self) -> Bool[np.ndarray, "objects"]:
        """Whether each object is matched; only in a table of one threshold."""
        self.check_one_threshold()
        found = np.zeros(len(self.truth_labels), np.bool_)
        found[self.truth_index[self.is_true_positive()]] = True
        return found

    def n_truth(
        self, weights: Float[np.ndarray, "images replicates"], area: int = 0
    ) -> Float[np.ndarray, "labels replicates"]:
        """Return the weighted number of objects of each label that must be found."""
        low, high = self.areas[area]
        counted = self.is_counted_truth & (self.truth_areas >= low) & (self.truth_areas <= high)
        images, labels = self.truth_images[counted], self.truth_labels[counted]
        is_evaluated = labels < self.n_labels
        ones = np.ones(int(is_evaluated.sum()))
        return sum_by_label(
            ones, labels[is_evaluated], images[is_evaluated], self.n_labels, weights
        )

    def truth_units(
        self, weights: Float[np.ndarray, "images replicates"], labels: range, area: int = 0
    ) -> int:
        """Count the images with an object of these labels that must be found."""
        low, high = self.areas[area]
        counted = self.is_counted_truth & (self.truth_areas >= low) & (self.truth_areas <= high)
        counted &= (self.truth_labels >= labels.start) & (self.truth_labels < labels.stop)
        return count_units(self.truth_images, counted, weights)

    def detection_units(
        self, weights: Float[np.ndarray, "images replicates"], labels: range
    ) -> int:
        """Count the images with a detection of these labels that is not ignored."""
        counted = (self.detection_labels >= labels.start) & (self.detection_labels < labels.stop)
        return count_units(self.detection_images, counted & ~self.is_ignored(), weights)


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
    """Match detections with objects.

    Args:
        detections: Detections on the images of the truth.
        truth: The annotated objects.
        convention: The rules of the matching.
        thresholds: IoU thresholds, rising, at most sixteen.
        areas: Ranges of object area to evaluate separately.
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
            f"The {convention.name} convention does not support ranges of areas, got {len(areas)}. "
            f"Leave areas out."
        )
    labels = detections.classes.labels
    if class_wise:
        n_labels = detections.classes.n_known + 1
        return _match_labels(
            detections, truth, labels[detections.class_ids], labels[truth.class_ids], n_labels,
            convention, thresholds, areas,
        )  # fmt: skip
    is_excluded = (labels == detections.classes.n_known + 1)[detections.class_ids]
    zeros = np.zeros(len(truth), np.int32)
    return _match_labels(
        detections, truth, is_excluded.astype(np.int32), zeros, 1, convention, thresholds, areas
    )


def match_superclasses(detections: Detections, truth: BoxTruth) -> MatchTable:
    """Match detections with unknown objects they name correctly: "unknown", or a near relative.

    A known class is a correct name for an unknown object of its own super-class. Ammar et al.,
    2024, section 3.4 (AP_sc); greedy by falling confidence at IoU > 0.5, an order the paper leaves
    open.
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
    is_excluded = detection_codes == classes.n_known + 1
    return _match_labels(
        detections, truth, is_excluded.astype(np.int32), np.zeros(len(truth), np.int32), 1,
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
            f"Expected 1 to 16 rising IoU thresholds from 0 to 1, got {list(thresholds)}."
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
    """Match under given labels; label `n_labels` excludes a detection."""
    placed = place_boxes(detections, truth, convention)
    images = as_array(detections.image_index)
    by_label, starts, boxes = arrange(detections, placed, detection_labels, images, n_labels)
    objects = arrange_objects(truth, placed, truth_labels, n_labels, convention)
    found = _match(boxes, objects, pairs, convention, np.asarray(thresholds, np.float64), areas)
    if convention.drops_unannotated_images:
        is_dropped = (np.diff(truth.offsets) == 0)[images]
        found.flags[is_dropped, len(areas) :] = (1 << len(thresholds)) - 1
    return MatchTable(
        convention=convention,
        thresholds=np.asarray(thresholds, np.float64),
        areas=areas,
        n_labels=n_labels,
        detection_labels=detection_labels,
        truth_labels=truth_labels,
        confidence=placed.confidence,
        detection_images=images,
        truth_images=truth.image_index,
        truth_areas=truth.areas,
        is_counted_truth=~objects.is_ignored,
        flags=found.flags,
        ranks=found.ranks,
        iou=found.iou,
        truth_index=found.truth_index,
        by_label=by_label,
        label_starts=starts,
        n_images=truth.n_images,
    )


def _match(
    boxes: Boxes,
    objects: Objects,
    pairs: Pairs,
    convention: Matching,
    thresholds: Float[np.ndarray, "t"],
    areas: Float[np.ndarray, "areas 2"],
) -> MatchFlags:
    """Pair boxes with objects as the convention does; the pairs are kept for a single IoU."""
    n = len(boxes.labels)
    n_pairs = n if len(thresholds) == 1 else 0
    found = MatchFlags(
        np.zeros((n, 2 * len(areas)), np.uint16), np.zeros(n, np.uint16),
        np.zeros(n_pairs), np.zeros(n_pairs, np.int32),
    )  # fmt: skip
    least = convention.least_iou(thresholds)
    if convention.pairing is Pairing.BEST:
        match_best(boxes, objects, least, convention.pixel, found)
    else:
        cap = convention.max_detections or n + 1
        match_greedy(boxes, objects, pairs, least, areas, cap, found)
    return found


@dataclass(frozen=True, eq=False)
class PlacedBoxes:
    """Boxes and confidences, rounded and measured by the rules of a convention."""

    xyxy: Float[np.ndarray, "detections 4"]
    sizes: Float[np.ndarray, "detections 2"]
    confidence: Float[np.ndarray, "detections"]
    truth_xyxy: Float[np.ndarray, "objects 4"]
    truth_sizes: Float[np.ndarray, "objects 2"]


def place_boxes(detections: Detections, truth: BoxTruth, convention: Matching) -> PlacedBoxes:
    """Round and measure boxes by the rules of a convention."""
    xyxy, confidence, truth_xyxy = detections.xyxy, detections.confidence, truth.xyxy
    if convention.rounds_detections:
        xyxy = round_as_written(xyxy + np.array([1.0, 1.0, 0.0, 0.0]), 1)
        confidence = round_as_written(confidence.astype(np.float64), 3)
    if convention.rounds_truth:
        truth_xyxy = np.trunc(truth_xyxy + 1.0)
    if convention.pixel == 0:
        return PlacedBoxes(xyxy, detections.sizes, confidence, truth_xyxy, truth.sizes)
    sizes = xyxy[:, 2:] - xyxy[:, :2] + convention.pixel
    truth_sizes = truth_xyxy[:, 2:] - truth_xyxy[:, :2] + convention.pixel
    # read-only like the columns of the containers: kernels are compiled once per array type
    columns = (xyxy, sizes, confidence, truth_xyxy, truth_sizes)
    return PlacedBoxes(*(as_array(column) for column in columns))


def arrange_by_image(
    detections: Detections, truth: BoxTruth, convention: Matching
) -> tuple[Boxes, Objects]:
    """Return boxes and objects as the kernels take them, all under one label."""
    placed = place_boxes(detections, truth, convention)
    zeros = [np.zeros(len(boxes), np.int32) for boxes in (detections, truth)]
    images = as_array(detections.image_index)
    _, _, boxes = arrange(detections, placed, zeros[0], images, 1)
    return boxes, arrange_objects(truth, placed, zeros[1], 1, convention)


def arrange(
    detections: Detections,
    placed: PlacedBoxes,
    labels: Int[np.ndarray, "n"],
    images: Int[np.ndarray, "n"],
    n_labels: int,
) -> tuple[UInt[np.ndarray, "n"], Int[np.ndarray, "labels"], Boxes]:
    """Order detections by label and confidence for the metrics, and by image for the matching."""
    base = _class_order(detections) if n_labels == 1 else None
    labels = as_array(labels)
    by_label, starts = order_by_group(
        labels, n_labels + 1, _by_falling_confidence(placed.confidence, base)
    )
    by_image, offsets = order_by_group(images, detections.n_images, by_label)
    return by_label, starts, Boxes(by_image, offsets, labels, placed.xyxy, placed.sizes)


def arrange_objects(
    truth: BoxTruth,
    placed: PlacedBoxes,
    labels: Int[np.ndarray, "n"],
    n_labels: int,
    convention: Matching,
) -> Objects:
    """Order objects by image and label, and mark those that need not be found."""
    base = _class_order(truth) if n_labels == 1 else np.arange(len(truth), dtype=np.uint32)
    labels = as_array(labels)
    by_label, _ = order_by_group(labels, n_labels + 1, base)
    by_image, offsets = order_by_group(as_array(truth.image_index), truth.n_images, by_label)
    is_region = truth.is_crowd & convention.ignores_crowd
    is_ignored = is_ignored_truth(truth, convention)
    return Objects(
        by_image, offsets, labels, placed.truth_xyxy, placed.truth_sizes, truth.areas,
        as_array(is_region), as_array(is_ignored),
    )  # fmt: skip


def _class_order(boxes: Detections | BoxTruth) -> UInt[np.ndarray, "boxes"]:
    """Order by image, then class, then file: how pycocotools lists boxes without categories."""
    in_file = np.arange(len(boxes), dtype=np.uint32)
    by_class, _ = order_by_group(boxes.class_ids, len(boxes.classes), in_file)
    by_image, _ = order_by_group(as_array(boxes.image_index), boxes.n_images, by_class)
    return np.asarray(by_image)


def _by_falling_confidence(
    confidence: Float[np.ndarray, "n"], base: UInt[np.ndarray, "n"] | None
) -> UInt[np.ndarray, "n"]:
    """Order by confidence; ties keep the base order, by default that of the file."""
    if base is None:
        return order_by_confidence(confidence)
    return np.asarray(base[order_by_confidence(confidence[base])])


def order_by_confidence(confidence: Float[np.ndarray, "n"]) -> UInt[np.ndarray, "n"]:
    """Return the stable order by falling confidence.

    >>> order_by_confidence(np.array([0.2, 0.9, 0.2])).tolist()
    [1, 0, 2]
    """
    falling = 0 - confidence  # makes -0.0 and 0.0 equal
    size = falling.dtype.itemsize
    bits, largest = falling.view(f"i{size}"), np.iinfo(f"i{size}").max
    # the bits of a negative float fall as the float rises: turn them around, below the others
    keys = (bits ^ ((bits >> (8 * size - 1)) & largest)) ^ ~largest
    # numpy sorts words of 16 bits in linear time, larger ones by comparisons
    words = keys.view("<u2").reshape(len(keys), size // 2)
    return np.lexsort(words.T).astype(np.uint32)


def is_ignored_truth(truth: BoxTruth, convention: Matching) -> Bool[np.ndarray, "objects"]:
    """Return which objects need not be found: crowd, difficult, and those of ignored classes."""
    ignored = truth.has_role(Role.IGNORED)
    if convention.ignores_crowd:
        ignored = ignored | truth.is_crowd
    if convention.ignores_difficult:
        ignored = ignored | truth.is_difficult
    return ignored
