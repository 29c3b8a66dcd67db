"""One evaluation on its way: what is stored already, the contest, the numbers, the records."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from incognita import __version__
from incognita.benchmarks.benchmark import Benchmark
from incognita.errors import InvalidDataError
from incognita.methods.method import Method
from incognita.results.method_result import MethodResult
from incognita.results.result import Result
from incognita.results.result_store import ResultStore
from incognita.running.asked_methods import Asked
from incognita.running.contest import Contest, fit_parts, test_parts
from incognita.running.evaluation import Evaluation
from incognita.running.passes import Passes
from incognita.running.ranking_results import (
    FULL_SPECTRUM,
    Measured,
    accuracy_results,
    as_results,
    draw,
    measure_mistakes,
    measure_unknown,
)
from incognita.running.score_frames import frame_of, sets_and_scores
from incognita.running.scored_sets import SHIFTED, ScoredSet, Scores

if TYPE_CHECKING:
    import polars

TUNED = " (tuned)"
Stored = dict[str, tuple[MethodResult, "polars.DataFrame"]]


@dataclass(frozen=True)
class Options:
    """What changes the numbers of an evaluation beside model, benchmark and methods."""

    search: bool = False
    limit: int | None = None
    seed: int = 0
    n_resamples: int = 200


@dataclass(frozen=True, eq=False)
class Assessment:
    """Ranks the methods that were asked for; those with stored results are not run again."""

    benchmark: Benchmark
    asked: Asked
    options: Options
    passes: Passes
    results: ResultStore | None = None

    def run(self, on_step: Callable[[str], None] | None = None) -> Evaluation:
        """Do what is missing and put everything together."""
        shared = self._shared_identity()
        stored = self._stored(shared)
        left = {name: m for name, m in self.asked.methods.items() if not self._has(stored, name, m)}
        tuned = frozenset(name for name in left if self._is_searched(left[name]))
        contest = Contest(self.benchmark, self.passes, left, tuned, on_step)
        if left:
            contest.run()
        sets, scores = _rows(contest, stored)
        if not scores:
            reasons = "; ".join(f"{name}: {why}" for name, why in contest.failed.items())
            raise InvalidDataError(f"No method could be run. {reasons}")
        measured, accuracy = self._measure(sets, scores)
        records = {title: record for title, (record, _) in stored.items()}
        for title in contest.contestants:
            record = self._record(title, contest, shared, measured[title], accuracy)
            records[title] = record
            if self.results is not None:
                self.results.save(record, frame_of(sets, scores[title]))
        return Evaluation(
            methods=records,
            groups=_groups(sets, full_spectrum=self.benchmark.full_spectrum),
            measured=measured,
            sets=sets,
            scores=scores,
            skipped=self.asked.skipped,
            failed=contest.failed,
            broken=tuple((part, b.image_id, b.reason) for part, b in self.passes.broken),
            notes=tuple(self.benchmark.notes),
            facts=self._facts(shared),
        )

    def _is_searched(self, method: Method) -> bool:
        return self.options.search and bool(method.search_space)

    def _titles(self, name: str, method: Method) -> list[str]:
        return [name, name + TUNED] if self._is_searched(method) else [name]

    def _shared_identity(self) -> dict[str, Any]:
        """What all methods of this evaluation share."""
        first = self.passes.networks[0]
        datasets = {part: each for part, each in fit_parts(self.benchmark).items() if each}
        datasets |= {name: each for _, name, each in test_parts(self.benchmark)}
        return {
            "benchmark": self.benchmark.name,
            "version": self.benchmark.version,
            "data": {name: each.fingerprint()[:16] for name, each in datasets.items()},
            "model": first.name,
            "weights": "+".join(each.weights_hash[:16] for each in self.passes.networks),
            "preprocessing": "+".join(each.preprocessing for each in self.passes.networks),
            "precision": self.passes.settings.precision,
            "batch_size": self.passes.settings.batch_size,
            "limit": self.options.limit,
            "seed": self.options.seed,
            "resamples": self.options.n_resamples,
        }

    def _identity(self, shared: Mapping[str, Any], title: str) -> dict[str, Any]:
        name = title.removesuffix(TUNED)
        return dict(shared) | {
            "method": name,
            "choice": "tuned" if title.endswith(TUNED) else "given",
            "parameters": describe(self.asked.methods[name]),
            "code": code_of(self.asked.methods[name]),
        }

    def _stored(self, shared: Mapping[str, Any]) -> Stored:
        found: Stored = {}
        for name, method in self.asked.methods.items():
            for title in self._titles(name, method):
                there = self.results and self.results.find(self._identity(shared, title))
                if there:
                    found[title] = there
        return found

    def _has(self, stored: Stored, name: str, method: Method) -> bool:
        return all(title in stored for title in self._titles(name, method))

    def _measure(
        self, sets: Sequence[ScoredSet], scores: Mapping[str, Scores]
    ) -> tuple[dict[str, Measured], list[Result]]:
        weights = draw(sets, n_resamples=self.options.n_resamples, seed=self.options.seed)
        measured = measure_unknown(sets, scores, weights)
        parts = [measure_mistakes(sets, scores, weights)]
        if any(each.group == SHIFTED for each in sets):
            parts.append(measure_unknown(sets, scores, weights, with_shifted=True))
        for part in parts:
            for title, values in part.items():
                measured[title] |= values
        return measured, list(accuracy_results(sets, weights))

    def _record(
        self,
        title: str,
        contest: Contest,
        shared: Mapping[str, Any],
        measured: Measured,
        accuracy: Sequence[Result],
    ) -> MethodResult:
        contestant = contest.contestants[title]
        broken = [
            f"{part}: {each.image_id} is broken: {each.reason}" for part, each in self.passes.broken
        ]
        return MethodResult(
            method=title.removesuffix(TUNED),
            parameters=describe(contestant.method),
            results=(*accuracy, *as_results(measured, contest.sets)),
            cost=contestant.cost(),
            identity=self._identity(shared, title),
            search=contest.searches.get(title),
            provenance=_provenance(),
            notes=(*self.benchmark.notes, *broken),
        )

    def _facts(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        return dict(shared) | {
            "title": self.benchmark.title,
            "passes": self.passes.count._asdict(),
            "output_bytes": self.passes.n_bytes,
        }


def code_of(method: Method) -> str:
    """Give what changes when a method's own code does: our version, or a hash of its class."""
    kind = type(method)
    if kind.__module__.startswith("incognita."):
        return f"incognita {__version__}"
    functions = {name: f.__code__ for name, f in vars(kind).items() if hasattr(f, "__code__")}
    text = repr([(name, c.co_code, c.co_names, c.co_consts) for name, c in functions.items()])
    # an inner function is shown with its address, which differs in every process
    return sha256(re.sub(r" at 0x[0-9a-f]+", "", text).encode()).hexdigest()[:16]


def describe(method: Method) -> dict[str, Any]:
    """Give the parameters of a method and of the one it hands over to, as JSON can hold them."""
    own = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in method.parameters().items()
    }
    then = getattr(method, "then", None)
    return own | {"then": {then.title: describe(then)}} if isinstance(then, Method) else own


def _rows(contest: Contest, stored: Stored) -> tuple[tuple[ScoredSet, ...], dict[str, Scores]]:
    """Give the sets and the scores of every method, new and stored."""
    scores: dict[str, Scores] = {}
    sets: tuple[ScoredSet, ...] = tuple(contest.sets)
    for title, (_, frame) in stored.items():
        stored_sets, scores[title] = sets_and_scores(frame)
        sets = sets or stored_sets
    scores |= {title: each.scores for title, each in contest.contestants.items()}
    return sets, scores


def _groups(sets: Sequence[ScoredSet], *, full_spectrum: bool) -> tuple[str, ...]:
    prefix = FULL_SPECTRUM if full_spectrum and any(s.group == SHIFTED for s in sets) else ""
    return tuple(dict.fromkeys(f"{prefix}{s.group}" for s in sets if s.is_unknown and len(s)))


def _provenance() -> dict[str, Any]:
    return {
        "incognita": __version__,
        "torch": version("torch"),
        "numpy": version("numpy"),
        "command": " ".join(sys.argv),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
