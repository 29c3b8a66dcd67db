"""Registries: names and the objects they stand for, imported on first use.

A distribution that is installed beside this package adds names through entry points: plug-ins.
"""

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from incognita.errors import InvalidDataError, MissingExtraError, unknown_name


class PlugIn(NamedTuple):
    """A name that a distribution adds.

    Args:
        name: What people type.
        home: `"module:attribute"`, or a package for a folder of benchmarks.
        distribution: Its name and version.
    """

    name: str
    home: str
    distribution: str


class PlugIns(NamedTuple):
    """The plug-ins of one group by name, and why others are left out."""

    found: Mapping[str, PlugIn]
    notes: tuple[str, ...]


def find_plug_ins(group: str, taken: Collection[str] = ()) -> PlugIns:
    """Find the entry points of a group; nothing is imported.

    Args:
        group: Such as `incognita.methods`.
        taken: Names that no plug-in may have, because they are ours.

    >>> find_plug_ins("incognita.nothing")
    PlugIns(found={}, notes=())
    """
    installed, broken = _installed(group, tuple(sys.path))
    found: dict[str, PlugIn] = {}
    notes = list(broken)
    for plug_in in installed:
        if reason := _refusal(plug_in, taken, found):
            notes.append(f"The plug-in {plug_in.name} of {plug_in.distribution} {reason}")
        else:
            found[plug_in.name] = plug_in
    return PlugIns(found, tuple(notes))


@lru_cache(maxsize=8)
def _installed(
    group: str, search_path: tuple[str, ...]
) -> tuple[tuple[PlugIn, ...], tuple[str, ...]]:
    """Read the metadata of all distributions on a search path; unreadable ones are notes."""
    from importlib.metadata import distributions  # only here: it takes as long as the rest

    found: dict[str, list[PlugIn]] = {}
    notes = []
    for distribution in distributions(path=list(search_path)):
        try:
            entries = distribution.entry_points.select(group=group)
            if not entries:
                continue
            name = f"{distribution.name} {distribution.version}"
            plug_ins = [PlugIn(e.name, e.value.replace(" ", ""), name) for e in entries]
            found.setdefault(distribution.name.lower(), plug_ins)  # the first one is imported
        except Exception as error:  # the files of others may hold anything
            place = getattr(distribution, "_path", "a distribution")
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            notes.append(f"The entry points of {place} cannot be read ({problem}). Reinstall it.")
    return tuple(sorted(p for plug_ins in found.values() for p in plug_ins)), tuple(notes)


def _refusal(plug_in: PlugIn, taken: Collection[str], found: Mapping[str, PlugIn]) -> str | None:
    if re.fullmatch(r"[\w-]+", plug_in.name) is None:
        return "is left out: expected a name of letters, digits, - and _. Rename it."
    if plug_in.name in taken:
        return "is left out: it has the name of a part of incognita. Rename it."
    if plug_in.name in found:
        other = found[plug_in.name].distribution
        return f"is left out: {other} has one of this name, too. Uninstall one of them."
    return None


@dataclass(frozen=True)
class Registry:
    """A table from names to `"module:attribute"`; modules are imported on first use.

    Args:
        kind: What the names are called in messages.
        homes: Our own names.
        group: The group of entry points that add names, if there is one.

    >>> numbers = Registry("number", {"pi": "math:pi"})
    >>> numbers.get("pi")
    3.141592653589793
    >>> numbers.get("pie")
    Traceback (most recent call last):
    incognita.errors.UnknownNameError: No number is called 'pie'. Did you mean pi?
    """

    kind: str
    homes: Mapping[str, str]
    group: str | None = None

    @property
    def plug_ins(self) -> PlugIns:
        """The names that installed distributions add."""
        return PlugIns({}, ()) if self.group is None else find_plug_ins(self.group, self.homes)

    def __contains__(self, name: str) -> bool:
        return name in self.homes or name in self.plug_ins.found

    def get(self, name: str) -> Any:
        """Import and return the object with this name; an unknown name raises with a suggestion."""
        if name in self.homes:
            module, _, attribute = self.homes[name].partition(":")
            return _load(module, attribute, needed_by=f"The {self.kind} {name}")
        if name not in self:
            raise unknown_name(self.kind, name, self.names())
        return self._load_plug_in(self.plug_ins.found[name])

    def _load_plug_in(self, plug_in: PlugIn) -> Any:
        module, _, attribute = plug_in.home.partition(":")
        try:
            return _load(module, attribute, needed_by=f"The {self.kind} {plug_in.name}")
        except MissingExtraError:
            raise
        except Exception as error:  # the code of others may fail in any way
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            raise InvalidDataError(
                f"The plug-in {plug_in.name} of {plug_in.distribution} cannot be imported: "
                f"{problem}. Update or uninstall it."
            ) from error

    def plug_in_of(self, thing: Any) -> PlugIn | None:
        """Return the plug-in that a class or function belongs to, if any."""
        home = f"{thing.__module__}:{thing.__qualname__}"
        return next((p for p in self.plug_ins.found.values() if p.home == home), None)

    def summary(self, name: str) -> str:
        """Return the first line of the docstring behind a name.

        >>> Registry("number", {"half": "fractions:Fraction"}).summary("half")
        'This class implements rational numbers.'
        """
        return self.docstring(name).partition("\n")[0]

    def docstring(self, name: str) -> str:
        """Return the docstring behind a name, or nothing.

        It is read from the source, since an import may wait for torch or fail without it.
        """
        home = self.homes.get(name) or self.plug_ins.found[name].home
        module, _, attribute = home.partition(":")
        source = find_spec(module)
        if source is None or source.origin is None:
            raise InvalidDataError(f"Expected the module {module} of {name}, found none.")
        body = ast.parse(Path(source.origin).read_text(encoding="utf-8")).body
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute:
                return ast.get_docstring(node) or ""
        return ""

    def exports(self, **others: str) -> dict[str, list[str]]:
        """Return the attributes behind the names by module, for `attach`; `others` beside them."""
        found: dict[str, list[str]] = {}
        for home in dict.fromkeys([*self.homes.values(), *others.values()]):
            module, _, attribute = home.partition(":")
            found.setdefault(module, []).append(attribute)
        return found

    def names(self, pattern: str = "*") -> list[str]:
        """List the names that match a pattern such as `ash-*`: ours, then those of plug-ins."""
        return [n for n in [*self.homes, *self.plug_ins.found] if fnmatchcase(n, pattern)]


TORCH = ("torch", "torchvision", "sklearn")  # what the extra `torch` installs, by import name


def need(library: str, *, extra: str, needed_by: str = "This") -> ModuleType:
    """Import an optional library; if it is missing, raise with the install command.

    >>> need("math", extra="numbers").floor(2.5)
    2
    """
    try:
        return import_module(library)
    except ImportError as error:
        raise _missing(library.partition(".")[0], extra, needed_by) from error


def _missing(library: str, extra: str, needed_by: str) -> MissingExtraError:
    return MissingExtraError(
        f"{needed_by} needs {library}. Install it with: pip install 'incognita[{extra}]'"
    )


def _load(module: str, attribute: str, *, needed_by: str, package: str | None = None) -> Any:
    """Import an attribute of a module; raise with the install command if it needs torch."""
    try:
        return getattr(import_module(module, package), attribute)
    except ModuleNotFoundError as error:
        if error.name not in TORCH:
            raise
        raise _missing(error.name, "torch", needed_by) from error


def attach(
    package: str, exports: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Build `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: The `__name__` of the package.
        exports: Public names by the module that defines them, such as `".ranking"`.

    >>> get, list_names, names = attach("incognita", {".errors": ["InvalidDataError"]})
    >>> get("InvalidDataError").__name__, list_names(), names
    ('InvalidDataError', ['InvalidDataError'], ['InvalidDataError'])
    """
    homes = {name: module for module, names in exports.items() for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return _load(homes[name], name, needed_by=f"{package}.{name}", package=package)

    names = sorted(homes)  # a package may add names of its own
    return get, lambda: sorted(names), names
