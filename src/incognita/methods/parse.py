"""Builds methods from text such as `react(percentile=95)+knn(k=10)` or `file.py:Class(k=3)`."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from incognita.calls import check_types, parse_call, split_calls
from incognita.errors import IncognitaError, InvalidDataError, unknown_name
from incognita.methods import METHODS
from incognita.methods.method import Method
from incognita.models.fingerprints import importable

_EXAMPLE = "msp, react+knn, knn(k=10) or file.py:Class(k=3)"

# a word between two plus signs, and the parameters in the brackets behind it, if it has brackets
Part = tuple[str, Mapping[str, Any] | None]


def parse_method(text: str) -> Method:
    """Build a method from its name or file, with optional parameters in brackets.

    >>> parse_method("knn(k=10)").k
    10
    >>> parse_method("react(percentile=95)+knn(k=10)").scorer.k
    10
    """
    calls = [parse_call(part, kind="method", example=_EXAMPLE) for part in split_calls(text, "+")]
    if unnamed := next((call for call in calls if call.arguments), None):
        raise InvalidDataError(
            f"Expected parameters of {unnamed.name} by name, got {unnamed.arguments[0]!r:.80}. "
            f"Write {_EXAMPLE}."
        )
    return build_chain([(c.name, c.parameters if c.has_brackets else None) for c in calls])


def build(name: str, parameters: Mapping[str, Any]) -> Method:
    """Build the methods of a name; the parameters are those of the first one."""
    return build_chain([(word, None) for word in name.split("+")], parameters)


def build_chain(parts: Sequence[Part], of_first: Mapping[str, Any] | None = None) -> Method:
    """Build methods that wrap one another, each with its own parameters.

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
    """Return the length of the longest prefix that is a registered name."""
    for n in range(len(parts), 0, -1):
        name = "+".join(word for word, _ in parts[:n])
        is_one_name = all(parameters is None for _, parameters in parts[: n - 1])
        is_known = name in METHODS or (n == 1 and _is_in_file(name))
        if not is_known or not is_one_name:
            continue
        if n == len(parts) or "scorer" in _parameter_names(name):
            return n
    first = parts[0][0]
    if first not in METHODS and not _is_in_file(first):
        raise unknown_name("method", first, METHODS.names())
    rest = "+".join(word for word, _ in parts[1:])
    raise InvalidDataError(
        f"{first} cannot wrap {rest}: it does not reshape features; put a method that does in "
        f"front, such as react+{first}."
    )


def _make(name: str, parameters: Mapping[str, Any]) -> Method:
    kind = _kind(name)
    known = _parameter_names(name)
    if parameters and isinstance(kind, type) and "__dataclass_fields__" not in vars(kind):
        raise InvalidDataError(
            f"Expected {name} to be a dataclass, whose fields are its parameters. Write "
            f"@dataclass(eq=False) above the class."
        )
    for parameter in parameters:
        if parameter not in known:
            raise unknown_name(f"parameter of {name}", parameter, known)
    values = {parameter: _plain(value) for parameter, value in parameters.items()}
    try:
        check_types(name, kind, values)
        method: Method = kind(**values)
    except (IncognitaError, MemoryError):
        raise
    except Exception as error:  # a user's class may fail in any way
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidDataError(f"{name} could not be built: {problem}.") from error
    if not isinstance(method, Method):  # of a plug-in
        raise InvalidDataError(
            f"Expected {name} to be a subclass of incognita.methods.Method, got "
            f"{type(method).__name__}. Ask its author."
        )
    return method


def _is_in_file(name: str) -> bool:
    return name.rpartition(":")[0].endswith(".py")


def _kind(name: str) -> Any:
    """Return what is registered under a name, or the class of a file."""
    if not _is_in_file(name):
        return METHODS.get(name)
    file, _, title = name.rpartition(":")
    path = Path(file).expanduser().resolve()
    defined = _defined_in(path)
    methods = methods_in(path)
    if title not in defined:
        raise unknown_name(f"method of {path.name}", title, methods)
    if title not in methods:
        raise InvalidDataError(
            f"Expected {title} of {path.name} to be a subclass of Method that is defined there. "
            f"Methods of this file: {', '.join(methods) or 'none'}."
        )
    return defined[title]


def methods_in(path: Path) -> list[str]:
    """Import a file, and list the methods that are defined there."""
    return [key for key, value in _defined_in(path).items() if _is_own_method(value)]


def _defined_in(path: Path) -> dict[str, Any]:
    with importable(path) as module:
        return {key: value for key, value in vars(module).items() if not key.startswith("_")}


def _is_own_method(value: Any) -> bool:
    is_method = isinstance(value, type) and issubclass(value, Method)
    return is_method and not value.__module__.startswith("incognita.")


def _plain(value: Any) -> Any:
    """Convert lists to tuples and numbers of numpy to those of Python."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _parameter_names(name: str) -> list[str]:
    kind = _kind(name)
    if isinstance(kind, type):
        return [field.name for field in fields(kind)]
    return list(inspect.signature(kind).parameters)
