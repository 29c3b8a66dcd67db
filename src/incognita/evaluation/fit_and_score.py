"""Fits every method on known outputs, then scores each data set in one pass."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.load import test_sets
from incognita.containers.dataset import Dataset
from incognita.containers.needs import ExtraOutput, Needs
from incognita.containers.outputs import ClassifierOutputs, DetectorOutputs
from incognita.errors import InvalidDataError
from incognita.evaluation.hyperparameter_search import SearchData, grid_extra_outputs, search
from incognita.extraction.extract import Extracted, extract
from incognita.extraction.recorded import BoxCrops, RecordedModel, with_embedded_features
from incognita.extraction.settings import FailedImage, PassCount, Settings
from incognita.extraction.store import OutputStore
from incognita.formats.recorded_outputs import RecordedBoxes
from incognita.methods.method import Method
from incognita.results.method_result import Cost, MethodKey, SearchRecord
from incognita.results.score_tables import ScoredSet
from incognita.shapes import Float64

# data set, images done, images in total
Progress = Callable[[str, int, int], None]
OnStep = Callable[[str], None]
POOLED = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS


@dataclass(eq=False)
class ExtractionLog:
    """Runs the extraction with one setting, and keeps its cost and the images that failed."""

    settings: Settings
    store: OutputStore | None = None
    on_progress: Progress | None = None
    save_to: Path | None = None  # a folder for a copy of the outputs that others can use
    failed_images: list[tuple[str, FailedImage]] = field(default_factory=list)
    count: PassCount = PassCount(0, 0, 0)  # noqa: RUF009 - a tuple
    n_bytes: int = 0

    def extract(
        self,
        model: Any,
        name: str,
        dataset: Dataset,
        extra_outputs: Sequence[ExtraOutput] = (),
        *,
        layers: bool = False,
    ) -> Any:
        """Return the outputs of a model on a data set; raise if no image could be used."""
        if isinstance(model, RecordedModel):
            if self.on_progress is not None:
                self.on_progress(name, len(dataset.image_ids), len(dataset.image_ids))
            outputs = model.outputs(dataset)
            return outputs if model.embedder is None else self._embed(model, name, dataset, outputs)
        extracted = extract(
            model,
            dataset,
            extra_outputs=extra_outputs,
            layers=layers,
            settings=self.settings,
            store=self.store,
            on_progress=self._progress(name, len(dataset.image_ids)),
        )
        self._add(name, extracted)
        if self.save_to is not None:
            suffix = ".json" if isinstance(extracted.outputs, DetectorOutputs) else ".npz"
            extracted.save(self.save_to / f"{re.sub('[ /]', '-', name)}{suffix}")
        return extracted.outputs

    def _embed(
        self, model: RecordedModel, name: str, dataset: Dataset, outputs: Any
    ) -> DetectorOutputs:
        """Let the features of each box be those of its crop in another network."""
        assert model.embedder is not None
        assert isinstance(dataset, RecordedBoxes)
        crops = BoxCrops(dataset, outputs.detections)
        extracted = extract(
            model.embedder,
            crops,
            settings=self.settings,
            store=self.store,
            on_progress=self._progress(f"{name}: crops", len(crops.image_ids)),
        )
        failed = {f.image_id.rpartition("#")[0]: f.reason for f in extracted.failed_images}
        images = tuple(FailedImage(image, reason) for image, reason in failed.items())
        self._add(name, replace(extracted, failed_images=images))
        found = with_embedded_features(
            outputs.detections, crops, extracted.outputs, model.embedder.name
        )
        return DetectorOutputs(found)

    def _progress(self, name: str, total: int) -> Callable[[int], None]:
        n_done = 0

        def report(n: int) -> None:
            nonlocal n_done
            n_done += n
            if self.on_progress is not None:
                self.on_progress(name, n_done, total)

        return report

    def _add(self, name: str, extracted: Extracted[Any]) -> None:
        seen = {(part, image.image_id) for part, image in self.failed_images}
        self.failed_images += [
            (name, image) for image in extracted.failed_images if (name, image.image_id) not in seen
        ]
        self.count = PassCount(*map(sum, zip(self.count, extracted.passes, strict=True)))
        self.n_bytes += extracted.n_bytes
        if extracted.failed_images and not extracted.n_images:
            raise InvalidDataError(
                f"All {len(extracted.failed_images)} images of {name} failed; the first because "
                f"{extracted.failed_images[0].reason}."
            )


@runtime_checkable
class Extractor(Protocol):
    """The source of rows: images of a classifier, boxes of a detector."""

    def outputs(
        self,
        name: str,
        dataset: Dataset,
        *,
        extra_outputs: Sequence[ExtraOutput] = (),
        layers: bool = False,
    ) -> ClassifierOutputs:
        """Return the rows of a data set of the benchmark."""

    def empty(self) -> ClassifierOutputs:
        """Return outputs without rows."""


@dataclass(eq=False)
class FittedMethod:
    """A fitted method with its scores so far and their cost."""

    name: str
    method: Method
    fit_seconds: float
    score_seconds: float = 0.0
    scores: dict[str, Float64[np.ndarray, "n"]] = field(default_factory=dict)

    def score(self, name: str, outputs: ClassifierOutputs) -> None:
        """Score the rows of one data set and keep the scores under its name."""
        start = time.process_time()
        scores = self.method.score(outputs)
        self.score_seconds += time.process_time() - start
        if not isinstance(scores, Tensor) or scores.shape != (len(outputs),):
            got = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise InvalidDataError(
                f"Expected a tensor of {len(outputs)} scores of {self.name} for {name}, got {got}. "
                f"Return one number per row from score_rows."
            )
        if n_bad := int((~scores.isfinite()).sum()):
            raise InvalidDataError(
                f"{n_bad} of {len(outputs)} scores of {self.name} for {name} are not finite. "
                f"Return finite numbers from score_rows."
            )
        self.scores[name] = scores.cpu().numpy().astype(np.float64)

    def cost(self, n_networks: int = 1) -> Cost:
        """Compute the cost; the mean logits of an ensemble cost a pass per network."""
        n_rows = sum(len(values) for values in self.scores.values())
        extra_outputs = self.method.extra_outputs()
        uses_first_network = extra_outputs or self.method.all_needs & (
            Needs.FEATURES | Needs.HEAD | Needs.LAYERS
        )
        shared = 1 if uses_first_network else n_networks
        return Cost(
            forwards=shared + sum(extra.forwards for extra in extra_outputs),
            backwards=sum(extra.backwards for extra in extra_outputs),
            fit_seconds=round(self.fit_seconds, 6),
            microseconds_per_sample=round(1e6 * self.score_seconds / max(n_rows, 1), 3),
            state_bytes=state_bytes(self.method),
        )


def state_bytes(method: Method) -> int:
    """Compute the memory of the fitted state of a method and its scorer."""
    scorer = getattr(method, "scorer", None)
    own = sum(_bytes(value) for value in method.state().values())
    return own + (state_bytes(scorer) if isinstance(scorer, Method) else 0)


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(_bytes(item) for item in value.values())
    return 8


@dataclass(eq=False)
class ScoredMethods:
    """Fitted methods with their scores, the searches behind them, and the methods that failed."""

    fitted: dict[MethodKey, FittedMethod] = field(default_factory=dict)
    searches: dict[MethodKey, SearchRecord] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    sets: list[ScoredSet] = field(default_factory=list)

    def guard(self, key: MethodKey, work: Callable[[], None]) -> None:
        """Run a step of one method; if it fails, keep the reason and go on with the others."""
        try:
            work()
        except InvalidDataError as error:
            self._fail(key, str(error))
        except MemoryError:
            raise
        except Exception as error:  # a user's method may fail in any way
            self._fail(key, f"{type(error).__name__}: {error}")

    def _fail(self, key: MethodKey, reason: str) -> None:
        self.failed[key] = reason
        self.fitted.pop(key, None)


@dataclass(eq=False)
class MethodRunner:
    """Runs methods over a benchmark: fit, search, score.

    Args:
        benchmark: The benchmark.
        extractor: The source of rows.
        methods: The methods by name.
        searched: Names of methods of which a second, tuned version runs.
        on_step: Called with a description of each step.
    """

    benchmark: Benchmark
    extractor: Extractor
    methods: Mapping[str, Method]
    searched: frozenset[str] = frozenset()
    on_step: OnStep | None = None
    scored: ScoredMethods = field(default_factory=ScoredMethods)

    def run(self) -> ScoredMethods:
        """Fit every method, search parameters, then score every test set."""
        known, validation = self._known(), self._validation()
        for name, method in self.methods.items():
            self._step(f"fitting {name}")
            self.scored.guard(MethodKey(name), partial(self._fit, name, method, known, validation))
        if self.searched:
            self._search(known, validation)
        for group, name, dataset in test_sets(self.benchmark):
            if self.scored.fitted:  # unless every method failed
                self._score(group, name, dataset)
        return self.scored

    def _needs(self, need: Needs) -> bool:
        return any(need in method.all_needs for method in self.methods.values())

    def _known(self) -> ClassifierOutputs:
        train, has_validation = self.benchmark.train, self.benchmark.validation is not None
        # without a validation set, methods take the training outputs instead
        is_needed = self._needs(Needs.KNOWN) or (
            self._needs(Needs.VALIDATION) and not has_validation
        )
        if train is None or not is_needed:
            return self.extractor.empty()
        parts = ["known"] if has_validation else ["known", "validation"]
        return self._outputs("train", train, self._extra_outputs_to_fit(*parts))

    def _validation(self) -> ClassifierOutputs | None:
        dataset = self.benchmark.validation
        if dataset is None or not (self._needs(Needs.VALIDATION) or self.searched):
            return None
        extra_outputs = self._extra_outputs_to_fit("validation")
        return self._outputs("validation", dataset, [*extra_outputs, *self._grid_extra_outputs()])

    def _extra_outputs_to_fit(self, *parts: str) -> list[ExtraOutput]:
        methods = self.methods.values()
        return [e for part in parts for m in methods for e in m.extra_outputs_to_fit(part)]

    def _grid_extra_outputs(self) -> list[ExtraOutput]:
        return [e for name in self.searched for e in grid_extra_outputs(self.methods[name])]

    def _outputs(
        self, name: str, dataset: Dataset, extra_outputs: Sequence[ExtraOutput]
    ) -> ClassifierOutputs:
        return self.extractor.outputs(
            name,
            dataset,
            extra_outputs=tuple({extra.key: extra for extra in extra_outputs}.values()),
            layers=needs_layers(self.methods.values()),
        )

    def _fit(
        self,
        name: str,
        method: Method,
        known: ClassifierOutputs,
        validation: ClassifierOutputs | None,
    ) -> None:
        start = time.process_time()
        method.fit(known, validation)
        seconds = time.process_time() - start
        self.scored.fitted[MethodKey(name)] = FittedMethod(name, method, seconds)

    def _search(self, known: ClassifierOutputs, validation: ClassifierOutputs | None) -> None:
        dataset = self.benchmark.unknown_validation
        if dataset is None or validation is None:
            return
        unknown = self._outputs("unknown validation", dataset, self._grid_extra_outputs())
        data = SearchData(known, validation, unknown)
        for name in [name for name in self.methods if name in self.searched]:
            if MethodKey(name) in self.scored.fitted:
                self._step(f"searching {name}")
                self.scored.guard(MethodKey(name, tuned=True), partial(self._tune, name, data))

    def _tune(self, name: str, data: SearchData) -> None:
        default, tuned = MethodKey(name), MethodKey(name, tuned=True)
        start = self.scored.fitted[default]
        with torch.no_grad():
            found = search(start.method, data)
        self.scored.fitted[tuned] = FittedMethod(tuned, found.method, start.fit_seconds)
        self.scored.searches[default] = SearchRecord("default", found.curve)
        self.scored.searches[tuned] = SearchRecord("tuned", found.curve)

    def _score(self, group: str, name: str, dataset: Dataset) -> None:
        extra_outputs = [
            e for fitted in self.scored.fitted.values() for e in fitted.method.extra_outputs()
        ]
        outputs = self._outputs(name, dataset, extra_outputs)
        labels = None if outputs.labels is None else outputs.labels.cpu().numpy()
        predicted = outputs.logits.argmax(dim=1).cpu().numpy()
        self.scored.sets.append(ScoredSet(name, group, outputs.image_ids, predicted, labels))
        for key, fitted in list(self.scored.fitted.items()):
            self._step(f"scoring {name}: {key}")
            with torch.no_grad():
                self.scored.guard(key, partial(fitted.score, name, outputs))

    def _step(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(what)


def needs_layers(methods: Iterable[Method]) -> bool:
    """Whether any method needs pooled layer features."""
    return any(POOLED & method.all_needs for method in methods)
