"""Adapters that reach another process together with the file that defines their network."""

import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from incognita.errors import InvalidDataError
from incognita.models.importing import importable

# of adapters of the user's own; by class, because other rules make another object
_SOURCES: WeakKeyDictionary[type, Path] = WeakKeyDictionary()


class Sendable:
    """What an adapter inherits so that worker processes can have it.

    `source` is the file of the user that its network comes from, which a worker must import first.
    """

    name: str
    source: Path | None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Sendable":
        """Copy within this process, where a lambda as preprocessing is no hindrance."""
        copy = object.__new__(type(self))
        memo[id(self)] = copy
        copy.__dict__.update(deepcopy(self.__dict__, memo))
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle together with the file that defines the network."""
        try:
            # the class too: it may stand in the file that must be imported before
            return _unpickled, (self.source, pickle.dumps((type(self), self.__dict__)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidDataError(
                f"{self.name} cannot be sent to another process ({error}); define its network and "
                f"preprocessing at the top of a file, not in a function or as a lambda."
            ) from error


def note_source(model: object, path: Path) -> None:
    """Remember the file of the user that a model comes from."""
    if isinstance(model, Sendable):
        model.source = path
    else:
        _SOURCES[type(model)] = path


def source_of(model: object) -> Path | None:
    """Give the file that another process must import before it can have the model, if any."""
    return model.source if isinstance(model, Sendable) else _SOURCES.get(type(model))


def _unpickled(source: Path | None, state: bytes) -> Sendable:
    with importable(source):
        kind, attributes = pickle.loads(state)
        adapter: Sendable = object.__new__(kind)
        adapter.__dict__.update(attributes)
    return adapter
