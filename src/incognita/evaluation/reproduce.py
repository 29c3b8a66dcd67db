"""Runs again what a stored result states, with its model and its images, and compares numbers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from incognita.errors import IncognitaError, InvalidDataError, count
from incognita.evaluation.detector import OWN_LABEL
from incognita.evaluation.evaluate import BoxOptions, evaluate
from incognita.evaluation.evaluator import describe
from incognita.evaluation.finished_runs import find_runs, load_record
from incognita.evaluation.fit_and_score import OnStep, Progress
from incognita.extraction.settings import Settings
from incognita.files import load_json
from incognita.methods.parse import parse_method
from incognita.results.evaluation import Evaluation
from incognita.results.export import WIDTH, Report
from incognita.results.method_result import MethodResult
from incognita.results.query import differences
from incognita.results.result import Result

if TYPE_CHECKING:
    from rich.console import RenderableType

TOLERANCE = 1e-9  # of a number, absolute: what the order of additions may change
N_NAMED = 3  # numbers that are named


class Sameness(StrEnum):
    """Whether a result could be run again, and whether its numbers are the same."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NOT_RUN = "not run"


class Reproduction(NamedTuple):
    """One result that was run again.

    Args:
        file: Its file.
        method: Its title.
        outcome: Whether its numbers are the same.
        numbers: How many numbers it has.
        largest: The largest difference of a number; NaN where none is in both.
        reasons: Why it was not run, or which numbers differ.
        changed: What the numbers depend on and is not as it was: versions, weights, data.
    """

    file: str
    method: str
    outcome: Sameness
    numbers: int = 0
    largest: float = math.nan
    reasons: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class ReproductionReport(Report):
    """Results that were run again, and whether their numbers are the same."""

    reproductions: tuple[Reproduction, ...]
    tolerance: float = TOLERANCE
    evaluation: Evaluation | None = None

    def __repr__(self) -> str:
        counts = {o: sum(r.outcome is o for r in self.reproductions) for o in Sameness}
        shown = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n)
        return f"{shown} (tolerance {self.tolerance:g})"

    @property
    def differs(self) -> bool:
        """Whether a number is not the same."""
        return any(r.outcome is Sameness.DIFFERS for r in self.reproductions)

    @property
    def is_complete(self) -> bool:
        """Whether every result was run again."""
        return all(r.outcome is not Sameness.NOT_RUN for r in self.reproductions)

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {"tolerance": self.tolerance, "results": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """Return one record per result."""
        return [
            r._asdict()
            | {
                "outcome": str(r.outcome),
                "largest": None if math.isnan(r.largest) else r.largest,
                "reasons": list(r.reasons),
                "changed": list(r.changed),
            }
            for r in self.reproductions
        ]

    def headline(self) -> str:
        """Return how many results are the same."""
        return repr(self)

    def remarks(self) -> list[tuple[str, str]]:
        """Return which numbers differ, why a result was not run, and what has changed."""
        reasons = [
            (str(r.outcome), f"{r.method}: {why}") for r in self.reproductions for why in r.reasons
        ]
        changed = dict.fromkeys(what for r in self.reproductions for what in r.changed)
        return [*reasons, *(("changed", what) for what in changed)]

    def summary(self) -> str:
        """Return how many results are the same, and what is not."""
        return "\n".join([repr(self), *(f"{kind}: {what}" for kind, what in self.remarks())])

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return one row per result."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        del width
        table = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for name in ("method", "numbers", "largest difference", ""):
            table.add_column(name, justify="right" if name in ("numbers",) else "left")
        for r in self.reproductions:
            largest = "-" if math.isnan(r.largest) else f"{r.largest:.3g}"
            table.add_row(Text(r.method), str(r.numbers), largest, str(r.outcome))
        return table


class _Stored(NamedTuple):
    file: Path
    result: MethodResult


def reproduce(
    path: str | Path,
    *,
    out: str | Path | None = None,
    tolerance: float = TOLERANCE,
    model: Any = None,
    weights: str | Path | None = None,
    data: str | Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    on_progress: Progress | None = None,
    on_step: OnStep | None = None,
) -> ReproductionReport:
    """Run again what a result states, and compare the numbers one by one.

    Files that the result names, such as `net.py:build`, are executed.

    Args:
        path: A result in JSON, or a `.run` file for all methods of a run.
        out: An empty folder for the new results and outputs; nothing is written by default.
        tolerance: The largest difference of a number that counts as equal.
        model: The model, where the result cannot name it.
        weights: Its weights, where they are elsewhere now.
        data: The folder with the images, where it is elsewhere now.
        device: Where the network runs; it may change the last digits of a number.
        workers: Local processes.
        on_progress: As for `evaluate`.
        on_step: As for `evaluate`.
    """
    stored = _stored(Path(path))
    folder = None if out is None else _empty_folder(Path(out))
    given = {"model": model, "weights": weights, "data": data}
    try:
        arguments = _arguments(stored, {k: v for k, v in given.items() if v is not None})
        if folder is not None:
            arguments |= {"out": folder / "results", "store": folder / "outputs"}
        settings = arguments.pop("settings")
        evaluation = evaluate(
            **arguments,
            settings=Settings(**settings, device=device, workers=workers),
            on_progress=on_progress,
            on_step=on_step,
        )
    except IncognitaError as error:
        not_run = [_not_run(s, str(error)) for s in stored]
        return ReproductionReport(tuple(not_run), tolerance)
    done = [_compared(s, evaluation, tolerance) for s in stored]
    return ReproductionReport(tuple(done), tolerance, evaluation)


def _stored(path: Path) -> list[_Stored]:
    """Load a result, or all results of a run."""
    if path.is_file() and path.suffix == ".json":
        files = [path]
    else:
        runs = find_runs(path)
        if len(runs) > 1:
            raise InvalidDataError(
                f"Expected one run, got {len(runs)} below {path}. Name a result (.json) or one of "
                f"them: {', '.join(map(str, runs[:3]))}."
            )
        files = [runs[0].parent / name for name in load_record(runs[0])["files"].values()]
    return [_Stored(file, MethodResult.from_json(load_json(file))) for file in files]


def _empty_folder(folder: Path) -> Path:
    """Return a folder without results, which would be taken instead of being computed again."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidDataError(f"Expected a new or empty folder for --out, got {folder}.")
    return folder


def _arguments(stored: Iterable[_Stored], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `evaluate` that a run was started with; raise where one is lost."""
    stored = list(stored)
    requests = [dict(s.result.provenance.get("request", {})) for s in stored]
    request = next((found for found in requests if found), None)
    if request is None:
        raise InvalidDataError(
            "The result does not state how it was made: an earlier version wrote it, or its method "
            "was added to a finished run. Run the benchmark again."
        )
    lost = [name for name in request.pop("unnamed", []) if name not in given]
    if lost:
        raise InvalidDataError(
            f"The {' and the '.join(lost)} of this result was an object made in Python, which has "
            f"no name to load it by. Pass it to incognita.evaluate again."
        )
    boxes = {n.removeprefix("boxes."): request.pop(n) for n in list(request) if "boxes." in n}
    how = {name: request.pop(name) for name in ("batch_size", "precision") if name in request}
    is_searched = any(s.result.title.tuned for s in stored)
    return (
        request
        | {"search": is_searched, "methods": _methods([s.result for s in stored])}
        | ({"boxes": BoxOptions(**boxes)} if boxes else {})
        | dict(given)
        | {"settings": how}
    )


def _methods(results: Iterable[MethodResult]) -> list[str]:
    """Return the names of the methods to run; raise unless they stand for their parameters."""
    names = []
    for result in {result.method: result for result in results}.values():
        if result.method == OWN_LABEL:
            continue  # the detector itself, which every run of it measures
        parameters = result.identity["parameters"]
        expected = describe(parse_method(result.method))
        per_head = [*parameters.get("scorer", {}).values()] if len(parameters) == 1 else []
        if parameters != expected and per_head != [expected]:
            raise InvalidDataError(
                f"The name {result.method} does not stand for the parameters of this result, "
                f"{dict(parameters)}: the method was made in Python."
            )
        names.append(result.method)
    return names or ["msp"]


def _not_run(stored: _Stored, reason: str) -> Reproduction:
    result = stored.result
    n_numbers = len(result.results)
    return Reproduction(
        str(stored.file), str(result.title), Sameness.NOT_RUN, n_numbers, reasons=(reason,)
    )


def _compared(stored: _Stored, evaluation: Evaluation, tolerance: float) -> Reproduction:
    before, title = stored.result, str(stored.result.title)
    if title not in evaluation.methods:
        return _not_run(stored, str(evaluation.failed.get(title, "it was not run again")))
    now = evaluation.methods[title]
    largest, problems = _problems(before.results, now.results, tolerance)
    shown = problems[:N_NAMED]
    if len(problems) > N_NAMED:
        shown.append(f"and {count(len(problems) - N_NAMED, 'more number', 'more numbers')}")
    outcome = Sameness.DIFFERS if problems else Sameness.EQUAL
    changed = [
        f"{name}: {str(was)[:60]}, now {str(is_now)[:60]}"
        for name, (was, is_now) in differences(before, now)["identity"].items()
    ]
    numbers = len(before.results)
    return Reproduction(
        str(stored.file), title, outcome, numbers, largest, tuple(shown), tuple(changed)
    )


def _problems(
    before: Iterable[Result], now: Iterable[Result], tolerance: float
) -> tuple[float, list[str]]:
    """Return the largest difference of a number or a bound, and what is not the same."""
    found = {(r.metric, r.convention, str(r.split)): r for r in now}
    largest, problems = math.nan, []
    for result in before:
        key = (result.metric, result.convention, str(result.split))
        what = f"{result.metric} ({result.convention}) of {result.split}"
        if (other := found.pop(key, None)) is None:
            problems.append(f"{what} is not there any more")
            continue
        for part in ("value", "low", "high"):
            was, is_now = getattr(result, part), getattr(other, part)
            if math.isnan(was) and math.isnan(is_now):
                continue
            gap = abs(was - is_now)
            largest = gap if math.isnan(largest) else max(largest, gap)
            if not gap <= tolerance:  # also where one of them is undefined
                name = "" if part == "value" else f" {part}"
                problems.append(f"{what}{name} was {was:.9g}, now {is_now:.9g}")
    problems += [f"{m} ({c}) of {s} is new" for m, c, s in found]
    return largest, problems
