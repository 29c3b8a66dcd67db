"""The rows behind the numbers: which images or boxes were scored, and their tables on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars

from incognita.benchmarks.benchmark import ACCEPTED, KNOWN, SHIFTED
from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Role
from incognita.errors import InvalidDataError
from incognita.metrics.conventions import COCO, PAPER
from incognita.metrics.matching import match
from incognita.metrics.open_set import overlapping_pairs
from incognita.results.result import Split
from incognita.shapes import Bool, Float64, Int

Scores = Mapping[str, Float64[np.ndarray, "_"]]  # the score of every row, by set
# a value, then its bootstrap replicates, of which there are none if images are too few
Replicates = Float64[np.ndarray, "_"]
Measured = dict[tuple[str, Split], Replicates]  # by metric and split
MAX_CLASSES = 1_000_000  # counts by class are arrays of this length at most


def as_utf8(name: str) -> str:
    r"""Return the name of a file as valid text; bytes that are not UTF-8 become escapes.

    >>> as_utf8("caf\udce9.png")
    'caf\\xe9.png'
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return name


@dataclass(frozen=True, eq=False)
class ScoredSet:
    """One data set as a classifier saw it.

    Args:
        name: Its name in the benchmark.
        group: `known`, `shifted`, `accepted`, or the group of unknown sets it belongs to, such as
            `near`.
        image_ids: One per row.
        predicted: The predicted class.
        labels: The true class, for known and shifted images.
        source_classes: The true class by the name its own data set gives it, known or not.
    """

    name: str
    group: str
    image_ids: Sequence[str]
    predicted: Int[np.ndarray, "n"]
    labels: Int[np.ndarray, "n"] | None
    source_classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        # here and not where tables are written: stored and new rows are compared by their ids
        object.__setattr__(self, "image_ids", tuple(as_utf8(str(i)) for i in self.image_ids))

    def __len__(self) -> int:
        return len(self.image_ids)

    @property
    def is_unknown(self) -> bool:
        """Whether its images belong to no known class."""
        return self.group not in (KNOWN, SHIFTED, ACCEPTED)

    def keep(self, is_kept: Bool[np.ndarray, "n"]) -> "ScoredSet":
        """Return the set with some of its rows."""
        ids = tuple(image for image, keep in zip(self.image_ids, is_kept, strict=True) if keep)
        labels = None if self.labels is None else self.labels[is_kept]
        names = self.source_classes
        if names is not None:
            names = tuple(name for name, keep in zip(names, is_kept, strict=True) if keep)
        return ScoredSet(self.name, self.group, ids, self.predicted[is_kept], labels, names)


@dataclass(frozen=True, eq=False)
class DetectedSet:
    """One data set as a detector saw it.

    Args:
        name: Its name in the benchmark.
        group: `known`, `shifted`, the group of unknown sets it belongs to, or `mixed`.
        found: Every box the box filter kept, in the classes of the truth.
        truth: The objects in the images that could be read.
        is_kept: Boxes with a confidence of at least t*: only these are scored.
        labelled: Of an open-set detector all boxes, also those that it calls unknown itself.
    """

    name: str
    group: str
    found: Detections
    truth: BoxTruth
    is_kept: Bool[np.ndarray, "boxes"]
    labelled: Detections | None = None

    @cached_property
    def kept(self) -> Detections:
        """The boxes that methods score."""
        return self.found[self.is_kept]

    @cached_property
    def object_classes(self) -> list[str | None]:
        """The class of the object that each scored box matches at IoU 0.5, or None."""
        table = match(self.kept, self.truth, convention=COCO, class_wise=False)
        names = np.array([*self.truth.classes.names, None], dtype=object)
        matched = np.full(len(self.kept), len(names) - 1)
        is_hit = table.is_true_positive()
        matched[is_hit] = self.truth.class_ids[table.truth_index[is_hit]]
        return list(names[matched])

    @property
    def n_images(self) -> int:
        """How many images could be read."""
        return self.truth.n_images


def known_sets(sets: Sequence[ScoredSet], *, with_shifted: bool = False) -> list[ScoredSet]:
    """Return the sets that count as known; with shifted ones in the full-spectrum setting."""
    groups = (KNOWN, ACCEPTED, SHIFTED) if with_shifted else (KNOWN, ACCEPTED)
    return [scored for scored in sets if scored.group in groups]


def image_frame(sets: Sequence[ScoredSet], scores: Scores) -> polars.DataFrame:
    """Return one row per image.

    Columns: set, group, image_id, label, source_class, predicted, unknown_score.
    """
    columns: dict[str, list[object] | np.ndarray] = {
        "set": [scored.name for scored in sets for _ in range(len(scored))],
        "group": [scored.group for scored in sets for _ in range(len(scored))],
        "image_id": [str(image) for scored in sets for image in scored.image_ids],
        "label": [label for scored in sets for label in _labels(scored)],
        "source_class": [name for scored in sets for name in _source_classes(scored)],
        "predicted": np.concatenate([scored.predicted for scored in sets]).astype(np.int32),
        "unknown_score": np.concatenate([scores[scored.name] for scored in sets]),
    }
    types = {
        "set": polars.Categorical,
        "group": polars.Categorical,
        "label": polars.Int32,
        "source_class": polars.Categorical,
    }
    return polars.DataFrame(columns, schema_overrides=types)


def _labels(scored: ScoredSet) -> Sequence[int | None]:
    return [None] * len(scored) if scored.labels is None else scored.labels.tolist()


def _source_classes(scored: ScoredSet) -> Sequence[str | None]:
    names = scored.source_classes
    return [None] * len(scored) if names is None else [as_utf8(str(name)) for name in names]


def sets_and_scores(frame: polars.DataFrame) -> tuple[tuple[ScoredSet, ...], Scores]:
    """Read the table of `image_frame` back into sets and scores; raise for any other table."""
    _check_image_frame(frame)
    sets: list[ScoredSet] = []
    scores: dict[str, np.ndarray] = {}
    for part in frame.partition_by("set", maintain_order=True):
        name = str(part["set"][0])
        labels = None if part["label"].has_nulls() else part["label"].to_numpy().astype(np.int64)
        predicted = part["predicted"].to_numpy().astype(np.int64)
        group, ids = str(part["group"][0]), tuple(part["image_id"].to_list())
        if part["group"].n_unique() > 1:
            raise _no_table("one group for every set", "a set with several")
        names = part["source_class"].cast(polars.String) if "source_class" in part.columns else None
        own = None if names is None or names.has_nulls() else tuple(names.to_list())
        sets.append(ScoredSet(name, group, ids, predicted, labels, own))
        scores[name] = part["unknown_score"].to_numpy()
    n_known = sum(scored.group == KNOWN for scored in sets)
    if n_known != 1:
        raise _no_table("one set of known test images", n_known)
    return tuple(sets), scores


_TEXT = (polars.Categorical, polars.String)
_INTEGER = (polars.Int32, polars.Int64)
_NUMBER = (polars.Float32, polars.Float64)
_OF_BOTH: dict[str, Any] = dict.fromkeys(("set", "group", "image_id"), _TEXT) | {
    "unknown_score": _NUMBER
}
_OF_BOXES: dict[str, Any] = dict.fromkeys(("x1", "y1", "x2", "y2", "confidence"), _NUMBER)


def _check_columns(
    frame: polars.DataFrame,
    columns: Mapping[str, Sequence[Any]],
    may_be_empty: str,
) -> None:
    """Raise unless a table has these columns: files may come from strangers."""
    for name, kinds in columns.items():
        kind = frame.schema.get(name)
        if kind not in kinds:
            raise _no_table(f"{kinds[-1]} as {name}", "no such column" if kind is None else kind)
        if name != may_be_empty and frame[name].has_nulls():
            raise _no_table(f"{name} in every row", "empty cells")


def check_box_frame(frame: polars.DataFrame, classes: Sequence[str]) -> None:
    """Raise unless a table may be one of `box_frame`, with these known classes."""
    called: dict[str, Any] = {"predicted": _TEXT, "is_called_unknown": (polars.Boolean,)}
    _check_columns(frame, _OF_BOTH | _OF_BOXES | called, may_be_empty="predicted")
    others = set(frame["predicted"].cast(polars.String).unique()) - {None, *map(str, classes)}
    if others:
        raise _no_table("known classes as predicted", min(others))


def _check_image_frame(frame: polars.DataFrame) -> None:
    """Raise unless a table may be one of `image_frame`."""
    classes: dict[str, Any] = {"label": _INTEGER, "predicted": _INTEGER}
    _check_columns(frame, _OF_BOTH | classes, may_be_empty="label")
    for name in ("predicted", "label"):
        low, high = frame[name].min(), frame[name].max()
        if isinstance(low, int) and isinstance(high, int) and not 0 <= low <= high < MAX_CLASSES:
            raise _no_table(f"classes from 0 to {MAX_CLASSES:,} as {name}", f"{low} to {high}")


def _no_table(expected: str, got: object) -> InvalidDataError:
    return InvalidDataError(f"Expected {expected}, got {got}. Run the benchmark again.")


def common_rows(
    tables: Mapping[str, tuple[Sequence[ScoredSet], Scores]],
) -> tuple[tuple[ScoredSet, ...], dict[str, Scores]]:
    """Reduce the sets and scores of all methods to the images that every method has.

    An extra output may fail on an image that other methods could use.
    """
    if not tables:
        return (), {}
    first = next(iter(tables.values()))[0]
    common = {
        scored.name: frozenset.intersection(
            *(
                frozenset(
                    str(image) for s in sets if s.name == scored.name for image in s.image_ids
                )
                for sets, _ in tables.values()
            )
        )
        for scored in first
    }
    scores: dict[str, Scores] = {
        key: {s.name: mine[s.name][_is_common(s, common)] for s in sets}
        for key, (sets, mine) in tables.items()
    }
    return tuple(scored.keep(_is_common(scored, common)) for scored in first), scores


def _is_common(scored: ScoredSet, common: Mapping[str, frozenset[str]]) -> np.ndarray:
    images = common.get(scored.name, frozenset())
    return np.array([str(image) in images for image in scored.image_ids], dtype=bool)


def box_frame(
    sets: Sequence[DetectedSet], scores: Scores, is_called_unknown: Mapping[str, np.ndarray]
) -> polars.DataFrame:
    """Return one row per scored box.

    Columns: set, group, image_id, x1, y1, x2, y2, width, height, predicted, object_class,
    confidence, source_index, unknown_score, is_called_unknown. Where a detector calls a box
    unknown itself, `predicted` is null. With the truth, every number of the paper's conventions can
    be computed from it; those of FMIYC's code also need the logits, and average precision the boxes
    below t*.
    """
    return polars.concat([_boxes(seen, scores, is_called_unknown[seen.name]) for seen in sets])


def _boxes(seen: DetectedSet, scores: Scores, is_called_unknown: np.ndarray) -> polars.DataFrame:
    kept = seen.kept
    names = np.array(kept.classes.names, dtype=object)
    is_unnamed = kept.classes.has_role(Role.UNKNOWN)  # a detector's own label for the unknown
    names[is_unnamed] = None
    corners = dict(zip(("x1", "y1", "x2", "y2"), kept.xyxy.T, strict=True))
    columns = {
        "set": [seen.name] * len(kept),
        "group": [seen.group] * len(kept),
        "image_id": [as_utf8(str(kept.image_ids[k])) for k in kept.image_index],
        **corners,
        **dict(zip(("width", "height"), kept.sizes.T, strict=True)),
        "predicted": names[kept.class_ids].tolist(),
        "object_class": seen.object_classes,
        "confidence": kept.confidence.astype(np.float64),
        "source_index": _source_index(kept),
        "unknown_score": scores[seen.name],
        "is_called_unknown": is_called_unknown,
    }
    text = dict.fromkeys(("set", "group", "image_id", "predicted", "object_class"), polars.String)
    types = text | {"source_index": polars.Int64}
    return polars.DataFrame(columns, schema_overrides=types)


def _source_index(kept: Detections) -> Sequence[int | None]:
    return [None] * len(kept) if kept.source_index is None else kept.source_index.tolist()


def object_frame(sets: Sequence[DetectedSet]) -> polars.DataFrame:
    """Return one row per annotated object.

    Columns: set, group, image_id, x1, y1, x2, y2, width, height, object_class, superclass, role,
    is_crowd, is_difficult, confidence. The last is the highest confidence of a box that overlaps
    the object by an IoU of 0.5, whatever its label and also below t*; null where there is none.
    With the tables of boxes, it shows what became of every object without the benchmark.
    """
    return polars.concat([_objects(seen) for seen in sets])


def _highest_confidence(found: Detections, truth: BoxTruth) -> Float64[np.ndarray, "objects"]:
    boxes, objects = overlapping_pairs(found, truth, convention=PAPER)
    highest = np.full(len(truth), np.nan)
    np.fmax.at(highest, objects, found.confidence[boxes].astype(np.float64))
    return highest


def _objects(seen: DetectedSet) -> polars.DataFrame:
    truth = seen.truth
    found = seen.found if seen.labelled is None else seen.labelled
    names = np.array(truth.classes.names, dtype=object)
    roles = np.array([role.value for role in truth.classes.roles], dtype=object)
    corners = dict(zip(("x1", "y1", "x2", "y2"), truth.xyxy.T, strict=True))
    columns = {
        "set": [seen.name] * len(truth),
        "group": [seen.group] * len(truth),
        "image_id": [as_utf8(str(truth.image_ids[k])) for k in truth.image_index],
        **corners,
        **dict(zip(("width", "height"), truth.sizes.T, strict=True)),
        "object_class": [as_utf8(str(name)) for name in names[truth.class_ids]],
        "superclass": [None if name is None else as_utf8(name) for name in truth.superclasses],
        "role": roles[truth.class_ids].tolist(),
        "is_crowd": truth.is_crowd,
        "is_difficult": truth.is_difficult,
        "confidence": _highest_confidence(found, truth),
    }
    text = ("set", "group", "image_id", "object_class", "superclass", "role")
    frame = polars.DataFrame(columns, schema_overrides=dict.fromkeys(text, polars.String))
    return frame.with_columns(polars.col("confidence").fill_nan(None))
