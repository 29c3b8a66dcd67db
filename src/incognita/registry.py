"""Registries: names and the objects they stand for, imported on first use."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType
from typing import Any

from incognita.errors import MissingExtraError, unknown_name


@dataclass(frozen=True)
class Registry:
    """A table from names to `"module:attribute"`; modules are imported on first use.

    >>> numbers = Registry("number", {"pi": "math:pi"})
    >>> numbers.get("pi")
    3.141592653589793
    >>> numbers.get("pie")
    Traceback (most recent call last):
    incognita.errors.UnknownNameError: No number is called 'pie'. Did you mean pi?
    """

    kind: str
    homes: Mapping[str, str]

    def get(self, name: str) -> Any:
        """Import and return the object with this name; an unknown name raises with a suggestion."""
        if name not in self.homes:
            raise unknown_name(self.kind, name, self.homes)
        module, _, attribute = self.homes[name].partition(":")
        return getattr(import_module(module), attribute)

    def exports(self, **others: str) -> dict[str, list[str]]:
        """Return the attributes behind the names by module, for `attach`; `others` beside them."""
        found: dict[str, list[str]] = {}
        for home in dict.fromkeys([*self.homes.values(), *others.values()]):
            module, _, attribute = home.partition(":")
            found.setdefault(module, []).append(attribute)
        return found

    def names(self, pattern: str = "*") -> list[str]:
        """List the names that match a pattern such as `ash-*`."""
        return [name for name in self.homes if fnmatchcase(name, pattern)]


def need(library: str, *, extra: str) -> ModuleType:
    """Import an optional library; if it is missing, raise with the install command.

    >>> need("math", extra="numbers").floor(2.5)
    2
    """
    try:
        return import_module(library)
    except ImportError as error:
        raise MissingExtraError(
            f"{library} is needed for this and not installed: pip install 'incognita[{extra}]'."
        ) from error


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
        return getattr(import_module(homes[name], package), name)

    names = sorted(homes)  # a package may add names of its own
    return get, lambda: sorted(names), names
