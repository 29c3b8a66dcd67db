"""`incognita run`: every method on a benchmark, from one pass of the network."""

import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incognita.cli._completion import complete_benchmark, complete_methods
from incognita.cli._log import LogFile, log_report
from incognita.cli._options_file import OptionsFile
from incognita.cli._terminal import IN_PART, note, progress_on_stderr, write_report
from incognita.models import library_examples
from incognita.registry import need

if TYPE_CHECKING:
    from incognita.evaluation.evaluate import BoxOptions
    from incognita.results.evaluation import Evaluation
    from incognita.results.self_aware import SelfAwareReport


class Precision(StrEnum):
    """The floating-point type the network runs in."""

    float32 = "float32"
    tf32 = "tf32"
    bfloat16 = "bfloat16"


BenchmarkName = Annotated[
    str,
    typer.Argument(
        help="A benchmark such as terra/standard, or a TOML file.",
        autocompletion=complete_benchmark,
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        help=f"file.py:function, {', '.join(library_examples())}; repeat for an ensemble of "
        f"classifiers. Embedded benchmarks have a default model."
    ),
]
Weights = Annotated[
    Path | None, typer.Option(help="Weights to load into the model: .safetensors or .pt.")
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        help='Of a classifier: "size=256 crop=224 mean=imagenet std=imagenet", or none for pixels '
        "/ 255. By default that of the model, else of the benchmark; a note says which."
    ),
]
Methods = Annotated[
    str,
    typer.Option(
        help='all, or names: "msp, react+knn, knn(k=10), file.py:Class(k=3)".',
        autocompletion=complete_methods,
    ),
]
Data = Annotated[Path | None, typer.Option(help="Folder with the images of the benchmark.")]
AllowOutside = Annotated[
    bool,
    typer.Option("--allow-outside", help="Follow paths in files that leave the data folder."),
]
Outputs = Annotated[
    Path | None,
    typer.Option(
        help="Folder with recorded outputs (npz, safetensors, Parquet; for boxes COCO JSON) "
        "instead of a model and images."
    ),
]
SaveOutputs = Annotated[
    Path | None, typer.Option(help="Also save the outputs to this folder, for --outputs.")
]
FoundBoxes = Annotated[
    Path | None,
    typer.Option(
        help="Boxes of a detector instead of a model: COCO results files in a folder, one per "
        "set, or one file for all sets."
    ),
]
Embed = Annotated[
    str | None,
    typer.Option(help="Classifier such as timm:NAME that gives the boxes features by their crops."),
]
Search = Annotated[
    bool, typer.Option("--search", help="Also choose parameters on validation data.")
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Maximum images per set; ten times as many for the training set of a classifier.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(help="What the model is called in tables and results; changes no number."),
]
Training = Annotated[
    str | None, typer.Option(help="How the model was trained, such as logitnorm; part of a result.")
]
TrainingSeed = Annotated[
    int | None,
    typer.Option(min=0, help="Seed of that training; tables average results over such seeds."),
]
Disclose = Annotated[
    list[str] | None,
    typer.Option(
        "--disclose",
        "--disclosure",
        help='What data is behind the model: "external-supervision=CLIP pre-training", '
        '"outlier-data=none", also unknown-labels, tuning-data, calibration-data; repeat it.',
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed for bootstrap and --limit.")]
Resamples = Annotated[
    int, typer.Option(min=0, max=10_000, help="Bootstrap replicates; 0 for no intervals.")
]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Images per forward pass; by default 128, or 1 for a detector."),
]
_BOXES = "Boxes of a detector"
ScoreThreshold = Annotated[
    float | None,
    typer.Option(
        "--score-threshold",
        "--score-floor",
        min=0,
        max=1,
        rich_help_panel=_BOXES,
        help="Smallest confidence of a box that is kept.",
    ),
]
MaxPerImage = Annotated[
    int | None, typer.Option(min=1, rich_help_panel=_BOXES, help="Maximum boxes per image.")
]
NmsIou = Annotated[
    float | None,
    typer.Option(min=0, max=1, rich_help_panel=_BOXES, help="NMS IoU threshold."),
]
ConfidenceThreshold = Annotated[
    str | None,
    typer.Option(rich_help_panel=_BOXES, help="How t* is chosen: f1 (default), lrp, or a number."),
]
UnknownThreshold = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_BOXES,
        help="How tau is chosen: quantile (default), gaussian, harmonic-mean, or a number.",
    ),
]
InPrecision = Annotated[
    Precision,
    typer.Option(
        help="bfloat16, and tf32 on NVIDIA's GPUs, change scores slightly and are faster."
    ),
]
Device = Annotated[
    str, typer.Option(help="cpu, cuda (every GPU), cuda:1, …; several, separated by commas.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Processes that read images, none of which runs the network; by default up to 16 "
        "with a GPU, and threads without one.",
    ),
]
Out = Annotated[
    Path, typer.Option(help="Folder for results; stored results are not computed again.")
]
Store = Annotated[
    Path | None, typer.Option(help="Folder for outputs of the network; by default OUT/outputs.")
]
Wide = Annotated[
    bool, typer.Option("--wide", help="Print every column, however wide the screen is.")
]
FinishedRun = Annotated[
    Path, typer.Argument(help="The --out folder of a run, or one of its results in JSON.")
]
NewMethods = Annotated[
    str | None,
    typer.Option(
        help='Also score these methods from the stored outputs: "gen, knn(k=10)".',
        autocompletion=complete_methods,
    ),
]
N_OTHERS = 5  # other runs that are named
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the evaluation as JSON instead of tables.")
]


def run_command(
    benchmark: BenchmarkName,
    model: Models = None,
    weights: Weights = None,
    preprocess: Preprocess = None,
    methods: Methods = "all",
    data: Data = None,
    allow_outside: AllowOutside = False,
    outputs: Outputs = None,
    save_outputs: SaveOutputs = None,
    detections: FoundBoxes = None,
    embed: Embed = None,
    search: Search = False,
    limit: Limit = None,
    seed: Seed = 0,
    resamples: Resamples = 200,
    score_threshold: ScoreThreshold = None,
    max_per_image: MaxPerImage = None,
    nms_iou: NmsIou = None,
    confidence_threshold: ConfidenceThreshold = None,
    unknown_threshold: UnknownThreshold = None,
    batch_size: BatchSize = None,
    precision: InPrecision = Precision.float32,
    device: Device = "cpu",
    workers: Workers = None,
    out: Out = Path("runs"),
    store: Store = None,
    name: Name = None,
    training: Training = None,
    training_seed: TrainingSeed = None,
    disclose: Disclose = None,
    wide: Wide = False,
    as_json: AsJson = False,
    log: LogFile = None,
    options: OptionsFile = None,
) -> None:
    """Rank methods on a benchmark; each image goes through the network once for all of them.

    Example: incognita run terra/standard --methods all

    Exit codes: 0 done, also if a note says that images are missing; 2 wrong usage; 3 data
    missing; 4 finished, but a set is missing or some images or methods failed, which are named, or
    the disk is full; 130 (Ctrl-C) or 143 (SIGTERM) interrupted: the same command resumes, as after
    a full disk.
    """
    need("torch", extra="torch", needed_by="run")
    from incognita.benchmarks.definition_files import find_definition
    from incognita.extraction.settings import Settings
    from incognita.results.disclosure import parse_statements

    shared: dict[str, Any] = {
        "name": name,
        "training": training,
        "training_seed": training_seed,
        "disclosure": parse_statements(disclose or ()),
        "weights": weights,
        "data": data,
        "allow_outside": allow_outside,
        "outputs": _one_of(outputs, detections),
        "save_outputs": save_outputs,
        "limit": limit,
        "seed": seed,
        "n_resamples": resamples,
        "boxes": _boxes(
            score_threshold, max_per_image, nms_iou, confidence_threshold, unknown_threshold
        ),
        "settings": Settings(batch_size, precision.value, device, workers),
        "store": store or out / "outputs",
    }
    definition = find_definition(benchmark, allow_outside=allow_outside).definition
    if definition.protocol == "self-aware":
        _refuse_methods(methods != "all", preprocess, embed, search, unknown_threshold)
        _run_self_aware(model or None, benchmark, out, log, as_json=as_json, options=shared)
        return
    shared |= {"methods": methods, "preprocess": preprocess, "embed": embed, "search": search}
    evaluation = _rank_methods(model or None, benchmark, out, log, options=shared)
    finish(evaluation, out, as_json=as_json, wide=wide)


def _rank_methods(
    model: list[str] | None, benchmark: str, out: Path, log: Path | None, options: dict[str, Any]
) -> "Evaluation":
    from incognita.evaluation.evaluate import evaluate

    # what a network or a method prints must not end up in the JSON
    progress = progress_on_stderr(resumes=True, log=log)
    with redirect_stdout(sys.stderr), progress as (on_step, on_progress):
        evaluation = evaluate(
            model,
            benchmark,
            out=out / "results",
            on_progress=on_progress,
            on_step=on_step,
            on_note=note,
            **options,
        )
    log_report(log, evaluation)
    return evaluation


def _refuse_methods(*given: object) -> None:
    from incognita.errors import InvalidDataError

    if any(given):
        raise InvalidDataError(
            "Expected no --methods, --preprocess, --embed, --search or --unknown-threshold: this "
            "benchmark makes a detector self-aware and ranks no methods. Leave them out."
        )


def _run_self_aware(
    model: list[str] | None,
    benchmark: str,
    out: Path,
    log: Path | None,
    *,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    from incognita.evaluation.self_aware_benchmark import make_self_aware

    progress = progress_on_stderr(resumes=True, log=log)
    with redirect_stdout(sys.stderr), progress as (on_step, on_progress):
        run = make_self_aware(
            model,
            benchmark,
            out=out / "self-aware",
            on_step=on_step,
            on_progress=on_progress,
            **options,
        )
    log_report(log, run.report)
    assert run.folder is not None  # because of `out`
    _finish_self_aware(run.report, run.folder, as_json=as_json)


def _finish_self_aware(report: "SelfAwareReport", folder: Path, *, as_json: bool) -> None:
    """Print the report and where the rules are; exit with code 4 if some images failed."""
    write_report(report, as_json=as_json)
    if not as_json:
        sys.stdout.write(f"Rules, report, study and pictures: {folder.resolve()}\n")
    if not report.is_complete:
        raise typer.Exit(IN_PART)


def _one_of(outputs: Path | None, detections: Path | None) -> Path | None:
    from incognita.errors import InvalidDataError

    if outputs is not None and detections is not None:
        raise InvalidDataError("Expected --outputs or --detections, got both. Leave one out.")
    return outputs or detections


def _boxes(
    score_threshold: float | None,
    max_per_image: int | None,
    nms_iou: float | None,
    confidence_threshold: str | None,
    unknown_threshold: str | None,
) -> "BoxOptions | None":
    """Return the options for boxes, or None if none is given."""
    from incognita.evaluation.evaluate import BoxOptions

    given = (score_threshold, max_per_image, nms_iou, confidence_threshold, unknown_threshold)
    if all(option is None for option in given):
        return None
    return BoxOptions(
        score_threshold,
        max_per_image,
        nms_iou,
        "f1" if confidence_threshold is None else confidence_threshold,
        "quantile" if unknown_threshold is None else unknown_threshold,
    )


def finish(evaluation: "Evaluation", out: Path, *, as_json: bool, wide: bool = False) -> None:
    """Print the evaluation; exit with code 4 if some images or methods failed."""
    if as_json:
        write_report(evaluation, as_json=True)
    else:
        show(evaluation, out, wide=wide)
    if not evaluation.is_complete:
        raise typer.Exit(IN_PART)


def show(evaluation: "Evaluation", out: Path, *, wide: bool = False) -> None:
    """Print the report, further tables, and where the results are."""
    from rich.text import Text

    from incognita.results.export import print_report, stdout_console

    console = stdout_console(wide=wide)
    print_report(evaluation, console)
    if (more := evaluation.further_tables(width=console.width)) is not None:
        console.print(more)
    where = (out / "results").resolve()
    console.print(Text(f"Results and scores of every {evaluation.row}: {where}"), soft_wrap=True)
    if pictures := evaluation.metadata.get("pictures"):
        where = Path(pictures).resolve()
        console.print(Text(f"Pictures of the best method: {where}"), soft_wrap=True)


def show_command(
    run: FinishedRun = Path("runs"),
    methods: NewMethods = None,
    store: Store = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Print a finished run again, without its model, its images or a network.

    Example: incognita show runs --methods "gen, knn(k=10)"

    The newest run is printed where a folder holds several. New methods are scored from its stored
    outputs and added to it. A self-aware run is the folder with its report.json. Exit codes are
    those of the run.
    """
    from incognita.evaluation.finished_runs import find_runs, find_self_aware, has_runs, load_run

    reports = find_self_aware(run)
    if reports and not has_runs(run):
        _show_self_aware(reports, methods, as_json=as_json)
        return
    for report in reports[:N_OTHERS]:
        sys.stderr.write(f"a self-aware run: {report}\n")
    newest, *others = find_runs(run)
    for other in others[:N_OTHERS]:
        note(f"another run: {other}")
    if len(others) > N_OTHERS:
        note(f"{len(others) - N_OTHERS} more runs below {run}")
    if methods is not None:
        _rescore(newest, methods, store)
    finish(load_run(newest), newest.parents[3], as_json=as_json, wide=wide)


def _show_self_aware(reports: list[Path], methods: str | None, *, as_json: bool) -> None:
    """Print the newest report of a self-aware detector as its run did."""
    from incognita.errors import InvalidDataError
    from incognita.results.self_aware import SelfAwareReport

    if methods is not None:
        raise InvalidDataError("Expected no --methods: a self-aware run ranks none. Leave it out.")
    newest, *others = reports
    for other in others[:N_OTHERS]:
        sys.stderr.write(f"another run: {other}\n")
    _finish_self_aware(SelfAwareReport.load(newest), newest.parent, as_json=as_json)


def _rescore(run: Path, methods: str, store: Path | None) -> None:
    need("torch", extra="torch", needed_by="show --methods")
    from incognita.evaluation.rescore import rescore

    with redirect_stdout(sys.stderr), progress_on_stderr(resumes=True) as (on_step, on_progress):
        rescore(run, methods, store=store, on_progress=on_progress, on_step=on_step)
