"""Synthetic detections of COCO's shape: 80 classes, a hundred detections per image, some crowds.

Most objects are found once well and once or twice badly; the rest of the hundred is noise with low
confidence, mostly of classes the image holds, which is what makes matching work hard.
"""

from dataclasses import dataclass

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes

N_CLASSES = 80
WIDTH, HEIGHT = 640.0, 480.0


@dataclass(frozen=True)
class DetectedSet:
    """Flat columns, xywh boxes, images and classes counted from 0."""

    n_images: int
    truth_images: np.ndarray
    truth_classes: np.ndarray
    truth_boxes: np.ndarray
    truth_areas: np.ndarray
    is_crowd: np.ndarray
    images: np.ndarray
    classes: np.ndarray
    boxes: np.ndarray
    confidence: np.ndarray


def make_boxes(n_images: int, n_truth: int, per_image: int = 100) -> DetectedSet:
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, N_CLASSES + 1)
    share /= share.sum()
    present = rng.choice(N_CLASSES, (n_images, 3), p=share)  # an image holds three classes
    truth_images = np.sort(rng.integers(0, n_images, n_truth))
    truth_classes = present[truth_images, rng.integers(0, 3, n_truth)]
    truth_boxes = place(rng, n_truth, 4.2, 0.9)
    near, near_images, near_classes, near_confidence = find(
        rng, truth_images, truth_classes, truth_boxes
    )
    room = np.maximum(0, per_image - np.bincount(near_images, minlength=n_images))
    far_images = np.repeat(np.arange(n_images), room)
    n_far = len(far_images)
    is_present = rng.random(n_far) < 0.7
    guess = rng.choice(N_CLASSES, n_far, p=share)
    far_classes = np.where(is_present, present[far_images, rng.integers(0, 3, n_far)], guess)
    images = np.concatenate([near_images, far_images])
    order = np.argsort(images, kind="stable")
    return DetectedSet(
        n_images,
        truth_images.astype(np.int32),
        truth_classes.astype(np.int32),
        truth_boxes,
        truth_boxes[:, 2] * truth_boxes[:, 3] * 0.7,
        rng.random(n_truth) < 0.01,
        images[order].astype(np.int32),
        np.concatenate([near_classes, far_classes])[order].astype(np.int32),
        np.concatenate([near, place(rng, n_far, 4.0, 1.0)])[order],
        np.concatenate([near_confidence, rng.beta(1, 12, n_far)])[order].astype(np.float32),
    )


def place(rng: np.random.Generator, n: int, mean: float, spread: float) -> np.ndarray:
    """Draw boxes of log-normal size anywhere in the image, with two decimals."""
    sides = np.exp(rng.normal(mean, spread, (n, 2))).clip(4, (WIDTH - 1, HEIGHT - 1))
    corners = rng.random((n, 2)) * (np.array([WIDTH, HEIGHT]) - sides)
    return np.round(np.hstack([corners, sides]), 2)


def find(
    rng: np.random.Generator, images: np.ndarray, classes: np.ndarray, boxes: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Draw three detections of falling quality per object, a tenth of them misnamed."""
    rows = np.repeat(np.arange(len(boxes)), 3)
    blur = np.tile([0.04, 0.12, 0.25], len(boxes))
    found = boxes[rows]
    found[:, :2] += rng.normal(size=(len(rows), 2)) * blur[:, None] * found[:, 2:]
    found[:, 2:] *= np.exp(rng.normal(size=(len(rows), 2)) * blur[:, None])
    names = np.where(
        rng.random(len(rows)) < 0.9, classes[rows], rng.integers(N_CLASSES, size=len(rows))
    )
    return np.round(found, 2), images[rows], names, rng.beta(2, 1 + 8 * blur)


def corners(xywh: np.ndarray) -> np.ndarray:
    return np.hstack([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]])


def to_containers(boxes: DetectedSet) -> tuple[Detections, BoxTruth]:
    classes = Classes(tuple(f"class {k}" for k in range(N_CLASSES)))
    ids = np.arange(1, boxes.n_images + 1)
    ends = np.arange(boxes.n_images + 1)
    detections = Detections(
        ids,
        np.searchsorted(boxes.images, ends),
        corners(boxes.boxes),
        boxes.confidence,
        boxes.classes,
        classes,
        sizes=boxes.boxes[:, 2:],
    )
    truth = BoxTruth(
        ids,
        np.searchsorted(boxes.truth_images, ends),
        corners(boxes.truth_boxes),
        boxes.truth_classes,
        classes,
        sizes=boxes.truth_boxes[:, 2:],
        areas=boxes.truth_areas,
        is_crowd=boxes.is_crowd,
    )
    return detections, truth


def to_coco(
    boxes: DetectedSet,
) -> tuple[dict[str, list[dict[str, object]]], list[dict[str, object]]]:
    """Return the annotation file and the results list; ids count from 1."""
    truth = zip(
        boxes.truth_images.tolist(),
        boxes.truth_classes.tolist(),
        boxes.truth_boxes.tolist(),
        boxes.truth_areas.tolist(),
        boxes.is_crowd.tolist(),
        strict=True,
    )
    annotations = [
        {
            "id": k + 1,
            "image_id": i + 1,
            "category_id": c + 1,
            "bbox": b,
            "area": a,
            "iscrowd": int(g),
        }
        for k, (i, c, b, a, g) in enumerate(truth)
    ]
    found = zip(
        boxes.images.tolist(),
        boxes.classes.tolist(),
        boxes.boxes.tolist(),
        boxes.confidence.astype(np.float64).tolist(),
        strict=True,
    )
    results = [
        {"image_id": i + 1, "category_id": c + 1, "bbox": b, "score": s} for i, c, b, s in found
    ]
    return annotation_file(boxes, annotations), results


def annotation_file(
    boxes: DetectedSet, annotations: list[dict[str, object]]
) -> dict[str, list[dict[str, object]]]:
    size = {"width": int(WIDTH), "height": int(HEIGHT)}
    images = [{"id": k, "file_name": f"{k}.jpg"} | size for k in range(1, boxes.n_images + 1)]
    categories = [{"id": k + 1, "name": f"class {k}"} for k in range(N_CLASSES)]
    return {"images": images, "annotations": annotations, "categories": categories}
