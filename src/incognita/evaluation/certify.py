"""From detections and truth to a certificate: every metric, convention and split."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Role
from incognita.errors import InvalidDataError, UnknownNameError, unknown_name
from incognita.files import replacing
from incognita.metrics import calibration, conventions
from incognita.metrics.intervals import bootstrap_weights
from incognita.metrics.lrp import optimal_lrp
from incognita.metrics.matching import MatchTable
from incognita.metrics.measure import MetricValue, every_image_once, undefined
from incognita.metrics.open_set import images_with_roles
from incognita.metrics.suite import (
    MatchTables,
    Named,
    Weights,
    calibrated,
    closed_set,
    localization_recall_precision,
    open_set_codes,
    open_set_papers,
)
from incognita.results.result import ClassThreshold, ConfidenceBin, Result
from incognita.shapes import Bool

if TYPE_CHECKING:
    from rich.console import RenderableType

SPLITS = ("all", "known-only", "unknown-only")
N_STEPS = len(SPLITS) * 5


@dataclass(frozen=True)
class Certificate:
    """What is known about a detector: results, thresholds, and what a reader must be told.

    Args:
        results: One record per metric, convention and split.
        thresholds: The LRP-optimal confidence of each known class, on all images.
        reliability: What detections of each confidence are worth, on all images; empty where
            confidences are no probabilities.
        notes: What was left out or looks wrong, in sentences.
        inputs: What it was computed from: files, hashes, options.
    """

    results: tuple[Result, ...]
    thresholds: tuple[ClassThreshold, ...]
    reliability: tuple[ConfidenceBin, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def get(self, metric: str, convention: str = "paper", *, split: str = "all") -> Result:
        """Give one result."""
        for result in self.results:
            if (result.metric, result.convention, result.split) == (metric, convention, split):
                return result
        offered = {r.convention: r.split for r in self.results if r.metric == metric}
        if not offered:
            raise unknown_name("metric", metric, {r.metric for r in self.results})
        wanted = f"{metric} in the convention {convention!r} on the split {split!r}"
        where = ", ".join(sorted(offered))
        raise UnknownNameError(
            f"There is no {wanted}. It is given in: {where}; on: "
            f"{', '.join(dict.fromkeys(r.split for r in self.results if r.metric == metric))}."
        )

    def as_json(self) -> dict[str, Any]:
        """Give everything for a JSON file."""
        return {
            "results": [result.as_json() for result in self.results],
            "thresholds": [each.as_json() for each in self.thresholds],
            "reliability": [each.as_json() for each in self.reliability],
            "notes": list(self.notes),
            "inputs": dict(self.inputs),
        }

    def save(self, path: str | Path) -> None:
        """Write everything as JSON; a file that is there is replaced as a whole or not at all."""
        path = Path(path)
        text = json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as unfinished:
                unfinished.write_text(text)
        except OSError as error:
            shown = str(path) if len(str(path)) < 120 else f"{str(path)[:120]}…"
            raise InvalidDataError(
                f"{shown} cannot be written: {error.strerror}; name another file."
            ) from error

    def table(self) -> "RenderableType":
        """Give the table that `rich` prints."""
        from incognita.results.tables.certificate import certificate_table

        return certificate_table(self.results)


def certify(
    detections: Detections,
    truth: BoxTruth,
    *,
    tau: float | None = None,
    score_threshold: float | None = None,
    n_resamples: int = 200,
    seed: int = 0,
    inputs: Mapping[str, Any] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Certificate:
    """Measure a detector in every convention that is published, on every split of the images.

    Args:
        detections: What the detector found; it may cover fewer images than the truth.
        truth: What is there, with known and unknown classes.
        tau: IoU from which LRP and calibration call a detection true; by default each convention's
            own (0.1 in the paper and SAOD, 0 in detection-calibration).
        score_threshold: Detections below this confidence are left out first.
        n_resamples: Bootstrap replicates behind each interval; zero for none.
        seed: Of the bootstrap.
        inputs: Facts about the files, kept in the certificate.
        on_step: Called with a word before each of the `N_STEPS` steps, for a progress bar.

    >>> from incognita.containers.classes import Classes
    >>> classes = Classes(("car", "unknown"))
    >>> truth = BoxTruth([1], [0, 2], [[0, 0, 9, 9], [20, 0, 29, 9]], [0, 1], classes)
    >>> found = Detections([1], [0, 1], [[20, 0, 29, 9]], [0.8], [0], classes)
    >>> certify(found, truth, n_resamples=0).get("open_set_error").value
    1.0
    """
    _check_kinds(detections, truth)
    _check(tau, score_threshold, truth)
    detections = detections.for_images(truth.image_ids)
    if score_threshold is not None:
        detections = detections[detections.confidence >= score_threshold]
    evidence = MatchTables(detections, truth)
    results: list[Result] = []
    for split, keep in split_images(truth).items():
        weights = bootstrap_weights(truth.n_images, n_resamples=n_resamples, seed=seed, keep=keep)
        n_images = int(keep.sum())
        for step in _steps(evidence, weights, split, tau, on_step):
            results += [_record(m, c, split, measure, n_images) for m, c, measure in step]
    return Certificate(
        tuple(results),
        tuple(class_thresholds(evidence, tau)),
        tuple(confidence_bins(evidence, tau)),
        tuple(_notes(detections, truth)),
        {"tau": tau, "score_threshold": score_threshold, "resamples": n_resamples, "seed": seed}
        | dict(inputs or {}),
    )


def _record(
    metric: str, convention: str, split: str, measure: MetricValue, n_images: int
) -> Result:
    """Make a result; nothing is claimed of no image, and no certainty of a single one."""
    if n_images == 0:
        measure = undefined("no image is in this split", measure.support)
    elif n_images == 1:
        measure = replace(measure, values=measure.values[:1])
    return Result.from_measure(metric, convention, split=split, measure=measure)


def split_images(truth: BoxTruth) -> dict[str, Bool[np.ndarray, "images"]]:
    """All images, those with known objects only, and those with unknown objects only.

    Ammar et al., 2024, section 3.1. An image without any object is in neither of the pure splits.
    """
    has_known, has_unknown = images_with_roles(truth)
    everything = np.ones(truth.n_images, np.bool_)
    return dict(
        zip(SPLITS, (everything, has_known & ~has_unknown, has_unknown & ~has_known), strict=True)
    )


def _steps(
    evidence: MatchTables,
    weights: Weights,
    split: str,
    tau: float | None,
    on_step: Callable[[str], None] | None,
) -> Iterator[Named]:
    is_unknown_only = split == "unknown-only"
    steps: dict[str, Callable[[], Named]] = {
        "closed set": lambda: closed_set(evidence, weights),
        "open set": lambda: open_set_papers(evidence, weights, unknown_only=is_unknown_only),
        "open set, public codes": lambda: open_set_codes(evidence, weights),
        "LRP": lambda: localization_recall_precision(evidence, weights, tau=tau),
        "calibration": lambda: calibrated(evidence, weights, tau=tau),
    }
    for name, step in steps.items():
        if on_step is not None:
            on_step(f"{split}: {name}")
        yield step()


def _paper_table(evidence: MatchTables, tau: float | None) -> MatchTable:
    return evidence.table(
        conventions.PAPER, conventions.PAPER_CALIBRATION.tau if tau is None else tau
    )


def class_thresholds(evidence: MatchTables, tau: float | None) -> Iterator[ClassThreshold]:
    """The LRP-optimal threshold of each known class, as the paper defines LRP."""
    table = _paper_table(evidence, tau)
    best = optimal_lrp(table, evidence.n_known)
    n_truth = table.n_truth(every_image_once(table.n_images))[: evidence.n_known, 0]
    names = evidence.truth.classes.known_names
    for name, lrp, at, n in zip(names, best.per_class, best.thresholds, n_truth, strict=True):
        yield ClassThreshold(name, float(at), float(lrp), int(n), float(table.thresholds[0]))


def confidence_bins(evidence: MatchTables, tau: float | None) -> Iterator[ConfidenceBin]:
    """The reliability diagram of all known-class detections, in ten bins."""
    table = _paper_table(evidence, tau)
    diagram = calibration.reliability_of(table, evidence.n_known)
    if diagram is None:
        return
    for low, high, confidence, quality, n in zip(*diagram, strict=True):
        yield ConfidenceBin(float(low), float(high), float(confidence), float(quality), int(n))


def _check_kinds(detections: object, truth: object) -> None:
    if not isinstance(detections, Detections) or not isinstance(truth, BoxTruth):
        raise InvalidDataError(
            f"certify takes Detections and then a BoxTruth, but {type(detections).__name__} and "
            f"{type(truth).__name__} came; `load_truth(...).truth` is a BoxTruth."
        )


def _check(tau: float | None, score_threshold: float | None, truth: BoxTruth) -> None:
    if tau is not None and not 0 <= tau < 1:
        raise InvalidDataError(f"tau must be at least 0 and below 1, but it is {tau}.")
    if score_threshold is not None and math.isnan(score_threshold):
        raise InvalidDataError("score_threshold must be a number, but it is NaN.")
    if score_threshold is not None and math.isinf(score_threshold):
        raise InvalidDataError(f"score_threshold must be finite, but it is {score_threshold}.")
    if not truth.n_images:
        raise InvalidDataError("The truth lists no image; there is nothing to certify.")
    if not truth.classes.n_known:
        raise InvalidDataError("No class is known; name at least one known class.")


def _notes(detections: Detections, truth: BoxTruth) -> Iterator[str]:
    """What a reader of the numbers must be told."""
    roles = {role: detections.classes.has_role(role)[detections.class_ids] for role in Role}
    if not len(detections):
        yield "There is no detection at all; every recall is 0 and every precision undefined."
    elif not roles[Role.UNKNOWN].any() and truth.is_unknown.any():
        yield (
            "No detection carries the label unknown: P_U is undefined and R_U is 0. If the "
            "detector has such a label, name it in the class map."
        )
    if not truth.is_unknown.any():
        yield "No object is unknown: open-set metrics say nothing about this detector."
    n_silent = int((np.diff(detections.offsets) == 0).sum())
    if len(detections) and 2 * n_silent > truth.n_images:
        yield f"{n_silent} of {truth.n_images} images have no detection; were all looked at?"
    if len(detections) and not 0 <= detections.confidence.min() <= detections.confidence.max() <= 1:
        yield "Confidences leave 0 to 1: calibration is undefined where such detections count."
    if (n := int(roles[Role.IGNORED].sum())) > 0:
        yield f"{n} detections of ignored classes were set aside."
    no_truth = set(truth.classes.known_names) - {
        truth.classes.names[k] for k in np.unique(truth.class_ids)
    }
    if no_truth:
        shown = ", ".join(sorted(no_truth)[:5]) + (", …" if len(no_truth) > 5 else "")
        yield f"Known classes without any object: {shown} ({len(no_truth)} in all)."
