"""Why a self-aware detector is as good as it is: the tables its paper stands on, from detections.

Oksuz et al., CVPR 2023, tables 2, 3, 5, 7 and A.9 to A.14, figures 2, 4, A.13, A.15 and A.16. Every
table is measured on the same few match tables: one per set of images and choice of confidences.
A threshold on confidence or on image uncertainty only leaves boxes out of such a table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.decisions import BOX_UNCERTAINTIES, CALIBRATORS
from incognita.decisions.parse import calibrator_of, score_policy, uncertainty_of
from incognita.decisions.self_aware import (
    SelfAware,
    SelfAwareSettings,
    fit_calibrators,
    keep_boxes,
    top_boxes,
)
from incognita.errors import IncognitaError, InvalidDataError
from incognita.evaluation.self_aware import CONVENTIONS, POOLED, TAU, AnnotatedSet, SelfAwareTest
from incognita.metrics.calibration import laece_of, reliability_of
from incognita.metrics.detection import COCO_THRESHOLDS, coco_average_precision
from incognita.metrics.lrp import lrp_error, optimal_lrp
from incognita.metrics.matching import MatchTable, match
from incognita.metrics.ranking import auroc
from incognita.metrics.self_awareness import (
    Aggregation,
    balanced_accuracy,
    balanced_accuracy_saod,
    detection_awareness_quality,
    image_uncertainties,
    in_distribution_quality,
)
from incognita.results.self_aware import SelfAwareStudy, StudyTable
from incognita.shapes import Bool, Float, Float64, Int

Row = dict[str, Any]

AGGREGATIONS = {
    "sum": (Aggregation.SUM, 1),
    "mean": (Aggregation.MEAN, 1),
    "top-5": (Aggregation.TOP_MEAN, 5),
    "top-3": (Aggregation.TOP_MEAN, 3),
    "top-2": (Aggregation.TOP_MEAN, 2),
    "min": (Aggregation.MIN, 1),
}
# what table 7 begins with, and table A.12 compares with
BASELINE: dict[str, Any] = {
    "image_threshold": "quantile(share=0.95)",
    "confidence_threshold": 0.5,
    "calibrator": "none",
}
OFFSETS = (-0.5, -0.4, -0.3, -0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
CONFIDENCES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FILLED_UP_TO = (100, 300, 500)  # boxes per image in table A.13
TAUS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
UNCERTAINTY_BINS, RELIABILITY_BINS = 10, 25
_NOWHERE = (-2.0, -2.0, -1.0, -1.0)  # a pixel outside the image, which finds no object at any IoU
_LARGEST = float(np.finfo(np.float64).max)  # instead of infinity, which rankings refuse


def study_self_aware(
    validation: AnnotatedSet,
    pseudo_unknown: Detections,
    test: SelfAwareTest,
    settings: SelfAwareSettings | None = None,
    *,
    convention: str = "paper",
    seed: int = 0,
    on_step: Callable[[str], None] | None = None,
) -> SelfAwareStudy:
    """Measure how each choice of a self-aware detector contributes, and how sensitive it is.

    What cannot be measured, such as entropy without logits, is in the notes with the reason.

    Args:
        validation: Detections and truth the rules are fitted on.
        pseudo_unknown: Detections on the same images with painted-over objects.
        test: The test images.
        settings: The rules whose choices are studied; the paper's by default.
        convention: `paper`, or `saod`: BA and LaECE as the public code computes them.
        seed: Random seed of the classes of dummy detections.
        on_step: Called with the name of each table before it is measured.
    """
    if convention not in CONVENTIONS:
        raise InvalidDataError(f"Expected the convention paper or saod, got {convention!r:.40}.")
    if not validation.truth.n_images:
        raise InvalidDataError("Expected validation images, got none.")
    if POOLED in test.unknown:
        raise InvalidDataError(
            f"Expected unknown sets with other names than {POOLED!r}, which stands for all of them "
            f"together. Rename the set."
        )
    on_step = on_step or (lambda name: None)
    on_step("fitting the rules")
    study = _Study(validation, pseudo_unknown, test, settings or SelfAwareSettings(), convention)
    tables = []
    for name, measure in study.measures(np.random.default_rng(seed)).items():
        on_step(f"measuring {name}")
        title, keys, rows = measure()
        tables.append(StudyTable(name, title, tuple(keys.split()), tuple(_filled_in(rows))))
    inputs = {"convention": convention, "seed": seed, "tau": TAU, "rules": repr(study.full)}
    return SelfAwareStudy(tuple(tables), tuple(dict.fromkeys(study.notes)), inputs)


Measured = tuple[str, str, list[Row]]  # the title, the key columns, and the rows


@dataclass(frozen=True, eq=False)
class _Images:
    """Annotated images and the boxes of the detector that count, matched once at IoU tau.

    Several sets of images are one here, so that a metric of their union is one call.
    """

    names: tuple[str, ...]
    boxes: Detections
    truth: BoxTruth
    uncertainty: Float64[np.ndarray, "images"]
    sets: Int[np.ndarray, "images"]
    is_free: Bool[np.ndarray, "images"]

    @classmethod
    def of(
        cls,
        parts: Mapping[str, AnnotatedSet],
        rules: SelfAware,
        free: frozenset[str] = frozenset(),
    ) -> "_Images":
        boxes, truths, uncertainty, start = [], [], [], 0
        for detections, truth in parts.values():
            found = detections.for_images(truth.image_ids)
            uncertainty.append(rules.image_uncertainty(found))
            ids = np.arange(start, start := start + truth.n_images)
            top = top_boxes(found, rules.max_per_image).without_outputs()
            boxes.append(replace(top, image_ids=ids))
            truths.append(replace(truth, image_ids=ids))
        sizes = [truth.n_images for truth in truths]
        return cls(
            tuple(parts),
            Detections.concatenate(boxes),
            BoxTruth.concatenate(truths),
            np.concatenate(uncertainty),
            np.repeat(np.arange(len(sizes)), sizes),
            np.repeat([name in free for name in parts], sizes),
        )

    @property
    def n_known(self) -> int:
        return self.truth.classes.n_known

    @cached_property
    def matched(self) -> MatchTable:
        """All boxes, matched at IoU tau."""
        return match(self.boxes, self.truth, thresholds=(TAU,))

    @cached_property
    def coco(self) -> MatchTable:
        """All boxes, matched at the IoU thresholds of COCO's AP."""
        return match(self.boxes, self.truth, thresholds=COCO_THRESHOLDS)

    def decided(self, rules: SelfAware) -> MatchTable:
        """Match the boxes that rules keep, with calibrated confidence, on all images."""
        kept = _calibrated(keep_boxes(self.boxes, rules.confidence_threshold), rules)
        return match(kept, self.truth, thresholds=(TAU,))


class _Study:
    """The fitted rules and prepared images, and one method per table."""

    def __init__(
        self,
        validation: AnnotatedSet,
        pseudo_unknown: Detections,
        test: SelfAwareTest,
        settings: SelfAwareSettings,
        convention: str,
    ) -> None:
        self.validated, self.test, self.settings = validation, test, settings
        self.convention, self.rule = convention, CONVENTIONS[convention]
        self.notes: list[str] = []
        data = (*validation, pseudo_unknown)
        self.full = SelfAware.fit(*data, settings)
        self.bare: SelfAware | None = None
        try:
            self.bare = SelfAware.fit(*data, replace(settings, **BASELINE))
        except InvalidDataError as error:
            self.notes.append(f"TPR 0.95 was not measured: {error}")
        self.validation = _Images.of({"validation": validation}, self.full)
        self.known = _Images.of({"known": test.known}, self.full)
        self.shifted = _Images.of(test.shifted, self.full, test.free) if test.shifted else None
        self.unknown = self._unknown_uncertainty()

    def measures(self, rng: np.random.Generator) -> dict[str, Callable[[], Measured]]:
        """Return the tables by name, in the order they are printed."""
        return {
            "auroc": self.rankings,
            "image_threshold": self.image_thresholds,
            "ablation": self.ablation,
            "sensitivity_u": self.sensitivity_to_u,
            "sensitivity_v": self.sensitivity_to_v,
            "confidence_sweep": self.confidence_sweep,
            "dummy_detections": lambda: self.dummy_detections(rng),
            "tau": self.sensitivity_to_tau,
            "oracle": self.oracle,
            "thresholds": self.thresholds,
            "calibrators": self.calibrators,
            "uncertainty_histogram": self.histograms,
            "reliability": self.reliability,
        }

    def _unknown_uncertainty(self) -> dict[str, np.ndarray]:
        """Return the image uncertainties of each unknown set, and of several together."""
        found = {}
        for name, detections in self.test.unknown.items():
            if detections.n_images:
                found[name] = self.full.image_uncertainty(detections)
            else:
                self.notes.append(f"The unknown set {name} has no images and was left out.")
        if not found:
            self.notes.append(
                "BA, DAQ and image AUROC were not measured: they need unknown images."
            )
        if not self.test.shifted:
            self.notes.append("IDQ_T and DAQ were not measured: they need shifted images.")
        return _with_pooled(found)

    def rankings(self) -> Measured:
        """Measure the image AUROC of every box uncertainty and aggregation."""
        title = "Image AUROC of uncertainty and aggregation (tables 2, 3, A.9 to A.11)"
        rows: list[Row] = []
        if not self.unknown:
            return title, "uncertainty unknown", rows
        reasons = {}
        for name in BOX_UNCERTAINTIES.names():
            try:
                rows += self._rankings_of(name)
            except InvalidDataError as error:
                reasons[name] = str(error)
                missing = {"uncertainty": name, "unknown": "not measured", "reason": str(error)}
                rows.append(missing)
        self.notes += _grouped(reasons)
        return title, "uncertainty unknown", rows

    def _rankings_of(self, name: str) -> Iterator[Row]:
        measure = uncertainty_of(name).fit(self._top_of(self.validated))

        def aggregated(boxes: Detections) -> np.ndarray:
            found = image_uncertainties(boxes, measure.of(boxes), [*AGGREGATIONS.values()])
            return np.asarray(np.minimum(np.stack(found), _LARGEST))

        known = aggregated(self._top_of(self.test.known))
        per_set = {
            name: aggregated(top_boxes(found, self.full.max_per_image))
            for name, found in self.test.unknown.items()
            if name in self.unknown
        }
        for unknown, values in _with_pooled(per_set, axis=1).items():
            areas = [_auroc(*pair) for pair in zip(known, values, strict=True)]
            yield {"uncertainty": name, "unknown": unknown, "reason": None} | dict(
                zip(AGGREGATIONS, areas, strict=True)
            )

    def _top_of(self, part: AnnotatedSet) -> Detections:
        """Return the boxes that count, with all of their columns."""
        found = part.detections.for_images(part.truth.image_ids)
        return top_boxes(found, self.full.max_per_image)

    def image_thresholds(self) -> Measured:
        """Compare u chosen against pseudo-unknown images with u at a TPR of 0.95."""
        rules = {"TPR 0.95": self.bare, "fitted": self.full}
        rows = [
            {"u_chosen": name, "unknown": unknown, "u": None if fitted is None else _u(fitted)}
            | ({} if fitted is None else self._balanced(_u(fitted), values))
            for name, fitted in rules.items()
            for unknown, values in self.unknown.items()
        ]
        title = "Image threshold: TPR 0.95 or pseudo-unknown images (table A.12)"
        return title, "u_chosen unknown", rows

    def ablation(self) -> Measured:
        """Measure all parts of DAQ while the choices are made one after the other."""
        full, bare, kind = self.full, self.bare, str(self.settings.calibrator)
        choices = [
            ("0.5", "none", "TPR 0.95"),
            ("fitted", "none", "TPR 0.95"),
            ("fitted", kind, "TPR 0.95"),
            ("fitted", kind, "fitted"),
        ]
        measured: list[Row] = [{}, {}, {}, self._awareness(full, self.tables)]
        if bare is not None:
            with_v = replace(bare, confidence_threshold=full.confidence_threshold)
            measured[0] = self._awareness(bare, self._decided(bare))
            measured[1] = self._awareness(with_v, self._decided(with_v))
            measured[2] = self._awareness(
                replace(full, image_threshold=bare.image_threshold), self.tables
            )
        keys = "v calibrator u_chosen"
        rows = [
            dict(zip(keys.split(), choice, strict=True)) | values
            for choice, values in zip(choices, measured, strict=True)
        ]
        return "Ablation: v, calibrator and u, one after the other (table 7)", keys, rows

    def sensitivity_to_u(self) -> Measured:
        """Measure all parts of DAQ for thresholds u around the fitted one."""
        finite = self._of_boxes(self.validation.uncertainty)
        scale = finite.max() - finite.min()
        rows = []
        for offset in OFFSETS:
            u = replace(self.full.image_threshold, value=_u(self.full) + offset * scale)
            rules = replace(self.full, image_threshold=u)
            rows.append({"offset": offset, "u": u.value} | self._awareness(rules, self.tables))
        title = "Sensitivity to u, in shares of its range on validation images (figure A.15)"
        return title, "offset", rows

    def sensitivity_to_v(self) -> Measured:
        """Measure all parts of DAQ with v of every class moved; the calibrators stay."""
        rows = []
        for offset in OFFSETS:
            rules = self._with_v(self.full.confidence_threshold.per_class + offset)
            rows.append({"offset": offset} | self._awareness(rules, self._decided(rules)))
        return "Sensitivity to v of all classes (figure A.15)", "offset", rows

    def confidence_sweep(self) -> Measured:
        """Measure the uncalibrated boxes of validation images above one confidence."""
        images, rows = self.validation, []
        fitted = self.full.confidence_threshold
        thresholds = {"none": np.full_like(fitted.per_class, -np.inf)}
        thresholds |= {str(v): np.full_like(fitted.per_class, v) for v in CONFIDENCES}
        for v, per_class in (thresholds | {"fitted": fitted.per_class}).items():
            kept = replace(fitted, per_class=per_class).keep(images.boxes)
            tables = images.matched.ignoring(~kept), images.coco.ignoring(~kept)
            rows.append({"v": v} | self._accuracy(images, int(kept.sum()), *tables))
        return "Confidence threshold on validation images (table A.14)", "v", rows

    def dummy_detections(self, rng: np.random.Generator) -> Measured:
        """Measure validation boxes with wrong ones of confidence 0 added to each image."""
        images = self.validation
        tables = images.matched, images.coco
        rows = [{"filled_up_to": "none"} | self._accuracy(images, len(images.boxes), *tables)]
        # COCO's 100 detections of a class per image would hide some of them
        uncapped = replace(images.matched.convention, max_detections=None)
        for n in FILLED_UP_TO:
            boxes = _filled(images.boxes, n, rng)
            matched = match(boxes, images.truth, convention=uncapped, thresholds=(TAU,))
            coco = match(boxes, images.truth, thresholds=COCO_THRESHOLDS)
            row = self._accuracy(images, len(boxes), matched, coco)
            rows.append({"filled_up_to": str(n)} | row)
        return "Dummy detections on validation images (table A.13)", "filled_up_to", rows

    def sensitivity_to_tau(self) -> Measured:
        """Measure known test images at other IoU thresholds; calibrators are fitted at each."""
        v = self.full.confidence_threshold
        fitted_on = keep_boxes(self.validation.boxes, v)
        kept, truth = keep_boxes(self.known.boxes, v), self.known.truth
        kind, rows = calibrator_of(self.settings.calibrator), []
        for tau in TAUS:
            calibrators = fit_calibrators(kind, fitted_on, self.validation.truth, tau=tau)
            rules = replace(self.full, calibrators=calibrators)
            raw = match(kept, truth, thresholds=(tau,))
            calibrated = match(_calibrated(kept, rules), truth, thresholds=(tau,))
            # LRP divides by 1 - tau
            lrp = lrp_error(raw, self.known.n_known).total.value if tau < 1 else None
            errors: Row = {"laece": self._laece(raw), "laece_calibrated": self._laece(calibrated)}
            rows.append({"tau": tau, "lrp": lrp} | errors)
        return "IoU of a true positive, on known images (figure A.13)", "tau", rows

    def oracle(self) -> Measured:
        """Measure all parts of DAQ with thresholds chosen on the test images themselves."""
        rows = [{"v": "fitted", "u_chosen": "fitted"} | self._awareness(self.full, self.tables)]
        with_v = self._with_v(np.where(np.isnan(self.oracle_v), np.inf, self.oracle_v))
        tables = self._decided(with_v)
        rows.append({"v": "oracle", "u_chosen": "fitted"} | self._awareness(with_v, tables))
        if (u := self._oracle_u()) is not None:
            for name, rules, of in (("fitted", self.full, self.tables), ("oracle", with_v, tables)):
                threshold = replace(rules.image_threshold, value=u)
                row = self._awareness(replace(rules, image_threshold=threshold), of)
                rows.append({"v": name, "u_chosen": "oracle"} | row)
        return "Thresholds of validation or of the test images", "v u_chosen", rows

    @cached_property
    def oracle_v(self) -> Float[np.ndarray, "classes"]:
        return optimal_lrp(self.known.matched, self.known.n_known).thresholds

    def _oracle_u(self) -> float | None:
        if not self.unknown:
            return None
        try:
            policy = score_policy("harmonic-mean")
            return policy.fit(self.known.uncertainty, self._pooled()).value
        except InvalidDataError as error:
            self.notes.append(f"An oracle u was not measured: {error}")
            return None

    def thresholds(self) -> Measured:
        """List v of each class as fitted, and as the test images would have it."""
        fitted = self.full.confidence_threshold.per_class
        truth = self.known.truth
        labels = truth.classes.labels[truth.class_ids]
        n_objects = np.bincount(labels, minlength=len(fitted))
        rows = [
            {
                "class": name,
                "fitted": fitted[k],
                "oracle": self.oracle_v[k],
                "n_objects": n_objects[k],
            }
            for k, name in enumerate(self.full.known_names)
        ]
        return "Confidence thresholds of each class (figure A.16)", "class", rows

    def calibrators(self) -> Measured:
        """Measure LaECE and LRP of kept boxes with each calibrator, no image being rejected."""
        rows: list[Row] = []
        for where, kind, table in self._calibrated_tables:
            lrp = lrp_error(table, self.known.n_known).total.value
            rows.append(
                {"images": where, "calibrator": kind, "laece": self._laece(table), "lrp": lrp}
            )
        return "Calibrators (table 5)", "images calibrator", rows

    def reliability(self) -> Measured:
        """List the reliability diagrams of kept boxes before and after each calibrator."""
        rows: list[Row] = []
        for where, kind, table in self._calibrated_tables:
            diagram = reliability_of(table, self.known.n_known, n_bins=RELIABILITY_BINS)
            assert diagram is not None  # calibrators refuse other confidences
            key = {"images": where, "calibrator": kind}
            columns = zip(*diagram, strict=True)
            rows += [key | dict(zip(diagram._fields, column, strict=True)) for column in columns]
        return "Reliability diagrams (figures 4 and A.14)", "images calibrator low high", rows

    @cached_property
    def _calibrated_tables(self) -> list[tuple[str, str, MatchTable]]:
        sets = {"validation": self.validation, "known": self.known}
        v, tables = self.full.confidence_threshold, []
        kept = {name: keep_boxes(images.boxes, v) for name, images in sets.items()}
        for kind in ("none", *(name for name in CALIBRATORS.names() if name != "none")):
            try:
                calibrators = fit_calibrators(
                    calibrator_of(kind), kept["validation"], self.validation.truth
                )
            except IncognitaError as error:  # a library that is not installed
                self.notes.append(f"The calibrator {kind} was not measured: {error}")
                continue
            rules = replace(self.full, calibrators=calibrators)
            for name, images in sets.items():
                boxes = _calibrated(kept[name], rules)
                tables.append((name, kind, match(boxes, images.truth, thresholds=(TAU,))))
        return tables

    def histograms(self) -> Measured:
        """Count the images of each set by uncertainty, with AP of those in each bin."""
        edges = self._edges()
        rows: list[Row] = []
        for group, images in (("known", self.known), ("shifted", self.shifted)):
            for k, name in enumerate(() if images is None else images.names):
                assert images is not None
                columns = self._bin_columns(images.uncertainty, edges)
                columns *= (images.sets == k)[:, None]
                precision = _average_precision(images.coco, images.n_known, columns)
                key = {"images": name if group == "known" else f"{group}/{name}"}
                rows += _bin_rows(key, edges, columns, precision)
        for name, values in self.unknown.items():
            key = {"images": f"unknown/{name}"}
            rows += _bin_rows(key, edges, self._bin_columns(values, edges), None)
        return "Image uncertainty and AP per bin (figures 2 and A.11)", "images low high", rows

    def _bin_columns(
        self, uncertainty: np.ndarray, edges: np.ndarray
    ) -> Float[np.ndarray, "images bins_plus_1"]:
        """Return one column per bin [low, high), the last one closed, and one without boxes."""
        bins = np.searchsorted(edges[1:-1], uncertainty, side="right")
        bins[uncertainty == self.without_boxes] = len(edges) - 1
        return np.eye(len(edges), dtype=np.float32)[bins]

    def _edges(self) -> Float64[np.ndarray, "edges"]:
        """Return bins of 0 to 1, or of the range where uncertainties exceed it."""
        every = [self.known.uncertainty, *self.unknown.values()]
        every += [] if self.shifted is None else [self.shifted.uncertainty]
        values = self._of_boxes(np.concatenate(every))
        low, high = values.min(initial=0.0), values.max(initial=1.0)
        return np.linspace(low, high, UNCERTAINTY_BINS + 1)

    @cached_property
    def without_boxes(self) -> float:
        """The image uncertainty that stands for no box at all."""
        nothing = Detections.empty([0], self.known.boxes.classes)
        return float(self.full.image_uncertainty(nothing)[0])

    def _of_boxes(self, uncertainty: np.ndarray) -> np.ndarray:
        return np.asarray(uncertainty[uncertainty != self.without_boxes])

    @cached_property
    def tables(self) -> "_Tables":
        """The matched test images of the fitted v and calibrators."""
        return self._decided(self.full)

    def _decided(self, rules: SelfAware) -> "_Tables":
        shifted = None if self.shifted is None else self.shifted.decided(rules)
        return self.known.decided(rules), shifted

    def _with_v(self, per_class: Float[np.ndarray, "classes"]) -> SelfAware:
        v = replace(self.full.confidence_threshold, per_class=per_class)
        return replace(self.full, confidence_threshold=v)

    def _pooled(self) -> np.ndarray:
        return list(self.unknown.values())[-1]

    def _awareness(self, rules: SelfAware, tables: "_Tables") -> Row:
        """Measure DAQ and its parts for the image threshold of rules."""
        nothing = {"idq": np.nan, "laece": np.nan, "lrp": np.nan}
        balanced: Row = {"ba": np.nan, "tpr": np.nan, "tnr": np.nan}
        if self.unknown:
            balanced = self._balanced(_u(rules), self._pooled())
        known, shifted = (
            nothing if table is None or images is None else self._quality(rules, images, table)
            for images, table in zip((self.known, self.shifted), tables, strict=True)
        )
        daq = detection_awareness_quality(balanced["ba"], known["idq"], shifted["idq"])
        return {"daq": daq} | balanced | known | {f"{k}_t": v for k, v in shifted.items()}

    def _balanced(self, u: float, unknown: np.ndarray) -> Row:
        measure = balanced_accuracy_saod if self.convention == "saod" else balanced_accuracy
        found = measure(self.known.uncertainty, unknown, threshold=u)
        return dict(zip(("ba", "tpr", "tnr"), found, strict=True))

    def _quality(self, rules: SelfAware, images: _Images, table: MatchTable) -> Row:
        """Measure LRP, LaECE and IDQ; a rejected image has no box, or is left out if it may."""
        is_rejected = ~rules.accepts(images.uncertainty)
        table = table.ignoring(is_rejected[table.detection_images])
        weights = (~(is_rejected & images.is_free))[:, None].astype(np.float32)
        lrp = lrp_error(table, images.n_known, weights=weights).total.value
        laece = self._laece(table, weights)
        # without a detection nothing is wrong about the confidence, and LRP is 1
        idq = in_distribution_quality(lrp, 0.0 if np.isnan(laece) else laece)
        return {"idq": idq, "laece": laece, "lrp": lrp}

    def _laece(self, table: MatchTable, weights: np.ndarray | None = None) -> float:
        return laece_of(table, self.known.n_known, rule=self.rule, weights=weights).value

    def _accuracy(self, images: _Images, n: int, matched: MatchTable, coco: MatchTable) -> Row:
        ones = np.ones((images.truth.n_images, 1), np.float32)
        return {
            "detections_per_image": n / images.truth.n_images,
            "laece": self._laece(matched),
            "ap": _average_precision(coco, images.n_known, ones)[0],
            "lrp": lrp_error(matched, images.n_known).total.value,
        }


_Tables = tuple[MatchTable, MatchTable | None]


def _grouped(reasons: Mapping[str, str]) -> Iterator[str]:
    """Write one sentence for all uncertainties that lack the same."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        _, needs, rest = reason.partition(" needs ")
        groups.setdefault(f", which needs {rest}" if needs else f": {reason}", []).append(name)
    for reason, names in groups.items():
        yield f"Not measured: image AUROC of {', '.join(names)}{reason}"


def _u(rules: SelfAware) -> float:
    return rules.image_threshold.value


def _auroc(known: np.ndarray, unknown: np.ndarray) -> float:
    scores = np.concatenate([known, unknown])
    return auroc(scores, np.arange(len(scores)) >= len(known))


def _with_pooled(found: dict[str, np.ndarray], *, axis: int = 0) -> dict[str, np.ndarray]:
    """Add all sets together, if there are several."""
    if len(found) < 2:
        return found
    return found | {POOLED: np.concatenate(list(found.values()), axis=axis)}


def _calibrated(kept: Detections, rules: SelfAware) -> Detections:
    labels = kept.classes.labels[kept.class_ids]
    return replace(kept, confidence=rules.calibrators.apply(kept.confidence, labels))


def _filled(boxes: Detections, n: int, rng: np.random.Generator) -> Detections:
    """Add boxes of confidence 0 and a random known class until each image has n."""
    missing = np.maximum(0, n - np.diff(boxes.offsets))
    images = np.repeat(np.arange(boxes.n_images), missing)
    order = np.argsort(np.concatenate([boxes.image_index, images]), kind="stable")
    known = np.flatnonzero(boxes.classes.labels < boxes.classes.n_known)

    def joined(column: np.ndarray, added: np.ndarray) -> np.ndarray:
        return np.concatenate([column, added])[order]

    return Detections(
        boxes.image_ids,
        boxes.offsets + np.concatenate([[0], np.cumsum(missing)]),
        joined(boxes.xyxy, np.tile(_NOWHERE, (len(images), 1))),
        joined(boxes.confidence, np.zeros(len(images), boxes.confidence.dtype)),
        joined(boxes.class_ids, rng.choice(known, len(images))),
        boxes.classes,
        joined(boxes.sizes, np.ones((len(images), 2))),
    )


def _average_precision(
    table: MatchTable, n_known: int, weights: Float[np.ndarray, "images columns"]
) -> list[float]:
    """Compute COCO's AP under each column of image weights; NaN without an object."""
    values = coco_average_precision(table, n_known, weights=weights).values
    return [float(value) for value in values]


def _bin_rows(
    key: Row, edges: np.ndarray, columns: np.ndarray, precision: list[float] | None
) -> list[Row]:
    bounds = [*pairwise(edges), (None, None)]  # the last is without boxes
    counts = columns.sum(axis=0, dtype=np.float64).astype(np.int64)
    values: Sequence[float | None] = precision or [None] * len(bounds)
    return [
        key | {"low": low, "high": high, "n_images": n, "ap": ap}
        for (low, high), n, ap in zip(bounds, counts, values, strict=True)
    ]


def _filled_in(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows with the columns of all of them, as plain numbers; None where undefined."""
    rows = list(rows)
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    for row in rows:
        yield {name: _plain(row.get(name)) for name in columns}


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
