"""Which categories of an annotation file are known, unknown or ignored: a small TOML file.

version = 1
known = ["car", "person"]     # by default every category but the one called "unknown"
unknown = ["deer"]            # by default, where `known` is given, every other category
ignored = ["caravan"]
[superclasses]                # override the `supercategory` of the annotation file
vehicle = ["car", "bus"]
[categories]                  # categories that only the detections use
81 = "unknown"
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from incognita.containers.classes import Classes, Role, find_spelling, plain
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.shapes import Int

if TYPE_CHECKING:
    from pydantic import ValidationError


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


@dataclass(frozen=True, kw_only=True)
class ClassMap:
    """The roles and super-classes that somebody gave to categories, by name.

    A plain dataclass, so that whoever needs no file does not wait for pydantic; pydantic checks
    what `load_class_map` reads.

    Args:
        version: Of this format.
        known: The classes the model was trained on; None stands for all the others.
        unknown: The classes it was not trained on; None stands for all the others if `known` is
            given, else for the one called "unknown".
        ignored: Classes that count neither way.
        superclasses: The classes of each super-class.
        categories: Name of each category id that the annotation file does not list.

    >>> ClassMap(known=("car",)).classes_of(("car", "deer"), (None, None), source="gt.json").roles
    (<Role.KNOWN: 'known'>, <Role.UNKNOWN: 'unknown'>)
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    version: Literal[1] = 1
    known: tuple[str, ...] | None = None
    unknown: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()
    superclasses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    categories: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        roles = {"known": self.known or (), "unknown": self.unknown or (), "ignored": self.ignored}
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

    def _names(self) -> Iterator[str]:
        for names in (self.known or (), self.unknown or (), self.ignored):
            yield from names
        for names in self.superclasses.values():
            yield from names

    def classes_of(
        self, names: Sequence[str], superclasses: Sequence[str | None], *, source: str
    ) -> Classes:
        """Give these classes their roles and super-classes; `source` says where they come from."""
        for name in self._names():
            if name not in names:
                raise unknown_name(f"category of {source}", name, names)
        overridden = {name: above for above, below in self.superclasses.items() for name in below}
        above = [overridden.get(name, each) for name, each in zip(names, superclasses, strict=True)]
        roles = tuple(self._role_of(name, source) for name in names)
        return Classes(tuple(names), roles, tuple(above))

    def _role_of(self, name: str, source: str) -> Role:
        if name in self.ignored:
            return Role.IGNORED
        if name in (self.unknown or ()):
            return Role.UNKNOWN
        if name in (self.known or ()):
            return Role.KNOWN
        if name == "unknown":
            return Role.UNKNOWN
        if self.known is None:
            return Role.KNOWN
        if self.unknown is None:
            return Role.UNKNOWN
        raise InvalidDataError(
            f"{source} has a category {name!r}, to which the class map gives no role; "
            f"add it to known, unknown or ignored, or leave one of known and unknown out."
        )


def with_known(class_map: ClassMap | None, known: Sequence[str] | None) -> ClassMap:
    """Join a class map with a list of known classes that was given apart from it.

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
    """Read a class map from a TOML file."""
    from pydantic import TypeAdapter, ValidationError  # slow to import, and seldom needed

    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"There is no class map at {path}; give the path of a TOML file.")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidDataError(f"{path} is not TOML: {error}; correct the file.") from error
    if "version" not in content:
        raise InvalidDataError(f"{path} has no version; begin the file with the line: version = 1")
    try:
        return TypeAdapter(ClassMap).validate_python(content)
    except ValidationError as error:
        raise InvalidDataError(f"{path}: {_sentence(error)}") from error


def _sentence(error: "ValidationError") -> str:
    """Say the first thing that is wrong with a file in our words."""
    first = error.errors()[0]
    if first["type"] == "value_error":  # raised by the class map itself
        return str(first["ctx"]["error"])
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "unexpected_keyword_argument":
        keys = sorted(each.name for each in fields(ClassMap))
        close = get_close_matches(place, keys, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of: {', '.join(keys)}."
        return f"a class map has no key {place!r}; {hint}"
    problem = first["msg"].lower().replace("valid tuple", "list")
    return f"{place} is {first['input']!r}, which is wrong: {problem}."


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
