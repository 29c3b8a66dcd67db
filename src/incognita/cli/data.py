"""`incognita data`: what a benchmark needs on disk, and what of it is there."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incognita.cli._completion import complete_benchmark

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from incognita.benchmarks.data_plan import Checked, Needed, Verdict
    from incognita.benchmarks.definition import Definition

data_app = typer.Typer(
    help="Show what a benchmark needs on disk, and what of it is there. Nothing is downloaded.",
    no_args_is_help=True,
)
BenchmarkName = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK",
        help="A name, or the path of a TOML file.",
        autocompletion=complete_benchmark,
    ),
]
AllowOutside = Annotated[
    bool,
    typer.Option("--allow-outside", help="Follow paths in files that leave the data folder."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@data_app.command("plan")
def plan_command(
    benchmark: BenchmarkName, allow_outside: AllowOutside = False, as_json: AsJson = False
) -> None:
    """Print what a benchmark needs: images, where they are published, license, size, place.

    Example: incognita data plan openood/cifar10
    """
    from incognita.benchmarks import data_plan as planning
    from incognita.benchmarks.definition_files import find_definition

    definition = find_definition(benchmark, allow_outside=allow_outside).definition
    needed = planning.plan(definition)
    if as_json:
        metadata = {"benchmark": definition.name, "version": definition.version}
        metadata |= {"task": definition.task}
        total = planning.total_megabytes(needed)
        _print_json(metadata | {"sets": planning.as_json(needed), "megabytes": total})
        return
    _show_plan(definition, needed)


@data_app.command("check")
def check_command(
    benchmark: BenchmarkName,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The folder with the data; by default that of the TOML file, or INCOGNITA_DATA."
        ),
    ] = None,
    allow_outside: AllowOutside = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Decode every image; otherwise only headers are read.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is found, what is missing, and which images are empty, truncated or unreadable.

    Exit code 0: complete; 3: the known test set or every unknown set is missing, so that
    nothing can run; 4: something else is missing or damaged, and numbers would be labelled as
    partial.

    Example: incognita data check openood/cifar10 --data data
    """
    from incognita.benchmarks import data_plan as planning
    from incognita.benchmarks.definition_files import find_definition
    from incognita.cli._terminal import DATA_MISSING, IN_PART, progress_on_stderr

    found = find_definition(benchmark, allow_outside=allow_outside)
    with progress_on_stderr(first="checking") as (_, on_progress):
        checked = planning.check(
            found, data, allow_outside=allow_outside, deep=deep, on_progress=on_progress
        )
    verdict = planning.verdict(checked)
    if as_json:
        metadata = {"benchmark": found.definition.name, "task": found.definition.task}
        metadata |= {"verdict": verdict.value}
        _print_json(metadata | {"sets": planning.as_json(checked)})
    else:
        _show_check(found.definition, checked, verdict)
    codes = {
        planning.Verdict.COMPLETE: 0,
        planning.Verdict.MISSING: DATA_MISSING,
        planning.Verdict.PARTIAL: IN_PART,
    }
    raise typer.Exit(codes[verdict])


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _show_plan(definition: "Definition", needed: "list[Needed]") -> None:
    from rich.text import Text

    from incognita.benchmarks.data_plan import total_megabytes

    console = _console()
    sets = _table(_heading(definition), "set", "role", "images", "taken from", "belongs to")
    for need in needed:
        row = (need.set, need.role, _number(need.images), need.source or "", need.place)
        sets.add_row(*(Text(cell) for cell in row))
    console.print(sets)
    rows = list(dict.fromkeys(_source_row(need) for need in needed if need.source))
    sources = _table("Sources", "source", "size", "license")
    for name, size, terms, _ in rows:
        sources.add_row(*(Text(cell) for cell in (name, _size(size), terms)))
    if rows:
        console.print(sources)
    for name, _, _, published in rows:
        if published:  # a line of its own, so that no link is broken
            console.print(Text(f"{name}: {published}"), soft_wrap=True)
    if total := total_megabytes(needed):
        console.print(f"About {_size(total)} on disk in all.")
    if not any(entry.reads_files for entry in definition.set):
        console.print("Nothing to get: the images are drawn from a seed or come with a library.")
    if definition.home:
        where = Text(f"Lists and prepared images: {definition.home}")
        console.print(where, soft_wrap=True)


def _source_row(needed: "Needed") -> tuple[str, float | None, str, str]:
    return (
        needed.source or "",
        needed.megabytes,
        needed.license or "",
        needed.published or "",
    )


def _show_check(definition: "Definition", checked: "list[Checked]", verdict: "Verdict") -> None:
    from rich.text import Text

    console = _console()
    table = _table(_heading(definition), "set", "role", "found", "expected", "missing")
    for row in checked:
        style = "green" if row.is_complete else "yellow" if row.found else "red"
        table.add_row(
            Text(row.set),
            row.role,
            Text(_number(row.found), style=style),
            _number(row.expected),
            Text(row.problem or "\n".join(_shown(row.missing))),
        )
    console.print(table)
    for row in checked:
        for file in row.damaged:
            console.print(Text(f"damaged: {row.set}: {file}"), soft_wrap=True)
        if row.n_damaged > len(row.damaged):
            console.print(f"damaged: {row.set}: {row.n_damaged - len(row.damaged):,} more")
    console.print(Text(f"{verdict.value}: {VERDICTS[verdict.value]}"))


def _shown(missing: tuple[str, ...]) -> list[str]:
    return [*missing[:2], "…"] if len(missing) > 2 else list(missing)


def _console() -> "Console":
    from incognita.results.export import stdout_console

    return stdout_console()


def _table(title: str, *columns: str) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        title=Text(title, style="bold"),
        title_justify="left",
    )
    for column in columns:
        is_number = column in ("images", "size", "found", "expected")
        table.add_column(
            column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold"
        )
    return table


VERDICTS = {
    "complete": "everything is there",
    "partial": "numbers would be labelled as partial",
    "missing": "it cannot run; the known test set or every unknown set is missing",
}


def _heading(definition: "Definition") -> str:
    about = f"{definition.task}, version {definition.version}"
    return f"{definition.name} ({about}): {definition.title}"


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _size(megabytes: float | None) -> str:
    """Write a size as people read it.

    >>> _size(163.0), _size(138000.0), _size(None)
    ('163 MB', '138 GB', '')
    """
    if megabytes is None:
        return ""
    return f"{megabytes:.0f} MB" if megabytes < 1000 else f"{megabytes / 1000:.3g} GB"
