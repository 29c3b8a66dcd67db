"""What every kind of data set shares: its entry in a definition, and what loading it returns."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    model_serializer,
    model_validator,
)

from incognita.benchmarks.corruptions import kinds_of
from incognita.containers._checks import check_class_ids
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError, UnknownNameError, unknown_name
from incognita.formats.data_folder import DataFolder
from incognita.shapes import Int

Task = Literal["classification", "detection"]
SetRole = Literal[
    "train", "validation", "test", "shifted", "accepted", "near", "far", "farther", "unknown",
    "mixed", "accepted-validation", "unknown-validation", "unknown-training",
]  # fmt: skip
LABELED_ROLES = ("train", "validation", "test", "shifted")
KNOWN_ROLES = (*LABELED_ROLES, "accepted", "accepted-validation")
UNKNOWN_GROUPS = ("near", "far", "farther")  # images that show nothing known
UNKNOWN_ROLES = (*UNKNOWN_GROUPS, "unknown")
TESTED_UNKNOWN_ROLES = (*UNKNOWN_ROLES, "mixed")
TESTED_ROLES = ("test", "shifted", "accepted", *TESTED_UNKNOWN_ROLES)
Severity = Annotated[int, Field(ge=1, le=5)]
_LATER_FIELDS = ("corrupt", "rejection", "group", "source_classes")
# every other role belongs to one set
SEVERAL_SETS = (*TESTED_UNKNOWN_ROLES, "shifted", "accepted", "accepted-validation")
RESERVED_GROUPS = ("known", "shifted", "accepted", "mixed", "misclassified", "all", *UNKNOWN_GROUPS)
N_SHOWN = 5  # missing paths that a message names


def missing_part(roles: Collection[str]) -> str | None:
    """Return which images a benchmark cannot be tested without and lacks: known or unknown.

    >>> missing_part({"train", "near"}), missing_part({"test", "mixed"})
    ('known', None)
    """
    if "test" not in roles:
        return "known"
    return None if set(roles) & set(TESTED_UNKNOWN_ROLES) else "unknown"


@dataclass(frozen=True)
class DataContext:
    """What loading a set needs besides its entry.

    Args:
        benchmark: Its name, for messages.
        data: The folder that relative paths begin at.
        classes: Names of the known classes; their numbers where there are no names.
        has_names: Whether the classes have names.
        cache_dir: Where hashes of files are kept.
        named: What people type to name the benchmark, where that is not its name.
        allow_outside: Whether paths may leave the data folder.
        names_file: The file that names the classes, where the definition does not.
        needs_images: Whether an image that is not there is missing; without it annotations are
            enough.
    """

    benchmark: str
    data: Path
    classes: Sequence[str]
    has_names: bool = True
    cache_dir: Path | None = None
    named: str | None = None
    allow_outside: bool = False
    names_file: Path | None = None
    needs_images: bool = True

    @property
    def typed(self) -> str:
        """What a command takes for the benchmark."""
        return self.named or self.benchmark

    @cached_property
    def folder(self) -> DataFolder:
        """The data folder, which refuses paths that leave it."""
        return DataFolder(self.data, self.allow_outside)

    def unknown_class(self, name: str) -> UnknownNameError:
        """Build the error for a class that the benchmark does not have.

        Names that come from a file are not repeated: it may be another file than was meant.
        """
        if self.names_file is None:
            return unknown_name(f"class of {self.benchmark}", name, self.classes)
        return UnknownNameError(
            f"No class of {self.benchmark} is called {name!r:.80}. Choose one that "
            f"{self.names_file} names."
        )


class Table(BaseModel):
    """A table of a definition: unknown keys are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Corruption(Table):
    """How the images of a set are corrupted while they are read.

    Args:
        kinds: A list (`saod`, `imagenet-c`), a kind such as `fog`, or several of these.
        severity: From 1 to 5, or several of them.
        seed: Of the random numbers, of the kinds drawn and of the sample.
        sample: Number of corrupted images, spread evenly over kinds and severities.
    """

    kinds: str | Annotated[list[str], Field(min_length=1)]
    severity: Severity | Annotated[list[Severity], Field(min_length=1)]
    seed: NonNegativeInt = 0
    sample: PositiveInt | None = None

    @model_validator(mode="after")
    def _kinds_exist(self) -> "Corruption":
        for name in [self.kinds] if isinstance(self.kinds, str) else self.kinds:
            try:
                kinds_of(name)
            except UnknownNameError as error:
                raise ValueError(str(error)) from error
        return self

    def apply(self, loaded: "LoadedSet") -> "LoadedSet":
        """Corrupt the images that were found; of an incomplete set a smaller sample."""
        from incognita.benchmarks.corruptions.datasets import corrupted

        if loaded.dataset is None:
            return loaded
        complete = loaded.expected or loaded.found
        sample, expected = self.sample, self.sample
        if sample is not None:
            sample = max(1, sample * min(loaded.found, complete) // complete)
        dataset = corrupted(
            loaded.dataset, self.kinds, self.severity, seed=self.seed, sample=sample
        )
        if expected is None and loaded.expected is not None:
            expected = complete * len(dataset) // loaded.found
        return replace(loaded, dataset=dataset, expected=expected)


class SetEntry(Table):
    """One set of images and its part in the benchmark.

    A kind of data set is a subclass with a field `kind`, a property `place` and a method `load`.

    Args:
        name: Unique in the benchmark.
        role: What the images are for.
        group: The group of unknown sets it belongs to, where the role is `unknown`; a role such as
            `near` is a group by itself.
        count: How many there are when nothing is missing.
        source: Name of an entry of `sources`.
        note: What a reader of its numbers must know.
        allowed_classes: Own classes that may bear the name of a known class.
        corrupt: How its images are corrupted while they are read; `count` is that of clean ones.
        rejection: `free` if a self-aware detector may reject these shifted images.
    """

    task: ClassVar[Task] = "classification"
    reads_files: ClassVar[bool] = True
    if TYPE_CHECKING:  # not a field here: fields are hashed in the order of the subclass
        kind: str

    name: Annotated[str, Field(min_length=1, max_length=200)]
    role: SetRole
    count: PositiveInt | None = None
    source: str | None = None
    note: str | None = None
    allowed_classes: list[str] = []
    corrupt: Corruption | None = None
    rejection: Literal["free"] | None = None
    group: Annotated[str, Field(min_length=1, max_length=60)] | None = None

    @model_validator(mode="after")
    def _only_shifted_are_free(self) -> "SetEntry":
        if self.rejection is not None and self.role != "shifted":
            raise ValueError(
                f"set {self.name!r} has the role {self.role}, but only shifted images may be "
                f"rejected freely; leave rejection out"
            )
        return self

    @model_validator(mode="after")
    def _only_unknown_are_grouped(self) -> "SetEntry":
        if self.group is not None and self.role != "unknown":
            raise ValueError(
                f"set {self.name!r} has the role {self.role} and the group {self.group!r}; write "
                f'role = "unknown" with it, or leave it out'
            )
        starts = ("full-spectrum ", "all boxes ")  # of the texts that name splits
        if self.group is not None and (
            self.group in RESERVED_GROUPS or "/" in self.group or self.group.startswith(starts)
        ):
            raise ValueError(f"the group cannot be called {self.group!r}; take another name")
        return self

    @model_serializer(mode="wrap")
    def _without_absent(self, serialize: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Leave out what a set does not use: older definitions keep their hash."""
        fields = serialize(self)
        return {k: v for k, v in fields.items() if k not in _LATER_FIELDS or v is not None}

    @property
    def is_known(self) -> bool:
        """Whether its images count as known."""
        return self.role in KNOWN_ROLES

    @property
    def is_labeled(self) -> bool:
        """Whether its images show classes that the model has a name for."""
        return self.role in LABELED_ROLES

    @property
    def unknown_group(self) -> str | None:
        """The group of unknown sets it is tested in; None where it is not unknown."""
        return (self.group or self.role) if self.role in UNKNOWN_ROLES else None

    @property
    @abstractmethod
    def place(self) -> str:
        """Where its files belong, below the data folder."""

    @abstractmethod
    def load(self, context: DataContext) -> "LoadedSet":
        """Find the images; missing ones are reported in the result, invalid ones raise."""

    def load_as_tested(self, context: DataContext) -> "LoadedSet":
        """Find the images, and corrupt them where the definition says so."""
        loaded = self.load(context)
        return loaded if self.corrupt is None else self.corrupt.apply(loaded)

    def check_labels(self, labels: Int[np.ndarray, "n"] | None, context: DataContext) -> None:
        """Check that labeled images have a class in range, and all others have none."""
        where = f"Set {self.name!r} of {context.benchmark}"
        if self.is_labeled and labels is None:
            raise InvalidDataError(
                f"{where} has the role {self.role}, but its images carry no class (label -1); give "
                f"the list with their classes."
            )
        if not self.is_labeled and labels is not None:
            what = "accepted" if self.is_known else "unknown"
            raise InvalidDataError(
                f"{where} has the role {self.role}, but its images carry the numbers of known "
                f"classes; label {what} images with -1."
            )
        if labels is not None:
            check_class_ids(where, labels, len(context.classes))

    def check_generated(self, dataset: Dataset, context: DataContext) -> "LoadedSet":
        """Check the labels and the number of images that are not read from files."""
        self.check_labels(dataset.labels, context)
        n_images = len(dataset.image_ids)
        if self.count not in (None, n_images):
            raise InvalidDataError(
                f"Set {self.name!r} of {context.benchmark} has {n_images:,} images, but the "
                f"definition says {self.count:,}; correct its count."
            )
        return LoadedSet(self, dataset, n_images)


@dataclass(frozen=True)
class LoadedSet:
    """A set of a definition and the images that were found.

    Args:
        entry: What the definition says.
        dataset: The images that are there; None where there are none at all.
        expected: How many there should be, where that is known.
        missing: The first paths that are not there.
        left_out: Files of its folder whose suffix is not that of an image.
        object_classes: Classes that its boxes may show; None where it has no boxes.
        notes: What a reader should know about its files.
    """

    entry: SetEntry
    dataset: Dataset | None
    expected: int | None
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    object_classes: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> int:
        """How many images are there."""
        return 0 if self.dataset is None else len(self.dataset.image_ids)

    @property
    def is_complete(self) -> bool:
        """Whether no image is missing."""
        return self.found > 0 and self.found >= (self.expected or 0)
