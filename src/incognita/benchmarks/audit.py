"""Audit of known against unknown data: overlapping classes, repeated images, similar classes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from incognita.benchmarks.audited_sets import AuditedSet, AuditInput, ShownClasses, audited_sets
from incognita.benchmarks.class_overlaps import (
    OVERLAPS,
    SAME,
    SHOWS_KNOWN,
    ClassMeanings,
    ClassOverlap,
    ClassRelation,
    NearestKnown,
    class_meanings,
    find_distant_parts,
    find_overlaps,
    nearest_known,
)
from incognita.benchmarks.load import must_be_apart
from incognita.benchmarks.sources.entry import TESTED_UNKNOWN_ROLES
from incognita.containers.classes import plain
from incognita.errors import unknown_name
from incognita.formats.image_hashes import (
    DISTANCE,
    ImageHashes,
    RepeatedImages,
    find_repeats,
    hash_images,
)
from incognita.semantics.class_names import Override, Senses
from incognita.shapes import Float

N_FREQUENT = 20  # categories listed per set
ROWS_AT_A_TIME = 1024
LEAST_TOGETHER = 3  # images that must show two classes for the pair to be listed
OnStep = Callable[[str], None]
OnImage = Callable[[str, int, int], None]


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
        distant_parts: Parts and wholes by links too far above to count as an overlap.
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
    distant_parts: tuple[ClassOverlap, ...] = ()
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
            "distant_parts": [row._asdict() for row in self.distant_parts],
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
    def has_overlap(self) -> bool:
        """Whether a class overlaps or is reused, or an image is in two sets."""
        return bool(self.overlaps or self.reused or any(self.apart))

    @property
    def not_compared(self) -> list[str]:
        """Unknown sets of which no class was compared with the known ones."""
        nameless = self.known_classes is None
        return [found.name for found in self.sets if nameless or found.meanings is None]

    @property
    def has_compared(self) -> bool:
        """Whether anything was compared at all, classes or images."""
        return bool(len(self.not_compared) < len(self.sets) or self.n_hashed)

    @property
    def is_clean(self) -> bool:
        """Whether the classes of all sets were compared, and there is no overlap."""
        return bool(self.sets) and not (self.not_compared or self.has_overlap)

    @property
    def n_repeated(self) -> int:
        """How many images are copies of one in another set that must be apart, each once."""
        counted = (row for row, apart in zip(self.repeats, self.apart, strict=True) if apart)
        return len({(row.second, image) for row in counted for image in row.images})

    def as_json(self) -> dict[str, Any]:
        known = self.known_classes
        return {
            "known": self.known,
            "unknown": self.unknown,
            "is_clean": self.is_clean,
            "not_compared": self.not_compared,
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

    def check_overrides(self, known: Sequence[str], sets: Sequence[AuditedSet]) -> None:
        """Refuse an override of a class that is nowhere: a typo would go unnoticed."""
        names = {*known, *(n for s in sets for n in (*(s.classes or ()), *s.declared))}
        used = {*map(plain, names), *(plain(own.target) for own in self.overrides.values())}
        for name in self.overrides:
            if plain(name) not in used:
                raise unknown_name("class with an override", name, names)

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

    >>> from incognita.benchmarks import read_input
    >>> found = audit_inputs(read_input("voc"), read_input("cifar10"))
    >>> [(pair.unknown, pair.relation.value) for _, pair in found.overlaps][:3]
    [('airplane', 'synonym'), ('automobile', 'synonym'), ('bird', 'exact')]
    """
    sets = audited_sets(known, unknown)
    on_step("comparing classes")
    settings.check_overrides(known.known or (), sets)
    meanings = None
    if known.known:
        declared = known.declared
        if known.rules is not None and unknown is not None:
            # the known classes of rules are categories of the file that the rules divide
            declared = tuple(name for audited in unknown.sets for name in audited.declared)
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


def _findings(
    audited: AuditedSet, known: ClassMeanings | None, settings: AuditSettings
) -> SetFindings:
    classes, shown = audited.classes, audited.shown
    n_classes = None if classes is None else len(classes)
    found = SetFindings(audited.name, audited.role, n_classes, audited.n_images, None)
    if not classes:
        return found
    meanings = settings.meanings(classes, audited.declared)
    found = replace(found, meanings=meanings)
    if shown is not None:
        found = replace(found, counts=tuple(_counts(shown)))
    if known is None:
        return found
    overlaps = find_overlaps(known, meanings)
    found = replace(
        found,
        overlaps=tuple(overlaps),
        distant_parts=tuple(find_distant_parts(known, meanings, overlaps)),
        nearest=tuple(nearest_known(known, meanings)),
    )
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
