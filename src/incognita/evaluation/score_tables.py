"""Scores of single images as tables on disk, and back."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars

from incognita.evaluation.detector_metrics import DetectedSet, ThresholdedScores
from incognita.results.scored_sets import ScoredSet, Scores


def box_frame(sets: Sequence[DetectedSet], decided: ThresholdedScores) -> polars.DataFrame:
    """Give one row per kept box.

    Columns: set, group, image_id, x1, y1, x2, y2, predicted, confidence, source_index,
    unknown_score, is_called_unknown.
    """
    return polars.concat([_of_set(each, decided) for each in sets])


def _of_set(each: DetectedSet, decided: ThresholdedScores) -> polars.DataFrame:
    kept, score = each.kept, decided.scores[each.name]
    images = [str(kept.image_ids[k]) for k in kept.image_index]
    names = np.array(kept.classes.names, dtype=object)
    corners = {f"{axis}{k}": kept.xyxy[:, c] for c, (axis, k) in enumerate(_CORNERS)}
    columns = {
        "set": [each.name] * len(kept),
        "group": [each.group] * len(kept),
        "image_id": images,
        **corners,
        "predicted": names[kept.class_ids].tolist(),
        "confidence": kept.confidence.astype(np.float64),
        "source_index": kept.source_index.astype(np.int64),
        "unknown_score": score,
        "is_called_unknown": decided.tau.is_unknown(score),
    }
    text = dict.fromkeys(("set", "group", "image_id", "predicted"), polars.String)
    return polars.DataFrame(columns, schema_overrides=text)


_CORNERS = (("x", 1), ("y", 1), ("x", 2), ("y", 2))


def frame_of(sets: Sequence[ScoredSet], scores: Scores) -> polars.DataFrame:
    """Give one row per image: set, group, image_id, label, predicted, unknown_score."""
    columns: dict[str, list[object] | np.ndarray] = {
        "set": [each.name for each in sets for _ in range(len(each))],
        "group": [each.group for each in sets for _ in range(len(each))],
        "image_id": [str(image) for each in sets for image in each.image_ids],
        "label": [label for each in sets for label in _labels(each)],
        "predicted": np.concatenate([each.predicted for each in sets]).astype(np.int32),
        "unknown_score": np.concatenate([scores[each.name] for each in sets]),
    }
    types = {"set": polars.Categorical, "group": polars.Categorical, "label": polars.Int32}
    return polars.DataFrame(columns, schema_overrides=types)


def _labels(each: ScoredSet) -> Sequence[int | None]:
    return [None] * len(each) if each.labels is None else each.labels.tolist()


def sets_and_scores(frame: polars.DataFrame) -> tuple[tuple[ScoredSet, ...], Scores]:
    """Read a table back into the sets and the scores it was made of."""
    sets: list[ScoredSet] = []
    scores: dict[str, np.ndarray] = {}
    for part in frame.partition_by("set", maintain_order=True):
        name = str(part["set"][0])
        labels = None if part["label"].has_nulls() else part["label"].to_numpy().astype(np.int64)
        predicted = part["predicted"].to_numpy().astype(np.int64)
        group, ids = str(part["group"][0]), tuple(part["image_id"].to_list())
        sets.append(ScoredSet(name, group, ids, predicted, labels))
        scores[name] = part["unknown_score"].to_numpy()
    return tuple(sets), scores


def common_rows(
    tables: Mapping[str, tuple[Sequence[ScoredSet], Scores]],
) -> tuple[tuple[ScoredSet, ...], dict[str, Scores]]:
    """Give the sets and the scores of every method, new and stored, on images all of them have.

    A probe may break an image that another method could use.
    """
    if not tables:
        return (), {}
    first = next(iter(tables.values()))[0]
    kept = {
        each.name: frozenset.intersection(
            *(frozenset(map(str, _named(sets, each.name).image_ids)) for sets, _ in tables.values())
        )
        for each in first
    }
    scores: dict[str, Scores] = {
        title: {s.name: mine[s.name][_is_kept(s, kept)] for s in sets}
        for title, (sets, mine) in tables.items()
    }
    return tuple(_only(each, _is_kept(each, kept)) for each in first), scores


def _named(sets: Sequence[ScoredSet], name: str) -> ScoredSet:
    return next(each for each in sets if each.name == name)


def _is_kept(each: ScoredSet, kept: Mapping[str, frozenset[str]]) -> np.ndarray:
    mine = kept[each.name]
    return np.array([str(image) in mine for image in each.image_ids], dtype=bool)


def _only(each: ScoredSet, keep: np.ndarray) -> ScoredSet:
    ids = tuple(i for i, is_kept in zip(each.image_ids, keep.tolist(), strict=True) if is_kept)
    labels = None if each.labels is None else each.labels[keep]
    return ScoredSet(each.name, each.group, ids, each.predicted[keep], labels)
