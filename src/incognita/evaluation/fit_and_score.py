"""Fits every method on known outputs, then lets all of them score each data set in one pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

import torch

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.dataset import Dataset
from incognita.containers.needs import Needs, Probe
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.evaluation.hyperparameter_search import HeldOut, probes_of_grid, search
from incognita.evaluation.parts import tested_parts
from incognita.methods.method import Method
from incognita.results.method_result import TUNED, SearchRecord
from incognita.results.scored_sets import ScoredSet
from incognita.running.passes import distinct, probes_to_fit, wants_layers
from incognita.running.scoring import Contestant, fitted


@runtime_checkable
class Rows(Protocol):
    """Where the rows of a data set come from: images of a classifier, boxes of a detector."""

    def outputs(
        self, name: str, dataset: Dataset, *, probes: Sequence[Probe] = (), layers: bool = False
    ) -> ClassifierOutputs:
        """Give the rows of a part of the benchmark."""

    def nothing(self) -> ClassifierOutputs:
        """Give the outputs of no row."""


@dataclass(eq=False)
class Contest:
    """One run of methods over a benchmark."""

    benchmark: Benchmark
    passes: Rows
    methods: Mapping[str, Method]
    tuned: frozenset[str] = frozenset()  # of these a second, searched version takes part
    on_step: Callable[[str], None] | None = None
    contestants: dict[str, Contestant] = field(default_factory=dict)
    searches: dict[str, SearchRecord] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    sets: list[ScoredSet] = field(default_factory=list)

    def run(self) -> None:
        """Learn, choose, then score every set."""
        known, validation = self._known(), self._validation()
        for name, method in self.methods.items():
            self._step(f"fitting {name}")
            self.guard(name, partial(self._fit, name, method, known, validation))
        if self.tuned:
            self._search(known, validation)
        for group, name, dataset in tested_parts(self.benchmark):
            if self.contestants:  # where every method failed nothing is left to look at
                self._score(group, name, dataset)

    def _known(self) -> ClassifierOutputs:
        wanted = any(Needs.KNOWN in m.all_needs for m in self.methods.values())
        train = self.benchmark.train
        if train is None or not (wanted or self._learns_without_validation()):
            return self.passes.nothing()
        parts = ["known"] if self.benchmark.validation is not None else ["known", "validation"]
        probes = [p for part in parts for p in probes_to_fit(self.methods.values(), part)]
        return self._outputs("train", train, distinct(probes))

    def _learns_without_validation(self) -> bool:
        is_asked = any(Needs.VALIDATION in m.all_needs for m in self.methods.values())
        return is_asked and self.benchmark.validation is None

    def _validation(self) -> ClassifierOutputs | None:
        dataset = self.benchmark.validation
        is_asked = any(Needs.VALIDATION in m.all_needs for m in self.methods.values())
        if dataset is None or not (is_asked or self.tuned):
            return None
        probes = probes_to_fit(self.methods.values(), "validation")
        return self._outputs("validation", dataset, distinct([*probes, *self._grid_probes()]))

    def _grid_probes(self) -> list[Probe]:
        return [p for name in self.tuned for p in probes_of_grid(self.methods[name])]

    def _outputs(self, name: str, dataset: Dataset, probes: Sequence[Probe]) -> ClassifierOutputs:
        layers = wants_layers(self.methods.values())
        return self.passes.outputs(name, dataset, probes=probes, layers=layers)

    def _fit(
        self,
        name: str,
        method: Method,
        known: ClassifierOutputs,
        validation: ClassifierOutputs | None,
    ) -> None:
        self.contestants[name] = fitted(name, method, known, validation)

    def _search(self, known: ClassifierOutputs, validation: ClassifierOutputs | None) -> None:
        dataset = self.benchmark.unknown_validation
        if dataset is None or validation is None:
            return
        unknown = self._outputs("unknown validation", dataset, distinct(self._grid_probes()))
        held_out = HeldOut(known, validation, unknown)
        for name in [each for each in self.methods if each in self.tuned]:
            if name in self.contestants:
                self._step(f"searching {name}")
                self.guard(name + TUNED, partial(self._tune, name, held_out))

    def _tune(self, name: str, held_out: HeldOut) -> None:
        start = self.contestants[name]
        with torch.no_grad():
            found = search(start.method, held_out)
        title = name + TUNED
        self.contestants[title] = Contestant(title, found.method, start.fit_seconds)
        self.searches[name] = SearchRecord("default", found.curve)
        self.searches[title] = SearchRecord("tuned", found.curve)

    def _score(self, group: str, name: str, dataset: Dataset) -> None:
        probes = distinct(p for each in self.contestants.values() for p in each.method.probes())
        outputs = self._outputs(name, dataset, probes)
        labels = None if outputs.labels is None else outputs.labels.cpu().numpy()
        predicted = outputs.logits.argmax(dim=1).cpu().numpy()
        self.sets.append(ScoredSet(name, group, outputs.image_ids, predicted, labels))
        for title, each in list(self.contestants.items()):
            self._step(f"scoring {name}: {title}")
            with torch.no_grad():
                self.guard(title, partial(each.score, name, outputs))

    def guard(self, title: str, work: Callable[[], None]) -> None:
        """Let one method fail without the others: its reason is kept and it leaves the contest."""
        try:
            work()
        except InvalidDataError as error:
            self._fail(title, str(error))
        except MemoryError:
            raise
        except Exception as error:  # a method of somebody's own may fail in any way
            self._fail(title, f"{type(error).__name__}: {error}")

    def _fail(self, title: str, reason: str) -> None:
        self.failed[title] = reason
        self.contestants.pop(title, None)

    def _step(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(what)
