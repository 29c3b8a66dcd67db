"""Class names with their roles: known, unknown or ignored."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum
from functools import cached_property

import numpy as np

from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Bool, Int

# "car" and "card" differ by one letter but are different words: short names must be equal
_LONG = 6
_ALIKE = 0.8


def plain(name: str) -> str:
    """Normalize a class name: case, hyphens, underscores and slashes do not matter.

    >>> plain("Aquarium_Fish") == plain("aquarium fish")
    True
    >>> plain("Church/indoor") == plain("church-indoor")
    True
    """
    return " ".join(re.sub(r"[_/-]", " ", name.casefold()).split())


def find_spelling(name: str, candidates: Collection[str]) -> str | None:
    """Return the candidate that is most likely the same name in another spelling, or None.

    >>> find_spelling("aeroplane", ["plane", "airplane"]), find_spelling("car", ["card"])
    ('airplane', None)
    >>> find_spelling("dining table", ["diningtable"])
    'diningtable'
    """
    likeness = {candidate: _likeness(name, candidate) for candidate in candidates}
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best if best is not None and likeness[best] >= _ALIKE else None


def _likeness(first: str, second: str) -> float:
    one, other = (plain(name).replace(" ", "") for name in (first, second))
    if one == other:
        return 1.0
    if min(len(one), len(other)) < _LONG:
        return 0.0
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


class Role(Enum):
    """What a class is to the model under test."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    IGNORED = "ignored"


@dataclass(frozen=True, repr=False)
class Classes:
    """Class names in order, with the role and the super-class of each.

    A class id is a position in this list. All unknown classes together are the one label
    "unknown" of the open-set metrics; `labels` gives that view: known classes first, in order,
    then the unknown.

    >>> classes = Classes(("car", "deer", "bus"), (Role.KNOWN, Role.UNKNOWN, Role.KNOWN))
    >>> classes.known_names, classes.labels.tolist()
    (('car', 'bus'), [0, 2, 1])
    """

    names: tuple[str, ...]
    roles: tuple[Role, ...] = ()
    superclasses: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.names, str):
            raise InvalidDataError(
                f"Expected a list of class names, got the text {self.names!r:.60}."
            )
        object.__setattr__(self, "names", tuple(self.names))
        n = len(self.names)
        if not self.roles:
            roles = (Role.UNKNOWN if name == "unknown" else Role.KNOWN for name in self.names)
            object.__setattr__(self, "roles", tuple(roles))
        if not self.superclasses:
            object.__setattr__(self, "superclasses", (None,) * n)
        if len(self.roles) != n or len(self.superclasses) != n:
            raise InvalidDataError(
                f"Expected a role and a super-class for each of {n} class names, got "
                f"{len(self.roles)} roles and {len(self.superclasses)} super-classes."
            )
        for role in self.roles:
            if not isinstance(role, Role):
                raise InvalidDataError(
                    f"Expected the role of a class to be Role.KNOWN, Role.UNKNOWN or Role.IGNORED, "
                    f"got {role!r:.60}."
                )
        for name in self.superclasses:
            if not isinstance(name, str | None):
                raise InvalidDataError(
                    f"Expected a super-class to be a name or None, got {name!r:.60}."
                )
        if len(set(self.names)) != n:
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InvalidDataError(f"Class {twice!r} is listed twice; list every class once.")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        roles = ((role.value, self.roles.count(role)) for role in Role)
        return f"Classes({', '.join(f'{n:,} {name}' for name, n in roles if n)})"

    def id_of(self, name: str) -> int:
        """Return the class id of a name."""
        if name not in self.names:
            raise unknown_name("class", name, self.names)
        return self.names.index(name)

    @property
    def known_names(self) -> tuple[str, ...]:
        """The names of the known classes, in the order of their labels."""
        roles = zip(self.names, self.roles, strict=True)
        return tuple(name for name, role in roles if role is Role.KNOWN)

    @property
    def n_known(self) -> int:
        """The number of known classes; also the label of "unknown"."""
        return len(self.known_names)

    def has_role(self, role: Role) -> Bool[np.ndarray, "classes"]:
        """Return whether each class has this role."""
        return np.array([own is role for own in self.roles], dtype=np.bool_)

    @cached_property
    def labels(self) -> Int[np.ndarray, "classes"]:
        """Each class as a label: known classes from 0, then unknown, then ignored.

        All unknown classes share the label `n_known`, all ignored ones `n_known + 1`.
        """
        is_known = self.has_role(Role.KNOWN)
        others = np.where(self.has_role(Role.UNKNOWN), self.n_known, self.n_known + 1)
        labels = np.where(is_known, np.cumsum(is_known) - 1, others).astype(np.int32)
        labels.flags.writeable = False  # cached and shared
        return labels
