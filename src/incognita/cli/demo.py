"""`incognita demo`: a detector certified, methods ranked, a detector tested, all embedded."""

from pathlib import Path
from typing import Annotated

import typer

# of each family some: the whole list is `--methods all`
OF_BOXES = "msp, energy, gen, max-logit, mds, knn, ddu, vim, react, dice, dice+react, ash-s, lard"


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for what the demo writes.")] = Path("demo"),
    limit: Annotated[
        int | None, typer.Option(min=100, help="At most so many images of each set of Terra.")
    ] = None,
) -> None:
    """Certify a simulated street detector, then rank methods on the embedded world Terra.

    First on a classifier of pictures, then on a detector of objects in scenes.
    """
    certify_street(out / "certificate.json")
    rank_on_terra(out, limit)
    find_on_terra(out, limit)


def certify_street(certificate: Path) -> None:
    """A detector that meets animals and scooters it was never taught."""
    from importlib.resources import as_file, files

    from incognita.cli.certify import certify_command

    typer.echo("1. A street detector meets objects it was never taught: incognita certify")
    with as_file(files("incognita.benchmarks").joinpath("examples", "street")) as street:
        certify_command(
            truth=street / "truth.json",
            detections=street / "detections.json",
            classes=street / "classes.toml",
            out=certificate,
        )
    typer.echo(f"\nThe certificate is in {certificate.resolve()}\n")


def rank_on_terra(out: Path, limit: int | None) -> None:
    """A classifier of drawn shapes that meets shapes and pictures it was never taught."""
    from incognita.cli.run import run_command

    typer.echo("2. A classifier meets pictures it was never taught: incognita run terra/standard")
    run_command("terra/standard", methods="all", limit=limit, out=out)


def find_on_terra(out: Path, limit: int | None) -> None:
    """A detector of drawn objects that meets objects it was never taught."""
    from incognita.cli import import_everything_again
    from incognita.cli.run import run_command

    import_everything_again()
    import torch

    torch.set_num_threads(1)  # scenes are small: dealing a layer out takes longer than its work
    typer.echo("\n3. A detector meets objects it was never taught: incognita run terra/detection")
    run_command("terra/detection", methods=OF_BOXES, limit=limit, out=out)
