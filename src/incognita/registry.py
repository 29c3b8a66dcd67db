"""Names people type, and where the thing behind each name lives."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType
from typing import Any

from incognita.errors import MissingExtraError, unknown_name


@dataclass(frozen=True)
class Registry:
    """A table from names to `"module:attribute"`; a module is imported when its name is asked for.

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
        """Import and give what the name stands for; a typo is answered with a suggestion."""
        if name not in self.homes:
            raise unknown_name(self.kind, name, self.homes)
        module, _, attribute = self.homes[name].partition(":")
        return getattr(import_module(module), attribute)

    def names(self, pattern: str = "*") -> list[str]:
        """List the names that match a pattern such as `ash-*`."""
        return [name for name in self.homes if fnmatchcase(name, pattern)]


def need(library: str, *, extra: str) -> ModuleType:
    """Import an optional library, or say how to install it.

    >>> need("math", extra="numbers").floor(2.5)
    2
    """
    try:
        return import_module(library)
    except ImportError as error:
        raise MissingExtraError(
            f"{library} is needed for this and not installed: pip install 'incognita[{extra}]'."
        ) from error
