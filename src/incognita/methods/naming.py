"""From a name such as `react+knn` to methods that hand over to each other."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from incognita.errors import InvalidDataError, unknown_name
from incognita.methods import METHODS
from incognita.methods.method import Method


def build(name: str, parameters: Mapping[str, Any]) -> Method:
    """Make the methods of a name, the last one first; each shaping one hands over to the next."""
    if name in METHODS.homes:
        return _make(name, parameters)
    first, plus, rest = name.partition("+")
    if not plus or first not in METHODS.homes:
        raise unknown_name("method", first if plus else name, METHODS.homes)
    if "then" not in _fields(first):
        raise InvalidDataError(
            f"{first} cannot hand over to {rest}: it does not reshape features; put a method "
            f"that does in front, such as react+{first}."
        )
    return _make(first, {**parameters, "then": build(rest, {})})


def _make(name: str, parameters: Mapping[str, Any]) -> Method:
    kind = METHODS.get(name)
    known = _fields(name)
    for parameter in parameters:
        if parameter not in known:
            raise unknown_name(f"parameter of {name}", parameter, known)
    method: Method = kind(**parameters)
    return method


def _fields(name: str) -> list[str]:
    kind = METHODS.get(name)
    if isinstance(kind, type):
        return [each.name for each in fields(kind)]
    import inspect

    return list(inspect.signature(kind).parameters)
