"""Boxes of many images as flat arrays: rows `offsets[i]` to `offsets[i + 1]` belong to image i.

Arrays are shared with the caller, not copied; do not modify them afterwards.

Boxes are xyxy in absolute pixels. `sizes` keeps the widths and heights as given, because
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
from incognita.errors import InvalidDataError, count
from incognita.shapes import Bool, Float, Int

B = TypeVar("B", bound="_FlatBoxes")


class _FlatBoxes:
    """The columns and operations that detections and truth share."""

    image_ids: Any
    offsets: Any
    xyxy: Any
    class_ids: Any
    classes: Classes
    sizes: Any

    def __len__(self) -> int:
        return len(self.xyxy)

    def __repr__(self) -> str:
        counts = count(self.n_images, "image"), count(len(self), "box", "boxes")
        return f"{self._name}({', '.join(counts)}, {count(len(self.classes), 'class', 'classes')})"

    def __getitem__(self: B, keep: Bool[np.ndarray, "boxes"]) -> B:
        """Keep the boxes a mask marks; every image stays, even without a box."""
        check_mask(self._name, keep, len(self))
        n_kept = np.concatenate([[0], np.cumsum(keep)])
        return self._take(np.flatnonzero(keep), offsets=n_kept[self.offsets])

    @classmethod
    def concatenate(cls: type[B], parts: Sequence[B]) -> B:
        """Join containers of different images, in the order given."""
        check_parts(parts)
        first = parts[0]
        if any(part.classes != first.classes for part in parts):
            raise InvalidDataError(
                "Containers can be joined only if they share one list of classes."
            )
        if len({part.image_ids.dtype.kind for part in parts if part.n_images}) > 1:
            raise InvalidDataError(
                "Some parts have integers as image ids and others text; use one."
            )
        columns = {name: _join_column(name, parts) for name in first._row_columns}
        filled = [part.image_ids for part in parts if part.n_images] or [first.image_ids]
        offsets = concatenated_offsets(part.offsets for part in parts)
        return first._replace(image_ids=np.concatenate(filled), offsets=offsets, **columns)

    def at_images(self: B, places: Int[np.ndarray, "images"], image_ids: np.ndarray) -> B:
        """Return the images at these positions under new ids; a position may be repeated."""
        counts = np.diff(self.offsets)[places]
        return self._gather(self.offsets[places], counts, image_ids)

    @property
    def n_images(self) -> int:
        """The number of images, with and without boxes."""
        return len(self.image_ids)

    @property
    def image_index(self) -> Int[np.ndarray, "boxes"]:
        """The position of each box's image in `image_ids`."""
        return np.repeat(np.arange(self.n_images, dtype=np.int32), np.diff(self.offsets))

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _row_columns(self) -> list[str]:
        names = (field.name for field in fields(self))  # type: ignore[arg-type]
        return [name for name in names if name not in ("image_ids", "offsets", "classes")]

    def _freeze(self, **columns: Any) -> None:
        for name, values in columns.items():
            object.__setattr__(self, name, as_array(values))

    def _freeze_boxes(self) -> None:
        """Convert and check the shared columns."""
        what = self._name
        xyxy: Float[np.ndarray, "boxes 4"] = as_rows(what, "xyxy", self.xyxy, 4)
        check_boxes(what, xyxy)
        if self.sizes is None:
            with np.errstate(over="ignore"):  # refused below
                sizes = xyxy[:, 2:] - xyxy[:, :2]
        else:
            sizes = as_rows(what, "sizes", self.sizes, 2)
            check_rows(what, xyxy=len(xyxy), sizes=len(sizes))
        check_finite(what, "sizes", sizes)
        check_areas(what, sizes)
        if self.sizes is not None:
            check_sizes(what, sizes, xyxy)
        self._freeze(image_ids=as_ids(what, self.image_ids), xyxy=xyxy, sizes=sizes)
        self._freeze(offsets=as_integers(what, "offsets", self.offsets, np.int64))
        self._freeze(class_ids=as_integers(what, "class_ids", self.class_ids, np.int32))
        check_unique(what, self.image_ids)
        check_offsets(what, self.offsets, self.n_images, len(xyxy))
        check_class_ids(what, self.class_ids, len(self.classes))

    def _check_lengths(self) -> None:
        columns = {name: getattr(self, name) for name in self._row_columns}
        lengths = {name: None if c is None else len(c) for name, c in columns.items()}
        check_rows(self._name, **lengths)

    def _replace(self: B, **changes: Any) -> B:
        return replace(self, **changes)  # type: ignore[type-var]

    def _take(self: B, rows: np.ndarray, **changes: Any) -> B:
        """Copy with other rows; absent columns stay absent."""
        columns = {name: getattr(self, name) for name in self._row_columns}
        taken = {name: None if c is None else c[rows] for name, c in columns.items()}
        return self._replace(**taken, **changes)

    def _reorder_images(self: B, image_ids: np.ndarray) -> B:
        """Lay the rows out for another list of images, which holds all of ours with boxes."""
        counts = np.zeros(len(image_ids), np.int64)
        first = np.zeros(len(image_ids), np.int64)
        if self.n_images:
            by_id = np.argsort(self.image_ids, kind="stable")
            place = np.searchsorted(self.image_ids, image_ids, sorter=by_id)
            source = by_id[place.clip(0, self.n_images - 1)]
            is_ours = self.image_ids[source] == image_ids
            counts = np.where(is_ours, np.diff(self.offsets)[source], 0)
            first = self.offsets[source]
        return self._gather(first, counts, image_ids)

    def _gather(self: B, first: np.ndarray, counts: np.ndarray, image_ids: np.ndarray) -> B:
        """Copy for each image the rows from `first` on."""
        offsets = np.concatenate([[0], np.cumsum(counts)])
        rows = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], counts)
        return self._take(rows, image_ids=image_ids, offsets=offsets)


def _join_column(name: str, parts: Sequence[_FlatBoxes]) -> np.ndarray | None:
    values = [getattr(part, name) for part in parts]
    present = [value for value in values if value is not None]
    if not present:
        return None
    if len(present) < len(values):
        raise InvalidDataError(f"Some parts have {name} and others do not; pass all or none.")
    widths = {value.shape[1:] for value in values}
    if len(widths) > 1:
        raise InvalidDataError(f"Parts have {name} of different widths: {sorted(widths)}.")
    return np.concatenate(values)


@dataclass(frozen=True, eq=False, repr=False)
class Detections(_FlatBoxes):
    """The output of a detector: boxes with a class and a confidence, image by image.

    Args:
        image_ids: One id per image, integers or strings, also of images without a box.
        offsets: Where the boxes of each image begin; the last entry is the number of boxes.
        xyxy: Corners in pixels.
        confidence: Confidence of each box; any finite number, 0 to 1 for calibration.
        class_ids: Position of each box's class in `classes`.
        classes: The class names with their roles.
        sizes: Widths and heights; by default computed from `xyxy`.
        logits: The class logits of each box, if recorded.
        features: The feature vector of each box, if recorded.
        background: The background logit of each box, where the detector has one; it is not a
            class and not a column of `logits`.
        source_index: The proposal, query, patch or anchor behind each box.
        head_index: Which of the detector's linear heads computed each row of logits.
        covariance: The predicted variances of the four coordinates of each box, above 0, of a
            probabilistic detector.

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
    covariance: Any = None

    def __post_init__(self) -> None:
        self._freeze_boxes()
        self._freeze(confidence=as_floats("Detections", "confidence", self.confidence))
        for name in ("logits", "features"):
            if getattr(self, name) is not None:
                self._freeze(**{name: as_matrix("Detections", name, getattr(self, name))})
        if self.background is not None:
            self._freeze(background=as_floats("Detections", "background", self.background))
            check_finite("Detections", "background", self.background)
        for name in ("source_index", "head_index"):
            if getattr(self, name) is not None:
                column = as_integers("Detections", name, getattr(self, name), np.int64)
                self._freeze(**{name: column})
        if self.covariance is not None:
            self._freeze(covariance=as_rows("Detections", "covariance", self.covariance, 4))
            check_finite("Detections", "covariance", self.covariance)
            self._check_variances()
        self._check_lengths()
        check_finite("Detections", "confidence", self.confidence)

    def _check_variances(self) -> None:
        is_wrong = (self.covariance <= 0).any(axis=1)
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise InvalidDataError(
                f"Expected variances above 0 as covariance of Detections, got "
                f"{self.covariance[row].tolist()} in row {row}."
            )

    @classmethod
    def empty(cls, image_ids: Sequence[Any] | np.ndarray, classes: Classes) -> "Detections":
        """Return detections without a box on any image."""
        none = np.zeros(0)
        offsets = np.zeros(len(image_ids) + 1, dtype=np.int64)
        return cls(image_ids, offsets, none.reshape(0, 4), none, none.astype(np.int32), classes)

    @classmethod
    def from_supervision(
        cls,
        images: Any,
        *,
        classes: Classes | Sequence[str] | None = None,
        image_ids: Sequence[Any] | np.ndarray | None = None,
    ) -> "Detections":
        """Convert detections of supervision: boxes, confidences and classes, not masks or tracks.

        Args:
            images: One `supervision.Detections` per image, also of images without a box; or one.
            classes: The classes, by default those that `data["class_name"]` names, in the order of
                `class_id`. Where boxes have names, they count; else `class_id` is a position here.
            image_ids: One id per image; by default they are numbered from 0.
        """
        from incognita.containers.exchange import from_supervision

        return from_supervision(images, classes, image_ids)

    def without_outputs(self) -> "Detections":
        """Drop what a network computed beside boxes, classes and confidences."""
        columns = ("logits", "features", "background", "source_index", "head_index", "covariance")
        return self._replace(**dict.fromkeys(columns))

    def to_supervision(self) -> list[Any]:
        """Convert to one `supervision.Detections` per image, in the order of `image_ids`.

        Boxes, confidences, class ids and class names; logits and features stay behind.
        """
        from incognita.containers.exchange import to_supervision

        return to_supervision(self)

    @classmethod
    def from_fiftyone(
        cls,
        dataset: Any,
        field: str = "predictions",
        *,
        classes: Classes | Sequence[str] | None = None,
    ) -> "Detections":
        """Convert a field of a FiftyOne dataset or view; the image ids are those of the samples.

        Args:
            dataset: With the sizes of the images: call `dataset.compute_metadata()` first.
            field: A field of the type Detections, with confidences.
            classes: The classes, by default those of the labels, in alphabetical order.
        """
        from incognita.containers.exchange import from_fiftyone

        return from_fiftyone(dataset, field, classes)

    def for_images(self, image_ids: np.ndarray) -> "Detections":
        """Return the same boxes for another list of images, in its order.

        Images without boxes are added; a box on an image outside the list raises an error.
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
        return self._reorder_images(image_ids)


@dataclass(frozen=True, eq=False, repr=False)
class BoxTruth(_FlatBoxes):
    """The annotated objects: boxes that are known, unknown or to be ignored.

    Args:
        image_ids: One id per image, integers or strings, also of images without an object.
        offsets: Where the boxes of each image begin; the last entry is the number of boxes.
        xyxy: Corners in pixels.
        class_ids: Position of each object's class in `classes`; its role says known or unknown.
        classes: The class names with their roles.
        sizes: Widths and heights; by default computed from `xyxy`.
        areas: Area of each object, as COCO gives it from its outline; by default that of the box.
        is_crowd: The box marks a region with many objects (COCO `iscrowd`).
        is_difficult: The object need not be detected (VOC `difficult`).
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
        self._freeze_boxes()
        areas = self.sizes[:, 0] * self.sizes[:, 1] if self.areas is None else self.areas
        of_class = np.array(self.classes.superclasses, dtype=object)[self.class_ids]
        superclasses = of_class if self.superclasses is None else self.superclasses
        self._freeze(areas=np.asarray(areas, np.float64))
        self._freeze(superclasses=np.asarray(superclasses, object))
        for name in ("is_crowd", "is_difficult"):
            flags = getattr(self, name)
            is_absent = flags is None
            column = (
                np.zeros(len(self), np.bool_) if is_absent else as_flags("BoxTruth", name, flags)
            )
            self._freeze(**{name: column})
        self._check_lengths()
        check_finite("BoxTruth", "areas", self.areas)
        if (self.areas < 0).any():
            row = int(np.flatnonzero(self.areas < 0)[0])
            raise InvalidDataError(
                f"areas of BoxTruth must not be negative, but row {row} is {self.areas[row]}."
            )

    @classmethod
    def empty(cls, image_ids: Sequence[Any] | np.ndarray, classes: Classes) -> "BoxTruth":
        """Return the truth of images without any object."""
        offsets = np.zeros(len(image_ids) + 1, dtype=np.int64)
        return cls(image_ids, offsets, np.zeros((0, 4)), np.zeros(0, np.int32), classes)

    @classmethod
    def from_fiftyone(
        cls,
        dataset: Any,
        field: str = "ground_truth",
        *,
        classes: Classes | Sequence[str] | None = None,
    ) -> "BoxTruth":
        """Convert a field of a FiftyOne dataset or view; see `Detections.from_fiftyone`."""
        from incognita.containers.exchange import truth_from_fiftyone

        return truth_from_fiftyone(dataset, field, classes)

    def for_images(self, image_ids: np.ndarray) -> "BoxTruth":
        """Return the truth of these images alone, in this order; all must be annotated."""
        if np.array_equal(self.image_ids, image_ids):
            return self
        strange = ~np.isin(image_ids, self.image_ids)
        if strange.any():
            raise InvalidDataError(
                f"Image id {image_ids[strange][0]!s} is not among the {self.n_images} images of "
                f"the truth; annotate it or leave it out."
            )
        return self._reorder_images(image_ids)

    def has_role(self, role: Role) -> Bool[np.ndarray, "boxes"]:
        """Return whether the class of each object has this role."""
        return np.asarray(self.classes.has_role(role)[self.class_ids])

    @property
    def is_unknown(self) -> Bool[np.ndarray, "boxes"]:
        """Whether each object is of a class the model was not trained on."""
        return self.has_role(Role.UNKNOWN)
