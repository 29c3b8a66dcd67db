"""From the definition of a benchmark to the benchmark: its images, checked and labelled."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from os import PathLike
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import numpy as np

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.definition import (
    KNOWN_ROLES,
    TESTED_UNKNOWN_ROLES,
    UNKNOWN_GROUPS,
    Definition,
)
from incognita.benchmarks.definition_files import DefinitionFile, find_definition
from incognita.benchmarks.definition_files import list_benchmarks as list_benchmarks
from incognita.benchmarks.load_sets import DataContext, LoadedSet, load_set
from incognita.containers.classes import plain
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats.images import identities, user_cache_dir
from incognita.shapes import Int

if TYPE_CHECKING:
    from incognita.containers.dataset import BoxDataset


FIRST = 3  # missing images that a note names


def notes_of(opened: LoadedSet, known: Collection[str]) -> list[str]:
    """Say what is special about a set, and what is missing; `known` are the known classes."""
    entry, found, expected = opened.entry, opened.found, opened.expected
    left_out = _left_out(opened)
    if opened.dataset is None:
        none = "no image" if expected is None else f"none of {expected:,} images"
        return [f"{entry.name}: {none} found; the set is left out", *left_out]
    notes = [] if entry.note is None else [f"{entry.name}: {entry.note}"]
    if expected is not None and found < expected:
        notes.append(
            f"{entry.name}: {found:,} of {expected:,} images found; numbers are partial"
            f"{_missing(opened)}"
        )
    if expected is not None and found > expected:
        notes.append(
            f"{entry.name}: {found:,} images found where {expected:,} were expected; numbers do "
            f"not compare with published ones"
        )
    return [*notes, *left_out, *opened.notes, *_unknown_objects(opened, known)]


def _missing(opened: LoadedSet) -> str:
    """Name the first images that are missing, where anybody knows their names.

    Without their folders, which are other ones on every machine: notes are part of results.
    """
    if not opened.missing or opened.expected is None:
        return ""
    shown = [PurePath(path).name for path in opened.missing[:FIRST]]
    more = opened.expected - opened.found - len(shown)
    return f"; missing: {', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"


def notes_on_repeats(opened: Sequence[LoadedSet]) -> list[str]:
    """Say that groups of unknown sets share images, whose numbers then say much the same."""
    sets = [each for each in opened if each.entry.role in UNKNOWN_GROUPS]
    notes = []
    for first, second in combinations(sets, 2):
        if first.dataset is None or second.dataset is None or first.entry.role == second.entry.role:
            continue
        if n := len(identities(first.dataset) & identities(second.dataset)):
            notes.append(
                f"{n:,} {'image is' if n == 1 else 'images are'} in both {first.entry.name} "
                f"({first.entry.role}) and {second.entry.name} ({second.entry.role})"
            )
    return notes


def _left_out(opened: LoadedSet) -> list[str]:
    """Say that files were not taken for images, which may be a surprise."""
    if not opened.left_out:
        return []
    n = len(opened.left_out)
    what = "1 file is no image" if n == 1 else f"{n:,} files are no images"
    return [f"{opened.entry.name}: {what} by the suffix and left out, such as {opened.left_out[0]}"]


def _unknown_objects(opened: LoadedSet, known: Collection[str]) -> list[str]:
    """Say that known images hold unknown objects, too."""
    if not opened.entry.is_known or not (opened.object_classes or frozenset()) - set(known):
        return []
    truth = cast("BoxDataset", opened.dataset).truth()
    n_images = len(np.unique(truth.image_index[truth.is_unknown]))
    if not n_images:  # what is not known is ignored
        return []
    return [
        f"{opened.entry.name}: {n_images:,} of {truth.n_images:,} images also show other classes; "
        f"their {truth.is_unknown.sum():,} objects count as unknown"
    ]


TESTED = ("test", "shifted", *TESTED_UNKNOWN_ROLES)


def refuse_overlaps(opened: Sequence[LoadedSet], benchmark: str) -> None:
    """Refuse an image that is learned from or chosen on and also tested, or known and unknown.

    Files are compared by their paths, other images by their ids; copies of a file under another
    name are not found.
    """
    images = {
        each.entry.name: identities(each.dataset) for each in opened if each.dataset is not None
    }
    present = [each.entry for each in opened if each.entry.name in images]
    for place, first in enumerate(present):
        for second in present[:place]:
            if not _must_be_apart(first.role, second.role):
                continue
            if shared := images[first.name] & images[second.name]:
                raise InvalidDataError(
                    f"{len(shared):,} images of {benchmark} are in both set {second.name!r} "
                    f"({second.role}) and set {first.name!r} ({first.role}), such as "
                    f"{min(shared)}; a number from that would be worthless: take them out of one."
                )


def _must_be_apart(first: str, second: str) -> bool:
    if (first in TESTED) != (second in TESTED):
        return True
    if "mixed" in (first, second):  # it shows both, so that it may repeat what is tested apart
        return False
    return (first in KNOWN_ROLES) != (second in KNOWN_ROLES)


def refuse_known_classes(opened: Iterable[LoadedSet], context: DataContext) -> None:
    """Refuse an unknown set that holds a class with the name of a known one."""
    if not context.has_names:
        return
    known = {plain(name): name for name in context.classes}
    for each in opened:
        if each.entry.is_known or each.entry.role == "mixed" or each.dataset is None:
            continue
        own = each.dataset.source_classes if each.object_classes is None else each.object_classes
        allowed = {plain(name) for name in each.entry.allowed_classes}
        shared = sorted(known.keys() & {plain(name) for name in set(own or ())} - allowed)
        if shared:
            names = [known[name] for name in shared]
            what = (
                _known_images(names) if each.object_classes is None else _known_boxes(each, names)
            )
            raise InvalidDataError(
                f"Set {each.entry.name!r} of {context.benchmark} has the role {each.entry.role}, "
                f"but {what}"
            )


def _known_images(names: Sequence[str]) -> str:
    return (
        f"holds images of known classes: {', '.join(names)}; take them out, or name them in "
        f"allowed_classes if they mean something else."
    )


def _known_boxes(opened: LoadedSet, names: Sequence[str]) -> str:
    truth = cast("BoxDataset", opened.dataset).truth()
    images = {
        name: np.unique(truth.image_index[truth.class_ids == truth.classes.id_of(name)])
        for name in names
    }
    n_images = len(np.unique(np.concatenate(list(images.values()))))
    shown = ", ".join(f"{name} in {len(rows):,}" for name, rows in images.items())
    return (
        f"{n_images:,} of its {truth.n_images:,} images show known classes ({shown}); build a set "
        f'without them (`incognita build`), give it the role "mixed", or name them in '
        f"allowed_classes."
    )


def load_benchmark(
    name_or_path: str | PathLike[str],
    *,
    data: str | PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    cache_dir: str | PathLike[str] | None = None,
) -> Benchmark:
    """Open a benchmark of ours by its name, or any by the path of its TOML file.

    What is missing is left out and said in `notes` and `facts["missing"]`; without known test
    images or without any unknown ones there is no benchmark, which is an error. Files are listed
    here and read later, one by one.

    Args:
        name_or_path: Such as `openood/cifar10`, or `mine/street.toml`.
        data: The folder that relative paths begin at; by default the one a TOML file of your own
            lies in, and that of INCOGNITA_DATA for ours.
        limit: At most so many images of each set, in the proportions of their classes; of the
            training set of a classifier ten times as many, since methods learn little from a few
            rows of a class, where an image with boxes gives several rows.
        seed: Of that draw.
        cache_dir: Where hashes of files are remembered; by default in the user's cache.

    >>> load_benchmark("openod/cifar10")
    Traceback (most recent call last):
    incognita.errors.UnknownNameError: No benchmark is called 'openod/cifar10'. \
Did you mean openood/cifar10?
    """
    if limit is not None and limit < 1:
        raise InvalidDataError(f"limit is {limit}, but a set needs at least one image.")
    found = find_definition(name_or_path)
    definition = found.definition
    context = surroundings(found, data, None if cache_dir is None else Path(cache_dir))
    opened = [load_set(entry, context) for entry in definition.set]
    _refuse_emptiness(found, opened, context.data)
    refuse_overlaps(opened, definition.name)
    refuse_known_classes(opened, context)
    datasets = {each.entry.name: each.dataset for each in opened if each.dataset is not None}
    notes = [note for each in opened for note in notes_of(each, context.classes)]
    notes += notes_on_repeats(opened)
    metadata = _facts(found, opened, context)
    if limit is not None:
        more = 10 if definition.task == "classification" else 1
        roles = {entry.name: entry.role for entry in definition.set}
        datasets = {
            name: draw(each, limit * (more if roles[name] == "train" else 1), seed, name)
            for name, each in datasets.items()
        }
        notes.append(_limit_note(limit, more, seed))
        metadata |= {"limit": limit, "seed": seed}
    return _assemble(definition, datasets, context.classes, tuple(notes), metadata)


def _limit_note(limit: int, more: int, seed: int) -> str:
    learned = "" if more == 1 else ", ten times as many to learn from"
    return f"at most {limit:,} images of each set{learned}, drawn with seed {seed}"


def surroundings(
    found: DefinitionFile, data: str | PathLike[str] | None, cache_dir: Path | None = None
) -> DataContext:
    """Settle where the files of a benchmark are and what its classes are called."""
    definition = found.definition
    # a file of one's own speaks of its neighbors, whatever folder the shipped ones are given
    named = os.environ.get("INCOGNITA_DATA") if found.is_shipped else None
    folder = Path(data or named or found.path.parent)
    reads_files = any(entry.reads_files for entry in definition.set)
    if reads_files and found.is_shipped and folder == found.path.parent:
        raise MissingDataError(
            f"{definition.name} needs images of yours: name their folder with --data (data=) or "
            f"INCOGNITA_DATA; `incognita data plan {definition.name}` says what belongs there."
        )
    if reads_files and not folder.is_dir():
        raise MissingDataError(f"There is no data folder {folder}; name one that exists.")
    classes = definition.classes
    if isinstance(classes, str):
        classes = _class_names(folder / classes)
    has_names = not isinstance(classes, int)
    names = tuple(str(k) for k in range(classes)) if isinstance(classes, int) else tuple(classes)
    cache_dir = cache_dir or user_cache_dir()
    return DataContext(definition.name, folder, names, has_names, cache_dir, found.typed)


def _class_names(path: Path) -> list[str]:
    if not path.is_file():
        raise MissingDataError(f"There is no list of class names at {path}; put it there.")
    names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    names = [name for name in names if name]
    if not names or len(set(names)) != len(names):
        raise InvalidDataError(f"{path} must name every class once, one in each line.")
    return names


def _refuse_emptiness(found: DefinitionFile, opened: Sequence[LoadedSet], data: Path) -> None:
    there = {each.entry.role for each in opened if each.dataset is not None}
    if "test" not in there:
        lack = "known image to test"
    elif not there & set(TESTED_UNKNOWN_ROLES):
        lack = "unknown image to test"
    else:
        return
    raise MissingDataError(
        f"{data} holds no {lack} of {found.definition.name}; `incognita data plan {found.typed}` "
        f"says what belongs there, `incognita data check {found.typed}` what is missing."
    )


def draw(dataset: Dataset, limit: int, seed: int, name: str) -> Dataset:
    """Draw images at random, each class in proportion, and keep their order.

    The name of the set is part of the seed, so that adding a set moves no other.
    """
    n_images = len(dataset.image_ids)
    if n_images <= limit:
        return dataset
    rng = np.random.default_rng([seed, crc32(name.encode())])
    classes = np.zeros(n_images, np.int64) if dataset.labels is None else dataset.labels
    by_class = np.lexsort((rng.random(n_images), classes))
    return dataset.subset(np.sort(by_class[_even_places(n_images, limit, rng)]).tolist())


def _even_places(n: int, chosen: int, rng: np.random.Generator) -> Int[np.ndarray, "chosen"]:
    """One place in each of as many equal stretches, at the same random distance from its start."""
    return (np.arange(chosen, dtype=np.int64) * n + rng.integers(n)) // chosen


def _facts(
    found: DefinitionFile, opened: Sequence[LoadedSet], context: DataContext
) -> dict[str, Any]:
    definition = found.definition
    hint = definition.preprocessing
    return {
        "definition": str(found.path),
        "definition_hash": found.content_hash,
        "data": str(context.data),
        "paper": definition.paper,
        "preprocessing": None if hint is None else hint.model_dump(),
        "missing": {
            each.entry.name: {"expected": each.expected, "found": each.found}
            for each in opened
            if not each.is_complete
        },
    }


def _assemble(
    definition: Definition,
    datasets: Mapping[str, Dataset],
    classes: Sequence[str],
    notes: tuple[str, ...],
    metadata: Mapping[str, Any],
) -> Benchmark:
    by_role: dict[str, dict[str, Dataset]] = {}
    for entry in definition.set:
        if entry.name in datasets:
            by_role.setdefault(entry.role, {})[entry.name] = datasets[entry.name]

    def single(role: str) -> Dataset | None:
        return next(iter(by_role.get(role, {}).values()), None)

    return Benchmark(
        name=definition.name,
        version=definition.version,
        title=definition.title,
        classes=classes,
        test=next(iter(by_role["test"].values())),
        unknown={role: by_role[role] for role in UNKNOWN_GROUPS if role in by_role},
        train=single("train"),
        validation=single("validation"),
        shifted=by_role.get("shifted", {}),
        unknown_validation=single("unknown-validation"),
        unknown_training=single("unknown-training"),
        mixed=by_role.get("mixed", {}),
        task=definition.task,
        full_spectrum=definition.full_spectrum,
        default_model=definition.default_model,
        notes=notes,
        metadata=metadata,
    )
