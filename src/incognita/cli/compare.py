"""`incognita compare`: how runs and results differ, and on which images."""

from pathlib import Path
from typing import Annotated

import typer

from incognita.cli._terminal import (
    IN_PART,
    names_in,
    progress_on_stderr,
    refuse_overwriting,
    write_report,
)

Compared = Annotated[
    list[Path], typer.Argument(help="Folders of runs, or results (.json); the first is the base.")
]
Methods = Annotated[
    str | None, typer.Option(help="Methods to compare, separated by commas; by default all.")
]
Store = Annotated[
    Path | None, typer.Option(help="Folder with outputs of detectors; by default OUT/outputs.")
]
Images = Annotated[int, typer.Option(min=0, help="Images to list on which results disagree.")]
Out = Annotated[
    Path | None, typer.Option(help="File for everything: .json, .csv (numbers) or .txt.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def compare_command(
    runs: Compared,
    methods: Methods = None,
    store: Store = None,
    images: Images = 20,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs or results: differences with intervals, and the images they disagree on.

    Models, methods, trainings or seeds. Results of the same images are measured on the same
    bootstrap replicates; of other images on independent ones, which the report says. Of several
    runs methods of one name are compared, of one run all methods with its best.

    Example: incognita compare one/results two/results --methods knn

    Exit codes: 0 compared; 2 wrong usage; 3 data missing; 4 compared in part: results are not of
    the same images, or outputs of a detector are missing, so that there are no intervals.
    """
    from incognita.evaluation.compare import compare_results

    refuse_overwriting(out, *runs)
    with progress_on_stderr(first="comparing"):
        chosen = names_in(methods)
        report = compare_results(runs, methods=chosen, store=store, n_images=images)
    if out is not None:
        report.save(out)
    write_report(report, as_json=as_json)
    if not report.is_complete:
        raise typer.Exit(IN_PART)
