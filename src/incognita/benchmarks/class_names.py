"""Class names as people write them: what is one name, and what may be another spelling of it."""

from collections.abc import Collection
from difflib import SequenceMatcher

# "car" and "card" differ by a letter and are no spellings of one word: short names must be equal
_LONG = 6
_ALIKE = 0.8


def plain(name: str) -> str:
    """Write a class name so that spelling habits do not matter.

    >>> plain("Aquarium_Fish") == plain("aquarium fish")
    True
    """
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def find_spelling(name: str, candidates: Collection[str]) -> str | None:
    """Find the candidate that is most likely the same name in another spelling, if one is.

    >>> find_spelling("aeroplane", ["plane", "airplane"]), find_spelling("car", ["card"])
    ('airplane', None)
    >>> find_spelling("dining table", ["diningtable"])
    'diningtable'
    """
    likeness = {each: _likeness(name, each) for each in candidates}
    best = max(likeness, key=lambda each: likeness[each], default=None)
    return best if best is not None and likeness[best] >= _ALIKE else None


def _likeness(first: str, second: str) -> float:
    one, other = (plain(name).replace(" ", "") for name in (first, second))
    if one == other:
        return 1.0
    if min(len(one), len(other)) < _LONG:
        return 0.0
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
