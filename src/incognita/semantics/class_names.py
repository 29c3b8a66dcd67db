"""Class names of data sets as synsets of WordNet, each with how it was found.

A name is looked up by these rules, and the first that finds a noun decides:

1. override: a person has recorded a synset for it;
2. wnid: it is a wnid or the name of a synset;
3. lemma: it is a noun of WordNet (`mountain_tent`), or synonyms with commas between them;
4. plural: it is the plural of one (`skis`);
5. compound: it is one once it is written otherwise (`ice_skating_rink` as `ice-skating rink`,
   `teapot` for `tea pot`) or without a qualifier (`church/indoor`, `bow_window-indoor`,
   `bat_(animal)`);
6. head noun: its last words are one (`veterinarians_office` is an `office`).

Of several senses the first is taken, the most frequent one. The class is then marked as ambiguous,
with its other senses, until a person records which is meant.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from incognita.containers.classes import plain
from incognita.errors import InvalidDataError, UnknownNameError, count, unknown_name
from incognita.formats.toml_files import load_toml
from incognita.semantics.wordnet import load_wordnet

MAPS = Path(__file__).parent / "maps"
Senses = Literal["recorded", "first"]
LONGEST_NAME = 200  # characters, as in a definition; every way to divide a name is tried
_IS_SYNSET = re.compile(r"n\d{8}|.+\.n\.\d+", re.IGNORECASE)
_QUALIFIER = re.compile(r"[\s_]*\([^)]*\)|/.*|[\s_-](indoor|outdoor)s?$")
_SHOWN = 5  # names in a message
_MEANING_WIDTH = 52  # characters of a definition in a table


class Rule(StrEnum):
    """How the synset of a class was found."""

    OVERRIDE = "override"
    WNID = "wnid"
    LEMMA = "lemma"
    PLURAL = "plural"
    COMPOUND = "compound"
    HEAD_NOUN = "head noun"


@dataclass(frozen=True)
class ClassSynset:
    """The synset of one class.

    Args:
        name: The class, as its data set writes it.
        synset: The synset, such as `crane.n.05`.
        rule: How it was found.
        other_senses: Further synsets of the same noun.
        is_ambiguous: Whether there are other senses, and nobody has recorded which one is meant.
        remark: What a person has remarked about the choice.
    """

    name: str
    synset: str
    rule: Rule
    other_senses: tuple[str, ...] = ()
    is_ambiguous: bool = False
    remark: str = ""

    @property
    def wnid(self) -> str:
        return load_wordnet().wnid(self.synset)

    @property
    def definition(self) -> str:
        return load_wordnet().definition(self.synset)

    def to_record(self) -> dict[str, object]:
        """Return all that is known about the class, for JSON."""
        wordnet = load_wordnet()
        return {
            "name": self.name,
            "synset": self.synset,
            "wnid": self.wnid,
            "rule": str(self.rule),
            "is_ambiguous": self.is_ambiguous,
            "definition": self.definition,
            "other_senses": {sense: wordnet.definition(sense) for sense in self.other_senses},
            "remark": self.remark,
        }


class Override(NamedTuple):
    """What a person has recorded for a class: a synset, or another name that it is mapped as."""

    target: str
    remark: str = ""


Overrides = Mapping[str, str | Override]


@dataclass(frozen=True)
class SynsetMap:
    """The classes of a data set, in its order, with their synsets.

    >>> print(map_classes(["mouse", "skis"], overrides={"mouse": "mouse.n.04"}))
    class  synset      rule      meaning                                               other senses
    mouse  mouse.n.04  override  a hand-operated electronic device that controls the…
    skis   ski.n.01    plural    narrow wood or metal or plastic runners used in pai…
    2 classes: 1 override, 1 plural; 0 ambiguous
    """

    classes: tuple[ClassSynset, ...]
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {_key(row.name): place for place, row in enumerate(self.classes)}
        object.__setattr__(self, "_places", places)

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.classes]

    @property
    def synsets(self) -> list[str]:
        return [row.synset for row in self.classes]

    @property
    def ambiguous(self) -> list[ClassSynset]:
        """Classes with several senses of which nobody has recorded one."""
        return [row for row in self.classes if row.is_ambiguous]

    def __getitem__(self, name: str) -> ClassSynset:
        """Return the row of a class; capitals, blanks, underscores and hyphens are all alike."""
        place = self._places.get(_key(name))
        if place is None:
            raise unknown_name("class in this map", name, self.names)
        return self.classes[place]

    def __len__(self) -> int:
        return len(self.classes)

    def __iter__(self) -> Iterator[ClassSynset]:
        return iter(self.classes)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _key(name) in self._places

    def __str__(self) -> str:
        title = ("class", "synset", "rule", "meaning", "other senses")
        rows = [title, *(_cells(row) for row in self.classes)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(title))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """One line: how many classes each rule found, and how many are ambiguous.

        >>> map_classes(["crane", "skis", "veterinarians_office"]).summary
        '3 classes: 1 lemma, 1 plural, 1 head noun; 2 ambiguous'
        """
        rules = Counter(row.rule for row in self.classes)
        found = ", ".join(f"{rules[rule]} {rule}" for rule in Rule if rules[rule])
        n_classes = count(len(self), "class", "classes")
        return f"{n_classes}: {found or 'none'}; {len(self.ambiguous)} ambiguous"

    def to_records(self) -> list[dict[str, object]]:
        """Return one dictionary per class."""
        return [row.to_record() for row in self.classes]

    def to_json(self) -> str:
        """Return the map as JSON text."""
        return json.dumps(self.to_records(), indent=1, ensure_ascii=False)


def map_classes(
    names: Sequence[str],
    *,
    overrides: Overrides | Path | str | None = None,
    senses: Senses = "recorded",
) -> SynsetMap:
    """Map class names to synsets; names that no rule finds raise.

    Args:
        names: The classes, each once.
        overrides: What a person has recorded, as a dictionary or a TOML file.
        senses: "recorded" follows the overrides; "first" takes the first sense, and follows
            overrides only for names that no rule finds.

    >>> map_classes(["mouse", "keyboard"], overrides={"mouse": "mouse.n.04"}).synsets
    ['mouse.n.04', 'keyboard.n.01']
    """
    if senses not in get_args(Senses):
        raise unknown_name("choice of senses", senses, get_args(Senses))
    recorded = _read_overrides(overrides)
    _check_names(names, recorded)
    by_key = {_key(name): override for name, override in recorded.items()}
    found = {name: _map_one(name, by_key, senses) for name in names}
    missing = [name for name, row in found.items() if row is None]
    if missing:
        raise UnknownNameError(
            f"No noun of WordNet 3.0 fits {_listed(missing)}. Record a synset in the overrides, "
            f'such as {json.dumps(missing[0])} = "entity.n.01".'
        )
    return SynsetMap(tuple(row for row in found.values() if row is not None))


def list_synset_maps() -> list[str]:
    """List the data sets whose classes are mapped already.

    >>> list_synset_maps()[:3]
    ['cifar10', 'cifar100', 'coco']
    """
    return sorted(path.stem for path in MAPS.glob("*.txt"))


def load_synset_map(dataset: str, *, senses: Senses = "recorded") -> SynsetMap:
    """Load the classes of a data set with their synsets, in the order of its class numbers.

    Args:
        dataset: One of `list_synset_maps()`.
        senses: As in `map_classes`. The recorded ones are in `semantics/maps`, beside the names.

    >>> load_synset_map("coco")["mouse"].synset
    'mouse.n.04'
    >>> load_synset_map("coco", senses="first")["mouse"].synset
    'mouse.n.01'
    """
    if dataset not in list_synset_maps():
        raise unknown_name("synset map", dataset, list_synset_maps())
    lines = (MAPS / f"{dataset}.txt").read_text(encoding="utf-8").splitlines()
    if "\t" in lines[0]:  # ImageNet: a wnid and a readable name
        return SynsetMap(tuple(_named(*line.split("\t")) for line in lines))
    return map_classes(lines, overrides=MAPS / f"{dataset}.toml", senses=senses)


def _named(wnid: str, name: str) -> ClassSynset:
    return ClassSynset(name, load_wordnet().name(wnid), Rule.WNID)


def load_overrides(path: Path | str) -> dict[str, Override]:
    """Read a TOML file of `name = "synset"` or `name = { synset = "…", remark = "…" }`.

    Instead of a synset, another name may be recorded; the class is then mapped as that name is.
    """
    return {
        name: _parse_override(name, value, str(path))
        for name, value in load_toml(Path(path), "override file").items()
    }


def _parse_override(name: str, value: Any, source: str) -> Override:
    if isinstance(value, str):
        return Override(value)
    is_table = isinstance(value, dict) and {"synset"} <= set(value) <= {"synset", "remark"}
    if is_table and all(isinstance(text, str) for text in value.values()):
        return Override(value["synset"], value.get("remark", ""))
    raise InvalidDataError(
        f"Expected a synset, or a table with synset and remark, for {name!r} in {source}, got "
        f'{value!r}. Write {json.dumps(name)} = "dog.n.01".'
    )


def _read_overrides(overrides: Overrides | Path | str | None) -> dict[str, Override]:
    if overrides is None:
        return {}
    if isinstance(overrides, Path | str):
        return load_overrides(overrides)
    if not isinstance(overrides, Mapping):
        raise InvalidDataError(
            f"Expected overrides as a dictionary or a TOML file, got {overrides!r}. Write "
            f'{{"crane": "crane.n.05"}}.'
        )
    return {
        name: value if isinstance(value, Override) else _parse_override(name, value, "overrides")
        for name, value in overrides.items()
    }


def _check_names(names: Sequence[str], recorded: Mapping[str, Override]) -> None:
    """Raise for repeated or empty names and for overrides of classes that are not in the list."""
    if isinstance(names, str):
        raise InvalidDataError(f"Expected a list of classes, got {names!r}. Write [{names!r}].")
    for name in (*names, *recorded, *(override.target for override in recorded.values())):
        _check_name(name)
    keys = Counter(map(_key, names))
    repeated = [name for name in names if keys[_key(name)] > 1]
    if repeated:
        raise InvalidDataError(f"Expected every class once, got {_listed(repeated)}. Remove one.")
    if any(not key for key in keys):
        raise InvalidDataError("Expected names of classes, got an empty one. Remove or name it.")
    targets = {_key(override.target) for override in recorded.values()}
    for name in recorded:
        if _key(name) not in keys and _key(name) not in targets:
            raise unknown_name("class with an override", name, names)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidDataError(f"Expected names of classes, got {name!r}. Write them as text.")
    if len(name) > LONGEST_NAME:
        raise InvalidDataError(
            f"Expected names of up to {LONGEST_NAME} characters, got one of {len(name):,}, which "
            f"begins with {name[:40]!r}. Shorten it."
        )


def _map_one(name: str, recorded: Mapping[str, Override], senses: Senses) -> ClassSynset | None:
    """Map one class by its override or by the rules, whichever comes first for these senses."""
    by_override = _by_override(name, recorded)
    if senses == "recorded":
        return by_override or _by_rules(name)
    return _by_rules(name) or by_override


def _by_override(
    name: str, recorded: Mapping[str, Override], seen: tuple[str, ...] = ()
) -> ClassSynset | None:
    """Follow recorded names until one has a synset or is found by the rules."""
    override = recorded.get(_key(name))
    if override is None:
        return None
    seen = (*seen, name)
    if _IS_SYNSET.fullmatch(override.target):
        return ClassSynset(name, _checked(override, name), Rule.OVERRIDE, remark=override.remark)
    if _key(override.target) in map(_key, seen):
        raise InvalidDataError(
            f"Expected overrides that end in a synset, got a circle: "
            f"{' → '.join([*seen, override.target])}. Record a synset for one of them."
        )
    row = _by_override(override.target, recorded, seen) or _by_rules(override.target)
    if row is None:
        raise UnknownNameError(
            f"Expected a synset or a noun for {name!r}, got {override.target!r}. Record a synset "
            f"such as entity.n.01."
        )
    remark = override.remark or f"as {override.target}"
    return ClassSynset(name, row.synset, Rule.OVERRIDE, row.other_senses, row.is_ambiguous, remark)


def _checked(override: Override, name: str) -> str:
    try:
        return load_wordnet().name(override.target)
    except UnknownNameError as error:
        raise UnknownNameError(f"The override of {name!r} cannot be used: {error}") from None


def _by_rules(name: str) -> ClassSynset | None:
    """Try the rules from 2 to 6."""
    if _IS_SYNSET.fullmatch(name):
        return ClassSynset(name, load_wordnet().name(name), Rule.WNID)
    for rule, senses in _candidates(_clean(name)):
        if senses:
            first, *others = senses
            return ClassSynset(name, first, rule, tuple(others), bool(others))
    return None


def _candidates(text: str) -> Iterator[tuple[Rule, list[str]]]:
    wordnet = load_wordnet()
    yield Rule.LEMMA, _shared_senses(text)
    yield Rule.PLURAL, _senses_of_plural(text)
    base = _QUALIFIER.sub("", text)
    for spelling in dict.fromkeys([base, *_spellings(base)]):
        yield Rule.COMPOUND, wordnet.senses(spelling) or _senses_of_plural(spelling)
    words = base.split("_")
    for start in range(1, len(words)):
        ending = "_".join(words[start:])
        for spelling in (ending, *_spellings(ending)):
            yield Rule.HEAD_NOUN, wordnet.senses(spelling) or _senses_of_plural(spelling)


def _shared_senses(text: str) -> list[str]:
    """Return the senses that all synonyms have in common: `crane,_grus` is the constellation."""
    first, *others = (load_wordnet().senses(word.strip("_")) for word in text.split(","))
    return [sense for sense in first if all(sense in senses for senses in others)]


def _senses_of_plural(word: str) -> list[str]:
    wordnet = load_wordnet()
    senses = [sense for form in wordnet.singulars(word) for sense in wordnet.senses(form)]
    return list(dict.fromkeys(senses))


def _spellings(text: str) -> Iterator[str]:
    """Return words joined (`tea_pot`), hyphenated, or divided again (`diningtable`)."""
    yield text.replace("_", "").replace("-", "")
    yield text.replace("-", "_")
    for place in (found.start() for found in re.finditer("_", text)):
        yield f"{text[:place]}-{text[place + 1 :]}"
    if text.isalpha():
        for place in range(2, len(text) - 1):
            yield f"{text[:place]}_{text[place:]}"


def _clean(name: str) -> str:
    """Return a name in WordNet's form, without the letter that Places and SUN put before it."""
    text = re.sub(r"^/[a-z]/", "", name.strip().lower())
    return re.sub(r"[\s_]+", "_", text.replace("'", "")).strip("_")


def _key(name: str) -> str:
    """Return what is left of a name when its spelling does not matter."""
    return plain(_clean(name))


def _cells(row: ClassSynset) -> tuple[str, ...]:
    meaning = row.definition
    if len(meaning) > _MEANING_WIDTH:
        meaning = f"{meaning[: _MEANING_WIDTH - 1]}…"
    others = ", ".join(row.other_senses) if row.is_ambiguous else ""
    return row.name, row.synset, str(row.rule), meaning, others


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
