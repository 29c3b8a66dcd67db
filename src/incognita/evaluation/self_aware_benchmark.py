"""From a detector and a benchmark to a self-aware detector and its DAQ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from incognita.benchmarks.benchmark import TEST, Benchmark
from incognita.benchmarks.load import check_benchmark, check_file_names
from incognita.benchmarks.pseudo_unknown import PaintedOver
from incognita.containers import BoxDataset, Dataset, Detections
from incognita.decisions.self_aware import SelfAware, SelfAwareSettings
from incognita.decisions.self_aware_files import save_self_aware
from incognita.errors import InvalidDataError, MissingDataError, count
from incognita.evaluation.detector import (
    UNKNOWN_VALIDATION,
    VALIDATION,
    load_detector,
    truth_of,
)
from incognita.evaluation.detector_metrics import align_classes
from incognita.evaluation.evaluate import (
    BoxOptions,
    extraction_log,
    open_benchmark,
    recorded_model,
    with_filter,
)
from incognita.evaluation.fit_and_score import ExtractionLog, Progress
from incognita.evaluation.gallery import BeforeAfter, draw_charts, draw_self_aware
from incognita.evaluation.self_aware import AnnotatedSet, SelfAwareTest, evaluate_self_aware
from incognita.evaluation.self_aware_study import BASELINE, study_self_aware
from incognita.extraction.detector_pass import identity_of_detector
from incognita.extraction.settings import Settings
from incognita.formats.recorded_outputs import RecordedBoxes
from incognita.models.detector import Detector
from incognita.results.disclosure import (
    CALIBRATION,
    TUNING,
    UNKNOWN_LABELS,
    check_statements,
    disclose,
)
from incognita.results.method_result import identity_hash
from incognita.results.self_aware import SelfAwareReport, SelfAwareStudy
from incognita.results.store import plain_name

PAINTED = "painted over"


class SelfAwareRun(NamedTuple):
    """The rules of a detector, its report, the tables behind it, and where they are.

    `report.before` is the detector as it is, the first row of the paper's table 7.
    """

    fitted: SelfAware
    report: SelfAwareReport
    study: SelfAwareStudy | None = None
    folder: Path | None = None


@dataclass(frozen=True, eq=False)
class SelfAwareImages:
    """The detections that a benchmark of self-awareness needs."""

    validation: AnnotatedSet
    pseudo_unknown: Detections
    test: SelfAwareTest


def make_self_aware(
    model: Any = None,
    benchmark: str | Path | Benchmark = "terra/self-aware",
    *,
    rules: SelfAwareSettings | None = None,
    convention: str = "paper",
    weights: str | Path | None = None,
    data: str | Path | None = None,
    allow_outside: bool = False,
    outputs: str | Path | None = None,
    save_outputs: str | Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    n_resamples: int = 200,
    boxes: BoxOptions | None = None,
    settings: Settings | None = None,
    store: str | Path | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    training: str | None = None,
    training_seed: int | None = None,
    disclosure: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
    on_step: Callable[[str], None] | None = None,
) -> SelfAwareRun:
    """Make a detector self-aware on the validation images of a benchmark, and judge it.

    Unknown images to choose the image threshold on are the unknown validation images of the
    benchmark; where it has none, its validation images with their objects painted over.

    Args:
        model: A module, an adapter, or what `--model` takes; None for the default model.
        benchmark: A detection benchmark with validation images: its name, a TOML file, or loaded.
        rules: How the detector is made self-aware; the paper's way by default.
        convention: `paper`, or `saod`: as the public code computes it.
        weights: A file with weights for a model given by name.
        data: The folder with the images of the benchmark.
        allow_outside: Whether paths in the files of the benchmark may leave that folder.
        outputs: A folder with recorded outputs instead of a model and images.
        save_outputs: A folder for the outputs in that layout, for others to use.
        limit: Maximum images per set.
        seed: Random seed for the bootstrap and `limit`.
        n_resamples: Bootstrap replicates behind each interval; zero for none.
        boxes: Which boxes of the detector are recorded.
        settings: Batch size, device, workers.
        store: A folder for outputs, so that an interrupted run can resume.
        out: A folder; one of its own below it, named after benchmark, model and options, gets the
            rules (`rules.json`), the report, a study with tables and charts, and pictures.
        name: What the detector is called in the report.
        training: How the detector was trained.
        training_seed: The seed of that training.
        disclosure: What is known about the data behind the detector, as for `evaluate`.
        on_progress: Called with a data set's name, images done, images in total.
        on_step: Called with a description of each step.
    """
    stated = check_statements(disclosure or {})
    trained = _stated_training(training, training_seed)
    benchmark = open_benchmark(
        benchmark, data=data, limit=limit, seed=seed, outputs=outputs, allow_outside=allow_outside
    )
    check_benchmark(benchmark, searching=False)
    if save_outputs is not None:
        check_file_names(benchmark)
    if outputs is not None:
        model = recorded_model(model, benchmark, Path(outputs), None)
    detector = load_detector(model, benchmark, None if weights is None else Path(weights))
    detector = with_filter(detector, boxes or BoxOptions())
    log = extraction_log(settings, store, save_outputs, on_progress)
    images = _detect_all(detector, benchmark, log)
    rules = rules or SelfAwareSettings(convention=convention)
    run = _judge(images, rules, convention, n_resamples, seed, on_step)
    about = trained | {"disclosure": _disclosure(benchmark, stated)}
    run = _described(run, detector, benchmark, log, name, about)
    if out is None:
        return run
    if on_step is not None:
        on_step("studying the choices")
    study = study_self_aware(
        images.validation,
        images.pseudo_unknown,
        images.test,
        rules,
        convention=convention,
        seed=seed,
        on_step=on_step,
    )
    options = {"convention": convention, "limit": limit, "seed": seed, **trained}
    folder = _folder_name(detector, benchmark, rules, options)
    return _save(run._replace(study=study), images, benchmark, Path(out) / folder)


def _stated_training(training: str | None, training_seed: int | None) -> dict[str, Any]:
    given = {"training": training, "training_seed": training_seed}
    return {key: value for key, value in given.items() if value is not None}


def _folder_name(
    detector: Detector, benchmark: Benchmark, rules: SelfAwareSettings, options: dict[str, Any]
) -> str:
    """Return a name that differs wherever a number could."""
    own = identity_of_detector(detector) | {
        "definition": benchmark.metadata.get("definition_hash"),
        "settings": repr(rules),
        **options,
    }
    return f"{plain_name(benchmark.name)}-{plain_name(detector.name)}-{identity_hash(own)}"


def _disclosure(benchmark: Benchmark, stated: Mapping[str, str]) -> dict[str, str]:
    """Return what the rules were chosen on, and what users state."""
    known = "known validation images (calibrator, box and image thresholds)"
    unknown = "unknown validation images (image threshold)"
    if benchmark.unknown_validation is None:
        painted = "known validation images with their objects painted over (image threshold)"
        return disclose(stated, {CALIBRATION: [known, painted]}, [TUNING])
    return disclose(stated, {CALIBRATION: [known, unknown], UNKNOWN_LABELS: [unknown]}, [TUNING])


def _detect_all(detector: Detector, benchmark: Benchmark, log: ExtractionLog) -> SelfAwareImages:
    """Run the detector on every set, each image once."""
    validation = benchmark.validation
    if validation is None:
        raise InvalidDataError(
            f"Expected validation images to fit on, but {benchmark.name} has none. Add a set with "
            f'role = "validation".'
        )
    unknown = {
        name: _detect(detector, name, dataset, log).detections
        for sets in benchmark.unknown.values()
        for name, dataset in sets.items()
    }
    shifted = {
        name: _detect(detector, name, dataset, log) for name, dataset in benchmark.shifted.items()
    }
    known = _detect(detector, VALIDATION, validation, log)
    name, painted = _pseudo_unknown(benchmark, validation)
    return SelfAwareImages(
        known,
        _detect(detector, name, painted, log).detections,
        SelfAwareTest(
            _detect(detector, TEST, benchmark.test, log), shifted, benchmark.free, unknown, known
        ),
    )


def _pseudo_unknown(benchmark: Benchmark, validation: Dataset) -> tuple[str, Dataset]:
    if benchmark.unknown_validation is not None:
        return UNKNOWN_VALIDATION, benchmark.unknown_validation
    if isinstance(validation, RecordedBoxes):
        return PAINTED, _recorded_painted(validation)
    assert isinstance(validation, BoxDataset)
    return PAINTED, PaintedOver(validation)


def _recorded_painted(validation: RecordedBoxes) -> RecordedBoxes:
    """Return the boxes on painted-over images, from the file beside that of the images."""
    path = validation.path.with_name("painted-over.json")
    if not path.is_file():
        raise MissingDataError(
            f"There is no file {path} with the boxes on validation images whose objects are "
            f"painted over. Run the detector on them, too."
        )
    sidecar = path.with_suffix(".safetensors")
    found = sidecar if sidecar.exists() else None
    return replace(validation, images=PaintedOver(validation.images), path=path, sidecar=found)


def _detect(detector: Detector, name: str, dataset: Dataset, log: ExtractionLog) -> AnnotatedSet:
    outputs = log.extract(detector, name, dataset)
    truth = truth_of(dataset).for_images(outputs.detections.image_ids)
    found = replace(align_classes(truth, outputs.detections), features=None)
    return AnnotatedSet(found, truth)


def _judge(
    images: SelfAwareImages,
    rules: SelfAwareSettings,
    convention: str,
    n_resamples: int,
    seed: int,
    on_step: Callable[[str], None] | None,
) -> SelfAwareRun:
    """Judge the detector as it is and once it is self-aware."""

    def judge(what: str, how: SelfAwareSettings) -> SelfAwareRun:
        if on_step is not None:
            on_step(f"judging the detector {what}")
        fitted = SelfAware.fit(*images.validation, images.pseudo_unknown, how)
        report = evaluate_self_aware(
            fitted, images.test, convention=convention, n_resamples=n_resamples, seed=seed
        )
        return SelfAwareRun(fitted, report)

    after = judge("self-aware", rules)
    try:
        before = judge("as it is", replace(rules, **BASELINE)).report.results
    except InvalidDataError as error:  # a rule that nobody has asked for
        note = f"There is no column before: {error}"
        return after._replace(report=replace(after.report, notes=(*after.report.notes, note)))
    return after._replace(report=replace(after.report, before=before))


def _described(
    run: SelfAwareRun,
    detector: Detector,
    benchmark: Benchmark,
    log: ExtractionLog,
    name: str | None,
    about: dict[str, Any],
) -> SelfAwareRun:
    """Add what the numbers were computed from, and what went wrong on the way."""
    inputs = {
        "model": name or detector.name,
        "benchmark": benchmark.name,
        "version": benchmark.version,
        "definition_hash": benchmark.metadata.get("definition_hash"),
        "box filter": str(detector.rules),
        "missing": dict(benchmark.metadata.get("absent", {})),
        "failed_images": [
            [name, failed.image_id, failed.reason] for name, failed in log.failed_images
        ],
        **about,
    }
    notes = list(benchmark.notes)
    if log.failed_images:
        name, failed = log.failed_images[0]
        notes.append(
            f"{count(len(log.failed_images), 'image')} could not be used and "
            f"{'is' if len(log.failed_images) == 1 else 'are'} left out, such as "
            f"{failed.image_id} of {name}: {failed.reason}"
        )
    notes = [*run.report.notes, *notes]
    own = {"detector": detector.name, "nms_iou": detector.rules.nms_iou}
    return run._replace(
        fitted=replace(run.fitted, metadata=run.fitted.metadata | own),
        report=replace(run.report, notes=tuple(notes), inputs=inputs),
    )


def _save(
    run: SelfAwareRun, images: SelfAwareImages, benchmark: Benchmark, folder: Path
) -> SelfAwareRun:
    """Save the rules, the study and pictures, and the report with what is said about these."""
    assert run.study is not None
    folder.mkdir(parents=True, exist_ok=True)
    save_self_aware(run.fitted, folder / "rules.json")
    run.study.save_folder(folder / "study")
    draw_charts(run.study, folder / "study")
    notes = _draw(run.fitted, images, benchmark, folder / "pictures")
    report = replace(
        run.report,
        notes=(*run.report.notes, *notes),
        study=run.study,
        pictures=folder / "pictures",
    )
    report.save(folder / "report.json")
    return run._replace(report=report, folder=folder)


def _draw(
    fitted: SelfAware, images: SelfAwareImages, benchmark: Benchmark, folder: Path
) -> list[str]:
    test = images.test
    unknown = {name: d for sets in benchmark.unknown.values() for name, d in sets.items()}
    return draw_self_aware(
        _before_after(fitted, benchmark.test, test.known.detections),
        {
            name: _before_after(fitted, benchmark.shifted[name], part.detections)
            for name, part in test.shifted.items()
        },
        {name: _before_after(fitted, unknown[name], found) for name, found in test.unknown.items()},
        benchmark.name,
        folder,
    )


def _before_after(fitted: SelfAware, dataset: Dataset, found: Detections) -> BeforeAfter:
    """Combine images with what is decided about them; those that failed are left out."""
    if len(dataset.image_ids) > found.n_images:
        usable = set(found.image_ids.tolist())
        rows = [k for k, image_id in enumerate(dataset.image_ids) if str(image_id) in usable]
        dataset = dataset.subset(rows)
    return BeforeAfter(dataset, found, fitted.apply(found))
