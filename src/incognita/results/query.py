"""Results of any number of runs as one table, with rows and columns of choice."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incognita.errors import IncognitaError, InvalidDataError, MissingDataError, unknown_name
from incognita.files import load_json
from incognita.metrics.catalog import get_metric
from incognita.results.analysis import WITHOUT_AUROC
from incognita.results.disclosure import FIELDS, disclosure_of, matches
from incognita.results.method_result import MethodResult, identity_hash

if TYPE_CHECKING:
    import polars

KEYS = (
    "benchmark",
    "version",
    "model",
    "training",
    "training_seed",
    "method",
    "choice",
    "seed",
    "metric",
    "convention",
    "split",
    *FIELDS,
)
NUMBERS = ("value", "low", "high")
_SETUP = "setup"  # a hash of everything that results depend on, but for the training seed
_OF_THE_SEED = ("training_seed", "weights", "weights_hash")


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


def with_disclosure(
    results: Iterable[tuple[Path, MethodResult]], wanted: Mapping[str, str]
) -> list[tuple[Path, MethodResult]]:
    """Return the results whose disclosure says what is wanted; see `disclosure.matches`."""
    return [
        (path, result)
        for path, result in results
        if matches(disclosure_of(result.provenance), wanted)
    ]


def as_frame(results: Iterable[tuple[Path, MethodResult]]) -> "polars.DataFrame":
    """Return one row per number, with what tells it apart and the file it is from."""
    import polars

    rows = [
        {
            "benchmark": str(result.identity["benchmark"]),
            "version": int(result.identity["version"]),
            "model": str(result.provenance.get("name", result.identity["model"])),
            "training": result.identity.get("training"),
            "training_seed": result.identity.get("training_seed"),
            "method": str(result.title),
            "choice": str(result.identity.get("choice", "given")),
            "seed": int(result.identity.get("seed", 0)),
            **{k: v for k, v in number.as_row().items() if k in (*KEYS, *NUMBERS)},
            **disclosure_of(result.provenance),
            _SETUP: identity_hash(without_training_seed(result.identity)),
            "file": str(path),
        }
        for path, result in results
        for number in result.results
    ]
    types = dict.fromkeys(NUMBERS, polars.Float64) | {
        "training": polars.String,
        "training_seed": polars.Int64,
    }
    return polars.DataFrame(rows, schema_overrides=types, infer_schema_length=None)


def without_training_seed(value: Any) -> Any:
    """Leave out what another seed of the training changes, at any depth of an identity."""
    if isinstance(value, Mapping):
        return {k: without_training_seed(v) for k, v in value.items() if k not in _OF_THE_SEED}
    return [without_training_seed(v) for v in value] if isinstance(value, list | tuple) else value


def over_training_seeds(frame: "polars.DataFrame") -> "polars.DataFrame":
    """Average numbers that differ in nothing but the training seed.

    Returns:
        The columns of `as_frame` without `training_seed`; `value` is the mean over runs, `std` the
        sample standard deviation over them (ddof = 1; null for one run), `runs` the number of runs
        with a value, `all_runs` that of all. `low` and `high` are the means of the bounds of the
        runs: what the images leave open, not the training.
    """
    import polars

    keys = [k for k in frame.columns if k not in ("training_seed", "file", *NUMBERS)]
    repeated = frame.filter(polars.col("training_seed").is_not_null())
    repeated = repeated.group_by([*keys, "training_seed"]).len().filter(polars.col("len") > 1)
    if len(repeated):
        row = repeated.row(0, named=True)
        raise InvalidDataError(
            f"{row['len']} results of {row['method']} on {row['benchmark']} state the training "
            f"seed {row['training_seed']} of {row['training'] or row['model']}, but have other "
            f"weights. Give every run its own --training-seed."
        )
    stated = frame.filter(polars.col("training_seed").is_not_null())
    others = frame.filter(polars.col("training_seed").is_null())
    grouped = stated.group_by(keys, maintain_order=True).agg(
        polars.col("value").mean(),
        polars.col("value").std(ddof=1).alias("std"),
        polars.col("value").count().cast(polars.Int64).alias("runs"),
        polars.len().cast(polars.Int64).alias("all_runs"),
        *(polars.col(name).mean() for name in ("low", "high")),
        polars.col("file").first(),
    )
    alone = others.drop("training_seed").with_columns(
        polars.lit(None, polars.Float64).alias("std"),
        polars.col("value").is_not_null().cast(polars.Int64).alias("runs"),
        polars.lit(1, polars.Int64).alias("all_runs"),
    )
    return polars.concat([alone, grouped.select(alone.columns)])


def default_metrics(frame: "polars.DataFrame") -> list[str]:
    """Return AUROC; where a result has none, also what ranks results without it."""
    import polars

    has_auroc = (polars.col("metric") == "auroc") & polars.col("value").is_not_null()
    with_auroc = frame.filter(has_auroc)["file"].n_unique()
    if with_auroc == frame["file"].n_unique():
        return ["auroc"]
    return [*(["auroc"] if with_auroc else []), *WITHOUT_AUROC]


def pivot(
    frame: "polars.DataFrame",
    *,
    metrics: Sequence[str] = (),
    rows: Sequence[str] = ("benchmark", "model", "method"),
    columns: Sequence[str] = ("split", "metric"),
    splits: Sequence[str] = (),
    convention: str = "paper",
) -> "polars.DataFrame":
    """Arrange numbers in percent as a table, with half of their intervals.

    Results that differ in the training seed alone share a cell, as `95.1 ±0.3 (3 runs)`, unless
    rows or columns tell seeds apart; see `over_training_seeds`.

    Args:
        frame: The table of `as_frame`.
        metrics: Which metrics are shown; by default AUROC, and AP_U, R_U and nOSE if a result has
            none.
        rows: What tells rows apart.
        columns: What tells columns apart.
        splits: Which splits are shown; by default whole groups and mixed sets, not single sets.
        convention: Whose definition.
    """
    import polars

    for name in (*rows, *columns):
        if name not in KEYS:
            raise unknown_name("column of results", name, KEYS)
    for metric in metrics:
        get_metric(metric)
    metrics = metrics or default_metrics(frame)
    chosen = frame.filter(
        polars.col("metric").is_in(list(metrics)) & (polars.col("convention") == convention)
    )
    is_whole = ~polars.col("split").str.contains("/") | polars.col("split").str.ends_with("/all")
    chosen = chosen.filter(polars.col("split").is_in(list(splits)) if splits else is_whole)
    if not len(chosen):
        raise InvalidDataError(
            f"No result has {', '.join(metrics)} ({convention}). Choose other metrics or splits: "
            f"{', '.join(sorted(frame['split'].unique().to_list())[:10])}."
        )
    keys = [*rows, *columns]
    if "training_seed" not in keys:
        chosen = over_training_seeds(chosen)
    repeated = chosen.group_by(keys).len().filter(polars.col("len") > 1)
    if len(repeated):
        raise InvalidDataError(
            f"{len(repeated)} cells have several numbers, such as {repeated.row(0)[:-1]}. Add "
            f"{', '.join(_what_differs(chosen, keys))} to the rows."
        )
    names = polars.concat_str([polars.col(c) for c in columns], separator=" ").alias("column")
    parts = [c for c in ("metric", *NUMBERS, "std", "runs", "all_runs") if c in chosen.columns]
    cells = polars.struct(parts).map_elements(_cell, return_dtype=polars.String)
    table = chosen.with_columns(names, cell=cells).pivot(
        "column", index=list(rows), values="cell", maintain_order=True
    )
    return table.with_columns(polars.exclude(rows).fill_null("-"))


def _what_differs(frame: "polars.DataFrame", keys: Sequence[str]) -> list[str]:
    """Return the columns that tell numbers of one cell apart."""
    import polars

    others = [k for k in KEYS if k in frame.columns and k not in keys]
    counts = frame.group_by(keys).agg(polars.col(others).n_unique()) if others else frame
    found = [k for k in others if counts[k].max() != 1]
    return found or ["version, seed, choice or convention"]


def _cell(number: dict[str, Any]) -> str:
    value, low, high = (number[name] for name in NUMBERS)
    if value is None:
        return "-"
    scale, digits = (1, 0) if get_metric(number["metric"]).is_count else (100, 1)
    shown = f"{scale * value:.{digits}f}"
    by_images = "" if low is None else f"±{scale * (high - low) / 2:.{digits}f}"
    if number.get("all_runs", 1) == 1:
        return f"{shown} {by_images}".rstrip()
    runs, every, std = number["runs"], number["all_runs"], number["std"]
    counted = f"{every} runs" if runs == every else f"{runs} of {every} runs"
    by_runs = "" if std is None else f" ±{scale * std:.{digits}f}"
    return f"{shown}{by_runs} ({counted}{f'; {by_images} by images' if by_images else ''})"


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
