"""Rules that assign images to near, far and farther: a TOML file anybody can write.

name = "mine/street-coco"
version = 1                   # goes up whenever an image could change its split
known = ["person", "car"]     # an image holding one of these is not unknown
remove = ["fork"]             # other categories whose images show known things
near = ["truck", "bench"]     # an image holding one of these is near
rest = "far"                  # images with no listed category: far, farther or drop
remove_ids = [724]            # lists of image ids, made by looking at images
[candidates]                  # images taken from a second annotation file
near = [285388]
[expected]                    # how many images there are when nothing is missing
near = 1174
[limits]                      # where categories go that no list names, by meaning
near = 0.8                    # at least this similar to a known class: near
far = 0.6                     # else, at least this: far; all others are farther
"""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from incognita.errors import InvalidDataError, unknown_name
from incognita.files import file_hash
from incognita.formats.toml_files import check_table, load_toml

Split = Literal["near", "far", "farther"]
SPLITS: tuple[Split, ...] = ("near", "far", "farther")  # from close to the known classes to far
ImageId = int | str
Names = list[str]
Ids = Annotated[list[int | str], Field(description="expected image ids, whole numbers or text")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CandidateIds(_Table):
    """Images that a second annotation file adds to each split, by their ids."""

    near: Ids = []
    far: Ids = []
    farther: Ids = []

    def ids(self) -> set[ImageId]:
        """Return all ids."""
        return {*self.near, *self.far, *self.farther}


class IdLists(_Table):
    """Lists of image ids, made by looking at the images.

    The first two belong to the first pass over the images, which goes by categories; the next
    three to the second pass, a review of the images that are left.

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
    candidates: CandidateIds = CandidateIds()

    def by_name(self) -> dict[str, Ids]:
        """Return all lists by the names that people read.

        >>> IdLists(to_near_ids=[7]).by_name()["to_near_ids"]
        [7]
        """
        own = {name: getattr(self, name) for name in IdLists.model_fields if name != "candidates"}
        added = {f"candidates.{split}": getattr(self.candidates, split) for split in SPLITS}
        return own | added


class BaseFile(_Table):
    """The annotation file that published splits were made from.

    Args:
        file: Its name.
        images: How many images it has, which identifies it.
        published: Where it is published.
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


class SimilarityLimits(_Table):
    """Assigns categories that no list names, by their similarity to the nearest known class.

    Args:
        near: Categories at least this similar are near.
        far: Others at least this similar are far, all the rest is farther; without it they are far.
        measure: The similarity of WordNet: Wu-Palmer, path, Leacock-Chodorow, or the mean of all.
    """

    near: float
    far: float | None = None
    measure: Literal["wup", "path", "lch", "mean"] = "wup"

    @model_validator(mode="after")
    def _near_is_higher(self) -> "SimilarityLimits":
        if self.far is not None and self.far >= self.near:
            raise ValueError(f"far is {self.far:g}, but must be below near, {self.near:g}")
        return self

    def split(self, similarity: float) -> Split:
        """Return the split of a category.

        >>> SimilarityLimits(near=0.8, far=0.6).split(0.7)
        'far'
        """
        if similarity >= self.near:
            return "near"
        return "far" if self.far is None or similarity >= self.far else "farther"


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
        published_lists: Lengths of published lists of ids that this file does not contain.
        expected: How many images each split has when nothing is missing.
        limits: Where categories go that no list names; without it they are not looked at.
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
    base: BaseFile | None = None
    image_folders: ImageFolders = ImageFolders()
    published_lists: Mapping[str, PositiveInt] = {}
    expected: Mapping[Split, PositiveInt] = {}
    limits: SimilarityLimits | None = None

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
                    f"published_lists names {name!r}, which is not a list of ids; choose one of: "
                    f"{', '.join(self.by_name())}"
                )
        return self

    @property
    def overruled(self) -> Names:
        """Categories of a split that are known or removed, too, which wins."""
        removed = {*self.known, *self.remove}
        return [name for split in SPLITS for name in getattr(self, split) if name in removed]


def _refuse_repeats(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"category {name!r} is twice in {what}; keep one")
        seen.add(name)


SHIPPED = Path(__file__).parents[1] / "definitions" / "splits"


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
    """Load shipped rules by their name, or any from a TOML file."""
    name = fspath(name_or_path)
    if not name.endswith(".toml") and name not in list_rules():
        raise unknown_name("rules file", name, list_rules())
    path = Path(name) if name.endswith(".toml") else SHIPPED / f"{name}.toml"
    rules = parse_rules(load_toml(path, "rules file"), source=path.name)
    return FoundRules(rules, path.name, file_hash(path))


def parse_rules(content: Mapping[str, Any], *, source: str) -> SplitRules:
    """Check the content of a rules file; `source` names it in the error message.

    >>> parse_rules({"name": "mine", "version": 1, "knwon": ["car"]}, source="mine.toml")
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: mine.toml has no use for the key 'knwon'; did you mean known?
    """
    return check_table(SplitRules, content, source)


class FoundIds(NamedTuple):
    """Lists of ids, by the name of the rules they belong to, and the file they come from."""

    lists: Mapping[str, IdLists]
    file: str
    content_hash: str


def load_ids(path: str | PathLike[str], names: Sequence[str]) -> FoundIds:
    """Load lists of image ids from a TOML file with one table per rules file.

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
    content = load_toml(path, "file of image ids")
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
        lists[name] = check_table(IdLists, table, f"{path.name}, table {name}")
    return FoundIds(lists, path.name, file_hash(path))


def with_ids(rules: SplitRules, lists: IdLists) -> SplitRules:
    """Add lists of ids to those that rules have already."""
    added = lists.by_name()
    joined = {name: own + added[name] for name, own in rules.by_name().items()}
    candidates = CandidateIds(**{split: joined.pop(f"candidates.{split}") for split in SPLITS})
    return rules.model_copy(update=joined | {"candidates": candidates})
