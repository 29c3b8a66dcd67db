"""From the content of a TOML file to a definition, or to one sentence about what is wrong."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from incognita.benchmarks.definition import Definition, Preprocessing, Source
from incognita.benchmarks.set_entries import (
    CocoSet,
    DigitsSet,
    FolderSet,
    ImglistSet,
    TerraScenesSet,
    TerraSet,
)
from incognita.errors import InvalidDataError


def parse_definition(content: Mapping[str, Any], *, source: str) -> Definition:
    """Check what a file says; `source` names it in the sentence about the first thing wrong.

    >>> parse_definition({"name": "mine", "titel": "Mine"}, source="mine.toml")
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: mine.toml has no use for the key 'titel'; did you mean title?
    """
    try:
        return Definition.model_validate(content)
    except ValidationError as error:
        raise InvalidDataError(_sentence(error, content, source)) from error


def _sentence(error: ValidationError, content: Mapping[str, Any], source: str) -> str:
    """Say the first thing that is wrong with a file in our words."""
    # a key that is misspelt is also missing: the spelling is what to tell
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    if first["type"] == "value_error":  # raised by the definition itself
        return f"{source}: {first['ctx']['error']}."
    place, model, keys = _place(first["loc"], content)
    where = f"{source}: {place}" if place else source
    if not keys:
        return f"{where} needs to be a table with a kind: {', '.join(_KINDS)}."
    if first["type"] == "missing":
        return f"{where} has no key {keys[0]!r}; add it."
    if first["type"] == "extra_forbidden":
        return f"{where} has no use for the key {keys[0]!r}; {_hint(str(keys[0]), model)}"
    problem = _CHOICES.get(str(keys[0])) or first["msg"].lower()
    shown = f"{first['input']!r:.60}"
    return f"{where}: {keys[0]} holds {shown}, which is wrong: {problem}."


def _place(
    location: tuple[int | str, ...], content: Mapping[str, Any]
) -> tuple[str, type[BaseModel], tuple[int | str, ...]]:
    """Name the part of the file that is wrong, the model that checks it, and the keys in it."""
    table, *rest = location
    if table == "set" and rest:
        kind = str(rest[1]) if len(rest) > 1 else ""
        return _set_name(rest[0], content), _KINDS.get(kind, BaseModel), tuple(rest[2:])
    if table == "sources" and len(rest) > 1:
        return f"sources.{rest[0]}", Source, tuple(rest[1:])
    if table == "preprocessing" and rest:
        return "preprocessing", Preprocessing, tuple(rest)
    return "", Definition, location


def _set_name(index: int | str, content: Mapping[str, Any]) -> str:
    entry = content["set"][index]
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return f"set {name!r}" if name else f"set number {int(index) + 1}"


def _hint(key: str, model: type[BaseModel]) -> str:
    keys = sorted(model.model_fields)
    close = get_close_matches(key, keys, n=1)
    return f"did you mean {close[0]}?" if close else f"choose one of: {', '.join(keys)}."


_KINDS: dict[str, type[BaseModel]] = {
    "imglist": ImglistSet,
    "folder": FolderSet,
    "terra": TerraSet,
    "digits": DigitsSet,
    "coco": CocoSet,
    "terra-scenes": TerraScenesSet,
}
# for keys that take more than one kind of value, of which pydantic would name only the first
_CHOICES = {
    "classes": "expected names in a list, how many there are, or a name",
    "fold": "expected which part and of how many, such as [0, 2]",
}
