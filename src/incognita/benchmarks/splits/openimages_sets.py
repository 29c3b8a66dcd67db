"""Files of OpenImages to an open set: boxes, images and sizes become sets of a benchmark.

What is known and where each image goes is decided in `superclasses.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from incognita.benchmarks.splits.open_sets import OpenSetBuild, Tally, pure_sets
from incognita.benchmarks.splits.saod_sets import BuiltSet, OnStep
from incognita.benchmarks.splits.superclasses import (
    PARTS,
    ClassTree,
    SuperclassRules,
    SuperclassSplit,
    split_by_superclass,
)
from incognita.benchmarks.splits.write import InputFile
from incognita.errors import InvalidDataError, MissingDataError, count
from incognita.formats.coco_records import Annotations, ImageId, Record
from incognita.formats.openimages import (
    CLASS_NAMES,
    PUBLISHED,
    SIZES,
    BoxColumns,
    Size,
    box_in_pixels,
    find_file,
    load_box_columns,
    load_class_names,
    load_hierarchy,
    sizes_from_csv,
    sizes_from_images,
)

_HIERARCHIES = ("bbox_labels_600_hierarchy.json", "oidv6-bbox_labels_600_hierarchy.json")


class OpenImagesFiles(NamedTuple):
    """The files of OpenImages below a folder."""

    folder: Path
    boxes: Sequence[Path]
    class_names: Path
    hierarchy: Path

    @classmethod
    def below(cls, folder: Path) -> "OpenImagesFiles":
        """Find train-annotations-bbox.csv and its like, the class names and the hierarchy."""
        names = {part: f"{part}-annotations-bbox.csv" for part in PARTS}
        found = {
            part: path
            for part, name in names.items()
            for path in (folder / f"oidv6-{name}", folder / name)  # of both the second
            if path.is_file()
        }
        boxes = list(found.values())
        if not boxes:
            raise MissingDataError(
                f"There is no train-annotations-bbox.csv in {folder}; get it from {PUBLISHED} and "
                f"put it there."
            )
        return cls(folder, boxes, find_file(folder, CLASS_NAMES), find_file(folder, _HIERARCHIES))


def build_openimages(
    files: OpenImagesFiles,
    rules: SuperclassRules,
    rules_file: Path,
    *,
    on_step: OnStep = lambda _: None,
) -> OpenSetBuild:
    """Build an open set of OpenImages by super-classes.

    Boxes of OpenImages are shares of an image, so that images need a size: that of the file in
    train, validation, test or the folder itself, or a line of sizes.csv (id,width,height).

    Args:
        files: Where boxes, class names and the hierarchy are.
        rules: What is known, unknown and left out.
        rules_file: The file that the rules come from.
        on_step: Called with the name of each step.
    """
    tree = ClassTree.of(load_class_names(files.class_names), load_hierarchy(files.hierarchy), rules)
    on_step(f"reading {', '.join(path.name for path in files.boxes)}")
    columns = _joined([load_box_columns(path, tree.labels) for path in files.boxes])
    on_step("deciding")
    split = split_by_superclass(columns, tree)
    on_step("looking for images")
    collected = _collect(split, tree, files, rules_file)
    unsized = sorted({*_chosen_ids(split)} - {*collected.places})
    return _build_of(split, tree, _sets_of(collected), unsized)


def _joined(parts: Sequence[BoxColumns]) -> BoxColumns:
    """Join the boxes of several files."""
    if len(parts) == 1:
        return parts[0]
    import polars as pl

    image_ids = pl.concat([part.image_ids for part in parts])
    starts = np.cumsum([0, *(len(part.image_ids) for part in parts)])
    if image_ids.n_unique() < len(image_ids):
        raise InvalidDataError(
            f"{parts[0].path.parent} has an image in two files of boxes; give files whose images "
            f"differ."
        )
    index = [part.image_index + start for part, start in zip(parts, starts, strict=False)]
    edges = zip(*(part.edges for part in parts), strict=True)
    return BoxColumns(
        parts[0].path,
        image_ids,
        np.concatenate(index).astype(np.int32),
        np.concatenate([part.label_index for part in parts]),
        tuple(np.concatenate(column) for column in edges),
        np.concatenate([part.is_group for part in parts]),
    )


class PlacedImage(NamedTuple):
    """Where an image lies and its size."""

    file_name: str
    size: Size


def _chosen_ids(split: SuperclassSplit) -> list[str]:
    ids: list[str] = split.columns.image_ids[np.flatnonzero(split.part_of_image >= 0)].to_list()
    return ids


def _find_images(folder: Path, image_ids: Sequence[str]) -> dict[str, PlacedImage]:
    """Find the images that lie in the folder, and sizes of others in sizes.csv."""
    found: dict[str, PlacedImage] = {}
    wanted = set(image_ids)
    for place in (*PARTS, ""):
        there = {path.stem for path in (folder / place).glob("*.jpg")} & wanted
        prefix = f"{place}/" if place else ""
        for image_id, size in sizes_from_images(folder / place, sorted(there - {*found})).items():
            found[image_id] = PlacedImage(f"{prefix}{image_id}.jpg", size)
    if (listed := folder / SIZES).is_file():
        for image_id, size in sizes_from_csv(listed).items():
            if image_id in wanted:
                found.setdefault(image_id, PlacedImage(f"{image_id}.jpg", size))
    return found


@dataclass(frozen=True, eq=False)
class _Collected:
    """Images with a size, objects and categories that sets are made of."""

    split: SuperclassSplit
    places: Mapping[str, PlacedImage]
    objects: Mapping[ImageId, Sequence[Record]]
    categories: Sequence[Record]
    folder: Path
    inputs: Sequence[InputFile]

    @cached_property
    def images(self) -> list[tuple[str, int]]:
        """Ids and places of the chosen images that have a size, by their ids."""
        ids = self.split.columns.image_ids
        chosen = ((ids[k], k) for k in np.flatnonzero(self.split.part_of_image >= 0).tolist())
        return sorted((image_id, k) for image_id, k in chosen if image_id in self.places)

    def part(self, name: str, *, shows_unknown: bool | None = None) -> list[str]:
        """Return the ids of a part, or of its images that show unknown objects or do not."""
        split, number = self.split, PARTS.index(name)
        return [
            image_id
            for image_id, k in self.images
            if split.part_of_image[k] == number
            and shows_unknown in (None, bool(split.has_unknown[k]))
        ]

    def set_of(self, name: str, ids: Sequence[str], without: Collection[str] = ()) -> BuiltSet:
        """Return a set of images; objects of some classes may be left out."""
        images: dict[ImageId, Record] = {k: _image(k, self.places[k]) for k in ids}
        hidden = {record["id"] for record in self.categories if record["name"] in without}
        given = {k: self.objects[k] for k in ids if k in self.objects}
        kept = {
            k: [record for record in group if record["category_id"] not in hidden]
            for k, group in given.items()
        }
        n_hidden = sum(map(len, given.values())) - sum(map(len, kept.values()))
        dropped = {"unknown, not labelled": n_hidden} if n_hidden else {}
        objects: dict[ImageId, Sequence[Record]] = {k: group for k, group in kept.items() if group}
        source = self.split.columns.path.name
        annotations = Annotations(source, images, objects, self.categories)
        return BuiltSet(name, annotations, self.folder, self.inputs, {}, dropped)


def _collect(
    split: SuperclassSplit, tree: ClassTree, files: OpenImagesFiles, rules_file: Path
) -> _Collected:
    """Look for the images and turn their objects into records."""
    places = _find_images(files.folder, _chosen_ids(split))
    numbers = {row.name: number for number, row in enumerate(split.classes, start=1)}
    categories: list[Record] = [
        {"id": numbers[row.name], "name": row.name, "supercategory": row.superclass}
        for row in split.classes
    ]
    named = [("rules", rules_file), ("class names", files.class_names)]
    named += [("hierarchy", files.hierarchy), *(("boxes", path) for path in files.boxes)]
    if (listed := files.folder / SIZES).is_file():
        named.append(("sizes", listed))
    inputs = [InputFile.at(part, path) for part, path in named]
    objects = _objects_of(split, tree, numbers, places)
    return _Collected(split, places, objects, categories, files.folder.absolute(), inputs)


def _sets_of(collected: _Collected) -> list[BuiltSet]:
    split = collected.split
    everything = collected.set_of("all", collected.part("test"))
    known_only = collected.part("validation", shows_unknown=False)
    return [
        collected.set_of("train", collected.part("train"), without=split.names("unknown")),
        collected.set_of("validation", known_only),
        collected.set_of("unknown-validation", collected.part("validation", shows_unknown=True)),
        *pure_sets(everything, split.names("known"), split.names("ignored")),
        everything,
    ]


def _objects_of(
    split: SuperclassSplit,
    tree: ClassTree,
    numbers: Mapping[str, int],
    places: Mapping[str, PlacedImage],
) -> dict[ImageId, list[Record]]:
    """Return the objects of images with a size; ids are lines of the file of boxes, from 1."""
    columns, rows = split.columns, split.rows
    category_of = [numbers.get(name, 0) for name in tree.names]
    image_of = columns.image_index[rows]
    starts = np.flatnonzero(np.diff(image_of, prepend=-1))
    ids = columns.image_ids[image_of[starts]].to_list()
    values = zip(
        rows.tolist(),
        columns.label_index[rows].tolist(),
        columns.is_group[rows].tolist(),
        *(edge[rows].tolist() for edge in columns.edges),
        strict=True,
    )
    objects: dict[ImageId, list[Record]] = {}
    lengths = np.diff([*starts.tolist(), len(rows)]).tolist()
    for image_id, n_objects in zip(ids, lengths, strict=True):
        place = places.get(image_id)
        for _ in range(n_objects):
            row, label, is_group, *edges = next(values)
            if place is not None:
                record = {"id": row + 1, "image_id": image_id, "category_id": category_of[label],
                          **box_in_pixels(edges, place.size), "iscrowd": int(is_group)}  # fmt: skip
                objects.setdefault(image_id, []).append(record)
    return objects


def _image(image_id: str, place: PlacedImage) -> Record:
    return {"id": image_id, "file_name": place.file_name, "width": place.size.width,
            "height": place.size.height}  # fmt: skip


def _build_of(
    split: SuperclassSplit, tree: ClassTree, sets: Sequence[BuiltSet], unsized: Sequence[str]
) -> OpenSetBuild:
    rules = tree.rules
    known, unknown = split.names("known"), split.names("unknown")
    found = {
        "images": int((split.part_of_image >= 0).sum()),
        "objects": len(split.rows),
        "known classes": len(known),
        "unknown classes": len(unknown),
    }
    tallies = [Tally(what, n, rules.published.get(what)) for what, n in found.items()]
    tallies += [Tally(f"images of {built.name}", built.n_images) for built in sets]
    problems = []
    if unsized:
        problems.append(
            f"{count(len(unsized), 'image')} left out, whose size is not known, such as "
            f"{unsized[0]}; put them into the folder, or list them in {SIZES}"
        )
    parameters = {
        "rules": rules.model_dump(),
        "images_of_boxes": dict(split.outcomes),
        "dropped_objects": {reason: n for reason, n in split.dropped.items() if n},
        "classes": [row._asdict() for row in split.classes],
    }
    return OpenSetBuild(
        rules.name, rules.version, rules.title, rules.paper, known, sets, tallies, parameters,
        ignored=split.names("ignored"), problems=problems, notes=_notes(split, tree),
        remarks=rules.remarks,
    )  # fmt: skip


def _notes(split: SuperclassSplit, tree: ClassTree) -> list[str]:
    """Return what is odd about super-classes, and unknown classes that include known ones."""
    roles: dict[str, set[str]] = {}
    for row in split.classes:
        roles.setdefault(row.superclass, set()).add(row.role)
    without = [name for name, held in roles.items() if "unknown" in held and "known" not in held]
    notes = []
    if without:
        notes.append(f"no class is known of {', '.join(without)}; their objects are unknown")
    known, unknown = split.names("known"), split.names("unknown")
    for role, other, above, below in (
        ("unknown", "known", unknown, known),
        ("known", "unknown", known, unknown),
    ):
        if pairs := tree.pairs_below(above, below):
            what = count(len(pairs), f"{role} class includes", f"{role} classes include")
            shown = ", ".join(f"{name} ({', '.join(names)})" for name, names in pairs.items())
            notes.append(f"{what} {other} ones: {shown}")
    return notes
