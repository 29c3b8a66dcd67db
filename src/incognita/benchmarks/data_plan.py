"""What a benchmark needs on disk, and what of it is there."""

from collections.abc import Sequence
from enum import Enum
from os import PathLike
from typing import Any, NamedTuple

from incognita.benchmarks.definition import Definition
from incognita.benchmarks.definition_files import DefinitionFile
from incognita.benchmarks.load import (
    data_context,
    present_sets,
    refuse_known_classes,
    refuse_overlaps,
)
from incognita.benchmarks.sources.entry import DataContext, LoadedSet, SetEntry, missing_part
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


def _needed(definition: Definition, entry: SetEntry) -> Needed:
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
    sizes = {row.source: row.megabytes or 0.0 for row in needed if row.source is not None}
    return float(sum(sizes.values()))


def check(
    found: DefinitionFile,
    data: str | PathLike[str] | None = None,
    *,
    allow_outside: bool = False,
) -> list[Checked]:
    """Look for every set of a benchmark; a set that cannot be loaded is reported, not raised.

    Images that are in two sets which must be apart, and known classes in unknown sets, are
    refused as `load_benchmark` does.
    """
    context = data_context(found, data, allow_outside=allow_outside)
    entries = found.definition.set
    results = [_load_or_explain(entry, context) for entry in entries]
    loaded = [result for result in results if isinstance(result, LoadedSet)]
    refuse_overlaps(present_sets(loaded), found.definition.name)
    refuse_known_classes(loaded, context)
    return [_checked(entry, result) for entry, result in zip(entries, results, strict=True)]


def _load_or_explain(entry: SetEntry, context: DataContext) -> LoadedSet | str:
    try:
        return entry.load(context)
    except InvalidDataError as error:
        return str(error)


def _checked(entry: SetEntry, result: LoadedSet | str) -> Checked:
    if isinstance(result, str):
        return Checked(entry.name, entry.role, entry.count, 0, (), result)
    return Checked(entry.name, entry.role, result.expected, result.found, result.missing, None)


def verdict(checked: Sequence[Checked]) -> Verdict:
    """Return whether the benchmark can run: completely, in part or not at all."""
    if all(row.is_complete for row in checked):
        return Verdict.COMPLETE
    is_testable = missing_part({row.role for row in checked if row.found}) is None
    return Verdict.PARTIAL if is_testable else Verdict.MISSING


def as_json(rows: Sequence[Needed] | Sequence[Checked]) -> list[dict[str, Any]]:
    """Return rows as JSON objects."""
    return [row._asdict() for row in rows]
