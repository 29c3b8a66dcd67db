"""What a reader of the numbers of a benchmark must be told about its sets."""

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

import numpy as np

from incognita.benchmarks.opened import OpenedSet

if TYPE_CHECKING:
    from incognita.benchmarks.box_dataset import BoxDataset


def notes_of(opened: OpenedSet, known: Collection[str]) -> list[str]:
    """Say what is special about a set, and what is missing; `known` are the known classes."""
    entry, found, expected = opened.entry, opened.found, opened.expected
    left_out = _left_out(opened)
    if opened.dataset is None:
        return [f"{entry.name}: no image found; the set is left out", *left_out]
    notes = [] if entry.note is None else [f"{entry.name}: {entry.note}"]
    if expected is not None and found < expected:
        notes.append(f"{entry.name}: {found:,} of {expected:,} images found; numbers are partial")
    if expected is not None and found > expected:
        notes.append(
            f"{entry.name}: {found:,} images found where {expected:,} were expected; numbers do "
            f"not compare with published ones"
        )
    return [*notes, *left_out, *opened.notes, *_unknown_objects(opened, known)]


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
