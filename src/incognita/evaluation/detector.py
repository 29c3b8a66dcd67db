"""What an evaluation of a detector needs: its rows (boxes), its two thresholds, its measures.

t* on the detector's confidence selects the boxes that are scored; tau on a method's score selects
those that are called unknown.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from incognita.benchmarks.benchmark import KNOWN, MIXED, SHIFTED, TEST, Benchmark
from incognita.benchmarks.load import check_classes, test_sets
from incognita.containers import (
    BoxDataset,
    BoxTruth,
    Classes,
    ClassifierOutputs,
    Dataset,
    Detections,
    DetectorOutputs,
    ExtraOutput,
    Needs,
    Role,
)
from incognita.containers.classes import plain
from incognita.decisions.confidence_thresholds import FixedConfidence
from incognita.decisions.thresholds import (
    ConfidencePolicy,
    ConfidenceThreshold,
    ScorePolicy,
    UnknownThreshold,
)
from incognita.decisions.unknown_thresholds import Fixed, HarmonicMean, KnownGaussian
from incognita.errors import InvalidDataError
from incognita.evaluation.detector_metrics import (
    Measures,
    ThresholdedScores,
    align_classes,
    called_unknown,
    draw_sets,
    labelled_set,
    measure_detector,
    measure_method,
    measure_own_labels,
    true_labels,
)
from incognita.evaluation.evaluator import Measurements, MethodMeasurement, Options, Stored
from incognita.evaluation.fit_and_score import (
    ExtractionLog,
    FittedMethod,
    OnStep,
    ScoredMethods,
    needs_layers,
)
from incognita.evaluation.gallery import draw_pictures, picture_folder
from incognita.evaluation.plausibility import check_class_images, check_rows, is_unnamed
from incognita.evaluation.select_methods import Capabilities, SelectedMethods
from incognita.extraction.detector_pass import identity_of_detector
from incognita.extraction.recorded import RecordedModel
from incognita.extraction.settings import DETECTOR_LAYOUT, Settings
from incognita.extraction.stored_sets import StoredDetector
from incognita.methods.method import Method, Rows
from incognita.methods.per_head import PerHead, for_heads
from incognita.models.detector import (
    Detector,
    KnownClasses,
    find_unknown_class,
    gives_features,
    known_classes,
    match_class_names,
    select_classes,
    wrap_detector,
)
from incognita.models.load import load_model
from incognita.results.disclosure import CALIBRATION, UNKNOWN_LABELS
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import MethodKey
from incognita.results.result import Result, Split
from incognita.results.score_tables import DetectedSet, box_frame, object_frame

VALIDATION, UNKNOWN_VALIDATION = "validation", "unknown validation"
OWN_LABEL = "own-label"


def load_detector(model: object, benchmark: Benchmark, weights: Path | None = None) -> Detector:
    """Load the detector of an evaluation, with the known classes of the benchmark in its order."""
    given = benchmark.default_model if model is None else model
    if isinstance(given, list | tuple):
        if len(given) != 1:
            raise InvalidDataError(
                f"Expected one detector for {benchmark.name}, got {len(given)}. Boxes of several "
                f"detectors cannot be averaged."
            )
        given = given[0]
    if given is None:
        raise InvalidDataError(
            f"{benchmark.name} has no default model. Give one (--model, model=), such as "
            f"file.py:function or torchvision:fasterrcnn_resnet50_fpn."
        )
    detector = _with_benchmark_classes(_detector(given, benchmark, weights), benchmark)
    check_classes(detector.name, detector.class_names, benchmark)
    return detector


def _detector(given: object, benchmark: Benchmark, weights: Path | None) -> Detector:
    """Build the detector with its own class names."""
    if not isinstance(given, str) and weights is not None:
        raise InvalidDataError("`weights` needs a model given by name, got a loaded model.")
    if not isinstance(given, str | nn.Module | Detector):
        raise InvalidDataError(
            f"Expected a torch module, an adapter or the name of a detector, got "
            f"{type(given).__name__}. Wrap it with incognita.wrap_detector."
        )
    detector = _wrapped(given, None, benchmark, weights)
    if is_unnamed(detector.class_names) and len(detector.class_names) != len(benchmark.classes):
        # the adapter knows whether an output may have no name
        return _wrapped(given, benchmark.classes, benchmark, weights)
    return detector


def _wrapped(
    given: str | nn.Module | Detector,
    classes: Sequence[str] | None,
    benchmark: Benchmark,
    weights: Path | None,
) -> Detector:
    if isinstance(given, str):
        model = load_model(given, weights=weights, class_names=classes)
        if isinstance(model, Detector):
            return model
        raise InvalidDataError(
            f"Expected a detector for {benchmark.name}, got the classifier {given}."
        )
    if isinstance(given, nn.Module):
        return wrap_detector(given, class_names=classes)
    return given


def _with_benchmark_classes(detector: Detector, benchmark: Benchmark) -> Detector:
    """Select the known classes, in the order and the spelling of the benchmark."""
    ours = benchmark.classes
    unknown = find_unknown_class(detector, ours)
    if unknown is not None and plain(unknown) in map(plain, ours):
        raise InvalidDataError(
            f"Expected an unknown_class beside the known classes of {benchmark.name}, got "
            f"{unknown!r}. Name the class that {detector.name} has for all other objects."
        )
    if list(detector.class_names) == list(ours):
        return detector
    if is_unnamed(detector.class_names) and len(detector.class_names) == len(ours):
        note = f"{detector.name} names no classes: they are taken in the order of the benchmark"
        return select_classes(detector, ours, range(len(ours)), note=note)
    if unknown is None:
        return match_class_names(detector, ours, benchmark.name)
    return known_classes(match_class_names(detector, (*ours, unknown), benchmark.name))


@dataclass(eq=False)
class DetectorExtractor:
    """Runs a detector over data sets, each image once, and returns the boxes above t* as rows.

    Args:
        detector: The detector.
        log: Runs the extraction.
        threshold: The confidence threshold t*.
        chosen_on: The data set it was chosen on.
        groups: The group of each test set.
        held: Outputs that are needed more than once, by data set.
        sets: The test sets seen so far.
        labelled: All boxes of an open-set detector by data set, its unknown class the last.
    """

    detector: Detector
    log: ExtractionLog
    threshold: ConfidenceThreshold
    chosen_on: str
    groups: Mapping[str, str]
    held: dict[str, DetectorOutputs] = field(default_factory=dict)
    sets: dict[str, DetectedSet] = field(default_factory=dict)
    labelled: dict[str, Detections] = field(default_factory=dict)

    def outputs(
        self,
        name: str,
        dataset: Dataset,
        *,
        extra_outputs: Sequence[ExtraOutput] = (),
        layers: bool = False,
    ) -> ClassifierOutputs:
        """Return the boxes of a data set above t*; those of test sets are also kept in `sets`.

        Rows of the validation set are the boxes that match a known object, with its true class. Of
        mixed sets all boxes are rows, because papers on open-set detectors leave none out.
        """
        outputs = self.held.get(name)
        if outputs is None:
            outputs = self.extract(name, dataset, extra_outputs, layers=layers)
        is_kept = self.threshold.keep(outputs.detections)
        if name in self.groups:
            truth = truth_of(dataset).for_images(outputs.detections.image_ids)
            found = align_classes(truth, replace(outputs.detections, features=None))
            labelled = self.labelled.get(name)
            if labelled is not None:
                labelled = _with_unknown_label(truth, labelled)
            self.sets[name] = DetectedSet(name, self.groups[name], found, truth, is_kept, labelled)
        if self.groups.get(name) == MIXED:
            return outputs.rows()
        rows = outputs[is_kept].rows()
        return _with_true_classes(rows, dataset, outputs, is_kept) if name == VALIDATION else rows

    def extract(
        self,
        name: str,
        dataset: Dataset,
        extra_outputs: Sequence[ExtraOutput] = (),
        *,
        layers: bool = False,
    ) -> DetectorOutputs:
        """Run the detector on a data set; boxes that it calls unknown itself are set apart."""
        if not isinstance(self.detector, KnownClasses):
            outputs: DetectorOutputs = self.log.extract(
                self.detector, name, dataset, extra_outputs, layers=layers
            )
            return outputs
        runs = self.detector.inner
        outputs = self.log.extract(runs, name, dataset, extra_outputs, layers=layers)
        self.labelled[name] = outputs.detections
        return _known_part(outputs, self.detector)

    def rows_for_tau(self) -> ClassifierOutputs:
        """Return the boxes above t* on the known images that tau is chosen on."""
        return self._kept(self.held[self.chosen_on])

    def unknown_rows(self, dataset: Dataset, *, layers: bool) -> ClassifierOutputs:
        """Return the boxes above t* on unknown validation images."""
        if UNKNOWN_VALIDATION not in self.held:
            outputs = self.extract(UNKNOWN_VALIDATION, dataset, layers=layers)
            self.held[UNKNOWN_VALIDATION] = outputs
        return self._kept(self.held[UNKNOWN_VALIDATION])

    def empty(self) -> ClassifierOutputs:
        """Return outputs without boxes."""
        heads = self.detector.heads
        head = heads[0] if len(heads) == 1 else None
        return ClassifierOutputs.empty(len(self.detector.class_names), head)

    def _kept(self, outputs: DetectorOutputs) -> ClassifierOutputs:
        return outputs[self.threshold.keep(outputs.detections)].rows()


def choose_confidence_threshold(
    detector: Detector,
    benchmark: Benchmark,
    policy: ConfidencePolicy,
    log: ExtractionLog,
    *,
    layers: bool,
) -> DetectorExtractor:
    """Choose t* on the validation set, or as the papers do on the known test images."""
    name = TEST if benchmark.validation is None else VALIDATION
    dataset = benchmark.test if benchmark.validation is None else benchmark.validation
    groups = {test_set: group for group, test_set, _ in test_sets(benchmark)}
    nothing = ConfidenceThreshold(np.zeros(len(benchmark.classes)), "none")
    extractor = DetectorExtractor(detector, log, nothing, name, groups)
    outputs = extractor.extract(name, dataset, layers=layers)
    truth = truth_of(dataset).for_images(outputs.detections.image_ids)
    floor = f"its score threshold of {detector.rules.score_threshold}"
    _check_boxes(len(outputs), detector, truth, floor, name)
    threshold = policy.fit(align_classes(truth, outputs.detections), truth)
    n_kept = int(threshold.keep(outputs.detections).sum())
    _check_boxes(n_kept, detector, truth, f"the confidence threshold t* ({policy})", name)
    # the outputs are needed again: to fit, and to choose tau
    return replace(extractor, threshold=threshold, held={name: outputs})


def _known_part(outputs: DetectorOutputs, detector: KnownClasses) -> DetectorOutputs:
    """Return the boxes of known classes, with their logits and heads alone."""
    n_known = len(detector.class_names)
    known = outputs[outputs.detections.class_ids < n_known]
    found = replace(
        known.detections,
        logits=known.detections.logits[:, :n_known],
        classes=Classes(tuple(detector.class_names)),
    )
    return replace(known, detections=found, heads=detector.heads)


def _with_unknown_label(truth: BoxTruth, found: Detections) -> Detections:
    """Return boxes with the classes of the truth; the detector's last class is unknown."""
    unknown = int(np.flatnonzero(truth.classes.has_role(Role.UNKNOWN))[0])
    is_unknown = found.class_ids == len(found.classes) - 1
    return Detections(
        found.image_ids,
        found.offsets,
        found.xyxy,
        found.confidence,
        np.where(is_unknown, unknown, found.class_ids),
        truth.classes,
        sizes=found.sizes,
        source_index=found.source_index,
    )


@dataclass(eq=False)
class OwnLabel(Method):
    """The unknown class of an open-set detector, in the place of a method: it has no score."""

    needs: ClassVar[Needs] = Needs.LOGITS
    family: ClassVar[str] = "the detector"

    def score_rows(self, rows: Rows) -> Tensor:
        """Return zeros: among the boxes of known classes none is called unknown."""
        return torch.zeros(len(rows.logits), dtype=torch.float64)


def _check_boxes(n_boxes: int, detector: Detector, truth: BoxTruth, what: str, name: str) -> None:
    if not n_boxes:
        raise InvalidDataError(
            f"No box of {detector.name} reaches {what} in the {truth.n_images} known images of "
            f"{name}, so there is nothing to score. Lower it, or check the detector and its "
            f"preprocessing."
        )


def _with_true_classes(
    rows: ClassifierOutputs, dataset: Dataset, outputs: DetectorOutputs, is_kept: np.ndarray
) -> ClassifierOutputs:
    truth = truth_of(dataset).for_images(outputs.detections.image_ids)
    labels, is_hit = true_labels(align_classes(truth, outputs.detections)[is_kept], truth)
    return replace(rows, labels=torch.from_numpy(labels).long())[torch.from_numpy(is_hit)]


def truth_of(dataset: Dataset) -> BoxTruth:
    """Return the annotated boxes of a data set; raise if it has none."""
    if not isinstance(dataset, BoxDataset):
        raise InvalidDataError(
            f"Expected annotated boxes, but {dataset.name} has none. Use a detection benchmark."
        )
    return dataset.truth()


@dataclass(eq=False)
class DetectorTask:
    """Evaluates methods on the boxes of a detector.

    Args:
        detector: The detector.
        benchmark: A detection benchmark.
        log: Runs the extraction.
        confidence_policy: How t* is chosen.
        score_policy: How tau is chosen.
    """

    detector: Detector
    benchmark: Benchmark
    log: ExtractionLog
    confidence_policy: ConfidencePolicy
    score_policy: ScorePolicy
    thresholded: dict[MethodKey, ThresholdedScores] = field(default_factory=dict)
    _extractor: DetectorExtractor | None = None
    _layers: bool = False

    row: ClassVar[Literal["image", "box"]] = "box"

    def capabilities(self) -> Capabilities:
        """Return what the detector and the benchmark provide to methods."""
        layers = tuple(self.detector.layers)
        is_recorded = isinstance(self.detector, RecordedModel)
        available = Needs.LOGITS if getattr(self.detector, "has_logits", True) else Needs(0)
        available |= Needs.HEAD if self.detector.heads else Needs(0)
        available |= Needs.FEATURES if gives_features(self.detector) else Needs(0)
        for need, prefix in ((Needs.LATENT, "latent/"), (Needs.SHORTCUTS, "shortcut/")):
            available |= need if any(name.startswith(prefix) for name in layers) else Needs(0)
        return Capabilities.of_benchmark(
            available,
            self.benchmark,
            head_reason=self.detector.head_reason,
            n_layers=len(layers),
            rows_are_boxes=True,
            is_recorded=is_recorded,
        )

    def fit_per_head(self, selected: SelectedMethods) -> SelectedMethods:
        """Fit methods that use a head, or features of one, once per head of the detector."""
        n_heads, is_shared = len(self.detector.heads), self.detector.shares_features
        methods = {
            name: for_heads(method, n_heads, shares_features=is_shared)
            for name, method in selected.methods.items()
        }
        return replace(selected, methods=methods)

    def add_own_labels(self, selected: SelectedMethods) -> SelectedMethods:
        """Add what an open-set detector calls unknown itself, beside the methods."""
        if not isinstance(self.detector, KnownClasses):
            return selected
        return replace(selected, methods={OWN_LABEL: OwnLabel(), **selected.methods})

    def identity(self, settings: Settings) -> dict[str, Any]:
        """Return what the numbers depend on: the detector, its box filter, both policies."""
        identity = identity_of_detector(self.detector)  # complete, as in the key of its outputs
        return identity | {
            "model": self.detector.name,
            "weights": identity["weights_hash"][:16],
            "head": str(self.detector.head_kind),
            "confidence_policy": str(self.confidence_policy),
            "score_policy": str(self.score_policy),
            "batch_size": settings.batch_size or DETECTOR_LAYOUT.batch_size,
        }

    def extractor(self, methods: Mapping[str, Method], on_step: OnStep | None) -> DetectorExtractor:
        """Choose t* and return the source of the boxes above it."""
        if on_step is not None:
            on_step("choosing the confidence threshold t*")
        self._layers = needs_layers(methods.values())
        self._extractor = choose_confidence_threshold(
            self.detector, self.benchmark, self.confidence_policy, self.log, layers=self._layers
        )
        return self._extractor

    def measure(
        self, scored: ScoredMethods, stored: Stored, options: Options, on_step: OnStep | None
    ) -> Measurements:
        """Choose tau for every new method and measure it; stored results are complete already."""
        methods: dict[MethodKey, MethodMeasurement] = {}
        objects = None
        if self._extractor is not None and scored.fitted:
            self._choose_tau(scored, self._extractor)
            sets = list(self._extractor.sets.values())
            objects = object_frame(sets)
            weights = draw_sets(sets, n_resamples=options.n_resamples, seed=options.seed)
            shared = measure_detector(sets, weights) if scored.fitted else {}
            for key, fitted in scored.fitted.items():
                if on_step is not None:
                    on_step(f"measuring {key}")
                thresholded = self.thresholded[key]
                if isinstance(fitted.method, OwnLabel):
                    threshold = self._extractor.threshold
                    measures = shared | measure_own_labels(sets, threshold, weights)
                else:
                    measures = shared | measure_method(sets, thresholded, weights)
                methods[key] = self._measurement(fitted, thresholded, measures, sets)
        boxes = {str(key): frame for key, (_, frame) in stored.items()}
        boxes |= {str(key): measured.frame for key, measured in methods.items()}
        return Measurements(
            methods,
            groups=self._groups(),
            notes=self._doubts(),
            boxes=boxes,
            objects=objects,
        )

    def _doubts(self) -> tuple[str, ...]:
        """Return notes on numbers that are not plausible."""
        if self._extractor is None:
            return ()
        n_rows: Counter[str] = Counter()
        for seen in self._extractor.sets.values():
            if seen.group not in (KNOWN, SHIFTED, MIXED):
                n_rows.update({seen.group: int(seen.is_kept.sum())})
        return (*check_class_images(self.benchmark), *check_rows(n_rows, self.row))

    def _choose_tau(self, scored: ScoredMethods, extractor: DetectorExtractor) -> None:
        """Choose tau for every method; a method for which it cannot be chosen fails."""
        parts = {f"{extractor.chosen_on} for tau": extractor.rows_for_tau()}
        if (unknown_rows := self._unknown_rows(extractor)) is not None:
            parts[f"{UNKNOWN_VALIDATION} for tau"] = unknown_rows
        for name, part in parts.items():
            scored.shared.add(name, part)

        def choose(key: MethodKey, fitted: FittedMethod) -> None:
            known, *others = [_scores(fitted, name, part) for name, part in parts.items()]
            unknown = others[0] if others else None
            tau, gaussian = self.score_policy.fit(known, unknown), KnownGaussian().fit(known)
            above = {
                seen.name: fitted.scores[seen.name][seen.is_kept]
                if seen.group == MIXED
                else fitted.scores[seen.name]
                for seen in extractor.sets.values()
            }
            self.thresholded[key] = ThresholdedScores(above, tau, gaussian, fitted.scores)

        for key, fitted in list(scored.fitted.items()):
            scored.guard(key, partial(choose, key, fitted), reads=list(parts))

    def _unknown_rows(self, extractor: DetectorExtractor) -> ClassifierOutputs | None:
        """Return unknown validation boxes, for the one policy that uses them."""
        dataset = self.benchmark.unknown_validation
        if dataset is None or not isinstance(self.score_policy, HarmonicMean):
            return None
        return extractor.unknown_rows(dataset, layers=self._layers)

    def _measurement(
        self,
        fitted: FittedMethod,
        thresholded: ThresholdedScores,
        measures: Measures,
        sets: Sequence[DetectedSet],
    ) -> MethodMeasurement:
        assert self._extractor is not None
        scores, tau = thresholded.scores, thresholded.tau
        is_called_unknown = {seen.name: tau.is_unknown(scores[seen.name]) for seen in sets}
        if isinstance(fitted.method, OwnLabel):
            sets = [labelled_set(seen, self._extractor.threshold) for seen in sets]
            is_called_unknown = {seen.name: called_unknown(seen.kept) for seen in sets}
            # a decision in the place of a score
            scores = {name: called.astype(np.float64) for name, called in is_called_unknown.items()}
        chosen_on = {"chosen on": self._extractor.chosen_on}
        return MethodMeasurement(
            results=tuple(
                Result.from_value(metric, convention, split=split, value=value)
                for (metric, convention, split), value in measures.items()
            ),
            frame=box_frame(sets, scores, is_called_unknown),
            cost=fitted.cost(),
            thresholds={
                "t*": _describe_confidence(self._extractor.threshold) | chosen_on,
                "tau": _describe_score(tau) | chosen_on,
                "tau of fmiyc": _describe_score(thresholded.gaussian) | chosen_on,
            },
            values=measures,
        )

    def notes(self, fitted: FittedMethod, options: Options) -> list[str]:
        """Return notes on the method, the detector and the thresholds."""
        method = fitted.method
        notes = [note] if (note := str(getattr(method, "notes_", ""))) else []
        if remark := getattr(self.detector, "note", None):  # of `SelectedClasses`
            notes.append(remark)
        if options.search and isinstance(method, PerHead) and method.scorer.search_space:
            notes.append(
                f"{method.title} is fitted for each head of the detector separately, and its "
                f"parameters are not searched"
            )
        if self.benchmark.validation is None:
            notes.append(
                "there is no known validation set: both thresholds are chosen on the known test "
                "images, as in the paper"
            )
        return notes

    def used_data(self, method: Method) -> dict[str, list[str]]:
        """Return the data that the thresholds are chosen on, by field of the disclosure."""
        known = TEST if self.benchmark.validation is None else VALIDATION
        is_fixed = {
            "t*": isinstance(self.confidence_policy, FixedConfidence),
            "tau": isinstance(self.score_policy, Fixed) or isinstance(method, OwnLabel),
            "tau of fmiyc": isinstance(method, OwnLabel),
        }
        chosen = [name for name, fixed in is_fixed.items() if not fixed]
        used = {CALIBRATION: [f"known {known} images ({', '.join(chosen)})"]} if chosen else {}
        if isinstance(self.score_policy, HarmonicMean) and "tau" in chosen:
            unknown = f"{UNKNOWN_VALIDATION} images (tau)"
            return {CALIBRATION: [*used[CALIBRATION], unknown], UNKNOWN_LABELS: [unknown]}
        return used

    def finish(
        self, evaluation: Evaluation, measurements: Measurements, best_result: Path | None
    ) -> tuple[list[str], dict[str, Any]]:
        """Draw the sets as the best method sees them, if its boxes are at hand."""
        if best_result is None:
            return [], {"pictures": None}
        folder, best = picture_folder(best_result), evaluation.results[0].title
        notes: list[str] = []
        run = self.detector.inner if isinstance(self.detector, KnownClasses) else self.detector
        has_images = not isinstance(run, StoredDetector)
        if self._extractor is not None and best in self.thresholded and has_images:
            sets, thresholded = self._extractor.sets, self.thresholded[best]
            notes = draw_pictures(self.benchmark, sets, thresholded, best, folder)
        return notes, {"pictures": str(folder) if folder.is_dir() else None}

    def _groups(self) -> tuple[Split, ...]:
        groups = dict.fromkeys(group for group, _, _ in test_sets(self.benchmark))
        return tuple(Split(group) for group in groups if group not in (KNOWN, SHIFTED, MIXED))


def _scores(fitted: FittedMethod, name: str, rows: ClassifierOutputs) -> np.ndarray:
    with torch.no_grad():
        return fitted.checked(name, fitted.method.score(rows.alias()))


def _describe_confidence(threshold: ConfidenceThreshold) -> dict[str, Any]:
    values = [None if np.isinf(value) else float(value) for value in threshold.per_class]
    left_out = list(threshold.metadata.get("without_threshold", ()))
    return {"policy": threshold.policy, "per class": values, "without threshold": left_out}


def _describe_score(threshold: UnknownThreshold) -> dict[str, Any]:
    return {"policy": threshold.policy, "value": threshold.value} | dict(threshold.metadata)
