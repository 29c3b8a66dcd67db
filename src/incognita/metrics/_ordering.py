"""Boxes as a convention sees them, in the order the matching walks them."""

from dataclasses import dataclass

import numpy as np

from incognita.containers._checks import as_array
from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Role
from incognita.kernels.matching import Boxes, Objects
from incognita.kernels.sorting import descending_order_32, descending_order_64, group_order
from incognita.metrics.conventions import Matching, as_written
from incognita.shapes import Bool, Float, Int, UInt

FEW = 4096  # fewer rows are sorted by numpy: a compiled sort takes longer to load than it saves


@dataclass(frozen=True, eq=False)
class PlacedBoxes:
    """Boxes and confidences as a convention sees them."""

    xyxy: Float[np.ndarray, "detections 4"]
    sizes: Float[np.ndarray, "detections 2"]
    confidence: Float[np.ndarray, "detections"]
    truth_xyxy: Float[np.ndarray, "objects 4"]
    truth_sizes: Float[np.ndarray, "objects 2"]


def place_boxes(detections: Detections, truth: BoxTruth, convention: Matching) -> PlacedBoxes:
    """Give boxes as the convention writes and measures them."""
    xyxy, confidence, truth_xyxy = detections.xyxy, detections.confidence, truth.xyxy
    if convention.rounds_detections:
        xyxy = as_written(xyxy + np.array([1.0, 1.0, 0.0, 0.0]), 1)
        confidence = as_written(confidence.astype(np.float64), 3)
    if convention.rounds_truth:
        truth_xyxy = np.trunc(truth_xyxy + 1.0)
    if convention.pixel == 0:
        return PlacedBoxes(xyxy, detections.sizes, confidence, truth_xyxy, truth.sizes)
    sizes = xyxy[:, 2:] - xyxy[:, :2] + convention.pixel
    truth_sizes = truth_xyxy[:, 2:] - truth_xyxy[:, :2] + convention.pixel
    # frozen like the columns of the containers: kernels are compiled once per kind of array
    columns = (xyxy, sizes, confidence, truth_xyxy, truth_sizes)
    return PlacedBoxes(*(as_array(column) for column in columns))


def arrange_by_image(
    detections: Detections, truth: BoxTruth, convention: Matching
) -> tuple[Boxes, Objects]:
    """Give boxes and objects as the kernels take them, labels left aside."""
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
    by_label, starts = order_by_group(labels, n_labels + 1, _surest_first(placed.confidence, base))
    by_image, offsets = order_by_group(images, detections.n_images, by_label)
    return by_label, starts, Boxes(by_image, offsets, labels, placed.xyxy, placed.sizes)


def arrange_objects(
    truth: BoxTruth,
    placed: PlacedBoxes,
    labels: Int[np.ndarray, "n"],
    n_labels: int,
    convention: Matching,
) -> Objects:
    """Order objects by image and label, and say which of them ask to be found."""
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


def _surest_first(
    confidence: Float[np.ndarray, "n"], base: UInt[np.ndarray, "n"] | None
) -> UInt[np.ndarray, "n"]:
    """Order by confidence; equal ones keep the base order, by default that of the file."""
    if base is None:
        return order_by_confidence(confidence)
    return np.asarray(base[order_by_confidence(as_array(confidence[base]))])


def order_by_confidence(confidence: Float[np.ndarray, "n"]) -> UInt[np.ndarray, "n"]:
    """Give the stable order from the surest detection down; ties keep the order of the images.

    >>> order_by_confidence(np.array([0.2, 0.9, 0.2])).tolist()
    [1, 0, 2]
    """
    if len(confidence) < FEW:
        return np.argsort(-confidence, kind="stable").astype(np.uint32)
    if confidence.dtype == np.float32:
        return np.asarray(descending_order_32(confidence.view(np.uint32)))
    return np.asarray(descending_order_64(confidence.view(np.uint64)))


def order_by_group(
    groups: Int[np.ndarray, "n"], n_groups: int, first: UInt[np.ndarray, "n"]
) -> tuple[UInt[np.ndarray, "n"], Int[np.ndarray, "groups_plus_1"]]:
    """Order by group, keeping inside each the order `first`; also where each group begins.

    >>> order, starts = order_by_group(np.array([1, 0, 1]), 2, np.array([2, 1, 0], np.uint32))
    >>> order.tolist(), starts.tolist()
    ([1, 2, 0], [0, 1, 3])
    """
    if len(groups) < FEW:
        order = first[np.argsort(groups[first], kind="stable")]
        counts = np.bincount(groups, minlength=n_groups)
        return order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    order, starts = group_order(groups, n_groups, first)
    return order, starts


def is_ignored_truth(truth: BoxTruth, convention: Matching) -> Bool[np.ndarray, "objects"]:
    """Objects that need not be found: crowd, difficult, and those of ignored classes."""
    ignored = truth.has_role(Role.IGNORED)
    if convention.ignores_crowd:
        ignored = ignored | truth.is_crowd
    if convention.ignores_difficult:
        ignored = ignored | truth.is_difficult
    return ignored
