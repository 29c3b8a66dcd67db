"""What a leaderboard ranks: submitted runs, checked, as tables of rows that can be compared.

A submission is the `--out` folder of `incognita run`. Each run in it is taken as a whole or refused
with its reasons. Rows are compared only where they were tested on the same images.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from incognita.benchmarks.benchmark import ACCEPTED, KNOWN, MIXED, SHIFTED
from incognita.benchmarks.definition_files import find_definition, list_benchmarks
from incognita.errors import IncognitaError, MissingDataError
from incognita.evaluation.finished_runs import find_runs, load_record
from incognita.evaluation.verify import DrawnValues, Status, Verification, verify_run
from incognita.metrics.catalog import Direction, get_metric
from incognita.metrics.measure import (
    MIN_REPLICATES,
    Interval,
    MetricValue,
    interval_of,
    mean_of_values,
)
from incognita.results.analysis import WITHOUT_AUROC
from incognita.results.disclosure import disclosure_of
from incognita.results.method_result import MethodResult, identity_hash
from incognita.results.query import without_training_seed
from incognita.results.result import Result, Split
from incognita.shapes import Bool, Float64

CERTAIN = 0.975  # the share of paired replicates in which a row that is told apart is better
_NOT_UNKNOWN = (KNOWN, SHIFTED, ACCEPTED, MIXED)
OnStep = Callable[[str], None]


class Refusal(NamedTuple):
    """A run that is not part of the leaderboard, and why."""

    path: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SubmittedResult:
    """One result of a run that was taken.

    Args:
        result: Its numbers.
        run: The record of its run.
        record: The content of that record.
        is_verified: Whether all its numbers were computed again for this leaderboard.
        remark: Why they were not.
        drawn: AUROC with its replicates, where scores were measured again.
    """

    result: MethodResult
    run: Path
    record: Mapping[str, Any]
    is_verified: bool
    remark: str = ""
    drawn: DrawnValues | None = None

    @property
    def identity(self) -> Mapping[str, Any]:
        """What its numbers depend on."""
        return self.result.identity

    @property
    def model(self) -> str:
        """The name of the model: the one given to it, or else that of its class or file."""
        return str(self.result.provenance.get("name", self.identity["model"]))

    @property
    def test_data(self) -> str:
        """What must be the same for two results to be comparable: the tested images."""
        data = {k: v for k, v in self.identity["data"].items() if "/" in k}
        shown = json.dumps([data, self.identity["classes"]], sort_keys=True)
        return sha256(shown.encode()).hexdigest()[:8]

    @property
    def groups(self) -> tuple[Split, ...]:
        """The groups of unknown sets, or the mixed sets if there are none."""
        names = [name.partition("/") for name in self.identity["data"] if "/" in name]
        unknown = dict.fromkeys(group for group, _, _ in names if group not in _NOT_UNKNOWN)
        mixed = [Split(name, "all") for group, _, name in names if group == MIXED]
        return tuple(Split(group) for group in unknown) or tuple(mixed)


@dataclass(frozen=True, eq=False)
class Submissions:
    """The results of all submitted runs, the runs that were refused, and notes for the reader."""

    entries: tuple[SubmittedResult, ...]
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


def collect(
    paths: Sequence[str | Path],
    *,
    recomputes: bool = True,
    store: str | Path | None = None,
    on_step: OnStep = lambda what: None,
) -> Submissions:
    """Load and check all runs below the folders.

    Args:
        paths: `--out` folders of runs.
        recomputes: Whether every number is computed again; files are checked in any case.
        store: The folder with outputs of detectors; by default that of each run.
        on_step: Called with a description of each run.
    """
    runs, refused, notes = _find(paths)

    def check(run: Path) -> list[SubmittedResult] | Refusal:
        on_step(f"checking {run}")
        return _checked(run, store, recomputes=recomputes)

    # measuring releases Python's lock; results keep the order of the runs
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(check, runs))
    kept = _Taken()
    for outcome in found:
        if isinstance(outcome, Refusal):
            refused.append(outcome)
        else:
            kept.add(outcome)
    return Submissions(
        tuple(kept.entries.values()), (*refused, *kept.refused), (*notes, *kept.notes)
    )


def _find(paths: Sequence[str | Path]) -> tuple[list[Path], list[Refusal], list[str]]:
    runs: dict[Path, None] = {}
    refused, notes = [], []
    for path in map(Path, paths):
        try:
            if not path.exists():
                raise MissingDataError(f"There is no file or folder {path}. Check the path.")
            found = sorted(find_runs(path))
            runs |= dict.fromkeys(found)
            if n := len(_without_run(path, found)):
                shown = f"{n} results belong" if n > 1 else "1 result belongs"
                notes.append(f"{path}: {shown} to no run and {'are' if n > 1 else 'is'} left out")
        except (IncognitaError, OSError) as error:
            refused.append(Refusal(str(path), (str(error),)))
    return list(runs), refused, notes


def _without_run(path: Path, runs: Iterable[Path]) -> set[Path]:
    """Return the results below a folder that no run names, such as those of older code."""
    if not path.is_dir():
        return set()
    named = set()
    for run in runs:
        try:
            files = load_record(run)["files"].values()
        except (IncognitaError, KeyError, AttributeError):
            continue
        named |= {run.parent / str(name) for name in files}
    results = {file.with_suffix(".json") for file in path.rglob("*.parquet")}
    return {file for file in results if file.is_file() and file not in named}


def _checked(
    run: Path, store: str | Path | None, *, recomputes: bool
) -> list[SubmittedResult] | Refusal:
    """Check one run; whatever is wrong with files of strangers is a reason to refuse it."""
    from polars.exceptions import PanicException

    try:
        record = load_record(run)
        if reasons := [*_wrong_names(record), *_wrong_benchmark(record)]:
            return Refusal(str(run), tuple(reasons))
        verified = verify_run(run, store=store, recomputes=recomputes)
        if reasons := _wrong_results(verified) or _mismatches(record, verified):
            return Refusal(str(run), tuple(reasons))
        return [_entry(run, record, v, v.result) for v in verified if v.result is not None]
    except IncognitaError as error:
        return Refusal(str(run), (str(error),))
    except (Exception, PanicException) as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return Refusal(str(run), (f"It cannot be read: {problem}.",))


def _wrong_names(record: Mapping[str, Any]) -> list[str]:
    """Refuse files outside of the folder of the run."""
    names = list(record["files"].values())
    if not names:
        return ["The run names no result."]
    return [
        f"Expected the name of a file beside the run, got {str(name)!r:.80}."
        for name in names
        if not name or PurePath(str(name)).name != name or "\\" in name or name == ".."
    ]


def _wrong_benchmark(record: Mapping[str, Any]) -> list[str]:
    """Refuse another version or another definition than that of the benchmark of this name."""
    facts = record["metadata"]
    name, version = str(facts["benchmark"]), facts["version"]
    if name not in list_benchmarks():
        return []
    ours = find_definition(name)
    if version != ours.definition.version:
        return [
            f"Expected version {ours.definition.version} of {name}, got version {version}. Run the "
            f"benchmark again with this version of incognita."
        ]
    theirs = facts.get("definition_hash")
    if theirs is not None and theirs != ours.content_hash:
        return [
            f"Expected the definition {ours.content_hash[:8]} of {name}, got {str(theirs)[:8]}. A "
            f"changed benchmark needs a name of its own."
        ]
    return []


def _wrong_results(verified: Iterable[Verification]) -> list[str]:
    wrong = [v for v in verified if v.status is Status.WRONG]
    return [f"{v.method}: {reason}" for v in wrong for reason in v.reasons]


def _mismatches(record: Mapping[str, Any], verified: Iterable[Verification]) -> list[str]:
    """Refuse results that are of another benchmark or model than their run."""
    facts = record["metadata"]
    reasons = []
    for verification in verified:
        if verification.result is None:  # of the run, not of a method
            continue
        identity = verification.result.identity
        for key in ("benchmark", "version", "model", "weights", "data", "classes"):
            if identity.get(key) != facts.get(key):
                reasons.append(
                    f"{verification.method}: its {key} is not that of the run it is named by."
                )
                break
    return reasons


def _entry(
    run: Path, record: Mapping[str, Any], verification: Verification, result: MethodResult
) -> SubmittedResult:
    return SubmittedResult(
        result,
        run,
        record,
        verification.status is Status.VERIFIED,
        "; ".join(verification.reasons),
        verification.drawn,
    )


@dataclass
class _Taken:
    """Entries by identity; copies of a result count once, contradictions are refused."""

    entries: dict[str, SubmittedResult] = field(default_factory=dict)
    definitions: dict[tuple[str, int], tuple[str, Path]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seeds: dict[tuple[str, Any], SubmittedResult] = field(default_factory=dict)

    def add(self, entries: Sequence[SubmittedResult]) -> None:
        """Add the entries of one run, or refuse the run."""
        reasons = [*self._other_definition(entries[0]), *self._contradictions(entries)]
        if reasons:
            self.refused.append(Refusal(str(entries[0].run), tuple(reasons)))
            return
        copies = [e for e in entries if _key(e) in self.entries]
        if copies:
            n, first = len(copies), self.entries[_key(copies[0])].run
            self.notes.append(
                f"{copies[0].run}: {n} of its results {'are' if n > 1 else 'is'} also in {first} "
                f"and counted once"
            )
        self.entries |= {_key(e): e for e in entries if _key(e) not in self.entries}
        self.seeds |= {(_row_hash(e), e.identity.get("training_seed")): e for e in entries}

    def _other_definition(self, entry: SubmittedResult) -> list[str]:
        """Refuse a definition that differs from the first one of the same name and version."""
        facts = entry.record["metadata"]
        if (theirs := facts.get("definition_hash")) is None:
            return []
        benchmark = str(facts["benchmark"]), int(facts["version"])
        first, run = self.definitions.setdefault(benchmark, (theirs, entry.run))
        if theirs == first:
            return []
        return [
            f"Expected the definition {first[:8]} of {benchmark[0]} version {benchmark[1]}, as in "
            f"{run}, got {theirs[:8]}. A changed benchmark needs another version."
        ]

    def _contradictions(self, entries: Sequence[SubmittedResult]) -> list[str]:
        reasons = []
        for entry in entries:
            before = self.entries.get(_key(entry))
            if before is not None and before.result.results != entry.result.results:
                reasons.append(
                    f"{entry.result.title}: {before.run} has other numbers for the same result."
                )
            seed = entry.identity.get("training_seed")
            same = self.seeds.get((_row_hash(entry), seed)) if seed is not None else None
            if same is not None and _key(same) != _key(entry):
                reasons.append(
                    f"{entry.result.title}: {same.run} states the training seed {seed}, too, but "
                    f"has other weights. Give every training its own seed."
                )
        return reasons


def _key(entry: SubmittedResult) -> str:
    return json.dumps(dict(entry.identity), sort_keys=True, default=str)


class Number(NamedTuple):
    """A number of a row: a mean over trainings, its interval, and how far trainings spread.

    `deviation` is the standard deviation over `n_runs` trainings (NaN for one).
    """

    value: float
    low: float
    high: float
    deviation: float = math.nan
    n_runs: int = 1
    reason: str = ""
    support: str = ""


@dataclass(frozen=True, eq=False)
class BoardRow:
    """A row of a leaderboard: one result, or several that differ only in the training seed."""

    entries: tuple[SubmittedResult, ...]

    @property
    def first(self) -> SubmittedResult:
        """The result that stands for what all have in common."""
        return self.entries[0]

    @cached_property
    def id(self) -> str:
        """A name for links that stays the same when the leaderboard is built again."""
        return _row_hash(self.first)

    @property
    def title(self) -> str:
        """The name of the method, and whether it was tuned."""
        return str(self.first.result.title)

    @property
    def is_verified(self) -> bool:
        """Whether every number was computed again."""
        return all(entry.is_verified for entry in self.entries)

    @property
    def training(self) -> str:
        """How the model was trained, if that is stated."""
        return str(self.first.identity.get("training", ""))

    @property
    def disclosure(self) -> dict[str, str]:
        """What the results disclose; where trainings differ, all of it."""
        found = [disclosure_of(entry.result.provenance) for entry in self.entries]
        return {k: "; ".join(dict.fromkeys(stated[k] for stated in found)) for k in found[0]}

    @cached_property
    def _numbers(self) -> list[dict[tuple[str, str, str], Result]]:
        return [
            {(r.metric, str(r.split), r.convention): r for r in entry.result.results}
            for entry in self.entries
        ]

    def number(self, metric: str, split: str, convention: str = "paper") -> Number | None:
        """Return a number, or None if no result has it."""
        key = (metric, str(split), convention)
        found = [numbers[key] for numbers in self._numbers if key in numbers]
        return _joined(found) if len(found) == len(self.entries) else None

    @cached_property
    def drawn(self) -> tuple[str, Float64[np.ndarray, "_"]] | None:
        """What replicates are drawn from, and the mean AUROC over groups with its replicates."""
        drawn = [entry.drawn for entry in self.entries if entry.drawn is not None]
        groups = self.first.groups
        is_whole = len(drawn) == len(self.entries) and len({d.draw for d in drawn}) == 1
        if not is_whole or not all(group in d.auroc for d in drawn for group in groups):
            return None
        mean = mean_of_values([d.auroc[group] for d in drawn for group in groups])
        return (drawn[0].draw, mean) if len(mean) > MIN_REPLICATES else None

    @cached_property
    def mean_auroc(self) -> Number:
        """The mean AUROC over the groups; without replicates its bounds are means of bounds.

        These are too far apart rather than too close: errors of groups partly cancel.
        """
        mean = self.mean_of("auroc")
        if self.drawn is None or math.isnan(mean.value):
            return mean
        values = self.drawn[1]
        bounds = interval_of(MetricValue(values, {}, "undefined"))
        return mean._replace(value=float(values[0]), low=bounds.low, high=bounds.high)

    def mean_of(self, metric: str) -> Number:
        """Return the mean of a metric over the groups; NaN if one has no value."""
        numbers = [self.number(metric, group) for group in self.first.groups]
        defined = [number for number in numbers if number is not None]
        if not defined or len(defined) < len(numbers):
            return Number(math.nan, math.nan, math.nan, reason="not all groups have it")
        value, low, high = (float(np.mean([n[k] for n in defined])) for k in range(3))
        return Number(value, low, high, self._deviation(metric), len(self.entries))

    def _deviation(self, metric: str) -> float:
        groups = self.first.groups
        means = [
            float(np.mean([n[metric, str(group), "paper"].value for group in groups]))
            for n in self._numbers
        ]
        return _deviation(means)


def _row_hash(entry: SubmittedResult) -> str:
    """Return eight digits that results share if only the training seed tells them apart."""
    identity = entry.identity
    has_seed = identity.get("training_seed") is not None
    return identity_hash(without_training_seed(identity) if has_seed else identity)


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _joined(results: Sequence[Result]) -> Number:
    """Average a number over trainings."""
    first = results[0]
    value, low, high = (
        float(np.mean([getattr(result, part) for result in results]))
        if len(results) > 1
        else getattr(first, part)
        for part in ("value", "low", "high")
    )
    support = ", ".join(f"{n:,} {what}" for what, n in first.support.items())
    reason = next((r.reason for r in results if r.reason), "")
    deviation = _deviation([result.value for result in results])
    return Number(value, low, high, deviation, len(results), reason, support)


@dataclass(frozen=True, eq=False)
class Board:
    """Rows that were tested on the same images, best first, with their ranks.

    Args:
        rows: The rows.
        ranks: One more than the number of rows that are certainly better; None without interval.
        by: The metrics that rank: AUROC, or those of detectors without an unknown score.
        n_paired: How many pairs of rows were compared on the same replicates.
    """

    rows: tuple[BoardRow, ...]
    ranks: tuple[int | None, ...]
    by: tuple[str, ...]
    n_paired: int = 0

    @property
    def tied_with_first(self) -> list[BoardRow]:
        """The rows of rank 1."""
        return [row for row, rank in zip(self.rows, self.ranks, strict=True) if rank == 1]


@dataclass(frozen=True, eq=False)
class BenchmarkBoards:
    """The tables of one version of a benchmark: one for each collection of tested images."""

    name: str
    version: int
    title: str
    boards: tuple[Board, ...]

    @property
    def rows(self) -> list[BoardRow]:
        """The rows of all tables."""
        return [row for board in self.boards for row in board.rows]


def boards_of(entries: Iterable[SubmittedResult]) -> list[BenchmarkBoards]:
    """Arrange results by benchmark, version and tested images; rank each table."""
    by_benchmark: dict[tuple[str, int], list[SubmittedResult]] = {}
    for entry in entries:
        key = str(entry.identity["benchmark"]), int(entry.identity["version"])
        by_benchmark.setdefault(key, []).append(entry)
    return [
        BenchmarkBoards(name, version, _title(found), tuple(_boards(found)))
        for (name, version), found in sorted(by_benchmark.items())
    ]


def _title(entries: Sequence[SubmittedResult]) -> str:
    return str(entries[0].record["metadata"].get("title", ""))


def _boards(entries: Iterable[SubmittedResult]) -> list[Board]:
    rows: dict[tuple[str, str, str], list[SubmittedResult]] = {}
    for entry in entries:
        key = entry.test_data, _row_hash(entry), entry.model
        rows.setdefault(key, []).append(entry)
    tables: dict[tuple[bool, str], list[BoardRow]] = {}
    for (data, _, _), found in rows.items():
        found.sort(key=lambda e: (str(e.identity.get("training_seed")), _key(e)))
        row = BoardRow(tuple(found))
        tables.setdefault((math.isnan(row.mean_auroc.value), data), []).append(row)
    # the table with most rows first: usually that of all images
    order = sorted(tables, key=lambda key: (key[0], -len(tables[key]), key[1]))
    return [_without_auroc(tables[key]) if key[0] else _by_auroc(tables[key]) for key in order]


def _by_auroc(rows: Sequence[BoardRow]) -> Board:
    """Rank rows by their mean AUROC over the groups."""
    ordered = sorted(rows, key=lambda row: (-row.mean_auroc.value, row.title, row.id))
    intervals = [Interval(row.mean_auroc.low, row.mean_auroc.high) for row in ordered]
    better = apart_by_interval(intervals)
    n_paired = 0
    for places in _same_draw(ordered):
        values = np.array([ordered[place].drawn[1] for place in places])  # type: ignore[index]
        better[np.ix_(places, places)] = apart_by_pairs(values)
        n_paired += len(places) * (len(places) - 1) // 2
    return _board(ordered, _ranks(better, intervals), ("auroc",), n_paired)


def _same_draw(rows: Sequence[BoardRow]) -> list[list[int]]:
    """Return the places of rows whose replicates were drawn from the same images."""
    places: dict[tuple[str, int], list[int]] = {}
    for place, row in enumerate(rows):
        if row.drawn is not None:
            places.setdefault((row.drawn[0], len(row.drawn[1])), []).append(place)
    return list(places.values())


def _without_auroc(rows: Sequence[BoardRow]) -> Board:
    """Rank rows by AP_U; where their intervals overlap by R_U, then by nOSE."""
    numbers = {metric: [row.mean_of(metric) for row in rows] for metric in WITHOUT_AUROC}
    signs = {m: 1 if get_metric(m).direction is Direction.HIGHER else -1 for m in WITHOUT_AUROC}

    def place(k: int) -> tuple[Any, ...]:
        values = [-signs[m] * numbers[m][k].value for m in WITHOUT_AUROC]
        return *(math.inf if math.isnan(v) else v for v in values), rows[k].title, rows[k].id

    order = sorted(range(len(rows)), key=place)
    better = np.zeros((len(rows), len(rows)), bool)
    for metric in reversed(WITHOUT_AUROC):
        found = [numbers[metric][k] for k in order]
        bounds = [_oriented(number, signs[metric]) for number in found]
        apart = apart_by_interval(bounds)
        better = np.where(apart | apart.T, apart, better)
    intervals = [Interval(n.low, n.high) for n in (numbers[WITHOUT_AUROC[0]][k] for k in order)]
    return _board([rows[k] for k in order], _ranks(better, intervals), WITHOUT_AUROC)


def _board(
    rows: Sequence[BoardRow], ranks: Sequence[int | None], by: tuple[str, ...], n_paired: int = 0
) -> Board:
    """Put rows of a rank together; within a rank they keep their order."""
    places = sorted(range(len(rows)), key=lambda k: math.inf if (r := ranks[k]) is None else r)
    return Board(tuple(rows[k] for k in places), tuple(ranks[k] for k in places), by, n_paired)


def _oriented(number: Number, sign: int) -> Interval:
    return Interval(number.low, number.high) if sign > 0 else Interval(-number.high, -number.low)


def apart_by_interval(intervals: Sequence[Interval]) -> Bool[np.ndarray, "rows rows"]:
    """Return whether the interval of each row lies above that of each other row.

    >>> apart_by_interval([Interval(0.8, 0.9), Interval(0.6, 0.7)]).tolist()
    [[False, True], [False, False]]
    """
    low, high = (np.array(bounds) for bounds in zip(*intervals, strict=True))
    return np.asarray(low[:, None] > high[None, :])


def apart_by_pairs(values: Float64[np.ndarray, "rows columns"]) -> Bool[np.ndarray, "rows rows"]:
    """Return whether each row is better than each other row in 97.5 % of the replicates.

    The first column is the value of the data, which must be larger as well; ties count half.
    """
    replicates = np.ascontiguousarray(values[:, 1:])
    n = replicates.shape[1]
    better = np.zeros((len(values), len(values)), bool)
    for row, mine in enumerate(replicates):
        below = np.count_nonzero(replicates < mine, axis=1)
        ties = np.count_nonzero(replicates == mine, axis=1)
        better[row] = (below + ties / 2 >= CERTAIN * n) & (values[:, 0] < values[row, 0])
    return better


def _ranks(
    better: Bool[np.ndarray, "rows rows"], intervals: Sequence[Interval]
) -> list[int | None]:
    """Return one more than the number of better rows; None for a row without an interval."""
    counts = (1 + better.sum(axis=0)).tolist()
    return [
        None if math.isnan(bounds.low) else rank
        for rank, bounds in zip(counts, intervals, strict=True)
    ]
