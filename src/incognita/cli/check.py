"""`incognita check`: the contract of methods, on a method of your own."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incognita.cli._completion import complete_method
from incognita.cli._terminal import CRITERION_FAILED, IN_PART, progress_on_stderr
from incognita.errors import InvalidDataError, count, printable
from incognita.registry import need

if TYPE_CHECKING:
    from incognita.methods.contract import Outcome

Given = Annotated[
    str,
    typer.Argument(
        metavar="METHOD",
        help="FILE.py for all methods in it, FILE.py:Class(k=3), or the name of a method.",
        autocompletion=complete_method,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")]


def check_command(method: Given, as_json: AsJson = False) -> None:
    """Check a method: orientation, ties, zeros, batches, saving, search, and more.

    The method is fitted to made-up outputs of a small network; no model and no images are needed.

    Example: incognita check my_method.py:FarFromMean

    Exit codes: 0 no check failed; 1 one failed; 2 wrong usage; 4 not all could be made.
    """
    need("torch", extra="torch", needed_by="check")
    from contextlib import redirect_stdout

    from incognita.methods.contract import check_method
    from incognita.methods.parse import parse_method

    found: dict[str, list[Outcome]] = {}
    # what a method prints must not end up in the JSON
    with redirect_stdout(sys.stderr), progress_on_stderr(first="importing") as (on_step, _):
        for name in _names(method):
            on_step(f"checking {name}")
            found[name] = check_method(parse_method(name))
    if as_json:
        sys.stdout.write(json.dumps(_as_json(found), indent=2) + "\n")
    else:
        for name, outcomes in found.items():
            _print(name, outcomes)
    statuses = {outcome.status for outcomes in found.values() for outcome in outcomes}
    if "fail" in statuses:
        raise typer.Exit(CRITERION_FAILED)
    if "not checked" in statuses:
        raise typer.Exit(IN_PART)


def _names(given: str) -> list[str]:
    """Return what was given, or each method of a file."""
    from incognita.methods.parse import methods_in

    if not given.endswith(".py"):
        return [given]
    names = methods_in(Path(given).expanduser().resolve())
    if not names:
        raise InvalidDataError(
            f"Expected a method in {given}, found none. Write a subclass of "
            f"incognita.methods.Method."
        )
    return [f"{given}:{name}" for name in names]


def _as_json(found: "dict[str, list[Outcome]]") -> dict[str, Any]:
    return {name: [outcome._asdict() for outcome in outcomes] for name, outcomes in found.items()}


def _print(name: str, outcomes: "list[Outcome]") -> None:
    n_passed = sum(outcome.status == "pass" for outcome in outcomes)
    width = max(len(outcome.check) for outcome in outcomes)
    sys.stdout.write(f"{printable(name)}: {n_passed} of {count(len(outcomes), 'check')} passed\n")
    for outcome in outcomes:
        line = f"{outcome.status:<11}  {outcome.check:<{width}}  {printable(outcome.sentence)}"
        sys.stdout.write(f"  {line}\n")
