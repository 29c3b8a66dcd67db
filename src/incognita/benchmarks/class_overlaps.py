"""Which classes of two lists overlap by name or meaning, and how close the others are.

Of an unknown class u and a known class k, with their synsets in WordNet 3.0:

- exact: both have the same name;
- synonym: both have the same synset;
- hyponym: u is a kind of k (woman, person);
- hypernym: u includes k (vehicle, car);
- part: u is a part of k or of its parts (human nose, person); see `parts_of`;
- whole: k is a part of u in the same sense (bicycle, wheel).

A pair has the first relation that holds. A same name counts whatever the recorded meanings: the
cup of ImageNet is a punch in WordNet and a cup in its images. The file
`definitions/splits/audit/relations.toml` adds the few relations that WordNet lacks.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from incognita.containers.classes import plain
from incognita.errors import InvalidDataError, UnknownNameError, count, unknown_name
from incognita.files import check_regular
from incognita.formats.toml_files import check_table, load_toml
from incognita.semantics.class_names import (
    ClassSynset,
    Override,
    Rule,
    Senses,
    list_synset_maps,
    load_synset_map,
    map_classes,
)
from incognita.semantics.similarity import Measure, similarities
from incognita.semantics.wordnet import load_wordnet

SHIPPED_LISTS = Path(__file__).parent / "definitions" / "splits" / "audit"
RELATIONS_FILE = SHIPPED_LISTS / "relations.toml"


class ClassRelation(StrEnum):
    """How an unknown class is related to a known one, the strongest relation first."""

    EXACT = "exact"
    SYNONYM = "synonym"
    HYPONYM = "hyponym"
    HYPERNYM = "hypernym"
    PART = "part"
    WHOLE = "whole"


OVERLAPS = tuple(ClassRelation)
LINKS_TO_WHOLE = 2  # up to which a class has the parts of what it is a kind of
SAME = (ClassRelation.EXACT, ClassRelation.SYNONYM)
SHOWS_KNOWN = (*SAME, ClassRelation.HYPONYM)  # u is k, or a kind of k


class ClassOverlap(NamedTuple):
    """An unknown class, a known class that it is related to, and why."""

    unknown: str
    known: str
    relation: ClassRelation
    rule: str
    n_links: int = 0


class NearestKnown(NamedTuple):
    """The known class that is most similar to an unknown one."""

    unknown: str
    known: str
    similarity: float


@dataclass(frozen=True, eq=False)
class ClassMeanings:
    """Class names with their synsets; None where WordNet has no noun for a name.

    Args:
        rows: The synset of each name, in the order of the list.
        synset_map: The shipped map whose recorded senses were taken, if the names are its names.
    """

    rows: Mapping[str, ClassSynset | None]
    synset_map: str | None = None

    @property
    def synsets(self) -> dict[str, str]:
        """The synset of each name that has one."""
        return {name: row.synset for name, row in self.rows.items() if row is not None}

    @property
    def unmapped(self) -> list[str]:
        """Names without a noun in WordNet."""
        return [name for name, row in self.rows.items() if row is None]

    @property
    def ambiguous(self) -> list[str]:
        """Names of which the first of several senses was taken, since nobody has recorded one."""
        return [name for name, row in self.rows.items() if row is not None and row.is_ambiguous]


def class_meanings(
    names: Sequence[str],
    *,
    declared: Sequence[str] = (),
    senses: Senses = "recorded",
    overrides: Mapping[str, Override] | None = None,
) -> ClassMeanings:
    """Find the synsets of class names; a name without one is no error.

    The recorded senses of a shipped map are taken where all declared names are in it and at least
    half of its names are declared; a shorter list may mean something else by the same words.

    Args:
        names: The classes.
        declared: All class names of their data set; by default the same.
        senses: As in `map_classes`.
        overrides: What a person has recorded for some names, which comes first.

    >>> class_meanings(["crane", "gnarfle"]).unmapped
    ['gnarfle']
    """
    if not names:
        raise InvalidDataError("Expected class names, got an empty list. Name some.")
    overrides = {plain(name): override for name, override in (overrides or {}).items()}
    ready = _ready_map(frozenset(map(plain, declared or names)), senses)
    rows = {} if ready is None else _rows_of_map(ready, senses)
    found = {name: _meaning(name, rows, overrides, senses) for name in dict.fromkeys(names)}
    return ClassMeanings(found, ready)


def _meaning(
    name: str,
    ready: Mapping[str, ClassSynset],
    overrides: Mapping[str, Override],
    senses: Senses,
) -> ClassSynset | None:
    chain: dict[str, Override] = {}  # an override may name another class, which has one itself
    key = plain(name)
    while key in overrides and key not in chain:
        chain[key] = overrides[key]
        key = plain(overrides[key].target)
    if not chain and plain(name) in ready:
        return ready[plain(name)]
    try:
        return map_classes([name], overrides=chain, senses=senses).classes[0]
    except UnknownNameError:
        if chain:  # what a person has recorded must exist
            raise
        return None


@cache
def _ready_map(names: frozenset[str], senses: Senses) -> str | None:
    for dataset in list_synset_maps():
        rows = _rows_of_map(dataset, senses)
        if 2 * len(names) >= len(rows) and names <= rows.keys():
            return dataset
    return None


@cache
def _rows_of_map(dataset: str, senses: Senses) -> dict[str, ClassSynset]:
    rows = load_synset_map(dataset, senses=senses).classes
    return {plain(row.name): row for row in rows}


def find_overlaps(
    known: ClassMeanings,
    unknown: ClassMeanings,
    relations: Collection[ClassRelation] = OVERLAPS,
) -> list[ClassOverlap]:
    """Find the pairs of related classes; of each unknown class the closest relation comes first.

    >>> voc = class_meanings(["person", "car"])
    >>> for pair in find_overlaps(voc, class_meanings(["woman", "vehicle", "nose", "pizza"])):
    ...     print(pair.unknown, pair.relation, pair.known)
    woman hyponym person
    vehicle hypernym car
    nose part person
    """
    index = _KnownIndex(known)
    found = []
    for name, row in unknown.rows.items():
        first: dict[str, ClassOverlap] = {}
        for pair in index.relations_of(name, row):
            first.setdefault(pair.known, pair)
        mine = [pair for pair in first.values() if pair.relation in relations]
        found += sorted(mine, key=lambda pair: (OVERLAPS.index(pair.relation), pair.n_links))
    return found


def find_distant_parts(
    known: ClassMeanings, unknown: ClassMeanings, overlaps: Sequence[ClassOverlap]
) -> list[ClassOverlap]:
    """Find parts of what is more than two links above a class: possible, but no overlap.

    Args:
        known: The known classes.
        unknown: The unknown classes.
        overlaps: Those found already; a pair in there is not listed again.

    >>> known, unknown = class_meanings(["car"]), class_meanings(["wheel"])
    >>> [pair.rule for pair in find_distant_parts(known, unknown, [])]
    ['wheel.n.01 is a part of wheeled_vehicle.n.01, 3 links above car.n.01']
    """
    seen = {(pair.unknown, pair.known) for pair in overlaps}
    sides = ((ClassRelation.PART, known, unknown), (ClassRelation.WHOLE, unknown, known))
    found = []
    for relation, wholes, parts in sides:
        names_of = _by_synset(parts)
        for whole, synset in wholes.synsets.items():
            for part, rule, n_links in _parts_far_above(synset):
                for name in names_of.get(part, ()):
                    pair = (name, whole) if relation is ClassRelation.PART else (whole, name)
                    if pair not in seen:
                        seen.add(pair)
                        found.append(ClassOverlap(*pair, relation, rule, n_links))
    return found


def _by_synset(classes: ClassMeanings) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, synset in classes.synsets.items():
        found[_same(synset)].append(name)
    return found


@cache
def _parts_far_above(synset: str) -> tuple[tuple[str, str, int], ...]:
    """Return parts that a synset has by a kind too far above for `parts_of`, and why."""
    wordnet = load_wordnet()
    name = wordnet.name(synset)
    return tuple(
        (_same(part), f"{part} is a part of {above}, {n_links} links above {name}", n_links)
        for above, n_links in wordnet.ancestors(synset).items()
        if n_links > LINKS_TO_WHOLE
        for part in wordnet.meronyms(above)
    )


class _KnownIndex:
    """Finds the known classes that a class is related to."""

    def __init__(self, known: ClassMeanings) -> None:
        self.known = known
        self.by_name = {plain(name): name for name in known.rows}
        self.by_synset = _by_synset(known)
        self.below: dict[str, list[str]] = defaultdict(list)
        self.by_part: dict[str, list[str]] = defaultdict(list)
        for name, synset in known.synsets.items():
            for above in kinds_above(synset):
                self.below[above].append(name)
            for part in parts_of(synset):
                self.by_part[part].append(name)

    def relations_of(self, name: str, row: ClassSynset | None) -> list[ClassOverlap]:
        """Return all relations of a class, the strongest first."""
        found = self._by_name(name, row)
        if row is None:
            return found
        synset, above, parts = _same(row.synset), kinds_above(row.synset), parts_of(row.synset)
        pairs = [(ClassRelation.SYNONYM, k, 0) for k in self.by_synset.get(synset, ())]
        pairs += [(ClassRelation.HYPONYM, k, n) for a, n in above.items() for k in self._named(a)]
        pairs += [
            (ClassRelation.HYPERNYM, k, kinds_above(self.known.synsets[k])[synset])
            for k in self.below.get(synset, ())
        ]
        pairs += [
            (ClassRelation.PART, k, parts_of(self.known.synsets[k])[synset])
            for k in self.by_part.get(synset, ())
        ]
        pairs += [(ClassRelation.WHOLE, k, n) for p, n in parts.items() for k in self._named(p)]
        return found + [
            ClassOverlap(name, k, relation, self._rule(relation, row, k), n_links)
            for relation, k, n_links in pairs
        ]

    def _named(self, synset: str) -> Sequence[str]:
        return self.by_synset.get(synset, ())

    def _by_name(self, name: str, row: ClassSynset | None) -> list[ClassOverlap]:
        same = self.by_name.get(plain(name))
        if same is None:
            return []
        other, rule = self.known.rows[same], "same name"
        if row is not None and other is not None and _same(row.synset) != _same(other.synset):
            rule = f"same name, as {row.synset} and {other.synset}"
        return [ClassOverlap(name, same, ClassRelation.EXACT, rule)]

    def _rule(self, relation: ClassRelation, row: ClassSynset, known: str) -> str:
        """Return why two classes are related, and which of them has only its head noun there."""
        synset, other = row.synset, self.known.synsets[known]
        both = [found for found in (row, self.known.rows[known]) if found is not None]
        heads = [found.name for found in both if found.rule is Rule.HEAD_NOUN]
        by_head = f" (of {' and '.join(heads)} only the head noun)" if heads else ""
        if relation is ClassRelation.SYNONYM and synset != other:
            return f"{synset} is recorded as the same as {other}{by_head}"
        words = {
            ClassRelation.SYNONYM: f"both are {synset}",
            ClassRelation.HYPONYM: f"{synset} is a kind of {other}",
            ClassRelation.HYPERNYM: f"{other} is a kind of {synset}",
            ClassRelation.PART: f"{synset} is a part of {other}",
            ClassRelation.WHOLE: f"{other} is a part of {synset}",
        }
        return f"{words[relation]}{by_head}"


@cache
def kinds_above(synset: str) -> dict[str, int]:
    """Return all that a synset is a kind of, without itself, with the fewest links."""
    wordnet = load_wordnet()
    found: dict[str, int] = {}
    for above, n_links in wordnet.ancestors(synset).items():
        found.setdefault(_same(above), n_links)
    del found[_same(wordnet.name(synset))]
    return found


@cache
def parts_of(synset: str) -> dict[str, int]:
    """Return the parts of a synset, and their parts, with the fewest links.

    A synset has the parts of what it is a kind of, up to two links above, and its parts have those
    of one link above: a person has a human body, which has the head that bodies have. What is
    farther above says little about pictures: a ship has a funnel, a kind of chimney, which is part
    of a fireplace, whose hearth may stand for a dwelling.
    """
    synset = load_wordnet().name(synset)
    links = {synset: 0, **dict.fromkeys(_recorded("same").get(_same(synset), ()), 0)}
    queue = list(links)
    for whole in queue:  # the list grows on the way
        for part in _direct_parts(whole, 1 if links[whole] else LINKS_TO_WHOLE):
            if part not in links:
                links[part] = links[whole] + 1
                queue.append(part)
    return {_same(part): n_links for part, n_links in links.items() if n_links}


@cache
def _direct_parts(synset: str, n_links: int) -> tuple[str, ...]:
    """Return the parts of a synset and of what it is a kind of, up to some links above."""
    wordnet, recorded = load_wordnet(), _recorded("part")
    above = [name for name, n in wordnet.ancestors(synset).items() if n <= n_links]
    parts = [part for whole in above for part in wordnet.meronyms(whole)]
    return (*parts, *(part for whole in above for part in recorded.get(whole, ())))


def _same(synset: str) -> str:
    """Return the synset that people have recorded as the same, or the synset itself."""
    return _recorded_pairs("same").get(synset, synset)


@cache
def _recorded(kind: str) -> dict[str, list[str]]:
    """Return the synsets recorded as the same as, or as parts of, each synset."""
    found: dict[str, list[str]] = defaultdict(list)
    for synset, other in _recorded_pairs(kind).items():
        found[other].append(synset)
    return dict(found)


@cache
def _recorded_pairs(kind: str) -> dict[str, str]:
    name = load_wordnet().name
    pairs = load_toml(RELATIONS_FILE, "file of relations")[kind]
    return {name(synset): name(other) for synset, other in pairs.items()}


def nearest_known(
    known: ClassMeanings, unknown: ClassMeanings, *, measure: Measure = "wup"
) -> list[NearestKnown]:
    """Find the most similar known class of each unknown class that has a synset.

    >>> nearest_known(class_meanings(["dog", "car"]), class_meanings(["wolf"]))[0].known
    'dog'
    """
    names, others = list(known.synsets), list(unknown.synsets)
    if not names or not others:
        return []
    values = getattr(similarities([*unknown.synsets.values()], [*known.synsets.values()]), measure)
    places = np.argmax(values, axis=1)
    return [
        NearestKnown(other, names[place], float(row[place]))
        for other, place, row in zip(others, places, values, strict=True)
    ]


class ClassListRules(BaseModel):
    """A class list as its TOML file says: given, or other lists without some of their classes.

    Args:
        name: Of the list.
        classes: Names or wnids.
        lists: Lists to begin with: names of shipped ones, or files beside this one.
        without: Lists whose classes are left out, by name or synset.
        without_overlap: Lists to which a class must not have one of `relations`.
        relations: By default those of classes that show a known class.
        images_per_class: How many images each class has, where that is one number.
        expected_classes: How many classes the published list has.
        expected_images: How many images it has.
        title: One line for people.
        source: Where the list comes from.
        remarks: What a reader should know.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1)]
    classes: list[str] = []
    lists: list[str] = []
    without: list[str] = []
    without_overlap: list[str] = []
    relations: list[ClassRelation] = [*SHOWS_KNOWN]
    images_per_class: PositiveInt | None = None
    expected_classes: PositiveInt | None = None
    expected_images: PositiveInt | None = None
    title: str | None = None
    source: str | None = None
    remarks: list[str] = []


class ClassList(NamedTuple):
    """Class names, the classes that were left out, and what a reader should know."""

    name: str
    classes: tuple[str, ...]
    left_out: tuple[ClassOverlap, ...] = ()
    notes: tuple[str, ...] = ()


def list_class_lists() -> list[str]:
    """List the names of the class lists that ship with the package.

    >>> list_class_lists()[-3:]
    ['terra', 'tiny-imagenet', 'voc']
    """
    own = {path.stem for path in SHIPPED_LISTS.iterdir() if path != RELATIONS_FILE}
    return sorted(own | set(list_synset_maps()))


def load_class_list(
    name_or_path: str | Path, *, folder: Path | None = None, within: tuple[Path, ...] = ()
) -> ClassList:
    """Load a shipped class list by its name, or any from a TOML file or a text file.

    Args:
        name_or_path: The name, or a file. A text file has a name or a wnid in each line, up to the
            first tab; lines that begin with # are remarks.
        folder: Where the file is, if its path is relative; by default the current folder.
        within: The files of lists that this one is part of, of which it must not be one.

    >>> load_class_list("openood-tin597").notes[0]
    'openood-tin597: 480 of 800 classes are left, published: 597'
    """
    given = str(name_or_path)
    if given in list_synset_maps():
        return ClassList(given, tuple(load_synset_map(given).names))
    if given in list_class_lists():
        (path,) = (file for file in SHIPPED_LISTS.iterdir() if file.stem == given)
    elif Path(given).suffix in (".toml", ".txt"):
        path = (folder or Path()) / given
    else:
        raise unknown_name("class list", given, list_class_lists())
    if path.suffix == ".txt":
        return ClassList(path.stem, _lines_of(path))
    own = path.resolve()
    if own in within:
        circle = " → ".join(file.name for file in (*within[within.index(own) :], own))
        raise InvalidDataError(
            f"Expected class lists made of other lists, got a circle: {circle}. Take one out."
        )
    rules = check_table(ClassListRules, load_toml(path, "class list"), str(path))
    return _made_by(rules, path, (*within, own))


def _lines_of(path: Path) -> tuple[str, ...]:
    check_regular(path, "class list", advice="give a text file with a class in each line")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{path} is not UTF-8 text; give a list of class names.") from error
    names = [line.split("\t")[0].strip() for line in lines if not line.startswith("#")]
    return _checked_names([name for name in names if name], str(path))


def _checked_names(names: Sequence[str], source: str) -> tuple[str, ...]:
    if not names:
        raise InvalidDataError(f"{source} names no class; write one in each line.")
    if repeated := [name for name, n in Counter(map(plain, names)).items() if n > 1]:
        raise InvalidDataError(f"{source} names {repeated[0]!r} twice; keep one.")
    return tuple(names)


def _made_by(rules: ClassListRules, path: Path, within: tuple[Path, ...]) -> ClassList:
    """Follow the rules of a class list."""
    load = partial(load_class_list, folder=path.parent, within=within)
    given = [*rules.classes, *(name for item in rules.lists for name in load(item).classes)]
    names = _checked_names(given, str(path))
    all_meanings = class_meanings(names)
    left_out: dict[str, ClassOverlap] = {}
    for items, relations in ((rules.without, SAME), (rules.without_overlap, rules.relations)):
        before = len(names) - len(left_out)
        for item in items:
            pairs = find_overlaps(class_meanings(load(item).classes), all_meanings, relations)
            for pair in pairs:
                left_out.setdefault(pair.unknown, pair)
    kept = tuple(name for name in names if name not in left_out)
    return ClassList(rules.name, kept, tuple(left_out.values()), _counted(rules, before, len(kept)))


def _counted(rules: ClassListRules, n_before: int, n_classes: int) -> tuple[str, ...]:
    """Compare counts with published ones."""
    numbers = [(n_before, n_classes, "class", "classes", rules.expected_classes)]
    if (per_class := rules.images_per_class) is not None:
        images = n_before * per_class, n_classes * per_class
        numbers.append((*images, "image", "images", rules.expected_images))
    return tuple(
        f"{rules.name}: {n:,} of {count(before, *words)} are left, published: {expected:,}"
        for before, n, *words, expected in numbers
        if expected is not None
    ) + tuple(rules.remarks)
