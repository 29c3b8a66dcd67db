"""The images that a COCO file annotates, as a data set: files in a folder, with their boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from incognita.containers._checks import check_rows
from incognita.containers.boxes import BoxTruth
from incognita.errors import InvalidDataError
from incognita.formats.class_roles import ClassMap
from incognita.formats.coco_annotations import CocoTables, load_tables, read_truth
from incognita.formats.images import FileDataset, are_present
from incognita.shapes import Bool, Float, Shaped


class CocoContent(NamedTuple):
    """What a file holds, in terms of a benchmark.

    `truth` has the ids of the file, and `file_names` and `sizes` are in its order; a size is width
    and height, 0 where the file has none. `categories` is the class id of each category id.
    """

    truth: BoxTruth
    file_names: tuple[str, ...]
    sizes: Float[np.ndarray, "n 2"]
    categories: Mapping[int, int]

    @property
    def named(self) -> frozenset[str]:
        """The classes that some category becomes."""
        return frozenset(self.truth.classes.names[k] for k in self.categories.values())


@dataclass(frozen=True, eq=False)
class CocoFile:
    """A COCO instances file as a benchmark reads it: once, and again in another process.

    Args:
        path: The file.
        class_map: The classes that its categories become; by default known ones of their names.
    """

    path: Path
    class_map: ClassMap = field(default_factory=ClassMap)

    @cached_property
    def content(self) -> CocoContent:
        """What the file holds; images sorted by id."""
        tables = load_tables(self.path)
        found = read_truth(tables, self.class_map)
        truth = found.boxes
        names = tables.images.texts("file_name")
        order = np.argsort(tables.images.identifiers("id"), kind="stable")
        files, sizes = tuple(names[k] for k in order), _sizes(tables)[order]
        return CocoContent(truth, files, sizes, found.categories)

    def __getstate__(self) -> dict[str, Any]:
        return _without_caches(self)


@dataclass(frozen=True, eq=False, repr=False)
class CocoDataset(FileDataset):
    """Images in files, with the boxes that a COCO file gives them; see `BoxDataset`.

    Args:
        file: The annotation file.
        record_ids: The id that the file gives each image.
        sizes: The width and height that the file gives each image, 0 where it gives none.
    """

    file: CocoFile = field(kw_only=True, repr=False)
    record_ids: Shaped[np.ndarray, "n"] = field(kw_only=True, repr=False)
    sizes: Float[np.ndarray, "n 2"] = field(kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = {"record_ids": len(self.record_ids), "sizes": len(self.sizes)}
        check_rows(f"Images of {self.name}", image_ids=len(self.image_ids), **lengths)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        """Load one image, whose size must be that of the annotation file."""
        image = super().load(index)
        _check_size(self.sizes[index], image.shape[1], image.shape[0])
        return image

    def truth(self) -> BoxTruth:
        return self._truth

    @cached_property
    def _truth(self) -> BoxTruth:
        truth = self.file.content.truth.for_images(self.record_ids)
        return replace(truth, image_ids=np.array(self.image_ids, np.str_))

    def fingerprint(self) -> str:
        """Hash ids, sizes, boxes with their classes, and the content of every file."""
        digest = sha256(f"{super().fingerprint()}\n{_hash_truth(self._truth)}".encode())
        digest.update(self.sizes.tobytes())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int]) -> "CocoDataset":
        places = np.asarray(indices, np.int64)
        ids = tuple(self.image_ids[k] for k in places)
        records, sizes = self.record_ids[places], self.sizes[places]
        return replace(self, image_ids=ids, record_ids=records, sizes=sizes)

    def __getstate__(self) -> dict[str, Any]:
        return _without_caches(self)


def _sizes(tables: CocoTables) -> Float[np.ndarray, "n 2"]:
    """Return width and height of each image record, 0 where there is none."""
    unsaid = np.zeros(len(tables.images))
    return np.stack([tables.images.numbers(key, unsaid) for key in ("width", "height")], axis=1)


def _check_size(said: Float[np.ndarray, "2"], width: int, height: int) -> None:
    """Check that an image has the size that its boxes refer to."""
    if not said.all() or said.tolist() == [width, height]:
        return
    advice = "get the image that was annotated, or correct the file"
    if said.tolist() == [height, width]:
        advice = "save it upright, since the EXIF orientation is ignored"
    raise InvalidDataError(
        f"the annotation file says {said[0]:g} x {said[1]:g}, the image has {width} x {height}; "
        f"{advice}."
    )


def _without_caches(thing: CocoFile | CocoDataset) -> dict[str, Any]:
    """Return the state without cached boxes, which worker processes seldom need."""
    return {field.name: getattr(thing, field.name) for field in fields(thing)}


def _hash_truth(truth: BoxTruth) -> str:
    names = (truth.classes.names, truth.classes.roles, truth.superclasses.tolist())
    digest = sha256(repr(names).encode())
    columns = (truth.offsets, truth.xyxy, truth.sizes, truth.class_ids)
    for column in (*columns, truth.areas, truth.is_crowd, truth.is_difficult):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


class FoundFiles(NamedTuple):
    """Where images are below a folder, and which of them really are there."""

    paths: tuple[str, ...]
    is_there: Bool[np.ndarray, "n"]


def find_files(folder: Path, file_names: Sequence[str]) -> FoundFiles:
    """Find images by the path that a record gives, or by the last part of it alone.

    Files written elsewhere often name folders of another machine. An absolute path means one
    file, and no other of the same name.
    """
    paths = [PurePosixPath(name.replace("\\", "/")).as_posix() for name in file_names]
    is_there = are_present(folder, paths)
    last = [path if _is_absolute(path) else path.rpartition("/")[2] for path in paths]
    is_flat = are_present(folder, last) & ~is_there
    found = (flat if k else path for path, flat, k in zip(paths, last, is_flat, strict=True))
    return FoundFiles(tuple(found), is_there | is_flat)


def _is_absolute(path: str) -> bool:
    """Whether a path begins at the root of a disk, as POSIX or Windows write it.

    >>> _is_absolute("/a/b"), _is_absolute("C:/a/b"), _is_absolute("a/b")
    (True, True, False)
    """
    return path[:1] == "/" or path[1:2] == ":"


def is_in_fold(
    record_ids: Shaped[np.ndarray, "n"], fold: Sequence[int] | None
) -> Bool[np.ndarray, "n"]:
    """Return which images are in part k of n: those whose id has a hash of k modulo n.

    The part of an image depends on its id alone, whatever else the file holds.
    """
    if fold is None:
        return np.ones(len(record_ids), np.bool_)
    part, n_parts = fold
    return np.array(
        [_hash_of_id(record_id) % n_parts == part for record_id in record_ids], np.bool_
    )


def _hash_of_id(record_id: Any) -> int:
    return int.from_bytes(sha256(str(record_id).encode()).digest()[:8], "big")
