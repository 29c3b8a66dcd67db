"""`incognita run`: every method on a benchmark, from one pass of the network."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from incognita.evaluation.evaluate import BoxOptions
    from incognita.results.evaluation import DetectorEvaluation, Evaluation

# what is being done; a data set's name, images done, images in all
OnStep = Callable[[str], None]
OnProgress = Callable[[str, int, int], None]


class Precision(StrEnum):
    """In what numbers the network runs."""

    float32 = "float32"
    bfloat16 = "bfloat16"


BenchmarkName = Annotated[
    str, typer.Argument(help="A benchmark such as terra/standard, or a TOML file of your own.")
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        help="file.py:function, timm:NAME, torchvision:NAME, transformers:FOLDER, "
        "ultralytics:FILE; several times for an ensemble of classifiers. An embedded benchmark "
        "brings its own."
    ),
]
Weights = Annotated[
    Path | None, typer.Option(help="Weights to load into the model: .safetensors or .pt.")
]
Methods = Annotated[str, typer.Option(help='all, or names: "msp, react+knn, knn(k=10)".')]
Data = Annotated[
    Path | None, typer.Option(help="The folder that holds the images of the benchmark.")
]
Search = Annotated[
    bool, typer.Option("--search", help="Also choose parameters on validation data.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="At most so many images of each set.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the bootstrap and of --limit.")]
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
    int | None, typer.Option(min=1, rich_help_panel=_BOXES, help="Most boxes of an image.")
]
NmsIou = Annotated[
    float | None,
    typer.Option(min=0, max=1, rich_help_panel=_BOXES, help="Overlap that drops a box."),
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
    Precision, typer.Option(help="bfloat16 is faster and changes scores a little.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")]
Workers = Annotated[int, typer.Option(min=1, help="Local processes that run the network.")]
Out = Annotated[
    Path, typer.Option(help="Folder for results; what is there already is not done again.")
]
Store = Annotated[
    Path | None, typer.Option(help="Folder for outputs of the network; by default OUT/outputs.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the evaluation as JSON instead of tables.")
]


def run_command(
    benchmark: BenchmarkName,
    model: Models = None,
    weights: Weights = None,
    methods: Methods = "all",
    data: Data = None,
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
    workers: Workers = 1,
    out: Out = Path("runs"),
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Rank methods on a benchmark; each image goes through the network once for all of them.

    Example: incognita run terra/standard --methods all

    Exit codes: 0 done, also where a note says that images are missing; 2 wrong usage; 3 data
    missing; 4 finished, but images could not be used or methods failed, which are named; 130
    interrupted, and the same command goes on where it was.
    """
    _import_all(device)
    from incognita.evaluation.evaluate import evaluate
    from incognita.extraction.settings import Settings

    with progress_on_stderr() as (on_step, on_progress):
        evaluation = evaluate(
            model or None,
            benchmark,
            methods,
            weights=weights,
            data=data,
            search=search,
            limit=limit,
            seed=seed,
            n_resamples=resamples,
            boxes=_boxes(
                score_threshold, max_per_image, nms_iou, confidence_threshold, unknown_threshold
            ),
            settings=Settings(batch_size, precision.value, device, workers),
            store=store or out / "outputs",
            out=out / "results",
            on_progress=on_progress,
            on_step=on_step,
        )
    finish(evaluation, out, as_json=as_json)


def _import_all(device: str) -> None:
    """Import what a run needs, and only then look for garbage again."""
    from incognita.cli import collect_garbage_again, import_everything_again

    import_everything_again(compiler=device != "cpu")
    import incognita.evaluation.evaluate  # noqa: F401

    collect_garbage_again()


def _boxes(
    score_threshold: float | None,
    max_per_image: int | None,
    nms_iou: float | None,
    confidence_threshold: str | None,
    unknown_threshold: str | None,
) -> "BoxOptions | None":
    """Give the options for boxes, or None where none was named."""
    from incognita.evaluation.evaluate import BoxOptions

    named = (score_threshold, max_per_image, nms_iou, confidence_threshold, unknown_threshold)
    if all(each is None for each in named):
        return None
    return BoxOptions(
        score_threshold,
        max_per_image,
        nms_iou,
        "f1" if confidence_threshold is None else confidence_threshold,
        "quantile" if unknown_threshold is None else unknown_threshold,
    )


def finish(evaluation: "Evaluation | DetectorEvaluation", out: Path, *, as_json: bool) -> None:
    """Print what was found and leave with the exit code that belongs to it."""
    from incognita.cli import IN_PART

    if as_json:
        text = json.dumps(evaluation.as_json(), indent=1, allow_nan=False, default=str)
        sys.stdout.write(text + "\n")
    else:
        show(evaluation, out)
    if not evaluation.is_complete:
        raise typer.Exit(IN_PART)


@contextmanager
def progress_on_stderr() -> Iterator[tuple[OnStep, OnProgress]]:
    """Give functions that move a bar with rate and time left; a log gets one line per set."""
    from incognita.cli import stop_if_interrupted

    if not sys.stderr.isatty():
        yield (lambda _: stop_if_interrupted()), _Log()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task):  # type: ignore[no-untyped-def]
            return Text(f"{task.speed:.0f} images/s" if task.speed and task.total else "")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        images = progress.add_task("", total=None)
        step = progress.add_task("loading", total=None)

        def move(name: str, done: int, total: int) -> None:
            stop_if_interrupted()
            if progress.tasks[0].description != name:
                progress.reset(images, description=name, total=total)
            progress.update(images, completed=done)

        def say(what: str) -> None:
            stop_if_interrupted()
            progress.update(step, description=what)

        yield say, move


class _Log:
    """Writes a line when a set is done, and now and then on the way: a detector takes its time."""

    seconds_between = 20.0

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, name: str, done: int, total: int) -> None:
        from incognita.cli import stop_if_interrupted

        stop_if_interrupted()
        now = time.monotonic()
        if done >= total:
            sys.stderr.write(f"{name}: {total} images\n")
        elif now - self.last > self.seconds_between:
            sys.stderr.write(f"{name}: {done} of {total} images\n")
        else:
            return
        self.last = now


def show(evaluation: "Evaluation | DetectorEvaluation", out: Path) -> None:
    """Print the tables, and what a reader must know."""
    from rich.console import Console
    from rich.text import Text

    # a log or a pipe has no width of its own: give the table the room it needs
    console = Console() if sys.stdout.isatty() else Console(width=156)
    console.print(headline(evaluation))
    console.print(evaluation.table(width=console.width))
    if (more := evaluation.further_tables()) is not None:
        console.print(more)
    notes = [("note", note) for note in evaluation.notes]
    notes += [("left out", f"{name} {why}") for name, why in evaluation.skipped.items()]
    notes += [("failed", f"{name}: {why}") for name, why in evaluation.failed.items()]
    notes += [
        ("broken", f"{image} of {part}: {why}") for part, image, why in evaluation.failed_images[:9]
    ]
    if len(evaluation.failed_images) > 9:
        notes.append(("broken", f"and {len(evaluation.failed_images) - 9} more images"))
    for kind, text in notes:
        console.print(Text.assemble((f"{kind}: ", "yellow"), text))
    console.print(f"Results and scores of every {evaluation.row}: {(out / 'results').resolve()}")
    if pictures := evaluation.metadata.get("pictures"):
        console.print(f"Pictures of what the best method makes of it: {Path(pictures).resolve()}")


def headline(evaluation: "Evaluation | DetectorEvaluation") -> str:
    """Say in a line what was evaluated and how many images went through the network."""
    metadata = evaluation.metadata
    accuracy = _quality(evaluation)
    count = metadata["passes"]
    passes = (
        f"{count['images']} images through the network, {count['forward']} forward and "
        f"{count['backward']} backward passes"
        if count["images"]
        else "nothing left to run through the network"
    )
    return (
        f"{metadata['benchmark']} v{metadata['version']}: {metadata['model']}{accuracy}; {passes}"
    )


def _quality(evaluation: "Evaluation | DetectorEvaluation") -> str:
    """Say how good the model is on known images, and which boxes of a detector are looked at."""
    from incognita.results.tables.detection import thresholds_in_words

    found = evaluation.known_quality()
    parts = [f"{title} {100 * value:.1f} %" for title, value in found.items() if value == value]
    parts += [words] if (words := thresholds_in_words(evaluation.results[0].thresholds)) else []
    return "".join(f", {part}" for part in parts)
