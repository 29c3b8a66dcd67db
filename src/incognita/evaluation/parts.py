"""The data sets of an evaluation, and checks that keep their numbers meaningful."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

import numpy as np

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.classes import plain
from incognita.containers.dataset import ArrayDataset, Dataset
from incognita.errors import InvalidDataError
from incognita.formats.images import identities
from incognita.results.score_tables import KNOWN, MIXED, SHIFTED, TEST


def test_sets(benchmark: Benchmark) -> Iterator[tuple[str, str, Dataset]]:
    """Yield every set that is scored: its group, its name, its images."""
    yield KNOWN, TEST, benchmark.test
    for name, dataset in benchmark.shifted.items():
        yield SHIFTED, name, dataset
    for group, sets in benchmark.unknown.items():
        for name, dataset in sets.items():
            yield group, name, dataset
    for name, dataset in benchmark.mixed.items():
        yield MIXED, name, dataset


def fitting_sets(benchmark: Benchmark) -> dict[str, Dataset | None]:
    """Return every set that methods are fitted or chosen on."""
    return {
        "train": benchmark.train,
        "validation": benchmark.validation,
        "unknown validation": benchmark.unknown_validation,
    }


def check_parts(benchmark: Benchmark, *, searching: bool) -> None:
    """Raise for sets that share images, repeated names, and a search without held-out data."""
    _check_names(benchmark)
    _check_sizes(benchmark)
    fitting = {name: d for name, d in fitting_sets(benchmark).items() if d is not None}
    tested = {name: dataset for _, name, dataset in test_sets(benchmark)}
    for name, dataset in (fitting | tested).items():
        _check_labels(name, dataset, len(benchmark.classes))
    check_overlap(fitting, tested)
    for name in ("validation", "unknown validation"):
        if searching and name not in fitting:
            raise InvalidDataError(
                f"A search needs {name} images, but {benchmark.name} has none. Add them to its "
                f"definition, or do not search."
            )


def _check_names(benchmark: Benchmark) -> None:
    names = [name for _, name, _ in test_sets(benchmark)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidDataError(
            f"Two sets of {benchmark.name} are called {min(twice)!r}. Give each its own name."
        )
    if reserved := set(names) & set(fitting_sets(benchmark)):
        raise InvalidDataError(
            f"A test set of {benchmark.name} is called {min(reserved)!r}, which is reserved for "
            f"a set that methods are fitted on. Give it another name."
        )
    if shared := set(benchmark.mixed) & set(benchmark.unknown):
        raise InvalidDataError(
            f"A mixed set and a group of unknown sets of {benchmark.name} are both called "
            f"{min(shared)!r}. Give the set another name."
        )
    if reserved := {KNOWN, SHIFTED, MIXED} & set(benchmark.unknown):
        raise InvalidDataError(
            f"A group of unknown sets cannot be called {min(reserved)!r}. Call it near or far."
        )


def _check_sizes(benchmark: Benchmark) -> None:
    n_known = len(benchmark.test.image_ids)
    groups = [*benchmark.unknown.values(), benchmark.mixed]
    n_unknown = sum(len(dataset.image_ids) for sets in groups for dataset in sets.values())
    if not n_known or not n_unknown:
        raise InvalidDataError(
            f"{benchmark.name} has {n_known} known and {n_unknown} unknown images to test on. It "
            f"needs some of both."
        )


def _check_labels(name: str, dataset: Dataset, n_classes: int) -> None:
    if dataset.labels is None or not len(dataset.labels):
        return
    low, high = int(np.min(dataset.labels)), int(np.max(dataset.labels))
    if low < 0 or high >= n_classes:
        raise InvalidDataError(
            f"Expected labels of {name} from 0 to {n_classes - 1}, got {low} to {high}. Leave the "
            f"labels of unknown images out."
        )


def check_classes(model: str, class_names: Sequence[str], benchmark: Benchmark) -> None:
    """Raise if a model has other classes than the benchmark, or the same in another order."""
    if len(class_names) != len(benchmark.classes):
        raise InvalidDataError(
            f"Expected the {len(benchmark.classes)} known classes of {benchmark.name}, got "
            f"{len(class_names)} classes of {model}. Use a model trained on them."
        )
    theirs, ours = ([plain(n) for n in names] for names in (class_names, benchmark.classes))
    if theirs != ours and sorted(theirs) == sorted(ours):
        place = next(k for k, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b)
        raise InvalidDataError(
            f"{model} has the classes of {benchmark.name} in another order: number {place} is "
            f"{class_names[place]!r} in the model and {benchmark.classes[place]!r} in the "
            f"benchmark. Put those of the benchmark in the order of the model."
        )


def check_overlap(fitting: Mapping[str, Dataset], tested: Mapping[str, Dataset]) -> None:
    """Raise if methods would be fitted or chosen on images they are tested on."""
    images = {name: _identities(dataset) for name, dataset in tested.items()}
    for part, dataset in fitting.items():
        mine = _identities(dataset)
        for name, others in images.items():
            if shared := mine & others:
                raise InvalidDataError(
                    f"{len(shared)} images of {part} are also in the test set {name}, such as "
                    f"{min(shared)!r}. Remove them from one of the two."
                )


def _identities(dataset: Dataset) -> frozenset[str]:
    """Return what distinguishes images: in memory their content, since ids may be numbers."""
    if not isinstance(dataset, ArrayDataset):
        return identities(dataset)
    images = (np.ascontiguousarray(dataset.load(k)) for k in range(len(dataset)))
    return frozenset(
        sha256(repr(image.shape).encode() + image.tobytes()).hexdigest()[:24] for image in images
    )
