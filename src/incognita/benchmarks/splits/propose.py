"""Proposes which categories are near, far and farther, by their meaning.

A category that is a known class by name or synset is known; one that overlaps with a known class
in another way (a kind of it, a part of it, …) is removed; any other goes by its similarity to the
nearest known class and the limits. A proposal is a set of rules: people edit them, and the split
builder takes them as it takes any others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from incognita.benchmarks.class_overlaps import (
    OVERLAPS,
    SAME,
    ClassMeanings,
    class_meanings,
    find_overlaps,
    nearest_known,
)
from incognita.benchmarks.splits.rules import SPLITS, SimilarityLimits, SplitRules
from incognita.containers.classes import plain
from incognita.errors import InvalidDataError, printable
from incognita.files import replacing
from incognita.formats.toml_files import toml_value

LIMITS = SimilarityLimits(near=0.8, far=0.6)
_LISTS = ("known", "remove", *SPLITS)


@dataclass(frozen=True)
class Proposal:
    """Proposed rules.

    Args:
        rules: The rules, with every category in one of their lists.
        limits: By which they were made.
        reasons: Why each category is where it is.
        unmapped: Categories that WordNet has no noun for; they are in no list.
    """

    rules: SplitRules
    limits: SimilarityLimits
    reasons: Mapping[str, str]
    unmapped: tuple[str, ...]

    def to_toml(self) -> str:
        """Return a rules file with the reason behind every category."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        rules, limits = self.rules, self.limits
        far = "else far" if limits.far is None else f"far from {limits.far:g} on, else farther"
        yield f"# Proposed by WordNet ({limits.measure}): near from {limits.near:g} on, {far}."
        yield "# Edit it: move a line to another list to overrule it."
        if self.unmapped:
            yield _remark(f"Without a noun in WordNet, and in no list: {', '.join(self.unmapped)}")
        yield f"name = {toml_value(rules.name)}"
        yield f"version = {rules.version}"
        yield f'rest = "{rules.rest}"  # images that show no listed category'
        if rules.absent:
            yield f"absent = {toml_value(rules.absent)}"
        for what in _LISTS:
            if names := getattr(rules, what):
                yield f"{what} = ["
                for name in names:
                    reason = self.reasons.get(name, "given, and no category of the file")
                    yield f"    {toml_value(name)},  {_remark(reason)}"
                yield "]"

    def save(self, path: Path) -> None:
        """Write the rules file."""
        with replacing(path) as part:
            part.write_text(self.to_toml(), encoding="utf-8")


def _remark(text: str) -> str:
    """Return a remark of one line: names in it come from files, and may have others inside."""
    return "# " + printable(text).replace("\n", "\\n")


def propose(
    known: ClassMeanings,
    categories: ClassMeanings,
    *,
    limits: SimilarityLimits = LIMITS,
    name: str = "proposed",
) -> Proposal:
    """Propose rules for the categories of a file.

    Args:
        known: The known classes.
        categories: The categories, known ones too.
        limits: What is near and what is far.
        name: Of the rules.

    >>> from incognita.benchmarks.class_overlaps import class_meanings
    >>> voc = class_meanings(["horse", "person"])
    >>> found = propose(voc, class_meanings(["horse", "zebra", "woman", "wrench"])).rules
    >>> found.known, found.remove, found.near, found.farther
    (['horse', 'person'], ['woman'], ['zebra'], ['wrench'])
    """
    places = _places(known, categories, limits)
    lists = _lists(places)
    found = {pair.known for pair in find_overlaps(known, categories, SAME)}
    absent = [name for name in known.rows if name not in found]  # no category is called so
    lists["known"] += absent
    rules = SplitRules.model_validate(
        {"name": name, "version": 1, "rest": "drop", "absent": absent} | lists
    )
    reasons = {category: reason for category, (_, reason) in places.items()}
    unmapped = tuple(name for name in categories.rows if name not in places)
    return Proposal(rules, limits, reasons, unmapped)


def with_limits(rules: SplitRules, categories: Sequence[str]) -> SplitRules:
    """Assign the categories of a file that no list of the rules names, by the limits of the rules.

    The reasons become remarks. Without limits the rules stay as they are.
    """
    if rules.limits is None:
        return rules
    known = class_meanings(rules.known, declared=categories)
    if not categories:
        return rules
    listed = {plain(name) for what in _LISTS for name in getattr(rules, what)}
    places = _places(known, class_meanings(categories), rules.limits)
    added = {name: place for name, place in places.items() if plain(name) not in listed}
    lists = {what: [*getattr(rules, what), *names] for what, names in _lists(added).items()}
    remarks = [f"{name}: {what}, {reason}" for name, (what, reason) in added.items()]
    if unmapped := [
        name for name in categories if name not in places and plain(name) not in listed
    ]:
        remarks.append(f"WordNet has no noun for {', '.join(unmapped)}; they are in no list.")
    return rules.model_copy(update=lists | {"remarks": [*rules.remarks, *remarks]})


def _lists(places: Mapping[str, tuple[str, str]]) -> dict[str, list[str]]:
    return {what: [n for n, (own, _) in places.items() if own == what] for what in _LISTS}


def _places(
    known: ClassMeanings, categories: ClassMeanings, limits: SimilarityLimits
) -> dict[str, tuple[str, str]]:
    """Return the list of each category that has a meaning, and why."""
    if not known.synsets:
        raise InvalidDataError(
            "Expected known classes that WordNet has a noun for, got none. Record their synsets in "
            "a file of overrides."
        )
    places: dict[str, tuple[str, str]] = {
        row.unknown: (limits.split(row.similarity), f"{row.similarity:.3f} to {row.known}")
        for row in nearest_known(known, categories, measure=limits.measure)
    }
    for pair in reversed(find_overlaps(known, categories, OVERLAPS)):  # the closest one is last
        what = "known" if pair.relation in SAME else "remove"
        places[pair.unknown] = (what, f"{pair.known}: {pair.rule}")
    return {name: places[name] for name in categories.rows if name in places}
