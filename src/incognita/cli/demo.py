"""`incognita demo`: a certificate of the small example that ships with the package."""

from pathlib import Path
from typing import Annotated

import typer


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for what the demo writes.")] = Path("demo"),
) -> None:
    """Certify a simulated street detector that meets animals and scooters it was never taught."""
    from importlib.resources import as_file, files

    from incognita.cli.certify import certify_command

    with as_file(files("incognita.benchmarks").joinpath("examples", "street")) as street:
        certify_command(
            truth=street / "truth.json",
            detections=street / "detections.json",
            classes=street / "classes.toml",
            out=out / "certificate.json",
        )
    typer.echo(f"\nThe certificate is in {(out / 'certificate.json').resolve()}")
