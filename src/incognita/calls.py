"""Parser of typed calls such as `knn(k=10)`; nothing in them is executed."""

import ast
import re
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from incognita.errors import InvalidDataError

_TOKENS = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|.""", re.DOTALL)  # quotes stay whole
_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    NoneType: "None",
}


class Call(NamedTuple):
    """A name and the values in the brackets behind it.

    Args:
        name: What stands before the brackets.
        arguments: Values without a name.
        parameters: Values by name.
        has_brackets: Whether there were brackets, even empty ones.
    """

    name: str
    arguments: list[Any]
    parameters: dict[str, Any]
    has_brackets: bool


def split_calls(text: str, separator: str = ",") -> list[str]:
    """Split a list of calls at a separator, but not inside brackets or quotes.

    >>> split_calls("msp, knn(k=10), oodl(nu=0.1, kernel='rbf')")
    ['msp', 'knn(k=10)', "oodl(nu=0.1, kernel='rbf')"]
    """
    parts, depth = [""], 0
    for token in _TOKENS.findall(text):
        depth += (token in tuple("([{")) - (token in tuple(")]}"))
        if token == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts]


def parse_call(text: str, *, kind: str, example: str) -> Call:
    """Parse a name, or `file.py:Name`, with optional literal values in brackets.

    Args:
        text: What was typed.
        kind: What the name should be, for messages: a method, a policy.
        example: A valid call, for messages.

    >>> parse_call("knn(k=10)", kind="method", example="knn(k=50)")
    Call(name='knn', arguments=[], parameters={'k': 10}, has_brackets=True)
    """
    match = re.fullmatch(r"((?:.+?\.py:)?[\w-]+)\s*(?:\((.*)\))?", text.strip(), re.DOTALL)
    if match is None:
        raise InvalidDataError(f"Expected the name of a {kind}, got {text!r:.80}. Write {example}.")
    name, brackets = match[1], match[2]
    arguments, parameters = _literals(name, brackets or "", example)
    return Call(name, arguments, parameters, has_brackets=brackets is not None)


def _literals(name: str, brackets: str, example: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        call = ast.parse(f"f({brackets})", mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("there is more than one pair of brackets")
        if any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("a parameter is written name=value")
        names = [str(keyword.arg) for keyword in call.keywords]
        if repeated := [parameter for parameter in names if names.count(parameter) > 1]:
            raise ValueError(f"{repeated[0]} is given twice")
        arguments = [ast.literal_eval(argument) for argument in call.args]
        values = [ast.literal_eval(keyword.value) for keyword in call.keywords]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise InvalidDataError(
            f"Expected parameters of {name}, got ({brackets:.80}): {reason}. Write {example}."
        ) from None
    return arguments, dict(zip(names, values, strict=True))


def check_types(name: str, function: Any, parameters: dict[str, Any]) -> None:
    """Raise if a value does not fit the annotation of its parameter.

    >>> def knn(k: int = 50): ...
    >>> check_types("knn", knn, {"k": "a"})
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: Expected k of knn to be a whole number, got 'a'.
    """
    hints = get_type_hints(function)
    for parameter, value in parameters.items():
        if parameter in hints and not _fits(value, hints[parameter]):
            raise InvalidDataError(
                f"Expected {parameter} of {name} to be {_in_words(hints[parameter])}, "
                f"got {value!r:.80}."
            )


def _fits(value: Any, hint: Any) -> bool:
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in options)
    if origin is Literal:
        return any(
            value is option or (type(value) is type(option) and value == option)
            for option in options
        )
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(value, options)
    if isinstance(value, bool):  # an int to Python, but not to people
        return hint is bool or hint is Any
    if hint is float:
        return isinstance(value, int | float)
    return not isinstance(hint, type) or isinstance(value, hint)


def _items_fit(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if hints[-1:] == (...,):
        return all(_fits(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(_fits, values, hints))


def _in_words(hint: Any) -> str:
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # a number may be whole
        shown = [option for option in options if not (option is int and float in options)]
        return " or ".join(map(_in_words, shown))
    if origin is Literal:
        return " or ".join(map(repr, options))
    if origin is tuple and options[-1:] == (...,):
        return f"a tuple of values, each {_in_words(options[0])}"
    if origin is tuple:
        return f"a tuple of {len(options)}: {', '.join(map(_in_words, options))}"
    return _TYPE_NAMES.get(hint, f"a {getattr(hint, '__name__', hint)}")
