"""From boxes, decisions and truth to numbers: the two families of metrics on every set.

AUROC and FPR treat every kept box on known images as known and every one on unknown images as
unknown; they see neither the objects nor what was never found. The open-set metrics compare boxes,
some of them called unknown, with real objects. Both are resampled over images, with the same draw
for all methods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple
from zlib import crc32

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Role
from incognita.decisions.thresholds import UnknownThreshold
from incognita.errors import InvalidDataError
from incognita.evaluation.certify import split_images
from incognita.evaluation.classifier_metrics import RANKED
from incognita.metrics import conventions
from incognita.metrics.intervals import bootstrap_weights
from incognita.metrics.matching import match
from incognita.metrics.measure import MetricValue, undefined
from incognita.metrics.ranking import ranking_replicates
from incognita.metrics.suite import (
    PUBLIC_CODES,
    MatchTables,
    closed_set,
    core_open_set,
    open_set_of_code,
    open_set_papers,
)
from incognita.results.scored_sets import KNOWN, MIXED, SHIFTED
from incognita.shapes import Bool, Float, Float64, Int


@dataclass(frozen=True, eq=False)
class DetectedSet:
    """One data set as a detector saw it.

    Args:
        name: Its name in the benchmark.
        group: `known`, the group of unknown sets it belongs to, or `mixed`.
        found: Every box the rules kept, in the classes of the truth.
        truth: What is in the images that could be read.
        is_kept: Which boxes reach the confidence threshold t*: only these are scored.
    """

    name: str
    group: str
    found: Detections
    truth: BoxTruth
    is_kept: Bool[np.ndarray, "boxes"]

    @cached_property
    def kept(self) -> Detections:
        """The boxes that methods score."""
        return self.found[self.is_kept]

    @property
    def n_images(self) -> int:
        """How many images could be read."""
        return self.truth.n_images


def align_classes(truth: BoxTruth, detections: Detections) -> Detections:
    """Give detections in the class list of the truth, which begins with the known classes."""
    known = detections.classes.names
    if truth.classes.names[: len(known)] != known or truth.classes.n_known != len(known):
        raise InvalidDataError(
            f"The truth knows the classes {list(truth.classes.known_names)}, but the detector "
            f"{list(known)}; give both the same known classes in the same order."
        )
    if not truth.classes.has_role(Role.UNKNOWN).any():
        raise InvalidDataError(
            "The truth has no unknown class, so that no box could be called unknown; add one to "
            "its classes, if need be without objects."
        )
    return replace(detections, classes=truth.classes)


def relabel_unknown(detections: Detections, is_unknown: Bool[np.ndarray, "boxes"]) -> Detections:
    """Give some boxes the label unknown: any class with that role stands for all of them."""
    unknown = int(np.flatnonzero(detections.classes.has_role(Role.UNKNOWN))[0])
    return replace(detections, class_ids=np.where(is_unknown, unknown, detections.class_ids))


def labelled_by_logits(detections: Detections) -> tuple[Detections, Bool[np.ndarray, "boxes"]]:
    """Label boxes as FMIYC's code does: by the largest logit, with its softmax as confidence.

    The logit of background takes part, where there is one; the second value says for which boxes
    it is the largest: that code gives them the index of the unknown class, whatever tau.
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
    """Give each box the class of the known object it found, and say which boxes found one."""
    table = match(found, truth, convention=conventions.COCO, class_wise=False)
    is_hit = table.is_true_positive()
    labels = found.class_ids.copy()
    labels[is_hit] = truth.class_ids[table.truth_index[is_hit]]
    return labels, is_hit & (labels < truth.classes.n_known)


Key = tuple[str, str, str]  # metric, convention, split
Measures = dict[Key, MetricValue]
PAPER, FMIYC = "paper", "fmiyc"
_FMIYC_CODE = next(code for code in PUBLIC_CODES if code.name == FMIYC)
NO_BOX = "no box reaches the confidence threshold"


class ThresholdedScores(NamedTuple):
    """The scores of one method on every set, and the two thresholds they are decided by.

    `tau` is the one asked for; `gaussian` that of FMIYC's code, for the numbers under its name.
    """

    scores: Mapping[str, Float64[np.ndarray, "boxes"]]
    tau: UnknownThreshold
    gaussian: UnknownThreshold


def draw_images(
    sets: Sequence[DetectedSet], *, n_resamples: int, seed: int
) -> dict[str, np.ndarray]:
    """Draw the images of every set once; the seed of a set depends on its name alone."""
    return {
        each.name: bootstrap_weights(
            each.n_images, n_resamples=n_resamples, seed=seed + crc32(each.name.encode())
        )
        for each in sets
    }


def measure_detector(sets: Sequence[DetectedSet], weights: Mapping[str, np.ndarray]) -> Measures:
    """Measure what no method changes: average precision of the known classes on known images."""
    (test,) = [each for each in sets if each.group == KNOWN]
    evidence = MatchTables(test.found, test.truth)
    return {
        (metric, convention, KNOWN): _without_false_certainty(measure)
        for metric, convention, measure in closed_set(evidence, weights[test.name])
    }


def measure_method(
    sets: Sequence[DetectedSet], decided: ThresholdedScores, weights: Mapping[str, np.ndarray]
) -> Measures:
    """Measure one method on every set, and the mean of each group of sets."""
    measures: Measures = {}
    (test,) = [each for each in sets if each.group == KNOWN]
    unknown = [each for each in sets if each.group not in (KNOWN, SHIFTED, MIXED)]
    for each in unknown:
        for metric, measure in _ranked(test, each, decided, weights):
            measures[metric, PAPER, _split_of(each)] = measure
    for each in (one for one in sets if one.group != MIXED):
        measures |= _open_set(each, decided, _split_of(each), weights[each.name])
    for each in (one for one in sets if one.group == MIXED):
        measures |= _mixed(each, decided, weights[each.name])
    for group in dict.fromkeys(each.group for each in unknown):
        measures |= _group_means(measures, group)
    return {key: _without_false_certainty(measure) for key, measure in measures.items()}


def _split_of(each: DetectedSet) -> str:
    return KNOWN if each.group == KNOWN else f"{each.group}/{each.name}"


def _ranked(
    test: DetectedSet,
    unknown: DetectedSet,
    decided: ThresholdedScores,
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
        for metric in RANKED:
            yield metric, undefined(f"{NO_BOX} on the {where} images", support)
        return
    scores = np.concatenate([decided.scores[each.name] for each in pair])
    is_unknown = np.repeat([False, True], [len(each.kept) for each in pair])
    counts = np.concatenate([weights[e.name][e.kept.image_index] for e in pair])
    ranked = ranking_replicates(scores, is_unknown, counts)
    for metric in RANKED:
        yield metric, MetricValue(getattr(ranked, metric), support)


def _open_set(
    each: DetectedSet, decided: ThresholdedScores, split: str, weights: np.ndarray
) -> Measures:
    """Open-set metrics as the paper defines them, and as FMIYC's own code computes them."""
    paper, code = _evidence(each, decided)
    named = [*core_open_set(paper, weights), *open_set_of_code(_FMIYC_CODE, code, weights)]
    return {(metric, convention, split): measure for metric, convention, measure in named}


def _evidence(each: DetectedSet, decided: ThresholdedScores) -> tuple[MatchTables, MatchTables]:
    """Match the boxes as they are decided, and as FMIYC's code labels and decides them."""
    score = decided.scores[each.name]
    ours = relabel_unknown(each.kept, decided.tau.is_unknown(score))
    theirs = _as_fmiyc(each.kept, decided.gaussian, score)
    return MatchTables(ours, each.truth), MatchTables(theirs, each.truth)


def _as_fmiyc(kept: Detections, tau: UnknownThreshold, score: np.ndarray) -> Detections:
    labelled, is_background = labelled_by_logits(kept)
    return relabel_unknown(labelled, tau.is_unknown(score) | is_background)


def _mixed(each: DetectedSet, decided: ThresholdedScores, weights: np.ndarray) -> Measures:
    """Open-set metrics on all images, those with known and those with unknown objects only."""
    measures: Measures = {}
    paper, code = _evidence(each, decided)  # matched once: a split is a choice of image weights
    for name, keep in split_images(each.truth).items():
        only = np.where(keep[:, None], weights, 0).astype(np.float32)
        papers = open_set_papers(paper, only, unknown_only=name == "unknown-only")
        for metric, convention, measure in [*papers, *open_set_of_code(_FMIYC_CODE, code, only)]:
            if not keep.any():
                measure = undefined("no image is in this split", {"images": 0})
            measures[metric, convention, f"{each.name}/{name}"] = measure
    return measures


def _group_means(measures: Measures, group: str) -> Measures:
    """Average each metric over the sets of a group, each set counting the same."""
    parts: dict[tuple[str, str], list[MetricValue]] = {}
    for (metric, convention, split), measure in measures.items():
        if split.startswith(f"{group}/"):
            parts.setdefault((metric, convention), []).append(measure)
    return {(m, convention, group): _mean(each) for (m, convention), each in parts.items()}


def _mean(parts: Sequence[MetricValue]) -> MetricValue:
    support = {"sets": len(parts)}
    for name in dict.fromkeys(name for part in parts for name in part.support):
        counts = [part.support.get(name, 0) for part in parts]
        # every set is told from the same known images, which count once
        support[name] = counts[0] if name.startswith("known ") else sum(counts)
    missing = [part.reason for part in parts if part.reason is not None]
    if missing:
        return undefined(missing[0], support)
    return MetricValue(np.mean([part.values for part in parts], axis=0), support)


def _without_false_certainty(measure: MetricValue) -> MetricValue:
    """Leave replicates out where a single image, drawn again and again, would look certain."""
    support = measure.support
    n_images = support.get("unknown images", support.get("images", 2))
    is_single = n_images <= support.get("sets", 1) or support.get("known images", 2) < 2
    return replace(measure, values=measure.values[:1]) if is_single else measure
