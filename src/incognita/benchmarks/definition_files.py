"""Finds definitions of benchmarks: those that ship with the package, and any TOML file."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from incognita.benchmarks.definition import Definition
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.formats.toml_files import check_table, load_toml

SHIPPED = Path(__file__).parent / "definitions"
RULES_FOLDER = "splits"  # rules for building splits, which are not benchmarks
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


def parse_definition(content: Mapping[str, Any], *, source: str) -> Definition:
    """Check the content of a definition file; `source` names it in the error message.

    >>> parse_definition({"name": "mine", "titel": "Mine"}, source="mine.toml")
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: mine.toml has no use for the key 'titel'; did you mean title?
    """
    return check_table(Definition, content, source)


def list_benchmarks(pattern: str = "*") -> list[str]:
    """List the names of the benchmarks that ship with the package.

    >>> list_benchmarks("openood/cifar*")
    ['openood/cifar10', 'openood/cifar100']
    """
    paths = (path.relative_to(SHIPPED).with_suffix("") for path in SHIPPED.rglob("*.toml"))
    names = (path.as_posix() for path in paths if path.parts[0] != RULES_FOLDER)
    return sorted(name for name in names if fnmatchcase(name, pattern))


def find_definition(name_or_path: str | PathLike[str]) -> DefinitionFile:
    """Load the definition of a shipped benchmark by its name, or any by the path of its file."""
    path = _path_of(fspath(name_or_path))
    definition = parse_definition(_content(path, ()), source=str(path))
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
    """Load a file together with what it extends."""
    own = load_toml(path, "benchmark file")
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
        named = {_name(entry) for entry in sets}
        kept = [entry for entry in base.get("set", []) if _name(entry) not in named]
        merged["set"] = kept + sets
    if isinstance(own.get("sources"), Mapping):
        merged["sources"] = {**base.get("sources", {}), **own["sources"]}
    return merged


def _name(entry: Any) -> Any:
    return entry.get("name") if isinstance(entry, Mapping) else None
