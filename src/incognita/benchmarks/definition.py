"""What the TOML file of a benchmark may say.

name = "mine/street"          # as people type it
version = 1                   # goes up whenever a number could move
title = "Street signs"
task = "classification"       # or detection; may be left out
classes = ["stop", "yield"]   # names in the order of the labels; or how many; or a text file
[[set]]
name = "test"
role = "test"                 # train, validation, test, shifted, near, far, farther, mixed, …
kind = "folder"               # folder, imglist, terra or digits; for boxes coco or terra-scenes
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


class Source(Entry):
    """Where images are published, under which license, and roughly how much disk they take."""

    title: str
    published: str
    license: str
    megabytes: float | None = None


class Preprocessing(Entry):
    """What the benchmark's own code does with an image; a hint, since the model brings its own."""

    resize: PositiveInt
    crop: PositiveInt
    mean: Annotated[list[float], Field(min_length=3, max_length=3)]
    std: Annotated[list[float], Field(min_length=3, max_length=3)]


Set = Annotated[AnySet, Field(discriminator="kind")]


class Definition(Entry):
    """A benchmark as its file describes it; nothing is read but the file.

    Args:
        name: As people type it.
        version: Goes up whenever a published number could move.
        title: One line for tables.
        classes: Names of the known classes, or how many there are, or a text file with a name in
            each line, below the data folder.
        set: The sets of images.
        task: Whether its models name images or find objects in them.
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
    task: Task = "classification"
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
        self._refuse_another_task()
        if not any(each.role in TESTED_UNKNOWN_ROLES for each in self.set):
            raise ValueError('it has no unknown images to test; add a set with role = "near"')
        return self

    def _refuse_another_task(self) -> None:
        """Refuse sets of the other task, and what only one of the two tasks has."""
        for each in self.set:
            if each.task != self.task:
                raise ValueError(
                    f"set {each.name!r} is of kind {each.kind}, which is for {each.task}, but the "
                    f'task is {self.task}; write task = "{each.task}", or take another kind'
                )
            if each.role == "mixed" and self.task == "classification":
                raise ValueError(
                    f"set {each.name!r} has the role mixed, but an image that is classified shows "
                    f"one class; take one of {', '.join(UNKNOWN_GROUPS)}"
                )
        if self.task == "detection" and isinstance(self.classes, int):
            raise ValueError(
                "annotations say by name what a box shows, but classes is a number; list the "
                "names: classes = [...]"
            )


def _refuse_repeats(what: str, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"{what} {name!r} is there twice; keep one or give it another name")
