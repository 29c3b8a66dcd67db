"""The sets of SAOD, each made from the annotation files of its source by tables of classes.

Oksuz et al., Towards Building Self-Aware Object Detectors, CVPR 2023, appendix A. Known test images
come from Objects365 (Obj45K) and BDD100K (BDD45K); unknown images are those of SVHN, iNaturalist
and Objects365 that show no known class. The tables are a TOML file anybody can replace:

name = "saod"
version = 1
[objects365]
ambiguous = ["Van"]           # images with one of these are in no set
unknown = ["Lamp"]            # images with nothing else are unknown
[objects365.known]
car = ["Car", "SUV"]          # names that become a known class
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from incognita.benchmarks.splits.write import InputFile
from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.files import JsonBatch, json_batches
from incognita.formats.coco_annotations import (
    Records,
    find_classes,
    find_images,
    load_tables,
    read_category_names,
    read_image_ids,
    refusal,
)
from incognita.formats.coco_records import Annotations, ImageId, Record, save_annotations
from incognita.formats.images import opened_image
from incognita.formats.toml_files import check_table, load_toml
from incognita.shapes import Bool, Float, Int

OnStep = Callable[[str], None]
OnProgress = Callable[[str, int, int], None]
EmptyImages = Literal["keep", "drop"]
TABLES = Path(__file__).parents[1] / "definitions" / "splits" / "tables" / "saod.toml"
_BYTES_PER_STEP = 1 << 29
ClassNames = Annotated[Mapping[str, list[str]], Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Objects365Classes(_Table):
    """What the classes of Objects365 are.

    Args:
        known: The names that become each known class.
        ambiguous: Classes whose images are in no set.
        unknown: Classes of unknown images.
    """

    known: ClassNames
    ambiguous: list[str]
    unknown: list[str]


class CocoCategories(_Table):
    """Category ids of the known classes, in the order of `objects365.known`."""

    category_ids: list[int]


class INaturalistClasses(_Table):
    """Super-categories of unknown images."""

    unknown: list[str]


class BddClasses(_Table):
    """What the classes of BDD100K are.

    Args:
        known: The names that become each known class.
        ignored: Classes that are left out.
        rider: The class that is merged into a rideable.
        rideables: Classes that a rider is merged into.
        smallest_iou: An image with a rider below this IoU is left out.
        first_train_images: How many training images are taken.
    """

    known: ClassNames
    ignored: list[str]
    rider: str
    rideables: list[str]
    smallest_iou: Annotated[float, Field(ge=0, le=1)]
    first_train_images: PositiveInt


class NuImagesClasses(_Table):
    """The names of nuImages that become each known class; all others are left out."""

    known: ClassNames


class ClassTables(_Table):
    """What the file of tables says, by source; `expected` is how many images a set has."""

    name: str
    version: PositiveInt
    source: str | None = None
    remarks: list[str] = []
    objects365: Objects365Classes
    coco: CocoCategories
    inaturalist: INaturalistClasses
    bdd: BddClasses
    nuimages: NuImagesClasses
    expected: Mapping[str, PositiveInt] = {}

    @model_validator(mode="after")
    def _consistent(self) -> "ClassTables":
        _role_of_name(self.objects365)
        class_of_name(self.bdd.known)
        class_of_name(self.nuimages.known)
        ids, n_classes = self.coco.category_ids, len(self.objects365.known)
        if len(set(ids)) != n_classes:
            raise ValueError(
                f"coco.category_ids has {len(set(ids))} different ids, but objects365.known has "
                f"{n_classes} classes; list one id for each"
            )
        return self


def load_class_tables(path: Path = TABLES) -> ClassTables:
    """Load the tables from a TOML file; by default those of the paper."""
    return check_table(ClassTables, load_toml(path, "file of tables"), path.name)


KNOWN, AMBIGUOUS, UNKNOWN = 0, 1, 2


def _role_of_name(classes: Objects365Classes) -> dict[str, int]:
    """Return the role of each name; blanks around a name do not matter."""
    lists = ((KNOWN, class_of_name(classes.known)),
             (AMBIGUOUS, classes.ambiguous), (UNKNOWN, classes.unknown))  # fmt: skip
    roles: dict[str, int] = {}
    for role, names in lists:
        for name in map(str.strip, names):
            if roles.setdefault(name, role) != role:
                raise ValueError(f"class {name!r} is on two lists; keep one")
    return roles


def class_of_name(known: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the known class that each name becomes."""
    found: dict[str, str] = {}
    for own, names in known.items():
        for name in map(str.strip, names):
            if found.setdefault(name, own) != own:
                raise ValueError(f"{name!r} becomes both {found[name]!r} and {own!r}; keep one")
    return found


Outcomes = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, eq=False)
class BuiltSet:
    """A set of images that was made from the files of a source.

    Args:
        name: Of the set and its file, such as `obj45k`.
        annotations: Its images and objects.
        images: The folder that file names begin at.
        inputs: The files it was made from.
        outcomes: How many images of each file are in a set, by its name, or were left out, by
            reason; the numbers of a file add up to its images.
        dropped: How many objects of its images were dropped, by reason.
        attributes: How many images have each value of an attribute, such as the weather.
        notes: What a reader should know.
    """

    name: str
    annotations: Annotations
    images: Path
    inputs: Sequence[InputFile]
    outcomes: Outcomes
    dropped: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def n_images(self) -> int:
        """How many images it has."""
        return len(self.annotations.images)

    @property
    def n_objects(self) -> int:
        """How many objects it has."""
        return sum(map(len, self.annotations.objects.values()))

    def objects_per_class(self) -> dict[str, int]:
        """Count the objects of each class, in the order of the categories."""
        records = chain.from_iterable(self.annotations.objects.values())
        found = Counter(record["category_id"] for record in records)
        return {name: found[number] for number, name in self.annotations.category_names.items()}


def save_sets(sets: Sequence[BuiltSet], out: Path, *, names: Iterable[str]) -> None:
    """Save each set as name.json; files of other names, which an earlier build had, are deleted.

    Args:
        sets: With names among `names`.
        out: The folder, made where it is not there.
        names: All that such a build may have.
    """
    out.mkdir(parents=True, exist_ok=True)
    by_name = {built.name: built.annotations for built in sets}
    for name in names:
        path = out / f"{name}.json"
        if (given := by_name.get(name)) is None:
            path.unlink(missing_ok=True)
            continue
        objects = (given.objects.get(image_id, ()) for image_id in given.images)
        images = list(given.images.values())
        save_annotations(path, images, objects, given.categories, passed_on=given.passed_on)


@dataclass(frozen=True)
class ImageGroup:
    """Images that were chosen from a file, with their objects and what was dropped of those."""

    images: dict[ImageId, Record] = field(default_factory=dict)
    objects: dict[ImageId, list[Record]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, image: Record, objects: Sequence[Record]) -> None:
        """Add an image; objects whose box is not one are dropped."""
        valid: list[Record] = [
            {**record, "image_id": image["id"]} for record in objects if _has_size(record["bbox"])
        ]
        self.count_dropped("box of negative or infinite size", len(objects) - len(valid))
        self.images[image["id"]] = image
        if valid:
            self.objects[image["id"]] = valid

    def count_dropped(self, reason: str, n: int) -> None:
        """Count objects that are dropped, for a reason."""
        if n:
            self.dropped[reason] += n


def _has_size(xywh: Sequence[float]) -> bool:
    return xywh[2] >= 0 and xywh[3] >= 0 and math.isfinite(sum(xywh))


def find_source(folder: Path, name: str, places: Sequence[str], published: str) -> Path:
    """Find a file of a source, which people keep in various places below its folder."""
    for place in places:
        if (path := folder / place / name).is_file():
            return path
    raise MissingDataError(
        f"There is no {name} in {folder}; get it from {published} and put it there."
    )


def place_images(
    folder: Path, ways: Sequence[Callable[[str], str]], names: Sequence[str]
) -> list[str]:
    """Return where images lie below a folder: the first way that leads to a file.

    Without any image there, the first way is taken.
    """
    for way in ways:
        if any((folder / way(name)).is_file() for name in names[:20]):  # some may be missing
            return [way(name) for name in names]
    return [ways[0](name) for name in names]


def reading_progress(path: Path, on_step: OnStep) -> Callable[[int], None]:
    """Return a function that reports from time to time how much of a file was read."""
    total, reported = path.stat().st_size, 0

    def on_read(n_read: int) -> None:
        nonlocal reported
        if n_read - reported >= _BYTES_PER_STEP:
            reported = n_read
            on_step(f"reading {path.name}: {n_read / 1e9:.1f} of {total / 1e9:.1f} GB")

    on_step(f"reading {path.name}")
    return on_read


def numbered(names: Iterable[str]) -> dict[str, int]:
    """Number names from 1.

    >>> numbered(["car", "bus"])
    {'car': 1, 'bus': 2}
    """
    return {name: number for number, name in enumerate(names, start=1)}


def category_records(numbers: Mapping[str, int]) -> list[Record]:
    """Return the records of categories from their names and ids."""
    return [{"id": number, "name": name} for name, number in numbers.items()]


# --- Objects365 -----------------------------------------------------------------------------------


class _Objects(NamedTuple):
    """Objects of Objects365 in columns."""

    ids: Int[np.ndarray, "rows"]
    image_ids: Int[np.ndarray, "rows"]
    category_ids: Int[np.ndarray, "rows"]
    xywh: Float[np.ndarray, "rows 4"]
    areas: Float[np.ndarray, "rows"]
    is_crowd: Bool[np.ndarray, "rows"]


@dataclass(frozen=True, eq=False)
class _Objects365:
    """An annotation file of Objects365, in columns: a training file has 25 million objects."""

    path: Path
    image_ids: Int[np.ndarray, "images"]
    file_names: list[str]
    sizes: Int[np.ndarray, "images 2"]
    category_names: dict[int, str]
    objects: list[_Objects]  # in parts, so that no column is in memory twice

    def column(self, name: str) -> Int[np.ndarray, "rows"]:
        """Return a column of all parts."""
        return np.concatenate([np.zeros(0, np.int64), *(getattr(p, name) for p in self.objects)])


class _Chosen(NamedTuple):
    """What the images of a file are, the image of each object, and its role and category."""

    is_known: Bool[np.ndarray, "images"]
    is_unknown: Bool[np.ndarray, "images"]
    outcomes: dict[str, int]
    image_of: Int[np.ndarray, "rows"]
    role_of: Int[np.ndarray, "rows"]
    category_of: Int[np.ndarray, "rows"]


def build_objects365(
    folder: Path,
    tables: ClassTables,
    *,
    empty_images: EmptyImages = "keep",
    on_step: OnStep = lambda _: None,
) -> list[BuiltSet]:
    """Build Obj45K and the unknown images of Objects365.

    An image with an object of an ambiguous class is in no set; one whose objects are all of
    unknown classes is unknown; one of the validation set with a known object is a test image,
    without its other objects. A made-up training file of the true size (1.7 million images, 25
    million objects, 5.6 GB) takes two minutes on two cores, and 4 GB.

    Args:
        folder: Holds zhiyuan_objv2_val.json and zhiyuan_objv2_train.json; images lie in
            val/patch0 and so on.
        tables: Which classes are known, ambiguous and unknown.
        empty_images: Whether images without any annotation are unknown (`keep`, as in the public
            code) or in no set (`drop`).
        on_step: Called with the name of each step.
    """
    known, unknown, renumbered = ImageGroup(), ImageGroup(), False
    inputs, outcomes = [], {}
    for split in ("val", "train"):
        places = ("", "annotations", split)
        path = find_source(
            folder, f"zhiyuan_objv2_{split}.json", places, "https://www.objects365.org"
        )
        on_step(f"hashing {path.name}")
        inputs.append(InputFile.at(f"objects365 {split}", path))
        file = _read_objects365(path, on_step)
        on_step(f"deciding about {len(file.image_ids):,} images")
        chosen = _choose(file, tables, empty_images, is_tested=split == "val")
        outcomes[path.name] = chosen.outcomes
        if split == "val":
            _add_chosen(known, file, chosen, KNOWN, folder, split)
        renumbered |= _add_chosen(unknown, file, chosen, UNKNOWN, folder, split)
    files = list(outcomes)
    coco = dict(zip(tables.objects365.known, tables.coco.category_ids, strict=True))
    test = Annotations(files[0], known.images, known.objects, category_records(coco))
    others = category_records(numbered(map(str.strip, tables.objects365.unknown)))
    rest = Annotations(", ".join(files), unknown.images, unknown.objects, others)
    notes = ["both files use some image ids, so that those of training images are new"]
    return [
        BuiltSet("obj45k", test, folder, inputs[:1], {files[0]: outcomes[files[0]]}, known.dropped),
        BuiltSet("objects365", rest, folder, inputs, outcomes, unknown.dropped,
                 notes=notes if renumbered else ()),
    ]  # fmt: skip


def _read_objects365(path: Path, on_step: OnStep) -> _Objects365:
    file_names: list[str] = []
    ids, sizes, categories = [], [], []
    objects = []
    for batch in json_batches(path, flat=("annotations",), on_read=reading_progress(path, on_step)):
        if batch.name == "annotations":
            objects.append(_columns(path, batch))
        elif batch.name == "images":
            records = Records(path, "image", batch.records, batch.first)
            file_names += records.texts("file_name")
            ids.append(records.integers("id"))
            sizes.append(np.stack([records.integers("width"), records.integers("height")], axis=1))
        elif batch.name == "categories":
            categories += batch.records
    if not ids or not categories:
        raise InvalidDataError(
            f"{path} has no images or no categories, but lists of images, annotations and "
            f"categories are expected; get it again from https://www.objects365.org."
        )
    image_ids = np.concatenate(ids)
    if len(np.unique(image_ids)) < len(image_ids):
        values, n = np.unique(image_ids, return_counts=True)
        raise InvalidDataError(f"{path} has two images with the id {values[n > 1][0]}; keep one.")
    names = read_category_names(Records(path, "category", categories))
    return _Objects365(path, image_ids, file_names, np.concatenate(sizes), names, objects)


def _columns(path: Path, batch: JsonBatch) -> _Objects:
    """Read objects quickly, and once more slowly where that fails, for a sentence."""
    if batch.text and (fast := _quick_columns(batch.text)) is not None:
        return fast
    try:
        rows = json.loads(f"[{batch.text}]") if batch.text else batch.records
    except ValueError as error:
        raise InvalidDataError(
            f"{path} is broken JSON after annotation {batch.first:,}: {error}; get the file again."
        ) from None
    records = Records(path, "annotation", rows, batch.first)
    xywh = np.array([box_of(records, k) for k in range(len(rows))], np.float64)
    return _Objects(
        records.integers("id"),
        records.integers("image_id"),
        records.integers("category_id"),
        xywh,
        records.numbers("area", xywh[:, 2] * xywh[:, 3]),
        records.flags("iscrowd"),
    )


def box_of(records: Records, index: int) -> list[float]:
    """Return the four numbers of a box, whatever they mean."""
    box = records.rows[index].get("bbox")
    numbers = [float(value) for value in box if is_number(value)] if isinstance(box, list) else []
    if len(numbers) != 4 or len(box) != 4:
        raise records.refuse(
            index, f"has {box!r:.60} as bbox, but a list of four numbers is expected."
        )
    return numbers


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value of a JSON file is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _quick_columns(text: str) -> _Objects | None:
    """Let polars read the records, one in a line; None where something is unusual."""
    import polars as pl  # slow to import

    types: dict[str, Any] = {"id": pl.Int64, "image_id": pl.Int64, "category_id": pl.Int64,
             "bbox": pl.List(pl.Float64), "area": pl.Float64, "iscrowd": pl.Int64}  # fmt: skip
    end = text.index("}") + 1
    separator = text[end : text.find("{", end)]
    lines = text.replace("}" + separator + "{", "}\n{") if separator else text
    try:
        frame = pl.read_ndjson(lines.encode(), schema=types)
        boxes = frame["bbox"].list.to_array(4).to_numpy()
    except pl.exceptions.PolarsError:
        return None
    if frame.height != text.count("{") or sum(frame.null_count().row(0)):
        return None
    ids, image_ids, category_ids, areas, is_crowd = (
        frame[name].to_numpy() for name in ("id", "image_id", "category_id", "area", "iscrowd")
    )
    return _Objects(ids, image_ids, category_ids, boxes, areas, is_crowd == 1)


def _choose(
    file: _Objects365, tables: ClassTables, empty_images: EmptyImages, *, is_tested: bool
) -> _Chosen:
    """Decide about each image by the classes of its objects."""
    refuse = partial(refusal, file.path, "annotation")
    of_category = dict(zip(file.category_names, range(len(file.category_names)), strict=True))
    roles, categories = _roles_and_categories(file, tables.objects365, tables.coco)
    image_of = find_images(
        file.column("image_ids"), file.image_ids, source=str(file.path), refuse=refuse
    )
    place = find_classes(
        file.column("category_ids"), of_category, source=str(file.path), refuse=refuse
    )
    n_images, role_of = len(file.image_ids), roles[place]
    n_with = [np.bincount(image_of[role_of == role], minlength=n_images) for role in range(3)]
    is_ambiguous = n_with[AMBIGUOUS] > 0
    is_empty = (n_with[KNOWN] + n_with[AMBIGUOUS] + n_with[UNKNOWN]) == 0
    holds_known = ~is_ambiguous & (n_with[KNOWN] > 0)
    is_unknown = ~is_ambiguous & ~holds_known & (~is_empty | (empty_images == "keep"))
    names = {
        "obj45k" if is_tested else "holds a known class, in a training image": holds_known,
        "objects365": is_unknown & ~is_empty,
        "objects365, without any annotation": is_unknown & is_empty,
        "without any annotation": is_empty & ~is_unknown,
        "holds an ambiguous class": is_ambiguous,
    }
    outcomes = {name: int(mask.sum()) for name, mask in names.items() if mask.any()}
    return _Chosen(holds_known, is_unknown, outcomes, image_of, role_of, categories[place])


def _roles_and_categories(
    file: _Objects365, classes: Objects365Classes, coco: CocoCategories
) -> tuple[Int[np.ndarray, "categories"], Int[np.ndarray, "categories"]]:
    """Return the role of each category, and the category id that its objects get."""
    roles, class_of = _role_of_name(classes), class_of_name(classes.known)
    numbers = numbered(map(str.strip, classes.unknown))
    coco_ids = dict(zip(classes.known, coco.category_ids, strict=True))
    names = [name.strip() for name in file.category_names.values()]
    for name in names:
        if name not in roles:
            raise InvalidDataError(
                f"{file.path}: {unknown_name('class of objects365 in the tables', name, roles)} "
                f"List it as known, ambiguous or unknown, and give the tables with --tables."
            )
    ids = [coco_ids[class_of[name]] if name in class_of else numbers.get(name, 0) for name in names]
    return np.array([roles[name] for name in names]), np.array(ids)


def _add_chosen(
    group: ImageGroup, file: _Objects365, chosen: _Chosen, role: int, folder: Path, split: str
) -> bool:
    """Add the chosen images and their objects of a role; return whether they got new ids."""
    is_chosen = chosen.is_known if role == KNOWN else chosen.is_unknown
    images = np.flatnonzero(is_chosen)
    ids = file.image_ids[images].tolist()
    if is_repeated := not group.images.keys().isdisjoint(ids):
        first = max(group.images) + 1  # type: ignore[operator]
        ids = list(range(first, first + len(ids)))
    objects: dict[int, list[Record]] = {}
    is_taken = is_chosen[chosen.image_of]
    is_dropped = is_taken & (chosen.role_of != role)
    if n := int(is_dropped.sum()):
        group.dropped["of another class"] += n
    for image, record in _records_at(file, chosen, is_taken & ~is_dropped):
        objects.setdefault(image, []).append(record)
    ways = (
        lambda name: "/".join((split, *PurePosixPath(name).parts[-2:])),  # val/patch8/…
        lambda name: f"{split}/{name}",
        lambda name: name,
    )
    names = place_images(folder, ways, [file.file_names[k] for k in images])
    for image, image_id, name in zip(images.tolist(), ids, names, strict=True):
        width, height = file.sizes[image].tolist()
        record = {"id": image_id, "file_name": name, "width": width, "height": height}
        group.add(record, objects.get(image, ()))
    return is_repeated


def _records_at(
    file: _Objects365, chosen: _Chosen, is_taken: Bool[np.ndarray, "rows"]
) -> Iterator[tuple[int, Record]]:
    """Yield the image and the record of the objects that are taken."""
    first = 0
    for part in file.objects:
        inside = np.flatnonzero(is_taken[first : first + len(part.ids)])
        rows = (
            chosen.image_of[first + inside].tolist(),
            part.ids[inside].tolist(),
            chosen.category_of[first + inside].tolist(),
            part.xywh[inside].tolist(),
            part.areas[inside].tolist(),
            part.is_crowd[inside].tolist(),
        )
        for image, own_id, category_id, bbox, area, is_crowd in zip(*rows, strict=True):
            yield image, {"id": own_id, "category_id": category_id, "bbox": bbox, "area": area,
                          "iscrowd": int(is_crowd)}  # fmt: skip
        first += len(part.ids)


# --- iNaturalist and SVHN -------------------------------------------------------------------------


def build_inaturalist(
    folder: Path, tables: ClassTables, *, on_step: OnStep = lambda _: None
) -> BuiltSet:
    """Build the unknown images of iNaturalist 2017.

    An image counts if it has an annotation, and all are of the super-categories of the tables.

    Args:
        folder: Holds val_2017_bboxes.json; images lie in train_val_images.
        tables: Which super-categories are unknown.
        on_step: Called with the name of each step.
    """
    published = "https://github.com/visipedia/inat_comp/tree/master/2017"
    path = find_source(folder, "val_2017_bboxes.json", ("", "annotations"), published)
    on_step(f"reading {path.name}")
    content = load_tables(path)
    image_ids = read_image_ids(content.images).tolist()
    names = content.images.texts("file_name")
    above = dict(zip(content.categories.integers("id").tolist(),
                     content.categories.texts("supercategory"), strict=True))  # fmt: skip
    numbers = numbered(tables.inaturalist.unknown)
    records = _by_image(content.annotations, image_ids, above)
    places = place_images(folder, (lambda name: name, lambda name: f"images/{name}"), names)
    group, outcomes = ImageGroup(), Counter[str]()
    for record, image_id, place in zip(content.images.rows, image_ids, places, strict=True):
        held = records.get(image_id, [])
        unknown = [{**r, "category_id": numbers[n], "species": r["category_id"]}
                   for r in held if (n := above[r["category_id"]]) in numbers]  # fmt: skip
        if held and len(unknown) == len(held):
            group.add({**record, "file_name": place}, unknown)
            outcomes["inaturalist"] += 1
        else:
            outcomes["of another super-category" if held else "without any annotation"] += 1
    annotations = Annotations(path.name, group.images, group.objects, category_records(numbers))
    inputs = [InputFile.at("inaturalist", path)]
    return BuiltSet("inaturalist", annotations, folder, inputs, {path.name: outcomes},
                    group.dropped)  # fmt: skip


def _by_image(
    records: Records, image_ids: Sequence[ImageId], categories: Iterable[int]
) -> dict[ImageId, list[Record]]:
    """Return the annotations of each image; their ids must be those of the file."""
    source, refuse = str(records.path), records.refuse
    own = records.identifiers("image_id")
    find_images(own, np.array(image_ids), source=source, refuse=refuse)
    listed = dict.fromkeys(categories, 0)
    find_classes(records.integers("category_id"), listed, source=source, refuse=refuse)
    found: dict[ImageId, list[Record]] = {}
    for index, image_id in enumerate(own.tolist()):
        box = box_of(records, index)
        found.setdefault(image_id, []).append({**records.rows[index], "bbox": box})
    return found


def build_svhn(folder: Path, *, on_progress: OnProgress = lambda *_: None) -> BuiltSet:
    """Build the unknown images of SVHN: its full numbers, of the training and the test set.

    The positions of the digits are not read: an unknown image needs none.

    Args:
        folder: Holds train/1.png and test/1.png and so on, as in SVHN's format 1.
        on_progress: Called with a name, the images done, and the images in total.
    """
    paths = {split: _pngs(folder / split) for split in ("train", "test")}
    listed = [f"{split}/{path.name}" for split, found in paths.items() for path in found]
    images: dict[ImageId, Record] = {}
    for number, name in enumerate(listed, start=1):
        with opened_image(folder / name) as image:
            width, height = image.size
        images[number] = {"id": number, "file_name": name, "width": width, "height": height}
        if number % 1000 == 0 or number == len(listed):
            on_progress("svhn", number, len(listed))
    outcomes = {split: {"svhn": len(found)} for split, found in paths.items()}
    return BuiltSet("svhn", Annotations("SVHN", images, {}, []), folder, [], outcomes)


def _pngs(folder: Path) -> list[Path]:
    """List the images of a folder by their numbers."""
    found = [path for path in folder.glob("*.png") if path.stem.isdecimal()]
    if not found:
        raise MissingDataError(
            f"There is no image such as 1.png in {folder}; unpack train.tar.gz and test.tar.gz of "
            f"http://ufldl.stanford.edu/housenumbers (format 1) there."
        )
    return sorted(found, key=lambda path: int(path.stem))
