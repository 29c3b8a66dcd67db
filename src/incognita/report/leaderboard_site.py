"""The leaderboard as a folder of static pages, with its tables as CSV and JSON."""

import ast
import csv
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from incognita._version import __version__
from incognita.calls import parse_call, split_calls
from incognita.errors import IncognitaError, InvalidDataError, count
from incognita.files import reporting_full_disk
from incognita.methods import METHODS
from incognita.metrics.catalog import get_metric
from incognita.report import html_of
from incognita.report.leaderboard import (
    BenchmarkBoards,
    Board,
    BoardRow,
    Number,
    Submissions,
    SubmittedResult,
    boards_of,
)
from incognita.report.page import Cell, Page, PageColumn, PageTable, Section, render, slug
from incognita.report.prose import paragraphs
from incognita.results.disclosure import FIELDS
from incognita.results.method_result import Cost
from incognita.results.result import FULL_SPECTRUM, Split

FORMAT = "incognita.leaderboard.1"
MANIFEST = "leaderboard.json"  # lists the files of a site, so that a later one replaces only these
_LONGEST_NAME = 60  # letters of a name in a file name
RULE = (
    "A rank is one more than the number of rows that are significantly better. Rows of different "
    "ranks may still be tied with each other: a row can be worse than the first and tied with the "
    "second. Where two rows were scored on the same images, one is "
    "significantly better if its mean AUROC over the groups is higher, and is so in at least 97.5 "
    "% of the bootstrap replicates, drawn for both from the same images. Otherwise it is if its "
    "95 % interval lies above that of the other. Pairs are compared one by one, without a "
    "correction for their number. Intervals are over test images; how far trainings spread is the "
    "standard deviation beside them. A row without an interval has no rank."
)
RULE_WITHOUT_AUROC = (
    "These detectors have no unknown score and therefore no AUROC. They are compared by AP_U; "
    "where its intervals overlap by R_U, then by nOSE, each averaged over the groups. A rank is "
    "one more than the number of rows that are significantly better."
)


def file_slug(name: str) -> str:
    """Return a file name for a name of a stranger; no two names have the same.

    Names of plain letters stay as they are; a hash tells the others apart, also from plain names
    that look like one of them.

    >>> file_slug("knn"), file_slug("../knn"), file_slug("KNN")
    ('knn', 'knn-9b1ae2dde6', 'knn-30ef771650')
    """
    plain = slug(name)[:_LONGEST_NAME].strip("-")
    if plain and plain == name and not re.search(r"-[0-9a-f]{10}$", name):
        return plain
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:10]
    return f"{plain}-{digest}".lstrip("-")


class NumberColumn(NamedTuple):
    """A column of numbers; without a split, the mean over the groups."""

    metric: str
    split: str
    is_shown: bool

    @property
    def key(self) -> str:
        """Its name in files."""
        return f"{self.metric} {self.split or 'mean'}"

    @property
    def label(self) -> str:
        """What its head shows."""
        return f"{get_metric(self.metric).title} {self.split or 'mean'}"

    def of(self, row: BoardRow) -> Number | None:
        """Return the number of a row."""
        if self.split:
            return row.number(self.metric, self.split)
        return row.mean_auroc if self.metric == "auroc" else row.mean_of(self.metric)


# metrics of groups by row: means that are shown, and others a reader may choose
_MEANS = {
    "image": ("auroc", "fpr_at_95_unknown_recall"),
    "box": ("auroc", "unknown_ap", "unknown_recall", "normalized_open_set_error"),
}
_OF_GROUPS = {
    "image": (
        "fpr_at_95_unknown_recall", "fpr_at_95_known_recall", "aupr_unknown", "aupr_known",
    ),
    "box": (
        "unknown_ap", "unknown_recall", "normalized_open_set_error", "unknown_precision",
        "fpr_at_95_known_recall",
    ),
}  # fmt: skip
_OF_KNOWN = {"image": ("accuracy",), "box": ("ap", "ap50")}
_OF_MIXED = ("unknown_ap", "unknown_recall", "normalized_open_set_error", "map_known")


def number_columns(board: Board) -> list[NumberColumn]:
    """Return the columns that some row of a table has a number for."""
    first = board.rows[0].first
    kind, groups = str(first.record["row"]), first.groups
    wanted = [NumberColumn(metric, "", True) for metric in _MEANS[kind]]
    wanted += [NumberColumn("auroc", group, True) for group in groups]
    wanted += [NumberColumn(metric, "known", True) for metric in _OF_KNOWN[kind][:1]]
    wanted += [
        NumberColumn(metric, group, False) for metric in _OF_GROUPS[kind] for group in groups
    ]
    wanted += [NumberColumn(metric, "known", False) for metric in _OF_KNOWN[kind][1:]]
    wanted += [NumberColumn("auroc", Split(g, setting=FULL_SPECTRUM), False) for g in groups]
    wanted += [NumberColumn("auroc", "misclassified", False)]
    mixed = [n for n in first.identity["data"] if n.startswith("mixed/")]
    splits = [Split(name.partition("/")[2], "all") for name in mixed]
    wanted += [NumberColumn(metric, split, False) for split in splits for metric in _OF_MIXED]
    return [c for c in dict.fromkeys(wanted) if any(_is_defined(c.of(row)) for row in board.rows)]


def _is_defined(number: Number | None) -> bool:
    return number is not None and not math.isnan(number.value)


def board_cell(metric: str, number: Number | None, *, is_best: bool = False) -> Cell:
    """Return a number in percent with half of its interval, or why there is none."""
    if number is None:
        return Cell("-")
    if math.isnan(number.value):
        return Cell("-", note=number.reason)
    scale, digits = (1, 0) if get_metric(metric).is_count else (100, 1)
    parts = []
    if not math.isnan(number.low):
        parts.append(f"± {scale * (number.high - number.low) / 2:.{digits}f}")
    if number.n_runs > 1:
        parts.append(f"std {scale * number.deviation:.{digits}f}")
    text = f"{scale * number.value:.{digits}f}"
    return Cell(text, number.value, "; ".join(parts), is_best=is_best)


def _number_head(column: NumberColumn) -> PageColumn:
    metric = get_metric(column.metric)
    images = f"Images: {column.split}." if column.split else "Mean over the groups of unknown sets."
    unit = "A count." if metric.is_count else "In percent."
    return PageColumn(
        key=column.key,
        label=column.label,
        direction="up" if metric.direction.arrow == "↑" else "down",
        definition=f"{metric.title}: {metric.meaning}. {images} {unit} ± is half of the 95 % "
        f"bootstrap interval over images.",
        convention="paper",
        is_shown=column.is_shown,
    )


@dataclass(frozen=True, eq=False)
class Site:
    """The pages of a leaderboard.

    Args:
        submissions: What it shows.
        has_reports: Whether the report of every run is part of it.
        on_step: Called with a description of each report.
    """

    submissions: Submissions
    has_reports: bool = True
    on_step: Callable[[str], None] = lambda what: None
    notes: list[str] = field(default_factory=list)

    @cached_property
    def benchmarks(self) -> list[BenchmarkBoards]:
        """The tables by benchmark."""
        return boards_of(self.submissions.entries)

    @cached_property
    def places(self) -> list["Place"]:
        """Every row with its table and its rank."""
        return [
            Place(benchmark, board, row, rank)
            for benchmark in self.benchmarks
            for board in benchmark.boards
            for row, rank in zip(board.rows, board.ranks, strict=True)
        ]

    def files(self) -> dict[str, str]:
        """Return the text of every file by its path below the site."""
        reports = dict(self._reports()) if self.has_reports else {}
        written = {**reports, "index.html": self._index()}
        for benchmark in self.benchmarks:
            base = _benchmark_file(benchmark)
            written[f"{base}.html"] = self._benchmark_page(benchmark, reports)
            written[f"{base}.csv"] = as_csv(benchmark)
            written[f"{base}.json"] = as_json(benchmark)
        for name, places in _grouped(self.places, lambda p: p.row.first.result.method).items():
            written[f"methods/{file_slug(name)}.html"] = _method_page(name, places)
        for name, places in _grouped(self.places, lambda p: model_key(p.row.first)).items():
            written[f"models/{file_slug(name)}.html"] = _model_page(places)
        manifest = {"format": FORMAT, "incognita": __version__, "files": sorted(written)}
        return written | {MANIFEST: json.dumps(manifest, indent=1) + "\n"}

    def _reports(self) -> Iterator[tuple[str, str]]:
        """Yield the report of each run; one that fails is left out with a note."""
        from incognita.evaluation.finished_runs import load_run

        for run in dict.fromkeys(entry.run for entry in self.submissions.entries):
            self.on_step(f"report of {run}")
            try:
                yield _run_file(run), html_of(load_run(run))
            except Exception as error:  # its record may be incomplete in any way
                problem = " ".join(f"{type(error).__name__}: {error}".split())
                self.notes.append(f"{run} has no report: {problem:.200}")

    def _index(self) -> str:
        n_rows = len(self.places)
        n_verified = sum(place.row.is_verified for place in self.places)
        methods = _grouped(self.places, lambda p: p.row.first.result.method)
        models = _grouped(self.places, lambda p: model_key(p.row.first))
        refused = len(self.submissions.refused)
        page = Page(
            title="Leaderboard",
            answer=f"{count(len(methods), 'method')} on {count(len(models), 'model')} and "
            f"{count(len(self.benchmarks), 'benchmark')}: {count(n_rows, 'row')}, of which "
            f"{n_verified:,} {'was' if n_verified == 1 else 'were'} computed again for this page.",
            facts=(("incognita", __version__), ("refused runs", str(refused))),
            table=PageTable(
                name="benchmarks",
                columns=_INDEX_COLUMNS,
                rows=tuple(map(_index_row, self.benchmarks)),
            ),
            sections=(
                _listing("Which methods?", "methods", methods),
                _listing("Which models?", "models", models),
            ),
            footer=_FOOTER,
        )
        return _render(page, "")

    def _benchmark_page(self, benchmark: BenchmarkBoards, reports: Mapping[str, str]) -> str:
        tables = [
            _board_table(benchmark, board, k, reports) for k, board in enumerate(benchmark.boards)
        ]
        first, *others = tables
        base = _benchmark_file(benchmark).rpartition("/")[2]
        page = Page(
            title=f"{benchmark.name}, version {benchmark.version}",
            answer=_answer(benchmark),
            facts=_facts(benchmark),
            table=first,
            sections=(
                *(
                    Section(
                        question=_board_question(board),
                        sentence=_board_sentence(board),
                        parts=(table,),
                        anchor=f"table-{k}",
                    )
                    for k, (board, table) in enumerate(
                        zip(benchmark.boards[1:], others, strict=True), start=2
                    )
                ),
                Section(question="How are ranks given?", sentence=_rules(benchmark)),
                Section(question="What does verified mean?", sentence=_VERIFIED),
            ),
            footer=_FOOTER,
        )
        links = [(f"{base}.csv", "CSV"), (f"{base}.json", "JSON")]
        return _render(page, "../", links=links)


class Place(NamedTuple):
    """A row in its table."""

    benchmark: BenchmarkBoards
    board: Board
    row: BoardRow
    rank: int | None

    @property
    def link(self) -> str:
        """Its address from a page of a method or a model."""
        return f"../{_benchmark_file(self.benchmark)}.html#{row_id(self.row)}"


_FOOTER = (
    ("made by", f"incognita {__version__}"),
    ("repeat", "incognita leaderboard RUNS --out SITE"),
)
_VERIFIED = (
    "Every number of a verified row, with its interval, was computed again from the stored scores "
    "of single images or boxes when this page was made. The scores themselves come from whoever "
    "submitted the run. Rows that are not verified are shown as they were submitted; their notes "
    "say why."
)
_INDEX_COLUMNS = (
    PageColumn(key="benchmark", label="benchmark", is_number=False),
    PageColumn(key="title", label="about", is_number=False),
    PageColumn(key="rows", label="rows"),
    PageColumn(key="verified", label="verified"),
    PageColumn(key="models", label="models"),
    PageColumn(key="first", label="rank 1", is_number=False),
)


def row_id(row: BoardRow) -> str:
    """Return the place of a row in links; it is the same whenever the site is built."""
    return f"{slug(row.title) or 'row'}-{row.id}"


def model_key(entry: SubmittedResult) -> str:
    """Return what tells models apart: name and weights; trainings by seed are one model."""
    has_seed = entry.identity.get("training_seed") is not None
    weights = "" if has_seed else f" {str(entry.identity['weights'])[:8]}"
    training = entry.identity.get("training")
    return f"{entry.model}{weights}{'' if training is None else f' {training}'}"


def _benchmark_file(benchmark: BenchmarkBoards) -> str:
    return f"benchmarks/{file_slug(f'{benchmark.name}-v{benchmark.version}')}"


def _run_file(run: Path) -> str:
    """Return the path of a report; run records are named by the hash of what they depend on."""
    return f"runs/{file_slug('-'.join((*run.parts[-3:-1], run.stem)))}.html"


def _grouped(places: Iterable[Place], key: Callable[[Place], str]) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = {}
    for place in places:
        found.setdefault(key(place), []).append(place)
    return dict(sorted(found.items()))


def _render(page: Page, root: str, **values: Any) -> str:
    filled = {"links": (), "parts_of_text": ()} | values
    return render(page, template="leaderboard_page.html", root=root, **filled)


def _index_row(benchmark: BenchmarkBoards) -> dict[str, Cell]:
    rows = benchmark.rows
    first = benchmark.boards[0].tied_with_first
    shown = ", ".join(dict.fromkeys(row.title for row in first[:3]))
    more = f" and {len(first) - 3} more" if len(first) > 3 else ""
    version = f" v{benchmark.version}"
    return {
        "benchmark": Cell(benchmark.name + version, href=f"{_benchmark_file(benchmark)}.html"),
        "title": Cell(benchmark.title),
        "rows": Cell(f"{len(rows):,}", len(rows)),
        "verified": _counted(sum(row.is_verified for row in rows)),
        "models": _counted(len({model_key(row.first) for row in rows})),
        "first": Cell(f"{shown}{more}" or "-"),
    }


def _counted(n: int) -> Cell:
    return Cell(f"{n:,}", n)


def _listing(question: str, folder: str, found: Mapping[str, Sequence[Place]]) -> Section:
    """List methods or models with links to their pages."""
    columns = (
        PageColumn(key="name", label=folder.removesuffix("s"), is_number=False),
        PageColumn(key="rows", label="rows"),
        PageColumn(key="benchmarks", label="benchmarks"),
        PageColumn(key="best", label="best rank", direction="down"),
    )
    rows = []
    for name, places in found.items():
        ranks = [place.rank for place in places if place.rank is not None]
        rows.append(
            {
                "name": Cell(name, href=f"{folder}/{file_slug(name)}.html"),
                "rows": _counted(len(places)),
                "benchmarks": _counted(len({id(place.benchmark) for place in places})),
                "best": Cell(str(min(ranks)), min(ranks)) if ranks else Cell("-"),
            }
        )
    table = PageTable(name=folder, columns=columns, rows=tuple(rows))
    sentence = (
        f"{count(len(found), folder.removesuffix('s'))}; the best rank is over all benchmarks."
    )
    return Section(question=question, sentence=sentence, parts=(table,))


def _answer(benchmark: BenchmarkBoards) -> str:
    """Return which rows are best, in one sentence written from the numbers."""
    board = benchmark.boards[0]
    best, n_tied = board.rows[0], len(board.tied_with_first)
    column = NumberColumn(board.by[0], "", True)
    cell = board_cell(column.metric, column.of(best))
    value = " ".join(f"{column.label} {cell.text} {cell.margin}".split())
    shown = f"{best.title} on {best.first.model} has the best value ({value})"
    if board.ranks[0] is None:
        return f"{shown}; without intervals no row can be ranked."
    if len(board.rows) == 1:
        return f"{shown} of a single row."
    if n_tied == 1:
        others = "any other of" if len(board.rows) > 2 else "the other of"
        return f"{shown}, significantly better than {others} {len(board.rows):,} rows."
    tied = f"{n_tied:,} of {len(board.rows):,} rows"
    return f"{shown}; {tied} share rank 1, since none is significantly better than they are."


def _facts(benchmark: BenchmarkBoards) -> tuple[tuple[str, str], ...]:
    rows = benchmark.rows
    dates = sorted(
        str(e.result.provenance["finished"])[:10]
        for row in rows
        for e in row.entries
        if e.result.provenance.get("finished")
    )
    newest = (("newest result", dates[-1]),) if dates else ()
    return (
        ("about", benchmark.title),
        ("rows", f"{len(rows):,}"),
        ("verified", f"{sum(row.is_verified for row in rows):,}"),
        ("images", _board_question(benchmark.boards[0]).removeprefix("Tested on ")),
        *newest,
    )


def _board_question(board: Board) -> str:
    """Return what sets a table apart from the others of a page."""
    first = board.rows[0].first
    limit = first.identity.get("limit")
    images = "all images" if limit is None else f"at most {limit} images per set"
    return f"Tested on {images}{'' if board.by == ('auroc',) else ', without an unknown score'}"


def _board_sentence(board: Board) -> str:
    if board.by != ("auroc",):
        return RULE_WITHOUT_AUROC
    n = len(board.rows)
    return (
        f"{count(n, 'row')} tested on other images than the first table: the numbers of the tables "
        f"do not compare."
    )


def _rules(benchmark: BenchmarkBoards) -> str:
    board = benchmark.boards[0]
    n_pairs = len(board.rows) * (len(board.rows) - 1) // 2
    rule = RULE if board.by == ("auroc",) else RULE_WITHOUT_AUROC
    paired = f" In the first table {board.n_paired:,} of {n_pairs:,} pairs share their replicates."
    return rule + (paired if board.by == ("auroc",) else "")


_COST: dict[str, tuple[str, Callable[[Cost], float]]] = {
    "passes": ("forward + backward passes per image", lambda cost: cost.forwards + cost.backwards),
    "µs per row": ("processor time of scoring, without the network",
                   lambda cost: cost.microseconds_per_sample),
    "fit s": ("processor time of fitting, without the network", lambda cost: cost.fit_seconds),
    "state MB": ("memory of the fitted state", lambda cost: cost.state_bytes / 1e6),
}  # fmt: skip


def _board_table(
    benchmark: BenchmarkBoards, board: Board, k: int, reports: Mapping[str, str]
) -> PageTable:
    numbers = number_columns(board)
    has_training = any(row.training for row in board.rows)
    columns = (
        PageColumn(key="method", label="method", is_number=False),
        PageColumn(key="model", label="model", is_number=False),
        PageColumn(
            key="rank", label="rank", direction="down", definition="See: How are ranks given?"
        ),
        *map(_number_head, numbers),
        PageColumn(key="training", label="training", is_number=False, is_shown=has_training),
        PageColumn(
            key="runs",
            label="runs",
            definition="Trainings that differ in their seed; std is over them.",
            is_shown=any(len(row.entries) > 1 for row in board.rows),
        ),
        PageColumn(key="verified", label="verified", is_number=False, is_choice=True),
        *(
            PageColumn(
                key=name, label=name, is_number=False, is_shown=False, is_choice=True,
                definition=f"{meaning[0].upper()}{meaning[1:]}.",
            )
            for name, meaning in FIELDS.items()
        ),
        *(
            PageColumn(key=key, label=key, direction="down", is_shown=False,
                       definition=f"{meaning[0].upper()}{meaning[1:]}.")
            for key, (meaning, _) in _COST.items()
        ),
        PageColumn(key="finished", label="finished", is_number=False, is_shown=False),
        PageColumn(key="report", label="report", is_number=False, is_shown=bool(reports)),
        PageColumn(key="link", label="link", is_number=False),
    )  # fmt: skip
    tied = {rank: board.ranks.count(rank) for rank in board.ranks}
    rows = [
        _board_row(row, rank, tied[rank], numbers, reports)
        for row, rank in zip(board.rows, board.ranks, strict=True)
    ]
    name = f"{benchmark.name}-v{benchmark.version}{f'-{k + 1}' if k else ''}"
    ids = tuple(map(row_id, board.rows))
    return PageTable(columns=columns, rows=tuple(rows), row_ids=ids, name=name)


def _board_row(
    row: BoardRow,
    rank: int | None,
    n_tied: int,
    numbers: Sequence[NumberColumn],
    reports: Mapping[str, str],
) -> dict[str, Cell]:
    first = row.first
    report, cost = _run_file(first.run), first.result.cost
    shown = f"report (1 of {len(row.entries)})" if len(row.entries) > 1 else "report"
    remark = "" if row.is_verified else _without_place(first)
    cells = {
        "method": Cell(row.title, href=f"../methods/{file_slug(first.result.method)}.html"),
        "model": Cell(first.model, href=f"../models/{file_slug(model_key(first))}.html"),
        "rank": _rank_cell(rank, n_tied),
        "training": Cell(row.training or "-"),
        "runs": _counted(len(row.entries)),
        "verified": Cell("verified") if row.is_verified else Cell("no", note=remark),
        "finished": Cell(str(first.result.provenance.get("finished", "-"))[:10]),
        "report": Cell(shown, href=f"../{report}") if report in reports else Cell("-"),
        "link": Cell("#", href=f"#{row_id(row)}"),
    }
    cells |= {name: Cell(text) for name, text in row.disclosure.items()}
    cells |= {key: _cost_cell(read(cost)) for key, (_, read) in _COST.items()}
    return cells | {
        c.key: board_cell(c.metric, c.of(row), is_best=rank == 1 and k == 0)
        for k, c in enumerate(numbers)
    }


def _rank_cell(rank: int | None, n_tied: int) -> Cell:
    if rank is None:
        return Cell("-", note="It has no interval.")
    return Cell(str(rank), rank, f"shared by {n_tied:,}" if n_tied > 1 else "")


def _cost_cell(value: int | float) -> Cell:
    return Cell(f"{value:.3g}", value)


def _without_place(entry: SubmittedResult) -> str:
    """Return why an entry is not verified; folders of this machine are nobody's business."""
    folder = str(entry.run.parents[min(3, len(entry.run.parents) - 1)])
    return entry.remark.replace(f"{folder}{os.sep}", "").replace(str(Path.home()), "~")


# --- pages of methods and models


def method_docs(name: str) -> dict[str, str]:
    """Return the docstrings of a method and of those it wraps, by name.

    Files of users are read, never run; where there is none, nothing is returned.
    """
    try:
        calls = [parse_call(p, kind="method", example="knn").name for p in split_calls(name, "+")]
    except IncognitaError:
        return {}
    joined = "+".join(calls)
    names = [joined] if joined in METHODS else calls
    docs = {part: _docstring(part) for part in names}
    return {part: doc for part, doc in docs.items() if doc}


def _docstring(name: str) -> str:
    if name in METHODS:
        return METHODS.docstring(name)
    file, _, title = name.rpartition(":")
    try:
        source = Path(file).read_text(encoding="utf-8") if file.endswith(".py") else ""
        body = ast.parse(source).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ""
    found = [node for node in body if isinstance(node, ast.ClassDef) and node.name == title]
    return (ast.get_docstring(found[0]) or "") if found else ""


def _method_page(name: str, places: Sequence[Place]) -> str:
    docs = method_docs(name)
    first, *rest = docs.items() or [(name, f"{name} is not one of incognita's methods.")]
    answer = "".join(span.text for span in paragraphs(first[1])[0])
    texts = [(first[0], first[1].partition("\n\n")[2]), *rest]
    page = Page(
        title=name,
        answer=answer,
        sections=(
            Section(
                question="Where does it stand?",
                sentence=f"{count(len(places), 'row')} on "
                f"{count(len({id(p.benchmark) for p in places}), 'benchmark')}.",
                parts=(_places_table(places, "model"),),
            ),
        ),
        footer=_FOOTER,
    )
    return _render(page, "../", parts_of_text=texts)


def _model_page(places: Sequence[Place]) -> str:
    entry = places[0].row.first
    n_benchmarks = len({id(p.benchmark) for p in places})
    networks = entry.identity.get("networks") or [entry.identity]
    page = Page(
        title=entry.model,
        answer=f"{entry.model} has {count(len(places), 'row')} on "
        f"{count(n_benchmarks, 'benchmark')}.",
        facts=(
            ("weights", str(entry.identity["weights"])),
            ("known classes", f"{len(entry.identity['classes']):,}"),
            ("training", str(entry.identity.get("training", "not stated"))),
            *(("preprocessing", str(n["preprocessing"])) for n in networks if "preprocessing" in n),
        ),
        sections=(
            Section(
                question="Which methods find the unknown with it?",
                sentence="The ranks are those on the page of each benchmark, among all models.",
                parts=(_places_table(places, "method"),),
            ),
        ),
        footer=_FOOTER,
    )
    return _render(page, "../")


def _places_table(places: Sequence[Place], other: str) -> PageTable:
    """List rows with their ranks; `other` is what tells them apart on this page."""
    columns = (
        PageColumn(key=other, label=other, is_number=False),
        PageColumn(key="benchmark", label="benchmark", is_number=False),
        PageColumn(key="rank", label="rank", direction="down"),
        PageColumn(key="rows", label="of rows"),
        PageColumn(key="auroc", label="AUROC mean", direction="up"),
        PageColumn(key="verified", label="verified", is_number=False),
    )
    rows = []
    for place in places:
        benchmark, row = place.benchmark, place.row
        is_model = other == "model"
        name = row.first.model if is_model else row.title
        page = file_slug(model_key(row.first) if is_model else row.first.result.method)
        rows.append(
            {
                other: Cell(name, href=f"../{other}s/{page}.html"),
                "benchmark": Cell(f"{benchmark.name} v{benchmark.version}", href=place.link),
                "rank": _rank_cell(place.rank, 0),
                "rows": _counted(len(place.board.rows)),
                "auroc": board_cell("auroc", row.mean_auroc),
                "verified": Cell("verified" if row.is_verified else "no"),
            }
        )
    return PageTable(name="results", columns=columns, rows=tuple(rows))


# --- downloads


def _records(benchmark: BenchmarkBoards) -> Iterator[tuple[dict[str, Any], dict[str, Number]]]:
    """Yield what each row is, and its numbers."""
    for k, board in enumerate(benchmark.boards, start=1):
        columns = number_columns(board)
        for row, rank in zip(board.rows, board.ranks, strict=True):
            first = row.first
            about = {
                "id": row_id(row),
                "table": k,
                "rank": rank,
                "method": row.title,
                "model": first.model,
                "weights": "+".join(str(e.identity["weights"]) for e in row.entries),
                "training": row.training,
                "runs": len(row.entries),
                "verified": row.is_verified,
                **row.disclosure,
            }
            numbers = {c.key: c.of(row) for c in columns}
            yield about, {key: number for key, number in numbers.items() if number is not None}


def as_csv(benchmark: BenchmarkBoards) -> str:
    """Return one line per row: what it is, then each number with its bounds and deviation."""
    found = list(_records(benchmark))
    keys = list(dict.fromkeys(key for _, numbers in found for key in numbers))
    has_runs = any(number.n_runs > 1 for _, numbers in found for number in numbers.values())
    parts = ("value", "low", "high", *(["deviation"] if has_runs else []))
    heads = [key if part == "value" else f"{key} {part}" for key in keys for part in parts]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*found[0][0], *heads])
    empty = Number(math.nan, math.nan, math.nan)
    for about, numbers in found:
        values = [getattr(numbers.get(key, empty), part) for key in keys for part in parts]
        writer.writerow([*about.values(), *("" if math.isnan(v) else repr(v) for v in values)])
    return text.getvalue()


def as_json(benchmark: BenchmarkBoards) -> str:
    """Return the rows as JSON, with the rule behind the ranks."""
    rows = [
        about
        | {
            "numbers": {
                key: {n: _finite(v) for n, v in number._asdict().items()}
                for key, number in numbers.items()
            }
        }
        for about, numbers in _records(benchmark)
    ]
    record = {
        "format": FORMAT,
        "benchmark": benchmark.name,
        "version": benchmark.version,
        "rule": _rules(benchmark),
        "rows": rows,
    }
    return json.dumps(record, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


# --- the folder


def save_site(out: Path, files: Mapping[str, str]) -> None:
    """Write a site as a whole, in place of an earlier one; files of others are never touched."""
    out = Path(os.path.realpath(out))
    refuse_files_of_others(out)
    if not out.parent.is_dir():
        raise InvalidDataError(f"There is no folder {out.parent} to write into. Make it first.")
    new, old = (out.with_name(f".{out.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    try:
        with reporting_full_disk(out):
            for name, text in files.items():
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            if out.exists():
                out.rename(old)
            new.rename(out)
    except BaseException:
        if old.exists() and not out.exists():
            old.rename(out)
        raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def refuse_files_of_others(out: Path) -> None:
    """Raise unless a folder is new, empty, or holds nothing but an earlier leaderboard."""
    out = Path(os.path.realpath(out))
    if not out.exists():
        return
    if not out.is_dir():
        raise InvalidDataError(f"Expected a folder for the site, got the file {out}.")
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if not _is_folder(path)}
    others = sorted(there - _own_files(out))
    if others:
        raise InvalidDataError(
            f"{out} holds {others[0]}, which is not part of a leaderboard. Choose a folder that is "
            f"empty or new, or move the file away."
        )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _own_files(out: Path) -> set[str]:
    try:
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        is_ours = manifest["format"] == FORMAT
        return {*map(str, manifest["files"]), MANIFEST} if is_ours else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()
