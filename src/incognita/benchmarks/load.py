"""From the definition of a benchmark to the benchmark: its images, checked and labelled."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import combinations
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast
from zlib import crc32

import numpy as np

from incognita.benchmarks.benchmark import ACCEPTED, KNOWN, MIXED, SHIFTED, TEST, Benchmark
from incognita.benchmarks.definition import LONGEST_NAME, MOST_CLASSES, Definition
from incognita.benchmarks.definition_files import DefinitionFile, find_definition
from incognita.benchmarks.definition_files import list_benchmarks as list_benchmarks
from incognita.benchmarks.sources.entry import (
    KNOWN_ROLES,
    TESTED_ROLES,
    TESTED_UNKNOWN_ROLES,
    UNKNOWN_GROUPS,
    DataContext,
    LoadedSet,
    missing_part,
)
from incognita.benchmarks.sources.recorded import (
    file_name,
    load_recorded_sets,
    without_separators,
)
from incognita.containers import ArrayDataset, BoxDataset, Dataset
from incognita.containers.classes import plain
from incognita.errors import InvalidDataError, MissingDataError, count
from incognita.files import check_regular
from incognita.formats.data_folder import DataFolder
from incognita.formats.images import identities, user_cache_dir
from incognita.formats.recorded_outputs import OutputsFolder
from incognita.shapes import Int

N_NAMED = 3  # missing images that a note names


def notes_of(loaded: LoadedSet, known: Collection[str]) -> list[str]:
    """Return notes on what is special about a set or missing; `known` are the known classes."""
    entry, found, expected = loaded.entry, loaded.found, loaded.expected
    left_out = _left_out(loaded)
    if loaded.dataset is None:
        none = "no image" if expected is None else f"none of {count(expected, 'image')}"
        return [f"{entry.name}: {none} found; the set is left out", *left_out]
    notes = [] if entry.note is None else [f"{entry.name}: {entry.note}"]
    if expected is not None and found < expected:
        notes.append(
            f"{entry.name}: {found:,} of {count(expected, 'image')} found; numbers are partial"
            f"{_missing(loaded)}"
        )
    if expected is not None and found > expected:
        notes.append(
            f"{entry.name}: {count(found, 'image')} found where {expected:,} were expected; "
            f"numbers do not compare with published ones"
        )
    return [*notes, *left_out, *loaded.notes, *_unknown_objects(loaded, known)]


def _missing(loaded: LoadedSet) -> str:
    """Name the first images that are missing, where their names are known.

    Without their folders, which differ between machines: notes are part of results.
    """
    if not loaded.missing or loaded.expected is None:
        return ""
    shown = [PurePath(path).name for path in loaded.missing[:N_NAMED]]
    more = loaded.expected - loaded.found - len(shown)
    return f"; missing: {', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"


def notes_on_repeats(sets: Sequence[LoadedSet]) -> list[str]:
    """Note groups of unknown sets that share images, whose numbers are then not independent."""
    unknown = [loaded for loaded in sets if loaded.entry.unknown_group is not None]
    notes = []
    for first, second in combinations(unknown, 2):
        groups = [loaded.entry.unknown_group for loaded in (first, second)]
        if first.dataset is None or second.dataset is None or groups[0] == groups[1]:
            continue
        if n := len(identities(first.dataset) & identities(second.dataset)):
            notes.append(
                f"{n:,} {'image is' if n == 1 else 'images are'} in both {first.entry.name} "
                f"({groups[0]}) and {second.entry.name} ({groups[1]})"
            )
    return notes


def _left_out(loaded: LoadedSet) -> list[str]:
    """Note files that were not taken for images."""
    if not (n := len(loaded.left_out)):
        return []
    what = count(n, "file")
    return [
        f"{loaded.entry.name}: {what} without the suffix of an image {'is' if n == 1 else 'are'} "
        f"left out, such as {loaded.left_out[0]}"
    ]


def _unknown_objects(loaded: LoadedSet, known: Collection[str]) -> list[str]:
    """Note unknown objects in known images."""
    if not loaded.entry.is_known or not (loaded.object_classes or frozenset()) - set(known):
        return []
    truth = cast(BoxDataset, loaded.dataset).truth()
    n_images = len(np.unique(truth.image_index[truth.is_unknown]))
    if not n_images:  # the other classes are ignored
        return []
    n_objects = int(truth.is_unknown.sum())
    return [
        f"{loaded.entry.name}: {n_images:,} of {count(truth.n_images, 'image')} also "
        f"{'shows' if n_images == 1 else 'show'} other classes; {count(n_objects, 'object')} "
        f"there {'counts' if n_objects == 1 else 'count'} as unknown"
    ]


class NamedSet(NamedTuple):
    """A set of images with its name, its role in a benchmark, and its group if it is unknown."""

    name: str
    role: str
    dataset: Dataset
    group: str | None = None


def present_sets(sets: Iterable[LoadedSet]) -> list[NamedSet]:
    """Return the sets that have images."""
    return [
        NamedSet(loaded.entry.name, loaded.entry.role, loaded.dataset, loaded.entry.unknown_group)
        for loaded in sets
        if loaded.dataset is not None
    ]


def refuse_overlaps(
    sets: Sequence[NamedSet],
    benchmark: str,
    *,
    identify: Callable[[Dataset], frozenset[str]] = identities,
) -> None:
    """Refuse an image that is fitted on and also tested, or known and unknown.

    Args:
        sets: The sets of a benchmark with their roles.
        benchmark: Its name, for messages.
        identify: Returns what tells images apart; by default files are compared by their paths,
            other images by their ids, so that copies under another name are not found.
    """
    images = [identify(named.dataset) for named in sets]
    for place, first in enumerate(sets):
        for earlier, second in enumerate(sets[:place]):
            if not must_be_apart(first.role, second.role):
                continue
            if shared := images[place] & images[earlier]:
                raise InvalidDataError(
                    f"{count(len(shared), 'image')} of {benchmark} "
                    f"{'is' if len(shared) == 1 else 'are'} in both set {second.name!r} "
                    f"({second.role}) and set {first.name!r} ({first.role}), such as "
                    f"{min(shared)}; a number from that would be worthless: take them out of one."
                )


def must_be_apart(first: str, second: str) -> bool:
    """Return whether sets of these roles must not share an image."""
    if (first in TESTED_ROLES) != (second in TESTED_ROLES):
        return True
    if "mixed" in (first, second):  # it shows both, so that it may repeat what is tested apart
        return False
    return (first in KNOWN_ROLES) != (second in KNOWN_ROLES)


def refuse_known_classes(sets: Iterable[LoadedSet], context: DataContext) -> None:
    """Refuse an unknown set that holds a class with the name of a known one."""
    if not context.has_names:
        return
    known = {plain(name): name for name in context.classes}
    for loaded in sets:
        entry, dataset, boxes = loaded.entry, loaded.dataset, loaded.object_classes
        if entry.is_known or entry.role == "mixed" or dataset is None:
            continue
        own = dataset.source_classes if boxes is None else boxes
        allowed = {plain(name) for name in entry.allowed_classes}
        shared = sorted(known.keys() & {plain(name) for name in set(own or ())} - allowed)
        if shared:
            names = [known[name] for name in shared]
            what = _known_images(names) if boxes is None else _known_boxes(loaded, names)
            raise InvalidDataError(
                f"Set {entry.name!r} of {context.benchmark} has the role {entry.role}, but {what}"
            )


def _known_images(names: Sequence[str]) -> str:
    return (
        f"holds images of known classes: {', '.join(names)}; take them out, or name them in "
        f"allowed_classes if they mean something else."
    )


def _known_boxes(loaded: LoadedSet, names: Sequence[str]) -> str:
    truth = cast(BoxDataset, loaded.dataset).truth()
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
    allow_outside: bool = False,
    outputs: str | PathLike[str] | None = None,
) -> Benchmark:
    """Load a shipped benchmark by its name, or any by the path of its TOML file.

    Missing images are left out and reported in `notes` and `metadata["missing"]`; known and unknown
    images to test are required. Files are listed here and read later, one by one.

    Args:
        name_or_path: Such as `openood/cifar10`, or `mine/street.toml`.
        data: The folder that relative paths begin at; by default the one a TOML file of your own
            lies in, and that of INCOGNITA_DATA for ours.
        limit: Maximum number of images per set, drawn in the proportions of their classes; ten
            times as many for the training set of a classifier, since methods learn little from a
            few rows per class, where an image with boxes gives several rows.
        seed: Random seed of that draw.
        cache_dir: Where hashes of files are kept; by default in the user's cache.
        allow_outside: Whether paths in the definition, in lists and in annotation files may leave
            the data folder; links directly below it are always followed.
        outputs: A folder with recorded outputs, which then take the place of the images; a
            detection benchmark still needs its annotations. A results file holds all its boxes.

    >>> load_benchmark("openod/cifar10")
    Traceback (most recent call last):
    incognita.errors.UnknownNameError: No benchmark is called 'openod/cifar10'. \
Did you mean openood/cifar10?
    """
    _check_limit(limit, seed)
    found = find_definition(name_or_path, allow_outside=allow_outside)
    definition = found.definition
    folder = None if outputs is None else OutputsFolder.at(Path(outputs))
    context = data_context(
        found,
        data,
        None if cache_dir is None else Path(cache_dir),
        folder,
        allow_outside=allow_outside,
    )
    if folder is None:
        loaded = [entry.load_as_tested(context) for entry in definition.set]
    else:
        loaded = load_recorded_sets(definition.set, context, folder)
    sets = present_sets(loaded)
    _refuse_emptiness(found, loaded, context.data, folder)
    refuse_overlaps(sets, definition.name)
    refuse_known_classes(loaded, context)
    notes = [note for found_set in loaded for note in notes_of(found_set, context.classes)]
    notes += notes_on_repeats(loaded)
    metadata = _metadata(found, loaded, context)
    if limit is not None:
        more = 10 if definition.task == "classification" else 1
        sets = [_limited(named, limit, more, seed) for named in sets]
        notes.append(_limit_note(limit, more, seed))
        metadata |= {"limit": limit, "seed": seed}
    return _assemble(definition, sets, context.classes, tuple(notes), metadata)


def _check_limit(limit: object, seed: object) -> None:
    for name, value, least in (("limit", limit, 1), ("seed", seed, 0)):
        if value is None and name == "limit":
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidDataError(f"Expected {name} to be a whole number, got {value!r:.80}.")
        if value < least:
            raise InvalidDataError(f"Expected {name} to be at least {least}, got {value}.")


def _limited(named: NamedSet, limit: int, more: int, seed: int) -> NamedSet:
    n_images = limit * (more if named.role == "train" else 1)
    return named._replace(dataset=draw(named.dataset, n_images, seed, named.name))


def _limit_note(limit: int, more: int, seed: int) -> str:
    learned = "" if more == 1 else ", ten times as many for training"
    return f"at most {count(limit, 'image')} of each set{learned}, drawn with seed {seed}"


def data_context(
    found: DefinitionFile,
    data: str | PathLike[str] | None,
    cache_dir: Path | None = None,
    outputs: OutputsFolder | None = None,
    *,
    allow_outside: bool = False,
) -> DataContext:
    """Find the folder with the files of a benchmark, and the names of its classes."""
    definition = found.definition
    # paths in a user's file begin at its folder, whatever the data folder of shipped ones
    named = os.environ.get("INCOGNITA_DATA") if found.is_named else None
    folder = Path(data or named or found.path.parent)
    is_recorded = outputs is not None and definition.task == "classification"
    reads_files = not is_recorded and any(entry.reads_files for entry in definition.set)
    if reads_files and found.is_shipped and folder == found.path.parent:
        raise MissingDataError(
            f"{definition.name} needs images that do not ship with the package: name their folder "
            f"with --data (data=) or INCOGNITA_DATA; `incognita data plan {definition.name}` "
            f"lists what belongs there."
        )
    if reads_files and not folder.is_dir():
        raise MissingDataError(f"There is no data folder {folder}; name one that exists.")
    classes, names_file = definition.classes, None
    if isinstance(classes, str):
        listed = None if outputs is None else outputs.categories()
        if listed:
            classes = list(listed.values())
        else:
            names_file = DataFolder(folder, allow_outside).find(classes, str(found.path))
            classes = _load_class_names(names_file)
    has_names = not isinstance(classes, int)
    names = tuple(str(k) for k in range(classes)) if isinstance(classes, int) else tuple(classes)
    cache_dir = cache_dir or user_cache_dir()
    return DataContext(
        definition.name,
        folder,
        names,
        has_names,
        cache_dir,
        found.typed,
        allow_outside,
        names_file,
    )


def _load_class_names(path: Path) -> list[str]:
    """Load names of classes; what the file holds is not repeated in messages."""
    check_regular(path, "list of class names", advice="put it there")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{path} is not UTF-8 text; give a list of class names.") from error
    names = [name for line in lines if (name := line.strip())]
    if not names or len(set(names)) != len(names):
        raise InvalidDataError(f"{path} must name every class once, one in each line.")
    if len(names) > MOST_CLASSES or max(map(len, names)) > LONGEST_NAME:
        raise InvalidDataError(
            f"{path} has {len(names):,} lines of up to {max(map(len, names)):,} characters, but at "
            f"most {MOST_CLASSES:,} names of {LONGEST_NAME} characters are expected; give a list "
            f"of class names."
        )
    return names


def _refuse_emptiness(
    found: DefinitionFile, sets: Sequence[LoadedSet], data: Path, outputs: OutputsFolder | None
) -> None:
    part = missing_part({loaded.entry.role for loaded in sets if loaded.dataset is not None})
    if part is None:
        return
    if outputs is not None:
        raise MissingDataError(
            f"{outputs.path} has no outputs of {part} images to test of {found.definition.name}. "
            f"Name the files after its sets: "
            f"{', '.join(file_name(e.name, e.role) for e in found.definition.set)}."
        )
    roles = ("test",) if part == "known" else TESTED_UNKNOWN_ROLES
    tested = [loaded for loaded in sets if loaded.entry.role in roles]
    nothing = f" (nothing at {_first_missing(tested[0])})" if tested else ""
    raise MissingDataError(
        f"{data} has no {part} images to test of {found.definition.name}{nothing}; `incognita data "
        f"plan {found.typed}` lists what belongs there, `incognita data check {found.typed}` what "
        f"is missing."
    )


def _first_missing(loaded: LoadedSet) -> str:
    """Return the first path that is not there."""
    return str(Path(loaded.missing[0]).absolute()) if loaded.missing else loaded.entry.place


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
    """Return one place in each of `chosen` equal stretches, at the same offset from its start."""
    return (np.arange(chosen, dtype=np.int64) * n + rng.integers(n)) // chosen


def _metadata(
    found: DefinitionFile, sets: Sequence[LoadedSet], context: DataContext
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
            loaded.entry.name: {"expected": loaded.expected, "found": loaded.found}
            for loaded in sets
            if not loaded.is_complete
        },
        "absent": {
            loaded.entry.name: _first_missing(loaded) for loaded in sets if loaded.dataset is None
        },
    }


def _assemble(
    definition: Definition,
    sets: Sequence[NamedSet],
    classes: Sequence[str],
    notes: tuple[str, ...],
    metadata: Mapping[str, Any],
) -> Benchmark:
    by_role: dict[str, dict[str, Dataset]] = {}
    groups: dict[str, dict[str, Dataset]] = {}
    for name, role, dataset, group in sets:
        by_role.setdefault(role, {})[name] = dataset
        if group is not None:
            groups.setdefault(group, {})[name] = dataset

    def single(role: str) -> Dataset | None:
        return next(iter(by_role.get(role, {}).values()), None)

    return Benchmark(
        name=definition.name,
        version=definition.version,
        title=definition.title,
        classes=classes,
        test=next(iter(by_role["test"].values())),
        unknown={g: groups[g] for g in dict.fromkeys((*UNKNOWN_GROUPS, *groups)) if g in groups},
        train=single("train"),
        validation=single("validation"),
        shifted=by_role.get("shifted", {}),
        unknown_validation=single("unknown-validation"),
        unknown_training=single("unknown-training"),
        accepted=by_role.get("accepted", {}),
        accepted_validation=by_role.get("accepted-validation", {}),
        mixed=by_role.get("mixed", {}),
        task=definition.task,
        full_spectrum=definition.full_spectrum,
        default_model=definition.default_model,
        notes=notes,
        metadata=metadata,
        protocol=definition.protocol,
        free=frozenset(e.name for e in definition.set if e.rejection == "free")
        & frozenset(by_role.get("shifted", {})),
    )


def test_sets(benchmark: Benchmark) -> Iterator[tuple[str, str, Dataset]]:
    """Yield every set that is scored: its group, its name, its images."""
    yield KNOWN, TEST, benchmark.test
    for name, dataset in benchmark.shifted.items():
        yield SHIFTED, name, dataset
    for name, dataset in benchmark.accepted.items():
        yield ACCEPTED, name, dataset
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
        **benchmark.accepted_validation,
    }


def check_benchmark(benchmark: Benchmark, *, searching: bool) -> None:
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
                f"A search needs {name} images, but {benchmark.name} has none. Add a set with "
                f'role = "{name.replace(" ", "-")}" to its file, or do not search.'
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
    if reserved := {KNOWN, SHIFTED, ACCEPTED, MIXED} & set(benchmark.unknown):
        raise InvalidDataError(
            f"A group of unknown sets cannot be called {min(reserved)!r}. Call it near or far."
        )


def check_file_names(benchmark: Benchmark) -> None:
    """Raise if outputs of two sets would be saved to one file."""
    names = dict.fromkeys(
        [*fitting_sets(benchmark), *(name for _, name, _ in test_sets(benchmark))]
    )
    files = Counter(map(without_separators, names))
    if alike := [name for name in names if files[without_separators(name)] > 1]:
        raise InvalidDataError(
            f"Sets {alike[0]!r} and {alike[1]!r} of {benchmark.name} would be saved to one file. "
            f"Give one another name."
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
                    f"{count(len(shared), 'image')} of {part} "
                    f"{'is' if len(shared) == 1 else 'are'} also in the test set {name}, such as "
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
