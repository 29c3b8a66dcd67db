"""Which class of a benchmark each category of an annotation file is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from incognita.benchmarks.class_names import find_spelling, plain
from incognita.containers.classes import Classes, Role
from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Int


class Translation(NamedTuple):
    """The classes of a benchmark, and which of them each category of a file is."""

    classes: Classes
    class_ids: Int[np.ndarray, "categories"]


@dataclass(frozen=True)
class CategoryRoles:
    """What a benchmark makes of the categories of a file.

    Several categories may be one class: `rename` may give them one name.

    Args:
        known: Names of the known classes, in the order of the benchmark.
        rename: Name in the benchmark of a category that the file calls otherwise.
        unknown: The categories that are unknown, all others being ignored; None stands for every
            category that is neither known nor ignored.
        ignored: The categories that count neither way.

    >>> roles = CategoryRoles(("sofa", "cat"), rename={"couch": "sofa"})
    >>> given = roles.translate(("Cat", "deer", "couch"), (None, None, None), source="gt.json")
    >>> given.classes.names, given.class_ids.tolist()
    (('sofa', 'cat', 'deer'), [1, 2, 0])
    """

    known: tuple[str, ...]
    rename: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()

    def translate(
        self, categories: Sequence[str], superclasses: Sequence[str | None], *, source: str
    ) -> Translation:
        """Give known classes first, in their order, then the others, at least one of them unknown.

        Args:
            categories: Names of the categories of the file.
            superclasses: Super-class of each category.
            source: The file, for messages.
        """
        known = {plain(name): name for name in self.known}
        renamed = (self.rename.get(name, name) for name in categories)
        named = [known.get(plain(name), name) for name in renamed]
        self._refuse_strangers(categories, named, source)
        roles = self._roles(categories, named, source)
        above = dict(reversed(list(zip(named, superclasses, strict=True))))  # the first one counts
        names = tuple(roles)
        classes = Classes(names, tuple(roles.values()), tuple(above.get(name) for name in names))
        return Translation(classes, np.array([names.index(name) for name in named], np.int32))

    def _roles(
        self, categories: Sequence[str], named: Sequence[str], source: str
    ) -> dict[str, Role]:
        """Give every class its role, in the order of the classes."""
        roles = dict.fromkeys(self.known, Role.KNOWN)
        for category, name in zip(categories, named, strict=True):
            role = self._role_of(category, is_known=name in self.known)
            if roles.setdefault(name, role) is not role:
                raise InvalidDataError(
                    f"{source}: category {category!r} is {role.value}, but class {name!r}, which "
                    f"it is called, is {roles[name].value}; correct the lists, or rename it."
                )
        if Role.UNKNOWN not in roles.values():
            spare = ("unknown", "unknown class")  # a file may call unknown what is ignored
            roles[next(name for name in spare if name not in roles)] = Role.UNKNOWN
        return roles

    def _role_of(self, category: str, *, is_known: bool) -> Role:
        if category in self.ignored:
            return Role.IGNORED
        if category in (self.unknown or ()):
            return Role.UNKNOWN
        if is_known:
            return Role.KNOWN
        return Role.UNKNOWN if self.unknown is None else Role.IGNORED

    def _refuse_strangers(
        self, categories: Sequence[str], named: Sequence[str], source: str
    ) -> None:
        """Refuse names that no category of the file has."""
        strange = [n for n in (*(self.unknown or ()), *self.ignored) if n not in categories]
        # one table of names may serve several files, of which some lack the category or already
        # call it as the benchmark does
        pairs = zip(categories, named, strict=True)
        others = [category for category, name in pairs if name not in self.known]
        misspelt = [n for n in self.rename if n not in categories and find_spelling(n, others)]
        for name in (*strange, *misspelt):
            problem = unknown_name(f"category of {source}", name, categories)
            raise InvalidDataError(str(problem)) from problem
