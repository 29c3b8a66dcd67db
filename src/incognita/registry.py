"""Registries: names and the objects they stand for, imported on first use."""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
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
        return _load(module, attribute, needed_by=f"The {self.kind} {name}")

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
        module, _, attribute = self.homes[name].partition(":")
        source = find_spec(module)
        assert source is not None
        assert source.origin is not None
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
        """List the names that match a pattern such as `ash-*`."""
        return [name for name in self.homes if fnmatchcase(name, pattern)]


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
