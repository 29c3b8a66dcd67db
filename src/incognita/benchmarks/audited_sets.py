"""What an audit compares: sets of a benchmark, rules, a class list, annotations or a folder.

An input is a benchmark, rules for splits, a class list, a COCO annotation file or a folder of
images. Its sets have the roles of a benchmark; of two inputs, the first is known and the second
unknown.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from incognita.benchmarks.class_overlaps import list_class_lists, load_class_list
from incognita.benchmarks.definition_files import find_definition, list_benchmarks
from incognita.benchmarks.load import data_context
from incognita.benchmarks.sources.entry import KNOWN_ROLES, TESTED_UNKNOWN_ROLES, LoadedSet
from incognita.benchmarks.sources.folder import first_folder, list_files
from incognita.benchmarks.splits.assign import CategoryRule
from incognita.benchmarks.splits.propose import with_limits
from incognita.benchmarks.splits.rules import SPLITS, SplitRules, list_rules, load_rules
from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import plain
from incognita.containers.dataset import BoxDataset, Dataset
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.formats.coco_dataset import CocoFile, find_files
from incognita.formats.data_folder import DataFolder
from incognita.formats.images import FileDataset, are_present
from incognita.formats.toml_files import load_toml
from incognita.semantics.class_names import list_synset_maps, load_synset_map
from incognita.shapes import Bool, Int


class ShownClasses(NamedTuple):
    """The class of every annotated object, or of every image that has one class.

    Args:
        names: The classes.
        image_ids: One per image, also of images without an object.
        images: The place of the image of each object.
        classes: The place of its class.
    """

    names: tuple[str, ...]
    image_ids: Sequence[Any]
    images: Int[np.ndarray, "objects"]
    classes: Int[np.ndarray, "objects"]

    @classmethod
    def of_boxes(cls, truth: BoxTruth) -> "ShownClasses":
        names, ids = truth.classes.names, truth.image_ids.tolist()
        return cls(names, ids, truth.image_index.astype(np.int64), truth.class_ids.astype(np.int64))

    @classmethod
    def of_images(cls, image_ids: Sequence[Any], classes: Sequence[str]) -> "ShownClasses":
        """Take one class per image; an image with a blank one shows none."""
        named = np.array([k for k, name in enumerate(classes) if name.strip()], np.int64)
        names, places = np.unique(np.array(classes, np.str_)[named], return_inverse=True)
        return cls(tuple(names.tolist()), image_ids, named, places.reshape(-1))

    def part(self, is_in: Bool[np.ndarray, "images"]) -> "ShownClasses":
        """Return some of the images with their objects."""
        places = np.cumsum(is_in) - 1
        chosen = is_in[self.images]
        ids = [self.image_ids[k] for k in np.flatnonzero(is_in).tolist()]
        return ShownClasses(self.names, ids, places[self.images[chosen]], self.classes[chosen])

    def pairs(self) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]:
        """Return each image with each of its classes once: places of images, and of classes."""
        keys = np.unique(self.images * len(self.names) + self.classes)
        images, classes = np.divmod(keys, max(1, len(self.names)))
        return images, classes


@dataclass(frozen=True, eq=False)
class AuditedSet:
    """One set of an input.

    Args:
        name: Unique in the audit.
        role: As in a benchmark.
        classes: The names of its classes; None where its files do not tell.
        declared: All names that its file has a category for, which identify the data set.
        shown: Which image shows what, where that is known.
        dataset: The images that are there.
        n_listed: How many images its list names, whether they are there or not.
        notes: What a reader should know.
    """

    name: str
    role: str
    classes: tuple[str, ...] | None = None
    declared: tuple[str, ...] = ()
    shown: ShownClasses | None = None
    dataset: Dataset | None = None
    n_listed: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        return self.role in KNOWN_ROLES

    @property
    def n_images(self) -> int | None:
        """How many images it has, as far as its files tell."""
        if self.shown is not None:
            return len(self.shown.image_ids)
        return self.n_listed if self.dataset is None else len(self.dataset.image_ids)


@dataclass(frozen=True, eq=False)
class AuditInput:
    """What an argument of the audit stands for.

    Args:
        name: As it was given.
        known: Names of the known classes; None where they have no names.
        sets: Its sets.
        has_both: Whether it has known classes and unknown sets and can be audited alone.
        rules: The rules, where it is a file of rules.
        notes: What a reader should know.
        declared: All names of the data set that the known classes belong to, if there are more.
    """

    name: str
    known: tuple[str, ...] | None
    sets: tuple[AuditedSet, ...]
    has_both: bool = False
    rules: SplitRules | None = None
    notes: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    @property
    def nameless(self) -> list[str]:
        """Names of sets without class names, and its own where the known classes have none."""
        own = [] if self.known else [self.name]
        return own + [audited.name for audited in self.sets if not audited.classes]


@dataclass(frozen=True)
class InputOptions:
    """Where the files of inputs are.

    Args:
        data: The data folder of a benchmark.
        images: The folder with the images of annotation files; by default that of each file.
        classes: Class lists of sets whose files do not name their classes, by name of the set.
        allow_outside: Whether paths in files may leave the data folder.
    """

    data: Path | None = None
    images: Path | None = None
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    allow_outside: bool = False


def read_input(given: str, options: InputOptions = InputOptions()) -> AuditInput:  # noqa: B008
    """Load a benchmark, rules, a class list, an annotation file or a folder.

    Args:
        given: A name or a path.
        options: Where its files are.
    """
    return with_classes([_read(given, options)], options.classes)[0]


def read_inputs(
    known: str,
    unknown: str | None = None,
    options: InputOptions = InputOptions(),  # noqa: B008 - it is frozen
) -> tuple[AuditInput, AuditInput | None]:
    """Load the inputs of an audit, whose sets take their classes from one table of options."""
    inputs = [_read(given, options) for given in (known, unknown) if given is not None]
    first, *second = with_classes(inputs, options.classes)
    return first, second[0] if second else None


def with_classes(
    inputs: Sequence[AuditInput], classes: Mapping[str, Sequence[str]]
) -> list[AuditInput]:
    """Name the classes of sets, or of inputs, whose files do not name them."""
    names = {name for given in inputs for name in given.nameless}
    for name in classes:
        if name not in names:
            there = {audited.name for given in inputs for audited in given.sets}
            if name in there or name in {given.name for given in inputs}:
                raise InvalidDataError(f"{name} names its classes itself. Leave --classes out.")
            raise unknown_name("set without class names", name, names)
    return [_with_own_classes(given, classes) for given in inputs]


def _with_own_classes(given: AuditInput, classes: Mapping[str, Sequence[str]]) -> AuditInput:
    sets = []
    for audited in given.sets:
        key = audited.name if given.has_both or audited.name in classes else given.name
        named = tuple(classes.get(key, ())) if not audited.classes else ()
        sets.append(replace(audited, classes=named, declared=named) if named else audited)
    known = given.known
    if not known:
        known = tuple(classes.get(given.name, ())) or (None if given.has_both else sets[0].classes)
    return replace(given, known=known, sets=tuple(sets))


def _read(given: str, options: InputOptions) -> AuditInput:
    path = Path(given)
    if path.is_dir():
        return _read_folder(path, options)
    if given.endswith((".json", ".json.gz")):
        return _read_annotations(path, options)
    if path.suffix == ".txt" or given in list_class_lists():
        return _read_classes(given)
    if path.suffix == ".toml":
        keys = load_toml(path, "file to audit").keys()
        read = {"set": _read_benchmark, "extends": _read_benchmark, "rest": _read_rules}
        reader = next((read[key] for key in read if key in keys), None)
        return _read_classes(given) if reader is None else reader(given, options)
    if given in list_rules():
        return _read_rules(given, options)
    if given in list_benchmarks():
        return _read_benchmark(given, options)
    if "/" in given and given.split("/")[0] not in {n.split("/")[0] for n in list_benchmarks()}:
        raise MissingDataError(f"There is no folder {given}; give one that exists.")
    choices = [*list_benchmarks(), *list_rules(), *list_class_lists()]
    raise unknown_name("benchmark, file of rules or class list", given, choices)


def _read_classes(given: str) -> AuditInput:
    found = load_class_list(given)
    only = AuditedSet(found.name, "unknown", found.classes, found.classes)
    return AuditInput(given, found.classes, (only,), notes=found.notes)


def _read_folder(path: Path, options: InputOptions) -> AuditInput:
    folder, name = DataFolder(path, options.allow_outside), path.resolve().name
    images = list_files(path, lambda link: folder.check_link(link, name)).images
    if not images:
        raise MissingDataError(f"There is no image in {path}; give a folder that has some.")
    folder.check_images(path, images, name)
    folders = [first_folder(image) or "" for image in images]
    dataset = FileDataset(name, path, images)
    notes = folder.notes(name, *(path / own for own in sorted({*folders} - {""})))
    given = AuditedSet(name, "unknown", dataset=dataset, notes=notes)
    only = _with_shown(given, images, folders)
    return AuditInput(str(path), only.classes, (only,), notes=only.notes)


def _with_shown(audited: AuditedSet, images: Sequence[Any], classes: Sequence[str]) -> AuditedSet:
    """Add the class of each image, where it has one; a blank name is none."""
    if not any(map(str.strip, classes)):
        return audited
    shown = ShownClasses.of_images(images, classes)
    notes = audited.notes
    if n := len(images) - shown.images.size:
        what = "image has no folder of a class" if n == 1 else "images have no folder of a class"
        notes = (*notes, f"{audited.name}: {n:,} {what}, and only the others are compared by class")
    return replace(audited, classes=shown.names, declared=shown.names, shown=shown, notes=notes)


def _read_annotations(path: Path, options: InputOptions) -> AuditInput:
    content = CocoFile(path).content
    folder = options.images or path.parent
    files, is_there = find_files(folder, content.file_names)
    present = tuple(dict.fromkeys(f for f, there in zip(files, is_there, strict=True) if there))
    name = path.name.removesuffix(".gz").removesuffix(".json")
    dataset = FileDataset(name, folder, present) if present else None
    only = _annotated_set(name, "unknown", ShownClasses.of_boxes(content.truth), dataset)
    return AuditInput(str(path), only.classes, (only,))


def _annotated_set(
    name: str, role: str, shown: ShownClasses, dataset: Dataset | None
) -> AuditedSet:
    places = np.unique(shown.classes).tolist()
    return AuditedSet(
        name, role, tuple(shown.names[k] for k in places), shown.names, shown, dataset
    )


def _read_rules(given: str, options: InputOptions) -> AuditInput:
    rules = load_rules(given).rules
    listed = (*rules.known, *rules.remove, *(n for split in SPLITS for n in getattr(rules, split)))
    declared = tuple(dict.fromkeys(listed))
    sets = tuple(
        AuditedSet(split, split, tuple(names), declared)
        for split in SPLITS
        if (names := getattr(rules, split))
    )
    return AuditInput(given, tuple(rules.known), sets, bool(sets), rules, declared=declared)


def _read_benchmark(given: str, options: InputOptions) -> AuditInput:
    found = find_definition(given, allow_outside=options.allow_outside)
    context = data_context(found, options.data, allow_outside=options.allow_outside)
    listed = replace(context, needs_images=False)
    loaded, sets, errors = [], [], {}
    for entry in found.definition.set:
        try:
            loaded.append(entry.load(listed))
            sets.append(_benchmark_set(loaded[-1], context.classes))
        except InvalidDataError as error:  # one wrong file is no reason to audit nothing
            errors[entry.name] = error
            sets.append(AuditedSet(entry.name, entry.role))
    tested = [audited for audited in sets if audited.role in TESTED_UNKNOWN_ROLES]
    if all(audited.classes is None and audited.dataset is None for audited in tested):
        if errors:
            raise next(iter(errors.values()))
        raise MissingDataError(
            f"{context.data} has no list, annotations or images of an unknown set of "
            f"{found.definition.name}; `incognita data plan {found.typed}` lists what belongs "
            f"there."
        )
    known = tuple(context.classes) if context.has_names else None
    absent = [item.entry.name for item in loaded if item.dataset is None]
    notes = [f"{name} is not audited: {error}" for name, error in errors.items()]
    notes += [f"not found: {', '.join(absent)}"] if absent else []
    notes += [note for audited in sets for note in audited.notes]
    whole = AuditInput(found.definition.name, known, tuple(sets), True, notes=tuple(notes))
    return _with_map_of_its_name(whole)


def _with_map_of_its_name(given: AuditInput) -> AuditInput:
    """Declare all names of the map that a benchmark is called after, as terra/near is of terra."""
    first = given.name.split("/")[0]
    if first not in list_synset_maps() or given.known is None:
        return given
    names = tuple(load_synset_map(first).names)
    own = {*given.known, *(name for audited in given.sets for name in audited.classes or ())}
    if not {*map(plain, own)} <= {*map(plain, names)}:
        return given
    sets = tuple(replace(s, declared=names) if s.classes else s for s in given.sets)
    return replace(given, sets=sets, declared=names)


def _benchmark_set(loaded: LoadedSet, known: Collection[str]) -> AuditedSet:
    entry, dataset = loaded.entry, loaded.dataset
    if isinstance(dataset, BoxDataset):
        audited = _annotated_set(
            entry.name, entry.role, ShownClasses.of_boxes(dataset.truth()), _present(dataset)
        )
        others = tuple(name for name in audited.declared if name not in known)
        return replace(audited, declared=others)  # known classes may be spelled as elsewhere
    own = None if dataset is None else dataset.source_classes
    audited = AuditedSet(
        entry.name, entry.role, dataset=_present(dataset), n_listed=loaded.found or None
    )
    if dataset is None or own is None or entry.is_known:
        return audited
    return _with_shown(audited, tuple(dataset.image_ids), own)


def _present(dataset: Dataset | None) -> Dataset | None:
    """Return the images that are there; a list may name others."""
    if not isinstance(dataset, FileDataset):
        return dataset
    is_there = are_present(dataset.root, dataset.image_ids)
    ids = tuple(i for i, there in zip(dataset.image_ids, is_there, strict=True) if there)
    return FileDataset(dataset.name, dataset.root, ids) if ids else None


def audited_sets(known: AuditInput, unknown: AuditInput | None) -> list[AuditedSet]:
    """Return the known and the unknown sets, each with a name of its own."""
    if unknown is None:
        if not known.has_both:
            raise InvalidDataError(
                f"{known.name} has known classes only. Name what to compare them with: "
                f"incognita audit {known.name} UNKNOWN"
            )
        return list(known.sets)
    theirs = [audited for audited in unknown.sets if not audited.is_known]
    if not theirs:
        raise InvalidDataError(
            f"Expected unknown sets, got {unknown.name} without any. Name the class list, folder "
            f"or annotation file of unknown data."
        )
    if known.rules is not None:
        return [part for audited in theirs for part in _divided(audited, known.rules)]
    if known.has_both:
        mine = [audited for audited in known.sets if audited.is_known]
    else:
        mine = [replace(audited, role="test") for audited in known.sets]
    taken = {audited.name for audited in mine}
    renamed = {name: f"{name} (unknown)" for name in taken}
    return mine + [replace(s, name=renamed.get(s.name, s.name)) for s in theirs]


def _divided(audited: AuditedSet, rules: SplitRules) -> list[AuditedSet]:
    """Divide a set by rules: its images where they are annotated, else its classes."""
    rules = with_limits(rules, audited.declared)
    if audited.shown is None:
        return _divided_classes(audited, rules)
    shown, rule = audited.shown, CategoryRule(rules)
    held: list[list[str]] = [[] for _ in shown.image_ids]
    for image, place in zip(shown.images.tolist(), shown.classes.tolist(), strict=True):
        held[image].append(shown.names[place])
    splits = [
        rule.decide(image_id, set(names)).split
        for image_id, names in zip(shown.image_ids, held, strict=True)
    ]
    parts = []
    for split in SPLITS:
        is_in = np.array([own == split for own in splits], np.bool_)
        if is_in.any():
            parts.append(_annotated_set(split, split, shown.part(is_in), None))
    return parts


def _divided_classes(audited: AuditedSet, rules: SplitRules) -> list[AuditedSet]:
    split_of = {plain(n): split for split in SPLITS for n in getattr(rules, split)}
    out = {plain(name) for name in (*rules.known, *rules.remove)}
    splits = {
        name: split_of.get(plain(name), rules.rest)
        for name in audited.classes or ()
        if plain(name) not in out
    }
    return [
        AuditedSet(split, split, mine, audited.declared)
        for split in SPLITS
        if (mine := tuple(name for name, own in splits.items() if own == split))
    ]
