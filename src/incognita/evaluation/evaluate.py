"""From a model and a benchmark to the ranking of methods: one pass, then arithmetic."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.load import load_benchmark
from incognita.decisions.parse import confidence_policy, score_policy
from incognita.decisions.thresholds import Policy, ScorePolicy
from incognita.decisions.unknown_thresholds import HarmonicMean
from incognita.errors import InvalidDataError
from incognita.evaluation.classifier import (
    ClassifierEvaluator,
    OneModel,
    capabilities_of,
    load_classifiers,
)
from incognita.evaluation.detector import (
    DetectorEvaluator,
    capabilities_of_detector,
    fit_per_head,
    load_detector,
)
from incognita.evaluation.detector_rows import DetectorExtractor
from incognita.evaluation.fit_and_score import ClassifierExtractor, ExtractionLog, Progress
from incognita.evaluation.parts import check_parts
from incognita.evaluation.resume import EvaluationPlan, Options
from incognita.evaluation.select_methods import Methods, select_methods
from incognita.extraction.detector_pass import refuse_half_precision
from incognita.extraction.settings import Settings
from incognita.extraction.store import OutputStore
from incognita.models.detector import Detector
from incognita.results.evaluation import DetectorEvaluation, Evaluation
from incognita.results.store import ResultStore

AnyModel = OneModel | Detector
Threshold = str | int | float | Policy


@dataclass(frozen=True)
class BoxOptions:
    """What can be said of the boxes of a detector; None leaves it to the detector.

    Args:
        score_threshold: The smallest confidence of a box that is recorded.
        max_per_image: The most boxes of an image.
        nms_iou: Overlap above which the less sure of two boxes of a class is dropped.
        confidence_threshold: How t* is chosen, the confidence from which boxes are scored: `f1`,
            `lrp`, or a number.
        unknown_threshold: How tau is chosen, the score above which a box is called unknown:
            `quantile`, `gaussian`, `harmonic-mean` where there are unknown validation images, or a
            number.
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
    data: str | Path | None = None,
    search: bool = False,
    limit: int | None = None,
    seed: int = 0,
    n_resamples: int = 200,
    boxes: BoxOptions | None = None,
    settings: Settings | None = None,
    store: str | Path | None = None,
    out: str | Path | None = None,
    on_progress: Progress | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Evaluation | DetectorEvaluation:
    """Rank methods on a benchmark: every image goes through the network once for all of them.

    Args:
        model: A module, an adapter, or what `--model` takes; several classifiers for an ensemble;
            None for the model that an embedded benchmark brings along.
        benchmark: The name of one of ours, or a TOML file of your own.
        methods: `all`, names such as `"msp, react+knn, knn(k=10)"`, or methods.
        weights: A file with weights for a model that is given by its name.
        data: The folder that holds the images of the benchmark.
        search: Also choose parameters on validation data, and report both.
        limit: At most so many images of each set, for a quick look.
        seed: Of the bootstrap and of what `limit` draws.
        n_resamples: Bootstrap replicates behind each interval; zero for none.
        boxes: Of a detection benchmark: which boxes are kept, and how thresholds are chosen.
        settings: Batch size, precision, device, workers.
        store: A folder for outputs, so that an interrupted run goes on where it was.
        out: A folder for results; methods that are there already are not run again.
        on_progress: Called with a data set's name, images done, images in all.
        on_step: Called with what is being done, for a progress line.
    """
    options = Options(search, limit, seed, n_resamples)
    if not isinstance(benchmark, Benchmark):
        benchmark = load_benchmark(benchmark, data=data, limit=limit, seed=seed)
    elif limit is not None or data is not None:
        raise InvalidDataError(
            "limit and data go with the name of a benchmark, but one that is loaded came; give "
            "them to load_benchmark, or take a subset of its sets."
        )
    outputs = None if store is None else OutputStore(Path(store))
    account = ExtractionLog(settings or Settings(), outputs, on_progress)
    results = None if out is None else ResultStore(Path(out))
    path = None if weights is None else Path(weights)
    if benchmark.task == "detection":
        detector = load_detector(model, benchmark, path)
        assessed = _of_boxes(detector, benchmark, methods, options, boxes, account, results)
        return assessed.run(on_step)
    if boxes is not None:
        raise InvalidDataError(
            f"Options for boxes came, but {benchmark.name} is a benchmark for classifiers; leave "
            f"them out."
        )
    networks = load_classifiers(model, benchmark, path)
    asked = select_methods(methods, capabilities_of(networks, benchmark))
    check_parts(benchmark, searching=search)
    passes = ClassifierExtractor(networks, account)
    inquiry = EvaluationPlan(benchmark, asked, options, account, results)
    return ClassifierEvaluator(inquiry, passes).run(on_step)


def _of_boxes(
    detector: Detector,
    benchmark: Benchmark,
    methods: Methods,
    options: Options,
    boxes: BoxOptions | None,
    account: ExtractionLog,
    results: ResultStore | None,
) -> DetectorEvaluator:
    boxes = boxes or BoxOptions()
    refuse_half_precision(account.settings)  # also where every result is there already
    detector = _with_rules(detector, boxes)
    kept, decided = confidence_policy(boxes.confidence_threshold), _score_policy(boxes, benchmark)
    asked = fit_per_head(
        select_methods(methods, capabilities_of_detector(detector, benchmark)), detector
    )
    check_parts(benchmark, searching=options.search)
    rows = DetectorExtractor(detector, account, kept)
    inquiry = EvaluationPlan(benchmark, asked, options, account, results)
    return DetectorEvaluator(inquiry, decided, rows)


def _with_rules(detector: Detector, boxes: BoxOptions) -> Detector:
    """Give the detector with the rules asked for, and refuse one that does not take them."""
    changed = detector.with_filter(
        score_threshold=boxes.score_threshold,
        max_per_image=boxes.max_per_image,
        nms_iou=boxes.nms_iou,
    )
    for name, value in asdict(changed.rules).items():
        asked = getattr(boxes, name)
        if asked is not None and value != asked:
            raise InvalidDataError(
                f"{name} {asked} was asked for, but {detector.name} stays with {value}; let its "
                f"with_filter give a detector with the rules it is given."
            )
    return changed


def _score_policy(boxes: BoxOptions, benchmark: Benchmark) -> ScorePolicy:
    policy = score_policy(boxes.unknown_threshold)
    if isinstance(policy, HarmonicMean) and benchmark.unknown_validation is None:
        raise InvalidDataError(
            f"{policy} weighs known against unknown boxes, but {benchmark.name} has no unknown "
            f"validation images; use quantile, gaussian or a number."
        )
    return policy
