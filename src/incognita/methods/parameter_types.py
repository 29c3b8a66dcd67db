"""Whether a value may be a parameter, by the annotation of the field it is meant for."""

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from incognita.errors import InvalidDataError

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    NoneType: "None",
}


def check_types(name: str, kind: Any, parameters: dict[str, Any]) -> None:
    """Refuse a value that the annotation of its parameter does not allow.

    >>> def knn(k: int = 50): ...
    >>> check_types("knn", knn, {"k": "a"})
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: k of knn must be a whole number, but 'a' came.
    """
    hints = get_type_hints(kind)
    for parameter, value in parameters.items():
        if parameter in hints and not _fits(value, hints[parameter]):
            raise InvalidDataError(
                f"{parameter} of {name} must be {_in_words(hints[parameter])}, "
                f"but {value!r:.80} came."
            )


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is Literal:
        return any(
            value is each or (type(value) is type(each) and value == each) for each in arguments
        )
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(value, arguments)
    if isinstance(value, bool):  # to Python it is a whole number, to people it is not
        return hint is bool or hint is Any
    if hint is float:
        return isinstance(value, int | float)
    return not isinstance(hint, type) or isinstance(value, hint)


def _items_fit(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if hints[-1:] == (...,):
        return all(_fits(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(_fits, values, hints))


def _in_words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # a number may be whole
        kept = [each for each in arguments if not (each is int and float in arguments)]
        return " or ".join(_in_words(each) for each in kept)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is tuple and arguments[-1:] == (...,):
        return f"a tuple in which each is {_in_words(arguments[0])}"
    if origin is tuple:
        return f"a tuple of {len(arguments)}: {', '.join(map(_in_words, arguments))}"
    return _WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")
