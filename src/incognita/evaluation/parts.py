"""The parts of a benchmark in an evaluation, and what makes their numbers worthless."""

from collections.abc import Iterator, Mapping
from hashlib import sha256

import numpy as np

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.dataset import ArrayDataset, Dataset
from incognita.errors import InvalidDataError
from incognita.formats.images import identities
from incognita.results.scored_sets import KNOWN, MIXED, SHIFTED, TEST


def test_sets(benchmark: Benchmark) -> Iterator[tuple[str, str, Dataset]]:
    """Give every set that is scored: its group, its name, its images."""
    yield KNOWN, TEST, benchmark.test
    for name, dataset in benchmark.shifted.items():
        yield SHIFTED, name, dataset
    for group, sets in benchmark.unknown.items():
        for name, dataset in sets.items():
            yield group, name, dataset
    for name, dataset in benchmark.mixed.items():
        yield MIXED, name, dataset


def fitting_sets(benchmark: Benchmark) -> dict[str, Dataset | None]:
    """Give every part that is learned from or chosen on."""
    return {
        "train": benchmark.train,
        "validation": benchmark.validation,
        "unknown validation": benchmark.unknown_validation,
    }


def check_parts(benchmark: Benchmark, *, searching: bool) -> None:
    """Refuse parts that share images, repeated names, and a search without held-out data."""
    names = [name for _, name, _ in test_sets(benchmark)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidDataError(
            f"{sorted(twice)[0]!r} names two sets of {benchmark.name}; give each its own name."
        )
    if reserved := set(names) & set(fitting_sets(benchmark)):
        raise InvalidDataError(
            f"A tested set of {benchmark.name} is called {min(reserved)!r}, like a part that is "
            f"learned from or chosen on; give it another name."
        )
    if shared := set(benchmark.mixed) & set(benchmark.unknown):
        raise InvalidDataError(
            f"{min(shared)!r} names a mixed set and a group of unknown sets of {benchmark.name}; "
            f"give the set another name."
        )
    learned = {name: each for name, each in fitting_sets(benchmark).items() if each is not None}
    tested = {name: each for _, name, each in test_sets(benchmark)}
    _refuse_emptiness(benchmark)
    for name, each in (learned | tested).items():
        _check_labels(name, each, len(benchmark.classes))
    refuse_shared_images(learned, tested)
    for part in ("validation", "unknown validation"):
        if searching and part not in learned:
            raise InvalidDataError(
                f"A search needs {part} images, but {benchmark.name} has none; add them to its "
                f"definition or leave the search out."
            )


def _refuse_emptiness(benchmark: Benchmark) -> None:
    if reserved := {KNOWN, SHIFTED, MIXED} & set(benchmark.unknown):
        raise InvalidDataError(
            f"A group of unknown sets cannot be called {min(reserved)!r}; call it near or far."
        )
    sizes = [len(each.image_ids) for _, _, each in test_sets(benchmark)]
    groups = [*benchmark.unknown.values(), benchmark.mixed]
    n_unknown = sum(len(each.image_ids) for sets in groups for each in sets.values())
    if not sizes[0] or not n_unknown:
        raise InvalidDataError(
            f"{benchmark.name} has {sizes[0]} known and {n_unknown} unknown images to test on; "
            f"it needs some of both."
        )


def _check_labels(name: str, dataset: Dataset, n_classes: int) -> None:
    if dataset.labels is None or not len(dataset.labels):
        return
    low, high = int(np.min(dataset.labels)), int(np.max(dataset.labels))
    if low < 0 or high >= n_classes:
        raise InvalidDataError(
            f"The labels of {name} go from {low} to {high}, but there are {n_classes} known "
            f"classes; give labels from 0 to {n_classes - 1}, or none for unknown images."
        )


def _identities(dataset: Dataset) -> frozenset[str]:
    """What tells images apart: in memory their content, since ids there are often plain numbers."""
    if not isinstance(dataset, ArrayDataset):
        return identities(dataset)
    images = (np.ascontiguousarray(dataset.load(k)) for k in range(len(dataset)))
    return frozenset(
        sha256(repr(each.shape).encode() + each.tobytes()).hexdigest()[:24] for each in images
    )


def refuse_shared_images(learned: Mapping[str, Dataset], tested: Mapping[str, Dataset]) -> None:
    """Refuse to learn from or choose on images that are tested on: the numbers would flatter."""
    images = {name: _identities(each) for name, each in tested.items()}
    for part, each in learned.items():
        mine = _identities(each)
        for name, others in images.items():
            if shared := mine & others:
                raise InvalidDataError(
                    f"{len(shared)} images of {part} are also tested in {name}, such as "
                    f"{min(shared)!r}; take them out of one of the two."
                )
