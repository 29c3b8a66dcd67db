"""`incognita list`: the methods, benchmarks and models that have a name."""

import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, NamedTuple

import typer

from incognita._version import __version__
from incognita.cli._terminal import WRONG_USAGE, note

_OURS = f"incognita {__version__}"


class Kind(StrEnum):
    """What can be listed."""

    METHODS = "methods"
    BENCHMARKS = "benchmarks"
    MODELS = "models"


class Entry(NamedTuple):
    """A name, one line about it, and the distribution it belongs to."""

    name: str
    about: str
    origin: str = _OURS

    def __str__(self) -> str:
        of_plug_in = "" if self.origin == _OURS else f" [{self.origin}]"
        return f"{self.about}{of_plug_in}"


def list_command(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    pattern: Annotated[str, typer.Argument(help="Such as 'ash-*'; all of them by default.")] = "*",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Print the names of methods, benchmarks or models, each with one line about it.

    Plug-ins come last, with the distribution they belong to.

    Example: incognita list benchmarks 'openood/*'
    """
    listings = {Kind.METHODS: _methods, Kind.BENCHMARKS: _benchmarks, Kind.MODELS: _models}
    entries = list(listings[kind](pattern))
    if not entries:
        sys.stderr.write(f"incognita: no {kind.value} match {pattern!r}.\n")
        raise typer.Exit(WRONG_USAGE)
    if as_json:
        rows = [entry._asdict() for entry in entries]
        sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
        return
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        sys.stdout.write(f"{entry.name:<{width}}  {entry}".rstrip() + "\n")


def _methods(pattern: str) -> Iterator[Entry]:
    from incognita.methods import METHODS

    plug_ins, notes = METHODS.plug_ins
    for name in METHODS.names(pattern):
        if name not in plug_ins:
            yield Entry(name, METHODS.summary(name))
            continue
        origin = plug_ins[name].distribution
        try:
            yield Entry(name, METHODS.summary(name), origin)
        except Exception as error:  # finding a module runs the code of the package above it
            note(f"The plug-in {name} of {origin} fails: {error}")
    for sentence in notes:
        note(sentence)


def _benchmarks(pattern: str) -> Iterator[Entry]:
    from incognita.benchmarks.definition_files import (
        find_definition,
        installed_benchmarks,
        list_benchmarks,
    )
    from incognita.errors import IncognitaError

    installed = installed_benchmarks()
    for name in list_benchmarks(pattern):
        try:
            definition = find_definition(name).definition
        except IncognitaError as error:
            if name not in installed.paths:
                raise
            note(f"The plug-in {name} of {installed.distributions[name]} fails: {error}")
            continue
        about = f"{definition.task:<14}  {definition.title}"
        yield Entry(name, about, installed.distributions.get(name, _OURS))
    for sentence in installed.notes:
        note(sentence)


def _models(pattern: str) -> Iterator[Entry]:
    from incognita.models import MODELS, library_examples

    for name in MODELS.names(pattern):
        yield Entry(name, MODELS.summary(name))
    own = {"FILE.py:FUNCTION": "A function that returns a torch module, classifier or detector."}
    for name, line in (own | library_examples()).items():
        if fnmatchcase(name, pattern):
            yield Entry(name, line)
