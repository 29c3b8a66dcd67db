"""From an entry of a detection benchmark to its images and boxes that are really there."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from incognita.benchmarks.class_names import find_spelling, plain
from incognita.benchmarks.opened import OpenedSet, Surroundings
from incognita.benchmarks.readers.coco_classes import CategoryRoles
from incognita.benchmarks.set_entries import CocoSet, TerraScenesSet
from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import Role
from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats.coco_dataset import CocoDataset, CocoFile, find_files, is_in_fold
from incognita.formats.images import real_paths
from incognita.shapes import Int

FIRST = 5  # missing paths that are worth showing


def open_coco(entry: CocoSet, around: Surroundings) -> OpenedSet:
    """Find the images that a COCO file annotates."""
    unknown = None if entry.unknown is None else tuple(entry.unknown)
    roles = CategoryRoles(tuple(around.classes), entry.rename, unknown, tuple(entry.ignored))
    file = CocoFile(around.data / entry.annotations, roles)
    try:
        truth = file.content.truth
    except MissingDataError:
        return OpenedSet(entry, None, entry.count, (str(file.path),))
    places = np.flatnonzero(is_in_fold(truth.image_ids, entry.fold))
    if entry.count not in (None, len(places)):
        raise InvalidDataError(
            f"{file.path} lists {len(places):,} images{_of_fold(entry)}, but set {entry.name!r} of "
            f"{around.benchmark} has {entry.count:,}; it is another version of the file: get the "
            f"one that `incognita data plan {around.typed}` names, or correct the count."
        )
    return _present_part(entry, around, file, places)


def _of_fold(entry: CocoSet) -> str:
    return "" if entry.fold is None else " in fold [{}, {}]".format(*entry.fold)


def _present_part(
    entry: CocoSet, around: Surroundings, file: CocoFile, places: Int[np.ndarray, "n"]
) -> OpenedSet:
    folder = around.data / entry.images
    paths, is_there = find_files(folder, [file.content.file_names[k] for k in places])
    missing = tuple(str(folder / paths[k]) for k in np.flatnonzero(~is_there)[:FIRST])
    if not is_there.any():
        return OpenedSet(entry, None, len(places), missing)
    present = tuple(path for path, there in zip(paths, is_there, strict=True) if there)
    _refuse_one_file_twice(file, folder, present)
    dataset = CocoDataset(
        entry.name,
        folder,
        present,
        cache_dir=around.cache_dir,
        file=file,
        record_ids=file.content.truth.image_ids[places[is_there]],
        sizes=file.content.sizes[places[is_there]],
    )
    notes = _check_names(entry, around, file, dataset.truth())
    notes += _boxes_outside(entry, dataset)
    shown = _classes_shown(dataset.truth())
    return OpenedSet(entry, dataset, len(places), missing, object_classes=shown, notes=notes)


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
    entry: CocoSet, around: Surroundings, file: CocoFile, truth: BoxTruth
) -> tuple[str, ...]:
    """Refuse a known class that the file seems to spell otherwise; say which ones it lacks."""
    absent = [name for name in around.classes if name not in file.content.named]
    accepted = {plain(name) for name in (*entry.allowed_classes, *(entry.unknown or ()))}
    is_unknown = truth.classes.has_role(Role.UNKNOWN)
    others = [truth.classes.names[k] for k in np.unique(truth.class_ids) if is_unknown[k]]
    for name in absent:
        if spelt := find_spelling(name, [each for each in others if plain(each) not in accepted]):
            raise InvalidDataError(
                f"{file.path} has a category {spelt!r} and none for the known class {name!r} of "
                f"{around.benchmark}; if they are one, write rename = {{ {spelt!r} = {name!r} }} "
                f"in set {entry.name!r}, else name {spelt!r} in its allowed_classes."
            )
    if len(absent) == len(around.classes) and entry.is_known:
        raise InvalidDataError(
            f"{file.path} has no category for any known class of {around.benchmark}, but set "
            f"{entry.name!r} has the role {entry.role}; give the names of its categories with "
            f"rename, or another file."
        )
    if not absent or len(absent) == len(around.classes):
        return ()
    listed = ", ".join(absent)
    return (f"{entry.name}: no category is called {listed}; rename what the file calls otherwise",)


def open_terra_scenes(entry: TerraScenesSet, around: Surroundings) -> OpenedSet:
    """Draw the scenes of a set."""
    from incognita.benchmarks.terra.classes import KNOWN_NAMES
    from incognita.benchmarks.terra.scenes import terra_scenes

    if tuple(around.classes) != KNOWN_NAMES:
        strange = next((name for name in around.classes if name not in KNOWN_NAMES), None)
        what = "are not these, in this order" if strange is None else f"hold {strange!r}"
        raise InvalidDataError(
            f"The known classes of Terra are {', '.join(KNOWN_NAMES)}, but those of "
            f"{around.benchmark} {what}; list them so."
        )
    dataset = terra_scenes(
        entry.part,
        seed=entry.seed,
        n=entry.count,
        size=entry.size,
        classes=entry.classes,
        style=entry.style,
    )
    return OpenedSet(entry, dataset, entry.count, object_classes=dataset.object_classes)
