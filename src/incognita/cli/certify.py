"""`incognita certify`: every metric of a detector from two COCO JSON files."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incognita._version import __version__

if TYPE_CHECKING:
    from incognita.containers.boxes import BoxTruth, Detections
    from incognita.evaluation.certify import Certificate


Truth = Annotated[Path, typer.Option(help="COCO annotation file: what is really there.")]
Found = Annotated[Path, typer.Option(help="COCO results file: what the detector found.")]
Known = Annotated[
    str | None,
    typer.Option(help="Known classes, separated by commas; every other category is unknown."),
]
ClassMap = Annotated[
    Path | None,
    typer.Option(help="TOML class map: known, unknown, ignored classes and super-classes."),
]
Tau = Annotated[
    float | None,
    typer.Option(
        help="IoU from which LRP and calibration call a detection true; "
        "by default each convention's own, which is 0.1 in the paper."
    ),
]
ScoreThreshold = Annotated[
    float | None,
    typer.Option(
        "--score-threshold",
        "--score-floor",
        help="Drop detections below this confidence first.",
    ),
]
Resamples = Annotated[
    int,
    typer.Option(min=0, max=100_000, help="Bootstrap replicates behind each interval; 0 for none."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the results as JSON instead of a table.")
]
Out = Annotated[Path | None, typer.Option(help="Also write the results as JSON to this file.")]


def certify_command(
    truth: Truth,
    detections: Found,
    known: Known = None,
    classes: ClassMap = None,
    tau: Tau = None,
    score_threshold: ScoreThreshold = None,
    resamples: Resamples = 200,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Show what a detector knows, and what it does with what it does not know.

    Example: incognita certify --truth gt.json --detections dets.json --known car,person,bicycle
    """
    from incognita.cli import collect_garbage_again
    from incognita.evaluation.certify import certify

    refuse_overwriting(out, truth, detections, classes)
    names = None if known is None else [name.strip() for name in known.split(",") if name.strip()]
    pair = read_pair(truth, detections, names, classes)
    collect_garbage_again()
    with steps_on_stderr() as on_step:
        certificate = certify(
            *pair,
            tau=tau,
            score_threshold=score_threshold,
            n_resamples=resamples,
            seed=seed,
            inputs={"incognita": __version__, "known": names}
            | file_facts(truth=truth, detections=detections, classes=classes),
            on_step=on_step,
        )
    if out is not None:
        certificate.save(out)
    if as_json:
        sys.stdout.write(json.dumps(certificate.as_json(), indent=1, allow_nan=False) + "\n")
    else:
        show(certificate)


def read_pair(
    truth: Path, detections: Path, known: list[str] | None, classes: Path | None
) -> "tuple[Detections, BoxTruth]":
    """Read both files under the class map or the list of known classes."""
    from incognita.formats import load_detections, load_truth
    from incognita.formats.class_roles import load_class_map

    class_map = None if classes is None else load_class_map(classes)
    annotated = load_truth(truth, class_map=class_map, known=known)
    return load_detections(detections, annotated), annotated.boxes


@contextmanager
def steps_on_stderr() -> Iterator[Callable[[str], None]]:
    """Give a function that moves a progress bar, where somebody is there to see it."""
    from incognita.cli import stop_if_interrupted

    if not sys.stderr.isatty():
        yield lambda _: stop_if_interrupted()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from incognita.evaluation.certify import N_STEPS

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("matching", total=N_STEPS)

        def move(step: str) -> None:
            stop_if_interrupted()
            progress.update(task, description=step, advance=1)

        yield move


def show(certificate: "Certificate") -> None:
    """Print the table, the thresholds and the notes."""
    from rich.console import Console
    from rich.text import Text

    from incognita.results.tables.certificate import (
        WIDE,
        certificate_table,
        reliability_table,
        threshold_table,
    )

    # a log or a pipe has no width of its own: give the table the room it needs
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    console.print(certificate_table(certificate.results, width=console.width))
    console.print(threshold_table(certificate.thresholds))
    if certificate.reliability:
        console.print(reliability_table(certificate.reliability))
    for note in certificate.notes:
        console.print(Text.assemble(("note: ", "yellow"), note))


def refuse_overwriting(out: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that is one of the inputs: it would be lost."""
    from os.path import realpath  # resolve() raises where links go in a circle

    from incognita.errors import InvalidDataError

    for path in inputs:
        if out is not None and path is not None and realpath(out) == realpath(path):
            raise InvalidDataError(f"--out {out} is one of the inputs; name another file.")


def file_facts(**paths: Path | None) -> dict[str, Any]:
    """Give the name and hash of each file, so that a number can be traced to its input."""
    from hashlib import file_digest

    metadata: dict[str, Any] = {}
    for name, path in paths.items():
        if path is not None:
            with path.open("rb") as stream:
                metadata[name] = {
                    "path": str(path),
                    "sha256": file_digest(stream, "sha256").hexdigest(),
                }
    return metadata
