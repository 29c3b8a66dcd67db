"""From a TOML file to rules for splits or to lists of image ids, or to one sentence."""

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from incognita.benchmarks.splits.rules import (
    SPLITS,
    Base,
    Candidates,
    IdLists,
    ImageFolders,
    SplitRules,
)
from incognita.errors import InvalidDataError, MissingDataError, unknown_name

Table = TypeVar("Table", bound=BaseModel)
SHIPPED = Path(__file__).parent / "definitions" / "splits"
_TABLES: Mapping[str, type[BaseModel]] = {
    "candidates": Candidates,
    "base": Base,
    "image_folders": ImageFolders,
}


class FoundRules(NamedTuple):
    """Rules and the file they come from."""

    rules: SplitRules
    file: str
    content_hash: str


def list_rules() -> list[str]:
    """List the names of the rules that ship with the package.

    >>> list_rules()[0]
    'fmiyc-bdd-coco'
    """
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_rules(name_or_path: str | PathLike[str]) -> FoundRules:
    """Read rules of ours by their name, or anybody's from a TOML file."""
    name = fspath(name_or_path)
    if not name.endswith(".toml") and name not in list_rules():
        raise unknown_name("rules file", name, list_rules())
    path = Path(name) if name.endswith(".toml") else SHIPPED / f"{name}.toml"
    content, content_hash = _load_toml(path, "rules file")
    return FoundRules(parse_rules(content, source=path.name), path.name, content_hash)


def parse_rules(content: Mapping[str, Any], *, source: str) -> SplitRules:
    """Check what a rules file says; `source` names it in the sentence about what is wrong.

    >>> parse_rules({"name": "mine", "version": 1, "knwon": ["car"]}, source="mine.toml")
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: mine.toml has no use for the key 'knwon'; did you mean known?
    """
    return _checked(SplitRules, content, source)


class FoundIds(NamedTuple):
    """Lists of ids, by the name of the rules they belong to, and the file they come from."""

    lists: Mapping[str, IdLists]
    file: str
    content_hash: str


def load_ids(path: str | PathLike[str], names: Sequence[str]) -> FoundIds:
    """Read lists of image ids from a TOML file with a table for each of the rules.

    version = 1
    [fmiyc-voc-coco]
    remove_ids = [724, 1268]
    [fmiyc-voc-coco.candidates]
    near = [285388]

    Args:
        path: The file.
        names: The names of rules that a table may be called after.
    """
    path = Path(path)
    content, content_hash = _load_toml(path, "file of image ids")
    if content.pop("version", None) != 1:
        raise InvalidDataError(f"{path.name} must begin with the line: version = 1")
    lists = {}
    for name, table in content.items():
        if name not in names:
            raise InvalidDataError(f"{path.name}: {unknown_name('rules file', name, names)}")
        if not isinstance(table, dict):
            raise InvalidDataError(
                f"{path.name}: {name} is {table!r}, but a table with lists of ids is expected: "
                f"begin it with the line [{name}]."
            )
        lists[name] = _checked(IdLists, table, f"{path.name}, table {name}")
    return FoundIds(lists, path.name, content_hash)


def with_ids(rules: SplitRules, lists: IdLists) -> SplitRules:
    """Add lists of ids to those that rules have already."""
    added = lists.by_name()
    joined = {name: own + added[name] for name, own in rules.by_name().items()}
    candidates = Candidates(**{split: joined.pop(f"candidates.{split}") for split in SPLITS})
    return rules.model_copy(update=joined | {"candidates": candidates})


def _load_toml(path: Path, what: str) -> tuple[dict[str, Any], str]:
    if not path.is_file():
        raise MissingDataError(f"There is no {what} at {path}; give the path of a TOML file.")
    data = path.read_bytes()
    try:
        return tomllib.loads(data.decode("utf-8")), sha256(data).hexdigest()
    except ValueError as error:
        raise InvalidDataError(f"{path} is not TOML: {error}; correct the file.") from error


def _checked(model: type[Table], content: Mapping[str, Any], source: str) -> Table:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InvalidDataError(_sentence(error, model, source)) from error


def _sentence(error: ValidationError, model: type[BaseModel], source: str) -> str:
    """Say the first thing that is wrong with a file in our words."""
    # a key that is misspelt is also missing: the spelling is what to tell
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    if first["type"] == "value_error":  # raised by the rules themselves
        return f"{source}: {first['ctx']['error']}."
    *tables, key = [part for part in first["loc"] if isinstance(part, str)] or ["it"]
    if first["type"] == "missing":
        return f"{source} has no key {'.'.join([*tables, key])!r}; add it."
    if first["type"] == "extra_forbidden":
        return f"{source} has no use for the key {key!r}; {_hint(key, tables, model)}"
    place = ".".join(part for part in [*tables, key] if part not in ("int", "str", "[key]"))
    is_list_of_ids = place.endswith("_ids") or place.startswith("candidates.")
    problem = "expected image ids, whole numbers or text" if is_list_of_ids else first["msg"]
    return f"{source}: {place} holds {first['input']!r:.60}, which is wrong: {problem.lower()}."


def _hint(key: str, tables: Sequence[str], model: type[BaseModel]) -> str:
    keys = sorted((_TABLES[tables[0]] if tables else model).model_fields)
    close = get_close_matches(key, keys, n=1)
    return f"did you mean {close[0]}?" if close else f"choose one of: {', '.join(keys)}."
