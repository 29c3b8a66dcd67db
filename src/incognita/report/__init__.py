"""Reports as HTML: one self-contained file that opens with the answer.

One module builds the page of each kind of report (`BUILDERS`): `classifier.py` with
`score_figures.py` and `mistakes.py`, `detector.py` with `detector_objects.py`, `self_aware.py` and
`certificate.py`. A report of another kind is shown as the table of its numbers. What they share:
`page.py` turns a page as data into HTML; `cells.py` and `numbers.py` write numbers into tables and
sentences; `charts.py` turns figures into SVG, `drawings.py` has their shapes; `pictures.py` draws
thumbnails. `leaderboard.py` ranks submitted runs, `leaderboard_site.py` writes their pages with
docstrings as `prose.py` reads them.
"""

from collections.abc import Sequence
from html import escape
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from incognita._version import __version__
from incognita.errors import InvalidDataError
from incognita.files import load_json
from incognita.report.charts import NO_VALUE
from incognita.report.page import Cell, Page, PageColumn, PageTable, render
from incognita.results.certificate import Certificate
from incognita.results.export import Report, save_text
from incognita.results.self_aware import SelfAwareReport, SelfAwareStudy

__all__ = ["BUILDERS", "frame_of", "html_of", "load_reports", "page_of", "save_html"]

# The module with the function `build_page`, by the kind of report; see `kind_of`.
BUILDERS: dict[str, str] = {
    "Evaluation image": "incognita.report.classifier",
    "Certificate": "incognita.report.certificate",
    "Evaluation box": "incognita.report.detector",
    "SelfAwareReport": "incognita.report.self_aware",
    "SelfAwareStudy": "incognita.report.self_aware",
}
N_RECORDS = 2000  # rows of a table of all numbers


class PageBuilder(Protocol):
    """How the page of one kind of report is built."""

    def __call__(self, reports: Sequence[Any], *, is_brief: bool) -> Page:
        """Return the page of one or several reports; a brief one has no sections."""


def load_reports(path: Path) -> list[Report]:
    """Load what a path holds: the runs of a folder, newest first, or the report of one file.

    Files may be a certificate, report.json or study.json of a self-aware detector, or one result of
    a run. Of a folder without runs, these are the reports of self-aware detectors in it.
    """
    finished_runs = import_module("incognita.evaluation.finished_runs")
    if path.is_dir() and not finished_runs.has_runs(path):
        if (path / finished_runs.SELF_AWARE).is_file():
            path = path / finished_runs.SELF_AWARE
        elif found := finished_runs.find_self_aware(path):
            return [SelfAwareReport.load(report) for report in found]
    record = load_json(path) if path.is_file() and path.suffix == ".json" else None
    names = set(record) if isinstance(record, dict) else set()
    if isinstance(record, dict) and {"results", "claims", "thresholds"} <= names:
        return [Certificate.from_json(record)]
    if {"results", "before"} <= names:
        return [SelfAwareReport.load(path)]
    if "tables" in names:
        return [SelfAwareStudy.load(path)]
    return [finished_runs.load_run(run) for run in finished_runs.find_runs(path)]


def kind_of(report: Report) -> str:
    """Return which page a report has: its class, for an evaluation also what its rows are."""
    row = getattr(report, "row", None)
    return f"{type(report).__name__} {row}" if row else type(report).__name__


def page_of(reports: Report | Sequence[Report], *, is_brief: bool = False) -> Page:
    """Return the page of one report, or of several of one kind; a brief one has no sections."""
    given = [reports] if isinstance(reports, Report) else list(reports)
    kinds = list(dict.fromkeys(map(kind_of, given)))
    if len(kinds) != 1:
        raise InvalidDataError(
            f"Expected reports of one kind, got {', '.join(kinds) or 'none'}. "
            f"Write a page for each kind."
        )
    if kinds[0] not in BUILDERS:
        return plain_page(given, is_brief=is_brief)
    builder: PageBuilder = import_module(BUILDERS[kinds[0]]).build_page
    return builder(given, is_brief=is_brief)


def html_of(reports: Report | Sequence[Report], *, is_brief: bool = False) -> str:
    """Return reports as one HTML file that needs nothing else; see `page_of`."""
    return render(page_of(reports, is_brief=is_brief))


def save_html(reports: Report | Sequence[Report], path: str | PathLike[str]) -> None:
    """Save reports as one HTML file; an existing file is replaced as a whole or not at all."""
    if not isinstance(path, str | PathLike):
        raise InvalidDataError(f"Expected the path of a file, got {path!r:.80}.")
    save_text(Path(path), html_of(reports))


def frame_of(report: Report, *, height: int = 520) -> str:
    """Return the answer and the table of a report as a frame for a notebook."""
    page = escape(html_of(report, is_brief=True))
    return (
        f'<iframe srcdoc="{page}" width="100%" height="{height}" frameborder="0" '
        f'sandbox="allow-scripts allow-downloads" title="report"></iframe>'
    )


def plain_page(reports: Sequence[Report], *, is_brief: bool = False) -> Page:
    """Return a page with every number of reports that have no page of their own."""
    records = [record for report in reports for record in report.records()]
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [
        {name: Cell(_shown(value), _number(value)) for name, value in record.items()}
        for record in records[: 20 if is_brief else N_RECORDS]
    ]
    numbers = {name for record in records for name, v in record.items() if _number(v) is not None}
    columns = (PageColumn(key=name, label=name, is_number=name in numbers) for name in names)
    n_all = len(records)
    caption = f"The first {len(rows):,} of {n_all:,} numbers." if n_all > len(rows) else ""
    return Page(
        title=", ".join(dict.fromkeys(type(report).__name__ for report in reports)),
        answer="; ".join(report.headline() for report in reports),
        notes=tuple(remark for report in reports for remark in report.remarks()),
        table=PageTable(columns=tuple(columns), rows=tuple(rows), caption=caption, name="numbers"),
        footer=(("incognita", __version__),),
    )


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _shown(value: object) -> str:
    if value is None or value == "":
        return NO_VALUE
    return f"{value:.4g}" if isinstance(value, float) else str(value)
