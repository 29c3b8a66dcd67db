"""One evaluation on its way: what is stored already, the contest, the numbers, the records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incognita.errors import InvalidDataError
from incognita.evaluation.classifier_metrics import (
    FULL_SPECTRUM,
    Measured,
    accuracy_results,
    as_results,
    draw,
    measure_mistakes,
    measure_unknown,
)
from incognita.evaluation.fit_and_score import Contest
from incognita.evaluation.resume import Inquiry
from incognita.evaluation.score_tables import common_rows, frame_of, sets_and_scores
from incognita.extraction.classifier_pass import identity_of_classifier
from incognita.extraction.settings import CLASSIFIER_UNIT
from incognita.results.method_result import TUNED, MethodResult
from incognita.results.result import Result
from incognita.results.scored_sets import SHIFTED, ScoredSet, Scores
from incognita.running.evaluation import Evaluation
from incognita.running.method_identity import describe
from incognita.running.passes import Passes
from incognita.running.provenance import provenance_of_now


@dataclass(frozen=True, eq=False)
class Assessment:
    """Ranks the methods that were asked for; those with stored results are not run again."""

    inquiry: Inquiry
    passes: Passes

    def run(self, on_step: Callable[[str], None] | None = None) -> Evaluation:
        """Do what is missing and put everything together."""
        inquiry, benchmark = self.inquiry, self.inquiry.benchmark
        shared = inquiry.shared_identity(self._identity_of_model())
        stored = inquiry.stored(shared)
        left = inquiry.left(stored)
        tuned = frozenset(name for name in left if inquiry.is_searched(left[name]))
        contest = Contest(benchmark, self.passes, left, tuned, on_step)
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
            if inquiry.results is not None:
                inquiry.results.save(record, frame_of(sets, scores[title]))
        return Evaluation(
            methods=records,
            groups=_groups(sets, full_spectrum=benchmark.full_spectrum),
            measured=measured,
            sets=sets,
            scores=scores,
            skipped=inquiry.asked.skipped,
            failed=contest.failed,
            broken=inquiry.broken(record for record, _ in stored.values()),
            notes=(*benchmark.notes, *self._notes()),
            facts=inquiry.facts(shared),
        )

    def _identity_of_model(self) -> dict[str, Any]:
        networks, settings = self.passes.networks, self.inquiry.account.settings
        of_networks = [identity_of_classifier(each) for each in networks]
        return {
            "model": "+".join(each.name for each in networks),
            "weights": "+".join(each["weights_hash"][:16] for each in of_networks),
            "networks": of_networks,  # all of it, as in the key of their outputs
            "precision": settings.precision,
            "batch_size": settings.batch_size or CLASSIFIER_UNIT.batch_size,
        }

    def _measure(
        self, sets: Sequence[ScoredSet], scores: Mapping[str, Scores]
    ) -> tuple[dict[str, Measured], list[Result]]:
        weights = draw(
            sets, n_resamples=self.inquiry.options.n_resamples, seed=self.inquiry.options.seed
        )
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
            identity=self.inquiry.identity(shared, title),
            search=contest.searches.get(title),
            provenance=provenance_of_now(),
            notes=(*self.inquiry.benchmark.notes, *self._notes()),
            broken=self.inquiry.broken(()),
        )

    def _notes(self) -> list[str]:
        """What a reader must know about the networks."""
        first, *others = self.passes.networks
        if not others:
            return []
        return [
            f"an ensemble of {len(others) + 1} networks: methods on logits judge their mean, all "
            f"others the first one, {first.name}"
        ]


def _groups(sets: Sequence[ScoredSet], *, full_spectrum: bool) -> tuple[str, ...]:
    prefix = FULL_SPECTRUM if full_spectrum and any(s.group == SHIFTED for s in sets) else ""
    return tuple(dict.fromkeys(f"{prefix}{s.group}" for s in sets if s.is_unknown and len(s)))
