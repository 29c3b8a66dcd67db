"""`incognita report`: finished runs or certificates as one page for a browser."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from incognita.cli._terminal import progress_on_stderr, refuse_overwriting

if TYPE_CHECKING:
    from incognita.results.export import Report

Runs = Annotated[
    list[Path] | None,
    typer.Argument(
        help="The --out folders of runs, results in them, a certificate.json, or the report.json "
        "of a self-aware detector; runs by default."
    ),
]
Out = Annotated[Path, typer.Option(help="The HTML file.")]


def report_command(runs: Runs = None, out: Out = Path("report.html")) -> None:
    """Write a page with the answer, its table, figures and pictures of finished runs.

    Example: incognita report runs --out report.html

    The page is one file that needs nothing else. Several runs are compared on one page; they must
    be of one kind: classifiers, detectors, self-aware detectors, or certificates.
    """
    from incognita.report import load_reports, save_html

    paths = runs or [Path("runs")]
    refuse_overwriting(out, *paths)
    reports: list[Report] = []
    with progress_on_stderr(n_steps=len(paths) + 1, log_steps=True) as (on_step, _):
        for path in paths:
            on_step(f"loading {path}")
            reports += load_reports(path)
        on_step(f"writing a page of {len(reports)}")
        save_html(reports, out)
    sys.stdout.write(f"The report is in {out.resolve()}\n")
