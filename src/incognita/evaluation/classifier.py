"""One evaluation on its way: what is stored already, the contest, the numbers, the records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.classes import plain
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError
from incognita.evaluation.classifier_metrics import (
    FULL_SPECTRUM,
    accuracy_results,
    as_results,
    draw,
    measure_mistakes,
    measure_unknown,
)
from incognita.evaluation.fit_and_score import ClassifierExtractor, MethodRunner
from incognita.evaluation.resume import EvaluationPlan, describe, provenance_of_now
from incognita.evaluation.score_tables import common_rows, frame_of, sets_and_scores
from incognita.evaluation.select_methods import Capabilities
from incognita.extraction.classifier_pass import identity_of_classifier
from incognita.extraction.settings import CLASSIFIER_UNIT
from incognita.models.classifier import Classifier
from incognita.models.load import load_classifier
from incognita.models.preprocessing import Preprocessing
from incognita.models.wrap_classifier import wrap_classifier
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import TUNED, MethodResult
from incognita.results.result import Result
from incognita.results.scored_sets import SHIFTED, Measured, ScoredSet, Scores

OneModel = str | Classifier | nn.Module


def load_classifiers(
    model: object, benchmark: Benchmark, weights: Path | None = None
) -> list[Classifier]:
    """Give the networks of an evaluation, each with as many classes as the benchmark."""
    if model is None and benchmark.default_model is None:
        raise InvalidDataError(
            f"{benchmark.name} brings no model along; name one with --model, such as "
            f"file.py:function or timm:resnet18.a1_in1k."
        )
    named = benchmark.default_model if model is None else model
    several = named if isinstance(named, Sequence) and not isinstance(named, str) else [named]
    if weights is not None and (len(several) > 1 or not isinstance(several[0], str)):
        raise InvalidDataError(
            f"Weights go with the name of one model, but {len(several)} models came or one that is "
            f"loaded already; let each load its own weights."
        )
    networks = [_network(each, benchmark, weights) for each in several]
    for network in networks:
        refuse_other_classes(network.name, network.class_names, benchmark)
    return networks


def refuse_other_classes(model: str, class_names: Sequence[str], benchmark: Benchmark) -> None:
    """Refuse a model that has other classes than the benchmark, or the same in another order."""
    if len(class_names) != len(benchmark.classes):
        raise InvalidDataError(
            f"{model} has {len(class_names)} classes, but {benchmark.name} has "
            f"{len(benchmark.classes)} known ones; give a model trained on them."
        )
    theirs, ours = ([plain(n) for n in names] for names in (class_names, benchmark.classes))
    if theirs != ours and sorted(theirs) == sorted(ours):
        place = next(
            k for k, pair in enumerate(zip(theirs, ours, strict=True)) if len(set(pair)) > 1
        )
        raise InvalidDataError(
            f"{model} has the classes of {benchmark.name} in another order: number {place} "
            f"is {class_names[place]!r} there and {benchmark.classes[place]!r} here; put "
            f"those of the benchmark in the order of the model."
        )


def _network(model: object, benchmark: Benchmark, weights: Path | None) -> Classifier:
    if isinstance(model, str):
        return load_classifier(model, weights=weights, example=_example(benchmark))
    if isinstance(model, nn.Module):
        classes = tuple(benchmark.classes)
        return wrap_classifier(model, class_names=classes, example=_example(benchmark))
    if isinstance(model, Classifier):
        return model
    raise InvalidDataError(
        f"A model is a torch module, an adapter or a name, but a {type(model).__name__} came; "
        f"wrap it with incognita.wrap_classifier."
    )


def capabilities_of(networks: Sequence[Classifier], benchmark: Benchmark) -> Capabilities:
    """Say what the networks and the benchmark can give to methods."""
    first = networks[0]
    return Capabilities(
        has_head=first.head is not None,
        has_features=first.head is not None,  # features are what a head sees
        n_layers=len(first.layers),
        has_numerators=getattr(first, "numerator", None) is not None,
        has_members=len(networks) > 1,
        has_train=benchmark.train is not None,
        has_train_labels=_has_labels(benchmark.train),
        has_validation=benchmark.validation is not None,
        has_validation_labels=_has_labels(benchmark.validation),
        head_reason=getattr(first, "head_reason", None),
    )


def _has_labels(dataset: Dataset | None) -> bool:
    return dataset is not None and dataset.labels is not None


def _example(benchmark: Benchmark) -> Tensor | None:
    """Two pictures of the size the network will get: it may take no other."""
    for index in range(len(benchmark.test.image_ids)):
        try:
            return torch.stack(2 * [Preprocessing()(benchmark.test.load(index))])
        except (OSError, ValueError):
            continue  # a broken image is told of when all are read
    return None


@dataclass(frozen=True, eq=False)
class ClassifierEvaluator:
    """Ranks the methods that were asked for; those with stored results are not run again."""

    inquiry: EvaluationPlan
    passes: ClassifierExtractor

    def run(self, on_step: Callable[[str], None] | None = None) -> Evaluation:
        """Do what is missing and put everything together."""
        inquiry, benchmark = self.inquiry, self.inquiry.benchmark
        shared = inquiry.shared_identity(self._identity_of_model())
        stored = inquiry.stored(shared)
        pending = inquiry.pending(stored)
        tuned = frozenset(name for name in pending if inquiry.is_searched(pending[name]))
        contest = MethodRunner(benchmark, self.passes, pending, tuned, on_step)
        if pending:
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
            failed_images=inquiry.failed_images(record for record, _ in stored.values()),
            notes=(*benchmark.notes, *self._notes()),
            metadata=inquiry.metadata(shared),
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
        contest: MethodRunner,
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
            failed_images=self.inquiry.failed_images(()),
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
