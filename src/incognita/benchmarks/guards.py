"""What makes the numbers of a benchmark wrong is refused before a model runs."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from incognita.benchmarks.class_names import plain
from incognita.benchmarks.opened import OpenedSet, Surroundings
from incognita.benchmarks.set_entries import KNOWN_ROLES, TESTED_UNKNOWN_ROLES
from incognita.errors import InvalidDataError
from incognita.formats.images import identities

if TYPE_CHECKING:
    from incognita.benchmarks.box_dataset import BoxDataset

TESTED = ("test", "shifted", *TESTED_UNKNOWN_ROLES)


def refuse_overlaps(opened: Sequence[OpenedSet], benchmark: str) -> None:
    """Refuse an image that is learned from or chosen on and also tested, or known and unknown.

    Files are compared by their paths, other images by their ids; copies of a file under another
    name are not found.
    """
    images = {
        each.entry.name: identities(each.dataset) for each in opened if each.dataset is not None
    }
    present = [each.entry for each in opened if each.entry.name in images]
    for place, first in enumerate(present):
        for second in present[:place]:
            if not _must_be_apart(first.role, second.role):
                continue
            if shared := images[first.name] & images[second.name]:
                raise InvalidDataError(
                    f"{len(shared):,} images of {benchmark} are in both set {second.name!r} "
                    f"({second.role}) and set {first.name!r} ({first.role}), such as "
                    f"{min(shared)}; a number from that would be worthless: take them out of one."
                )


def _must_be_apart(first: str, second: str) -> bool:
    if (first in TESTED) != (second in TESTED):
        return True
    if "mixed" in (first, second):  # it shows both, so that it may repeat what is tested apart
        return False
    return (first in KNOWN_ROLES) != (second in KNOWN_ROLES)


def refuse_known_classes(opened: Iterable[OpenedSet], around: Surroundings) -> None:
    """Refuse an unknown set that holds a class with the name of a known one."""
    if not around.has_names:
        return
    known = {plain(name): name for name in around.classes}
    for each in opened:
        if each.entry.is_known or each.entry.role == "mixed" or each.dataset is None:
            continue
        own = each.dataset.source_classes if each.object_classes is None else each.object_classes
        allowed = {plain(name) for name in each.entry.allowed_classes}
        shared = sorted(known.keys() & {plain(name) for name in set(own or ())} - allowed)
        if shared:
            names = [known[name] for name in shared]
            what = (
                _known_images(names) if each.object_classes is None else _known_boxes(each, names)
            )
            raise InvalidDataError(
                f"Set {each.entry.name!r} of {around.benchmark} has the role {each.entry.role}, "
                f"but {what}"
            )


def _known_images(names: Sequence[str]) -> str:
    return (
        f"holds images of known classes: {', '.join(names)}; take them out, or name them in "
        f"allowed_classes if they mean something else."
    )


def _known_boxes(opened: OpenedSet, names: Sequence[str]) -> str:
    truth = cast("BoxDataset", opened.dataset).truth()
    images = {
        name: np.unique(truth.image_index[truth.class_ids == truth.classes.id_of(name)])
        for name in names
    }
    n_images = len(np.unique(np.concatenate(list(images.values()))))
    shown = ", ".join(f"{name} in {len(rows):,}" for name, rows in images.items())
    return (
        f"{n_images:,} of its {truth.n_images:,} images show known classes ({shown}); build a set "
        f'without them (`incognita build`), give it the role "mixed", or name them in '
        f"allowed_classes."
    )
