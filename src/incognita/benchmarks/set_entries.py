"""The kinds of sets that a definition may list, each with the keys it takes."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

Task = Literal["classification", "detection"]
Role = Literal[
    "train", "validation", "test", "shifted", "near", "far", "farther", "mixed",
    "unknown-validation", "unknown-training",
]  # fmt: skip
KNOWN_ROLES = ("train", "validation", "test", "shifted")
UNKNOWN_GROUPS = ("near", "far", "farther")  # images that show nothing known
TESTED_UNKNOWN_ROLES = (*UNKNOWN_GROUPS, "mixed")
SEVERAL_SETS = (*TESTED_UNKNOWN_ROLES, "shifted")  # every other role belongs to one set


class Entry(BaseModel):
    """A table of the file: every key is known, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Set(Entry):
    """One set of images and its part in the benchmark.

    Args:
        name: Unique in the benchmark.
        role: What the images are for.
        count: How many there are when nothing is missing.
        source: Name of an entry of `sources`.
        note: What a reader of its numbers must be told.
        allowed_classes: Own classes that may bear the name of a known class.
    """

    task: ClassVar[Task] = "classification"
    reads_files: ClassVar[bool] = True

    name: Annotated[str, Field(min_length=1)]
    role: Role
    count: PositiveInt | None = None
    source: str | None = None
    note: str | None = None
    allowed_classes: list[str] = []

    @property
    def is_known(self) -> bool:
        """Whether its images show known classes."""
        return self.role in KNOWN_ROLES


class ImglistSet(_Set):
    """Images that a list names, a path and a label in each line, as OpenOOD writes them.

    Args:
        kind: imglist.
        list: The list file.
        root: The folder that its paths begin at.
        one_class_per_folder: Whether the folder an image lies in is its own class.
    """

    kind: Literal["imglist"]
    list: str
    root: str = "."
    one_class_per_folder: bool = False

    @property
    def place(self) -> str:
        """Where its files go, below the data folder."""
        return f"{self.root}, listed in {self.list}"


class FolderSet(_Set):
    """All images of a folder and of those below it.

    Args:
        kind: folder.
        path: The folder.
        one_class_per_folder: Whether each folder of the first level is a class.
        folders: The class that a folder stands for, where the two have different names.
    """

    kind: Literal["folder"]
    path: str
    one_class_per_folder: bool = True
    folders: Mapping[str, str] = {}

    @model_validator(mode="after")
    def _known_images_have_classes(self) -> "FolderSet":
        if self.is_known and not self.one_class_per_folder:
            raise ValueError(
                f"set {self.name!r} holds known images, whose classes are the names of folders; "
                f"leave one_class_per_folder = false out"
            )
        return self

    @property
    def place(self) -> str:
        """Where its files go, below the data folder."""
        return self.path


class _TerraPictures(_Set):
    """Pictures that the embedded world Terra draws.

    Args:
        part: `train`, `validation` or `test`; no picture is in two of them.
        classes: A group, a super-class or a class of its tree, or several of them.
        count: How many pictures.
        style: `plain`, or a shifted look.
        seed: Another seed is another world with the same classes.
    """

    reads_files: ClassVar[bool] = False
    place: ClassVar[str] = "embedded"

    part: Literal["train", "validation", "test"]
    count: PositiveInt
    classes: str | list[str] = "known"
    style: str = "plain"
    seed: NonNegativeInt = 0


class TerraSet(_TerraPictures):
    """Images of one object each; `size` is their width and height in pixels."""

    kind: Literal["terra"]
    size: PositiveInt = 32


class DigitsSet(_Set):
    """Pictures that come with scikit-learn; one of part, digits and photograph says which.

    Args:
        kind: digits.
        part: Known digits: `train`, `validation` or `test`.
        digits: All images of unknown digits.
        photograph: Patches of a photograph.
    """

    reads_files: ClassVar[bool] = False
    place: ClassVar[str] = "comes with scikit-learn"

    kind: Literal["digits"]
    part: Literal["train", "validation", "test"] | None = None
    digits: list[int] | None = None
    photograph: str | None = None

    @model_validator(mode="after")
    def _one_choice(self) -> "DigitsSet":
        given = [each for each in (self.part, self.digits, self.photograph) if each is not None]
        if len(given) != 1:
            raise ValueError(f"set {self.name!r} needs one of part, digits and photograph")
        return self


class CocoSet(_Set):
    """Images with boxes, annotated in COCO's instances format.

    A known class that `allowed_classes` names may stand in images of an unknown set; its objects
    stay known there.

    Args:
        kind: coco.
        annotations: The instances file, `.json`, also compressed by gzip.
        images: The folder with its images.
        rename: Name in this benchmark of a category that the file calls otherwise.
        unknown: The categories of the file that are unknown, all others being ignored; by default
            every category that is neither known nor ignored.
        ignored: The categories of the file that count neither way.
        fold: Which part of the images and of how many: `[0, 2]` and `[1, 2]` are two halves.
    """

    task: ClassVar[Task] = "detection"

    kind: Literal["coco"]
    annotations: str
    images: str
    rename: Mapping[str, str] = {}
    unknown: list[str] | None = None
    ignored: list[str] = []
    fold: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None

    @model_validator(mode="after")
    def _fold_exists(self) -> "CocoSet":
        if self.fold is not None and not 0 <= self.fold[0] < self.fold[1]:
            raise ValueError(
                f"set {self.name!r} asks for fold {self.fold}, but parts are counted from 0 and "
                f"the second number says how many there are, such as [0, 2]"
            )
        return self

    @property
    def place(self) -> str:
        """Where its files go, below the data folder."""
        return f"{self.images}, annotated in {self.annotations}"


class TerraScenesSet(_TerraPictures):
    """Scenes of several objects; `size` is their width and height in pixels."""

    task: ClassVar[Task] = "detection"

    kind: Literal["terra-scenes"]
    size: PositiveInt = 160


AnySet = ImglistSet | FolderSet | TerraSet | DigitsSet | CocoSet | TerraScenesSet
