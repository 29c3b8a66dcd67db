"""Images with boxes, annotated in COCO's instances format."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from incognita.benchmarks.sources.entry import N_SHOWN, DataContext, LoadedSet, SetEntry, Task
from incognita.containers import BoxTruth, Role
from incognita.containers.classes import find_spelling, plain
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.formats.class_roles import ClassMap
from incognita.formats.coco_dataset import CocoDataset, CocoFile, find_files, is_in_fold
from incognita.formats.images import real_paths
from incognita.shapes import Int


class CocoSet(SetEntry):
    """Images with boxes, annotated in COCO's instances format.

    A known class that `allowed_classes` names may appear in images of an unknown set; its objects
    stay known there.

    Args:
        kind: coco.
        annotations: The instances file, `.json`, also compressed by gzip.
        images: The folder with its images.
        rename: Class name in this benchmark of a category of the file.
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
    ignored: list[str] = Field(default=[])
    fold: Annotated[
        Annotated[list[int], Field(min_length=2, max_length=2)] | None,
        Field(description="expected which part and of how many, such as [0, 2]"),
    ] = None

    @model_validator(mode="after")
    def _fold_exists(self) -> "CocoSet":
        if self.fold is not None and not 0 <= self.fold[0] < self.fold[1]:
            raise ValueError(
                f"fold {self.fold} does not exist; parts are counted from 0 and the second number "
                f"is how many there are, such as [0, 2]"
            )
        return self

    @property
    def place(self) -> str:
        return f"{self.images}, annotated in {self.annotations}"

    def load(self, context: DataContext) -> LoadedSet:
        class_map = ClassMap(
            classes=tuple(context.classes),
            rename=self.rename,
            unknown=None if self.unknown is None else tuple(self.unknown),
            ignored=tuple(self.ignored),
        )
        source = f"Set {self.name!r} of {context.benchmark}"
        file = CocoFile(context.folder.find(self.annotations, source), class_map)
        try:
            truth = file.content.truth
        except MissingDataError:
            return LoadedSet(self, None, self.count, (str(file.path),))
        except UnknownNameError as error:  # a name in the definition, which is wrong then
            raise InvalidDataError(str(error)) from error
        rows = np.flatnonzero(is_in_fold(truth.image_ids, self.fold))
        if self.count not in (None, len(rows)):
            fold = "" if self.fold is None else " in fold [{}, {}]".format(*self.fold)
            raise InvalidDataError(
                f"{file.path} lists {len(rows):,} images{fold}, but set {self.name!r} of "
                f"{context.benchmark} has {self.count:,}; it is another version of the file: get "
                f"the one that `incognita data plan {context.typed}` names, or correct the count."
            )
        return self._load_present(file, rows, context)

    def _load_present(
        self, file: CocoFile, rows: Int[np.ndarray, "n"], context: DataContext
    ) -> LoadedSet:
        folder = context.folder.find(self.images, f"Set {self.name!r} of {context.benchmark}")
        paths, is_there = find_files(folder, [file.content.file_names[k] for k in rows])
        # without images, names of files on other machines do no harm
        used = (
            paths
            if context.needs_images
            else [p for p, k in zip(paths, is_there, strict=True) if k]
        )
        context.folder.check_images(folder, used, str(file.path))
        is_there |= not context.needs_images
        missing = tuple(str(folder / paths[k]) for k in np.flatnonzero(~is_there)[:N_SHOWN])
        if not is_there.any():
            return LoadedSet(self, None, len(rows), missing)
        present = tuple(path for path, there in zip(paths, is_there, strict=True) if there)
        _refuse_repeated_files(file, folder, present)
        dataset = CocoDataset(
            self.name,
            folder,
            present,
            cache_dir=context.cache_dir,
            file=file,
            record_ids=file.content.truth.image_ids[rows[is_there]],
            sizes=file.content.sizes[rows[is_there]],
        )
        truth = dataset.truth()
        notes = context.folder.notes(self.name, folder, file.path)
        notes += self._check_names(file, truth, context) + self._boxes_outside(dataset)
        shown = frozenset(truth.classes.names[k] for k in np.unique(truth.class_ids))
        return LoadedSet(self, dataset, len(rows), missing, object_classes=shown, notes=notes)

    def _check_names(
        self, file: CocoFile, truth: BoxTruth, context: DataContext
    ) -> tuple[str, ...]:
        """Refuse a known class that the file seems to spell otherwise; note absent ones."""
        absent = [name for name in context.classes if name not in file.content.named]
        accepted = {plain(name) for name in (*self.allowed_classes, *(self.unknown or ()))}
        is_unknown = truth.classes.has_role(Role.UNKNOWN)
        others = [truth.classes.names[k] for k in np.unique(truth.class_ids) if is_unknown[k]]
        others = [name for name in others if plain(name) not in accepted]
        for name in absent:
            if spelt := find_spelling(name, others):
                raise InvalidDataError(
                    f"{file.path} has a category {spelt!r} and none for the known class {name!r} "
                    f"of {context.benchmark}; if they are one, write rename = "
                    f"{{ {spelt!r} = {name!r} }} in set {self.name!r}, else name {spelt!r} in its "
                    f"allowed_classes."
                )
        if len(absent) == len(context.classes) and self.is_known:
            raise InvalidDataError(
                f"{file.path} has no category for any known class of {context.benchmark}, but set "
                f"{self.name!r} has the role {self.role}; give the names of its categories with "
                f"rename, or another file."
            )
        if not absent or len(absent) == len(context.classes):
            return ()
        listed = ", ".join(absent)
        if context.names_file is not None:  # it may be another file than was meant
            listed = f"as {len(absent):,} lines of {context.names_file.name}"
        return (f"{self.name}: no category is called {listed}; rename those that are there",)

    def _boxes_outside(self, dataset: CocoDataset) -> tuple[str, ...]:
        """Count the boxes that lie wholly outside their image, where no detector can find them."""
        truth = dataset.truth()
        ends = np.where(dataset.sizes > 0, dataset.sizes, np.inf)[truth.image_index]
        is_outside = (truth.xyxy[:, :2] >= ends).any(axis=1) | (truth.xyxy[:, 2:] < 0).any(axis=1)
        if not (n := int(is_outside.sum())):
            return ()
        what = f"of {len(truth):,} boxes {'lies' if n == 1 else 'lie'} wholly outside"
        where = dataset.image_ids[truth.image_index[is_outside.argmax()]]
        return (f"{self.name}: {n:,} {what} the image, such as one of {where}",)


def _refuse_repeated_files(file: CocoFile, folder: Path, paths: Sequence[str]) -> None:
    """Refuse two records of one picture, however they spell its path."""
    first: dict[str, str] = {}
    for path, real in zip(paths, real_paths(folder, paths), strict=True):
        if first.setdefault(real, path) != path:
            raise InvalidDataError(
                f"{file.path} has two images, {first[real]} and {path}, which are one file, "
                f"{real}; keep one of them, with the boxes of both."
            )
