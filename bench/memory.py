"""The most memory a fit takes on outputs in mapped files, at the size of ImageNet's training set.

Every method is fitted in a process of its own on two numbers of rows, has a parameter changed as a
search does it, and scores 1,000 rows. What counts is the peak of anonymous memory of the whole
process: pages of a mapped file are given up when memory is short. The line through both peaks says
what 1.28 million rows of 2048 features (10.5 GB) and 1000 logits (5 GB) would take.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bench.harness import (
    Row,
    anonymous_bytes,
    at_most,
    keep_no_free_memory,
    memory_at,
    return_free_memory,
    use_one_thread,
)
from bench.toy_outputs import outputs
from incognita.containers.needs import ExtraOutput, Needs
from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.extraction.extra_outputs import GramRows
from incognita.methods import list_methods, load_method
from incognita.methods.ensembles import join_members
from incognita.methods.method import Method, Refit

N_IMAGENET, N_CLASSES, D = 1_281_167, 1000, 2048
N_SCORED = 1000
BAR = at_most(8.0)
# percentiles are taken of 2^26 activations: of all rows of the first size, half of the second
SIZES = (32_768, 65_536)
FEWER = (8_192, 16_384)  # where rows cost much time, or nothing is learned from them
WARM_UP = (4096, 64)  # imports and compiles, in almost no memory
BLOCK = 4096
INTERVAL_S = 0.001


@dataclass(frozen=True)
class Case:
    """A method, and what is asked of it."""

    name: str
    sizes: tuple[int, int] = SIZES
    d: int = D
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        given = [f"{name} {value}" for name, value in self.parameters.items()]
        return ", ".join([self.name, *([f"d {self.d}"] if self.d != D else []), *given])


TAKES_LONG = ("mds", "mds-ensemble", "rmds", "ssd", "ddu", "vim", "residual", "gram", "adascale",
              "relation")  # fmt: skip
MORE = (
    Case("react+knn"),
    Case("ash-s+mds", FEWER),
    Case("nnguide", parameters={"share": 1.0}),
    Case("ddu", FEWER, d=512),  # a covariance for each class: nearly the 2 GiB that it allows
)


def cases() -> list[Case]:
    return [*map(case_of, filter(is_for_images, list_methods())), *MORE]


def is_for_images(name: str) -> bool:
    return not load_method(name).all_needs & (Needs.LATENT | Needs.SHORTCUTS)


def case_of(name: str) -> Case:
    learns = load_method(name).all_needs & (Needs.KNOWN | Needs.VALIDATION)
    # memory does not depend on epochs
    parameters = {"epochs": 1} if name == "opengan" else {}
    return Case(name, FEWER if name in TAKES_LONG or not learns else SIZES, parameters=parameters)


def rows() -> list[Row]:
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        write_outputs(Path(folder), max(SIZES))
        return [row_of(Path(folder), case) for case in cases()]


def row_of(folder: Path, case: Case) -> Row:
    """Measure one case in a new process, where no other has left memory behind."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=use_one_thread) as pool:
        seconds, peaks = pool.submit(measured, folder, case).result()
    return memory_at(f"fit on files, d {D}", case.title, peaks, N_IMAGENET, BAR, seconds)


def measured(folder: Path, case: Case) -> tuple[float, dict[int, int]]:
    """Return the processor time, and the peak of anonymous memory at each size."""
    torch.set_num_threads(1)
    keep_no_free_memory()
    start, peaks = time.process_time(), {}
    use(case, folder, *WARM_UP)
    for n in case.sizes:
        return_free_memory()
        with peak_of_anonymous_memory() as peak:
            use(case, folder, n, case.d)
        peaks[n] = peak[0]
    return time.process_time() - start, peaks


def use(case: Case, folder: Path, n: int, d: int) -> None:
    """Fit, change a parameter that leaves what was learned, and score."""
    method = load_method(case.name, **case.parameters)
    known = equipped(mapped_outputs(folder, n, d), method, is_fitting=True)
    method.fit(known)
    for name, values in reversed(method.search_space.items()):
        if method.invalidates.get(name) is Refit.FINALIZE:
            other = next(value for value in values if value != method.parameters()[name])
            method.with_parameters(known, **{name: other})
            break
    method.score(equipped(mapped_outputs(folder, N_SCORED, d), method))


@contextmanager
def peak_of_anonymous_memory() -> Iterator[list[int]]:
    """Look every millisecond; a table of a few megabytes takes longer to be filled."""
    peak, is_over = [anonymous_bytes()], threading.Event()

    def watch() -> None:
        while not is_over.wait(INTERVAL_S):
            peak[0] = max(peak[0], anonymous_bytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        is_over.set()
        watcher.join()


def write_outputs(folder: Path, n: int) -> None:
    """Write columns as a pass leaves them, a few rows at a time."""
    for first in range(0, n, BLOCK):
        part = outputs(BLOCK, N_CLASSES, D, seed=first)
        columns = {"features": part.features, "logits": part.logits, "labels": part.labels}
        for name, column in columns.items():
            with (folder / name).open("ab") as file:
                column.numpy().tofile(file)


def mapped_outputs(folder: Path, n: int, d: int) -> ClassifierOutputs:
    features = mapped(folder / "features", n, D)[:, :d]
    weight = outputs(1, N_CLASSES, D, seed=0).head.weight[:, :d]
    return ClassifierOutputs(
        tuple(f"train/n{k % 1000:08d}/n{k % 1000:08d}_{k}.JPEG" for k in range(n)),
        mapped(folder / "logits", n, N_CLASSES),
        features,
        mapped(folder / "labels", n, 1, torch.int64).flatten(),
        Head(weight, torch.zeros(N_CLASSES)),
        {"stem": features[:, : d // 8], "last": features},
    )


def mapped(path: Path, n: int, d: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_file(str(path), shared=True, size=n * d, dtype=dtype).view(n, d)


def equipped(
    known: ClassifierOutputs, method: Method, *, is_fitting: bool = False
) -> ClassifierOutputs:
    """Add what the pass records for some methods, as other views of the same files."""
    if Needs.MEMBERS in method.all_needs:
        return join_members([known, known])
    if is_fitting and not method.fits_on_extra_outputs_of:
        return known
    columns = {
        f"{extra.key}/{name}": column
        for extra in method.extra_outputs()
        for name, column in columns_of(extra, known).items()
    }
    return replace(known, extra_outputs=columns)


def columns_of(extra: ExtraOutput, known: ClassifierOutputs) -> dict[str, torch.Tensor]:
    if isinstance(extra, GramRows):
        n_powers = len(extra.powers)
        n_channels = known.features.shape[1] // n_powers
        rows = known.features[:, : n_powers * n_channels]
        return {"last": rows.unflatten(1, (n_powers, n_channels))}
    logits = dict.fromkeys(("logits", "last", "previous", "h"), known.logits)
    return {"features": known.features, **logits}
