"""Boxes of many images as flat arrays: row `offsets[i]` to `offsets[i + 1]` belong to image i.

Arrays are shared with the caller, not copied: what was given must not be changed afterwards.

Boxes are xyxy in absolute pixels. `sizes` keeps the widths and heights as they were given, because
`(x + w) - x` is not `w` in floating point and the COCO evaluators compute areas from `w` and `h`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from incognita.containers._checks import (
    as_array,
    as_flags,
    as_floats,
    as_ids,
    as_integers,
    as_matrix,
    as_rows,
    check_areas,
    check_boxes,
    check_class_ids,
    check_finite,
    check_mask,
    check_offsets,
    check_parts,
    check_rows,
    check_sizes,
    check_unique,
    concatenated_offsets,
)
from incognita.containers.classes import Classes, Role
from incognita.errors import InvalidDataError
from incognita.kernels.box_checks import are_sound
from incognita.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class Detections:
    """What a detector found: boxes with a class and a confidence, image by image.

    Args:
        image_ids: One id per image, integers or strings, also of images without a box.
        offsets: Where the boxes of each image begin, and at last where they end.
        xyxy: Corners in pixels.
        confidence: How sure the detector is of each box; any finite number, 0 to 1 for calibration.
        class_ids: Position of each box's class in `classes`.
        classes: The class names with their roles.
        sizes: Widths and heights, where they are known more exactly than by subtraction.
        logits: The row of class logits behind each box, if it was kept.
        features: The feature vector behind each box, if it was kept.
        background: The logit of background behind each box, where the detector has one; it is no
            class, known or unknown, and stands in no column of `logits`.
        source_index: The proposal, query, patch or anchor that each box came from.
        head_index: Which of the detector's linear heads gave each row of logits.

    >>> classes = Classes(("car", "unknown"))
    >>> found = Detections([7, 8], [0, 1, 1], [[0, 0, 4, 4]], [0.9], [0], classes)
    >>> len(found), found.n_images, found.image_index.tolist()
    (1, 2, [0])
    """

    image_ids: Any
    offsets: Any
    xyxy: Any
    confidence: Any
    class_ids: Any
    classes: Classes
    sizes: Any = None
    logits: Any = None
    features: Any = None
    background: Any = None
    source_index: Any = None
    head_index: Any = None

    def __post_init__(self) -> None:
        _freeze_boxes(self, "Detections")
        _freeze(self, confidence=as_floats("Detections", "confidence", self.confidence))
        for name in ("logits", "features"):
            if getattr(self, name) is not None:
                _freeze(self, **{name: as_matrix("Detections", name, getattr(self, name))})
        if self.background is not None:
            _freeze(self, background=as_floats("Detections", "background", self.background))
            check_finite("Detections", "background", self.background)
        for name in ("source_index", "head_index"):
            if getattr(self, name) is not None:
                column = as_integers("Detections", name, getattr(self, name), np.int64)
                _freeze(self, **{name: column})
        check_rows("Detections", **{name: _rows(self, name) for name in _row_columns(self)})
        check_finite("Detections", "confidence", self.confidence)

    def __len__(self) -> int:
        return len(self.xyxy)

    def __getitem__(self, keep: Bool[np.ndarray, "boxes"]) -> "Detections":
        """Keep the boxes that a mask marks; every image stays, if need be without a box."""
        return _keep_boxes(self, keep)

    @classmethod
    def empty(cls, image_ids: Sequence[Any] | np.ndarray, classes: Classes) -> "Detections":
        """Give the detections of a detector that found nothing."""
        none = np.zeros(0)
        offsets = np.zeros(len(image_ids) + 1, dtype=np.int64)
        return cls(image_ids, offsets, none.reshape(0, 4), none, none.astype(np.int32), classes)

    @classmethod
    def concatenate(cls, parts: Sequence["Detections"]) -> "Detections":
        """Join the detections of different images, in the order given."""
        return _concatenate(parts)

    @property
    def n_images(self) -> int:
        """How many images were looked at."""
        return len(self.image_ids)

    @property
    def image_index(self) -> Int[np.ndarray, "boxes"]:
        """The position of each box's image in `image_ids`."""
        return _image_index(self)

    def for_images(self, image_ids: np.ndarray) -> "Detections":
        """Give the same boxes for another list of images: reordered, and with silent images added.

        A box on an image that is not in the list is refused: it would be lost.
        """
        if np.array_equal(self.image_ids, image_ids):
            return self
        has_boxes = np.diff(self.offsets) > 0
        strange = ~np.isin(self.image_ids, image_ids) & has_boxes
        if strange.any():
            kinds = {"U": "text", "i": "integers", "u": "integers"}
            mine, theirs = (kinds.get(ids.dtype.kind) for ids in (self.image_ids, image_ids))
            hint = "" if mine == theirs else f" (ids are {mine} here and {theirs} there)"
            raise InvalidDataError(
                f"Image id {self.image_ids[strange][0]!s} has detections but is not among the "
                f"{len(image_ids)} images of the truth{hint}; remove them or add the image."
            )
        return _reorder_images(self, image_ids)


@dataclass(frozen=True, eq=False)
class BoxTruth:
    """What is really in the images: boxes that are known, unknown or to be ignored.

    Args:
        image_ids: One id per image, integers or strings, also of images without an object.
        offsets: Where the boxes of each image begin, and at last where they end.
        xyxy: Corners in pixels.
        class_ids: Position of each object's class in `classes`; its role says known or unknown.
        classes: The class names with their roles.
        sizes: Widths and heights, where they are known more exactly than by subtraction.
        areas: Area of each object, as COCO gives it from its outline; by default that of the box.
        is_crowd: The box marks a region with many objects (COCO `iscrowd`).
        is_difficult: The object is too hard to be asked for (VOC `difficult`).
        superclasses: Super-class of each object or None; by default that of its class.

    >>> classes = Classes(("car", "deer"), (Role.KNOWN, Role.UNKNOWN))
    >>> truth = BoxTruth(["a"], [0, 2], [[0, 0, 4, 4], [5, 5, 9, 9]], [0, 1], classes)
    >>> truth.is_unknown.tolist(), truth.areas.tolist()
    ([False, True], [16.0, 16.0])
    """

    image_ids: Any
    offsets: Any
    xyxy: Any
    class_ids: Any
    classes: Classes
    sizes: Any = None
    areas: Any = None
    is_crowd: Any = None
    is_difficult: Any = None
    superclasses: Any = None

    def __post_init__(self) -> None:
        _freeze_boxes(self, "BoxTruth")
        n = len(self.xyxy)
        areas = self.sizes[:, 0] * self.sizes[:, 1] if self.areas is None else self.areas
        none = np.zeros(n, np.bool_)
        crowd = none if self.is_crowd is None else as_flags("BoxTruth", "is_crowd", self.is_crowd)
        difficult = none
        if self.is_difficult is not None:
            difficult = as_flags("BoxTruth", "is_difficult", self.is_difficult)
        of_class = np.array(self.classes.superclasses, dtype=object)[self.class_ids]
        superclasses = of_class if self.superclasses is None else self.superclasses
        _freeze(
            self, areas=np.asarray(areas, np.float64), superclasses=np.asarray(superclasses, object)
        )
        _freeze(self, is_crowd=crowd, is_difficult=difficult)
        check_rows("BoxTruth", **{name: _rows(self, name) for name in _row_columns(self)})
        check_finite("BoxTruth", "areas", self.areas)
        if (self.areas < 0).any():
            row = int(np.flatnonzero(self.areas < 0)[0])
            raise InvalidDataError(
                f"areas of BoxTruth must not be negative, but row {row} is {self.areas[row]}."
            )

    def __len__(self) -> int:
        return len(self.xyxy)

    def __getitem__(self, keep: Bool[np.ndarray, "boxes"]) -> "BoxTruth":
        """Keep the objects that a mask marks; every image stays, if need be without an object."""
        return _keep_boxes(self, keep)

    @classmethod
    def empty(cls, image_ids: Sequence[Any] | np.ndarray, classes: Classes) -> "BoxTruth":
        """Give the truth of images without any object."""
        offsets = np.zeros(len(image_ids) + 1, dtype=np.int64)
        return cls(image_ids, offsets, np.zeros((0, 4)), np.zeros(0, np.int32), classes)

    @classmethod
    def concatenate(cls, parts: Sequence["BoxTruth"]) -> "BoxTruth":
        """Join the truth of different images, in the order given."""
        return _concatenate(parts)

    @property
    def n_images(self) -> int:
        """How many images were annotated."""
        return len(self.image_ids)

    @property
    def image_index(self) -> Int[np.ndarray, "boxes"]:
        """The position of each object's image in `image_ids`."""
        return _image_index(self)

    def for_images(self, image_ids: np.ndarray) -> "BoxTruth":
        """Give the truth of these images alone, in this order; each must be annotated."""
        if np.array_equal(self.image_ids, image_ids):
            return self
        strange = ~np.isin(image_ids, self.image_ids)
        if strange.any():
            raise InvalidDataError(
                f"Image id {image_ids[strange][0]!s} was asked for, but is not among the "
                f"{self.n_images} images of the truth; annotate it or leave it out."
            )
        return _reorder_images(self, image_ids)

    def has_role(self, role: Role) -> Bool[np.ndarray, "boxes"]:
        """Say of each object whether its class has this role."""
        return np.asarray(self.classes.has_role(role)[self.class_ids])

    @property
    def is_unknown(self) -> Bool[np.ndarray, "boxes"]:
        """Whether each object is of a class the model was not trained on."""
        return self.has_role(Role.UNKNOWN)


Boxes = Detections | BoxTruth
B = TypeVar("B", Detections, BoxTruth)
_PER_IMAGE = ("image_ids", "offsets", "classes")


def _row_columns(boxes: Boxes) -> list[str]:
    return [field.name for field in fields(boxes) if field.name not in _PER_IMAGE]


def _rows(boxes: Boxes, name: str) -> int | None:
    column = getattr(boxes, name)
    return None if column is None else len(column)


def _freeze(boxes: Boxes, **columns: Any) -> None:
    for name, values in columns.items():
        object.__setattr__(boxes, name, as_array(values))


def _freeze_boxes(boxes: Boxes, what: str) -> None:
    """Bring the columns both containers share into shape, and check them."""
    xyxy: Float[np.ndarray, "boxes 4"] = as_rows(what, "xyxy", boxes.xyxy, 4)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        given = xyxy[:, 2:] - xyxy[:, :2] if boxes.sizes is None else boxes.sizes
    sizes = as_rows(what, "sizes", given, 2)
    check_rows(what, xyxy=len(xyxy), sizes=len(sizes))
    _freeze(boxes, image_ids=as_ids(what, boxes.image_ids), xyxy=xyxy, sizes=sizes)
    # few boxes are checked by numpy: loading the compiled check takes longer than it saves
    if len(xyxy) < 4096 or not are_sound(boxes.xyxy, boxes.sizes):
        check_boxes(what, xyxy)
        check_finite(what, "sizes", sizes)
        check_areas(what, sizes)
        check_sizes(what, sizes, xyxy)
    _freeze(boxes, offsets=as_integers(what, "offsets", boxes.offsets, np.int64))
    _freeze(boxes, class_ids=as_integers(what, "class_ids", boxes.class_ids, np.int32))
    check_unique(what, boxes.image_ids)
    check_offsets(what, boxes.offsets, len(boxes.image_ids), len(xyxy))
    check_class_ids(what, boxes.class_ids, len(boxes.classes))


def _image_index(boxes: Boxes) -> np.ndarray:
    return np.repeat(np.arange(boxes.n_images, dtype=np.int32), np.diff(boxes.offsets))


def _take(boxes: B, rows: np.ndarray, **changes: Any) -> B:
    """Copy a container with other rows; the columns that are absent stay absent."""
    columns = {name: getattr(boxes, name) for name in _row_columns(boxes)}
    taken: dict[str, Any] = {n: None if c is None else c[rows] for n, c in columns.items()}
    return replace(boxes, **taken, **changes)


def _keep_boxes(boxes: B, keep: np.ndarray) -> B:
    check_mask(type(boxes).__name__, keep, len(boxes))
    counted = np.concatenate([[0], np.cumsum(keep)])
    return _take(boxes, np.flatnonzero(keep), offsets=counted[boxes.offsets])


def _reorder_images(boxes: B, image_ids: np.ndarray) -> B:
    """Lay the rows out in the order of another list of images that holds all of ours with boxes."""
    by_id = np.argsort(boxes.image_ids, kind="stable")
    place = np.searchsorted(boxes.image_ids, image_ids, sorter=by_id).clip(0, boxes.n_images - 1)
    source = by_id[place] if boxes.n_images else np.zeros(len(image_ids), np.int64)
    is_ours = (
        boxes.image_ids[source] == image_ids if boxes.n_images else np.zeros(len(source), bool)
    )
    counts = np.where(is_ours, np.diff(boxes.offsets)[source] if boxes.n_images else 0, 0)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    first = boxes.offsets[source] - offsets[:-1]
    rows = np.arange(offsets[-1]) + np.repeat(first, counts)
    return _take(boxes, rows, image_ids=image_ids, offsets=offsets)


def _concatenate(parts: Sequence[B]) -> B:
    check_parts(parts)
    first = parts[0]
    if any(part.classes != first.classes for part in parts):
        raise InvalidDataError("Containers can be joined only if they share one list of classes.")
    columns: dict[str, Any] = {}
    for name in _row_columns(first):
        values = [getattr(part, name) for part in parts]
        absent = [value is None for value in values]
        if any(absent) and not all(absent):
            raise InvalidDataError(f"Some parts have {name} and others do not; give all or none.")
        widths = {value.shape[1:] for value in values if value is not None}
        if len(widths) > 1:
            raise InvalidDataError(f"Parts have {name} of different widths: {sorted(widths)}.")
        columns[name] = None if absent[0] else np.concatenate(values)
    if len({part.image_ids.dtype.kind for part in parts if len(part.image_ids)}) > 1:
        raise InvalidDataError("Some parts have integers as image ids and others text; use one.")
    filled = [part.image_ids for part in parts if len(part.image_ids)] or [first.image_ids]
    image_ids = np.concatenate(filled)
    offsets = concatenated_offsets(part.offsets for part in parts)
    return replace(first, image_ids=image_ids, offsets=offsets, **columns)
