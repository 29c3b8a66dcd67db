"""From truth and detections to a certificate: every metric, convention and split."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from incognita._version import __version__
from incognita.containers import BoxTruth, Detections, Role
from incognita.errors import InvalidDataError, count
from incognita.files import file_hash
from incognita.metrics import calibration, conventions
from incognita.metrics.lrp import optimal_lrp
from incognita.metrics.matching import MatchTable
from incognita.metrics.measure import bootstrap_weights, every_image_once, undefined
from incognita.metrics.open_set import SPLITS, split_images
from incognita.metrics.suite import (
    WI_RECALL,
    MatchTables,
    Named,
    Weights,
    calibrated,
    closed_set,
    localization_recall_precision,
    open_set_codes,
    open_set_papers,
)
from incognita.results.certificate import Certificate
from incognita.results.claims import Claim, as_claims, check_claims
from incognita.results.result import ClassThreshold, ConfidenceBin, Result, interval_notes
from incognita.shapes import Int

N_STEPS = len(SPLITS) * 5


def certify(
    truth: BoxTruth | str | PathLike[str],
    detections: Detections | str | PathLike[str],
    *,
    known: Sequence[str] | None = None,
    classes: str | PathLike[str] | None = None,
    tau: float | None = None,
    score_threshold: float | None = None,
    wi_recall: float = WI_RECALL,
    n_resamples: int = 200,
    seed: int = 0,
    criteria: str | PathLike[str] | Sequence[Claim] | None = None,
    inputs: Mapping[str, Any] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Certificate:
    """Measure a detector in every published convention, on every split of the images.

    Args:
        truth: The annotated objects, with known and unknown classes, or a COCO annotation file.
        detections: The detections, possibly of fewer images, or a COCO results file.
        known: For files: the known classes; every other category is unknown.
        classes: For files: a class map (TOML) instead of `known`.
        tau: IoU from which LRP and calibration count a detection as true; by default each
            convention's own (0.1 in the paper and SAOD, 0 in detection-calibration).
        score_threshold: Detections below this confidence are dropped first.
        wi_recall: The recall at which the public codes read wilderness impact.
        n_resamples: Bootstrap replicates behind each interval; zero for none.
        seed: Random seed of the bootstrap.
        criteria: Claims, or a TOML file of them, to check.
        inputs: Further entries of `Certificate.inputs`.
        on_step: Called with a description before each of the `N_STEPS` steps.

    >>> from incognita.containers.classes import Classes
    >>> classes = Classes(("car", "unknown"))
    >>> truth = BoxTruth([1], [0, 2], [[0, 0, 9, 9], [20, 0, 29, 9]], [0, 1], classes)
    >>> found = Detections([1], [0, 1], [[20, 0, 29, 9]], [0.8], [0], classes)
    >>> certify(truth, found, n_resamples=0).get("open_set_error").value
    1.0
    """
    _check_order(truth, detections)
    claims = as_claims(criteria)  # a mistake in the file is reported before any work
    if isinstance(truth, str | PathLike) or isinstance(detections, str | PathLike):
        files = file_hashes(truth=truth, detections=detections, classes=classes, criteria=criteria)
        given = None if known is None else list(known)
        inputs = {"incognita": __version__, "known": given} | files | dict(inputs or {})
        truth, detections = _load(truth, detections, known, classes)
    elif known is not None or classes is not None:
        raise InvalidDataError(
            "`known` and `classes` need files, got containers. Their classes have roles already."
        )
    check_numbers(
        tau=tau, score_threshold=score_threshold, wi_recall=wi_recall, n_resamples=n_resamples,
        seed=seed,
    )  # fmt: skip
    _check(tau, score_threshold, wi_recall, truth)
    detections = detections.for_images(truth.image_ids)
    if score_threshold is not None:
        detections = detections[detections.confidence >= score_threshold]
    tables, rows = _merge_empty_images(detections, truth)
    results: list[Result] = []
    for split, keep in split_images(truth).items():
        weights = bootstrap_weights(
            truth.n_images, n_resamples=n_resamples, seed=seed, keep=keep, row_of_image=rows
        )
        steps = _steps(tables, weights, split, tau, wi_recall, on_step)
        results += _records(steps, split, n_images=int(keep.sum()))
    options = {
        "tau": tau, "score_threshold": score_threshold, "wi_recall": wi_recall,
        "resamples": n_resamples, "seed": seed,
    }  # fmt: skip
    return Certificate(
        tuple(results),
        tuple(class_thresholds(tables, tau)),
        tuple(confidence_bins(tables, tau)),
        (*_notes(detections, truth), *interval_notes(results, n_resamples)),
        options | dict(inputs or {}),
        check_claims(claims, results, options),
    )


def _check_order(truth: object, detections: object) -> None:
    if isinstance(truth, Detections) or isinstance(detections, BoxTruth):
        raise InvalidDataError(
            "Expected the truth first and then the detections, got the reverse. Write "
            "certify(truth, detections)."
        )
    for given, kind in ((truth, BoxTruth), (detections, Detections)):
        if not isinstance(given, kind | str | PathLike):
            raise InvalidDataError(
                f"Expected {kind.__name__} or the path of a COCO file, got "
                f"{type(given).__name__}. Load files with incognita.load_coco."
            )


def _load(
    truth: BoxTruth | str | PathLike[str],
    detections: Detections | str | PathLike[str],
    known: Sequence[str] | None,
    classes: str | PathLike[str] | None,
) -> tuple[BoxTruth, Detections]:
    from incognita.formats import load_coco

    if not isinstance(truth, str | PathLike) or not isinstance(detections, str | PathLike):
        raise InvalidDataError(
            f"Expected two files or two containers, got {type(truth).__name__} and "
            f"{type(detections).__name__}. Load both with incognita.load_coco."
        )
    return load_coco(truth, detections, known=known, classes=classes)


def _merge_empty_images(
    detections: Detections, truth: BoxTruth
) -> tuple[MatchTables, Int[np.ndarray, "images"]]:
    """Match with one image in place of all those without any box; also the row of each image.

    They differ in nothing that a metric sees but their number, which the weights hold.
    """
    is_empty = (np.diff(detections.offsets) == 0) & (np.diff(truth.offsets) == 0)
    is_kept = ~is_empty
    is_kept[is_empty.argmax()] = True  # the first of them
    rows = np.cumsum(is_kept) - 1
    rows[is_empty] = rows[is_empty.argmax()]
    ids = truth.image_ids[is_kept]
    return MatchTables(detections.for_images(ids), truth.for_images(ids)), rows


def _records(steps: Iterable[Named], split: str, *, n_images: int) -> Iterator[Result]:
    """Yield the results of a split: undefined without images."""
    for metric, convention, value in chain.from_iterable(steps):
        if n_images == 0:
            value = undefined("no image is in this split", value.support)
        yield Result.from_value(metric, convention, split=split, value=value)


def _steps(
    tables: MatchTables,
    weights: Weights,
    split: str,
    tau: float | None,
    wi_recall: float,
    on_step: Callable[[str], None] | None,
) -> Iterator[Named]:
    is_unknown_only = split == "unknown-only"
    steps: dict[str, Callable[[], Named]] = {
        "closed set": lambda: closed_set(tables, weights),
        "open set": lambda: open_set_papers(tables, weights, unknown_only=is_unknown_only),
        "open set, public codes": lambda: open_set_codes(tables, weights, wi_recall=wi_recall),
        "LRP": lambda: localization_recall_precision(tables, weights, tau=tau),
        "calibration": lambda: calibrated(tables, weights, tau=tau),
    }
    for name, step in steps.items():
        if on_step is not None:
            on_step(f"{split}: {name}")
        yield step()


def _paper_table(tables: MatchTables, tau: float | None) -> MatchTable:
    return tables.table(
        conventions.PAPER, conventions.PAPER_CALIBRATION.tau if tau is None else tau
    )


def class_thresholds(tables: MatchTables, tau: float | None) -> Iterator[ClassThreshold]:
    """Yield the LRP-optimal threshold of each known class, as the paper defines LRP."""
    table = _paper_table(tables, tau)
    best = optimal_lrp(table, tables.n_known)
    n_truth = table.n_truth(every_image_once(table.n_images))[: tables.n_known, 0]
    names = tables.truth.classes.known_names
    for name, lrp, at, n in zip(names, best.per_class, best.thresholds, n_truth, strict=True):
        yield ClassThreshold(name, float(at), float(lrp), int(n), float(table.thresholds[0]))


def confidence_bins(tables: MatchTables, tau: float | None) -> Iterator[ConfidenceBin]:
    """Yield the reliability diagram of all known-class detections, in ten bins."""
    table = _paper_table(tables, tau)
    diagram = calibration.reliability_of(table, tables.n_known)
    if diagram is None:
        return
    for low, high, confidence, quality, n in zip(*diagram, strict=True):
        yield ConfidenceBin(float(low), float(high), float(confidence), float(quality), int(n))


def file_hashes(**paths: object) -> dict[str, Any]:
    """Return the path and hash of each file, so that a number can be traced to its input."""
    found: dict[str, Any] = {}
    for name, path in paths.items():
        if isinstance(path, str | PathLike) and Path(path).is_file():
            found[name] = {"path": str(path), "sha256": file_hash(Path(path))}
    return found


def check_numbers(**values: object) -> None:
    """Raise if an option is not a number, or not a whole one where it counts something."""
    for name, value in values.items():
        kind = int if name in ("n_resamples", "seed") else int | float
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            what = "a whole number" if kind is int else "a number"
            raise InvalidDataError(f"Expected {name} to be {what}, got {value!r:.80}.")
        if isinstance(value, int) and name in ("n_resamples", "seed") and value < 0:
            raise InvalidDataError(f"Expected {name} to be at least 0, got {value}.")


def _check(
    tau: float | None, score_threshold: float | None, wi_recall: float, truth: BoxTruth
) -> None:
    if tau is not None and not 0 <= tau < 1:
        raise InvalidDataError(f"Expected tau from 0 to below 1, got {tau}.")
    if not 0 < wi_recall <= 1:
        raise InvalidDataError(f"Expected wi_recall above 0 and at most 1, got {wi_recall}.")
    if score_threshold is not None and not math.isfinite(score_threshold):
        raise InvalidDataError(f"Expected a finite score_threshold, got {score_threshold}.")
    if not truth.n_images:
        raise InvalidDataError(
            "Expected a truth with images, got none. There is nothing to certify."
        )
    if not truth.classes.n_known:
        raise InvalidDataError("Expected at least one known class, got none. Name some.")


def _notes(detections: Detections, truth: BoxTruth) -> Iterator[str]:
    """Yield notes for the reader."""
    roles = {role: detections.classes.has_role(role)[detections.class_ids] for role in Role}
    if not len(detections):
        yield "There are no detections: every recall is 0 and every precision is undefined."
    elif not roles[Role.UNKNOWN].any() and truth.is_unknown.any():
        yield (
            "No detection has the label unknown: P_U is undefined and R_U is 0. If the detector "
            "has such a label, name it in the class map."
        )
    if not truth.is_unknown.any():
        yield "No object is unknown: the open-set metrics do not apply."
    n_without = int((np.diff(detections.offsets) == 0).sum())
    if len(detections) and 2 * n_without > truth.n_images:
        have = "has" if n_without == 1 else "have"
        n_images = count(truth.n_images, "image")
        yield f"{n_without:,} of {n_images} {have} no detection. Is the file complete?"
    if len(detections) and not 0 <= detections.confidence.min() <= detections.confidence.max() <= 1:
        yield "Some confidences are outside 0 to 1: calibration is undefined where they count."
    if (n := int(roles[Role.IGNORED].sum())) > 0:
        were = "was" if n == 1 else "were"
        yield f"{count(n, 'detection')} of ignored classes {were} left out."
    no_truth = set(truth.classes.known_names) - {
        truth.classes.names[k] for k in np.unique(truth.class_ids)
    }
    if no_truth:
        shown = ", ".join(sorted(no_truth)[:5]) + (", …" if len(no_truth) > 5 else "")
        yield f"Known classes without objects: {shown} ({len(no_truth)} in total)."
