"""Sets whose outputs are in files: images of a classifier without pictures, boxes with truth."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from glob import escape as glob_escape
from itertools import pairwise
from pathlib import Path

import numpy as np

from incognita.benchmarks.sources.entry import (
    SEVERAL_SETS,
    DataContext,
    LoadedSet,
    SetEntry,
)
from incognita.containers.dataset import BoxDataset
from incognita.errors import InvalidDataError
from incognita.formats.coco_dataset import CocoDataset
from incognita.formats.recorded_outputs import (
    CLASSES,
    HEAD,
    DetectorClasses,
    OutputsFolder,
    RecordedBoxes,
    RecordedImages,
    images_file,
    load_image_ids,
)
from incognita.shapes import Shaped

_MANY_EMPTY = 0.5  # of the images of a set


def file_name(name: str, role: str) -> str:
    """Return what the file of a set is called: its role, or its name where several share a role.

    >>> file_name("tin-validation", "unknown-validation"), file_name("svhn", "far")
    ('unknown-validation', 'svhn')
    """
    is_shared = role in SEVERAL_SETS
    return without_separators(name if is_shared else role)


def without_separators(name: str) -> str:
    """Return the name of a set as the name of a file."""
    return name.replace("/", "-").replace(" ", "-")


def load_recorded_sets(
    entries: Sequence[SetEntry], context: DataContext, folder: OutputsFolder
) -> list[LoadedSet]:
    """Load the sets of a benchmark from a folder of outputs; an absent file is a missing set."""
    entries = [entry for entry in entries if _is_used(entry, folder)]
    if entries[0].task == "detection":
        return _load_boxes(entries, replace(context, needs_images=False), folder)
    sets = [_load_images(entry, context, folder) for entry in entries]
    _check_widths([s.dataset for s in sets if isinstance(s.dataset, RecordedImages)], folder)
    return sets


def _is_used(entry: SetEntry, folder: OutputsFolder) -> bool:
    """Whether an absent file counts as missing: unknown images to choose on are optional."""
    is_optional = entry.role in ("unknown-training", "unknown-validation")
    name = file_name(entry.name, entry.role)
    return not is_optional or any(folder.path.glob(f"{glob_escape(name)}.*"))


def _load_images(entry: SetEntry, context: DataContext, folder: OutputsFolder) -> LoadedSet:
    name = file_name(entry.name, entry.role)
    path = folder.find(name)
    if path is None:
        return LoadedSet(entry, None, None, (str(folder.path / f"{name}.npz"),))
    dataset = RecordedImages.from_file(entry.name, path, is_known=entry.is_labeled)
    if dataset.n_classes != len(context.classes):
        raise InvalidDataError(
            f"Expected {len(context.classes)} columns of logits in {path}, one per known class of "
            f"{context.benchmark}, got {dataset.n_classes}."
        )
    if entry.is_labeled and dataset.labels is None:
        raise InvalidDataError(
            f"Expected labels in {path}: the images of {entry.role} are known. Write the class of "
            f"each row, counted from 0."
        )
    _check_labels(dataset, entry, context)
    return LoadedSet(entry, dataset, None)


def _check_labels(dataset: RecordedImages, entry: SetEntry, context: DataContext) -> None:
    if dataset.labels is None:
        return
    if not entry.is_labeled:
        raise InvalidDataError(
            f"{dataset.path} has labels, but the images of {entry.name} are unknown. Leave the "
            f"labels out, or write -1."
        )
    low, high = int(dataset.labels.min()), int(dataset.labels.max())
    if low < 0 or high >= len(context.classes):
        raise InvalidDataError(
            f"Expected labels of {dataset.path} from 0 to {len(context.classes) - 1}, got "
            f"{low if low < 0 else high}."
        )


def _check_widths(sets: Sequence[RecordedImages], folder: OutputsFolder) -> None:
    for first, other in pairwise(sets):
        if first.n_features != other.n_features:
            a, b = (f"{s.n_features or 'no'} features in {s.path.name}" for s in (first, other))
            raise InvalidDataError(
                f"{folder.path} has {a} and {b}. Write the features of one layer for all sets."
            )
    heads = folder.heads()
    if len(heads) > 1:
        raise InvalidDataError(f"Expected one head of a classifier in {folder.path}.")
    for head in heads:
        expected = (sets[0].n_classes, sets[0].n_features or head.weight.shape[1]) if sets else ()
        if sets and head.weight.shape != expected:
            raise InvalidDataError(
                f"Expected a {HEAD} with weight {list(expected)} in {folder.path}, as the logits "
                f"and features are, got {list(head.weight.shape)}."
            )


def _load_boxes(
    entries: Sequence[SetEntry], context: DataContext, folder: OutputsFolder
) -> list[LoadedSet]:
    numbering: DetectorClasses | None = None
    _refuse_samples(entries)
    loaded = {entry.name: entry.load(context) for entry in entries}
    all_ids = None if folder.boxes is None else _ids_of_all(loaded.values(), folder.boxes)
    test = next(s for s in loaded.values() if s.entry.role == "test")
    sets = []
    for found in loaded.values():
        path = folder.results_file(file_name(found.entry.name, found.entry.role))
        if found.dataset is None or not path.exists():
            missing = found.missing if found.dataset is None else (str(path),)
            sets.append(LoadedSet(found.entry, None, found.expected, missing))
            continue
        numbering = numbering or _numbering(folder, test, context)
        dataset = recorded_boxes(found.dataset, path, numbering)
        if all_ids is not None:
            dataset = replace(dataset, all_ids=all_ids)
        notes = (*found.notes, *_notes_on_boxes(dataset))
        sets.append(replace(found, dataset=dataset, notes=notes))
    _check_sidecars([s.dataset for s in sets if isinstance(s.dataset, RecordedBoxes)])
    return sets


def _refuse_samples(entries: Sequence[SetEntry]) -> None:
    for entry in entries:
        how = entry.corrupt
        if how is not None and (how.sample is not None or not isinstance(how.severity, int)):
            raise InvalidDataError(
                f"Expected one severity and no sample for recorded boxes, got set {entry.name!r}, "
                f"in which an image may be repeated. Run the detector instead."
            )


def _check_sidecars(sets: Sequence[RecordedBoxes]) -> None:
    for first, other in pairwise(sets):
        if first.widths != other.widths:
            a, b = (f"{s.path.stem}: {s.widths or 'nothing'}" for s in (first, other))
            raise InvalidDataError(
                f"Expected logits and features of the same widths for all sets, got {a}; {b}. "
                f"Write them for all sets, or for none."
            )


def _numbering(folder: OutputsFolder, test: LoadedSet, context: DataContext) -> DetectorClasses:
    """Find the numbering of the detector's classes: its own list, or that of the annotations."""
    known = tuple(context.classes)
    if (names := folder.categories()) is not None:
        return DetectorClasses.from_names(names, known, str(folder.path / CLASSES))
    if isinstance(test.dataset, CocoDataset):
        categories = test.dataset.file.content.categories
        ids = {c: k if k < len(known) else None for c, k in categories.items()}
        places, source = tuple(range(len(known))), str(test.dataset.file.path)
        return DetectorClasses(ids, known, places, source, is_listed=False)
    raise InvalidDataError(
        f"{folder.path / CLASSES} is missing, and {context.benchmark} has no annotation file that "
        f'numbers the classes. Write a list of {{"id": 1, "name": "{known[0]}"}}.'
    )


def recorded_boxes(images: object, path: Path, numbering: DetectorClasses) -> RecordedBoxes:
    """Combine annotated images with a results file, whose ids are those of the annotations."""
    assert isinstance(images, BoxDataset)
    sidecar = path.with_suffix(".safetensors")
    record_ids, all_ids = _record_ids(images)
    found = sidecar if sidecar.exists() else None
    boxes = RecordedBoxes(images, path, found, record_ids, numbering, all_ids)
    if (listed := load_image_ids(images_file(path))) is None:
        return boxes
    return boxes.subset(np.flatnonzero(np.isin(record_ids, listed)).tolist())


def _ids_of_all(sets: Iterable[LoadedSet], path: Path) -> Shaped[np.ndarray, "all"]:
    """Return the image ids of all sets, which one results file can only tell apart if unique."""
    ids = np.concatenate([_record_ids(s.dataset)[1] for s in sets if s.dataset is not None])
    unique, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise InvalidDataError(
            f"Image id {unique[counts > 1][0]} is in two sets of the benchmark, so that {path} "
            f"cannot tell them apart. Give a folder with one results file per set."
        )
    return unique


def _record_ids(images: object) -> tuple[Shaped[np.ndarray, "n"], Shaped[np.ndarray, "all"]]:
    """Return the ids that a results file uses: of the images of a set, and of its whole file."""
    assert isinstance(images, BoxDataset)
    if isinstance(images, CocoDataset):
        return images.record_ids, images.file.content.truth.image_ids
    own = np.array([str(image) for image in images.image_ids], np.str_)
    return own, own


def _notes_on_boxes(dataset: RecordedBoxes) -> list[str]:
    """Note images without a box, which may be images that the detector was never run on."""
    found = dataset.detections()
    n_empty = int((np.diff(found.offsets) == 0).sum())
    if n_empty <= _MANY_EMPTY * len(dataset):
        return []
    return [
        f"{dataset.name}: {dataset.path.name} has no box for {n_empty:,} of {len(dataset):,} "
        f"images; they count as images without a detection"
    ]
