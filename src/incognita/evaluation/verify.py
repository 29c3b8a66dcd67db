"""Checks stored results: every file is there and unchanged, every number can be computed again.

Numbers of a classifier follow from the scores beside each result; those of a detector need the
outputs in the store as well. Nothing is written.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from incognita.errors import IncognitaError
from incognita.evaluation.classifier_metrics import as_results, measure_methods
from incognita.evaluation.finished_runs import find_runs, load_objects, load_record
from incognita.files import load_json
from incognita.results.export import WIDTH, Report
from incognita.results.method_result import MethodResult
from incognita.results.result import Result, Split
from incognita.results.score_tables import Replicates, ScoredSet, common_rows, sets_and_scores
from incognita.results.store import scores_hash, stated_hash

if TYPE_CHECKING:
    import polars
    from rich.console import RenderableType

OBJECTS_TITLE = "(objects)"  # in the place of a method
_TOLERANCE = 1e-9  # of a number that is computed again, relative


class Status(StrEnum):
    """What is known about a stored result."""

    VERIFIED = "verified"
    WRONG = "wrong"
    NOT_RECOMPUTED = "not recomputed"


class DrawnValues(NamedTuple):
    """AUROC on groups, not on single sets: each value followed by its bootstrap replicates.

    Replicates of two results are paired where `draw` is the same: a hash of images, seed and count.
    """

    draw: str
    auroc: Mapping[Split, Replicates]


class Verification(NamedTuple):
    """One result, whether its numbers hold, and if not why.

    `result` is the record where it can be read, `drawn` what was computed again from scores.
    """

    file: str
    method: str
    status: Status
    reasons: tuple[str, ...] = ()
    result: MethodResult | None = None
    drawn: DrawnValues | None = None


@dataclass(frozen=True, repr=False)
class VerificationReport(Report):
    """The verification of every result of one or several runs."""

    verifications: tuple[Verification, ...]

    def __repr__(self) -> str:
        counts = {s: sum(v.status is s for v in self.verifications) for s in Status}
        return ", ".join(f"{n} {status}" for status, n in counts.items() if n) or "no results"

    @property
    def is_wrong(self) -> bool:
        """Whether some result does not hold."""
        return any(v.status is Status.WRONG for v in self.verifications)

    @property
    def is_complete(self) -> bool:
        """Whether every number was computed again."""
        return all(v.status is Status.VERIFIED for v in self.verifications)

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {"results": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """Return one record per result."""
        return [
            {
                "file": v.file,
                "method": v.method,
                "status": str(v.status),
                "reasons": list(v.reasons),
            }
            for v in self.verifications
        ]

    def headline(self) -> str:
        """Return how many results hold."""
        return repr(self)

    def remarks(self) -> list[tuple[str, str]]:
        """Return what is wrong or could not be computed again."""
        return [
            (str(v.status), f"{v.file}: {reason}")
            for v in self.verifications
            for reason in v.reasons
        ]

    def summary(self) -> str:
        """Return how many results hold, and what is wrong."""
        return "\n".join([repr(self), *(f"{kind}: {what}" for kind, what in self.remarks())])

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return one row per result."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        del width
        table = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for name in ("result", "method", ""):
            table.add_column(name)
        for v in self.verifications:
            table.add_row(Text(v.file), Text(v.method), Text(str(v.status)))
        return table


def verify_results(path: str | Path, *, store: str | Path | None = None) -> VerificationReport:
    """Verify every result of the runs below a folder.

    Args:
        path: The `--out` folder of runs, or one result.
        store: The folder with outputs, for detectors; by default `outputs` in the folder of a run.
    """
    found: list[Verification] = []
    for run in find_runs(Path(path)):
        found += verify_run(run, store=store)
    return VerificationReport(tuple({v.file: v for v in found}.values()))


class _Stored(NamedTuple):
    """A result as it is on disk."""

    path: Path
    result: MethodResult
    frame: "polars.DataFrame"


def verify_run(
    run: Path, *, store: str | Path | None = None, recomputes: bool = True
) -> list[Verification]:
    """Verify the results of one run.

    Args:
        run: Its record, a `.run` file.
        store: As for `verify_results`.
        recomputes: Whether numbers are computed again, or only files are checked.
    """
    record = load_record(run)
    loaded: dict[str, _Stored] = {}
    done: list[Verification] = []
    for title, name in record["files"].items():
        read = _read(run.parent / name, str(title))
        if isinstance(read, Verification):
            done.append(read)
        else:
            loaded[str(title)] = read
    if not recomputes:
        done += [_not_recomputed(s, "its numbers were not computed again") for s in loaded.values()]
    elif record["row"] == "image":
        done += _verify_images(loaded, record["bootstrap"])
    else:
        done += _verify_boxes(loaded, run, record, store)
    return done


def _read(path: Path, title: str) -> _Stored | Verification:
    """Read a result and its scores, or say which file is missing or was changed."""
    import polars

    scores = path.with_suffix(".parquet")
    for file in (path, scores):
        if not file.is_file():
            return Verification(str(path), title, Status.WRONG, (f"{file.name} is missing",))
    try:
        document = load_json(path)
        result = MethodResult.from_json(document)
    except IncognitaError as error:
        return Verification(str(path), title, Status.WRONG, (str(error),))
    if stated_hash(document) != scores_hash(scores):
        reason = f"{scores.name} is not the file that was written with the result"
        return Verification(str(path), title, Status.WRONG, (reason,))
    return _Stored(path, result, polars.read_parquet(scores))


def _verify_images(
    loaded: Mapping[str, _Stored], bootstrap: Mapping[str, int]
) -> list[Verification]:
    """Measure the scores again: on the images all methods have, or else on those of each."""
    tables = {title: sets_and_scores(stored.frame) for title, stored in loaded.items()}
    together = _measure(tables, bootstrap)
    done = []
    for title, stored in loaded.items():
        numbers, drawn = together[title]
        problems = _differences(stored.result.results, numbers)
        if problems:
            numbers, drawn = _measure({title: tables[title]}, bootstrap)[title]
            problems = _differences(stored.result.results, numbers)
        done.append(_judged(stored, problems)._replace(drawn=drawn))
    return done


def _measure(
    tables: Mapping[str, Any], bootstrap: Mapping[str, int]
) -> dict[str, tuple[list[Result], DrawnValues]]:
    sets, scores = common_rows(tables)
    measured, accuracy = measure_methods(sets, scores, **bootstrap)
    draw = _draw_hash(sets, bootstrap)
    return {
        title: (
            [*accuracy, *as_results(measured[title], sets)],
            DrawnValues(
                draw,
                {
                    split: values
                    for (metric, split), values in measured[title].items()
                    if metric == "auroc" and split.set is None and split.setting is None
                },
            ),
        )
        for title in tables
    }


def _draw_hash(sets: Iterable[ScoredSet], bootstrap: Mapping[str, int]) -> str:
    """Return a text that is the same where the same replicates of the same images are drawn."""
    images = [[scored.name, scored.group, *scored.image_ids] for scored in sets]
    return sha256(json.dumps([sorted(bootstrap.items()), images]).encode()).hexdigest()[:16]


def _verify_boxes(
    loaded: Mapping[str, _Stored], run: Path, record: Mapping[str, Any], store: str | Path | None
) -> list[Verification]:
    """Score and measure the stored outputs again."""
    from incognita.evaluation.rescore import recompute

    try:
        evaluation = recompute(run, record, list(loaded), store=store)
    except IncognitaError as error:
        objects = _verify_objects(run, record, None, str(error))
        return objects + [_not_recomputed(stored, str(error)) for stored in loaded.values()]
    again = {} if evaluation is None else {str(k): r for k, r in evaluation.methods.items()}
    found = None if evaluation is None else evaluation.objects
    done = _verify_objects(run, record, found, "none of its methods was run again")
    for title, stored in loaded.items():
        if title in again:
            done.append(_judged(stored, _differences(stored.result.results, again[title].results)))
            continue
        reason = "the method was searched or is not one of incognita, and was not run again"
        done.append(_not_recomputed(stored, reason))
    return done


def _not_recomputed(stored: _Stored, reason: str) -> Verification:
    result = stored.result
    status = Status.NOT_RECOMPUTED
    return Verification(str(stored.path), str(result.title), status, (reason,), result)


def _verify_objects(
    run: Path, record: Mapping[str, Any], again: "polars.DataFrame | None", why_not: str
) -> list[Verification]:
    """Compare the stored objects of a run with those that its outputs and its truth give."""
    try:
        stored = load_objects(run, record)
    except IncognitaError as error:
        return [Verification(str(run), OBJECTS_TITLE, Status.WRONG, (str(error),))]
    if stored is None:
        return []  # an earlier version wrote the run
    if again is None:
        return [Verification(str(run), OBJECTS_TITLE, Status.NOT_RECOMPUTED, (why_not,))]
    if stored.equals(again):
        return [Verification(str(run), OBJECTS_TITLE, Status.VERIFIED)]
    reason = "the stored objects are not those that the outputs give"
    return [Verification(str(run), OBJECTS_TITLE, Status.WRONG, (reason,))]


def _judged(stored: _Stored, problems: list[str]) -> Verification:
    status = Status.WRONG if problems else Status.VERIFIED
    shown = problems[:3] + ([f"and {len(problems) - 3} more"] if len(problems) > 3 else [])
    result = stored.result
    return Verification(str(stored.path), str(result.title), status, tuple(shown), result)


def _differences(stored: Iterable[Result], again: Iterable[Result]) -> list[str]:
    """Name the numbers that differ from what was computed again, or are not there."""
    expected = {(r.metric, r.convention, str(r.split)): r for r in again}
    found = {(r.metric, r.convention, str(r.split)): r for r in stored}
    problems = [f"{_named(key)} is missing" for key in expected.keys() - found.keys()]
    problems += [f"{_named(key)} cannot be computed" for key in found.keys() - expected.keys()]
    for key in found.keys() & expected.keys():
        for part in ("value", "low", "high"):
            was, is_now = getattr(found[key], part), getattr(expected[key], part)
            if not _is_same(was, is_now):
                what = part if part != "value" else ""
                problems.append(f"{_named(key)} {what} is stored as {was:.6g}, not {is_now:.6g}")
    return sorted(" ".join(problem.split()) for problem in problems)


def _named(key: tuple[str, str, str]) -> str:
    metric, convention, split = key
    return f"{metric} ({convention}) of {split}"


def _is_same(first: float, second: float) -> bool:
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return math.isclose(first, second, rel_tol=_TOLERANCE, abs_tol=1e-12)
