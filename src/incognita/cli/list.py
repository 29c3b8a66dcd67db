"""`incognita list`: the methods, benchmarks and models that have a name."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from incognita.cli._terminal import WRONG_USAGE


class Kind(StrEnum):
    """What can be listed."""

    METHODS = "methods"
    BENCHMARKS = "benchmarks"
    MODELS = "models"


def list_command(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    pattern: Annotated[str, typer.Argument(help="Such as 'ash-*'; all of them by default.")] = "*",
) -> None:
    """Print the names of methods, benchmarks or models, each with one line about it.

    Example: incognita list benchmarks 'openood/*'
    """
    listings = {Kind.METHODS: _methods, Kind.BENCHMARKS: _benchmarks, Kind.MODELS: _models}
    rows = list(listings[kind](pattern))
    width = max((len(name) for name, _ in rows), default=0)
    for name, line in rows:
        sys.stdout.write(f"{name:<{width}}  {line}\n".rstrip() + "\n")
    if not rows:
        sys.stderr.write(f"incognita: no {kind.value} match {pattern!r}.\n")
        raise typer.Exit(WRONG_USAGE)


def _methods(pattern: str) -> Iterator[tuple[str, str]]:
    from incognita.methods import METHODS

    for name in METHODS.names(pattern):
        yield name, METHODS.summary(name)


def _benchmarks(pattern: str) -> Iterator[tuple[str, str]]:
    from incognita.benchmarks.definition_files import find_definition, list_benchmarks

    for name in list_benchmarks(pattern):
        definition = find_definition(name).definition
        yield name, f"{definition.task:<14}  {definition.title}"


def _models(pattern: str) -> Iterator[tuple[str, str]]:
    from incognita.models import MODELS, library_examples

    for name in MODELS.names(pattern):
        yield name, MODELS.summary(name)
    own = {"FILE.py:FUNCTION": "A function that returns a torch module, classifier or detector."}
    for name, line in (own | library_examples()).items():
        if fnmatchcase(name, pattern):
            yield name, line
