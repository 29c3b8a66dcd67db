"""What makes the numbers of a benchmark wrong is refused before a model runs."""

from collections.abc import Iterable, Sequence

from incognita.benchmarks.definition import KNOWN_ROLES, TESTED_UNKNOWN_ROLES
from incognita.benchmarks.opening import OpenedSet, Surroundings, plain
from incognita.benchmarks.readers.images import identities
from incognita.errors import InvalidDataError

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
    return (first in KNOWN_ROLES) != (second in KNOWN_ROLES)


def refuse_known_classes(opened: Iterable[OpenedSet], around: Surroundings) -> None:
    """Refuse an unknown set that holds a class with the name of a known one."""
    if not around.has_names:
        return
    known = {plain(name): name for name in around.classes}
    for each in opened:
        own = getattr(each.dataset, "source_classes", None)
        if each.entry.is_known or own is None:
            continue
        allowed = {plain(name) for name in each.entry.allowed_classes}
        shared = sorted(known.keys() & {plain(name) for name in set(own)} - allowed)
        if shared:
            raise InvalidDataError(
                f"Set {each.entry.name!r} of {around.benchmark} has the role {each.entry.role}, "
                f"but holds images of known classes: {', '.join(known[name] for name in shared)}; "
                f"take them out, or name them in allowed_classes if they mean something else."
            )
