"""New methods for a finished run, scored from its stored outputs: no model, no images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from incognita.benchmarks.benchmark import ACCEPTED, KNOWN, MIXED, SHIFTED, Benchmark
from incognita.benchmarks.load import fitting_sets, test_sets
from incognita.containers import Dataset, ExtraOutput, Needs
from incognita.decisions.parse import confidence_policy, score_policy
from incognita.errors import IncognitaError, InvalidDataError, MissingDataError
from incognita.evaluation.classifier import ClassifierTask
from incognita.evaluation.detector import DetectorTask
from incognita.evaluation.evaluator import EvaluationPlan, Evaluator, Options
from incognita.evaluation.finished_runs import find_runs, load_record, load_run, save_run
from incognita.evaluation.fit_and_score import (
    POOLED,
    ExtractionLog,
    MethodRunner,
    OnStep,
    Progress,
)
from incognita.evaluation.select_methods import Methods, SelectedMethods, select_methods
from incognita.extraction.extract import ExtractionJob, task_of
from incognita.extraction.settings import OutputRequest, Settings
from incognita.extraction.store import OutputStore
from incognita.extraction.stored_sets import (
    StoredClassifier,
    StoredSet,
    describe_model,
    load_images,
    load_model_record,
)
from incognita.files import load_json
from incognita.formats.recorded_outputs import Arrays, load_arrays
from incognita.methods.method import Method
from incognita.methods.parse import parse_method
from incognita.metrics.measure import MetricValue
from incognita.models.detector import known_classes
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import MethodKey, MethodResult
from incognita.results.result import Split
from incognita.results.store import ResultStore

_AGAIN = "run the benchmark again with the model"


def describe_run(
    benchmark: Benchmark,
    models: Sequence[Any],
    model_notes: Sequence[str] = (),
    *,
    open_set: bool = False,
) -> tuple[dict[str, Any], Arrays]:
    """Return what `rescore` needs beside the store: a JSON object, and the heads of the models.

    Args:
        benchmark: The benchmark.
        models: The models as they were run.
        model_notes: Notes on their preprocessing.
        open_set: Whether the last class of a detector is that of what it calls unknown itself.
    """
    tested = [[group, name, d.fingerprint()] for group, name, d in test_sets(benchmark)]
    fitting = {name: d.fingerprint() for name, d in fitting_sets(benchmark).items() if d}
    described = [describe_model(model) for model in models]
    record = {
        "title": benchmark.title,
        "notes": list(benchmark.notes),
        "absent": dict(benchmark.metadata.get("absent", {})),
        "model_notes": list(model_notes),
        "full_spectrum": benchmark.full_spectrum,
        "task": benchmark.task,
        "open_set": open_set,
        "fitting_sets": fitting,
        "test_sets": tested,
        "models": [
            {"record": record, "identity": task_of(model).identity()}
            for model, (record, _) in zip(models, described, strict=True)
        ],
    }
    return record, {
        f"{k}/{n}": a for k, (_, heads) in enumerate(described) for n, a in heads.items()
    }


def rescore(
    run: str | Path,
    methods: Methods,
    *,
    store: str | Path | None = None,
    on_progress: Progress | None = None,
    on_step: OnStep | None = None,
) -> Evaluation:
    """Score further methods of a finished run from its stored outputs, and add them to the run.

    The numbers are those of a run with the model and these methods.

    Args:
        run: The `--out` folder of a run, or one of its results; of several runs the newest.
        methods: `all`, names, or methods; see `evaluate`.
        store: The folder with the outputs; by default `outputs` in the folder of the run.
        on_progress: Called with a data set's name, images done, images in total.
        on_step: Called with a description of each step.
    """
    path = find_runs(Path(run))[0]
    record = load_record(path)
    root = path.parents[3] / "outputs" if store is None else Path(store)
    stored = StoredRun.load(path, record, OutputStore(root))
    log = ExtractionLog(stored.settings, stored.store, on_progress)
    task, facts = stored.task(log), stored.facts
    selected = select_methods(methods, replace(task.capabilities(), unstored=stored.missing_for))
    selected = _for_detector(task, selected)
    options = Options.from_identity(facts)
    results = ResultStore(path.parents[2])
    stated, request = _stated_before(path, record)
    plan = EvaluationPlan(
        stored.benchmark, selected, options, log, results, facts.get("name"), stated, request
    )
    evaluation = Evaluator(plan, task).run(on_step)
    scoring = record["scoring"], stored.heads
    return load_run(save_run(results, evaluation, scoring=scoring, **record["bootstrap"]))


def _stated_before(
    run: Path, record: Mapping[str, Any]
) -> tuple[Mapping[str, str], Mapping[str, Any]]:
    """Return what users of the run have disclosed and asked for, from one of its results."""
    first = MethodResult.from_json(load_json(run.parent / next(iter(record["files"].values()))))
    return first.provenance.get("stated", {}), first.provenance.get("request", {})


def _for_detector(
    task: ClassifierTask | DetectorTask, selected: SelectedMethods
) -> SelectedMethods:
    """Fit methods per head of a detector, and add its own labels, as `evaluate` does."""
    if not isinstance(task, DetectorTask):
        return selected
    return task.add_own_labels(task.fit_per_head(selected))


def recompute(
    run: Path,
    record: Mapping[str, Any],
    results: Sequence[MethodResult],
    *,
    store: str | Path | None = None,
) -> Evaluation | None:
    """Score methods of a finished run again from its stored outputs; nothing is written.

    Methods that are not part of incognita are left out; None without others. A tuned method is
    run with the parameters that were chosen, under the title of its result.
    """
    stored = _load(run, record, store)
    log = ExtractionLog(stored.settings, stored.store)
    task = stored.task(log)
    selected = _again(results, task, stored)
    if selected is None:
        return None
    options = Options.from_identity(stored.facts)
    return Evaluator(EvaluationPlan(stored.benchmark, selected, options, log), task).run()


def recompute_values(
    run: Path,
    record: Mapping[str, Any],
    result: MethodResult,
    *,
    store: str | Path | None = None,
    seed: int,
    n_resamples: int,
) -> Mapping[tuple[str, str, Split], MetricValue]:
    """Measure a method of a detector's run again, with replicates drawn by another seed."""
    stored = _load(run, record, store)
    task = stored.task(ExtractionLog(stored.settings, stored.store))
    selected = _again([result], task, stored)
    if selected is None:
        raise InvalidDataError(f"{result.title} is not a method of incognita.")
    methods = selected.methods
    runner = MethodRunner(stored.benchmark, task.extractor(methods, None), methods)
    options = Options(seed=seed, n_resamples=n_resamples)
    measured = task.measure(runner.run(), {}, options, None).methods
    if result.title not in measured:
        raise InvalidDataError(f"{result.title} failed when it was scored again.")
    return measured[MethodKey(result.title)].values


def _load(run: Path, record: Mapping[str, Any], store: str | Path | None) -> "StoredRun":
    root = run.parents[3] / "outputs" if store is None else Path(store)
    return StoredRun.load(run, record, OutputStore(root))


def _again(
    results: Sequence[MethodResult], task: ClassifierTask | DetectorTask, stored: "StoredRun"
) -> SelectedMethods | None:
    """Return the methods behind results as they were run, or None if none is of incognita."""
    built = {str(r.title): _rebuilt(r) for r in results}
    methods = {title: method for title, method in built.items() if method is not None}
    if not methods and stored.open_set:
        methods = {"msp": parse_method("msp")}  # so that its own labels are measured
    return _for_detector(task, SelectedMethods(methods, {})) if methods else None


def _rebuilt(result: MethodResult) -> Method | None:
    """Return a method with the parameters of its result; None unless it is part of incognita."""
    if not _is_ours(result.method):
        return None
    method = parse_method(result.method)
    if not result.title.tuned:
        return method
    chosen = {name: result.parameters.get(name) for name in method.parameters()}
    return replace(method, **{k: tuple(v) if isinstance(v, list) else v for k, v in chosen.items()})


def _is_ours(name: str) -> bool:
    if ".py:" in name:
        return False
    try:
        parse_method(name)
    except IncognitaError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run with stand-ins for its models and its data sets.

    Args:
        facts: What its numbers depend on.
        benchmark: Its data sets, without images.
        models: Its models, which cannot be run.
        heads: Their heads, as the run keeps them.
        store: Where the outputs are.
        settings: How the models were run.
        model_notes: Notes on their preprocessing.
        open_set: Whether the last class of the detector is that of what it calls unknown itself.
    """

    facts: Mapping[str, Any]
    benchmark: Benchmark
    models: tuple[Any, ...]  # each a `StoredClassifier`
    heads: Arrays
    store: OutputStore
    settings: Settings
    model_notes: tuple[str, ...] = ()
    open_set: bool = False
    _found: dict[tuple[str, str], bool] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, record: Mapping[str, Any], store: OutputStore) -> "StoredRun":
        """Load the record of a run; raise where its outputs cannot be scored again."""
        scoring, facts = record.get("scoring"), record["metadata"]
        if not scoring:
            raise MissingDataError(
                f"{path} does not tell how to score its outputs again: an earlier version wrote "
                f"it, or its outputs are files of --outputs or --detections. Run the benchmark "
                f"again: incognita reproduce compares every number."
            )
        if not store.root.is_dir():
            raise MissingDataError(
                f"There is no output store {store.root}. Name the one of this run with --store, or "
                f"{_AGAIN}."
            )
        try:
            settings = Settings(facts["batch_size"], facts.get("precision", "float32"))
            heads = load_arrays(path.with_suffix(".npz"))
            models = _models(scoring["models"], heads)
            benchmark = _benchmark(scoring, facts, _Sets(models[0], settings, store))
            notes = tuple(scoring["model_notes"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidDataError):
                raise
            raise InvalidDataError(f"{path} is not the record of a run ({error}).") from error
        is_open = bool(scoring.get("open_set", False))
        run = cls(facts, benchmark, models, heads, store, settings, notes, is_open)
        run._check_tested()
        return run

    def task(self, log: ExtractionLog) -> ClassifierTask | DetectorTask:
        """Return the evaluation of the models, as they were."""
        if self.benchmark.task == "classification":
            return ClassifierTask(self.models, self.benchmark, log, self.model_notes)
        policies = (
            confidence_policy(self.facts["confidence_policy"]),
            score_policy(self.facts["score_policy"]),
        )
        detector: Any = self.models[0]
        if self.open_set:
            detector = known_classes(detector)
        return DetectorTask(detector, self.benchmark, log, *policies)

    def missing_for(self, method: Method) -> str | None:
        """Return which outputs a method needs that the store does not hold, or None."""
        fitting = {name: d for name, d in self._fitting().items() if self._fits_on(method, name)}
        tested = {name: dataset for _, name, dataset in test_sets(self.benchmark)}
        for name, dataset in (fitting | tested).items():
            if not self.holds(name, dataset):
                return f"the outputs of {name}, which {self.store.root} does not hold; {_AGAIN}"
            parts = _parts(name, has_validation=self.benchmark.validation is not None)
            extra_outputs = (
                method.extra_outputs()
                if name in tested
                else [e for part in parts for e in method.extra_outputs_to_fit(part)]
            )
            if not all(self.holds(name, dataset, extra) for extra in extra_outputs):
                return f"gradients or maps that {self.store.root} does not hold; {_AGAIN}"
        return self._missing_layers(tested) if POOLED & method.all_needs else None

    def holds(
        self, name: str, dataset: Dataset, extra: ExtraOutput | None = None, *, layers: bool = False
    ) -> bool:
        """Whether the store holds the outputs of a set, or its layers or an extra output."""
        is_plain = extra is None and not layers
        request = OutputRequest(is_plain, layers, () if extra is None else (extra,))
        key = (name, ",".join(request))
        if key not in self._found:
            models = self.models if is_plain else self.models[:1]
            self._found[key] = all(
                ExtractionJob(task_of(model), dataset, request, self.settings).is_stored(self.store)
                for model in models
            )
        return self._found[key]

    def _missing_layers(self, tested: dict[str, Dataset]) -> str | None:
        """Check all sets: layers are recorded for every set of a run, or for none."""
        for name, dataset in (self._fitting() | tested).items():
            if self.holds(name, dataset) and not self.holds(name, dataset, layers=True):
                return f"inner layers, which {self.store.root} does not hold; {_AGAIN}"
        return None

    def _fitting(self) -> dict[str, Dataset]:
        return {name: d for name, d in fitting_sets(self.benchmark).items() if d is not None}

    def _fits_on(self, method: Method, name: str) -> bool:
        has_validation = self.benchmark.validation is not None
        needs = {
            "train": Needs.KNOWN if has_validation else Needs.KNOWN | Needs.VALIDATION,
            "validation": Needs.VALIDATION,
        }
        return bool(needs.get(name, Needs(0)) & method.all_needs)

    def _check_tested(self) -> None:
        """Raise unless the store holds the outputs that every method needs."""
        sets = {name: dataset for _, name, dataset in test_sets(self.benchmark)}
        if self.benchmark.task == "detection" and self.benchmark.validation is not None:
            sets["validation"] = self.benchmark.validation  # t* is chosen on it
        for name, dataset in sets.items():
            if not self.holds(name, dataset):
                raise MissingDataError(
                    f"{self.store.root} does not hold all outputs of {name}: they were pruned, "
                    f"moved or never completed. Name another store with --store, or {_AGAIN}."
                )


def _parts(name: str, *, has_validation: bool) -> list[str]:
    """Return the parts that a set is to a method; training images may stand for validation."""
    own = {"train": ["known"], "validation": ["validation"]}.get(name, [])
    return own if has_validation else [*own, "validation"]


@dataclass(frozen=True, eq=False)
class _Sets:
    """Loads data sets as the store remembers them."""

    model: Any
    settings: Settings
    store: OutputStore

    def load(self, name: str, fingerprint: str) -> StoredSet:
        job = ExtractionJob(
            task_of(self.model), StoredSet(name, fingerprint), OutputRequest(), self.settings
        )
        return load_images(job.folder(self.store), name, fingerprint)


def _models(records: Sequence[Any], heads: Arrays) -> tuple[StoredClassifier, ...]:
    own = [
        {n.removeprefix(f"{k}/"): a for n, a in heads.items() if n.startswith(f"{k}/")}
        for k in range(len(records))
    ]
    return tuple(
        load_model_record(saved["record"], saved["identity"], arrays)
        for saved, arrays in zip(records, own, strict=True)
    )


def _benchmark(scoring: Mapping[str, Any], facts: Mapping[str, Any], sets: _Sets) -> Benchmark:
    groups: dict[str, dict[str, Dataset]] = {}
    for group, name, fingerprint in scoring["test_sets"]:
        groups.setdefault(group, {})[name] = sets.load(name, fingerprint)
    fitting = {name: sets.load(name, print_) for name, print_ in scoring["fitting_sets"].items()}
    (test,) = groups.pop(KNOWN).values()
    return Benchmark(
        name=facts["benchmark"],
        version=facts["version"],
        title=scoring["title"],
        classes=facts["classes"],
        test=test,
        shifted=groups.pop(SHIFTED, {}),
        accepted=groups.pop(ACCEPTED, {}),
        mixed=groups.pop(MIXED, {}),
        unknown=groups,
        train=fitting.get("train"),
        validation=fitting.get("validation"),
        unknown_validation=fitting.get("unknown validation"),
        task=scoring["task"],
        full_spectrum=scoring["full_spectrum"],
        notes=tuple(scoring["notes"]),
        metadata={"absent": scoring["absent"]},
    )
