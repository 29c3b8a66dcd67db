"""Finds definitions of benchmarks: those of the package and of plug-ins, and any TOML file."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from incognita.benchmarks.definition import Definition
from incognita.errors import InvalidDataError, unknown_name
from incognita.files import check_regular
from incognita.formats.data_folder import DataFolder
from incognita.formats.toml_files import check_table, load_toml
from incognita.registry import find_plug_ins

SHIPPED = Path(__file__).parent / "definitions"
GROUP = "incognita.benchmarks"  # of entry points
RULES_FOLDER = "splits"  # rules for building splits, which are not benchmarks
_LONGEST_CHAIN = 20  # files that extend one another
OWN_KEYS = ("name", "version", "title")  # never taken over from the benchmark that is extended


class DefinitionFile(NamedTuple):
    """A definition and the file it comes from; `content_hash` covers what it extends, too.

    `is_named` is whether it is found by name: it ships with the package or belongs to a plug-in.
    """

    definition: Definition
    path: Path
    is_shipped: bool
    is_named: bool
    content_hash: str

    @property
    def typed(self) -> str:
        """What a command takes for the benchmark: its name, or the path of the file."""
        return self.definition.name if self.is_named else quote(str(self.path))


class InstalledBenchmarks(NamedTuple):
    """The definition files of plug-ins by name, where they come from, and what is wrong."""

    paths: Mapping[str, Path]
    distributions: Mapping[str, str]
    notes: tuple[str, ...]


def parse_definition(content: Mapping[str, Any], *, source: str) -> Definition:
    """Check the content of a definition file; `source` names it in the error message.

    >>> parse_definition({"name": "mine", "titel": "Mine"}, source="mine.toml")
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: mine.toml has no use for the key 'titel'; did you mean title?
    """
    return check_table(Definition, content, source)


def list_benchmarks(pattern: str = "*") -> list[str]:
    """List the names of the benchmarks that ship with the package, then those of plug-ins.

    >>> list_benchmarks("openood/cifar*")
    ['openood/cifar10', 'openood/cifar100']
    """
    names = [*_shipped(), *installed_benchmarks().paths]
    return [name for name in names if fnmatchcase(name, pattern)]


def _shipped() -> list[str]:
    paths = (path.relative_to(SHIPPED).with_suffix("") for path in SHIPPED.rglob("*.toml"))
    return sorted(path.as_posix() for path in paths if path.parts[0] != RULES_FOLDER)


def installed_benchmarks() -> InstalledBenchmarks:
    """Find the benchmarks of plug-ins: TOML files in packages that entry points name.

    The entry point `acme = acme_data.definitions` of the group `incognita.benchmarks` makes
    `street.toml` of that package the benchmark `acme/street`.
    """
    found = find_plug_ins(GROUP, {name.partition("/")[0] for name in _shipped()})
    paths: dict[str, Path] = {}
    distributions: dict[str, str] = {}
    notes = list(found.notes)
    for plug_in in found.found.values():
        try:
            files = _definitions_of(plug_in.home)
        except Exception as error:  # finding a package runs the code of the one above it
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            notes.append(f"The plug-in {plug_in.name} of {plug_in.distribution} fails: {problem}.")
            continue
        named = {f"{plug_in.name}/{name}": path for name, path in files.items()}
        paths |= named
        distributions |= dict.fromkeys(named, plug_in.distribution)
    return InstalledBenchmarks(paths, distributions, tuple(notes))


def _definitions_of(package: str) -> dict[str, Path]:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidDataError(f"Expected the package {package} with TOML files, found none")
    files = (path for folder in spec.submodule_search_locations for path in _toml_in(Path(folder)))
    return {path.stem: path for path in files}


def _toml_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"))


def find_definition(
    name_or_path: str | PathLike[str], *, allow_outside: bool = False
) -> DefinitionFile:
    """Load the definition of a benchmark by its name, or by the path of its file.

    Args:
        name_or_path: The name or the path.
        allow_outside: Whether it may extend a file that is not below its own folder.
    """
    if not isinstance(name_or_path, str | PathLike):
        raise InvalidDataError(
            f"Expected the name of a benchmark or a TOML file, got {name_or_path!r:.80}."
        )
    path = _path_of(fspath(name_or_path))
    content = _content(path, (), allow_outside=allow_outside)
    definition = parse_definition(content, source=str(path))
    content_hash = sha256(definition.model_dump_json().encode()).hexdigest()
    is_shipped = path.is_relative_to(SHIPPED)
    is_installed = not str(name_or_path).endswith(".toml") and not is_shipped
    if is_installed and definition.name != name_or_path:
        raise InvalidDataError(
            f"Expected the name {name_or_path!r} in {path}, got {definition.name!r}. Results would "
            f"have a name that no command takes: correct the file."
        )
    is_named = is_shipped or is_installed
    return DefinitionFile(definition, path, is_shipped, is_named, content_hash)


def _path_of(name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name)
    if name in _shipped():
        return SHIPPED / f"{name}.toml"
    installed = installed_benchmarks().paths
    if name not in installed:
        raise unknown_name("benchmark", name, list_benchmarks())
    return installed[name]


def _content(
    path: Path, extended_by: tuple[Path, ...], *, allow_outside: bool
) -> Mapping[str, Any]:
    """Load a file together with what it extends."""
    advice = "give the path of a TOML file or the name of a benchmark"
    check_regular(path, "benchmark file", at="", advice=advice)
    own = load_toml(path, "benchmark file")
    base = own.get("extends")
    if not isinstance(base, str):
        return own
    chain = (*extended_by, path.resolve())
    above = _path_of(base)
    if base.endswith(".toml"):
        above = DataFolder(path.parent, allow_outside).find(base, str(path))
    if above.resolve() in chain:
        raise InvalidDataError(f"{path} extends itself by way of {base}; break the circle.")
    if len(chain) > _LONGEST_CHAIN:
        raise InvalidDataError(f"{path} extends more than {_LONGEST_CHAIN} files; shorten that.")
    return _merged(_content(above, chain, allow_outside=allow_outside), own)


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
