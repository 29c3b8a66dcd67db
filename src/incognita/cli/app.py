"""The commands and their options."""

from typing import Annotated

import typer

from incognita import __version__
from incognita.cli.certify import certify_command
from incognita.cli.demo import demo_command

app = typer.Typer(
    name="incognita",
    help="Measures what a vision model does when it meets something it does not know.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("certify")(certify_command)
app.command("demo")(demo_command)


def _show_version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"incognita {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False,  # noqa: FBT001, FBT002, E501 - typer needs a plain argument
) -> None:
    """Options of every command."""
    _show_version(asked=version)
