"""What a benchmark needs on disk, and what of it is there."""

from collections.abc import Sequence
from enum import Enum
from os import PathLike
from typing import Any, NamedTuple

from incognita.benchmarks.definition import TESTED_UNKNOWN_ROLES, AnySet, Definition
from incognita.benchmarks.definition_files import DefinitionFile
from incognita.benchmarks.load import refuse_known_classes, refuse_overlaps, surroundings
from incognita.benchmarks.load_sets import DataContext, LoadedSet, load_set
from incognita.errors import InvalidDataError


class Needed(NamedTuple):
    """One set that a benchmark needs; `megabytes` is rough and is that of the whole source."""

    set: str
    role: str
    images: int | None
    place: str
    source: str | None
    published: str | None
    license: str | None
    megabytes: float | None


class Checked(NamedTuple):
    """What was found of one set; `problem` is a sentence where its list is wrong."""

    set: str
    role: str
    expected: int | None
    found: int
    missing: tuple[str, ...]
    problem: str | None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing or wrong."""
        return self.problem is None and self.found > 0 and self.found >= (self.expected or 0)


class Verdict(Enum):
    """Whether a benchmark can run."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    MISSING = "missing"


def plan(definition: Definition) -> list[Needed]:
    """List what a benchmark needs, from its definition alone."""
    return [_needed(definition, entry) for entry in definition.set]


def _needed(definition: Definition, entry: AnySet) -> Needed:
    source = None if entry.source is None else definition.sources[entry.source]
    return Needed(
        entry.name,
        entry.role,
        entry.count,
        entry.place,
        None if source is None else source.title,
        None if source is None else source.published,
        None if source is None else source.license,
        None if source is None else source.megabytes,
    )


def total_megabytes(needed: Sequence[Needed]) -> float:
    """Add up the sizes of the sources, each counted once however many sets use it."""
    sizes = {each.source: each.megabytes or 0.0 for each in needed if each.source is not None}
    return float(sum(sizes.values()))


def check(found: DefinitionFile, data: str | PathLike[str] | None = None) -> list[Checked]:
    """Look for every set of a benchmark; a list that is wrong is told beside the others.

    Images that are in two sets which must be apart, and known classes in unknown sets, are
    refused as `load_benchmark` does.
    """
    context = surroundings(found, data)
    opened = [_opened(entry, context) for entry in found.definition.set]
    right = [each for each in opened if isinstance(each, LoadedSet)]
    refuse_overlaps(right, found.definition.name)
    refuse_known_classes(right, context)
    return [_checked(*each) for each in zip(found.definition.set, opened, strict=True)]


def _opened(entry: AnySet, context: DataContext) -> LoadedSet | str:
    try:
        return load_set(entry, context)
    except InvalidDataError as error:
        return str(error)


def _checked(entry: AnySet, opened: LoadedSet | str) -> Checked:
    if isinstance(opened, str):
        return Checked(entry.name, entry.role, entry.count, 0, (), opened)
    return Checked(entry.name, entry.role, opened.expected, opened.found, opened.missing, None)


def verdict(checked: Sequence[Checked]) -> Verdict:
    """Say whether the benchmark can run, in part or at all."""
    if all(each.is_complete for each in checked):
        return Verdict.COMPLETE
    usable = {each.role for each in checked if each.found}
    if "test" in usable and usable & set(TESTED_UNKNOWN_ROLES):
        return Verdict.PARTIAL
    return Verdict.MISSING


def as_json(rows: Sequence[Needed] | Sequence[Checked]) -> list[dict[str, Any]]:
    """Give rows as objects."""
    return [row._asdict() for row in rows]
