"""What the TOML file of a benchmark may say.

name = "mine/street"          # as people type it
version = 1                   # goes up whenever a number could move
title = "Street signs"
classes = ["stop", "yield"]   # names in the order of the labels; or how many; or a text file
[[set]]
name = "test"
role = "test"                 # train, validation, test, shifted, near, far, farther, …
kind = "folder"               # folder, imglist, terra or digits
path = "signs/test"           # below the data folder
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

Role = Literal[
    "train", "validation", "test", "shifted", "near", "far", "farther",
    "unknown-validation", "unknown-training",
]  # fmt: skip
KNOWN_ROLES = ("train", "validation", "test", "shifted")
TESTED_UNKNOWN_ROLES = ("near", "far", "farther")
SEVERAL_SETS = (*TESTED_UNKNOWN_ROLES, "shifted")  # every other role belongs to one set


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Source(_Entry):
    """Where images are published, under which license, and roughly how much disk they take."""

    title: str
    published: str
    license: str
    megabytes: float | None = None


class Preprocessing(_Entry):
    """What the benchmark's own code does with an image; a hint, since the model brings its own."""

    resize: PositiveInt
    crop: PositiveInt
    mean: Annotated[list[float], Field(min_length=3, max_length=3)]
    std: Annotated[list[float], Field(min_length=3, max_length=3)]


class _Set(_Entry):
    """One set of images and its part in the benchmark.

    Args:
        name: Unique in the benchmark.
        role: What the images are for.
        count: How many there are when nothing is missing.
        source: Name of an entry of `sources`.
        note: What a reader of its numbers must be told.
        allowed_classes: Own classes that may bear the name of a known class.
    """

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


class TerraSet(_Set):
    """Images that the embedded world Terra draws.

    Args:
        kind: terra.
        part: `train`, `validation` or `test`; no image is in two of them.
        classes: A group, a super-class or a class of its tree, or several of them.
        count: How many images.
        style: `plain`, or a shifted look.
        seed: Another seed is another world with the same classes.
        size: Width and height in pixels.
    """

    reads_files: ClassVar[bool] = False
    place: ClassVar[str] = "embedded"

    kind: Literal["terra"]
    part: Literal["train", "validation", "test"]
    count: PositiveInt
    classes: str | list[str] = "known"
    style: str = "plain"
    seed: NonNegativeInt = 0
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


Set = Annotated[ImglistSet | FolderSet | TerraSet | DigitsSet, Field(discriminator="kind")]


class Definition(_Entry):
    """A benchmark as its file describes it; nothing is read but the file.

    Args:
        name: As people type it.
        version: Goes up whenever a published number could move.
        title: One line for tables.
        classes: Names of the known classes, or how many there are, or a text file with a name in
            each line, below the data folder.
        set: The sets of images.
        paper: Where it is described.
        home: Where the lists and prepared images are published.
        extends: The benchmark that this one adds to; a set of the same name replaces.
        full_spectrum: Whether shifted images count as known in the main table.
        default_model: The model meant for it.
        preprocessing: What the benchmark's own code does with an image.
        sources: Where images are published.
    """

    name: Annotated[str, Field(min_length=1)]
    version: PositiveInt
    title: str
    classes: Annotated[list[str], Field(min_length=1)] | PositiveInt | str
    set: Annotated[list[Set], Field(min_length=1)]
    paper: str | None = None
    home: str | None = None
    extends: str | None = None
    full_spectrum: bool = False
    default_model: str | None = None
    preprocessing: Preprocessing | None = None
    sources: Mapping[str, Source] = {}

    @model_validator(mode="after")
    def _consistent(self) -> "Definition":
        _refuse_repeats("set", [each.name for each in self.set])
        roles = [each.role for each in self.set if each.role not in SEVERAL_SETS]
        _refuse_repeats("role", roles)
        if isinstance(self.classes, list):
            _refuse_repeats("class", self.classes)
        for each in self.set:
            if each.source is not None and each.source not in self.sources:
                raise ValueError(
                    f"set {each.name!r} names the source {each.source!r}; add a table "
                    f"[sources.{each.source}] or leave it out"
                )
        if "test" not in roles:
            raise ValueError('it has no known images to test; add a set with role = "test"')
        if not any(each.role in TESTED_UNKNOWN_ROLES for each in self.set):
            raise ValueError('it has no unknown images to test; add a set with role = "near"')
        return self


def _refuse_repeats(what: str, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"{what} {name!r} is there twice; keep one or give it another name")
