"""`incognita demo`: certify a detector, rank methods on models, make a detector self-aware."""

from pathlib import Path
from typing import Annotated

import typer

# some of each family; `--methods all` runs them all
BOX_METHODS = (
    "msp, energy, gen, max-logit, mds, knn, ddu, vim, react, dice, dice+react, ash-s, lard"
)


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the results of the demo.")] = Path("demo"),
    limit: Annotated[
        int | None,
        typer.Option(min=100, help="Maximum images per set of Terra; ten times for training."),
    ] = None,
) -> None:
    """Certify a simulated street detector, then rank methods on the embedded world Terra.

    First on a classifier of images, then on a detector of objects in scenes, which is made
    self-aware at the end.

    Example: incognita demo --out demo --limit 200
    """
    certify_street(out / "certificate.json")
    rank_on_terra(out, limit)
    find_on_terra(out, limit)
    stay_silent_on_terra(out, limit)


def certify_street(certificate: Path) -> None:
    """Certify a detector that meets animals and scooters it was not trained on."""
    from importlib.resources import as_file, files

    from incognita.cli.certify import certify_command

    typer.echo("1. A street detector meets objects it was not trained on: incognita certify")
    with as_file(files("incognita.benchmarks").joinpath("examples", "street")) as street:
        certify_command(
            truth=street / "truth.json",
            detections=street / "detections.json",
            classes=street / "classes.toml",
            out=certificate,
        )
    typer.echo(f"\nThe certificate is in {certificate.resolve()}\n")


def rank_on_terra(out: Path, limit: int | None) -> None:
    """Rank methods on a classifier that meets shapes and images it was not trained on."""
    from incognita.cli.run import run_command

    typer.echo("2. A classifier meets images of unknown classes: incognita run terra/standard")
    run_command("terra/standard", methods="all", limit=limit, out=out)


def find_on_terra(out: Path, limit: int | None) -> None:
    """Rank methods on a detector that meets objects it was not trained on."""
    import torch

    from incognita.cli.run import run_command

    # scenes are small: sharing a layer among threads costs more than it saves
    torch.set_num_threads(1)
    typer.echo("\n3. A detector meets objects of unknown classes: incognita run terra/detection")
    run_command("terra/detection", methods=BOX_METHODS, limit=limit, out=out)


def stay_silent_on_terra(out: Path, limit: int | None) -> None:
    """Make the detector self-aware: it rejects scenes that it does not understand."""
    from incognita.cli.run import run_command

    typer.echo("\n4. The detector learns to stay silent: incognita run terra/self-aware")
    run_command("terra/self-aware", limit=limit, out=out)
