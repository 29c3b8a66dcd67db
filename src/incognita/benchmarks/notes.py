"""What a reader of the numbers of a benchmark must be told about its sets."""

from collections.abc import Collection, Sequence
from itertools import combinations
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

import numpy as np

from incognita.benchmarks.opened import OpenedSet
from incognita.benchmarks.set_entries import UNKNOWN_GROUPS
from incognita.formats.images import identities

if TYPE_CHECKING:
    from incognita.benchmarks.box_dataset import BoxDataset

FIRST = 3  # missing images that a note names


def notes_of(opened: OpenedSet, known: Collection[str]) -> list[str]:
    """Say what is special about a set, and what is missing; `known` are the known classes."""
    entry, found, expected = opened.entry, opened.found, opened.expected
    left_out = _left_out(opened)
    if opened.dataset is None:
        none = "no image" if expected is None else f"none of {expected:,} images"
        return [f"{entry.name}: {none} found; the set is left out", *left_out]
    notes = [] if entry.note is None else [f"{entry.name}: {entry.note}"]
    if expected is not None and found < expected:
        notes.append(
            f"{entry.name}: {found:,} of {expected:,} images found; numbers are partial"
            f"{_missing(opened)}"
        )
    if expected is not None and found > expected:
        notes.append(
            f"{entry.name}: {found:,} images found where {expected:,} were expected; numbers do "
            f"not compare with published ones"
        )
    return [*notes, *left_out, *opened.notes, *_unknown_objects(opened, known)]


def _missing(opened: OpenedSet) -> str:
    """Name the first images that are missing, where anybody knows their names.

    Without their folders, which are other ones on every machine: notes are part of results.
    """
    if not opened.missing or opened.expected is None:
        return ""
    shown = [PurePath(path).name for path in opened.missing[:FIRST]]
    more = opened.expected - opened.found - len(shown)
    return f"; missing: {', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"


def notes_on_repeats(opened: Sequence[OpenedSet]) -> list[str]:
    """Say that groups of unknown sets share images, whose numbers then say much the same."""
    sets = [each for each in opened if each.entry.role in UNKNOWN_GROUPS]
    notes = []
    for first, second in combinations(sets, 2):
        if first.dataset is None or second.dataset is None or first.entry.role == second.entry.role:
            continue
        if n := len(identities(first.dataset) & identities(second.dataset)):
            notes.append(
                f"{n:,} {'image is' if n == 1 else 'images are'} in both {first.entry.name} "
                f"({first.entry.role}) and {second.entry.name} ({second.entry.role})"
            )
    return notes


def _left_out(opened: OpenedSet) -> list[str]:
    """Say that files were not taken for images, which may be a surprise."""
    if not opened.left_out:
        return []
    n = len(opened.left_out)
    what = "1 file is no image" if n == 1 else f"{n:,} files are no images"
    return [f"{opened.entry.name}: {what} by the suffix and left out, such as {opened.left_out[0]}"]


def _unknown_objects(opened: OpenedSet, known: Collection[str]) -> list[str]:
    """Say that known images hold unknown objects, too."""
    if not opened.entry.is_known or not (opened.object_classes or frozenset()) - set(known):
        return []
    truth = cast("BoxDataset", opened.dataset).truth()
    n_images = len(np.unique(truth.image_index[truth.is_unknown]))
    if not n_images:  # what is not known is ignored
        return []
    return [
        f"{opened.entry.name}: {n_images:,} of {truth.n_images:,} images also show other classes; "
        f"their {truth.is_unknown.sum():,} objects count as unknown"
    ]
