"""From a model and a benchmark to the ranking of methods: one pass, then arithmetic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.load import check_benchmark, check_file_names, load_benchmark
from incognita.decisions.parse import confidence_policy, score_policy
from incognita.decisions.thresholds import Policy, ScorePolicy
from incognita.decisions.unknown_thresholds import HarmonicMean
from incognita.errors import InvalidDataError
from incognita.evaluation.classifier import ClassifierTask, OneModel, load_classifiers
from incognita.evaluation.detector import DetectorTask, load_detector
from incognita.evaluation.evaluator import EvaluationPlan, Evaluator, Options
from incognita.evaluation.finished_runs import load_objects, load_record, save_run
from incognita.evaluation.fit_and_score import ExtractionLog, Progress
from incognita.evaluation.rescore import describe_run
from incognita.evaluation.select_methods import Methods, SelectedMethods, select_methods
from incognita.extraction.detector_pass import refuse_half_precision
from incognita.extraction.recorded import RecordedModel
from incognita.extraction.settings import Settings
from incognita.extraction.store import OutputStore
from incognita.extraction.stored_outputs import check_space
from incognita.formats.recorded_outputs import OutputsFolder, RecordedBoxes, RecordedImages
from incognita.models.classifier import Classifier
from incognita.models.detector import Detector, KnownClasses
from incognita.models.load import load_classifier
from incognita.models.preprocessing import Preprocessing
from incognita.results.disclosure import check_statements
from incognita.results.evaluation import Evaluation
from incognita.results.store import ResultStore

AnyModel = OneModel | Detector
Threshold = str | int | float | Policy


@dataclass(frozen=True)
class BoxOptions:
    """Options for the boxes of a detector; None keeps the detector's own.

    Args:
        score_threshold: Smallest confidence of a box that is recorded.
        max_per_image: Maximum boxes per image.
        nms_iou: NMS IoU threshold.
        confidence_threshold: How t* is chosen, the smallest confidence of a box that is scored:
            `f1`, `lrp`, or a number.
        unknown_threshold: How tau is chosen, the score above which a box is called unknown:
            `quantile`, `gaussian`, `harmonic-mean` (with unknown validation images), or a number.
    """

    score_threshold: float | None = None
    max_per_image: int | None = None
    nms_iou: float | None = None
    confidence_threshold: Threshold = "f1"
    unknown_threshold: Threshold = "quantile"


def evaluate(
    model: AnyModel | Sequence[AnyModel] | None = None,
    benchmark: str | Path | Benchmark = "terra/standard",
    methods: Methods = "all",
    *,
    weights: str | Path | None = None,
    preprocess: str | Callable[..., Any] | None = None,
    data: str | Path | None = None,
    allow_outside: bool = False,
    search: bool = False,
    limit: int | None = None,
    seed: int = 0,
    n_resamples: int = 200,
    outputs: str | Path | None = None,
    save_outputs: str | Path | None = None,
    embed: str | Classifier | None = None,
    boxes: BoxOptions | None = None,
    name: str | None = None,
    training: str | None = None,
    training_seed: int | None = None,
    disclosure: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    store: str | Path | None = None,
    out: str | Path | None = None,
    on_progress: Progress | None = None,
    on_step: Callable[[str], None] | None = None,
    on_note: Callable[[str], object] | None = None,
) -> Evaluation:
    """Rank methods on a benchmark; every image goes through the network once for all of them.

    Args:
        model: A module, an adapter, or what `--model` takes; several classifiers for an ensemble;
            None for the default model of an embedded benchmark.
        benchmark: The name of a benchmark, a TOML file, or a loaded benchmark.
        methods: `all`, names such as `"msp, react+knn, knn(k=10)"`, or methods.
        weights: A file with weights for a model given by name.
        preprocess: An `incognita.Preprocessing`, its text such as "size=256 crop=224 mean=imagenet
            std=imagenet", "none" for pixels / 255, or a function from a uint8 RGB array to a
            tensor. By default that of the model, else the benchmark's; a note says which.
        data: The folder with the images of the benchmark.
        allow_outside: Whether paths in the files of the benchmark may leave that folder.
        search: Also choose parameters on validation data, and report both.
        limit: Maximum images per set, ten times as many for the training set of a classifier.
        seed: Random seed for the bootstrap and `limit`.
        n_resamples: Bootstrap replicates behind each interval; zero for none.
        outputs: A folder with recorded outputs instead of a model and images; see docs/outputs.md.
        save_outputs: A folder for the outputs in that layout, for others to use.
        embed: A classifier; with outputs of a detector, the features of a box are those of its
            crop in this network.
        boxes: For a detection benchmark: which boxes are kept, and how thresholds are chosen.
        name: What the model is called in tables and results, instead of a name made from its
            class or file. It changes no number, and stored results are found under any name.
        training: How the model was trained, such as `logitnorm`; part of what a result is of.
        training_seed: The seed of that training. Results that differ in it alone are averaged in
            tables, with the standard deviation over runs.
        disclosure: What is known about the data behind the model, by field: `outlier data`,
            `external supervision`, `unknown labels`, `tuning data`, `calibration data`. What the
            run uses itself is added; a field that nobody states is `not stated`.
        settings: Batch size, precision, device, workers.
        store: A folder for outputs, so that an interrupted run can resume.
        out: A folder for results; methods with a stored result are not run again.
        on_progress: Called with a data set's name, images done, images in total.
        on_step: Called with a description of each step.
        on_note: Called with a remark before the run, such as the size of the outputs.
    """
    arguments = dict(locals())
    request = _request(**arguments)
    _check_types(arguments)
    stated = check_statements(disclosure or {})
    _check_folders(store=store, out=out, save_outputs=save_outputs)
    benchmark = open_benchmark(
        benchmark, data=data, limit=limit, seed=seed, outputs=outputs, allow_outside=allow_outside
    )
    if outputs is not None:
        model = recorded_model(model, benchmark, Path(outputs), embed)
    elif embed is not None:
        raise InvalidDataError("`embed` needs boxes from files. Give --detections or outputs.")
    log = extraction_log(settings, store, save_outputs, on_progress)
    path = None if weights is None else Path(weights)
    task = _task(model, benchmark, path, preprocess, boxes, log)
    selected = _select(methods, task)
    check_benchmark(benchmark, searching=search)
    if save_outputs is not None:
        check_file_names(benchmark)
    options = Options(search, limit, seed, n_resamples, training, training_seed)
    results = None if out is None else ResultStore(Path(out))
    plan = EvaluationPlan(benchmark, selected, options, log, results, name, stated, request)
    if log.store is not None and not isinstance(model, RecordedModel):
        check_space(_models(task), benchmark, log.store.root, on_note)
    evaluation = Evaluator(plan, task).run(on_step)
    return evaluation if results is None else _save(evaluation, results, plan, task)


# arguments of `evaluate` that change a number, and are texts or numbers where people type them
_REQUESTED = (
    "benchmark", "model", "weights", "preprocess", "data", "allow_outside", "search", "limit",
    "seed", "n_resamples", "outputs", "embed", "training", "training_seed",
)  # fmt: skip


def _request(
    *, boxes: BoxOptions | None, settings: Settings | None, **given: Any
) -> dict[str, Any]:
    """Return what a run is asked for as JSON has it; `unnamed` are objects made in Python."""
    chosen = {name: given[name] for name in _REQUESTED}
    if isinstance(chosen["model"], str):
        chosen["model"] = [chosen["model"]]
    if isinstance(boxes, BoxOptions):
        chosen |= {f"boxes.{name}": value for name, value in vars(boxes).items()}
    how = settings if isinstance(settings, Settings) else Settings()
    chosen |= {"batch_size": how.batch_size, "precision": how.precision}
    plain = {name: _as_plain(value) for name, value in chosen.items()}
    unnamed = [name for name, value in plain.items() if value is None and chosen[name] is not None]
    return {name: value for name, value in plain.items() if value is not None} | (
        {"unnamed": unnamed} if unnamed else {}
    )


def _as_plain(value: Any) -> Any:
    """Return a value that JSON has, or None."""
    if isinstance(value, PathLike | Policy | Preprocessing):
        return str(value)
    if isinstance(value, list | tuple):
        return list(value) if all(isinstance(item, str) for item in value) else None
    return value if isinstance(value, str | int | float) else None


def open_benchmark(
    benchmark: str | Path | Benchmark,
    *,
    data: str | Path | None,
    limit: int | None,
    seed: int,
    outputs: str | Path | None,
    allow_outside: bool,
) -> Benchmark:
    """Load a benchmark by its name or file; a loaded one cannot be changed any more."""
    if not isinstance(benchmark, Benchmark):
        return load_benchmark(
            benchmark,
            data=data,
            limit=limit,
            seed=seed,
            outputs=outputs,
            allow_outside=allow_outside,
        )
    if limit is not None or data is not None or outputs is not None:
        raise InvalidDataError(
            "`limit`, `data` and `outputs` need a benchmark given by name, got a loaded one. Pass "
            "them to load_benchmark."
        )
    return benchmark


def extraction_log(
    settings: Settings | None,
    store: str | Path | None,
    save_outputs: str | Path | None,
    on_progress: Progress | None,
) -> ExtractionLog:
    """Return what runs the extraction of an evaluation."""
    log_store = None if store is None else OutputStore(Path(store))
    save_to = None if save_outputs is None else Path(save_outputs)
    return ExtractionLog(settings or Settings(), log_store, on_progress, save_to)


def _task(
    model: Any,
    benchmark: Benchmark,
    weights: Path | None,
    preprocess: str | Callable[..., Any] | None,
    boxes: BoxOptions | None,
    log: ExtractionLog,
) -> ClassifierTask | DetectorTask:
    """Load the model of an evaluation as what the benchmark is for."""
    if benchmark.task == "detection":
        _refuse_preprocess(preprocess, benchmark)
        return _detector_task(model, benchmark, weights, boxes or BoxOptions(), log)
    if boxes is not None:
        raise InvalidDataError(
            f"`boxes` needs a detection benchmark, got {benchmark.name} for classifiers."
        )
    networks, notes = load_classifiers(model, benchmark, weights, preprocess)
    if log.save_to is not None and len(networks) > 1:
        raise InvalidDataError("Expected one network to save outputs of, got an ensemble.")
    return ClassifierTask(networks, benchmark, log, notes)


def _select(methods: Methods, task: ClassifierTask | DetectorTask) -> SelectedMethods:
    selected = select_methods(methods, task.capabilities())
    if isinstance(task, DetectorTask):
        return task.add_own_labels(task.fit_per_head(selected))
    return selected


def _save(
    evaluation: Evaluation,
    results: ResultStore,
    plan: EvaluationPlan,
    task: ClassifierTask | DetectorTask,
) -> Evaluation:
    """Save the run; return the evaluation with its objects."""
    seed, n_resamples = plan.options.seed, plan.options.n_resamples
    scoring = _scoring(task, plan.benchmark)
    run = save_run(results, evaluation, seed=seed, n_resamples=n_resamples, scoring=scoring)
    if evaluation.objects is not None:
        return evaluation
    # every method was stored already
    return replace(evaluation, objects=load_objects(run, load_record(run)))


def _scoring(
    task: ClassifierTask | DetectorTask, benchmark: Benchmark
) -> tuple[dict[str, Any], Any] | None:
    """Return what further methods need to be scored later; None where they cannot be."""
    models = _models(task)
    is_open_set = isinstance(task, DetectorTask) and isinstance(task.detector, KnownClasses)
    if isinstance(models[0], RecordedModel):
        return None
    notes = getattr(task, "model_notes", ())
    return describe_run(benchmark, models, notes, open_set=is_open_set)


_TYPES: dict[str, tuple[Any, str]] = {
    "benchmark": (str | PathLike | Benchmark, "a name, a TOML file or a Benchmark"),
    "weights": (str | PathLike | None, "the path of a file"),
    "data": (str | PathLike | None, "the path of a folder"),
    "limit": (int | None, "a whole number"),
    "seed": (int, "a whole number"),
    "n_resamples": (int, "a whole number"),
    "boxes": (BoxOptions | None, "BoxOptions"),
    "training": (str | None, "a text"),
    "training_seed": (int | None, "a whole number"),
    "disclosure": (Mapping | None, "a mapping of fields to texts"),
    "settings": (Settings | None, "Settings"),
    "store": (str | PathLike | None, "the path of a folder"),
    "out": (str | PathLike | None, "the path of a folder"),
}


def _check_types(arguments: Mapping[str, object]) -> None:
    for name, (kind, what) in _TYPES.items():
        value = arguments[name]
        if isinstance(value, bool) or not isinstance(value, kind):
            raise InvalidDataError(f"Expected {name} to be {what}, got {value!r:.80}.")
        if (
            name in ("seed", "n_resamples", "training_seed")
            and isinstance(value, int)
            and value < 0
        ):
            raise InvalidDataError(f"Expected {name} to be at least 0, got {value}.")


def _check_folders(**folders: str | Path | None) -> None:
    for name, folder in folders.items():
        if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
            raise InvalidDataError(f"Expected {name} to be a folder, got the file {folder}.")


def _refuse_preprocess(preprocess: object, benchmark: Benchmark) -> None:
    if preprocess is not None:
        raise InvalidDataError(
            f"`preprocess` needs a benchmark for classifiers, got {benchmark.name} for detectors. "
            f"Pass it to wrap_detector."
        )


def recorded_model(
    model: object, benchmark: Benchmark, folder: Path, embed: str | Classifier | None
) -> RecordedModel:
    """Return the model whose outputs are in a folder."""
    if model is not None:
        raise InvalidDataError("Expected a model or outputs, got both. Leave one of them out.")
    example = benchmark.test
    assert isinstance(example, RecordedImages | RecordedBoxes)
    name, recorded = folder.resolve().stem, OutputsFolder.at(folder)
    embedder = load_classifier(embed) if isinstance(embed, str) else embed
    if embedder is not None:
        name = f"{name} + {embedder.name}"
        if benchmark.task != "detection":
            raise InvalidDataError(
                f"`embed` needs a detection benchmark, got {benchmark.name} for classifiers."
            )
    names = tuple((recorded.categories() or {}).values())
    if benchmark.task == "detection" or not names:
        names = tuple(benchmark.classes)
    return RecordedModel(name, recorded, names, example, embedder)


def _models(task: ClassifierTask | DetectorTask) -> list[Classifier | Detector]:
    """Return the models that are run."""
    if isinstance(task, ClassifierTask):
        return list(task.networks)
    return [task.detector.inner if isinstance(task.detector, KnownClasses) else task.detector]


def _detector_task(
    model: object, benchmark: Benchmark, weights: Path | None, boxes: BoxOptions, log: ExtractionLog
) -> DetectorTask:
    refuse_half_precision(log.settings)  # even if every result is stored already
    detector = with_filter(load_detector(model, benchmark, weights), boxes)
    return DetectorTask(
        detector,
        benchmark,
        log,
        confidence_policy(boxes.confidence_threshold),
        _score_policy(boxes, benchmark),
    )


def with_filter(detector: Detector, boxes: BoxOptions) -> Detector:
    """Apply the box filter; raise if the detector ignores it."""
    changed = detector.with_filter(
        score_threshold=boxes.score_threshold,
        max_per_image=boxes.max_per_image,
        nms_iou=boxes.nms_iou,
    )
    for name, value in asdict(changed.rules).items():
        expected = getattr(boxes, name)
        if expected is not None and value != expected:
            raise InvalidDataError(
                f"{detector.name}.with_filter ignored {name}={expected} (still {value})."
            )
    return changed


def _score_policy(boxes: BoxOptions, benchmark: Benchmark) -> ScorePolicy:
    policy = score_policy(boxes.unknown_threshold)
    if isinstance(policy, HarmonicMean) and benchmark.unknown_validation is None:
        raise InvalidDataError(
            f"{policy} needs unknown validation images, but {benchmark.name} has none. Use "
            f"quantile, gaussian or a number."
        )
    return policy
