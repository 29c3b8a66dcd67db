"""The driving sets of SAOD: BDD45K of BDD100K for tests, and nuImages for validation.

Both get the classes pedestrian, vehicle and bicycle. Oksuz et al., CVPR 2023, appendix A.1.2.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from incognita.benchmarks.splits.saod_sets import (
    BddClasses,
    BuiltSet,
    ClassTables,
    ImageGroup,
    NuImagesClasses,
    OnStep,
    box_of,
    category_records,
    class_of_name,
    find_source,
    numbered,
    place_images,
    reading_progress,
)
from incognita.benchmarks.splits.write import InputFile
from incognita.errors import InvalidDataError, unknown_name
from incognita.files import json_batches
from incognita.formats.bdd import ATTRIBUTES, BDD_HEIGHT, BDD_WIDTH, Frame, Label, read_frames
from incognita.formats.coco_annotations import Records
from incognita.formats.coco_records import Annotations, Record
from incognita.registry import need
from incognita.shapes import Float


class MergedRiders(NamedTuple):
    """The objects of an image without riders, or why the image is left out.

    `n_left_over` is how many riders have no rideable of their own.
    """

    labels: list[Label]
    problem: str | None = None
    n_left_over: int = 0


def build_bdd(folder: Path, tables: ClassTables, *, on_step: OnStep = lambda _: None) -> BuiltSet:
    """Build BDD45K: images of BDD100K, with riders merged into what they ride.

    The first training images that pass are taken, in the order of the file, and all validation
    images that pass. An image passes if it has a known object and `merge_riders` finds no problem.

    Args:
        folder: Holds det_train.json and det_val.json (labels det_20); images lie in
            images/100k/train and images/100k/val.
        tables: Which classes are known, and what a rider may ride.
        on_step: Called with the name of each step.
    """
    group, outcomes, inputs = ImageGroup(), {}, []
    for split, limit in (("train", tables.bdd.first_train_images), ("val", None)):
        places = ("", "annotations", "labels", "labels/det_20")
        path = find_source(folder, f"det_{split}.json", places, "https://bdd-data.berkeley.edu")
        inputs.append(InputFile.at(f"bdd {split}", path))
        frames = _read_frames(path, tables.bdd, on_step)
        outcomes[path.name] = _add_frames(group, frames, tables.bdd, limit)
        _place_frames(group, folder, split)
    categories = category_records(numbered(tables.bdd.known))
    annotations = Annotations(", ".join(outcomes), group.images, group.objects, categories)
    attributes = {
        name: dict(Counter(image[name] for image in group.images.values()).most_common())
        for name in ATTRIBUTES
    }
    return BuiltSet("bdd45k", annotations, folder, inputs, outcomes, group.dropped, attributes)


def _read_frames(path: Path, classes: BddClasses, on_step: OnStep) -> Iterator[Frame]:
    listed = {*class_of_name(classes.known), *classes.ignored, classes.rider}
    advice = ", or list it under bdd and give the tables with --tables"
    on_read = reading_progress(path, on_step)
    return read_frames(path, listed=listed, advice=advice, on_read=on_read)


def merge_riders(labels: Sequence[Label], classes: BddClasses) -> MergedRiders:
    """Merge riders into what they ride, as nuImages annotates them.

    Riders and rideables are paired so that the sum of their IoUs is largest. The box of a rideable
    with a rider encloses both, and a rider without a rideable of its own vanishes. An image is left
    out if it has riders and nothing to ride, or a pair below the smallest IoU.
    """
    optimize = need("scipy.optimize", extra="calibrators", needed_by="Merging riders")
    riders = [label for label in labels if label.name == classes.rider]
    others = [label for label in labels if label.name != classes.rider]
    places = [k for k, label in enumerate(others) if label.name in classes.rideables]
    if not riders:
        return MergedRiders(others)
    if not places:
        return MergedRiders([], "rider without anything to ride")
    ious = _ious([label.xyxy for label in riders], [others[k].xyxy for k in places])
    rows, columns = optimize.linear_sum_assignment(ious, maximize=True)
    if ious[rows, columns].min() < classes.smallest_iou:
        return MergedRiders([], f"rider and rideable with an IoU below {classes.smallest_iou}")
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        ridden = others[places[column]]
        others[places[column]] = Label(ridden.name, _enclosing(riders[row].xyxy, ridden.xyxy))
    return MergedRiders(others, None, len(riders) - len(rows))


def _enclosing(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float, float]:
    return (min(one[0], other[0]), min(one[1], other[1]),
            max(one[2], other[2]), max(one[3], other[3]))  # fmt: skip


def _ious(
    rows: Sequence[Sequence[float]], columns: Sequence[Sequence[float]]
) -> Float[np.ndarray, "rows columns"]:
    one, other = np.array(rows, np.float64)[:, None], np.array(columns, np.float64)[None]
    starts = np.maximum(one[..., :2], other[..., :2])
    ends = np.minimum(one[..., 2:], other[..., 2:])
    overlap = (ends - starts).clip(min=0).prod(axis=-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(axis=-1) for boxes in (one, other)]
    union = areas[0] + areas[1] - overlap
    ious: Float[np.ndarray, "rows columns"] = np.where(union > 0, overlap / union, 0.0)
    return ious


def _add_frames(
    group: ImageGroup, frames: Iterable[Frame], classes: BddClasses, limit: int | None
) -> dict[str, int]:
    """Add the images that pass, at most `limit`; return how many have which outcome."""
    class_of, numbers = class_of_name(classes.known), numbered(classes.known)
    outcomes = Counter[str]()
    for frame in frames:
        if limit is not None and outcomes["bdd45k"] == limit:
            outcomes[f"after the first {limit:,} that pass"] += 1
            continue
        merged = merge_riders(frame.labels, classes)
        known = [label for label in merged.labels if label.name in class_of]
        problem = merged.problem or (None if known else "no known object")
        outcomes[problem or "bdd45k"] += 1
        if problem is None:
            image = {"id": len(group.images) + 1, "file_name": frame.name, "width": BDD_WIDTH,
                     "height": BDD_HEIGHT, **frame.attributes}  # fmt: skip
            group.add(image, [_record(numbers[class_of[k.name]], k.xyxy) for k in known])
            group.count_dropped("of another class", len(merged.labels) - len(known))
            group.count_dropped("rider without a rideable of its own", merged.n_left_over)
    return +outcomes


def _record(category_id: int, xyxy: Sequence[float]) -> Record:
    width, height = xyxy[2] - xyxy[0], xyxy[3] - xyxy[1]
    bbox = [xyxy[0], xyxy[1], width, height]
    return {"category_id": category_id, "bbox": bbox, "area": width * height, "iscrowd": 0}


def _place_frames(group: ImageGroup, folder: Path, split: str) -> None:
    """Write where the images lie that have no folder yet."""
    added = {k: image for k, image in group.images.items() if "/" not in image["file_name"]}
    ways = (
        lambda name: f"images/100k/{split}/{name}",
        lambda name: f"images/{split}/{name}",
        lambda name: f"{split}/{name}",
    )
    places = place_images(folder, ways, [image["file_name"] for image in added.values()])
    for (number, image), place in zip(added.items(), places, strict=True):
        group.images[number] = {**image, "file_name": place}


def build_nuimages(
    folder: Path,
    tables: ClassTables,
    split: Literal["train", "val"],
    *,
    on_step: OnStep = lambda _: None,
) -> BuiltSet:
    """Build a set of nuImages with three classes: key frames, and objects that have a mask.

    Args:
        folder: Holds category.json, sample_data.json and object_ann.json in v1.0-train and
            v1.0-val; images lie in samples.
        tables: Which categories become the three classes; others are left out.
        split: Which set.
        on_step: Called with the name of each step.
    """
    name, published = f"nuimages-{split}", "https://www.nuscenes.org/nuimages"
    paths = {
        part: find_source(folder, f"{part}.json", (f"v1.0-{split}",), published)
        for part in ("category", "sample_data", "object_ann")
    }
    numbers = numbered(tables.nuimages.known)
    category_of = _category_of_token(paths["category"], tables.nuimages, on_step)
    images, n_frames = _key_frames(paths["sample_data"], on_step)
    group = ImageGroup()
    objects: dict[str, list[Record]] = {token: [] for token in images}
    for image, category_id, xyxy in _masked_objects(
        paths["object_ann"], objects, category_of, group.dropped, on_step
    ):
        objects[image].append(_record(category_id, xyxy))
    for token, record in images.items():
        group.add(record, objects[token])
    annotations = Annotations(name, group.images, group.objects, category_records(numbers))
    inputs = [InputFile.at(f"{name} {part}", path) for part, path in paths.items()]
    found = Counter({name: len(images), "not a key frame": n_frames - len(images)})
    outcomes = {f"v1.0-{split}/sample_data.json": +found}
    return BuiltSet(name, annotations, folder, inputs, outcomes, group.dropped)


def _category_of_token(path: Path, classes: NuImagesClasses, on_step: OnStep) -> dict[str, int]:
    """Return the category id that objects of each category get; 0 for those left out."""
    names: dict[str, str] = {}
    for records in _table(path, "category", on_step):
        names |= zip(records.texts("token"), records.texts("name"), strict=True)
    class_of, numbers = class_of_name(classes.known), numbered(classes.known)
    for listed in class_of:
        if listed not in names.values():
            raise unknown_name(f"category of {path}", listed, names.values())
    return {
        token: numbers[class_of[name]] if name in class_of else 0 for token, name in names.items()
    }


def _masked_objects(
    path: Path,
    images: Collection[str],
    category_of: Mapping[str, int],
    dropped: Counter[str],
    on_step: OnStep,
) -> Iterator[tuple[str, int, list[float]]]:
    """Yield the image, the category id and the corners of the objects that count."""
    for records in _table(path, "object", on_step):
        tokens = (records.texts("sample_data_token"), records.texts("category_token"))
        for index, (image, category) in enumerate(zip(*tokens, strict=True)):
            if category not in category_of:
                raise records.refuse(
                    index,
                    f"has the category_token {category!r}, which category.json does not list.",
                )
            if image not in images:
                dropped["not on a key frame"] += 1
            elif records.rows[index].get("mask") is None:
                dropped["without a mask"] += 1
            elif not category_of[category]:
                dropped["of another class"] += 1
            else:
                yield image, category_of[category], box_of(records, index)


def _table(path: Path, kind: str, on_step: OnStep) -> Iterator[Records]:
    """Yield the records of a table of nuImages, which is a list."""
    for batch in json_batches(path, on_read=reading_progress(path, on_step)):
        if batch.name:
            raise InvalidDataError(
                f"{path} is an object with the key {batch.name!r}, but a list is expected, as in "
                f"the tables of nuImages; get the file again."
            )
        yield Records(path, kind, batch.records, batch.first)


def _key_frames(path: Path, on_step: OnStep) -> tuple[dict[str, Record], int]:
    """Return the record of each key frame by its token, and the number of frames."""
    images: dict[str, Record] = {}
    n_frames = 0
    for records in _table(path, "frame", on_step):
        n_frames += len(records)
        is_key = records.flags("is_key_frame").tolist()
        columns = (
            records.texts("token"),
            records.texts("filename"),
            records.integers("width").tolist(),
            records.integers("height").tolist(),
        )
        for token, name, width, height in compress(zip(*columns, strict=True), is_key):
            images[token] = {"id": len(images) + 1, "file_name": name, "width": width,
                             "height": height}  # fmt: skip
    return images, n_frames
