"""The one evaluator: what is stored, what is pending, and the record of every method.

What differs between classifiers and detectors is in a `Task`: where rows come from, and how they
are measured.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from incognita._version import __version__
from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.load import fitting_sets, test_sets
from incognita.containers.needs import Needs
from incognita.errors import IncognitaError, InvalidDataError
from incognita.evaluation.fit_and_score import (
    ExtractionLog,
    Extractor,
    FittedMethod,
    MethodRunner,
    OnStep,
    ScoredMethods,
)
from incognita.evaluation.select_methods import SelectedMethods
from incognita.extraction.settings import Settings
from incognita.methods import METHODS, load_method
from incognita.methods.method import Method, family_of
from incognita.methods.per_head import PerHead
from incognita.metrics.measure import MetricValue
from incognita.models.fingerprints import describe_source
from incognita.results.disclosure import CALIBRATION, TUNING, UNKNOWN_LABELS, disclose
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import Cost, MethodKey, MethodResult
from incognita.results.result import Result, Split, interval_notes
from incognita.results.score_tables import Measured, ScoredSet, Scores, as_utf8
from incognita.results.store import ResultStore

if TYPE_CHECKING:
    import polars

Stored = dict[MethodKey, tuple[MethodResult, "polars.DataFrame"]]


@dataclass(frozen=True)
class Options:
    """Options that change the numbers, beside model, benchmark and methods."""

    search: bool = False
    limit: int | None = None
    seed: int = 0
    n_resamples: int = 200
    training: str | None = None
    training_seed: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return the options as part of an identity; how a model was trained only if stated."""
        trained = {"training": self.training, "training_seed": self.training_seed}
        return {
            "limit": self.limit,
            "seed": self.seed,
            "resamples": self.n_resamples,
            **{name: value for name, value in trained.items() if value is not None},
        }

    @classmethod
    def from_identity(cls, identity: Mapping[str, Any]) -> "Options":
        """Return the options of a finished run, which searches nothing again."""
        return cls(
            False,
            identity["limit"],
            identity["seed"],
            identity["resamples"],
            identity.get("training"),
            identity.get("training_seed"),
        )


@dataclass(frozen=True, eq=False)
class EvaluationPlan:
    """The methods to run on a benchmark, and the results that are stored already.

    Args:
        benchmark: The benchmark.
        selected: The methods.
        options: Search, limit, seed, resamples.
        log: Settings and cost of the extraction.
        results: The result store, if there is one.
        name: What the model is called in tables and results; it changes no number.
        stated: What users disclose, by field; it changes no number either.
        request: What the run was asked for, so that it can be repeated.
    """

    benchmark: Benchmark
    selected: SelectedMethods
    options: Options
    log: ExtractionLog
    results: ResultStore | None = None
    name: str | None = None
    stated: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)

    def is_searched(self, method: Method) -> bool:
        """Whether a second version of a method runs, with searched parameters."""
        return self.options.search and bool(method.search_space)

    def keys(self, name: str) -> list[MethodKey]:
        """Return the keys of the results that a method will have."""
        is_searched = self.is_searched(self.selected.methods[name])
        return [MethodKey(name), MethodKey(name, tuned=True)] if is_searched else [MethodKey(name)]

    def pending(self, stored: Iterable[str]) -> dict[str, Method]:
        """Return the methods without a stored result."""
        found, methods = set(stored), self.selected.methods
        return {name: m for name, m in methods.items() if not found.issuperset(self.keys(name))}

    def shared_identity(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the results of all methods depend on: the model, the data, the options."""
        datasets = {name: d for name, d in fitting_sets(self.benchmark).items() if d is not None}
        datasets |= {f"{group}/{name}": d for group, name, d in test_sets(self.benchmark)}
        return {
            "benchmark": self.benchmark.name,
            "version": self.benchmark.version,
            "data": {name: dataset.fingerprint()[:16] for name, dataset in datasets.items()},
            "classes": list(self.benchmark.classes),
            **model,
            **self.options.identity(),
        }

    def identity(self, shared: Mapping[str, Any], key: MethodKey) -> dict[str, Any]:
        """Return what one result depends on."""
        method = self.selected.methods[key.name]
        return dict(shared) | {
            "method": key.name,
            "choice": "tuned" if key.tuned else "given",
            "parameters": describe(method),
            "code": code_version(method),
        }

    def stored(self, shared: Mapping[str, Any]) -> Stored:
        """Load the results that are stored already."""
        found: Stored = {}
        for key in [key for name in self.selected.methods for key in self.keys(name)]:
            result = self.results and self.results.find(self.identity(shared, key))
            if result:
                found[key] = result
        return found

    def failed_images(self, stored: Iterable[MethodResult]) -> tuple[tuple[str, str, str], ...]:
        """Return the images that failed now or in a stored result, each once."""
        now = [
            (name, as_utf8(str(image.image_id)), image.reason)
            for name, image in self.log.failed_images
        ]
        before = [image for record in stored for image in record.failed_images]
        return tuple({image[:2]: image for image in [*before, *now]}.values())

    def metadata(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was evaluated, and what it cost."""
        definition = self.benchmark.metadata.get("definition_hash")
        return dict(shared) | {
            "title": self.benchmark.title,
            **({} if definition is None else {"definition_hash": definition}),
            "absent": dict(self.benchmark.metadata.get("absent", {})),
            "passes": self.log.count._asdict(),
            "output_bytes": self.log.n_bytes,
            **self.named(),
        }

    def named(self) -> dict[str, str]:
        """Return the name that users gave the model, if they did."""
        return {} if self.name is None else {"name": self.name}


@dataclass(frozen=True, eq=False)
class MethodMeasurement:
    """The numbers of one method, its cost, and the table of its scores.

    `values` are the numbers of a detector with their replicates, by metric, convention and split.
    """

    results: tuple[Result, ...]
    frame: "polars.DataFrame"
    cost: Cost
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[tuple[str, str, Split], MetricValue] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Measurements:
    """The numbers of a run, and what an `Evaluation` shows beside them."""

    methods: Mapping[MethodKey, MethodMeasurement] = field(default_factory=dict)
    groups: tuple[Split, ...] = ()
    measured: Mapping[str, Measured] = field(default_factory=dict)
    sets: tuple[ScoredSet, ...] = ()
    scores: Mapping[str, Scores] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    boxes: Mapping[str, "polars.DataFrame"] = field(default_factory=dict)
    objects: "polars.DataFrame | None" = None


@runtime_checkable
class Task(Protocol):
    """What differs between the evaluation of a classifier and of a detector."""

    @property
    def row(self) -> Literal["image", "box"]:
        """What a row is."""

    def identity(self, settings: Settings) -> dict[str, Any]:
        """Return what the numbers depend on beside the data and the options."""

    def extractor(self, methods: Mapping[str, Method], on_step: OnStep | None) -> Extractor:
        """Return the source of rows for methods."""

    def measure(
        self, scored: ScoredMethods, stored: Stored, options: Options, on_step: OnStep | None
    ) -> Measurements:
        """Measure every method that ran."""

    def notes(self, fitted: FittedMethod, options: Options) -> list[str]:
        """Return notes for the record of a method."""

    def used_data(self, method: Method) -> dict[str, list[str]]:
        """Return the data that thresholds are chosen on, by field of the disclosure."""

    def finish(
        self, evaluation: Evaluation, measurements: Measurements, best_result: Path | None
    ) -> tuple[list[str], dict[str, Any]]:
        """Draw what can be drawn beside the best result; return further notes and metadata."""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Runs the pending methods of a plan and combines them with stored results."""

    plan: EvaluationPlan
    task: Task

    def run(self, on_step: OnStep | None = None) -> Evaluation:
        """Evaluate every method."""
        plan, task = self.plan, self.task
        shared = plan.shared_identity(task.identity(plan.log.settings))
        stored = plan.stored(shared)
        scored = self._run(plan.pending(stored), on_step)
        measurements = task.measure(scored, stored, plan.options, on_step)
        records = {key: self._restated(key, *found) for key, found in stored.items()}
        records |= self._save(scored, measurements, shared)
        if not records:
            reasons = "; ".join(f"{name}: {why}" for name, why in scored.failed.items())
            raise InvalidDataError(f"No method could be run. {reasons}")
        return self._evaluation(scored, measurements, records, shared)

    def _run(self, pending: Mapping[str, Method], on_step: OnStep | None) -> ScoredMethods:
        if not pending:
            return ScoredMethods()
        searched = frozenset(name for name, m in pending.items() if self.plan.is_searched(m))
        extractor = self.task.extractor(pending, on_step)
        device = self.plan.log.settings.devices[0]
        runner = MethodRunner(
            self.plan.benchmark, extractor, pending, searched, on_step, device=device
        )
        return runner.run()

    def _save(
        self, scored: ScoredMethods, measurements: Measurements, shared: Mapping[str, Any]
    ) -> dict[MethodKey, MethodResult]:
        """Make the record of every new method, and store it."""
        records = {}
        for key, measurement in measurements.methods.items():
            record = self._record(key, scored, measurement, shared)
            records[key] = replace(record, notes=(*record.notes, *measurements.notes))
            if self.plan.results is not None:
                self.plan.results.save(records[key], measurement.frame)
        return records

    def _record(
        self,
        key: MethodKey,
        scored: ScoredMethods,
        measurement: MethodMeasurement,
        shared: Mapping[str, Any],
    ) -> MethodResult:
        fitted = scored.fitted[key]
        return MethodResult(
            method=key.name,
            parameters=describe(fitted.method),
            results=measurement.results,
            cost=measurement.cost,
            identity=self.plan.identity(shared, key),
            search=scored.searches.get(key),
            provenance=provenance()
            | {"request": dict(self.plan.request), "device": fitted.device}
            | self.plan.named()
            | self._disclosed(key, self.plan.stated),
            notes=(
                *self.plan.benchmark.notes,
                *fitted.notes,
                *self.task.notes(fitted, self.plan.options),
            ),
            failed_images=self.plan.failed_images(()),
            thresholds=measurement.thresholds,
        )

    def _disclosed(self, key: MethodKey, stated: Mapping[str, str]) -> dict[str, Any]:
        """Return the disclosure of a method: what this run has used, and what users state."""
        benchmark, method = self.plan.benchmark, self.plan.selected.methods[key.name]
        used = self.task.used_data(method)
        if Needs.VALIDATION in method.all_needs:
            held_out = "training" if benchmark.validation is None else "validation"
            used.setdefault(CALIBRATION, []).append(f"known {held_out} images (fit)")
        if key.tuned:
            parts = ["known validation images", "unknown validation images"]
            used[TUNING] = parts + ["accepted validation images"] * bool(
                benchmark.accepted_validation
            )
            used.setdefault(UNKNOWN_LABELS, []).append("unknown validation images (parameters)")
        unused = [CALIBRATION, *([TUNING] if _has_default_parameters(key.name, method) else [])]
        kept = {"stated": dict(stated)} if stated else {}
        return {"disclosure": disclose(stated, used, unused), **kept}

    def _restated(
        self, key: MethodKey, record: MethodResult, frame: "polars.DataFrame"
    ) -> MethodResult:
        """Add what users state now to a stored result."""
        before = record.provenance.get("stated", {})
        if self.plan.results is None or not (self.plan.stated.items() - before.items()):
            return record
        disclosed = self._disclosed(key, before | self.plan.stated)
        changed = replace(record, provenance=dict(record.provenance) | disclosed)
        self.plan.results.save(changed, frame)
        return changed

    def _evaluation(
        self,
        scored: ScoredMethods,
        measurements: Measurements,
        records: Mapping[MethodKey, MethodResult],
        shared: Mapping[str, Any],
    ) -> Evaluation:
        plan, families = self.plan, self.plan.selected.methods
        evaluation = Evaluation(
            row=self.task.row,
            methods=dict(records.items()),
            groups=measurements.groups,
            families={
                key: str(getattr(families[key.name], "family", family_of(families[key.name])))
                for key in records
            },
            mixed=tuple(plan.benchmark.mixed),
            measured=measurements.measured,
            sets=measurements.sets,
            scores=measurements.scores,
            boxes=measurements.boxes,
            objects=measurements.objects,
            images={name: dataset for _, name, dataset in test_sets(plan.benchmark)},
            skipped=plan.selected.skipped,
            failed=scored.failed,
            failed_images=plan.failed_images(records.values()),
            notes=tuple(_notes(records.values(), plan.options.n_resamples)),
            metadata=plan.metadata(shared),
        )
        notes, metadata = self.task.finish(evaluation, measurements, self._path(evaluation, shared))
        return replace(
            evaluation,
            notes=tuple(dict.fromkeys([*evaluation.notes, *notes])),
            metadata=dict(evaluation.metadata) | metadata,
        )

    def _path(self, evaluation: Evaluation, shared: Mapping[str, Any]) -> Path | None:
        """Return the file of the best result, beside which pictures are saved."""
        best = evaluation.results[0].title
        results = self.plan.results
        return None if results is None else results.path(self.plan.identity(shared, best))


def _has_default_parameters(name: str, method: Method) -> bool:
    """Whether a method of incognita has the parameters that its bare name stands for."""
    try:
        default = load_method(name)
    except IncognitaError:
        return False
    inner = method.scorer if isinstance(method, PerHead) else method
    is_default = type(inner) is type(default) and describe(inner) == describe(default)
    return is_default and _is_ours(inner)


def _is_ours(method: Method) -> bool:
    """Whether a method and the one it wraps are no plug-ins."""
    scorer = getattr(method, "scorer", None)
    is_ours = type(method).__module__.startswith("incognita.")
    return is_ours and (not isinstance(scorer, Method) or _is_ours(scorer))


def code_version(method: Method) -> str:
    """Return a text that changes with a method's code: our version, or a hash of class and file.

    Of a plug-in it also names the distribution and its version.
    """
    kind, scorer = type(method), getattr(method, "scorer", None)
    if kind.__module__.startswith("incognita."):
        own = f"incognita {__version__}"
    elif (plug_in := METHODS.plug_in_of(kind)) is not None:
        own = f"{plug_in.distribution}, {describe_source(kind, with_file=True)}"
    else:
        own = describe_source(kind)
    return f"{own}, {code_version(scorer)}" if isinstance(scorer, Method) else own


def describe(method: Method) -> dict[str, Any]:
    """Return the parameters of a method and of its scorer for a JSON file."""
    own = {name: _as_json(value) for name, value in method.parameters().items()}
    scorer = getattr(method, "scorer", None)
    if not isinstance(scorer, Method):
        return own
    return own | {"scorer": {scorer.title: describe(scorer)}}


def _as_json(value: Any) -> Any:
    """Convert a value for JSON, so that different values have different texts."""
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, np.generic):
        return _as_json(value.item())
    if isinstance(value, np.ndarray | Tensor):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        data = np.ascontiguousarray(array)
        return f"array {data.dtype} {list(data.shape)} {sha256(data.tobytes()).hexdigest()[:16]}"
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return value if value is None or is_number or isinstance(value, str) else repr(value)


def provenance() -> dict[str, Any]:
    """Return versions, command and time."""
    return {
        "incognita": __version__,
        "torch": version("torch"),
        "numpy": version("numpy"),
        "command": " ".join(sys.argv),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _notes(records: Iterable[MethodResult], n_resamples: int) -> dict[str, None]:
    """Return the notes of all methods, each once, and those on the intervals."""
    records = list(records)
    notes = dict.fromkeys(note for record in records for note in record.notes)
    results = [result for record in records for result in record.results]
    return notes | dict.fromkeys(interval_notes(results, n_resamples))
