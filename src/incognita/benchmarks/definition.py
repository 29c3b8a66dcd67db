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
from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from incognita.benchmarks.set_entries import (
    SEVERAL_SETS,
    TESTED_UNKNOWN_ROLES,
    UNKNOWN_GROUPS,
    AnySet,
    Entry,
    Task,
)


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
