"""`incognita certify`: every metric of a detector or classifier from files, and criteria."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incognita.cli._log import LogFile, log_report
from incognita.cli._options_file import OptionsFile
from incognita.cli._terminal import (
    CRITERION_FAILED,
    names_in,
    progress_on_stderr,
    refuse_overwriting,
    write_report,
)
from incognita.errors import InvalidDataError
from incognita.results.export import FORMATS

if TYPE_CHECKING:
    from incognita.results.certificate import Certificate

Truth = Annotated[Path, typer.Option(help="COCO annotation file: the annotated objects.")]
FoundPath = Annotated[Path, typer.Option(help="COCO results file: the detections.")]
TruthOrNone = Annotated[
    Path | None, typer.Option(help="COCO annotation file: the annotated objects.")
]
FoundOrNone = Annotated[Path | None, typer.Option(help="COCO results file: the detections.")]
Scores = Annotated[
    Path | None,
    typer.Option(
        help="Instead of both, of a classifier: CSV or Parquet with the columns image, score, "
        "is_unknown and, if known, label and predicted."
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(help="With --scores: the operating point; higher scores are flagged as unknown."),
]
Criteria = Annotated[
    Path | None,
    typer.Option(help="TOML file of claims to check; exit code 1 unless every claim passes."),
]
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
    truth: TruthOrNone = None,
    detections: FoundOrNone = None,
    scores: Scores = None,
    known: Known = None,
    classes: ClassMap = None,
    tau: Tau = None,
    score_threshold: ScoreThreshold = None,
    wi_recall: WildernessRecall = 0.8,
    threshold: Threshold = None,
    criteria: Criteria = None,
    resamples: Resamples = 200,
    seed: Seed = 0,
    wide: Wide = False,
    as_json: AsJson = False,
    out: Out = None,
    log: LogFile = None,
    options: OptionsFile = None,
) -> None:
    """Measure how a detector or a classifier handles what is known and unknown.

    Example: incognita certify --truth gt.json --detections dets.json --known car,person,bicycle

    Example: incognita certify --scores scores.csv --threshold 0.7 --criteria criteria.toml
    """
    refuse_overwriting(out, truth, detections, classes, scores, criteria)
    if scores is not None:
        _refuse_beside("--scores", {
            "--truth": truth, "--detections": detections, "--known": known, "--classes": classes,
            "--tau": tau, "--score-threshold": score_threshold,
        })  # fmt: skip
        certificate = _certify_scores(scores, threshold, criteria, resamples, seed, log)
    else:
        _refuse_beside("detections", {"--threshold": threshold})
        certificate = _certify_boxes(
            truth, detections, known=names_in(known), classes=classes, tau=tau,
            score_threshold=score_threshold, wi_recall=wi_recall, n_resamples=resamples, seed=seed,
            criteria=criteria, log=log,
        )  # fmt: skip
    log_report(log, certificate)
    if out is not None:
        certificate.save(out)
    _finish(certificate, as_json=as_json, wide=wide)


def _finish(certificate: "Certificate", *, as_json: bool, wide: bool) -> None:
    """Print the certificate; exit with code 1 if it fails a criterion."""
    if as_json:
        write_report(certificate, as_json=True)
    else:
        show(certificate, wide=wide)
    if not certificate.meets_criteria:
        raise typer.Exit(CRITERION_FAILED)


def _refuse_beside(what: str, options: Mapping[str, object]) -> None:
    """Raise for an option that would be ignored."""
    for name, value in options.items():
        if value is not None:
            raise InvalidDataError(
                f"Expected no {name} beside {what}, got {value}. Leave one of them out."
            )


def _certify_boxes(
    truth: Path | None, detections: Path | None, *, log: Path | None, **options: Any
) -> "Certificate":
    from incognita.evaluation.certify import N_STEPS, certify

    if truth is None or detections is None:
        missing = "--truth" if truth is None else "--detections"
        raise InvalidDataError(
            f"Expected --truth and --detections, or --scores, got no {missing}. "
            f"See incognita certify --help."
        )
    with progress_on_stderr(n_steps=N_STEPS, first="reading", log=log) as (on_step, _):
        return certify(truth, detections, on_step=on_step, **options)


def _certify_scores(
    scores: Path,
    threshold: float | None,
    criteria: Path | None,
    resamples: int,
    seed: int,
    log: Path | None,
) -> "Certificate":
    from incognita.evaluation.score_certificate import N_SCORE_STEPS, certify_scores

    with progress_on_stderr(n_steps=N_SCORE_STEPS, first="reading", log=log) as (on_step, _):
        return certify_scores(
            scores,
            threshold=threshold,
            criteria=criteria,
            n_resamples=resamples,
            seed=seed,
            on_step=on_step,
        )


def show(certificate: "Certificate", *, wide: bool = False) -> None:
    """Print the tables and the notes."""
    from incognita.results.export import print_report, stdout_console
    from incognita.results.tables.certificate import reliability_table, threshold_table

    console = stdout_console(wide=wide)
    print_report(certificate, console)
    if certificate.thresholds:
        console.print(threshold_table(certificate.thresholds, width=console.width))
    if certificate.reliability:
        console.print(reliability_table(certificate.reliability, width=console.width))
