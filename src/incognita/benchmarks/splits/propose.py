"""Proposes which categories are near, far and farther, by their meaning.

A category that is a known class by name or synset is known; one that overlaps with a known class
in another way (a kind of it, a part of it, …) is removed; any other goes by its similarity to the
nearest known class and the limits. A proposal is a set of rules: people edit them, and the split
builder takes them as it takes any others.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from incognita.benchmarks.class_overlaps import (
    OVERLAPS,
    ClassMeanings,
    ClassRelation,
    class_meanings,
    find_overlaps,
    nearest_known,
)
from incognita.benchmarks.splits.rules import SPLITS, SimilarityLimits, SplitRules
from incognita.errors import InvalidDataError
from incognita.files import replacing

LIMITS = SimilarityLimits(near=0.8, far=0.6)
_SAME = (ClassRelation.EXACT, ClassRelation.SYNONYM)
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
            yield f"# Without a noun in WordNet, and in no list: {', '.join(self.unmapped)}"
        yield f"name = {json.dumps(rules.name)}"
        yield f"version = {rules.version}"
        yield f'rest = "{rules.rest}"  # images that show no listed category'
        if rules.absent:
            yield f"absent = {json.dumps(rules.absent, ensure_ascii=False)}"
        for what in _LISTS:
            if names := getattr(rules, what):
                yield f"{what} = ["
                for name in names:
                    quoted = json.dumps(name, ensure_ascii=False)
                    yield f"    {quoted},  # {self.reasons.get(name, 'given')}"
                yield "]"

    def save(self, path: Path) -> None:
        """Write the rules file."""
        with replacing(path) as part:
            part.write_text(self.to_toml(), encoding="utf-8")


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
    (['horse'], ['woman'], ['zebra'], ['wrench'])
    """
    places = _places(known, categories, limits)
    lists = _lists(places)
    absent: list[str] = []
    if not lists["known"]:  # the file annotates none of them
        lists["known"] = [*known.rows]
        absent = [name for name in known.rows if name not in categories.rows]
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
    listed = {name for what in _LISTS for name in getattr(rules, what)}
    places = _places(known, class_meanings(categories), rules.limits)
    added = {name: place for name, place in places.items() if name not in listed}
    lists = {what: [*getattr(rules, what), *names] for what, names in _lists(added).items()}
    remarks = [f"{name}: {what}, {reason}" for name, (what, reason) in added.items()]
    if unmapped := [name for name in categories if name not in places and name not in listed]:
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
        what = "known" if pair.relation in _SAME else "remove"
        places[pair.unknown] = (what, f"{pair.known}: {pair.rule}")
    return {name: places[name] for name in categories.rows if name in places}
