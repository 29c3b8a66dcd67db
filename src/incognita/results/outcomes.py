"""What became of every object and every box of a detector's run, from its stored tables.

An object counts as the papers have it: crowd regions, difficult objects and those of ignored
classes are left out. A box overlaps an object from an IoU of 0.5 on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import polars

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role
from incognita.metrics.conventions import PAPER
from incognita.metrics.matching import is_ignored_truth, match
from incognita.metrics.open_set import overlapping_pairs
from incognita.shapes import Bool, Float64, Int

IMAGE = ["set", "image_id"]
CORNERS = ["x1", "y1", "x2", "y2"]
# classes that no data set has
_NOT_NAMED, _IGNORED = (f"\N{REPLACEMENT CHARACTER} {text}" for text in ("unknown", "ignored"))


class ObjectOutcome(StrEnum):
    """What became of an object."""

    FOUND = "found"  # an unknown one as unknown, a known one under its class
    MISNAMED = "named as a known class"  # an unknown one, or a known one under another class
    CALLED_UNKNOWN = "called unknown"  # a known one
    UNMATCHED = "box of another object"  # all boxes on it belong to a neighbor
    UNDETECTED = "undetected"


class BoxOutcome(StrEnum):
    """What a box is on."""

    RIGHT = "right"
    UNKNOWN_AS_KNOWN = "unknown taken for known"
    KNOWN_AS_UNKNOWN = "known taken for unknown"
    ANOTHER_CLASS = "known taken for another class"
    DUPLICATE = "duplicate"
    BACKGROUND = "background"
    IGNORED = "ignored"


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The boxes of one method and the objects of a run, matched with each other.

    Args:
        detections: The boxes above t*; those called unknown carry a class of their own.
        truth: The objects.
        box_rows: The table of the boxes, in the order of `detections`.
        object_rows: The table of the objects, in the order of `truth`.
    """

    detections: Detections
    truth: BoxTruth
    box_rows: polars.DataFrame
    object_rows: polars.DataFrame

    @classmethod
    def of(
        cls, boxes: polars.DataFrame, objects: polars.DataFrame, known: Sequence[str]
    ) -> "Outcomes":
        """Build both containers from the tables of a run; `known` are the known classes."""
        images = polars.concat([boxes.select(IMAGE), objects.select(IMAGE)]).unique()
        images = images.sort(IMAGE).with_row_index("image")
        box_rows, object_rows = (
            frame.join(images, on=IMAGE, how="left", maintain_order="left").sort(
                "image", maintain_order=True
            )
            for frame in (boxes, objects)
        )
        names = _names(object_rows, known)
        classes = _classes(names, known)
        is_called = polars.col("is_called_unknown") | polars.col("predicted").is_null()
        named = box_rows.select(
            polars.when(is_called).then(polars.lit(_NOT_NAMED)).otherwise("predicted").alias("name")
        )["name"]
        shared = np.arange(len(images)), classes
        return cls(
            _boxes(box_rows, named, *shared),
            _objects(object_rows, names, *shared),
            box_rows,
            object_rows,
        )

    @cached_property
    def is_counted(self) -> Bool[np.ndarray, "objects"]:
        """Whether each object must be found."""
        return ~is_ignored_truth(self.truth, PAPER)

    @cached_property
    def pairs(self) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]:
        """Every box and object that overlap."""
        return overlapping_pairs(self.detections, self.truth, convention=PAPER)

    @cached_property
    def is_called(self) -> Bool[np.ndarray, "boxes"]:
        """Whether each box is called unknown."""
        return np.asarray(self.detections.classes.has_role(Role.UNKNOWN)[self.detections.class_ids])

    def above(self, confidence: float) -> np.ndarray:
        """Return what becomes of each object if only boxes of this confidence are kept."""
        return self._of_objects(self.detections.confidence >= confidence)

    def objects(self) -> polars.DataFrame:
        """Return the objects that count, with their outcome and the box that shows it.

        Adds to the table: outcome; predicted and unknown_score of the most confident box on the
        object, of a known class where the object is misnamed; null where it is undetected.
        """
        outcomes = self._of_objects(np.ones(len(self.detections), np.bool_))
        shown = self._shown_boxes(outcomes)
        rows = self.object_rows.with_columns(
            outcome=polars.Series(outcomes.astype(str), dtype=polars.String),
            box=polars.Series(shown, dtype=polars.Int64),
        )
        seen = self.box_rows.select("predicted", "unknown_score").with_row_index("box")
        seen = seen.with_columns(polars.col("box").cast(polars.Int64))
        joined = rows.join(seen, on="box", how="left", maintain_order="left").drop("box")
        return joined.filter(polars.Series(self.is_counted, dtype=polars.Boolean))

    def boxes(self) -> polars.DataFrame:
        """Return all boxes with their outcome, and in `on_class` the class they are on."""
        outcomes, class_ids = self._of_boxes()
        names = np.array([*self.truth.classes.names, None], dtype=object)  # -1 is none
        return self.box_rows.with_columns(
            outcome=polars.Series(outcomes.astype(str), dtype=polars.String),
            on_class=polars.Series(names[class_ids].tolist(), dtype=polars.String),
        )

    def _of_objects(self, is_kept: Bool[np.ndarray, "boxes"]) -> np.ndarray:
        """Return the outcome of each object among the kept boxes."""
        kept = self.detections[is_kept]
        table = match(kept, self.truth, convention=PAPER)
        boxes, objects = (side[is_kept[self.pairs[0]]] for side in self.pairs)
        n, called = len(self.truth), self.is_called[boxes]
        is_other = self.detections.class_ids[boxes] != self.truth.class_ids[objects]
        is_touched, is_named, is_called = (
            np.bincount(objects[mask], minlength=n) > 0
            for mask in (np.ones(len(objects), np.bool_), ~called & is_other, called)
        )
        is_lost = is_called & ~self.truth.is_unknown
        return _first(
            (table.is_found, ObjectOutcome.FOUND),
            (is_lost, ObjectOutcome.CALLED_UNKNOWN),
            (is_named, ObjectOutcome.MISNAMED),
            (is_touched, ObjectOutcome.UNMATCHED),
            otherwise=ObjectOutcome.UNDETECTED,
        )

    def _shown_boxes(self, outcomes: np.ndarray) -> Int[np.ndarray, "objects"]:
        """Return the most confident box on each object, or -1; of misnamed ones, that names it."""
        boxes, objects = self.pairs
        is_other = self.detections.class_ids[boxes] != self.truth.class_ids[objects]
        names_it = is_other & ~self.is_called[boxes]
        is_fit = names_it | (outcomes[objects] != ObjectOutcome.MISNAMED)
        boxes, objects = boxes[is_fit], objects[is_fit]
        order = np.argsort(self.detections.confidence[boxes], kind="stable")
        shown = np.full(len(self.truth), -1)
        shown[objects[order]] = boxes[order]  # the last one written is the most confident
        return shown

    def _of_boxes(self) -> tuple[np.ndarray, Int[np.ndarray, "boxes"]]:
        """Return the outcome of each box, and the class of the object it is on or -1."""
        table = match(self.detections, self.truth, convention=PAPER, class_wise=False)
        is_ignored = table.is_ignored()
        is_hit = table.is_true_positive() & ~is_ignored
        under = np.full(len(self.detections), -1)  # the first object that each box overlaps
        under[self.pairs[0][::-1]] = self.pairs[1][::-1]
        places = np.where(is_hit, table.truth_index, np.where(is_ignored, -1, under))
        class_ids = np.append(self.truth.class_ids, -1)[places]
        is_unknown = np.append(self.truth.is_unknown, False)[places]
        is_right = np.where(is_unknown, self.is_called, self.detections.class_ids == class_ids)
        outcomes = _first(
            (is_ignored, BoxOutcome.IGNORED),
            (~is_hit & (under >= 0), BoxOutcome.DUPLICATE),
            (~is_hit, BoxOutcome.BACKGROUND),
            (is_right, BoxOutcome.RIGHT),
            (is_unknown, BoxOutcome.UNKNOWN_AS_KNOWN),
            (self.is_called, BoxOutcome.KNOWN_AS_UNKNOWN),
            otherwise=BoxOutcome.ANOTHER_CLASS,
        )
        return outcomes, class_ids


def _first(*cases: tuple[np.ndarray, StrEnum], otherwise: StrEnum) -> np.ndarray:
    """Return for each row the outcome of the first mask that is true there."""
    names = np.array([*(outcome for _, outcome in cases), otherwise], dtype=object)
    places = np.select([mask for mask, _ in cases], range(len(cases)), len(cases))
    return np.asarray(names[places])


def shares_by_confidence(
    outcomes: Outcomes, thresholds: Sequence[float], *, scored_from: float
) -> polars.DataFrame:
    """Compute the shares of unknown objects that are undetected, misnamed and missed.

    One row per group and confidence threshold, with columns group, confidence, undetected,
    misnamed, missed and objects. Boxes below `scored_from` have no unknown score: there, misnamed
    and missed are null, and undetected is of all boxes of the detector.
    """
    objects = outcomes.object_rows
    is_unknown = outcomes.truth.is_unknown & outcomes.is_counted
    highest = objects["confidence"].fill_null(-np.inf).to_numpy()
    groups = objects["group"].to_numpy()
    rows = []
    for threshold in thresholds:
        is_scored = threshold >= scored_from
        found = outcomes.above(threshold) if is_scored else None
        for group in dict.fromkeys(groups[is_unknown]):
            chosen = is_unknown & (groups == group)
            rows.append(
                {
                    "group": group,
                    "confidence": threshold,
                    "undetected": float((highest[chosen] < threshold).mean()),
                    **_scored_shares(None if found is None else found[chosen]),
                    "objects": int(chosen.sum()),
                }
            )
    return polars.DataFrame(rows, infer_schema_length=None)


def _scored_shares(found: np.ndarray | None) -> dict[str, float | None]:
    if found is None:
        return {"misnamed": None, "missed": None}
    return {
        "misnamed": float((found == ObjectOutcome.MISNAMED).mean()),
        "missed": float((found != ObjectOutcome.FOUND).mean()),
    }


def _names(rows: polars.DataFrame, known: Sequence[str]) -> polars.Series:
    """Return the class of each object; ignored ones share one, unknown ones have none of ours."""
    name, role = polars.col("object_class"), polars.col("role")
    is_ours = name.is_in(list(known)) & (role != Role.KNOWN.value)
    named = (
        polars.when(role == Role.IGNORED.value)
        .then(polars.lit(_IGNORED))
        .when(is_ours)
        .then(name + " (unknown)")
        .otherwise(name)
    )
    return rows.select(named.alias("name"))["name"]


def _classes(names: polars.Series, known: Sequence[str]) -> Classes:
    """Return the known classes in their order, then all others, then that of boxes called so."""
    others = [name for name in names.unique(maintain_order=True) if name not in known]
    roles = [Role.IGNORED if name == _IGNORED else Role.UNKNOWN for name in others]
    return Classes(
        (*known, *others, _NOT_NAMED), (*(Role.KNOWN for _ in known), *roles, Role.UNKNOWN)
    )


def _offsets(rows: polars.DataFrame, n_images: int) -> Int[np.ndarray, "images_plus_1"]:
    counts = np.bincount(rows["image"].to_numpy(), minlength=n_images)
    return np.concatenate([[0], np.cumsum(counts)])


def _corners(rows: polars.DataFrame) -> Float64[np.ndarray, "boxes 4"]:
    return rows.select(CORNERS).to_numpy().astype(np.float64).reshape(-1, 4)


def _sizes(rows: polars.DataFrame) -> Float64[np.ndarray, "boxes 2"] | None:
    """Return widths and heights as they were given; an earlier version did not store those."""
    if "width" not in rows.columns:
        return None
    return rows.select("width", "height").to_numpy().astype(np.float64).reshape(-1, 2)


def _class_ids(names: polars.Series, classes: Classes) -> Int[np.ndarray, "boxes"]:
    place = {name: k for k, name in enumerate(classes.names)}
    return np.array([place[name] for name in names.to_list()], np.int32)


def _boxes(
    rows: polars.DataFrame, named: polars.Series, images: np.ndarray, classes: Classes
) -> Detections:
    return Detections(
        images,
        _offsets(rows, len(images)),
        _corners(rows),
        rows["confidence"].to_numpy(),
        _class_ids(named, classes),
        classes,
        sizes=_sizes(rows),
    )


def _objects(
    rows: polars.DataFrame, names: polars.Series, images: np.ndarray, classes: Classes
) -> BoxTruth:
    return BoxTruth(
        images,
        _offsets(rows, len(images)),
        _corners(rows),
        _class_ids(names, classes),
        classes,
        sizes=_sizes(rows),
        is_crowd=rows["is_crowd"].to_numpy(),
        is_difficult=rows["is_difficult"].to_numpy(),
    )
