"""How self-aware a detector is: DAQ and all it is made of, from detections on disk or in memory.

Oksuz et al., CVPR 2023, sections 3 and 6. Known images and images shifted moderately must be
accepted: the objects of a rejected one are missed. Images shifted beyond recognition may be
rejected: only accepted ones are measured. Unknown images must be rejected.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from incognita.benchmarks.corruptions.datasets import clean_ids
from incognita.containers.boxes import BoxTruth, Detections
from incognita.decisions.self_aware import SelfAware
from incognita.errors import InvalidDataError
from incognita.metrics.calibration import laece_of
from incognita.metrics.conventions import COCO, PAPER_CALIBRATION, SAOD
from incognita.metrics.detection import coco_average_precision
from incognita.metrics.lrp import lrp_error
from incognita.metrics.matching import match
from incognita.metrics.measure import MetricValue, bootstrap_weights
from incognita.metrics.ranking import ranking_replicates
from incognita.metrics.self_awareness import balanced_accuracy_saod
from incognita.metrics.suite import MatchTables
from incognita.results.result import Result, Split, interval_notes
from incognita.results.self_aware import SelfAwareReport
from incognita.shapes import Float

CONVENTIONS = {"paper": PAPER_CALIBRATION, "saod": SAOD}
TAU = 0.1
POOLED = "pooled"


class AnnotatedSet(NamedTuple):
    """Detections on annotated images."""

    detections: Detections
    truth: BoxTruth


@dataclass(frozen=True, eq=False)
class SelfAwareTest:
    """The images a self-aware detector is judged on.

    Args:
        known: Images like those of validation.
        shifted: The same or other known images, changed; by name, such as the severity.
        free: Names of shifted sets whose images may be rejected without penalty.
        unknown: Detections on images without any known object, by the name of the set.
        validation: The images the rules were fitted on, for AP on them.
    """

    known: AnnotatedSet
    shifted: Mapping[str, AnnotatedSet] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    unknown: Mapping[str, Detections] = field(default_factory=dict)
    validation: AnnotatedSet | None = None

    def __post_init__(self) -> None:
        if strange := self.free - set(self.shifted):
            raise InvalidDataError(
                f"Expected shifted sets that may be rejected, got {sorted(strange)}, which are not "
                f"among {sorted(self.shifted)}."
            )
        if POOLED in self.unknown:
            raise InvalidDataError(
                f"Expected unknown sets with other names than {POOLED!r}, which is that of all "
                f"together. Rename the set."
            )
        if not self.known.truth.n_images:
            raise InvalidDataError("Expected known test images, got none.")


def evaluate_self_aware(
    fitted: SelfAware,
    test: SelfAwareTest,
    *,
    convention: str = "paper",
    n_resamples: int = 200,
    seed: int = 0,
) -> SelfAwareReport:
    """Measure DAQ and its parts, AP, image AUROC and acceptance, with bootstrap intervals.

    Known images and their shifted copies are drawn together where they are the same images.

    Args:
        fitted: The rules.
        test: The test images.
        convention: `paper`, or `saod`: BA and LaECE as the public code computes them.
        n_resamples: Bootstrap replicates behind each interval; zero for none.
        seed: Random seed of the bootstrap.
    """
    if convention not in CONVENTIONS:
        raise InvalidDataError(f"Expected the convention paper or saod, got {convention!r:.40}.")
    measured = _Measurement(fitted, test, convention, n_resamples, seed)
    results = tuple(measured.results())
    notes = (*measured.notes(), *interval_notes(results, n_resamples))
    return SelfAwareReport(results, notes)


class _Measurement:
    """One evaluation: every set is decided once, every union matched once."""

    def __init__(
        self, fitted: SelfAware, test: SelfAwareTest, convention: str, n_resamples: int, seed: int
    ) -> None:
        self.fitted, self.test, self.convention = fitted, test, convention
        self.n_resamples, self.seed = n_resamples, seed
        self.known = fitted.apply(test.known.detections.for_images(test.known.truth.image_ids))
        self.shifted = {
            name: fitted.apply(part.detections.for_images(part.truth.image_ids))
            for name, part in test.shifted.items()
        }
        self.unknown = {name: fitted.apply(part) for name, part in test.unknown.items()}

    def results(self) -> Iterator[Result]:
        weights = self._weights(self.test.known.truth.n_images, self.seed)
        known = self._quality(self.known.detections, self.test.known.truth, weights)
        yield from self._records(Split("known"), known)
        parts = {"known": known["in_distribution_quality"]}
        if self.shifted:
            shifted = self._quality(*self._union())
            yield from self._records(Split("shifted"), shifted)
            parts["shifted"] = shifted["in_distribution_quality"]
        if self.unknown:
            balanced = self._balanced(weights)
            yield from self._records(Split("unknown"), balanced)
            parts["unknown"] = balanced["balanced_accuracy"]
            yield from self._rankings(weights)
        if len(parts) == 3:
            yield from self._records(Split("all"), self._awareness(list(parts.values())))
        yield from self._precisions()

    def notes(self) -> Iterator[str]:
        sets = {"known": self.known, **{f"shifted/{n}": o for n, o in self.shifted.items()}}
        sets |= {f"unknown/{name}": output for name, output in self.unknown.items()}
        for name, output in sets.items():
            share = output.accepted.mean() if len(output.accepted) else 0.0
            if len(output.accepted) and share in (0.0, 1.0):
                what = "rejected" if share == 0 else "accepted"
                yield f"All {len(output.accepted)} images of {name} are {what}."
        given = {"shifted": self.shifted, "unknown": self.unknown}
        if missing := [name for name, sets_given in given.items() if not sets_given]:
            yield f"There is no DAQ: it needs {' and '.join(missing)} images as well."

    def _weights(self, n_images: int, seed: int) -> Float[np.ndarray, "images replicates"]:
        return bootstrap_weights(n_images, n_resamples=self.n_resamples, seed=seed)

    def _quality(
        self, detections: Detections, truth: BoxTruth, weights: np.ndarray
    ) -> dict[str, MetricValue]:
        """Measure LRP with its parts, LaECE and IDQ of what is left after the decisions."""
        table = match(detections, truth, convention=COCO, thresholds=(TAU,))
        n_known = truth.classes.n_known
        is_saod = self.convention == "saod"
        lrp = lrp_error(table, n_known, weights=weights, skips_all_wrong=is_saod)
        laece = laece_of(table, n_known, rule=CONVENTIONS[self.convention], weights=weights)
        # without a detection nothing is wrong about the confidence, and LRP is 1
        calibrated = 1 - np.nan_to_num(laece.values, nan=0.0)
        values = _harmonic(1 - lrp.total.values, calibrated)
        quality = MetricValue(
            values, lrp.total.support, lrp.total.reason, units=_fewest(lrp.total, laece)
        )
        return {
            "in_distribution_quality": quality,
            "laece": laece,
            "lrp": lrp.total,
            "lrp_localization": lrp.localization,
            "lrp_false_positive": lrp.false_positive,
            "lrp_false_negative": lrp.false_negative,
        }

    def _union(self) -> tuple[Detections, BoxTruth, np.ndarray]:
        """Join the shifted sets; of a free one only the accepted images."""
        found, truths, columns = [], [], []
        start = 0
        for name, output in self.shifted.items():
            part = self.test.shifted[name].truth
            drawn = self._weights_of(part)
            kept = output.accepted if name in self.test.free else np.ones(part.n_images, np.bool_)
            ids = part.image_ids[kept]
            numbers = np.arange(start, start + len(ids))
            found.append(replace(output.detections.for_images(ids), image_ids=numbers))
            truths.append(replace(part.for_images(ids), image_ids=numbers))
            columns.append(drawn[kept])
            start += len(ids)
        union = Detections.concatenate(found), BoxTruth.concatenate(truths)
        return *union, np.concatenate(columns)

    def _weights_of(self, truth: BoxTruth) -> np.ndarray:
        """Draw shifted images together with the known image they were made of.

        Copies of one image are drawn together, too: they are not independent.
        """
        clean, places = np.unique(clean_ids(truth.image_ids.tolist()), return_inverse=True)
        known = self.test.known.truth.image_ids.astype(np.str_)
        if not np.isin(clean, known).all():
            return self._weights(len(clean), self.seed)[places]
        order = np.argsort(known)
        among_known = order[np.searchsorted(known, clean, sorter=order)]
        return self._weights(len(known), self.seed)[among_known][places]

    def _balanced(self, weights: np.ndarray) -> dict[str, MetricValue]:
        """Measure the balanced accuracy over all unknown images together."""
        outputs = list(self.unknown.values())
        n_unknown = sum(len(output.accepted) for output in outputs)
        rejected = np.concatenate([~output.accepted for output in outputs])
        tpr = _share(self.known.accepted, weights)
        tnr = _share(rejected, self._weights(n_unknown, self.seed + 1))
        values = _harmonic(tpr, tnr)
        if self.convention == "saod":
            unknown = np.concatenate([output.image_uncertainty for output in outputs])
            threshold = self.fitted.image_threshold.value
            found = balanced_accuracy_saod(
                self.known.image_uncertainty, unknown, threshold=threshold
            )
            # the public code has no replicates
            values, tpr, tnr = (_alone(value, len(values)) for value in found)
        support = {"known images": len(self.known.accepted), "unknown images": n_unknown}
        n_known = len(self.known.accepted)
        return {
            "balanced_accuracy": _image_share(values, support, min(n_known, n_unknown)),
            "known_accepted": _image_share(tpr, support, n_known),
            "unknown_rejected": _image_share(tnr, support, n_unknown),
        }

    def _awareness(self, parts: list[MetricValue]) -> dict[str, MetricValue]:
        values = _harmonic(*(part.values for part in parts))
        support = {"known images": len(self.known.accepted)}
        for name, outputs in (("shifted", self.shifted), ("unknown", self.unknown)):
            support[f"{name} images"] = sum(len(output.accepted) for output in outputs.values())
        value = MetricValue(values, support, _why(values), units=_fewest(*parts))
        return {"detection_awareness_quality": value}

    def _rankings(self, weights: np.ndarray) -> Iterator[Result]:
        """Measure the image AUROC of each unknown set and of all of them together."""
        parts = {name: output.image_uncertainty for name, output in self.unknown.items()}
        if len(parts) > 1:
            parts[POOLED] = np.concatenate(list(parts.values()))
        for name, unknown in parts.items():
            if not len(unknown):
                continue
            score = np.concatenate([self.known.image_uncertainty, unknown])
            is_unknown = np.arange(len(score)) >= len(weights)
            columns = np.concatenate([weights, self._weights(len(unknown), self.seed + 1)])
            auroc = ranking_replicates(score, is_unknown, columns).auroc
            support = {"known images": len(weights), "unknown images": len(unknown)}
            value = _image_share(auroc, support, min(support.values()))
            yield from self._records(Split("unknown", name), {"auroc": value})

    def _precisions(self) -> Iterator[Result]:
        """Measure COCO AP of the detector as it is, on each set (table A.8)."""
        sets = {Split("known", "as detected"): self.test.known}
        if self.test.validation is not None:
            sets[Split("validation")] = self.test.validation
        sets |= {Split("shifted", name): part for name, part in self.test.shifted.items()}
        for split, part in sets.items():
            found = part.detections.for_images(part.truth.image_ids)
            table = MatchTables(found, part.truth).coco
            weights = self._weights_of(part.truth)
            n_known = part.truth.classes.n_known
            ap = coco_average_precision(table, n_known, weights=weights)
            yield from self._records(split, {"ap": ap})

    def _records(self, split: Split, values: Mapping[str, MetricValue]) -> Iterator[Result]:
        for metric, value in values.items():
            yield Result.from_value(metric, self.convention, split=split, value=value)


def _harmonic(*parts: np.ndarray) -> np.ndarray:
    """Compute the harmonic mean of each replicate; 0 where a part is 0, NaN where one is NaN."""
    stacked = np.stack(parts)
    with np.errstate(divide="ignore"):
        return np.asarray(len(parts) / (1 / stacked).sum(axis=0))


def _share(marks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    totals = weights.sum(axis=0, dtype=np.float64)
    return np.asarray(marks.astype(np.float64) @ weights) / np.where(totals > 0, totals, np.nan)


def _why(values: np.ndarray) -> str | None:
    return "a part of it is undefined" if np.isnan(values[0]) else None


def _alone(value: float, n: int) -> np.ndarray:
    """Return a value followed by undefined replicates."""
    values = np.full(n, np.nan)
    values[0] = value
    return values


def _image_share(values: np.ndarray, support: dict[str, int], units: int) -> MetricValue:
    return MetricValue(values, support, _why(values), units=units)


def _fewest(*parts: MetricValue) -> int | None:
    """Return the images behind the part with the fewest; an undefined part does not count."""
    counted = [p.units for p in parts if p.units is not None and not np.isnan(p.value)]
    return min(counted, default=None)
