"""`incognita certify`: every metric of a detector from two COCO JSON files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from incognita.cli._log import LogFile, log_report
from incognita.cli._options_file import OptionsFile
from incognita.cli._terminal import names_in, progress_on_stderr, refuse_overwriting
from incognita.results.export import FORMATS

if TYPE_CHECKING:
    from incognita.results.certificate import Certificate

Truth = Annotated[Path, typer.Option(help="COCO annotation file: the annotated objects.")]
FoundPath = Annotated[Path, typer.Option(help="COCO results file: the detections.")]
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
        help="IoU from which LRP and calibration count a detection as true; "
        "by default each convention's own, 0.1 in the paper."
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
WildernessRecall = Annotated[
    float,
    typer.Option(
        "--wi-recall",
        min=0.0,
        max=1.0,
        help="Recall at which the public codes read wilderness impact.",
    ),
]
Resamples = Annotated[
    int,
    typer.Option(min=0, max=100_000, help="Bootstrap replicates behind each interval; 0 for none."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Print every column, however wide the screen is.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the results as JSON instead of a table.")
]
Out = Annotated[
    Path | None,
    typer.Option(help=f"Also save the results to this file ({', '.join(FORMATS)})."),
]


def certify_command(
    truth: Truth,
    detections: FoundPath,
    known: Known = None,
    classes: ClassMap = None,
    tau: Tau = None,
    score_threshold: ScoreThreshold = None,
    wi_recall: WildernessRecall = 0.8,
    resamples: Resamples = 200,
    seed: Seed = 0,
    wide: Wide = False,
    as_json: AsJson = False,
    out: Out = None,
    log: LogFile = None,
    options: OptionsFile = None,
) -> None:
    """Measure how a detector handles known and unknown objects.

    Example: incognita certify --truth gt.json --detections dets.json --known car,person,bicycle
    """
    from incognita.evaluation.certify import N_STEPS, certify
    from incognita.results.export import as_json_text

    refuse_overwriting(out, truth, detections, classes)
    with progress_on_stderr(n_steps=N_STEPS, first="reading", log=log) as (on_step, _):
        certificate = certify(
            truth,
            detections,
            known=names_in(known),
            classes=classes,
            tau=tau,
            score_threshold=score_threshold,
            wi_recall=wi_recall,
            n_resamples=resamples,
            seed=seed,
            on_step=on_step,
        )
    log_report(log, certificate)
    if out is not None:
        certificate.save(out)
    if as_json:
        sys.stdout.write(as_json_text(certificate))
    else:
        show(certificate, wide=wide)


def show(certificate: "Certificate", *, wide: bool = False) -> None:
    """Print the tables and the notes."""
    from incognita.results.export import print_report, stdout_console
    from incognita.results.tables.certificate import reliability_table, threshold_table

    console = stdout_console(wide=wide)
    print_report(certificate, console)
    console.print(threshold_table(certificate.thresholds, width=console.width))
    if certificate.reliability:
        console.print(reliability_table(certificate.reliability, width=console.width))
