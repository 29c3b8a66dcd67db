"""From an entry of a definition to the images that are really there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from incognita.benchmarks.class_names import plain
from incognita.benchmarks.opened import OpenedSet, Surroundings
from incognita.benchmarks.set_entries import (
    AnySet,
    CocoSet,
    DigitsSet,
    FolderSet,
    ImglistSet,
    TerraScenesSet,
    TerraSet,
)
from incognita.containers._checks import check_class_ids
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.formats.image_folder import Listing, first_folder, list_files
from incognita.formats.images import FileDataset, are_present
from incognita.formats.imglist import ImageList, load_imglist
from incognita.shapes import Int

FIRST = 5  # missing paths that are worth showing


def open_set(entry: AnySet, around: Surroundings) -> OpenedSet:
    """Find the images of a set; absent ones are told, wrong ones are refused."""
    if isinstance(entry, ImglistSet):
        return _open_imglist(entry, around)
    if isinstance(entry, FolderSet):
        return _open_folder(entry, around)
    if isinstance(entry, CocoSet | TerraScenesSet):
        return _open_boxes(entry, around)
    dataset = _terra(entry) if isinstance(entry, TerraSet) else _digits(entry)
    _check_labels(entry, dataset.labels, around)
    n_images = len(dataset.image_ids)
    if entry.count not in (None, n_images):
        raise InvalidDataError(
            f"Set {entry.name!r} of {around.benchmark} has {n_images:,} images, but the "
            f"definition says {entry.count:,}; correct its count."
        )
    return OpenedSet(entry, dataset, n_images)


def _open_boxes(entry: CocoSet | TerraScenesSet, around: Surroundings) -> OpenedSet:
    # what boxes need is slow to import
    from incognita.benchmarks.opening_boxes import open_coco, open_terra_scenes

    if isinstance(entry, CocoSet):
        return open_coco(entry, around)
    return open_terra_scenes(entry, around)


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


def _open_imglist(entry: ImglistSet, around: Surroundings) -> OpenedSet:
    path = around.data / entry.list
    try:
        listed = load_imglist(path)
    except MissingDataError:
        return OpenedSet(entry, None, entry.count, (str(path),))
    if entry.count is not None and len(listed.paths) != entry.count:
        raise InvalidDataError(
            f"{path} lists {len(listed.paths):,} images, but set {entry.name!r} of "
            f"{around.benchmark} has {entry.count:,}; it is another version of the list: get the "
            f"one that `incognita data plan {around.typed}` names."
        )
    _check_labels(entry, listed.labels, around)
    return _present_part(entry, around, listed)


def _present_part(entry: ImglistSet, around: Surroundings, listed: ImageList) -> OpenedSet:
    root = around.data / entry.root
    is_there = are_present(root, listed.paths)
    absent = np.flatnonzero(~is_there)[:FIRST]
    missing = tuple(str(root / listed.paths[k]) for k in absent)
    if not is_there.any():
        return OpenedSet(entry, None, len(is_there), missing)
    paths = tuple(path for path, there in zip(listed.paths, is_there, strict=True) if there)
    labels = None if listed.labels is None else listed.labels[is_there]
    names = [path.split("/")[-2] if "/" in path else "" for path in paths]
    own = tuple(names) if entry.one_class_per_folder else None
    dataset = FileDataset(entry.name, root, paths, labels, own, around.cache_dir)
    return OpenedSet(entry, dataset, len(is_there), missing)


def _open_folder(entry: FolderSet, around: Surroundings) -> OpenedSet:
    root = around.data / entry.path
    try:
        paths, left_out = list_files(root)
    except MissingDataError:
        paths, left_out = Listing((), ())
    if not paths:
        return OpenedSet(entry, None, entry.count, (str(root),), left_out)
    folders = [first_folder(path) for path in paths]
    labels = _labels_of(entry, folders, around) if entry.is_known else None
    own = tuple(folder or "" for folder in folders) if entry.one_class_per_folder else None
    dataset = FileDataset(entry.name, root, paths, labels, own, around.cache_dir)
    return OpenedSet(entry, dataset, entry.count, (), left_out)


def _labels_of(
    entry: FolderSet, folders: Sequence[str | None], around: Surroundings
) -> Int[np.ndarray, "n"]:
    """Find the known class that each folder is called after."""
    if not around.has_names:
        raise InvalidDataError(
            f"Set {entry.name!r} of {around.benchmark} takes its classes from folders, but the "
            f"definition gives no names; list them: classes = [...]."
        )
    if None in folders:
        raise InvalidDataError(
            f"{around.data / entry.path} holds images outside any folder; put each known image of "
            f"set {entry.name!r} into the folder of its class."
        )
    numbers = {plain(name): number for number, name in enumerate(around.classes)}
    known = {folder: _label_of(folder, entry, numbers, around) for folder in set(folders) if folder}
    return np.array([known[folder] for folder in folders if folder], np.int64)


def _label_of(
    folder: str, entry: FolderSet, numbers: Mapping[str, int], around: Surroundings
) -> int:
    name = entry.folders.get(folder, folder)
    if plain(name) not in numbers:
        kind = f"class of {around.benchmark}"
        problem = unknown_name(kind, name, around.classes)
        raise InvalidDataError(f"{around.data / entry.path / folder}: {problem}") from problem
    return numbers[plain(name)]


def _check_labels(entry: AnySet, labels: Any, around: Surroundings) -> None:
    """Refuse known images without a class, unknown ones with one, and classes out of range."""
    where = f"Set {entry.name!r} of {around.benchmark}"
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
        check_class_ids(where, labels, len(around.classes))
