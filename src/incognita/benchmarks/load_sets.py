"""From an entry of a definition to the images that are really there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from incognita.benchmarks.definition import (
    AnySet,
    CocoSet,
    DigitsSet,
    FolderSet,
    ImglistSet,
    TerraScenesSet,
    TerraSet,
)
from incognita.containers._checks import check_class_ids
from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import Role, find_spelling, plain
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.formats.class_roles import CategoryRoles
from incognita.formats.coco_dataset import CocoDataset, CocoFile, find_files, is_in_fold
from incognita.formats.image_folder import Listing, first_folder, list_files
from incognita.formats.images import FileDataset, are_present, real_paths
from incognita.formats.imglist import ImageList, load_imglist
from incognita.shapes import Int


@dataclass(frozen=True)
class LoadedSet:
    """A set of a definition and what was found of it.

    Args:
        entry: What the definition says.
        dataset: The images that are there; None where there are none at all.
        expected: How many there should be, where anybody says.
        missing: The first paths that are not there.
        left_out: Files of its folder that are no images by their suffix.
        object_classes: Classes that its boxes may show; None where it has no boxes.
        notes: What opening it brought to light.
    """

    entry: AnySet
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


@dataclass(frozen=True)
class DataContext:
    """What opening a set needs besides its entry.

    Args:
        benchmark: Its name, for messages.
        data: The folder that relative paths begin at.
        classes: Names of the known classes; their numbers where there are no names.
        has_names: Whether the classes have names.
        cache_dir: Where hashes of files are remembered.
        named: What people type to name the benchmark, where that is not its name.
    """

    benchmark: str
    data: Path
    classes: Sequence[str]
    has_names: bool = True
    cache_dir: Path | None = None
    named: str | None = None

    @property
    def typed(self) -> str:
        """What a command takes for the benchmark."""
        return self.named or self.benchmark


def open_coco(entry: CocoSet, context: DataContext) -> LoadedSet:
    """Find the images that a COCO file annotates."""
    unknown = None if entry.unknown is None else tuple(entry.unknown)
    roles = CategoryRoles(tuple(context.classes), entry.rename, unknown, tuple(entry.ignored))
    file = CocoFile(context.data / entry.annotations, roles)
    try:
        truth = file.content.truth
    except MissingDataError:
        return LoadedSet(entry, None, entry.count, (str(file.path),))
    places = np.flatnonzero(is_in_fold(truth.image_ids, entry.fold))
    if entry.count not in (None, len(places)):
        raise InvalidDataError(
            f"{file.path} lists {len(places):,} images{_of_fold(entry)}, but set {entry.name!r} of "
            f"{context.benchmark} has {entry.count:,}; it is another version of the file: get the "
            f"one that `incognita data plan {context.typed}` names, or correct the count."
        )
    return _present_boxes(entry, context, file, places)


def _of_fold(entry: CocoSet) -> str:
    return "" if entry.fold is None else " in fold [{}, {}]".format(*entry.fold)


def _present_boxes(
    entry: CocoSet, context: DataContext, file: CocoFile, places: Int[np.ndarray, "n"]
) -> LoadedSet:
    folder = context.data / entry.images
    paths, is_there = find_files(folder, [file.content.file_names[k] for k in places])
    missing = tuple(str(folder / paths[k]) for k in np.flatnonzero(~is_there)[:FIRST])
    if not is_there.any():
        return LoadedSet(entry, None, len(places), missing)
    present = tuple(path for path, there in zip(paths, is_there, strict=True) if there)
    _refuse_one_file_twice(file, folder, present)
    dataset = CocoDataset(
        entry.name,
        folder,
        present,
        cache_dir=context.cache_dir,
        file=file,
        record_ids=file.content.truth.image_ids[places[is_there]],
        sizes=file.content.sizes[places[is_there]],
    )
    notes = _check_names(entry, context, file, dataset.truth())
    notes += _boxes_outside(entry, dataset)
    shown = _classes_shown(dataset.truth())
    return LoadedSet(entry, dataset, len(places), missing, object_classes=shown, notes=notes)


def _refuse_one_file_twice(file: CocoFile, folder: Path, paths: Sequence[str]) -> None:
    """Refuse two records of one picture, however they spell its path."""
    first: dict[str, str] = {}
    for path, real in zip(paths, real_paths(folder, paths), strict=True):
        if first.setdefault(real, path) != path:
            raise InvalidDataError(
                f"{file.path} has two images, {first[real]} and {path}, which are one file, "
                f"{real}; keep one of them, with the boxes of both."
            )


def _boxes_outside(entry: CocoSet, dataset: CocoDataset) -> tuple[str, ...]:
    """Say how many boxes no detector can find, because they lie beside their image."""
    truth = dataset.truth()
    ends = np.where(dataset.sizes > 0, dataset.sizes, np.inf)[truth.image_index]
    is_outside = (truth.xyxy[:, :2] >= ends).any(axis=1) | (truth.xyxy[:, 2:] < 0).any(axis=1)
    if not (n := int(is_outside.sum())):
        return ()
    what = f"of {len(truth):,} boxes {'lies' if n == 1 else 'lie'} wholly outside"
    where = dataset.image_ids[truth.image_index[is_outside.argmax()]]
    return (f"{entry.name}: {n:,} {what} the image, such as one of {where}",)


def _classes_shown(truth: BoxTruth) -> frozenset[str]:
    return frozenset(truth.classes.names[k] for k in np.unique(truth.class_ids))


def _check_names(
    entry: CocoSet, context: DataContext, file: CocoFile, truth: BoxTruth
) -> tuple[str, ...]:
    """Refuse a known class that the file seems to spell otherwise; say which ones it lacks."""
    absent = [name for name in context.classes if name not in file.content.named]
    accepted = {plain(name) for name in (*entry.allowed_classes, *(entry.unknown or ()))}
    is_unknown = truth.classes.has_role(Role.UNKNOWN)
    others = [truth.classes.names[k] for k in np.unique(truth.class_ids) if is_unknown[k]]
    for name in absent:
        if spelt := find_spelling(name, [each for each in others if plain(each) not in accepted]):
            raise InvalidDataError(
                f"{file.path} has a category {spelt!r} and none for the known class {name!r} of "
                f"{context.benchmark}; if they are one, write rename = {{ {spelt!r} = {name!r} }} "
                f"in set {entry.name!r}, else name {spelt!r} in its allowed_classes."
            )
    if len(absent) == len(context.classes) and entry.is_known:
        raise InvalidDataError(
            f"{file.path} has no category for any known class of {context.benchmark}, but set "
            f"{entry.name!r} has the role {entry.role}; give the names of its categories with "
            f"rename, or another file."
        )
    if not absent or len(absent) == len(context.classes):
        return ()
    listed = ", ".join(absent)
    return (f"{entry.name}: no category is called {listed}; rename what the file calls otherwise",)


def open_terra_scenes(entry: TerraScenesSet, context: DataContext) -> LoadedSet:
    """Draw the scenes of a set."""
    from incognita.benchmarks.terra.classes import KNOWN_NAMES
    from incognita.benchmarks.terra.scenes import terra_scenes

    if tuple(context.classes) != KNOWN_NAMES:
        strange = next((name for name in context.classes if name not in KNOWN_NAMES), None)
        what = "are not these, in this order" if strange is None else f"hold {strange!r}"
        raise InvalidDataError(
            f"The known classes of Terra are {', '.join(KNOWN_NAMES)}, but those of "
            f"{context.benchmark} {what}; list them so."
        )
    dataset = terra_scenes(
        entry.part,
        seed=entry.seed,
        n=entry.count,
        size=entry.size,
        classes=entry.classes,
        style=entry.style,
    )
    return LoadedSet(entry, dataset, entry.count, object_classes=dataset.object_classes)


FIRST = 5  # missing paths that are worth showing


def load_set(entry: AnySet, context: DataContext) -> LoadedSet:
    """Find the images of a set; absent ones are told, wrong ones are refused."""
    if isinstance(entry, ImglistSet):
        return _open_imglist(entry, context)
    if isinstance(entry, FolderSet):
        return _open_folder(entry, context)
    if isinstance(entry, CocoSet | TerraScenesSet):
        return _open_boxes(entry, context)
    dataset = _terra(entry) if isinstance(entry, TerraSet) else _digits(entry)
    _check_labels(entry, dataset.labels, context)
    n_images = len(dataset.image_ids)
    if entry.count not in (None, n_images):
        raise InvalidDataError(
            f"Set {entry.name!r} of {context.benchmark} has {n_images:,} images, but the "
            f"definition says {entry.count:,}; correct its count."
        )
    return LoadedSet(entry, dataset, n_images)


def _open_boxes(entry: CocoSet | TerraScenesSet, context: DataContext) -> LoadedSet:
    # what boxes need is slow to import

    if isinstance(entry, CocoSet):
        return open_coco(entry, context)
    return open_terra_scenes(entry, context)


def _terra(entry: TerraSet) -> Dataset:
    from incognita.benchmarks.terra.images import terra_dataset

    return terra_dataset(
        entry.part,
        seed=entry.seed,
        n=entry.count,
        size=entry.size,
        classes=entry.classes,
        style=entry.style,
    )


def _digits(entry: DigitsSet) -> Dataset:
    from incognita.benchmarks.digits import digits_part, photograph_patches, unknown_digits

    if entry.part is not None:
        return digits_part(entry.part)
    if entry.digits is not None:
        return unknown_digits(entry.digits)
    return photograph_patches(entry.photograph or "")


def _open_imglist(entry: ImglistSet, context: DataContext) -> LoadedSet:
    path = context.data / entry.list
    try:
        listed = load_imglist(path)
    except MissingDataError:
        return LoadedSet(entry, None, entry.count, (str(path),))
    if entry.count is not None and len(listed.paths) != entry.count:
        raise InvalidDataError(
            f"{path} lists {len(listed.paths):,} images, but set {entry.name!r} of "
            f"{context.benchmark} has {entry.count:,}; it is another version of the list: get the "
            f"one that `incognita data plan {context.typed}` names."
        )
    _check_labels(entry, listed.labels, context)
    return _present_part(entry, context, listed)


def _present_part(entry: ImglistSet, context: DataContext, listed: ImageList) -> LoadedSet:
    root = context.data / entry.root
    is_there = are_present(root, listed.paths)
    absent = np.flatnonzero(~is_there)[:FIRST]
    missing = tuple(str(root / listed.paths[k]) for k in absent)
    if not is_there.any():
        return LoadedSet(entry, None, len(is_there), missing)
    paths = tuple(path for path, there in zip(listed.paths, is_there, strict=True) if there)
    labels = None if listed.labels is None else listed.labels[is_there]
    names = [path.split("/")[-2] if "/" in path else "" for path in paths]
    own = tuple(names) if entry.one_class_per_folder else None
    dataset = FileDataset(entry.name, root, paths, labels, own, context.cache_dir)
    return LoadedSet(entry, dataset, len(is_there), missing)


def _open_folder(entry: FolderSet, context: DataContext) -> LoadedSet:
    root = context.data / entry.path
    try:
        paths, left_out = list_files(root)
    except MissingDataError:
        paths, left_out = Listing((), ())
    if not paths:
        return LoadedSet(entry, None, entry.count, (str(root),), left_out)
    folders = [first_folder(path) for path in paths]
    labels = _labels_of(entry, folders, context) if entry.is_known else None
    own = tuple(folder or "" for folder in folders) if entry.one_class_per_folder else None
    dataset = FileDataset(entry.name, root, paths, labels, own, context.cache_dir)
    return LoadedSet(entry, dataset, entry.count, (), left_out)


def _labels_of(
    entry: FolderSet, folders: Sequence[str | None], context: DataContext
) -> Int[np.ndarray, "n"]:
    """Find the known class that each folder is called after."""
    if not context.has_names:
        raise InvalidDataError(
            f"Set {entry.name!r} of {context.benchmark} takes its classes from folders, but the "
            f"definition gives no names; list them: classes = [...]."
        )
    if None in folders:
        raise InvalidDataError(
            f"{context.data / entry.path} holds images outside any folder; put each known image of "
            f"set {entry.name!r} into the folder of its class."
        )
    numbers = {plain(name): number for number, name in enumerate(context.classes)}
    known = {
        folder: _label_of(folder, entry, numbers, context) for folder in set(folders) if folder
    }
    return np.array([known[folder] for folder in folders if folder], np.int64)


def _label_of(
    folder: str, entry: FolderSet, numbers: Mapping[str, int], context: DataContext
) -> int:
    name = entry.folders.get(folder, folder)
    if plain(name) not in numbers:
        kind = f"class of {context.benchmark}"
        problem = unknown_name(kind, name, context.classes)
        raise InvalidDataError(f"{context.data / entry.path / folder}: {problem}") from problem
    return numbers[plain(name)]


def _check_labels(entry: AnySet, labels: Any, context: DataContext) -> None:
    """Refuse known images without a class, unknown ones with one, and classes out of range."""
    where = f"Set {entry.name!r} of {context.benchmark}"
    if entry.is_known and labels is None:
        raise InvalidDataError(
            f"{where} has the role {entry.role}, but its images carry no class (label -1); give "
            f"the list with their classes."
        )
    if not entry.is_known and labels is not None:
        raise InvalidDataError(
            f"{where} has the role {entry.role}, but its images carry the numbers of known "
            f"classes; label unknown images with -1."
        )
    if labels is not None:
        check_class_ids(where, labels, len(context.classes))
