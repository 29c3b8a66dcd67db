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

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

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
