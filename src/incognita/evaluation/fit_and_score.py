"""Fits every method on known outputs, then scores each data set in one pass."""

import time
import zlib
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
from incognita.benchmarks.sources.recorded import without_separators
from incognita.containers import ClassifierOutputs, Dataset, DetectorOutputs, ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.evaluation.hyperparameter_search import SearchData, grid_extra_outputs, search
from incognita.extraction.extract import (
    Extracted,
    ExtractionJob,
    extract,
    readers_for,
    task_of,
)
from incognita.extraction.loading import ReaderProcesses
from incognita.extraction.recorded import BoxCrops, RecordedModel, with_embedded_features
from incognita.extraction.settings import FailedImage, OutputRequest, PassCount, Settings
from incognita.extraction.store import OutputStore
from incognita.extraction.stored_sets import StoredClassifier
from incognita.formats.recorded_outputs import RecordedBoxes
from incognita.methods.method import Method
from incognita.methods.numerics.rows import new_rows
from incognita.results.method_result import Cost, MethodKey, SearchRecord
from incognita.results.score_tables import ScoredSet
from incognita.shapes import Float64

# data set, images done, images in total
Progress = Callable[[str, int, int], None]
OnStep = Callable[[str], None]
_SHARE_OF_MEMORY = 0.45  # of a GPU that outputs of one data set may take
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
    readers: ReaderProcesses = field(init=False)  # started with the first data set that needs them

    def __post_init__(self) -> None:
        self.readers = readers_for(self.settings)

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
        if isinstance(model, StoredClassifier):
            extra_outputs = self._stored(model, dataset, extra_outputs)
        extracted = extract(
            model,
            dataset,
            extra_outputs=extra_outputs,
            layers=layers,
            settings=self.settings,
            store=self.store,
            on_progress=self._progress(name, len(dataset.image_ids)),
            readers=self.readers,
        )
        self._add(name, extracted)
        if self.save_to is not None:
            suffix = ".json" if isinstance(extracted.outputs, DetectorOutputs) else ".npz"
            extracted.save(self.save_to / f"{without_separators(name)}{suffix}")
        return extracted.outputs

    def _stored(
        self, model: Any, dataset: Dataset, extra_outputs: Sequence[ExtraOutput]
    ) -> list[ExtraOutput]:
        """Leave out what is not stored: a method that knows its needs once fitted fails alone."""
        assert self.store is not None
        requests = {extra: OutputRequest(False, False, (extra,)) for extra in extra_outputs}
        return [
            extra
            for extra, request in requests.items()
            if ExtractionJob(task_of(model), dataset, request, self.settings).is_stored(self.store)
        ]

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
    """A fitted method with its scores so far, their cost, and notes for the reader."""

    name: str
    method: Method
    fit_seconds: float
    score_seconds: float = 0.0
    scores: dict[str, Float64[np.ndarray, "n"]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    device: str = "cpu"  # where it was fitted

    def score(self, name: str, outputs: ClassifierOutputs) -> None:
        """Score the rows of one data set and keep the scores under its name."""
        outputs = outputs.to(self.device)
        start = seconds_on(self.device)
        scores = self.method.score(outputs)
        self.score_seconds += seconds_on(self.device) - start
        self.scores[name] = self.checked(name, scores)

    def checked(self, name: str, scores: Tensor) -> Float64[np.ndarray, "n"]:
        """Return scores as an array; raise if one is not finite."""
        if n_bad := int((~scores.isfinite()).sum()):
            raise InvalidDataError(
                f"{n_bad} of {len(scores)} scores of {self.name} for {name} are not finite. "
                f"Return finite numbers from score_rows."
            )
        return scores.detach().cpu().numpy().astype(np.float64)

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


def seconds_on(device: str) -> float:
    """Return a clock: the time of the processor, or of the wall once a GPU has done its work."""
    if torch.device(device).type != "cuda":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


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


def is_built_in(method: Method) -> bool:
    """Return whether a method and the method it wraps are defined in incognita."""
    scorer = getattr(method, "scorer", None)
    is_ours = type(method).__module__.startswith("incognita.")
    return is_ours and (not isinstance(scorer, Method) or is_built_in(scorer))


@dataclass(eq=False)
class SharedTensor:
    """A tensor that methods share, with its checksum and, where methods may write, a copy.

    The checksum is a CRC-32 of the memory: torch's version counter does not see writes through
    `.numpy()` and `.data`.
    """

    tensor: Tensor
    copy: Tensor | None = None

    def __post_init__(self) -> None:
        self.checksum = _checksum(self.tensor)

    def is_changed(self) -> bool:
        """Compare the memory with what it was."""
        return _checksum(self.tensor) != self.checksum

    def restore(self) -> None:
        """Write the copy back in place, because fitted methods may hold views of the memory."""
        if self.copy is not None:
            self.tensor.detach().copy_(self.copy)


def _checksum(tensor: Tensor) -> int:
    flat = tensor.detach().contiguous().reshape(-1)
    if not len(flat):
        return 0
    if flat.is_cuda:
        return _checksum_on_gpu(flat)
    return zlib.crc32(flat.cpu().view(torch.uint8).numpy().data)


def _checksum_on_gpu(flat: Tensor) -> int:
    """Add up the bits of all numbers, each times an odd factor that its place decides.

    Nothing is copied to the host. A single change always shows; several would have to cancel.
    """
    total = 0
    for part in torch.split(flat.view(torch.uint8), 2**26):
        words = torch.nn.functional.pad(part, (0, -len(part) % 4)).view(torch.int32)
        factors = torch.arange(len(words), device=words.device) % 2**20 * 2 + 1
        total = (total * 31 + int((words.long() * factors).sum())) % 2**63
    return total


@dataclass(eq=False)
class SharedOutputs:
    """The outputs that methods share, by data set; writes to them are found and undone.

    Args:
        keeps_copies: Whether to copy the outputs, so that a write can be undone.
    """

    keeps_copies: bool = False
    tensors: dict[str, dict[str, SharedTensor]] = field(default_factory=dict)

    def add(self, name: str, outputs: ClassifierOutputs) -> None:
        """Remember the outputs of a data set as they are now."""
        self.tensors[name] = {
            column: SharedTensor(tensor, self._copy(tensor))
            for column, tensor in outputs.tensors().items()
        }

    def remove(self, name: str) -> None:
        """Forget the outputs of a data set, which no further method reads."""
        del self.tensors[name]

    def restore(self, names: Iterable[str]) -> list[str]:
        """Undo writes to the outputs of data sets; return what was changed."""
        changed = []
        for name in names:
            for column, shared in self.tensors[name].items():
                if shared.is_changed():
                    shared.restore()
                    changed.append(f"{column} of {name}")
        return changed

    def _copy(self, tensor: Tensor) -> Tensor | None:
        if not self.keeps_copies:
            return None
        return new_rows(len(tensor), *tensor.shape[1:], dtype=tensor.dtype).copy_(tensor.detach())


@dataclass(eq=False)
class ScoredMethods:
    """Fitted methods with their scores, the searches behind them, and the methods that failed.

    Args:
        own: Names of methods that are not built in.
        shared: The outputs that all methods read and none may change.
    """

    fitted: dict[MethodKey, FittedMethod] = field(default_factory=dict)
    searches: dict[MethodKey, SearchRecord] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    sets: list[ScoredSet] = field(default_factory=list)
    own: frozenset[str] = frozenset()
    shared: SharedOutputs = field(default_factory=SharedOutputs)

    def guard(self, key: MethodKey, work: Callable[[], None], *, reads: Sequence[str]) -> None:
        """Run a step of one method; if it fails, keep the reason and go on with the others.

        A step that changes shared outputs fails. A method that is not built in may have kept any
        of them, so all are compared after its steps; otherwise only those that the step `reads`.
        """
        reason = _failure(work)
        is_own = key.name in self.own
        if changed := self.shared.restore(list(self.shared.tensors) if is_own else reads):
            reason = self._reason_of_write(key, changed)
            if key.tuned:  # its search may have read changed outputs
                self.searches.pop(MethodKey(key.name), None)
        if reason is not None:
            self.failed[key] = reason
            self.fitted.pop(key, None)

    def _reason_of_write(self, key: str, changed: Sequence[str]) -> str:
        what = f"changed {', '.join(changed)} in place, which other methods read"
        if not self.shared.keeps_copies:
            raise InvalidDataError(f"{key} {what}. Leave it out, and report this error.")
        return f"It {what}. Change a copy, such as rows.features.clone()."

    def check_shared(self) -> None:
        """Raise if shared outputs are not what they were; no result can then be trusted."""
        if changed := self.shared.restore(list(self.shared.tensors)):
            raise InvalidDataError(
                f"A method changed {', '.join(changed)} in place, which other methods read. Run "
                f"the methods one by one to find it."
            )


def _failure(work: Callable[[], None]) -> str | None:
    """Run a step of a method; return the reason if it fails."""
    try:
        work()
    except InvalidDataError as error:
        return str(error)
    except MemoryError:
        raise
    except Exception as error:  # a user's method may fail in any way
        return f"{type(error).__name__}: {error}"
    return None


@dataclass(eq=False)
class MethodRunner:
    """Runs methods over a benchmark: fit, search, score.

    Args:
        benchmark: The benchmark.
        extractor: The source of rows.
        methods: The methods by name.
        searched: Names of methods of which a second, tuned version runs.
        on_step: Called with a description of each step.
        device: Where methods are fitted and rows are scored, if there is room for the outputs.
    """

    benchmark: Benchmark
    extractor: Extractor
    methods: Mapping[str, Method]
    searched: frozenset[str] = frozenset()
    on_step: OnStep | None = None
    device: str = "cpu"
    scored: ScoredMethods = field(default_factory=ScoredMethods)

    def run(self) -> ScoredMethods:
        """Fit every method, search parameters, then score every test set."""
        self._share_nothing()
        known, validation = self._known(), self._validation()
        for name, method in self.methods.items():
            self._step(f"fitting {name}")
            fit = partial(self._fit, name, method, known, validation)
            self.scored.guard(MethodKey(name), fit, reads=list(self.scored.shared.tensors))
        if self.searched:
            self._search(known, validation)
        for group, name, dataset in test_sets(self.benchmark):
            if self.scored.fitted:  # unless every method failed
                self._score(group, name, dataset)
        self.scored.check_shared()
        return self.scored

    def _share_nothing(self) -> None:
        own = [name for name, method in self.methods.items() if not is_built_in(method)]
        self.scored.own = frozenset(own)
        self.scored.shared = SharedOutputs(keeps_copies=bool(own))

    def _needs(self, need: Needs) -> bool:
        return any(need in method.all_needs for method in self.methods.values())

    def _known(self) -> ClassifierOutputs:
        train, has_validation = self.benchmark.train, self.benchmark.validation is not None
        # without a validation set, methods take the training outputs instead
        is_needed = self._needs(Needs.KNOWN) or (
            self._needs(Needs.VALIDATION) and not has_validation
        )
        if train is None or not is_needed:
            empty = self.extractor.empty()
            self.scored.shared.add("train", empty)  # it has the head
            return empty
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
        outputs = self.extractor.outputs(
            name,
            dataset,
            extra_outputs=tuple({extra.key: extra for extra in extra_outputs}.values()),
            layers=needs_layers(self.methods.values()),
        )
        outputs = self._moved(name, outputs)
        self.scored.shared.add(name, outputs)
        return outputs

    def _moved(self, name: str, outputs: ClassifierOutputs) -> ClassifierOutputs:
        """Copy outputs to the device, unless they would leave too little room for the methods."""
        if torch.device(self.device).type != "cuda":
            return outputs
        n_bytes = sum(tensor.nbytes for tensor in outputs.tensors().values())
        if n_bytes > _SHARE_OF_MEMORY * torch.cuda.mem_get_info(self.device)[0]:
            self._step(f"{name}: too large for the memory of {self.device}, stays on the host")
            return outputs
        return outputs.to(self.device)

    def _fit(
        self,
        name: str,
        method: Method,
        known: ClassifierOutputs,
        validation: ClassifierOutputs | None,
    ) -> None:
        device = str(known.logits.device) if len(known) else self.device
        start = seconds_on(self.device)
        try:
            method.fit(known.alias(), None if validation is None else validation.alias())
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            self._step(f"fitting {name} on the CPU: {device} has too little memory")
            device = "cpu"
            method.fit(known.to(device), None if validation is None else validation.to(device))
        seconds = seconds_on(self.device) - start
        notes = method.notes_on(known.alias())
        fitted = FittedMethod(name, method, seconds, notes=notes, device=device)
        self.scored.fitted[MethodKey(name)] = fitted

    def _search(self, known: ClassifierOutputs, validation: ClassifierOutputs | None) -> None:
        dataset = self.benchmark.unknown_validation
        if dataset is None or validation is None:
            return
        extra_outputs = self._grid_extra_outputs()
        unknown = self._outputs("unknown validation", dataset, extra_outputs)
        accepted = [
            self._outputs(name, images, extra_outputs)
            for name, images in self.benchmark.accepted_validation.items()
        ]
        for name in [name for name in self.methods if name in self.searched]:
            if MethodKey(name) in self.scored.fitted:
                self._step(f"searching {name}")
                data = SearchData(
                    known.alias(),
                    validation.alias(),
                    unknown.alias(),
                    tuple(part.alias() for part in accepted),
                )
                tune = partial(self._tune, name, data)
                reads = list(self.scored.shared.tensors)
                self.scored.guard(MethodKey(name, tuned=True), tune, reads=reads)

    def _tune(self, name: str, data: SearchData) -> None:
        default, tuned = MethodKey(name), MethodKey(name, tuned=True)
        start = self.scored.fitted[default]
        with torch.no_grad():
            found = search(start.method, data)
        notes = found.method.notes_on(data.known)
        seconds = start.fit_seconds
        self.scored.fitted[tuned] = FittedMethod(
            tuned, found.method, seconds, notes=notes, device=start.device
        )
        self.scored.searches[default] = SearchRecord("default", found.curve)
        self.scored.searches[tuned] = SearchRecord("tuned", found.curve)

    def _score(self, group: str, name: str, dataset: Dataset) -> None:
        extra_outputs = [
            e for fitted in self.scored.fitted.values() for e in fitted.method.extra_outputs()
        ]
        outputs = self._outputs(name, dataset, extra_outputs)
        # a copy: a method may keep the column and write to it later
        labels = None if outputs.labels is None else outputs.labels.cpu().numpy().copy()
        predicted = outputs.logits.argmax(dim=1).cpu().numpy()
        names = _source_classes(dataset, outputs.image_ids)
        self.scored.sets.append(ScoredSet(name, group, outputs.image_ids, predicted, labels, names))
        for key, fitted in list(self.scored.fitted.items()):
            self._step(f"scoring {name}: {key}")
            with torch.no_grad():
                self.scored.guard(key, partial(fitted.score, name, outputs), reads=[name])
        self.scored.shared.remove(name)

    def _step(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(what)


def _source_classes(dataset: Dataset, image_ids: Sequence[str]) -> tuple[str, ...] | None:
    """Return the true class of each image by name, where its data set tells it."""
    if dataset.source_classes is None:
        return None
    name_of = dict(zip(map(str, dataset.image_ids), dataset.source_classes, strict=True))
    return tuple(name_of[str(image)] for image in image_ids)


def needs_layers(methods: Iterable[Method]) -> bool:
    """Whether any method needs pooled layer features."""
    return any(POOLED & method.all_needs for method in methods)
