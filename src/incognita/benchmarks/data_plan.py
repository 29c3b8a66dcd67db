"""What a benchmark needs on disk, and what of it is there."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
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
from incognita.benchmarks.sources.entry import (
    N_SHOWN,
    DataContext,
    LoadedSet,
    SetEntry,
    missing_part,
)
from incognita.errors import InvalidDataError
from incognita.formats.images import READERS, FileDataset, image_problem

Progress = Callable[[str, int, int], None]  # data set, images done, images in total


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
    """What was found of one set; `problem` is a sentence where its list is wrong.

    `damaged` names the first files that cannot be used, of `n_damaged`.
    """

    set: str
    role: str
    expected: int | None
    found: int
    missing: tuple[str, ...]
    problem: str | None
    n_damaged: int = 0
    damaged: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing or wrong."""
        is_there = self.found > 0 and self.found >= (self.expected or 0)
        return self.problem is None and is_there and not self.n_damaged


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
    deep: bool = False,
    on_progress: Progress | None = None,
) -> list[Checked]:
    """Look for every set of a benchmark; a set that cannot be loaded is reported, not raised.

    The header of every image is read; with `deep` every image is decoded. Images that are in two
    sets which must be apart, and known classes in unknown sets, are refused as `load_benchmark`
    does.
    """
    context = data_context(found, data, allow_outside=allow_outside)
    entries = found.definition.set
    results = [_load_or_explain(entry, context) for entry in entries]
    loaded = [result for result in results if isinstance(result, LoadedSet)]
    refuse_overlaps(present_sets(loaded), found.definition.name)
    refuse_known_classes(loaded, context)
    checked = [_checked(entry, result) for entry, result in zip(entries, results, strict=True)]
    damaged = [_damaged(result, on_progress, deep=deep) for result in results]
    return [
        row._replace(n_damaged=len(problems), damaged=tuple(problems[:N_SHOWN]))
        for row, problems in zip(checked, damaged, strict=True)
    ]


def _damaged(result: LoadedSet | str, on_progress: Progress | None, *, deep: bool) -> list[str]:
    """Name the files of a set that cannot be used, and why."""
    dataset = None if isinstance(result, str) else result.dataset
    if not isinstance(dataset, FileDataset):
        return []
    paths = [dataset.root / name for name in dataset.image_ids]
    problems = []
    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(partial(image_problem, deep=deep), paths)
        for n_done, (path, problem) in enumerate(zip(paths, found, strict=True), start=1):
            if problem is not None:
                problems.append(f"{path} {problem}")
            if on_progress is not None:
                on_progress(dataset.name, n_done, len(paths))
    return problems


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
    usable = {row.role for row in checked if row.found > row.n_damaged}
    is_testable = missing_part(usable) is None
    return Verdict.PARTIAL if is_testable else Verdict.MISSING


def as_json(rows: Sequence[Needed] | Sequence[Checked]) -> list[dict[str, Any]]:
    """Return rows as JSON objects."""
    return [row._asdict() for row in rows]
