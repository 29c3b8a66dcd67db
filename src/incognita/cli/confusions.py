"""`incognita confusions`: what unknown images are called by, and how near in meaning that is."""

from pathlib import Path
from typing import Annotated

import typer

from incognita.cli._terminal import write_report

Run = Annotated[
    Path, typer.Argument(help="The --out folder of a run of a classifier, or one of its results.")
]
Maps = Annotated[
    list[str] | None,
    typer.Option("--map", help="A ready map of class names, such as places365; repeat."),
]
Overrides = Annotated[
    Path | None, typer.Option(help="TOML file with synsets of class names, before all maps.")
]
MethodName = Annotated[
    str | None, typer.Option("--method", help="Whose scores weigh the graph; the best by default.")
]
MinImages = Annotated[int, typer.Option(min=1, help="Images behind an edge of the graph.")]
Out = Annotated[Path | None, typer.Option(help="Folder for confusions.json, .csv and .graphml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def confusions_command(
    run: Run = Path("runs"),
    maps: Maps = None,
    overrides: Overrides = None,
    method: MethodName = None,
    min_images: MinImages = 2,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Show how near in meaning predictions are, and which classes are confused.

    Example: incognita confusions runs --map places365 --map imagenet1k --out confusions
    """
    from incognita.evaluation.confusions import study_run

    report = study_run(run, maps or (), overrides=overrides, method=method, min_images=min_images)
    if out is not None:
        report.save(out / "confusions.json")
        report.save(out / "confusions.csv")
        report.save_graph(out / "confusions.graphml")
    write_report(report, as_json=as_json)
