"""Fits every method on known outputs, then lets all of them score each data set in one pass."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.dataset import Dataset
from incognita.containers.needs import ExtraOutput, Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.evaluation.hyperparameter_search import SearchData, probes_of_grid, search
from incognita.evaluation.parts import test_sets
from incognita.extraction.extract import Extracted, extract
from incognita.extraction.settings import BrokenImage, PassCount, Settings
from incognita.extraction.store import OutputStore
from incognita.methods.ensembles import join_members
from incognita.methods.method import Method
from incognita.models.classifier import Classifier
from incognita.results.method_result import TUNED, Cost, SearchRecord
from incognita.results.scored_sets import ScoredSet
from incognita.shapes import Float64


@dataclass(eq=False)
class FittedMethod:
    """A fitted method with its scores so far and what they cost."""

    name: str
    method: Method
    fit_seconds: float
    score_seconds: float = 0.0
    scores: dict[str, Float64[np.ndarray, "n"]] = field(default_factory=dict)

    def score(self, name: str, outputs: ClassifierOutputs) -> None:
        """Score the rows (images, or boxes) of one data set and keep the numbers under its name."""
        start = time.process_time()
        values = self.method.score(outputs).cpu().numpy()
        self.score_seconds += time.process_time() - start
        if values.shape != (len(outputs),) or not np.isfinite(values).all():
            n_bad = int((~np.isfinite(values)).sum())
            raise InvalidDataError(
                f"{self.name} gave {values.shape} scores for {len(outputs)} rows of {name}, "
                f"{n_bad} of them not finite; this is an error of the method."
            )
        self.scores[name] = values.astype(np.float64)

    def cost(self, n_networks: int = 1) -> Cost:
        """Give the price of the method; the mean logits of an ensemble cost a pass per network."""
        n_rows = sum(len(values) for values in self.scores.values())
        extra_outputs = self.method.extra_outputs()
        is_of_first = extra_outputs or self.method.all_needs & (
            Needs.FEATURES | Needs.HEAD | Needs.LAYERS
        )
        return Cost(
            forwards=(1 if is_of_first else n_networks) + sum(p.forwards for p in extra_outputs),
            backwards=sum(extra.backwards for extra in extra_outputs),
            fit_seconds=round(self.fit_seconds, 6),
            microseconds_per_sample=round(1e6 * self.score_seconds / max(n_rows, 1), 3),
            state_bytes=state_bytes(self.method),
        )


def fitted(
    name: str, method: Method, known: ClassifierOutputs, validation: ClassifierOutputs | None
) -> FittedMethod:
    """Fit a method and note how long it took."""
    start = time.process_time()
    method.fit(known, validation)
    return FittedMethod(name, method, time.process_time() - start)


def state_bytes(method: Method) -> int:
    """Give the memory of what a method learned, its own and that of the one it hands over to."""
    scorer = getattr(method, "scorer", None)
    own = sum(_bytes(value) for value in method.state().values())
    return own + (state_bytes(scorer) if isinstance(scorer, Method) else 0)


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(_bytes(each) for each in value.values())
    return 8


# stage, images done of it, images of it in all
Progress = Callable[[str, int, int], None]
POOLED = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS


@dataclass(eq=False)
class ExtractionLog:
    """What passes cost, and the images that could not be used."""

    settings: Settings
    store: OutputStore | None = None
    on_progress: Progress | None = None
    failed_images: list[tuple[str, BrokenImage]] = field(default_factory=list)
    count: PassCount = PassCount(0, 0, 0)  # noqa: RUF009 - a tuple
    n_bytes: int = 0

    def mover(self, name: str, total: int) -> Callable[[int], None]:
        """Give what extraction tells of images done, for the part of this name."""
        n_done = 0

        def move(n: int) -> None:
            nonlocal n_done
            n_done += n
            if self.on_progress is not None:
                self.on_progress(name, n_done, total)

        return move

    def enter(self, name: str, extracted: Extracted[Any]) -> None:
        """Note what a pass over a part gave and cost; a part without any image is refused."""
        new = [(name, each) for each in extracted.failed_images]
        seen = {(part, each.image_id) for part, each in self.failed_images}
        self.failed_images += [
            (part, each) for part, each in new if (part, each.image_id) not in seen
        ]
        self.count = PassCount(*map(sum, zip(self.count, extracted.passes, strict=True)))
        self.n_bytes += extracted.n_bytes
        if extracted.failed_images and not extracted.n_images:
            raise InvalidDataError(
                f"None of the {len(extracted.failed_images)} images of {name} could be used; the "
                f"first is broken because {extracted.failed_images[0].reason}."
            )


@dataclass(eq=False)
class ClassifierExtractor:
    """Runs the networks over data sets, each image once for everything asked of it.

    With several networks the outputs are those of the ensemble: logits are the mean logits,
    features and head those of the first network.
    """

    networks: Sequence[Classifier]
    account: ExtractionLog

    def outputs(
        self,
        name: str,
        dataset: Dataset,
        *,
        extra_outputs: Sequence[ExtraOutput] = (),
        layers: bool = False,
    ) -> ClassifierOutputs:
        """Give the outputs of a set; broken images are noted under its name and left out."""
        first = self._run(self.networks[0], name, dataset, extra_outputs, layers=layers)
        if len(self.networks) == 1:
            return first
        others = [self._run(each, name, dataset, (), layers=False) for each in self.networks[1:]]
        return join_members(_of_common_images([first, *others]))

    def nothing(self) -> ClassifierOutputs:
        """Give the outputs of no image."""
        return ClassifierOutputs.empty(len(self.networks[0].class_names), self.networks[0].head)

    def _run(
        self,
        network: Classifier,
        name: str,
        dataset: Dataset,
        extra_outputs: Sequence[ExtraOutput],
        *,
        layers: bool,
    ) -> ClassifierOutputs:
        extracted = extract(
            network,
            dataset,
            extra_outputs=extra_outputs,
            layers=layers,
            settings=self.account.settings,
            store=self.account.store,
            on_progress=self.account.mover(name, len(dataset.image_ids)),
        )
        self.account.enter(name, extracted)
        return extracted.outputs


def _of_common_images(parts: Sequence[ClassifierOutputs]) -> list[ClassifierOutputs]:
    """Keep the images that every network could use."""
    common = set.intersection(*(set(part.image_ids) for part in parts))
    return [
        part[torch.tensor([i in common for i in part.image_ids], dtype=torch.bool)]
        for part in parts
    ]


def wants_layers(methods: Iterable[Method]) -> bool:
    """Whether any method looks at pooled layer features."""
    return any(POOLED & method.all_needs for method in methods)


def distinct(extra_outputs: Iterable[ExtraOutput]) -> tuple[ExtraOutput, ...]:
    """Each probe once, however many methods ask for it."""
    return tuple({extra.key: extra for extra in extra_outputs}.values())


def extra_outputs_to_fit(methods: Iterable[Method], part: str) -> tuple[ExtraOutput, ...]:
    """What must be recorded of the `known` or the `validation` part before methods are fitted."""
    return distinct(p for m in methods for p in m.extra_outputs_to_fit(part))


@runtime_checkable
class Extractor(Protocol):
    """Where the rows of a data set come from: images of a classifier, boxes of a detector."""

    def outputs(
        self,
        name: str,
        dataset: Dataset,
        *,
        extra_outputs: Sequence[ExtraOutput] = (),
        layers: bool = False,
    ) -> ClassifierOutputs:
        """Give the rows of a part of the benchmark."""

    def nothing(self) -> ClassifierOutputs:
        """Give the outputs of no row."""


@dataclass(eq=False)
class MethodRunner:
    """One run of methods over a benchmark."""

    benchmark: Benchmark
    passes: Extractor
    methods: Mapping[str, Method]
    tuned: frozenset[str] = frozenset()  # of these a second, searched version takes part
    on_step: Callable[[str], None] | None = None
    contestants: dict[str, FittedMethod] = field(default_factory=dict)
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
        for group, name, dataset in test_sets(self.benchmark):
            if self.contestants:  # where every method failed nothing is left to look at
                self._score(group, name, dataset)

    def _known(self) -> ClassifierOutputs:
        wanted = any(Needs.KNOWN in m.all_needs for m in self.methods.values())
        train = self.benchmark.train
        if train is None or not (wanted or self._learns_without_validation()):
            return self.passes.nothing()
        parts = ["known"] if self.benchmark.validation is not None else ["known", "validation"]
        extra_outputs = [
            p for part in parts for p in extra_outputs_to_fit(self.methods.values(), part)
        ]
        return self._outputs("train", train, distinct(extra_outputs))

    def _learns_without_validation(self) -> bool:
        is_asked = any(Needs.VALIDATION in m.all_needs for m in self.methods.values())
        return is_asked and self.benchmark.validation is None

    def _validation(self) -> ClassifierOutputs | None:
        dataset = self.benchmark.validation
        is_asked = any(Needs.VALIDATION in m.all_needs for m in self.methods.values())
        if dataset is None or not (is_asked or self.tuned):
            return None
        extra_outputs = extra_outputs_to_fit(self.methods.values(), "validation")
        return self._outputs(
            "validation", dataset, distinct([*extra_outputs, *self._grid_probes()])
        )

    def _grid_probes(self) -> list[ExtraOutput]:
        return [p for name in self.tuned for p in probes_of_grid(self.methods[name])]

    def _outputs(
        self, name: str, dataset: Dataset, extra_outputs: Sequence[ExtraOutput]
    ) -> ClassifierOutputs:
        layers = wants_layers(self.methods.values())
        return self.passes.outputs(name, dataset, extra_outputs=extra_outputs, layers=layers)

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
        held_out = SearchData(known, validation, unknown)
        for name in [each for each in self.methods if each in self.tuned]:
            if name in self.contestants:
                self._step(f"searching {name}")
                self.guard(name + TUNED, partial(self._tune, name, held_out))

    def _tune(self, name: str, held_out: SearchData) -> None:
        start = self.contestants[name]
        with torch.no_grad():
            found = search(start.method, held_out)
        title = name + TUNED
        self.contestants[title] = FittedMethod(title, found.method, start.fit_seconds)
        self.searches[name] = SearchRecord("default", found.curve)
        self.searches[title] = SearchRecord("tuned", found.curve)

    def _score(self, group: str, name: str, dataset: Dataset) -> None:
        extra_outputs = distinct(
            p for each in self.contestants.values() for p in each.method.extra_outputs()
        )
        outputs = self._outputs(name, dataset, extra_outputs)
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
