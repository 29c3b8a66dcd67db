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
        exports: Public names by the module that defines them, relative to the package: `".ranking"`.

    >>> getattr_, dir_, all_ = attach("incognita", {".errors": ["InvalidDataError"]})
    >>> getattr_("InvalidDataError").__name__, dir_(), all_
    ('InvalidDataError', ['InvalidDataError'], ['InvalidDataError'])
    """
    homes = {name: module for module, names in exports.items() for name in names}
    public = sorted(homes)

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    def __dir__() -> list[str]:
        return list(public)

    return __getattr__, __dir__, public
