"""Runs a model over a dataset once and returns every requested output."""

import os
import pickle
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TypeVar, cast, overload
from weakref import WeakSet

import numpy as np
import torch
from torch import nn

from incognita.containers import (
    ArrayDataset,
    ClassifierOutputs,
    Dataset,
    Detections,
    DetectorOutputs,
    ExtraOutput,
)
from incognita.errors import InvalidDataError, StorageError, WorkerError
from incognita.extraction.classifier_pass import ClassifierExtraction
from incognita.extraction.detector_pass import DetectorExtraction
from incognita.extraction.loading import (
    Inputs,
    Loader,
    ReaderProcesses,
    is_of_a_reader,
    pickled,
)
from incognita.extraction.recorded import save_outputs
from incognita.extraction.settings import (
    FailedImage,
    OutputRequest,
    PassCount,
    Settings,
    ShardJob,
    ShardLayout,
)
from incognita.extraction.shards import Progress, ShardRunner
from incognita.extraction.store import MemoryShards, OutputStore, StoredShards, join
from incognita.extraction.stored_outputs import IMAGES
from incognita.extraction.stored_sets import StoredClassifier
from incognita.formats.images import load_image
from incognita.models.classifier import Classifier
from incognita.models.detector import Detector, is_detector, steps_of, wrap_detector
from incognita.models.fingerprints import importable, source_of
from incognita.models.preprocessing import InputSteps

Outputs = TypeVar("Outputs")
_MOST_THREADS = 8
_MOST_READERS = 16
_FEWEST_FOR_READERS = 1024  # images: starting processes takes as long as reading these in threads
_ENDING = (signal.SIGINT, signal.SIGTERM)  # signals that end a run
_TIMED_IMAGES = 16  # for comparing precisions
_SHORTEST_CALL = 2e-3  # seconds; below that the overhead of a call hides its precision
_SLOWER = 1.1  # bfloat16 is called slower from this ratio on
_TIMED: WeakSet[nn.Module] = WeakSet()  # networks whose precisions were compared already


@dataclass(frozen=True, eq=False, repr=False)
class Extracted(Generic[Outputs]):
    """The outputs of one pass and its cost.

    Args:
        outputs: Outputs of the usable images, in the order of the dataset.
        failed_images: The other images.
        passes: How often the network was run; outputs found in the store cost none.
        seconds: From the call to the outputs.
        n_bytes: Size of the columns.
        n_images: Number of usable images.
        dataset: The images.
        class_names: The classes of the model, in the order of the logits.
    """

    outputs: Outputs
    failed_images: tuple[FailedImage, ...]
    passes: PassCount
    seconds: float
    n_bytes: int
    n_images: int
    dataset: Dataset
    class_names: tuple[str, ...]

    def save(self, path: str | PathLike[str]) -> None:
        """Save the outputs in the layout that `evaluate(outputs=…)` reads, for others to use.

        Logits, features, labels and ids go to one file, npz, safetensors or Parquet by its suffix
        (boxes: JSON in COCO's results format, and a safetensors file beside it); the head and the
        class names to `head.npz` and `classes.json` in the same folder.

        Args:
            path: The file, called after the set: `outputs/train.npz`, `outputs/test.json`.
        """
        outputs = cast(ClassifierOutputs | DetectorOutputs, self.outputs)
        save_outputs(Path(path), outputs, self.dataset, self.class_names)

    def __repr__(self) -> str:
        """Return one line: images, failures and cost."""
        return (
            f"Extracted({self.n_images:,} images, {len(self.failed_images):,} failed, "
            f"{self.passes.forward:,} forward and {self.passes.backward:,} backward passes, "
            f"{self.seconds:.1f} s)"
        )


@overload
def extract(
    model: Classifier,
    dataset: Dataset,
    *,
    extra_outputs: Sequence[ExtraOutput] = (),
    layers: bool = False,
    settings: Settings = ...,
    store: OutputStore | None = None,
    on_progress: Progress | None = None,
    readers: ReaderProcesses | None = None,
) -> Extracted[ClassifierOutputs]: ...


@overload
def extract(
    model: Detector,
    dataset: Dataset,
    *,
    extra_outputs: Sequence[ExtraOutput] = (),
    layers: bool = False,
    settings: Settings = ...,
    store: OutputStore | None = None,
    on_progress: Progress | None = None,
    readers: ReaderProcesses | None = None,
) -> Extracted[DetectorOutputs]: ...


def extract(
    model: Classifier | Detector,
    dataset: Dataset,
    *,
    extra_outputs: Sequence[ExtraOutput] = (),
    layers: bool = False,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    store: OutputStore | None = None,
    on_progress: Progress | None = None,
    readers: ReaderProcesses | None = None,
) -> Extracted[Any]:
    """Record logits, features (and boxes) and all requested columns in one pass over the images.

    The dataset is cut into shards, of 512 images for a classifier and 64 for a detector. With a
    store every finished shard is kept, and a later call runs the network only for what is missing.
    An image that cannot be read, or for which the network returns NaN or infinity, is listed in
    `failed_images` and has no row.

    Args:
        model: The classifier or detector; it is left as it is.
        dataset: The images.
        extra_outputs: Columns to record in addition to logits and features.
        layers: Whether to record the layers, pooled over each image or box.
        settings: How to run the model.
        store: Where to find and keep outputs.
        on_progress: Called with the number of images after every batch, and for every shard found.
        readers: Processes to use where images are read in processes, so that several calls share
            them.
    """
    start = perf_counter()
    job = ExtractionJob(task_of(model), dataset, _request(extra_outputs, layers=layers), settings)
    job.task.check(job.request, settings)
    with tempfile.TemporaryDirectory(prefix="incognita-") as temporary:
        if store is None and len(settings.devices) > 1:
            store = OutputStore(Path(temporary))
        shards = job.open(store)
        passes = _run_missing(job, shards, on_progress or (lambda _: None), readers)
        joined = join(shards, job.n_shards, list(job.request))
    return Extracted(
        job.task.outputs(dataset, job.request, joined),
        tuple(FailedImage(dataset.image_ids[k], why) for k, why in joined.failed_images.items()),
        passes,
        perf_counter() - start,
        joined.n_bytes,
        len(joined.rows),
        dataset,
        tuple(model.class_names),
    )


def task_of(model: Classifier | Detector) -> ClassifierExtraction | DetectorExtraction:
    """Return the extraction from a classifier or a detector."""
    return (
        DetectorExtraction(model)
        if is_detector(model)
        else ClassifierExtraction(cast(Classifier, model))
    )


def _request(extra_outputs: Sequence[ExtraOutput], *, layers: bool) -> OutputRequest:
    for extra in extra_outputs:
        if not isinstance(extra, ExtraOutput):
            raise InvalidDataError(
                f"Expected extra outputs, got {extra!r:.80}. Use instances of ExtraOutput."
            )
    unique = {extra.key: extra for extra in extra_outputs}
    return OutputRequest(layers=layers, extra_outputs=tuple(unique.values()))


@dataclass(frozen=True, eq=False)
class ExtractionJob:
    """What every process needs to know to run shards."""

    task: ClassifierExtraction | DetectorExtraction
    dataset: Dataset
    request: OutputRequest
    settings: Settings

    @property
    def layout(self) -> ShardLayout:
        """Images per shard and per call of the network."""
        layout = self.task.layout
        return layout._replace(batch_size=self.settings.batch_size or layout.batch_size)

    @property
    def n_shards(self) -> int:
        """Number of shards of the dataset."""
        return self.layout.n_shards(len(self.dataset.image_ids))

    def open(self, store: OutputStore | None) -> StoredShards | MemoryShards:
        """Open the place where the shards are or will be."""
        if store is None:
            return MemoryShards()
        name, identity = self.task.model.name, self.task.identity()
        return store.open(name, identity, self.dataset, self.settings, self.layout)

    def folder(self, store: OutputStore) -> Path:
        """Return the folder of the outputs in a store, which may not be there."""
        fingerprint = self.dataset.fingerprint()
        return store.find(self.task.identity(), fingerprint, self.settings, self.layout).folder

    def is_stored(self, store: OutputStore) -> bool:
        """Whether a store holds all shards of the request, complete and as they were written."""
        shards = StoredShards(self.folder(store))
        has_images = (shards.folder / IMAGES).exists()
        places = range(self.n_shards)
        return has_images and all(shards.has(k, group) for k in places for group in self.request)

    def loader(self, layout: ShardLayout, readers: ReaderProcesses | None = None) -> Loader:
        """Build the loader of this process."""
        threads = max(1, min(_MOST_THREADS, n_cores()) // len(self.settings.devices))
        steps = steps_of(self.task.model)
        return Loader(self.dataset, steps, layout, threads, self.settings.is_cuda, readers)

    def runner(
        self,
        readers: ReaderProcesses | None = None,
        turn: AbstractContextManager[object] | None = None,
    ) -> ShardRunner:
        """Build the runner of shards in this process."""
        model, loader = self.task.start(self.settings), self.loader(self.layout, readers)
        return ShardRunner(model, loader, self.request, turn or nullcontext())

    def n_readers(self, n_images: int) -> int:
        """Return how many processes read these images; none where threads are as good."""
        given, steps = self.settings.workers, steps_of(self.task.model)
        if given is None:
            is_long = n_images >= _FEWEST_FOR_READERS
            is_worth_it = self.settings.is_cuda and is_long and not _is_in_memory(self.dataset)
            given = most_readers() if is_worth_it and _can_be_sent(steps) else 0
        elif given > 1 and not steps.is_detached:
            warnings.warn(
                f"The preprocessing of {self.task.model.name} is a method of the model, which is "
                f"not sent to {given} readers; images are read in threads.",
                stacklevel=2,
            )
            given = 0
        return given if given > 1 else 0


def most_readers() -> int:
    """Return how many processes read images where nothing else is said."""
    return min(_MOST_READERS, n_cores())


def readers_for(settings: Settings) -> ReaderProcesses:
    """Return readers that several calls can share; they start when they are first needed."""
    return ReaderProcesses(settings.workers or most_readers(), pin=settings.is_cuda)


def _is_in_memory(dataset: Dataset) -> bool:
    return isinstance(getattr(dataset, "images", None), np.ndarray)


def _can_be_sent(steps: InputSteps) -> bool:
    """Whether reader processes can be sent the preprocessing."""
    try:
        return steps.is_detached and bool(pickle.dumps(steps))
    except Exception:  # whatever an object raises that cannot be pickled
        return False


def _run_missing(
    job: ExtractionJob,
    shards: StoredShards | MemoryShards,
    on_progress: Progress,
    readers: ReaderProcesses | None,
) -> PassCount:
    pending, n_images = [], 0
    for index in range(job.n_shards):
        missing = frozenset(group for group in job.request if not shards.has(index, group))
        n_here = len(job.layout.rows(index, len(job.dataset.image_ids)))
        if missing:
            pending.append(ShardJob(index, missing))
            n_images += n_here
        else:
            on_progress(n_here)
    if not pending:
        return PassCount()
    if isinstance(job.task.model, StoredClassifier):
        raise job.task.model.cannot_run()
    _warn_if_bfloat16_is_slow(job)
    n_readers = job.n_readers(n_images)
    if isinstance(shards, StoredShards) and len(job.settings.devices) > 1:
        return run_on_devices(job, shards, pending, on_progress, n_readers)
    with _opened(readers, n_readers, job.settings) as opened:
        return _run_here(job, shards, pending, on_progress, opened)


@contextmanager
def _opened(
    readers: ReaderProcesses | None, n: int, settings: Settings
) -> Iterator[ReaderProcesses | None]:
    """Yield the readers of the caller, or own ones that end here; None where none are needed."""
    if n == 0 or readers is not None:
        yield readers if n else None
        return
    with ReaderProcesses(n, pin=settings.is_cuda) as own:
        yield own


def _run_here(
    job: ExtractionJob,
    shards: StoredShards | MemoryShards,
    pending: Iterable[ShardJob],
    on_progress: Progress,
    readers: ReaderProcesses | None,
    turn: AbstractContextManager[object] | None = None,
) -> PassCount:
    runner = job.runner(readers, turn)
    try:
        runner.run(pending, shards.write, on_progress)
    except RuntimeError as error:
        if readers is not None and is_of_a_reader(error):
            raise readers.failure(error, job.dataset) from error
        raise
    finally:
        runner.model.close()
    return runner.model.passes


def _warn_if_bfloat16_is_slow(job: ExtractionJob) -> None:
    """Compare both precisions on the first images: CPUs without bfloat16 units emulate it."""
    settings, module = job.settings, job.task.model.module
    is_cpu = torch.device(settings.devices[0]).type == "cpu"
    if settings.precision != "bfloat16" or not is_cpu or module in _TIMED:
        return
    _TIMED.add(module)
    n = min(_TIMED_IMAGES, len(job.dataset.image_ids))
    with closing(job.loader(ShardLayout(n, n)).batches([ShardJob(0, frozenset())])) as batches:
        inputs = next(batches).images.inputs
    if inputs is None:
        return
    full, half = (_seconds_per_call(job, inputs, name) for name in ("float32", "bfloat16"))
    if full > _SHORTEST_CALL and half > _SLOWER * full:
        warnings.warn(
            f"{job.task.model.name} takes {half / full:.1f} times as long in bfloat16 as in "
            f"float32 on this CPU. Use precision float32, unless bfloat16 is what you study.",
            stacklevel=4,  # the caller of `extract`
        )


def _seconds_per_call(job: ExtractionJob, inputs: Inputs, precision: Any) -> float:
    """Time a forward pass of a few images; zero where it fails, which the run will report."""
    model, seconds = job.task.start(replace(job.settings, precision=precision)), []
    try:
        for _ in range(3):
            start = perf_counter()
            model.record(inputs, OutputRequest())
            seconds.append(perf_counter() - start)
    except Exception:  # whatever a model may raise
        return 0.0
    finally:
        model.close()
    return min(seconds)


def n_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_on_devices(
    job: ExtractionJob,
    shards: StoredShards,
    pending: Sequence[ShardJob],
    on_progress: Progress,
    n_readers: int = 0,
) -> PassCount:
    """Deal shards out to one process per device; each takes the next one when it is free.

    The bytes are those of one process. Sums of floats depend on how many threads share them: on
    one machine ResNet-18, ViT, Swin, MobileNet and VGG all gave other bytes with 4 threads than
    with 1, mostly in gradients and in the last, smaller batch. So a batch is always computed by as
    many threads as torch has in the parent. To share the cores, processes on the CPU take turns: no
    more batches are computed at once than there are cores for.
    """
    context = get_context("spawn")
    devices = job.settings.devices
    at_once = max(1, n_cores() // torch.get_num_threads())
    # GPUs schedule by themselves
    turns = context.Semaphore(len(devices) if job.settings.is_cuda else at_once)
    source, content = source_of(job.task.model), pickled(job, "The model or the data set")
    shared = (source, content, shards, list(pending), context.Value("q", 0), turns)
    n_readers //= len(devices)
    workers: dict[Connection, SpawnProcess] = {}
    try:
        for device in devices[: len(pending)]:
            reader, writer = context.Pipe(duplex=False)
            # not a daemon, which could not start readers; an orphan ends by itself
            process = context.Process(
                target=_work, args=(*shared, device, n_readers, torch.get_num_threads(), writer)
            )
            workers[reader] = process
            with _interrupts_blocked():
                process.start()
            writer.close()  # so that the end of the process is the end of the pipe
        return _listen(workers, on_progress)
    finally:
        for process in workers.values():
            if process.pid is not None:  # it was started
                process.terminate()
                process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start a process so that Ctrl-C is left to its parent, even while it still imports torch.

    Interrupts are blocked, which a process inherits, and not ignored: here one would be lost. So
    is SIGTERM, which must not cut off what the process is sent; `_work` lets it in again.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        with _handlers_waiting():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _handlers_waiting() -> Iterator[None]:
    """Call the handlers of signals afterwards: another thread may receive what this one blocks."""
    if threading.current_thread() is not threading.main_thread():  # handlers run elsewhere
        yield
        return
    received: list[int] = []
    handlers = {n: signal.signal(n, lambda number, _: received.append(number)) for n in _ENDING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if received:
        signal.raise_signal(received[0])


def _listen(workers: dict[Connection, SpawnProcess], on_progress: Progress) -> PassCount:
    passes, open_pipes = PassCount(), set(workers)
    while open_pipes:
        for pipe in wait(list(open_pipes)):
            assert isinstance(pipe, Connection)
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                workers[pipe].join()
                raise WorkerError(
                    f"A worker process died with exit code {workers[pipe].exitcode}, perhaps for "
                    f"lack of memory. Finished shards are kept; start again with fewer workers."
                ) from None
            if isinstance(message, int):
                on_progress(message)
            elif isinstance(message, PassCount):
                passes = passes.plus(message)
                open_pipes.discard(pipe)
            elif isinstance(
                message, InvalidDataError | StorageError | WorkerError
            ):  # as it would be raised here
                raise message
            else:
                raise WorkerError(
                    f"A worker process failed with {message}. Finished shards are kept; start "
                    f"again when this is corrected."
                )
    return passes


def _work(
    source: Path | None,
    content: bytes,
    shards: StoredShards,
    pending: Sequence[ShardJob],
    counter: Any,
    turns: Any,
    device: str,
    n_readers: int,
    n_threads: int,
    pipe: Connection,
) -> None:
    """Run in the process of a device until no shard is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it and ends its workers
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    torch.set_num_threads(n_threads)
    sys.stdout = sys.stderr  # what a network prints must not end up in the output of a command
    with suppress(BrokenPipeError):  # the parent is gone: nobody is left to report to
        try:
            with importable(source):  # a class of the model may be defined there
                job: ExtractionJob = pickle.loads(content)
            job = replace(job, settings=replace(job.settings, device=device))
            with _opened(None, n_readers, job.settings) as readers:
                jobs = _dealt(pending, counter)
                pipe.send(_run_here(job, shards, jobs, pipe.send, readers, turns))
        except BrokenPipeError:
            raise
        except (InvalidDataError, StorageError, WorkerError) as error:
            pipe.send(type(error)(str(error)))
        except Exception as error:
            pipe.send(" ".join(f"{type(error).__name__}: {error}".split()))


def _dealt(pending: Sequence[ShardJob], counter: Any) -> Iterator[ShardJob]:
    parent = parent_process()
    while parent is None or parent.is_alive():  # an orphan stops
        with counter.get_lock():
            place = counter.value
            counter.value += 1
        if place >= len(pending):
            return
        yield pending[place]


def detect(model: Any, images: Any, *, settings: Settings = Settings()) -> Detections:  # noqa: B008 - it is frozen
    """Detect objects in a few images, with the logits and features behind every box.

    `xyxy`, `confidence`, `class_ids` (places in `classes.names`) are those of the library;
    `logits`, `features`, `background` and `source_index` come in addition. Boxes of image k are
    the rows `offsets[k]` to `offsets[k + 1]`.

    Args:
        model: A detector from `wrap_detector`, or a network that it accepts.
        images: One image or several: a path, an RGB array [height, width, 3] of uint8, or a
            PIL image.
        settings: How to run the network.
    """
    detector = model if is_detector(model) else wrap_detector(model)
    outputs: DetectorOutputs = run_on_images(detector, images, settings=settings)
    return outputs.detections


def run_on_images(
    model: Classifier | Detector,
    images: Any,
    *,
    extra_outputs: Sequence[ExtraOutput] = (),
    layers: bool = False,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
) -> Any:
    """Return the outputs of a model on a few images in memory or on disk.

    Args:
        model: The classifier or detector.
        images: One image or several, as `detect` takes them.
        extra_outputs: Columns to record in addition to logits and features.
        layers: Whether to record the layers.
        settings: How to run the network.
    """
    several = images if isinstance(images, list | tuple) else [images]
    ids = [_name(image, place) for place, image in enumerate(several)]
    ids = [name if ids.count(name) == 1 else f"{name}#{k}" for k, name in enumerate(ids)]
    dataset = ArrayDataset("images", tuple(ids), [_pixels(image) for image in several])
    extracted: Extracted[Any] = extract(
        model,
        dataset,
        extra_outputs=extra_outputs,
        layers=layers,
        settings=settings,
    )
    if extracted.failed_images:
        first = extracted.failed_images[0]
        raise InvalidDataError(f"Image {first.image_id} failed: {first.reason}.")
    return extracted.outputs


def _name(image: Any, place: int) -> str:
    return str(image) if isinstance(image, str | PathLike) else str(place)


def _pixels(image: Any) -> np.ndarray:
    if isinstance(image, str | PathLike):
        return load_image(Path(image))
    return image if isinstance(image, np.ndarray) else np.asarray(image.convert("RGB"))
