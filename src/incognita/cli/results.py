"""`incognita results`: what is stored, what it says, whether it holds, and tables of it."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incognita.cli._terminal import (
    CRITERION_FAILED,
    IN_PART,
    names_in,
    progress_on_stderr,
    write_report,
)

if TYPE_CHECKING:
    import polars

    from incognita.results.method_result import MethodResult

results_app = typer.Typer(
    help="List, show, compare, verify and export stored results.", no_args_is_help=True
)
Paths = Annotated[
    list[Path] | None, typer.Argument(help="Folders of runs, or results; runs by default.")
]
OnePath = Annotated[Path, typer.Argument(help="The --out folder of runs, or one result (.json).")]
ResultFile = Annotated[Path, typer.Argument(help="A result (.json).")]
Store = Annotated[
    Path | None, typer.Option(help="Folder with outputs of detectors; by default OUT/outputs.")
]
Metrics = Annotated[
    str | None,
    typer.Option(
        help="Metrics to show, separated by commas; by default auroc, and unknown_ap, "
        "unknown_recall and normalized_open_set_error if a result has no AUROC."
    ),
]
Disclosed = Annotated[
    list[str] | None,
    typer.Option(
        help='Only results that disclose this: "outlier-data=none", "external-supervision=any"; '
        "repeat it for several fields."
    ),
]
Rows = Annotated[str, typer.Option(help="What tells rows apart: benchmark, model, method, …")]
Columns = Annotated[str, typer.Option(help="What tells columns apart: split, metric, …")]
Splits = Annotated[str | None, typer.Option(help="Splits to show; by default groups of sets.")]
Convention = Annotated[str, typer.Option(help="Whose definition, such as paper or fmiyc.")]
Out = Annotated[Path | None, typer.Option(help="File that ends in .md, .tex, .csv or .parquet.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@results_app.command("ls")
def ls_command(paths: Paths = None, disclosed: Disclosed = None, as_json: AsJson = False) -> None:
    """List stored results, the newest last.

    Example: incognita results ls runs
    """
    import json

    found, notes = _load(paths, disclosed)
    found.sort(key=lambda pair: str(pair[1].provenance.get("finished", "")))
    rows = [
        {
            "benchmark": str(result.identity["benchmark"]),
            "model": str(result.provenance.get("name", result.identity["model"])),
            "training": result.identity.get("training"),
            "training_seed": result.identity.get("training_seed"),
            "method": str(result.title),
            "numbers": len(result.results),
            "finished": str(result.provenance.get("finished", "")),
            "file": str(path),
        }
        for path, result in found
    ]
    if as_json:
        sys.stdout.write(json.dumps({"results": rows, "notes": notes}, indent=1) + "\n")
        return
    _print(rows, notes)


def _load(
    paths: Sequence[Path] | None, disclosed: Sequence[str] | None
) -> "tuple[list[tuple[Path, MethodResult]], list[str]]":
    """Load the results that disclose what is wanted; a note counts the others."""
    from incognita.errors import MissingDataError, count
    from incognita.results.disclosure import parse_statements
    from incognita.results.query import load_results, with_disclosure

    found, notes = load_results(paths or [Path("runs")])
    kept = with_disclosure(found, parse_statements(disclosed or ()))
    if not kept:
        raise MissingDataError(
            f"None of {count(len(found), 'result')} discloses {', '.join(disclosed or ())}. See "
            f"what a result discloses with incognita results show."
        )
    if len(kept) < len(found):
        notes.append(f"{count(len(found) - len(kept), 'result')} left out by --disclosed")
    return kept, notes


@results_app.command("show")
def show_command(result: ResultFile, as_json: AsJson = False) -> None:
    """Print every number of a result, with its interval and support, and what it discloses.

    Example: incognita results show runs/results/terra-standard/…/knn-ad83a830.json
    """
    import json

    from incognita.errors import printable
    from incognita.results.disclosure import disclosure_of
    from incognita.results.query import load_results

    ((_, found),), _ = load_results([result])
    if as_json:
        sys.stdout.write(json.dumps(found.as_json(), indent=1) + "\n")
        return
    rows = [number.as_row() for number in found.results]
    _print([{k: v for k, v in row.items() if k != "direction"} for row in rows], found.notes)
    for field, text in disclosure_of(found.provenance).items():
        sys.stdout.write(f"{field}: {printable(text)}\n")


@results_app.command("diff")
def diff_command(first: ResultFile, second: ResultFile, as_json: AsJson = False) -> None:
    """Print what differs between two results; the exit code is 1 if a number does.

    Example: incognita results diff one/knn-ad83a830.json two/knn-77aa0011.json
    """
    import json

    from incognita.results.query import differences, load_results

    ((_, one),), _ = load_results([first])
    ((_, two),), _ = load_results([second])
    found = differences(one, two)
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1, default=str) + "\n")
    else:
        for key, (ours, theirs) in found["identity"].items():
            sys.stdout.write(f"{key}: {str(ours)[:80]} | {str(theirs)[:80]}\n")
        if found["numbers"]:
            _print(found["numbers"], ())
        else:
            sys.stdout.write("All numbers that both have are equal.\n")
    if found["numbers"]:
        raise typer.Exit(CRITERION_FAILED)


@results_app.command("verify")
def verify_command(
    path: OnePath = Path("runs"), store: Store = None, as_json: AsJson = False
) -> None:
    """Compute every number again from stored data, and compare; nothing is written.

    Exit codes: 0 every number holds; 1 a number or a file was changed, or a file is missing; 4 some
    results could not be computed again.

    Example: incognita results verify runs
    """
    from incognita.evaluation.verify import verify_results

    with progress_on_stderr(first="verifying"):
        report = verify_results(path, store=store)
    write_report(report, as_json=as_json)
    if report.is_wrong:
        raise typer.Exit(CRITERION_FAILED)
    if not report.is_complete:
        raise typer.Exit(IN_PART)


@results_app.command("export")
def export_command(
    paths: Paths = None,
    metrics: Metrics = None,
    rows: Rows = "benchmark,model,method",
    columns: Columns = "split,metric",
    splits: Splits = None,
    convention: Convention = "paper",
    disclosed: Disclosed = None,
    out: Out = None,
) -> None:
    """Arrange the results of any number of runs as one table.

    Runs that differ in the training seed alone share a cell, such as 95.1 ±0.3 (3 runs; ±0.5 by
    images): their mean, the standard deviation over runs, and the half interval over images.

    Example: incognita results export runs --metrics auroc,fpr_at_95_known_recall --out table.md
    """
    from incognita.errors import InvalidDataError
    from incognita.results.query import as_frame, as_latex, as_markdown, pivot

    found, notes = _load(paths, disclosed)
    table = pivot(
        as_frame(found),
        metrics=names_in(metrics) or (),
        rows=names_in(rows) or (),
        columns=names_in(columns) or (),
        splits=names_in(splits) or (),
        convention=convention,
    )
    if out is None:
        _print(table.to_dicts(), notes)
        return
    writers = {".md": as_markdown, ".tex": as_latex, ".csv": _as_csv}
    if out.suffix == ".parquet":
        table.write_parquet(out)
    elif out.suffix in writers:
        out.write_text(writers[out.suffix](table), encoding="utf-8")
    else:
        raise InvalidDataError(f"Expected .md, .tex, .csv or .parquet, got {out.name}.")
    sys.stdout.write(f"{table.height} rows: {out}\n")


def _as_csv(table: "polars.DataFrame") -> str:
    return table.write_csv()


def _print(rows: Sequence[Mapping[str, Any]], notes: Iterable[str]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from incognita.results.export import stdout_console

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if v is None else _short(v)) for v in row.values()))
    console = stdout_console()
    console.print(table)
    for note in notes:
        console.print(Text(f"note: {note}"))


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
