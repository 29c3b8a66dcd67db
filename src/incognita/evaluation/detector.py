"""One evaluation of a detector: what is stored already, the contest, thresholds, numbers, records.

Two thresholds, never mixed: t* on the detector's confidence says which boxes are scored at all,
tau on a method's score says which of these are called unknown.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.classes import find_spelling, plain
from incognita.containers.outputs import ClassifierOutputs
from incognita.decisions.thresholds import ConfidenceThreshold, ScorePolicy, UnknownThreshold
from incognita.decisions.unknown_thresholds import HarmonicMean, KnownGaussian
from incognita.errors import InvalidDataError
from incognita.evaluation.classifier import refuse_other_classes
from incognita.evaluation.detector_metrics import (
    Measures,
    ThresholdedScores,
    draw_images,
    measure_detector,
    measure_method,
)
from incognita.evaluation.detector_rows import VALIDATION, DetectorExtractor
from incognita.evaluation.fit_and_score import FittedMethod, MethodRunner, wants_layers
from incognita.evaluation.gallery import draw_pictures, picture_folder
from incognita.evaluation.parts import test_sets
from incognita.evaluation.resume import EvaluationPlan, describe, provenance_of_now
from incognita.evaluation.score_tables import box_frame
from incognita.evaluation.select_methods import Capabilities, SelectedMethods
from incognita.extraction.detector_pass import identity_of_detector
from incognita.extraction.settings import DETECTOR_UNIT
from incognita.methods.method import Method, family_of
from incognita.methods.per_head import PerHead, for_heads
from incognita.models.detector import Detector, gives_features
from incognita.models.load import load_model
from incognita.models.wrap_detector import SelectedClasses, select_classes, wrap_detector
from incognita.results.evaluation import DetectorEvaluation, by_auroc
from incognita.results.method_result import TUNED, MethodResult
from incognita.results.result import Result
from incognita.results.scored_sets import KNOWN, MIXED, SHIFTED

# "class 3", "LABEL_3", "3": what libraries write where nobody named the classes
_NUMBERED = re.compile(r"(class |label[_ ]?)?\d+", re.IGNORECASE)
OneDetector = str | Detector | nn.Module


def load_detector(model: object, benchmark: Benchmark, weights: Path | None = None) -> Detector:
    """Give the detector of an evaluation, with the known classes of the benchmark in its order."""
    named = benchmark.default_model if model is None else model
    if isinstance(named, list | tuple):
        if len(named) != 1:
            raise InvalidDataError(
                f"{benchmark.name} takes one detector, but {len(named)} models came; boxes of "
                f"several detectors cannot be averaged."
            )
        named = named[0]
    if named is None:
        raise InvalidDataError(
            f"{benchmark.name} brings no model along; name one with --model, such as "
            f"file.py:function or torchvision:fasterrcnn_resnet50_fpn."
        )
    detector = _named_alike(_detector(named, benchmark, weights), benchmark)
    refuse_other_classes(detector.name, detector.class_names, benchmark)
    return detector


def _detector(named: object, benchmark: Benchmark, weights: Path | None) -> Detector:
    """Make the detector with the class names it comes with."""
    if not isinstance(named, str) and weights is not None:
        raise InvalidDataError("Weights go with the name of a model, but a loaded one came.")
    if not isinstance(named, str | nn.Module | Detector):
        raise InvalidDataError(
            f"A detector is a torch module, an adapter or a name, but a {type(named).__name__} "
            f"came; wrap it with incognita.wrap_detector."
        )
    detector = _made(named, None, benchmark, weights)
    if _names_nothing(detector) and len(detector.class_names) != len(benchmark.classes):
        # its adapter knows whether some output may go without a name
        return _made(named, benchmark.classes, benchmark, weights)
    return detector


def _named_alike(detector: Detector, benchmark: Benchmark) -> Detector:
    """Give the known classes of a detector as the benchmark orders and spells them, no others."""
    ours = benchmark.classes
    if list(detector.class_names) == list(ours):
        return detector
    if _names_nothing(detector) and len(detector.class_names) == len(ours):
        note = f"{detector.name} names no classes: they are taken in the order of the benchmark"
        return select_classes(detector, ours, range(len(ours)), note=note)
    theirs = [plain(name) for name in detector.class_names]
    for name in ours:
        if theirs.count(plain(name)) != 1:
            raise InvalidDataError(_lacks_class(detector, name, benchmark))
    places = [theirs.index(plain(name)) for name in ours]
    n_others = len(theirs) - len(ours)
    note = f"{n_others} classes of {detector.name} are not known here: their boxes are left out"
    return select_classes(detector, ours, places, note=note if n_others else None)


def _names_nothing(detector: Detector) -> bool:
    """Whether the class names are mere numbers, as of a network that came without any."""
    return all(_NUMBERED.fullmatch(name) for name in detector.class_names)


def _lacks_class(detector: Detector, name: str, benchmark: Benchmark) -> str:
    """Say which class of the benchmark a detector does not have, and what it may call it."""
    n = [plain(each) for each in detector.class_names].count(plain(name))
    if n > 1:
        return f"{detector.name} has {n} classes called {name!r}; give it names that differ."
    spelled = find_spelling(name, detector.class_names)
    guess = f" (its {spelled!r}?)" if spelled else ""
    return (
        f"{detector.name} has no class {name!r} of {benchmark.name}{guess}; give it the names of "
        f"all its classes as the benchmark spells them, by wrap_detector(network, class_names=…)."
    )


def _made(
    named: str | nn.Module | Detector,
    classes: Sequence[str] | None,
    benchmark: Benchmark,
    weights: Path | None,
) -> Detector:
    if isinstance(named, str):
        found = load_model(named, weights=weights, class_names=classes)
        if isinstance(found, Detector):
            return found
        raise InvalidDataError(
            f"{named} is a classifier, but {benchmark.name} is a benchmark for detectors; give a "
            f"detector."
        )
    if isinstance(named, nn.Module):
        return wrap_detector(named, class_names=classes)
    return named


def capabilities_of_detector(detector: Detector, benchmark: Benchmark) -> Capabilities:
    """Say what a detector and the benchmark can give to methods; a row is a box."""
    layers = tuple(detector.layers)
    return Capabilities(
        has_head=bool(detector.heads),
        has_features=gives_features(detector),
        head_reason=detector.head_reason,
        n_layers=len(layers),
        has_latent=any(name.startswith("latent/") for name in layers),
        has_shortcuts=any(name.startswith("shortcut/") for name in layers),
        is_of_boxes=True,
        has_train=benchmark.train is not None,
        has_train_labels=benchmark.train is not None,  # the classes the detector gives itself
        has_validation=benchmark.validation is not None,
        has_validation_labels=benchmark.validation is not None,
    )


def fit_per_head(asked: SelectedMethods, detector: Detector) -> SelectedMethods:
    """Give methods that look at a head, or at features of one, a copy for each of several."""
    n_heads, is_shared = len(detector.heads), detector.shares_features
    methods = {
        name: for_heads(method, n_heads, shares_features=is_shared)
        for name, method in asked.methods.items()
    }
    return replace(asked, methods=methods)


@dataclass(frozen=True, eq=False)
class DetectorEvaluator:
    """Measures a detector with every method asked for; stored results are not made again."""

    inquiry: EvaluationPlan
    score_policy: ScorePolicy
    rows: DetectorExtractor

    def run(self, on_step: Callable[[str], None] | None = None) -> DetectorEvaluation:
        """Do what is missing and put everything together."""
        inquiry = self.inquiry
        shared = inquiry.shared_identity(self._identity_of_model())
        records = {title: record for title, (record, _) in inquiry.stored(shared).items()}
        pending = inquiry.pending(records)
        failed: dict[str, str] = {}
        notes: list[str] = []
        if pending:
            contest = self._contest(pending, on_step)
            decided = self._decided(contest)
            records |= self._measured(contest, decided, shared, on_step)
            failed = contest.failed
            notes = self._draw(records, decided, shared)
        if not records:
            reasons = "; ".join(f"{name}: {why}" for name, why in failed.items())
            raise InvalidDataError(f"No method could be run. {reasons}")
        return DetectorEvaluation(
            methods=records,
            groups=self._groups(),
            mixed=tuple(self.inquiry.benchmark.mixed),
            families={title: self._family(title) for title in records},
            skipped=self.inquiry.asked.skipped,
            failed=failed,
            failed_images=self.inquiry.failed_images(records.values()),
            notes=tuple(
                dict.fromkeys([*(n for each in records.values() for n in each.notes), *notes])
            ),
            metadata=self.inquiry.metadata(shared) | {"pictures": self._pictures(records, shared)},
        )

    def _contest(
        self, pending: Mapping[str, Method], on_step: Callable[[str], None] | None
    ) -> MethodRunner:
        """Choose t*, fit every method on the boxes it keeps, and score every set."""
        tuned = frozenset(name for name, m in pending.items() if self.inquiry.is_searched(m))
        if on_step is not None:
            on_step("choosing the confidence threshold t*")
        self.rows.choose(self.inquiry.benchmark, layers=wants_layers(pending.values()))
        contest = MethodRunner(self.inquiry.benchmark, self.rows, pending, tuned, on_step)
        contest.run()
        return contest

    def _measured(
        self,
        contest: MethodRunner,
        every: Mapping[str, ThresholdedScores],
        shared: Mapping[str, Any],
        on_step: Callable[[str], None] | None,
    ) -> dict[str, MethodResult]:
        sets = list(self.rows.sets.values())
        weights = draw_images(
            sets, n_resamples=self.inquiry.options.n_resamples, seed=self.inquiry.options.seed
        )
        of_detector = measure_detector(sets, weights) if contest.contestants else {}
        records = {}
        for title, decided in every.items():
            if on_step is not None:
                on_step(f"measuring {title}")
            measures = of_detector | measure_method(sets, decided, weights)
            records[title] = self._record(title, contest, decided, shared, measures)
            if self.inquiry.results is not None:
                self.inquiry.results.save(records[title], box_frame(sets, decided))
        return records

    def _draw(
        self,
        records: Mapping[str, MethodResult],
        decided: Mapping[str, ThresholdedScores],
        shared: Mapping[str, Any],
    ) -> list[str]:
        """Draw the sets as the best method of all sees them, if its boxes are at hand."""
        folder, best = self._best_pictures(records, shared)
        if folder is None or best not in decided:
            return []
        return draw_pictures(self.inquiry.benchmark, self.rows.sets, decided[best], best, folder)

    def _best_pictures(
        self, records: Mapping[str, MethodResult], shared: Mapping[str, Any]
    ) -> tuple[Path | None, str]:
        """Say where pictures of the best method belong, and which method that is."""
        if self.inquiry.results is None or not records:
            return None, ""
        best = by_auroc(records, self._groups())[0]
        return picture_folder(self.inquiry.results.path(self.inquiry.identity(shared, best))), best

    def _decided(self, contest: MethodRunner) -> dict[str, ThresholdedScores]:
        """Choose tau for every method; one for which it cannot be chosen leaves the contest."""
        rows = self.rows.rows_to_choose_on()
        decided: dict[str, ThresholdedScores] = {}

        def decide(title: str, contestant: FittedMethod) -> None:
            decided[title] = self._decide(contestant, rows)

        for title, contestant in list(contest.contestants.items()):
            contest.guard(title, partial(decide, title, contestant))
        return decided

    def _decide(self, contestant: FittedMethod, rows: ClassifierOutputs) -> ThresholdedScores:
        """Choose tau for a method on the known boxes that t* was chosen on."""
        with torch.no_grad():
            known = contestant.method.score(rows).cpu().numpy().astype(np.float64)
        unknown = self._unknown_scores(contestant)
        tau, gaussian = self.score_policy.fit(known, unknown), KnownGaussian().fit(known)
        return ThresholdedScores(contestant.scores, tau, gaussian)

    def _unknown_scores(self, contestant: FittedMethod) -> np.ndarray | None:
        """Score unknown validation boxes, for the one policy that looks at them."""
        dataset = self.inquiry.benchmark.unknown_validation
        if dataset is None or not isinstance(self.score_policy, HarmonicMean):
            return None
        layers = wants_layers(
            self.inquiry.asked.methods.values()
        )  # of all: they are extracted once
        rows = self.rows.unknown_rows(dataset, layers=layers)
        with torch.no_grad():
            return contestant.method.score(rows).cpu().numpy().astype(np.float64)

    def _family(self, title: str) -> str:
        return str(family_of(self.inquiry.asked.methods[title.removesuffix(TUNED)]))

    def _groups(self) -> tuple[str, ...]:
        groups = (group for group, _, _ in test_sets(self.inquiry.benchmark))
        return tuple(dict.fromkeys(g for g in groups if g not in (KNOWN, SHIFTED, MIXED)))

    def _identity_of_model(self) -> dict[str, Any]:
        detector, settings = self.rows.detector, self.inquiry.account.settings
        of_detector = identity_of_detector(detector)  # all of it, as in the key of its outputs
        return of_detector | {
            "model": detector.name,
            "weights": of_detector["weights_hash"][:16],
            "head": str(detector.head_kind),
            "confidence_policy": str(self.rows.policy),
            "score_policy": str(self.score_policy),
            "batch_size": settings.batch_size or DETECTOR_UNIT.batch_size,
        }

    def _record(
        self,
        title: str,
        contest: MethodRunner,
        decided: ThresholdedScores,
        shared: Mapping[str, Any],
        measures: Measures,
    ) -> MethodResult:
        contestant = contest.contestants[title]
        return MethodResult(
            method=title.removesuffix(TUNED),
            parameters=describe(contestant.method),
            results=tuple(
                Result.from_measure(metric, convention, split=split, measure=measure)
                for (metric, convention, split), measure in measures.items()
            ),
            cost=contestant.cost(),
            identity=self.inquiry.identity(shared, title),
            search=contest.searches.get(title),
            provenance=provenance_of_now(),
            notes=(*self.inquiry.benchmark.notes, *self._notes(contestant.method)),
            failed_images=self.inquiry.failed_images(()),
            thresholds={
                "t*": _confidence_facts(self.rows.threshold) | {"chosen on": self.rows.chosen_on},
                "tau": _score_facts(decided.tau) | {"chosen on": self.rows.chosen_on},
                "tau of fmiyc": _score_facts(decided.gaussian) | {"chosen on": self.rows.chosen_on},
            },
        )

    def _notes(self, method: Method) -> list[str]:
        """What a reader must know about the thresholds and the method."""
        notes = [note] if (note := str(getattr(method, "notes_", ""))) else []
        if isinstance(self.rows.detector, SelectedClasses) and self.rows.detector.note:
            notes.append(self.rows.detector.note)
        if (
            self.inquiry.options.search
            and isinstance(method, PerHead)
            and method.scorer.search_space
        ):
            notes.append(
                f"{method.title} is fitted for each head of the detector apart, and its "
                f"parameters are not searched"
            )
        if self.rows.chosen_on != VALIDATION:
            notes.append(
                "there is no known validation set: both thresholds are chosen on the known test "
                "images, as in the paper"
            )
        return notes

    def _pictures(
        self, records: Mapping[str, MethodResult], shared: Mapping[str, Any]
    ) -> str | None:
        """Say where the pictures of the best method are, if there are any."""
        folder, _ = self._best_pictures(records, shared)
        return str(folder) if folder is not None and folder.is_dir() else None


def _confidence_facts(threshold: ConfidenceThreshold) -> dict[str, Any]:
    values = [None if np.isinf(each) else float(each) for each in threshold.per_class]
    left_out = list(threshold.metadata.get("without_threshold", ()))
    return {"policy": threshold.policy, "per class": values, "without threshold": left_out}


def _score_facts(threshold: UnknownThreshold) -> dict[str, Any]:
    return {"policy": threshold.policy, "value": threshold.value} | dict(threshold.metadata)
