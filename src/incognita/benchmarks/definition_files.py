"""From the content of a TOML file to a definition, or to one sentence about what is wrong."""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from incognita.benchmarks.definition import (
    CocoSet,
    Definition,
    DigitsSet,
    FolderSet,
    ImglistSet,
    Preprocessing,
    Source,
    TerraScenesSet,
    TerraSet,
)
from incognita.errors import InvalidDataError, MissingDataError, unknown_name


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


SHIPPED = Path(__file__).parent / "definitions"
NO_BENCHMARKS = "splits"  # the folder with rules for building splits
OWN_KEYS = ("name", "version", "title")  # never taken over from the benchmark that is extended


class DefinitionFile(NamedTuple):
    """A definition and the file it comes from; `content_hash` covers what it extends, too."""

    definition: Definition
    path: Path
    is_shipped: bool
    content_hash: str

    @property
    def typed(self) -> str:
        """What a command takes for the benchmark: a name of ours, or the path of the file."""
        return self.definition.name if self.is_shipped else quote(str(self.path))


def list_benchmarks(pattern: str = "*") -> list[str]:
    """List the names of the benchmarks that ship with the package.

    >>> list_benchmarks("openood/cifar*")
    ['openood/cifar10', 'openood/cifar100']
    """
    paths = (path.relative_to(SHIPPED).with_suffix("") for path in SHIPPED.rglob("*.toml"))
    names = (path.as_posix() for path in paths if path.parts[0] != NO_BENCHMARKS)
    return sorted(name for name in names if fnmatchcase(name, pattern))


def find_definition(name_or_path: str | PathLike[str]) -> DefinitionFile:
    """Read the definition of one of our benchmarks, or of anybody's from its TOML file."""
    path = _path_of(fspath(name_or_path))
    content = _content(path, ())
    definition = parse_definition(content, source=str(path))
    content_hash = sha256(definition.model_dump_json().encode()).hexdigest()
    return DefinitionFile(definition, path, path.is_relative_to(SHIPPED), content_hash)


def _path_of(name: str, beside: Path | None = None) -> Path:
    if name.endswith(".toml"):
        path = Path(name) if beside is None else beside / name
        if not path.is_file():
            raise MissingDataError(
                f"There is no benchmark file {path}; give the path of a TOML file or the name of "
                f"a benchmark."
            )
        return path
    if name not in list_benchmarks():
        raise unknown_name("benchmark", name, list_benchmarks())
    return SHIPPED / f"{name}.toml"


def _content(path: Path, extended_by: tuple[Path, ...]) -> Mapping[str, Any]:
    """Read a file together with what it extends."""
    try:
        own = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidDataError(f"{path} is not TOML: {error}; correct the file.") from error
    base = own.get("extends")
    if not isinstance(base, str):
        return own
    chain = (*extended_by, path.resolve())
    above = _path_of(base, path.parent)
    if above.resolve() in chain:
        raise InvalidDataError(f"{path} extends itself by way of {base}; break the circle.")
    return _merged(_content(above, chain), own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a benchmark: sets by name, sources by name, any other key as a whole."""
    inherited = {key: value for key, value in base.items() if key not in OWN_KEYS}
    merged = {**inherited, **own}
    sets = own.get("set", [])
    if isinstance(sets, list):
        named = {_name(each) for each in sets}
        merged["set"] = [each for each in base.get("set", []) if _name(each) not in named] + sets
    if isinstance(own.get("sources"), Mapping):
        merged["sources"] = {**base.get("sources", {}), **own["sources"]}
    return merged


def _name(entry: Any) -> Any:
    return entry.get("name") if isinstance(entry, Mapping) else None
