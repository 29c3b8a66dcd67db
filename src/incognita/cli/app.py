"""The commands and their options."""

from typing import Annotated

import typer

from incognita._version import __version__
from incognita.cli.build import build_app
from incognita.cli.certify import certify_command
from incognita.cli.data import data_app
from incognita.cli.demo import demo_command
from incognita.cli.list import list_command
from incognita.cli.run import run_command

app = typer.Typer(
    name="incognita",
    help="Measures what a vision model does when it meets something it does not know.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("certify")(certify_command)
app.command("demo")(demo_command)
app.command("run")(run_command)
app.command("list")(list_command)
app.add_typer(data_app, name="data")
app.add_typer(build_app, name="build")


@app.callback(invoke_without_command=True)
def options(
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False,
) -> None:
    """Measures what a vision model does when it meets something it does not know."""
    if version:
        typer.echo(f"incognita {__version__}")
        raise typer.Exit
