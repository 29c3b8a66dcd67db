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
corrupt = { kinds = "saod", severity = 3, seed = 0 }  # may be left out, as most keys
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PositiveInt,
    SerializeAsAny,
    model_serializer,
    model_validator,
)

from incognita.benchmarks.benchmark import Protocol
from incognita.benchmarks.sources import KINDS, entry_class
from incognita.benchmarks.sources.entry import (
    SEVERAL_SETS,
    UNKNOWN_GROUPS,
    SetEntry,
    Table,
    Task,
    missing_part,
)
from incognita.formats.toml_files import check_table

MOST_CLASSES = 100_000  # ImageNet-21k has 21,841
LONGEST_NAME = 200  # characters of a name
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class Source(Table):
    """Where images are published, under which license, and roughly how much disk they take."""

    title: str
    published: str
    license: str
    megabytes: float | None = None


class PreprocessingHint(Table):
    """What the benchmark's own code does with an image, for a network that states nothing."""

    resize: PositiveInt | None = None
    crop: PositiveInt | None = None
    mean: Annotated[list[float], Field(min_length=3, max_length=3)]
    std: Annotated[list[float], Field(min_length=3, max_length=3)]


def _check_sets(tables: Any) -> Any:
    """Turn each table of a list into an entry of its kind."""
    if not isinstance(tables, list):
        return tables
    return [_check_set(table, number) for number, table in enumerate(tables, start=1)]


def _check_set(table: Any, number: int) -> SetEntry:
    if isinstance(table, SetEntry):
        return table
    name = table.get("name") if isinstance(table, Mapping) else None
    source = f"set {name!r}" if name else f"set number {number}"
    kind = table.get("kind") if isinstance(table, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{source} needs to be a table with a kind: {', '.join(KINDS)}")
    entry: SetEntry = check_table(entry_class(kind), table, source)
    return entry


class Definition(Table):
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
        protocol: `self-aware`: a detector is made self-aware on the validation set and judged.
    """

    name: Name
    version: PositiveInt
    title: str
    classes: Annotated[
        Annotated[list[Name], Field(min_length=1, max_length=MOST_CLASSES)]
        | Annotated[int, Field(gt=0, le=MOST_CLASSES)]
        | str,
        Field(
            description=f"expected at most {MOST_CLASSES:,} names of {LONGEST_NAME} characters in "
            f"a list, how many there are, or the name of a file"
        ),
    ]
    set: Annotated[
        list[SerializeAsAny[SetEntry]], Field(min_length=1), BeforeValidator(_check_sets)
    ]
    task: Task = "classification"
    paper: str | None = None
    home: str | None = None
    extends: str | None = None
    full_spectrum: bool = False
    default_model: str | None = None
    preprocessing: PreprocessingHint | None = None
    sources: Mapping[str, Source] = {}
    protocol: Protocol | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, serialize: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Leave out what is not used: older definitions keep their hash."""
        fields = serialize(self)
        return {k: v for k, v in fields.items() if k != "protocol" or v is not None}

    @model_validator(mode="after")
    def _consistent(self) -> "Definition":
        _refuse_repeats("set", [entry.name for entry in self.set])
        roles = [entry.role for entry in self.set]
        _refuse_repeats("role", [role for role in roles if role not in SEVERAL_SETS])
        if isinstance(self.classes, list):
            _refuse_repeats("class", self.classes)
        for entry in self.set:
            if entry.source is not None and entry.source not in self.sources:
                raise ValueError(
                    f"set {entry.name!r} names the source {entry.source!r}; add a table "
                    f"[sources.{entry.source}] or leave it out"
                )
        if self.default_model is not None and ".py" in self.default_model:
            raise ValueError(
                f"default_model names the Python file {self.default_model!r:.80}, but code is run "
                f"only if it is given as --model; leave it out"
            )
        self._refuse_another_task()
        self._check_protocol(roles)
        if part := missing_part(roles):
            role = "test" if part == "known" else "near"
            raise ValueError(f'it has no {part} images to test; add a set with role = "{role}"')
        return self

    def _refuse_another_task(self) -> None:
        """Refuse sets of the other task, and what only one of the two tasks has."""
        for entry in self.set:
            if entry.task != self.task:
                raise ValueError(
                    f"set {entry.name!r} is of kind {entry.kind}, which is for {entry.task}, but "
                    f'the task is {self.task}; write task = "{entry.task}", or take another kind'
                )
            if entry.role.startswith("accepted") and self.task == "detection":
                raise ValueError(
                    f"set {entry.name!r} has the role {entry.role}, but images of a detector are "
                    f"known by their objects; take one of test, shifted, mixed"
                )
            if entry.role == "mixed" and self.task == "classification":
                raise ValueError(
                    f"set {entry.name!r} has the role mixed, but an image that is classified shows "
                    f"one class; take one of {', '.join(UNKNOWN_GROUPS)}"
                )
        if self.task == "detection" and isinstance(self.classes, int):
            raise ValueError(
                "annotations name the classes of boxes, but classes is a number; list the "
                "names: classes = [...]"
            )

    def _check_protocol(self, roles: Sequence[str]) -> None:
        if self.protocol is None:
            return
        if self.task != "detection":
            raise ValueError('the protocol is self-aware, which needs task = "detection"')
        if "validation" not in roles:
            raise ValueError(
                'the protocol is self-aware, but no set has role = "validation" to fit on; add one'
            )
        if "mixed" in roles:
            raise ValueError(
                "the protocol is self-aware, which has no use for mixed sets: images are known, "
                "shifted or unknown; leave them out"
            )
        taken = {"pooled", "painted over", "painted-over", "as detected"}
        if names := [entry.name for entry in self.set if entry.name in taken]:
            raise ValueError(f"set {names[0]!r} has a name of the protocol; take another name")


def _refuse_repeats(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name!r} is there twice; keep one or give it another name")
        seen.add(name)
