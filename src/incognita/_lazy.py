"""Lazy re-exports: a package lists its public names and imports a module on first use."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


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
