"""Results of any number of runs as one table, with rows and columns of choice."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incognita.errors import IncognitaError, InvalidDataError, MissingDataError, unknown_name
from incognita.files import load_json
from incognita.metrics.catalog import get_metric
from incognita.results.method_result import MethodResult

if TYPE_CHECKING:
    import polars

KEYS = (
    "benchmark",
    "version",
    "model",
    "method",
    "choice",
    "seed",
    "metric",
    "convention",
    "split",
)
NUMBERS = ("value", "low", "high")


def load_results(paths: Iterable[str | Path]) -> tuple[list[tuple[Path, MethodResult]], list[str]]:
    """Load every result below folders; also return notes on files that cannot be read.

    Args:
        paths: Folders with results, or single files.
    """
    found, notes = [], []
    for path in map(Path, paths):
        if not path.exists():
            raise MissingDataError(f"There is no file or folder {path}. Check the path.")
        below = sorted(path.rglob("*.json")) if path.is_dir() else []
        for file in [path] if path.is_file() else filter(_has_scores, below):
            try:
                found.append((file, MethodResult.from_json(load_json(file))))
            except IncognitaError as error:
                if path.is_file():
                    raise
                notes.append(f"{file} is left out: {error}")
    if not found:
        raise MissingDataError(
            f"There is no result in {', '.join(map(str, paths)) or 'nothing'}. Name the --out "
            f"folder of a run."
        )
    return found, notes


def _has_scores(path: Path) -> bool:
    """Whether a JSON file has a table beside it, as every result has."""
    return path.with_suffix(".parquet").is_file()


def as_frame(results: Iterable[tuple[Path, MethodResult]]) -> "polars.DataFrame":
    """Return one row per number, with what tells it apart and the file it is from."""
    import polars

    rows = [
        {
            "benchmark": str(result.identity["benchmark"]),
            "version": int(result.identity["version"]),
            "model": str(result.provenance.get("name", result.identity["model"])),
            "method": str(result.title),
            "choice": str(result.identity.get("choice", "given")),
            "seed": int(result.identity.get("seed", 0)),
            **{k: v for k, v in number.as_row().items() if k in (*KEYS, *NUMBERS)},
            "file": str(path),
        }
        for path, result in results
        for number in result.results
    ]
    types = dict.fromkeys(NUMBERS, polars.Float64)
    return polars.DataFrame(rows, schema_overrides=types, infer_schema_length=None)


def pivot(
    frame: "polars.DataFrame",
    *,
    metrics: Sequence[str] = ("auroc",),
    rows: Sequence[str] = ("benchmark", "model", "method"),
    columns: Sequence[str] = ("split", "metric"),
    splits: Sequence[str] = (),
    convention: str = "paper",
) -> "polars.DataFrame":
    """Arrange numbers in percent as a table, with half of their intervals.

    Args:
        frame: The table of `as_frame`.
        metrics: Which metrics are shown.
        rows: What tells rows apart.
        columns: What tells columns apart.
        splits: Which splits are shown; by default whole groups, not single sets.
        convention: Whose definition.
    """
    import polars

    for name in (*rows, *columns):
        if name not in KEYS:
            raise unknown_name("column of results", name, KEYS)
    for metric in metrics:
        get_metric(metric)
    chosen = frame.filter(
        polars.col("metric").is_in(list(metrics)) & (polars.col("convention") == convention)
    )
    of_groups = ~polars.col("split").str.contains("/")
    chosen = chosen.filter(polars.col("split").is_in(list(splits)) if splits else of_groups)
    if not len(chosen):
        raise InvalidDataError(
            f"No result has {', '.join(metrics)} ({convention}). Choose other metrics or splits: "
            f"{', '.join(sorted(frame['split'].unique().to_list())[:10])}."
        )
    keys = [*rows, *columns]
    repeated = chosen.group_by(keys).len().filter(polars.col("len") > 1)
    if len(repeated):
        raise InvalidDataError(
            f"{len(repeated)} cells have several numbers, such as {repeated.row(0)[:-1]}. Add "
            f"version, seed, choice or convention to the rows."
        )
    names = polars.concat_str([polars.col(c) for c in columns], separator=" ").alias("column")
    cells = polars.struct("metric", *NUMBERS).map_elements(_cell, return_dtype=polars.String)
    return chosen.with_columns(names, cell=cells).pivot(
        "column", index=list(rows), values="cell", maintain_order=True
    )


def _cell(number: dict[str, Any]) -> str:
    value, low, high = (number[name] for name in NUMBERS)
    if value is None:
        return "-"
    scale, digits = (1, 0) if get_metric(number["metric"]).is_count else (100, 1)
    shown = f"{scale * value:.{digits}f}"
    return shown if low is None else f"{shown} ±{scale * (high - low) / 2:.{digits}f}"


def as_markdown(table: "polars.DataFrame") -> str:
    """Return a table in Markdown; bars in names are escaped."""
    rows = [table.columns, ["---"] * table.width, *table.rows()]
    escaped = [[_text(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


def as_latex(table: "polars.DataFrame") -> str:
    r"""Return a table in LaTeX with booktabs; special characters are escaped.

    >>> import polars
    >>> print(as_latex(polars.DataFrame({"method": ["a_b"], "near": ["90.0 ±0.5"]})).split("\n")[4])
    a\_b & 90.0 $\pm$0.5 \\
    """
    body = [" & ".join(map(_tex, row)) + r" \\" for row in table.rows()]
    head = " & ".join(map(_tex, table.columns)) + r" \\"
    columns = "l" * sum(c in KEYS for c in table.columns)
    columns += "r" * (table.width - len(columns))
    start = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*start, *body, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _text(value: Any) -> str:
    return "" if value is None else str(value)


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
}  # fmt: skip


def _tex(value: Any) -> str:
    return "".join(_TEX.get(letter, letter) for letter in _text(value))


def differences(first: MethodResult, second: MethodResult) -> dict[str, Any]:
    """Return what differs between two results: their identity, and every number."""
    ours, theirs = dict(first.identity), dict(second.identity)
    identity = {
        key: [ours.get(key), theirs.get(key)]
        for key in sorted(ours.keys() | theirs.keys())
        if json.dumps(ours.get(key), default=str) != json.dumps(theirs.get(key), default=str)
    }
    numbers = []
    others = {(r.metric, r.convention, str(r.split)): r for r in second.results}
    for result in first.results:
        other = others.get((result.metric, result.convention, str(result.split)))
        if other is not None and result.value != other.value:
            numbers.append(
                {
                    "metric": result.metric,
                    "convention": result.convention,
                    "split": str(result.split),
                    "first": result.value,
                    "second": other.value,
                }
            )
    return {"identity": identity, "numbers": numbers}
