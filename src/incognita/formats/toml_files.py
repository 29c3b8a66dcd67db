"""TOML files checked against a model; whatever is wrong becomes one sentence."""

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from incognita.errors import InvalidDataError
from incognita.files import check_regular, why_unreadable

T = TypeVar("T")
# a misspelt key is also missing: the spelling is reported first
_UNEXPECTED = ("extra_forbidden", "unexpected_keyword_argument")


def load_toml(path: Path, kind: str) -> dict[str, Any]:
    """Load a TOML file that must exist; `kind` names it in messages, such as "class map"."""
    check_regular(path, kind, advice="give the path of a TOML file")
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))  # editors may add a BOM
    except (ValueError, RecursionError) as error:
        reason = why_unreadable(error)
        raise InvalidDataError(f"{path} is not TOML: {reason}; correct the file.") from error


def check_table(
    model: type[T], content: Mapping[str, Any], source: str, *, keys: Collection[str] | None = None
) -> T:
    """Build a model or dataclass from a table, or raise one sentence about the first error.

    A field with a `description` is explained by it, any other by pydantic's message.

    Args:
        model: A pydantic model or a dataclass.
        content: The table.
        source: Names the table in the sentence, such as the path of the file.
        keys: The keys that the table may have; by default the fields of the model.

    >>> class Rules(BaseModel, extra="forbid"):
    ...     known: list[str]
    >>> check_table(Rules, {"knwon": ["car"]}, "mine.toml")
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: mine.toml has no use for the key 'knwon'; did you mean known?
    """
    for key in content:
        if keys is not None and key not in keys:
            raise InvalidDataError(_unexpected(source, key, keys))
    try:
        return TypeAdapter(model).validate_python(content)
    except ValidationError as error:
        raise InvalidDataError(_sentence(error, model, content, source)) from error


def _sentence(
    error: ValidationError, model: type[Any], content: Mapping[str, Any], source: str
) -> str:
    first = min(error.errors(), key=lambda problem: problem["type"] not in _UNEXPECTED)
    if first["type"] == "value_error":  # raised by the model itself
        return f"{source}: {str(first['ctx']['error']).rstrip('.')}."
    key = str(first["loc"][-1])
    is_unexpected = first["type"] in _UNEXPECTED
    place, table = _locate(first["loc"][:-1] if is_unexpected else first["loc"], content, model)
    where = f"{source}: {'.'.join(place)}" if place else source
    if is_unexpected:
        return _unexpected(where, key, _fields_of(table))
    if first["type"] == "missing":
        return f"{where} has no key {key!r}; add it."
    described = getattr(_fields_of(table).get(place[-1]) if place else None, "description", None)
    problem = described or _in_terms_of_toml(first["msg"].lower())
    return f"{where} holds {first['input']!r:.60}, which is wrong: {problem}."


def _in_terms_of_toml(message: str) -> str:
    message = re.sub(r"valid dictionary( or instance of \w+)?", "table", message)
    return message.replace("valid tuple", "list")


def _unexpected(where: str, key: str, keys: Collection[str]) -> str:
    close = get_close_matches(key, keys, n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose one of: {', '.join(sorted(keys))}."
    return f"{where} has no use for the key {key!r}; {hint}"


def _locate(
    location: tuple[int | str, ...], content: Any, model: type[Any]
) -> tuple[list[str], type[Any]]:
    """Return the keys that lead to the error, and the model of the innermost table.

    The location that pydantic gives also holds places in lists and names of types.
    """
    place: list[str] = []
    for part in location:
        if not isinstance(content, Mapping) or part not in content:
            break
        content = content[part]
        place.append(str(part))
        field = _fields_of(model).get(str(part))
        if isinstance(content, Mapping):
            model = _model_in(getattr(field, "annotation", None)) or model
    return place, model


def _fields_of(model: type[Any]) -> Mapping[str, Any]:
    if issubclass(model, BaseModel):
        return model.model_fields
    return {field.name: field for field in fields(model)}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Find the model in an annotation such as `Table | None` or `Mapping[str, Table]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def toml_value(value: Any) -> str:
    """Write a value in TOML, whose text and numbers are written as in JSON.

    >>> toml_value({"dining table": "diningtable"})
    '{ "dining table" = "diningtable" }'
    """
    if isinstance(value, Mapping):
        inner = ", ".join(f"{toml_key(key)} = {toml_value(own)}" for key, own in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(key: str) -> str:
    """Write a key in TOML, in quotes where it needs them."""
    is_bare = key.replace("_", "").replace("-", "").isalnum() and key.isascii()
    return key if is_bare else toml_value(key)
