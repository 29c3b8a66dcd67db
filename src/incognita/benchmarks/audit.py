"""Audit of known against unknown data: overlapping classes, repeated images, similar classes.

An input is a benchmark, rules for splits, a class list, a COCO annotation file or a folder of
images. Its sets have the roles of a benchmark; of two inputs, the first is known and the second
unknown.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from incognita.benchmarks.class_overlaps import (
    OVERLAPS,
    SHOWS_KNOWN,
    ClassMeanings,
    ClassOverlap,
    ClassRelation,
    NearestKnown,
    class_meanings,
    find_overlaps,
    list_class_lists,
    load_class_list,
    nearest_known,
    simplified,
)
from incognita.benchmarks.definition_files import find_definition, list_benchmarks
from incognita.benchmarks.load import data_context, must_be_apart
from incognita.benchmarks.sources.entry import (
    KNOWN_ROLES,
    TESTED_UNKNOWN_ROLES,
    LoadedSet,
)
from incognita.benchmarks.sources.folder import first_folder, list_files
from incognita.benchmarks.splits.assign import CategoryRule
from incognita.benchmarks.splits.rules import SPLITS, SplitRules, list_rules, load_rules
from incognita.containers.boxes import BoxTruth
from incognita.containers.dataset import BoxDataset, Dataset
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.formats.coco_dataset import CocoFile, find_files
from incognita.formats.image_hashes import (
    DISTANCE,
    ImageHashes,
    RepeatedImages,
    find_repeats,
    hash_images,
)
from incognita.formats.images import FileDataset, are_present
from incognita.formats.toml_files import load_toml
from incognita.semantics.class_names import Override, Senses
from incognita.shapes import Bool, Float, Int

N_FREQUENT = 20  # categories listed per set
ROWS_AT_A_TIME = 1024
LEAST_TOGETHER = 3  # images that must show two classes for the pair to be listed
SAME = (ClassRelation.EXACT, ClassRelation.SYNONYM)
OnStep = Callable[[str], None]
OnImage = Callable[[str, int, int], None]


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
        names, places = np.unique(np.array(classes, np.str_), return_inverse=True)
        return cls(tuple(names.tolist()), image_ids, np.arange(len(image_ids)), places.reshape(-1))

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
    """

    name: str
    role: str
    classes: tuple[str, ...] | None = None
    declared: tuple[str, ...] = ()
    shown: ShownClasses | None = None
    dataset: Dataset | None = None
    n_listed: int | None = None

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
    """

    name: str
    known: tuple[str, ...] | None
    sets: tuple[AuditedSet, ...]
    has_both: bool = False
    rules: SplitRules | None = None
    notes: tuple[str, ...] = ()


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
    path = Path(given)
    if path.is_dir():
        return _read_folder(path)
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


def _read_folder(path: Path) -> AuditInput:
    images = list_files(path).images
    if not images:
        raise MissingDataError(f"There is no image in {path}; give a folder that has some.")
    dataset = FileDataset(path.name, path, images)
    folders = [first_folder(image) for image in images]
    if None in folders:
        return AuditInput(str(path), None, (AuditedSet(path.name, "unknown", dataset=dataset),))
    shown = ShownClasses.of_images(images, [folder or "" for folder in folders])
    only = AuditedSet(path.name, "unknown", shown.names, shown.names, shown, dataset)
    return AuditInput(str(path), shown.names, (only,))


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
    declared = (
        *rules.known,
        *rules.remove,
        *(n for split in SPLITS for n in getattr(rules, split)),
    )
    sets = [
        AuditedSet(split, split, tuple(names), tuple(dict.fromkeys(declared)))
        for split in SPLITS
        if (names := getattr(rules, split))
    ]
    return AuditInput(given, tuple(rules.known), tuple(sets), bool(sets), rules)


def _read_benchmark(given: str, options: InputOptions) -> AuditInput:
    found = find_definition(given, allow_outside=options.allow_outside)
    context = data_context(found, options.data, allow_outside=options.allow_outside)
    listed = replace(context, needs_images=False)
    names = {entry.name for entry in found.definition.set}
    for name in options.classes:
        if name not in names:
            raise unknown_name(f"set of {found.definition.name}", name, names)
    loaded, notes = [], []
    for entry in found.definition.set:
        try:
            loaded.append(entry.load(listed))
        except InvalidDataError as error:  # one wrong file is no reason to audit nothing
            notes.append(f"{entry.name} is not audited: {error}")
    sets = [
        _benchmark_set(item, options.classes.get(item.entry.name), context.classes)
        for item in loaded
    ]
    tested = [audited for audited in sets if audited.role in TESTED_UNKNOWN_ROLES]
    if all(audited.classes is None and audited.dataset is None for audited in tested):
        raise MissingDataError(
            f"{context.data} has no list, annotations or images of an unknown set of "
            f"{found.definition.name}; `incognita data plan {found.typed}` lists what belongs "
            f"there."
        )
    known = tuple(context.classes) if context.has_names else None
    absent = [item.entry.name for item in loaded if item.dataset is None]
    if absent:
        notes.append(f"not found: {', '.join(absent)}")
    return AuditInput(found.definition.name, known, tuple(sets), True, notes=tuple(notes))


def _benchmark_set(
    loaded: LoadedSet, classes: Sequence[str] | None, known: Collection[str]
) -> AuditedSet:
    entry, dataset = loaded.entry, loaded.dataset
    if isinstance(dataset, BoxDataset):
        audited = _annotated_set(
            entry.name, entry.role, ShownClasses.of_boxes(dataset.truth()), _present(dataset)
        )
        others = tuple(name for name in audited.declared if name not in known)
        return replace(audited, declared=others)  # known classes may be spelled as elsewhere
    own = None if dataset is None else dataset.source_classes
    given = None if classes is None else tuple(classes)
    audited = AuditedSet(
        entry.name, entry.role, given, given or (), None, _present(dataset), loaded.found or None
    )
    if dataset is None or own is None or entry.is_known or "" in own:
        return audited
    shown = ShownClasses.of_images(tuple(dataset.image_ids), own)
    return replace(audited, classes=shown.names, declared=shown.names, shown=shown)


def _present(dataset: Dataset | None) -> Dataset | None:
    """Return the images that are there; a list may name others."""
    if not isinstance(dataset, FileDataset):
        return dataset
    is_there = are_present(dataset.root, dataset.image_ids)
    ids = tuple(i for i, there in zip(dataset.image_ids, is_there, strict=True) if there)
    return FileDataset(dataset.name, dataset.root, ids) if ids else None


class SharedImages(NamedTuple):
    """How often an unknown class is seen with a known one.

    Args:
        unknown: The unknown class.
        known: The known class.
        n_images: How many images show the unknown class.
        n_together: How many of them show the known class, too.
        share_in_all: The share of all images that show the known class.
    """

    unknown: str
    known: str
    n_images: int
    n_together: int
    share_in_all: float

    @property
    def share(self) -> float:
        """The share of images of the unknown class that show the known one."""
        return self.n_together / self.n_images

    @property
    def excess(self) -> float:
        """How much larger that is than the share in all images."""
        return self.share - self.share_in_all


class ClassCount(NamedTuple):
    """How often a class appears in a set."""

    name: str
    n_images: int
    n_objects: int


@dataclass(frozen=True, eq=False)
class SetFindings:
    """What the audit found about one unknown set.

    Args:
        name: Of the set.
        role: As in a benchmark.
        n_classes: How many classes it shows; None where its files do not tell.
        n_images: How many images it has.
        meanings: The synsets of its classes.
        overlaps: Related known classes, by any relation.
        counts: How often each class appears, the most frequent first.
        images_with_known: Ids of the images that show a class which overlaps with a known one.
        nearest: The most similar known class of each class.
        together: Classes that appear with known ones more often than chance, by their excess.
    """

    name: str
    role: str
    n_classes: int | None
    n_images: int | None
    meanings: ClassMeanings | None
    overlaps: tuple[ClassOverlap, ...] = ()
    counts: tuple[ClassCount, ...] = ()
    images_with_known: tuple[Any, ...] = ()
    nearest: tuple[NearestKnown, ...] = ()
    together: tuple[SharedImages, ...] = ()

    @property
    def similarity(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the similarity to the nearest known class."""
        values = [row.similarity for row in self.nearest]
        return (float(np.mean(values)), float(np.std(values))) if values else None

    def count_of(self, name: str) -> ClassCount | None:
        """Return how often a class appears."""
        return next((row for row in self.counts if row.name == name), None)

    def as_json(self) -> dict[str, Any]:
        meanings = self.meanings
        return {
            "name": self.name,
            "role": self.role,
            "classes": self.n_classes,
            "images": self.n_images,
            "synset_map": None if meanings is None else meanings.synset_map,
            "synsets": {} if meanings is None else meanings.synsets,
            "ambiguous": [] if meanings is None else meanings.ambiguous,
            "unmapped": [] if meanings is None else meanings.unmapped,
            "overlaps": [
                row._asdict() | {"count": None if (n := self.count_of(row.unknown)) is None
                                 else {"images": n.n_images, "objects": n.n_objects}}
                for row in self.overlaps
            ],
            "images_with_known": list(self.images_with_known),
            "similarity": None if self.similarity is None else
            dict(zip(("mean", "std"), self.similarity, strict=True)),
            "nearest": [row._asdict() for row in self.nearest],
            "frequent": [row._asdict() for row in self.counts[:N_FREQUENT]],
            "together": [row._asdict() | {"share": row.share} for row in self.together],
        }  # fmt: skip


class ReusedClass(NamedTuple):
    """A class of unknown training or validation images that is also tested."""

    reused_in: str
    tested_in: str
    overlap: ClassOverlap


class Likeness(NamedTuple):
    """How alike the images of a set and the known ones look to a model.

    Args:
        name: Of the set.
        nearest: The cosine of each image and the known image most similar to it, on average.
        means: The cosine of the mean features of both.
    """

    name: str
    nearest: float
    means: float

    @classmethod
    def of_features(
        cls,
        name: str,
        known: Float[np.ndarray, "known d"],
        unknown: Float[np.ndarray, "unknown d"],
    ) -> "Likeness":
        """Compare the features of two sets of images.

        >>> known, unknown = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 0.0]])
        >>> Likeness.of_features("cats", known, unknown).nearest
        1.0
        """
        ours, theirs = (_unit(np.asarray(rows, np.float64)) for rows in (known, unknown))
        parts = np.array_split(theirs, max(1, len(theirs) // ROWS_AT_A_TIME))
        nearest = np.concatenate([(part @ ours.T).max(axis=1) for part in parts])
        means = (_unit(rows.mean(axis=0, keepdims=True)) for rows in (ours, theirs))
        return cls(name, float(nearest.mean()), float(np.vdot(*means)))


def _unit(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: np.ndarray = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


@dataclass(frozen=True, eq=False)
class Audit:
    """The outcome of an audit.

    Args:
        known: What is known.
        unknown: What is unknown; None where it is the same benchmark.
        known_classes: The synsets of the known classes; None where they have no names.
        sets: The findings about each unknown set.
        relations: The relations between classes that count as an overlap.
        reused: Unknown classes for training or validation that are also tested.
        repeats: Images in two sets.
        apart: For each of `repeats`, whether its two sets must be apart.
        unreadable: What is wrong with images that could not be read.
        n_hashed: How many images were compared; None if none should be.
        likenesses: How alike the sets look, where a model was given.
        notes: What a reader should know.
    """

    known: str
    unknown: str | None
    known_classes: ClassMeanings | None
    sets: tuple[SetFindings, ...]
    relations: tuple[ClassRelation, ...] = OVERLAPS
    reused: tuple[ReusedClass, ...] = ()
    repeats: tuple[RepeatedImages, ...] = ()
    apart: tuple[bool, ...] = ()
    unreadable: tuple[str, ...] = ()
    n_hashed: int | None = None
    likenesses: tuple[Likeness, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def overlaps(self) -> list[tuple[SetFindings, ClassOverlap]]:
        """All class overlaps that count, with their sets; known classes belong in mixed sets."""
        return [
            (found, pair)
            for found in self.sets
            if found.role != "mixed"
            for pair in found.overlaps
            if pair.relation in self.relations
        ]

    @property
    def is_clean(self) -> bool:
        """Whether no class overlaps, no class is reused and no image is in two sets."""
        return not (self.overlaps or self.reused or any(self.apart))

    def as_json(self) -> dict[str, Any]:
        known = self.known_classes
        return {
            "known": self.known,
            "unknown": self.unknown,
            "is_clean": self.is_clean,
            "relations": list(self.relations),
            "known_synsets": {} if known is None else known.synsets,
            "known_ambiguous": [] if known is None else known.ambiguous,
            "known_unmapped": [] if known is None else known.unmapped,
            "sets": [found.as_json() for found in self.sets],
            "reused": [row._asdict() | {"overlap": row.overlap._asdict()} for row in self.reused],
            "repeats": [
                row._asdict() | {"must_be_apart": apart}
                for row, apart in zip(self.repeats, self.apart, strict=True)
            ],
            "images_compared": self.n_hashed,
            "unreadable": list(self.unreadable),
            "likenesses": [row._asdict() for row in self.likenesses],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class AuditSettings:
    """What an audit looks for.

    Args:
        relations: The relations between classes that count as an overlap.
        senses: Recorded senses, or the first ones, as FindMeIfYouCan takes them.
        overrides: Synsets that a person has recorded for class names.
        distance: How many bits of the perceptual hash may differ between copies.
        with_images: Whether images are compared.
    """

    relations: tuple[ClassRelation, ...] = OVERLAPS
    senses: Senses = "recorded"
    overrides: Mapping[str, Override] = field(default_factory=dict)
    distance: int = DISTANCE
    with_images: bool = True

    def meanings(self, classes: Sequence[str], declared: Sequence[str]) -> ClassMeanings:
        """Find the synsets of classes that belong to a longer list."""
        return class_meanings(
            classes, declared=declared, senses=self.senses, overrides=self.overrides
        )


def audit_inputs(
    known: AuditInput,
    unknown: AuditInput | None = None,
    settings: AuditSettings = AuditSettings(),  # noqa: B008 - it is frozen
    *,
    on_step: OnStep = lambda _: None,
    on_image: OnImage = lambda *_: None,
) -> Audit:
    """Compare what is known with what is unknown.

    Args:
        known: Whose classes are known; a benchmark or rules may stand alone.
        unknown: Whose sets are unknown.
        settings: What to look for.
        on_step: Called with the name of each step.
        on_image: Called with the name of a set, the images done, and the images in total.

    >>> found = audit_inputs(read_input("voc"), read_input("cifar10"))
    >>> [(pair.unknown, pair.relation.value) for _, pair in found.overlaps][:3]
    [('airplane', 'synonym'), ('automobile', 'synonym'), ('bird', 'exact')]
    """
    sets = audited_sets(known, unknown)
    on_step("comparing classes")
    meanings = None
    if known.known is not None:
        # the known classes of rules are categories of the file that the rules divide
        divided = None if known.rules is None else (unknown or known).sets[0]
        declared = () if divided is None else divided.declared
        meanings = settings.meanings(known.known, declared)
    findings = [_findings(audited, meanings, settings) for audited in sets if not audited.is_known]
    hashes = [] if not settings.with_images else _hash_all(sets, on_step, on_image)
    repeats = find_repeats(hashes, distance=settings.distance)
    roles = {audited.name: audited.role for audited in sets}
    return Audit(
        known.name,
        None if unknown is None else unknown.name,
        meanings,
        tuple(findings),
        settings.relations,
        tuple(_reused(findings)),
        tuple(repeats),
        tuple(must_be_apart(roles[row.first], roles[row.second]) for row in repeats),
        tuple(problem for hashed in hashes for problem in hashed.unreadable),
        sum(len(hashed.image_ids) for hashed in hashes) if settings.with_images else None,
        notes=(*known.notes, *(() if unknown is None else unknown.notes)),
    )


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
    names = audited.classes or ()
    split_of = {simplified(n): split for split in SPLITS for n in getattr(rules, split)}
    out = {simplified(name) for name in (*rules.known, *rules.remove)}
    splits = {
        name: split_of.get(simplified(name), rules.rest)
        for name in names
        if simplified(name) not in out
    }
    return [
        AuditedSet(split, split, mine, audited.declared)
        for split in SPLITS
        if (mine := tuple(name for name, own in splits.items() if own == split))
    ]


def _findings(
    audited: AuditedSet, known: ClassMeanings | None, settings: AuditSettings
) -> SetFindings:
    classes, shown = audited.classes, audited.shown
    found = SetFindings(audited.name, audited.role, None, audited.n_images, None)
    if not classes:
        return found
    meanings = settings.meanings(classes, audited.declared)
    found = replace(found, n_classes=len(classes), meanings=meanings)
    if shown is not None:
        found = replace(found, counts=tuple(_counts(shown)))
    if known is None:
        return found
    overlaps = find_overlaps(known, meanings)
    found = replace(found, overlaps=tuple(overlaps), nearest=tuple(nearest_known(known, meanings)))
    if shown is None:
        return found
    return replace(
        found,
        images_with_known=tuple(_images_with_known(shown, overlaps, settings.relations)),
        together=tuple(_together(shown, overlaps)),
    )


def _counts(shown: ShownClasses) -> list[ClassCount]:
    n_objects = np.bincount(shown.classes, minlength=len(shown.names))
    n_images = np.bincount(shown.pairs()[1], minlength=len(shown.names))
    order = np.argsort(-n_images, kind="stable")
    return [
        ClassCount(shown.names[k], int(n_images[k]), int(n_objects[k]))
        for k in order.tolist()
        if n_objects[k]
    ]


def _images_with_known(
    shown: ShownClasses, overlaps: Sequence[ClassOverlap], relations: Collection[ClassRelation]
) -> list[Any]:
    names = {pair.unknown for pair in overlaps if pair.relation in relations}
    is_known = np.array([name in names for name in shown.names], np.bool_)
    return [shown.image_ids[k] for k in np.unique(shown.images[is_known[shown.classes]]).tolist()]


def _together(shown: ShownClasses, overlaps: Sequence[ClassOverlap]) -> list[SharedImages]:
    """Find the other classes whose images show a known class more often than all images do."""
    known_of: dict[str, str] = {}
    for pair in overlaps:  # the closest first
        if pair.relation in SHOWS_KNOWN:
            known_of.setdefault(pair.unknown, pair.known)
    images, classes = shown.pairs()
    n_images = np.bincount(classes, minlength=len(shown.names))
    others = [k for k, name in enumerate(shown.names) if name not in known_of]
    found = []
    for known in dict.fromkeys(known_of.values()):
        is_known = np.array([known_of.get(name) == known for name in shown.names], np.bool_)
        is_there = np.zeros(len(shown.image_ids), np.bool_)
        is_there[images[is_known[classes]]] = True
        n_together = np.bincount(classes[is_there[images]], minlength=len(shown.names))
        share = float(is_there.mean())
        found += [
            SharedImages(shown.names[k], known, int(n_images[k]), int(n_together[k]), share)
            for k in others
            if n_together[k] >= LEAST_TOGETHER
        ]
    often = [row for row in found if row.excess > 0]
    return sorted(often, key=lambda row: -row.excess)


def _reused(findings: Sequence[SetFindings]) -> list[ReusedClass]:
    """Find unknown classes for training or validation that are tested, too (OpenOOD, app. C)."""
    fitted = [found for found in findings if found.role not in TESTED_UNKNOWN_ROLES]
    tested = [found for found in findings if found.role in TESTED_UNKNOWN_ROLES]
    return [
        ReusedClass(mine.name, other.name, pair)
        for mine in fitted
        for other in tested
        if mine.meanings is not None and other.meanings is not None
        for pair in find_overlaps(other.meanings, mine.meanings, SAME)
    ]


def _hash_all(sets: Sequence[AuditedSet], on_step: OnStep, on_image: OnImage) -> list[ImageHashes]:
    with_images = [audited for audited in sets if audited.dataset is not None]
    if len(with_images) < 2:  # nothing to compare with
        return []
    hashes = []
    for audited in with_images:
        assert audited.dataset is not None
        on_step(f"hashing images of {audited.name}")
        found = hash_images(audited.dataset, on_image=on_image)
        hashes.append(replace(found, name=audited.name))
    return hashes
