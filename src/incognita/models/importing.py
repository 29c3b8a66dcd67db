"""Python files of the user as modules, under names that collide with nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from incognita.errors import InvalidDataError, MissingDataError


@contextmanager
def importable(path: Path | None) -> Iterator[ModuleType | None]:
    """Import a file for the time being; files beside it can be imported while this lasts.

    The module stays known under a private name made of its path, as pickled objects of its classes
    need it; the search path is left as it was.
    """
    if path is None:
        yield None
        return
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        yield _imported(path)
    finally:
        sys.path.remove(folder)


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise MissingDataError(f"There is no file at {path}; check the path.")
    name = f"_incognita_file_{path.stem}_{sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidDataError(f"{path} is no Python file; name one that ends in .py.")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidDataError(
            f"{path} could not be imported: {type(error).__name__}: {error}; run it by itself."
        ) from error
    return module
