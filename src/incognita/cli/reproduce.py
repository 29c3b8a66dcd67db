"""`incognita reproduce`: run again what a result states, and compare the numbers."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from incognita.cli._terminal import CRITERION_FAILED, IN_PART, progress_on_stderr, write_report
from incognita.registry import need

Stored = Annotated[
    Path,
    typer.Argument(help="A result (.json), or a run (.run or its folder) for all its methods."),
]
Out = Annotated[
    Path | None,
    typer.Option(help="New folder for the results and outputs; nothing is written by default."),
]
Tolerance = Annotated[
    float, typer.Option(min=0, help="Largest difference of a number that counts as equal.")
]
Model = Annotated[
    list[str] | None, typer.Option(help="The model, where the result cannot name it; see run.")
]
Weights = Annotated[Path | None, typer.Option(help="Weights, where they are elsewhere now.")]
Data = Annotated[Path | None, typer.Option(help="Folder with images, where it is elsewhere now.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")]
Workers = Annotated[int, typer.Option(min=1, help="Local processes that run the network.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def reproduce_command(
    result: Stored,
    out: Out = None,
    tolerance: Tolerance = 1e-9,
    model: Model = None,
    weights: Weights = None,
    data: Data = None,
    device: Device = "cpu",
    workers: Workers = 1,
    as_json: AsJson = False,
) -> None:
    """Run again what a result states, with its model and its images, and compare the numbers.

    Files that the result names, such as net.py:build, are executed: reproduce results of people
    you trust. `incognita results verify` computes numbers from stored data and executes nothing.

    Example: incognita reproduce runs/results/terra-standard/…/knn-ad83a830.json

    Exit codes: 0 every number is the same within the tolerance; 1 a number differs; 2 wrong usage;
    4 it cannot be run here, with the reason.
    """
    need("torch", extra="torch", needed_by="reproduce")
    from incognita.evaluation.reproduce import reproduce

    progress = progress_on_stderr()
    with redirect_stdout(sys.stderr), progress as (on_step, on_progress):
        report = reproduce(
            result,
            out=out,
            tolerance=tolerance,
            model=model or None,
            weights=weights,
            data=data,
            device=device,
            workers=workers,
            on_step=on_step,
            on_progress=on_progress,
        )
    write_report(report, as_json=as_json)
    if report.differs:
        raise typer.Exit(CRITERION_FAILED)
    if not report.is_complete:
        raise typer.Exit(IN_PART)
