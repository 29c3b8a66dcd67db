"""From a name such as `react+knn` to methods that hand over to each other."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from incognita.calls import check_types
from incognita.errors import InvalidDataError, unknown_name
from incognita.methods import METHODS
from incognita.methods.method import Method

# a word between two plus signs, and the parameters in the brackets behind it, if it has brackets
Part = tuple[str, Mapping[str, Any] | None]


def build(name: str, parameters: Mapping[str, Any]) -> Method:
    """Make the methods of a name; the parameters are those of the first one."""
    return build_chain([(word, None) for word in name.split("+")], parameters)


def build_chain(parts: Sequence[Part], of_first: Mapping[str, Any] | None = None) -> Method:
    """Make methods that hand over to each other, each with parameters of its own.

    >>> chain = build_chain([("react", {"percentile": 95}), ("knn", {"k": 10})])
    >>> chain.percentile, chain.scorer.k
    (95, 10)
    """
    n_words = _n_words_of_first(parts)
    name = "+".join(word for word, _ in parts[:n_words])
    parameters = {**(of_first or {}), **(parts[n_words - 1][1] or {})}
    if n_words < len(parts):
        parameters["scorer"] = build_chain(parts[n_words:])
    return _make(name, parameters)


def _n_words_of_first(parts: Sequence[Part]) -> int:
    """How many words name the first method: as many as make a name that can stand there."""
    for n in range(len(parts), 0, -1):
        name = "+".join(word for word, _ in parts[:n])
        is_one_name = all(parameters is None for _, parameters in parts[: n - 1])
        if name not in METHODS.homes or not is_one_name:
            continue
        if n == len(parts) or "scorer" in _parameter_names(name):
            return n
    first = parts[0][0]
    if first not in METHODS.homes:
        raise unknown_name("method", first, METHODS.homes)
    rest = "+".join(word for word, _ in parts[1:])
    raise InvalidDataError(
        f"{first} cannot hand over to {rest}: it does not reshape features; put a method "
        f"that does in front, such as react+{first}."
    )


def _make(name: str, parameters: Mapping[str, Any]) -> Method:
    kind = METHODS.get(name)
    known = _parameter_names(name)
    for parameter in parameters:
        if parameter not in known:
            raise unknown_name(f"parameter of {name}", parameter, known)
    values = {parameter: _plain(value) for parameter, value in parameters.items()}
    check_types(name, kind, values)
    method: Method = kind(**values)
    return method


def _plain(value: Any) -> Any:
    """Give a list as a tuple and a number of numpy as one of Python: people mean the same."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _parameter_names(name: str) -> list[str]:
    kind = METHODS.get(name)
    if isinstance(kind, type):
        return [each.name for each in fields(kind)]
    return list(inspect.signature(kind).parameters)
