"""One evaluation on its way: what is stored already, the contest, the numbers, the records."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from incognita.benchmarks.benchmark import Benchmark
from incognita.errors import InvalidDataError
from incognita.extraction.probes import identity_of_classifier
from incognita.extraction.records import CLASSIFIER_UNIT
from incognita.methods.method import Method
from incognita.results.method_result import TUNED, MethodResult
from incognita.results.result import Result
from incognita.results.result_store import ResultStore
from incognita.running.asked_methods import Asked
from incognita.running.contest import Contest
from incognita.running.evaluation import Evaluation
from incognita.running.method_identity import code_of, describe
from incognita.running.parts import learned_parts, tested_parts
from incognita.running.passes import Account, Passes
from incognita.running.provenance import provenance_of_now
from incognita.running.ranking_results import (
    FULL_SPECTRUM,
    Measured,
    accuracy_results,
    as_results,
    draw,
    measure_mistakes,
    measure_unknown,
)
from incognita.running.score_frames import common_rows, frame_of, sets_and_scores
from incognita.running.scored_sets import SHIFTED, ScoredSet, Scores

if TYPE_CHECKING:
    import polars

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
        tables = {title: sets_and_scores(frame) for title, (_, frame) in stored.items()}
        tables |= {t: (tuple(contest.sets), c.scores) for t, c in contest.contestants.items()}
        sets, scores = common_rows(tables)
        if not scores:
            reasons = "; ".join(f"{name}: {why}" for name, why in contest.failed.items())
            raise InvalidDataError(f"No method could be run. {reasons}")
        measured, accuracy = self._measure(sets, scores)
        records = {title: record for title, (record, _) in stored.items()}
        for title in contest.contestants:
            record = self._record(title, contest, shared, sets, measured[title], accuracy)
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
            broken=self._broken(record for record, _ in stored.values()),
            notes=(*self.benchmark.notes, *self._notes()),
            facts=self._facts(shared),
        )

    @property
    def account(self) -> Account:
        """What the passes cost."""
        return self.passes.account

    def _is_searched(self, method: Method) -> bool:
        return self.options.search and bool(method.search_space)

    def _titles(self, name: str, method: Method) -> list[str]:
        return [name, name + TUNED] if self._is_searched(method) else [name]

    def _shared_identity(self) -> dict[str, Any]:
        """What all methods of this evaluation share."""
        networks = self.passes.networks
        datasets = {part: each for part, each in learned_parts(self.benchmark).items() if each}
        datasets |= {f"{group}/{name}": each for group, name, each in tested_parts(self.benchmark)}
        of_networks = [identity_of_classifier(each) for each in networks]
        return {
            "benchmark": self.benchmark.name,
            "version": self.benchmark.version,
            "data": {name: each.fingerprint()[:16] for name, each in datasets.items()},
            "classes": list(self.benchmark.classes),
            "model": "+".join(each.name for each in networks),
            "weights": "+".join(each["weights_hash"][:16] for each in of_networks),
            "networks": of_networks,  # all of it, as in the key of their outputs
            "precision": self.account.settings.precision,
            "batch_size": self.account.settings.batch_size or CLASSIFIER_UNIT.batch_size,
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
        sets: Sequence[ScoredSet],
        measured: Measured,
        accuracy: Sequence[Result],
    ) -> MethodResult:
        contestant = contest.contestants[title]
        n_networks = len(self.passes.networks)
        return MethodResult(
            method=title.removesuffix(TUNED),
            parameters=describe(contestant.method),
            results=(*accuracy, *as_results(measured, sets)),
            cost=contestant.cost(n_networks),
            identity=self._identity(shared, title),
            search=contest.searches.get(title),
            provenance=provenance_of_now(),
            notes=(*self.benchmark.notes, *self._notes()),
            broken=self._broken(()),
        )

    def _broken(self, stored: Iterable[MethodResult]) -> tuple[tuple[str, str, str], ...]:
        """Images that could not be used, now or when a stored result was made; each once."""
        now = [(part, str(each.image_id), each.reason) for part, each in self.account.broken]
        then = [each for record in stored for each in record.broken]
        return tuple({each[:2]: each for each in [*then, *now]}.values())

    def _notes(self) -> list[str]:
        """What a reader must know about the networks."""
        first, *others = self.passes.networks
        if not others:
            return []
        return [
            f"an ensemble of {len(others) + 1} networks: methods on logits judge their mean, all "
            f"others the first one, {first.name}"
        ]

    def _facts(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        return dict(shared) | {
            "title": self.benchmark.title,
            "passes": self.account.count._asdict(),
            "output_bytes": self.account.n_bytes,
        }


def _groups(sets: Sequence[ScoredSet], *, full_spectrum: bool) -> tuple[str, ...]:
    prefix = FULL_SPECTRUM if full_spectrum and any(s.group == SHIFTED for s in sets) else ""
    return tuple(dict.fromkeys(f"{prefix}{s.group}" for s in sets if s.is_unknown and len(s)))
