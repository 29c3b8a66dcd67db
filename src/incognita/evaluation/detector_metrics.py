"""Measures of a detector: the two families of metrics on every set.

AUROC and FPR take every scored box on known images as known and every one on unknown images as
unknown; they see neither the objects nor what was not detected. The open-set metrics compare boxes,
some of them called unknown, with real objects. Both are resampled over images, with the same draw
for all methods.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from zlib import crc32

import numpy as np

from incognita.benchmarks.benchmark import KNOWN, MIXED, SHIFTED
from incognita.benchmarks.corruptions.datasets import draw_images
from incognita.containers import BoxTruth, Detections, Role
from incognita.decisions.thresholds import ConfidenceThreshold, UnknownThreshold
from incognita.errors import InvalidDataError
from incognita.metrics import conventions
from incognita.metrics.matching import match
from incognita.metrics.measure import (
    MetricValue,
    mean_of_values,
    undefined,
)
from incognita.metrics.open_set import split_images
from incognita.metrics.ranking import RANKING_METRICS, ranking_replicates
from incognita.metrics.suite import (
    PUBLIC_CODES,
    MatchTables,
    closed_set,
    core_open_set,
    open_set_codes,
    open_set_of_code,
    open_set_papers,
)
from incognita.results.result import ALL_BOXES, Split
from incognita.results.score_tables import DetectedSet
from incognita.shapes import Bool, Float, Float64, Int


def align_classes(truth: BoxTruth, detections: Detections) -> Detections:
    """Return the detections with the class list of the truth, whose first classes are known."""
    known = detections.classes.names
    if truth.classes.names[: len(known)] != known or truth.classes.n_known != len(known):
        raise InvalidDataError(
            f"Expected the known classes of the truth, {list(truth.classes.known_names)}, got "
            f"{list(known)} of the detector. Give both the same classes in the same order."
        )
    if not truth.classes.has_role(Role.UNKNOWN).any():
        raise InvalidDataError(
            "The truth has no unknown class, so no box could be called unknown. Add one to its "
            "classes, even without objects."
        )
    return replace(detections, classes=truth.classes)


def relabel_unknown(detections: Detections, is_unknown: Bool[np.ndarray, "boxes"]) -> Detections:
    """Relabel boxes as unknown, with the first class of that role."""
    unknown = int(np.flatnonzero(detections.classes.has_role(Role.UNKNOWN))[0])
    return replace(detections, class_ids=np.where(is_unknown, unknown, detections.class_ids))


def labelled_by_logits(detections: Detections) -> tuple[Detections, Bool[np.ndarray, "boxes"]]:
    """Label boxes as FMIYC's code does: by the largest logit, with its softmax as confidence.

    The background logit takes part, if there is one; the second value marks the boxes for which it
    is the largest: that code labels them unknown, whatever tau.
    """
    logits: Float[np.ndarray, "boxes columns"] = detections.logits.astype(np.float64)
    n_known = logits.shape[1]
    if detections.background is not None:
        logits = np.concatenate([logits, detections.background[:, None]], axis=1)
    if not len(logits):
        return detections, np.zeros(0, np.bool_)
    labels = logits.argmax(axis=1)
    largest = logits.max(axis=1)
    confidence = 1 / np.exp(logits - largest[:, None]).sum(axis=1)
    is_background = labels == n_known
    labels = np.where(is_background, detections.class_ids, labels)
    return replace(detections, class_ids=labels, confidence=confidence), is_background


def true_labels(
    found: Detections, truth: BoxTruth
) -> tuple[Int[np.ndarray, "boxes"], Bool[np.ndarray, "boxes"]]:
    """Return the class of the known object each box matches, and which boxes match one."""
    table = match(found, truth, convention=conventions.COCO, class_wise=False)
    is_hit = table.is_true_positive()
    labels = found.class_ids.copy()
    labels[is_hit] = truth.class_ids[table.truth_index[is_hit]]
    return labels, is_hit & (labels < truth.classes.n_known)


Key = tuple[str, str, Split]  # metric, convention, split
Measures = dict[Key, MetricValue]
PAPER, FMIYC = "paper", "fmiyc"
_SHARED_SUPPORT = ("known boxes", "known images")
_FMIYC_CODE = next(code for code in PUBLIC_CODES if code.name == FMIYC)
NO_BOX = "no box reaches the confidence threshold"
NamedValue = tuple[str, str, MetricValue]  # metric, convention, value
UNKNOWN_ONLY = "unknown-only"
_NOT_UNKNOWN = (KNOWN, SHIFTED, MIXED)


class ThresholdedScores(NamedTuple):
    """The scores of one method on every set, and the two thresholds applied to them.

    `tau` is the chosen threshold; `gaussian` that of FMIYC's code, for the numbers under its name.
    `of_all` are the scores of all boxes of mixed sets, also those below t*.
    """

    scores: Mapping[str, Float64[np.ndarray, "boxes"]]
    tau: UnknownThreshold
    gaussian: UnknownThreshold
    of_all: Mapping[str, Float64[np.ndarray, "boxes"]]


def draw_sets(sets: Sequence[DetectedSet], *, n_resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Draw the images of every set once; the seed of a set depends on its name alone."""
    return {
        seen.name: draw_images(
            seen.truth.image_ids.tolist(),
            n_resamples=n_resamples,
            seed=seed + crc32(seen.name.encode()),
        )
        for seen in sets
    }


def measure_detector(sets: Sequence[DetectedSet], weights: Mapping[str, np.ndarray]) -> Measures:
    """Measure what no method changes: average precision of the known classes on known images."""
    (test,) = [seen for seen in sets if seen.group == KNOWN]
    tables = MatchTables(test.found, test.truth)
    return {
        (metric, convention, Split(KNOWN)): value
        for metric, convention, value in closed_set(tables, weights[test.name])
    }


def measure_method(
    sets: Sequence[DetectedSet], thresholded: ThresholdedScores, weights: Mapping[str, np.ndarray]
) -> Measures:
    """Measure one method on every set, and the mean of each group of sets."""
    measures: Measures = {}
    (test,) = [seen for seen in sets if seen.group == KNOWN]
    unknown = [seen for seen in sets if seen.group not in _NOT_UNKNOWN]
    for seen in unknown:
        for metric, value in _ranked(test, seen, thresholded, weights):
            measures[metric, PAPER, _split_of(seen)] = value
    for seen in (part for part in sets if part.group != MIXED):
        measures |= _open_set(seen, thresholded, _split_of(seen), weights[seen.name])
    for seen in (part for part in sets if part.group == MIXED):
        measures |= _mixed(seen, thresholded, weights[seen.name])
    for group in dict.fromkeys(seen.group for seen in unknown):
        measures |= _group_means(measures, group)
    return measures


def _split_of(seen: DetectedSet) -> Split:
    return Split(KNOWN) if seen.group == KNOWN else Split(seen.group, seen.name)


def _ranked(
    test: DetectedSet,
    unknown: DetectedSet,
    thresholded: ThresholdedScores,
    weights: Mapping[str, np.ndarray],
) -> Iterator[tuple[str, MetricValue]]:
    pair = (test, unknown)
    support = {
        "known boxes": len(test.kept),
        "unknown boxes": len(unknown.kept),
        "known images": test.n_images,
        "unknown images": unknown.n_images,
    }
    if not len(test.kept) or not len(unknown.kept):
        where = "known" if not len(test.kept) else "unknown"
        for metric in RANKING_METRICS:
            yield metric, undefined(f"{NO_BOX} on the {where} images", support)
        return
    scores = np.concatenate([thresholded.scores[seen.name] for seen in pair])
    is_unknown = np.repeat([False, True], [len(seen.kept) for seen in pair])
    counts = np.concatenate([weights[seen.name][seen.kept.image_index] for seen in pair])
    ranked = ranking_replicates(scores, is_unknown, counts)
    units = min(int((np.diff(seen.kept.offsets) > 0).sum()) for seen in pair)
    for metric in RANKING_METRICS:
        yield metric, MetricValue(getattr(ranked, metric), support, units=units)


def _open_set(
    seen: DetectedSet, thresholded: ThresholdedScores, split: Split, weights: np.ndarray
) -> Measures:
    """Measure the open-set metrics of the paper, and those of FMIYC's own code."""
    paper, code = _match_tables(seen, thresholded)
    values = [*core_open_set(paper, weights), *open_set_of_code(_FMIYC_CODE, code, weights)]
    return {(metric, convention, split): value for metric, convention, value in values}


def _match_tables(
    seen: DetectedSet, thresholded: ThresholdedScores
) -> tuple[MatchTables, MatchTables]:
    """Match the boxes as thresholded by tau, and as FMIYC's code labels and thresholds them."""
    score = thresholded.scores[seen.name]
    ours = relabel_unknown(seen.kept, thresholded.tau.is_unknown(score))
    theirs = _as_fmiyc(seen.kept, thresholded.gaussian, score)
    return MatchTables(ours, seen.truth), MatchTables(theirs, seen.truth)


def _as_fmiyc(kept: Detections, tau: UnknownThreshold, score: np.ndarray) -> Detections:
    labelled, is_background = labelled_by_logits(kept)
    return relabel_unknown(labelled, tau.is_unknown(score) | is_background)


def _mixed(seen: DetectedSet, thresholded: ThresholdedScores, weights: np.ndarray) -> Measures:
    """Measure open-set metrics on all images, on known-only and on unknown-only images.

    Of the boxes above t*, as FindMeIfYouCan does, and as its code labels them; and of all boxes,
    as papers on open-set detectors do.
    """
    paper, code = _match_tables(seen, thresholded)  # once: a split is a choice of image weights
    is_unknown = thresholded.tau.is_unknown(thresholded.of_all[seen.name])
    everything = MatchTables(relabel_unknown(seen.found, is_unknown), seen.truth)
    measures = _of_splits(
        seen,
        weights,
        lambda only, split: [
            *open_set_papers(paper, only, unknown_only=split == UNKNOWN_ONLY),
            *open_set_of_code(_FMIYC_CODE, code, only),
        ],
    )
    return measures | _of_splits(seen, weights, _open_set_of(everything), setting=ALL_BOXES)


def measure_own_labels(
    sets: Sequence[DetectedSet], threshold: ConfidenceThreshold, weights: Mapping[str, np.ndarray]
) -> Measures:
    """Measure the boxes that an open-set detector calls unknown itself, on every set.

    There is no score, and so no AUROC. Of the boxes above t*, and of all boxes in every convention,
    as `certify` on its detections.
    """
    measures: Measures = {}
    for seen in sets:
        assert seen.labelled is not None
        kept = MatchTables(seen.labelled[_is_above(seen.labelled, threshold)], seen.truth)
        everything = MatchTables(seen.labelled, seen.truth)
        only = weights[seen.name]
        if seen.group == MIXED:
            measures |= _of_splits(seen, only, _open_set_of(kept))
            measures |= _of_splits(seen, only, _open_set_of(everything), setting=ALL_BOXES)
            continue
        split = _split_of(seen)
        uncut = Split(split.group, split.set, ALL_BOXES)
        measures |= {(m, c, split): value for m, c, value in core_open_set(kept, only)}
        named = [*core_open_set(everything, only), *open_set_codes(everything, only)]
        measures |= {(m, c, uncut): value for m, c, value in named}
    for group in dict.fromkeys(seen.group for seen in sets if seen.group not in _NOT_UNKNOWN):
        measures |= _group_means(measures, group)
    return measures


def labelled_set(seen: DetectedSet, threshold: ConfidenceThreshold) -> DetectedSet:
    """Return a set with the boxes that an open-set detector calls unknown itself among the kept."""
    assert seen.labelled is not None
    is_kept = _is_above(seen.labelled, threshold)
    return DetectedSet(seen.name, seen.group, seen.labelled, seen.truth, is_kept)


def called_unknown(detections: Detections) -> Bool[np.ndarray, "boxes"]:
    """Return which detections carry the label unknown."""
    return np.asarray(detections.classes.has_role(Role.UNKNOWN)[detections.class_ids])


def _is_above(labelled: Detections, threshold: ConfidenceThreshold) -> Bool[np.ndarray, "boxes"]:
    """Return which boxes reach t*; those called unknown reach the smallest of the known classes."""
    is_known = labelled.class_ids < labelled.classes.n_known
    reached = np.zeros(len(labelled), np.bool_)
    reached[is_known] = threshold.keep(labelled[is_known])
    finite = threshold.per_class[np.isfinite(threshold.per_class)]
    smallest = (
        finite.min(initial=np.inf) if threshold.other_classes is None else threshold.other_classes
    )
    return np.asarray(np.where(is_known, reached, labelled.confidence >= smallest))


def _open_set_of(tables: MatchTables) -> "Callable[[np.ndarray, str], Iterable[NamedValue]]":
    """Return a function that measures all open-set metrics for weights of images and a split."""
    return lambda only, split: [
        *open_set_papers(tables, only, unknown_only=split == UNKNOWN_ONLY),
        *open_set_codes(tables, only),
    ]


def _of_splits(
    seen: DetectedSet,
    weights: np.ndarray,
    measure: "Callable[[np.ndarray, str], Iterable[NamedValue]]",
    *,
    setting: str | None = None,
) -> Measures:
    """Measure a mixed set on all images, on known-only and on unknown-only images."""
    measures: Measures = {}
    for name, keep in split_images(seen.truth).items():
        only = np.where(keep[:, None], weights, 0).astype(np.float32)
        for metric, convention, value in measure(only, name):
            if not keep.any():
                value = undefined("no image is in this split", {"images": 0})
            measures[metric, convention, Split(seen.name, name, setting)] = value
    return measures


def _group_means(measures: Measures, group: str) -> Measures:
    """Average each metric over the sets of a group, with equal weights."""
    parts: dict[tuple[str, str, str | None], list[MetricValue]] = {}
    for (metric, convention, split), value in measures.items():
        if split.group == group and split.set is not None:
            parts.setdefault((metric, convention, split.setting), []).append(value)
    return {(m, c, Split(group, setting=s)): _mean(v) for (m, c, s), v in parts.items()}


def _mean(parts: Sequence[MetricValue]) -> MetricValue:
    support = {"sets": len(parts)}
    for name in dict.fromkeys(name for part in parts for name in part.support):
        counts = [part.support.get(name, 0) for part in parts]
        # every set is compared with the same known images, which count once
        support[name] = counts[0] if name in _SHARED_SUPPORT else sum(counts)
    missing = [part.reason for part in parts if part.reason is not None]
    if missing:
        return undefined(missing[0], support)
    counted = [part.units for part in parts if part.units is not None]
    values = mean_of_values([part.values for part in parts])
    return MetricValue(values, support, units=min(counted, default=None))
