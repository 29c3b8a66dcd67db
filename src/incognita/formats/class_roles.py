"""Which categories of an annotation file are known, unknown or ignored.

Anybody may say it in a small TOML file, a class map:

version = 1
known = ["car", "person"]     # by default every category but the one called "unknown"
unknown = ["deer"]            # by default, where `known` is given, every other category
ignored = ["caravan"]
[superclasses]                # override the `supercategory` of the annotation file
vehicle = ["car", "bus"]
[categories]                  # categories that only the detections use
81 = "unknown"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from incognita.containers.classes import Classes, Role, find_spelling, plain
from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Int

_FILE_KEYS = ("version", "known", "unknown", "ignored", "superclasses", "categories")


class Translation(NamedTuple):
    """Classes with their roles, and the class and super-class of each category of a file."""

    classes: Classes
    class_ids: Int[np.ndarray, "categories"]
    superclasses: tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class ClassMap:
    """The roles and super-classes of categories, by name.

    A class map file lists them for one annotation file, whose categories become the classes.
    A benchmark also has `classes` of its own, which come first and in their order in every set, and
    categories are matched to them by name.

    Args:
        version: Of the format of the file.
        known: The classes the model was trained on; None stands for all the others.
        unknown: The classes it was not trained on; None stands for all the others if `known` is
            given, else for the one called "unknown".
        ignored: Classes that count neither way.
        superclasses: The classes of each super-class.
        categories: Name of each category id that the annotation file does not list.
        classes: The known classes of a benchmark, whether the file has them or not. The remaining
            categories are unknown, or, where `unknown` is given, ignored.
        rename: Class name of a category that the file calls otherwise; several categories may
            become one class.

    >>> own = ClassMap(known=("car",)).translate(("car", "deer"), (None, None), source="gt.json")
    >>> [role.value for role in own.classes.roles]
    ['known', 'unknown']
    >>> benchmark = ClassMap(classes=("sofa", "cat"), rename={"couch": "sofa"})
    >>> found = benchmark.translate(("Cat", "deer", "couch"), (None,) * 3, source="gt.json")
    >>> found.classes.names, found.class_ids.tolist()
    (('sofa', 'cat', 'deer'), [1, 2, 0])
    """

    version: Literal[1] = 1
    known: tuple[str, ...] | None = None
    unknown: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()
    superclasses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    categories: Mapping[int, str] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    rename: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        roles = {"known": self.known or (), "unknown": self.unknown or (), "ignored": self.ignored}
        if self.classes is None:
            _refuse_repeats(roles, "a class has one role")
        _refuse_repeats(self.superclasses, "a class has one super-class")
        for number in self.categories:
            if not -(2**63) <= number < 2**63:
                raise InvalidDataError(f"category id {number} is too large; use 64 bits.")
        if self.known == ():
            raise InvalidDataError(
                "The list of known classes is empty; leave it out to make every class known, "
                "or name at least one."
            )

    def translate(
        self, categories: Sequence[str], superclasses: Sequence[str | None], *, source: str
    ) -> Translation:
        """Return the classes that categories become, with roles and super-classes.

        The classes of a benchmark come first, then the others in the order of the file; a
        benchmark has at least one unknown class in every set.

        Args:
            categories: Names of the categories of the file.
            superclasses: Super-class of each category.
            source: The file, for messages.
        """
        own = {plain(name): name for name in self.classes or ()}
        renamed = (self.rename.get(name, name) for name in categories)
        named = [own.get(plain(name), name) for name in renamed]
        self._check_listed_names(categories, named, source)
        roles = self._roles(categories, named, source)
        overridden = {name: top for top, below in self.superclasses.items() for name in below}
        pairs = zip(categories, superclasses, strict=True)
        above = tuple(overridden.get(name, superclass) for name, superclass in pairs)
        first = dict(zip(reversed(named), reversed(above), strict=True))  # the first one counts
        names = tuple(roles)
        classes = Classes(names, tuple(roles.values()), tuple(first.get(name) for name in names))
        class_ids = np.array([names.index(name) for name in named], np.int32)
        return Translation(classes, class_ids, above)

    def _roles(
        self, categories: Sequence[str], named: Sequence[str], source: str
    ) -> dict[str, Role]:
        """Return the role of every class, in the order of the classes."""
        roles = dict.fromkeys(self.classes or (), Role.KNOWN)
        for category, name in zip(categories, named, strict=True):
            role = self._role_of(category, name, source)
            if roles.setdefault(name, role) is not role:
                raise InvalidDataError(
                    f"{source}: category {category!r} is {role.value}, but its class {name!r} "
                    f"is {roles[name].value}; correct the lists, or rename it."
                )
        if self.classes is not None and Role.UNKNOWN not in roles.values():
            spare = ("unknown", "unknown class")  # a file may call unknown what is ignored
            roles[next(name for name in spare if name not in roles)] = Role.UNKNOWN
        return roles

    def _role_of(self, category: str, name: str, source: str) -> Role:
        if category in self.ignored:
            return Role.IGNORED
        if category in (self.unknown or ()):
            return Role.UNKNOWN
        if category in (self.known or ()) or name in (self.classes or ()):
            return Role.KNOWN
        if self.classes is not None:
            return Role.UNKNOWN if self.unknown is None else Role.IGNORED
        if category == "unknown":
            return Role.UNKNOWN
        if self.known is None:
            return Role.KNOWN
        if self.unknown is None:
            return Role.UNKNOWN
        raise InvalidDataError(
            f"{source} has a category {category!r}, to which the class map gives no role; "
            f"add it to known, unknown or ignored, or leave one of known and unknown out."
        )

    def _check_listed_names(
        self, categories: Sequence[str], named: Sequence[str], source: str
    ) -> None:
        """Refuse listed names that no category of the file has."""
        below = (name for names in self.superclasses.values() for name in names)
        listed = (*(self.known or ()), *(self.unknown or ()), *self.ignored, *below)
        # one table of names may serve several files, of which some lack the category or already
        # call it as the benchmark does
        pairs = zip(categories, named, strict=True)
        others = [category for category, name in pairs if name not in (self.classes or ())]
        misspelt = [n for n in self.rename if n not in categories and find_spelling(n, others)]
        for name in (*listed, *misspelt):
            if name not in categories:
                raise unknown_name(f"category of {source}", name, categories)


def with_known(class_map: ClassMap | None, known: Sequence[str] | None) -> ClassMap:
    """Return a class map with a separate list of known classes added.

    >>> with_known(None, ["car"]).known
    ('car',)
    """
    class_map = class_map or ClassMap()
    if known is None:
        return class_map
    if class_map.known is not None:
        raise InvalidDataError(
            "The known classes are given twice, as a list and in the class map; "
            "keep one of the two."
        )
    return replace(class_map, known=tuple(known))


def load_class_map(path: str | PathLike[str]) -> ClassMap:
    """Load a class map from a TOML file."""
    from incognita.formats.toml_files import check_table, load_toml  # pydantic is slow to import

    path = Path(path)
    content = load_toml(path, "class map")
    if "version" not in content:
        raise InvalidDataError(f"{path} has no version; begin the file with the line: version = 1")
    return check_table(ClassMap, content, str(path), keys=_FILE_KEYS)


def _refuse_repeats(groups: Mapping[str, Sequence[str]], rule: str) -> None:
    seen: dict[str, str] = {}
    for group, names in groups.items():
        for name in names:
            if name in seen:
                raise InvalidDataError(
                    f"Class {name!r} is listed under both {seen[name]!r} and {group!r}, "
                    f"but {rule}; keep one."
                    if seen[name] != group
                    else f"Class {name!r} is listed twice under {group!r}; keep one."
                )
            seen[name] = group
