"""How images are dealt out to near, far and farther: a TOML file anybody can write.

name = "mine/street-coco"
version = 1                   # goes up whenever an image could change its split
known = ["person", "car"]     # an image holding one of these is no unknown image
remove = ["fork"]             # other categories whose images show known things
near = ["truck", "bench"]     # an image holding one of these is near
rest = "far"                  # images with no listed category: far, farther or drop
remove_ids = [724]            # lists of image ids, made by looking at images
[candidates]                  # images taken from a second annotation file
near = [285388]
[expected]                    # how many images there are when nothing is missing
near = 1174
"""

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from incognita.errors import InvalidDataError, MissingDataError, unknown_name

Split = Literal["near", "far", "farther"]
SPLITS: tuple[Split, ...] = ("near", "far", "farther")  # from close to the known classes to far
ImageId = int | str
Names = list[str]
Ids = list[int | str]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Candidates(_Table):
    """Images that a second annotation file adds to each split, by their ids."""

    near: Ids = []
    far: Ids = []
    farther: Ids = []

    def ids(self) -> set[ImageId]:
        """Give all ids."""
        return {*self.near, *self.far, *self.farther}


class IdLists(_Table):
    """Lists of image ids that somebody made by looking at the images.

    The first two belong to the first pass over the images, which goes by categories; the next
    three to the second pass, which looks at what the first has left.

    Args:
        remove_ids: Removed, whatever they hold.
        keep_to_near_ids: Near, though a category or `remove_ids` would remove them.
        review_remove_ids: Removed by the second pass, whatever the first has decided.
        to_near_ids: Near, whatever their categories say; images that are removed stay so.
        to_far_ids: Far in the same way; this list wins over `to_near_ids`.
        candidates: What a second annotation file adds.
    """

    remove_ids: Ids = []
    keep_to_near_ids: Ids = []
    review_remove_ids: Ids = []
    to_near_ids: Ids = []
    to_far_ids: Ids = []
    candidates: Candidates = Candidates()

    def by_name(self) -> dict[str, Ids]:
        """Give all lists under the names that people read.

        >>> IdLists(to_near_ids=[7]).by_name()["to_near_ids"]
        [7]
        """
        own = {name: getattr(self, name) for name in IdLists.model_fields if name != "candidates"}
        added = {f"candidates.{split}": getattr(self.candidates, split) for split in SPLITS}
        return own | added


class Base(_Table):
    """The annotation file that published splits were made from.

    Args:
        file: Its name.
        images: How many images it has, which tells it from others.
        published: Where it can be had.
        stand_in: What a build from another file lacks.
    """

    file: str
    images: PositiveInt
    published: str
    stand_in: str


class ImageFolders(_Table):
    """Where images lie below the folder of a set, for files that do not say it themselves."""

    base: str = ""
    candidates: str = ""


class SplitRules(IdLists):
    """What a rules file says; nothing is read but the file.

    Args:
        name: As people type it.
        version: Goes up whenever an image could change its split.
        known: Categories that are known.
        remove: Further categories whose images are removed.
        near: Categories that make an image near.
        far: Categories that make an image far, unless it is near.
        farther: Categories that make an image farther, unless it is near or far.
        rest: Where an image goes that holds no listed category; `drop` leaves it out.
        title: One line for people.
        source: Where the lists come from.
        remarks: What a reader of the numbers should know.
        absent: Listed names that the annotation file may lack; any other name must be there.
        base: The annotation file that the published splits were made from.
        image_folders: Where the images lie.
        published_lists: How long the published lists of ids are that this file has not got.
        expected: How many images each split has when nothing is missing.
    """

    name: Annotated[str, Field(min_length=1)]
    version: PositiveInt
    known: Annotated[Names, Field(min_length=1)]
    remove: Names = []
    near: Names = []
    far: Names = []
    farther: Names = []
    rest: Literal["near", "far", "farther", "drop"]
    title: str | None = None
    source: str | None = None
    remarks: list[str] = []
    absent: Names = []
    base: Base | None = None
    image_folders: ImageFolders = ImageFolders()
    published_lists: Mapping[str, PositiveInt] = {}
    expected: Mapping[Split, PositiveInt] = {}

    @model_validator(mode="after")
    def _consistent(self) -> "SplitRules":
        for what in ("known", "remove", *SPLITS):
            _refuse_repeats(what, getattr(self, what))
        seen: dict[str, str] = {}
        for split in SPLITS:
            for name in getattr(self, split):
                if seen.setdefault(name, split) != split:
                    raise ValueError(
                        f"category {name!r} is both {seen[name]} and {split}; keep one of the two"
                    )
        for name in self.published_lists:
            if name not in self.by_name():
                raise ValueError(
                    f"published_lists names {name!r}, which is no list of ids; choose one of: "
                    f"{', '.join(self.by_name())}"
                )
        return self

    @property
    def overruled(self) -> Names:
        """Categories of a split that are known or removed, too, which wins."""
        removed = {*self.known, *self.remove}
        return [name for split in SPLITS for name in getattr(self, split) if name in removed]


def _refuse_repeats(what: str, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"category {name!r} is twice in {what}; keep one")


Table = TypeVar("Table", bound=BaseModel)
SHIPPED = Path(__file__).parents[1] / "definitions" / "splits"
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
