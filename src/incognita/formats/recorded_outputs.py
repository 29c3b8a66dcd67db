"""Outputs in files that any framework can write: a table per set, the head, the class names.

    DIR/head.npz            weight [classes, d] and bias [classes] of the last linear layer
    DIR/classes.json        class names in the order of the logits; for boxes COCO's categories
    DIR/train.npz           logits [n, classes], features [n, d], labels [n], image_ids [n]

    DIR/test.json           boxes of a detector in COCO's results format
    DIR/test.safetensors    their logits and features, one row per record
    DIR/test.images.json    ids of the images it was run on; by default all that are annotated

The head and tables of images may be npz, safetensors or Parquet. A file is called after the role of
its set where only one set has that role (train, validation, test, unknown-validation), else after
the set.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role, plain
from incognita.containers.dataset import BoxDataset
from incognita.errors import InvalidDataError, MissingDataError
from incognita.files import file_hash, load_json, opened, replacing
from incognita.formats.coco_annotations import CocoTruth
from incognita.shapes import Float, Int, Shaped

SUFFIXES = (".npz", ".safetensors", ".parquet")
HEAD, CLASSES = "head", "classes.json"
_COLUMNS = ("logits", "features", "labels", "image_ids")
_SMALLEST = 1e-6  # of a confidence that is written as logits
Arrays = dict[str, Shaped[np.ndarray, "..."]]


def load_arrays(path: Path) -> Arrays:
    """Load the named arrays of an npz, safetensors or Parquet file; nothing is unpickled."""
    with opened(path):  # raises for a folder, a pipe or nothing at all
        pass
    try:
        return _READERS[path.suffix](path)
    except MemoryError:
        raise
    except Exception as error:  # three libraries with errors of their own
        if isinstance(error, InvalidDataError):
            raise
        problem = " ".join(str(error).split())[:200]
        raise InvalidDataError(
            f"{path} cannot be read ({problem}). Write numbers as arrays, and ids as an array of "
            f"text or whole numbers."
        ) from error


def _load_npz(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (BadZipFile, AttributeError) as error:  # one array alone has no names
        raise InvalidDataError(f"{path} is not an npz file. Write it by np.savez.") from error


def _load_safetensors(path: Path) -> Arrays:
    from safetensors.numpy import load_file

    return dict(load_file(path))


def _load_parquet(path: Path) -> Arrays:
    import polars

    return {column.name: _array(column) for column in polars.read_parquet(path)}


def _array(column: Any) -> Shaped[np.ndarray, "..."]:
    import polars

    if column.null_count():
        raise InvalidDataError(f"Column {column.name} has empty cells. Fill or drop them.")
    if isinstance(column.dtype, polars.List):
        widths = column.list.len().unique()
        if len(widths) != 1:
            raise InvalidDataError(f"Rows of column {column.name} have different lengths.")
        column = column.list.to_array(int(widths[0]))
    found = column.to_numpy()
    return found.astype(np.str_) if found.dtype == object else np.asarray(found)


_READERS = {".npz": _load_npz, ".safetensors": _load_safetensors, ".parquet": _load_parquet}


def save_arrays(path: Path, arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
    """Save named arrays in the format of the suffix, as a whole or not at all."""
    if path.suffix not in SUFFIXES:
        raise InvalidDataError(
            f"Expected a file that ends in {', '.join(SUFFIXES)}, got {path.name}. Choose one."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        _WRITERS[path.suffix](unfinished, arrays)


def _save_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with path.open("wb") as file:  # a file, because np.savez adds a suffix to a name
        np.savez(file, allow_pickle=False, **arrays)


def _save_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    # the format has no text: rows are then numbered
    numbers = {name: a for name, a in arrays.items() if a.dtype.kind != "U"}
    save_file({name: np.ascontiguousarray(array) for name, array in numbers.items()}, path)


def _save_parquet(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import polars

    columns = {name: a.tolist() if a.dtype.kind == "U" else a for name, a in arrays.items()}
    polars.DataFrame(columns).write_parquet(path)


_WRITERS = {".npz": _save_npz, ".safetensors": _save_safetensors, ".parquet": _save_parquet}


class RecordedTable(NamedTuple):
    """The rows of one file, checked."""

    image_ids: tuple[str, ...]
    logits: Float[np.ndarray, "n classes"]
    features: Float[np.ndarray, "n d"] | None
    labels: Int[np.ndarray, "n"] | None


def load_table(path: Path) -> RecordedTable:
    """Load the outputs of one set of images; raise for anything that methods could not use."""
    arrays = load_arrays(path)
    if "logits" not in arrays or set(arrays) - set(_COLUMNS):
        raise InvalidDataError(
            f"Expected {path} to hold logits, and features, labels and image_ids where there are "
            f"any, got {', '.join(arrays) or 'nothing'}. Rename them."
        )
    logits = _matrix(path, "logits", arrays["logits"])
    for name, array in arrays.items():
        if not array.ndim or len(array) != len(logits):
            n_rows = len(array) if array.ndim else "no"
            raise InvalidDataError(
                f"{path} has {len(logits)} rows of logits, but {n_rows} of {name}. Write one row "
                f"per image in each."
            )
    if not len(logits):
        raise InvalidDataError(f"{path} has no rows. Leave the file out, or write its images.")
    features = None
    if "features" in arrays:
        features = _matrix(path, "features", arrays["features"])
    labels = _labels(path, arrays["labels"]) if "labels" in arrays else None
    return RecordedTable(_ids(path, arrays.get("image_ids"), len(logits)), logits, features, labels)


def _matrix(path: Path, name: str, array: np.ndarray) -> Float[np.ndarray, "n d"]:
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.shape[1]:
        raise InvalidDataError(
            f"Expected {name} of {path} as numbers in rows and columns, got {array.dtype} of shape "
            f"{list(array.shape)}."
        )
    with np.errstate(over="ignore"):  # refused below
        found = array.astype(np.float32, copy=False)
    is_wrong = ~np.isfinite(found).all(axis=1)
    if is_wrong.any():
        raise InvalidDataError(
            f"Expected finite {name} in {path}, but row {int(is_wrong.argmax())} is not. Look at "
            f"that image."
        )
    return np.ascontiguousarray(found)


def _labels(path: Path, array: np.ndarray) -> Int[np.ndarray, "n"]:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidDataError(
            f"Expected labels of {path} as one whole number per row, got {array.dtype} of shape "
            f"{list(array.shape)}."
        )
    return array.astype(np.int64)


def _ids(path: Path, array: np.ndarray | None, n_rows: int) -> tuple[str, ...]:
    if array is None:
        return tuple(f"{path.stem}/{k:06d}" for k in range(n_rows))
    if array.ndim != 1 or array.dtype.kind not in "Uiu":
        raise InvalidDataError(
            f"Expected image_ids of {path} as text or whole numbers, got {array.dtype} of shape "
            f"{list(array.shape)}."
        )
    ids = tuple(map(str, array.tolist()))
    if len(set(ids)) < n_rows:
        twice = next(name for k, name in enumerate(ids) if name in ids[:k])
        raise InvalidDataError(f"{path} has the image id {twice!r} twice. Write each image once.")
    return ids


@dataclass(frozen=True)
class HeadArrays:
    """The last linear layer of a network."""

    weight: Float[np.ndarray, "classes d"]
    bias: Float[np.ndarray, "classes"]


@dataclass(frozen=True)
class OutputsFolder:
    """A folder of recorded outputs; see the top of this module for its layout.

    Args:
        path: The folder.
        boxes: One results file for all sets of a detection benchmark, instead of one per set.
    """

    path: Path
    boxes: Path | None = None

    @classmethod
    def at(cls, path: Path) -> "OutputsFolder":
        """Open a folder, or the results file that holds the boxes of all sets."""
        return cls(path.parent, path) if path.is_file() else cls(path)

    def results_file(self, name: str) -> Path:
        """Return the file with the boxes of a set."""
        return self.boxes or self.path / f"{name}.json"

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise MissingDataError(f"There is no folder {self.path} with outputs. Check the path.")

    def find(self, name: str) -> Path | None:
        """Return the table of this name, in whichever format it is."""
        found = [path for s in SUFFIXES if (path := self.path / f"{name}{s}").exists()]
        if len(found) > 1:
            raise InvalidDataError(
                f"{self.path} holds both {found[0].name} and {found[1].name}. Keep one of them."
            )
        return found[0] if found else None

    def heads(self) -> tuple[HeadArrays, ...]:
        """Load the linear head, or several as weight.0, bias.0, weight.1, …; empty without one."""
        path = self.find(HEAD)
        if path is None:
            return ()
        arrays = load_arrays(path)
        n_heads = sum(name.split(".")[0] == "weight" for name in arrays)
        suffixes = [""] if set(arrays) == {"weight", "bias"} else [f".{k}" for k in range(n_heads)]
        if set(arrays) != {f"{name}{s}" for s in suffixes for name in ("weight", "bias")}:
            raise InvalidDataError(
                f"Expected {path} to hold weight and bias, got {', '.join(arrays) or 'nothing'}."
            )
        return tuple(_head(path, arrays[f"weight{s}"], arrays[f"bias{s}"]) for s in suffixes)

    def categories(self) -> dict[int, str] | None:
        """Load the class names by category id (by place where it is a list of names)."""
        path = self.path / CLASSES
        if not path.exists():
            return None
        listed = load_json(path)
        if isinstance(listed, list) and listed and all(isinstance(n, str) for n in listed):
            return dict(enumerate(listed))
        try:
            found = {record["id"]: record["name"] for record in listed}
        except (TypeError, KeyError):
            found = {}
        is_right = all(type(k) is int and isinstance(n, str) for k, n in found.items())
        if not found or not is_right or len(found) != len(listed):
            raise InvalidDataError(
                f'Expected {path} to hold a list of names, or of {{"id": 1, "name": "car"}} with '
                f"an id each, got {str(listed)[:80]}."
            )
        return found

    def save_head(self, heads: Sequence[HeadArrays]) -> None:
        """Save the heads; raise if the folder holds those of another model."""
        if not heads:
            return
        suffixes = [""] if len(heads) == 1 else [f".{k}" for k in range(len(heads))]
        pairs = list(zip(suffixes, heads, strict=True))
        arrays = {f"weight{s}": head.weight for s, head in pairs}
        arrays |= {f"bias{s}": head.bias for s, head in pairs}
        if self.find(HEAD) is not None:
            self._refuse_others(self.heads(), heads)
            return
        save_arrays(self.path / f"{HEAD}.npz", arrays)

    def save_classes(self, names: Sequence[str], *, are_boxes: bool) -> None:
        """Save the class names; raise if the folder holds those of another model."""
        listed: list[Any] = list(names)
        if are_boxes:
            listed = [{"id": k, "name": name} for k, name in enumerate(names)]
        before = self.categories()
        if before is not None and before != dict(enumerate(names)):
            raise InvalidDataError(
                f"{self.path / CLASSES} names other classes. Save to another folder."
            )
        with replacing(self.path / CLASSES) as unfinished:
            unfinished.write_text(json.dumps(listed, ensure_ascii=False) + "\n", encoding="utf-8")

    def _refuse_others(self, before: Sequence[HeadArrays], now: Sequence[HeadArrays]) -> None:
        pairs = zip(before, now, strict=False)
        is_same = len(before) == len(now) and all(
            np.array_equal(a.weight, b.weight) and np.array_equal(a.bias, b.bias) for a, b in pairs
        )
        if not is_same:
            raise InvalidDataError(
                f"{self.path} holds the head of another model. Save to another folder."
            )

    def identity(self) -> str:
        """Return a hash of the head and the class names."""
        paths = [self.find(HEAD), self.path / CLASSES]
        contents = [file_hash(path) for path in paths if path is not None and path.exists()]
        return sha256("\n".join(contents).encode()).hexdigest()


def _head(path: Path, weight: np.ndarray, bias: np.ndarray) -> HeadArrays:
    matrix = _matrix(path, "weight", weight)
    if bias.shape != matrix.shape[:1]:
        raise InvalidDataError(
            f"Expected weight [classes, d] and bias [classes] in {path}, got shapes "
            f"{list(weight.shape)} and {list(bias.shape)}."
        )
    return HeadArrays(matrix, _matrix(path, "bias", bias[:, None])[:, 0])


@dataclass(frozen=True, eq=False)
class RecordedImages:
    """A set of images of which only the outputs of a classifier are known; see `Dataset`.

    Args:
        name: Of the set, in messages.
        path: The file with its outputs, which are read when they are needed.
        image_ids: One per row.
        labels: Indices of known classes, or None for unknown images.
        n_classes: Columns of the logits.
        n_features: Columns of the features; None without features.
        places: The rows that are used; None for all.
    """

    name: str
    path: Path
    image_ids: Sequence[str] = field(repr=False)
    labels: Int[np.ndarray, "n"] | None = field(repr=False)
    n_classes: int
    n_features: int | None
    places: Int[np.ndarray, "n"] | None = field(default=None, repr=False)
    source_classes: None = None

    @classmethod
    def from_file(cls, name: str, path: Path, *, is_known: bool) -> "RecordedImages":
        """Check a file; the labels of unknown images may be absent or -1."""
        table = load_table(path)
        labels = table.labels
        if not is_known and labels is not None and (labels == -1).all():
            labels = None
        width = None if table.features is None else table.features.shape[1]
        return cls(name, path, table.image_ids, labels, table.logits.shape[1], width)

    def __len__(self) -> int:
        return len(self.image_ids)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        raise MissingDataError(f"{self.path} holds outputs and no images.")

    def table(self) -> RecordedTable:
        """Load the outputs."""
        table = load_table(self.path)
        if self.places is None:
            return table._replace(labels=self.labels)
        logits, features = table.logits[self.places], table.features
        features = None if features is None else features[self.places]
        return RecordedTable(tuple(self.image_ids), logits, features, self.labels)

    def fingerprint(self) -> str:
        """Hash the file and the rows that are used."""
        return sha256(f"{file_hash(self.path)} {self.image_ids} {self.labels}".encode()).hexdigest()

    def subset(self, indices: Sequence[int]) -> "RecordedImages":
        places = np.asarray(indices, np.int64)
        return replace(
            self,
            image_ids=tuple(self.image_ids[k] for k in indices),
            labels=None if self.labels is None else self.labels[places],
            places=places if self.places is None else self.places[places],
        )


@dataclass(frozen=True)
class DetectorClasses:
    """The numbering of a detector's classes, and the known ones among them.

    Args:
        category_ids: The known class of each category id; None for classes that are not known.
        known: The names of the known classes.
        places: The columns of the logits that belong to the known classes, in their order.
        source: The file the numbering comes from, for messages.
        is_listed: Whether the logits have a column for each class of that file.
    """

    category_ids: Mapping[int, int | None]
    known: tuple[str, ...]
    places: tuple[int, ...]
    source: str
    is_listed: bool = True

    @classmethod
    def from_names(
        cls, names: Mapping[int, str], known: Sequence[str], source: str
    ) -> "DetectorClasses":
        """Find the known classes among the names of a detector's classes, in logit order."""
        theirs = [plain(name) for name in names.values()]
        for name in known:
            if theirs.count(plain(name)) != 1:
                raise InvalidDataError(
                    f"Expected the known class {name!r} once in {source}, got it "
                    f"{theirs.count(plain(name))} times. List all classes of the detector."
                )
        places = tuple(theirs.index(plain(name)) for name in known)
        ours = {theirs[place]: k for k, place in enumerate(places)}
        ids = {category: ours.get(plain(name)) for category, name in names.items()}
        return cls(ids, tuple(known), places, source)


@dataclass(frozen=True, eq=False)
class RecordedBoxes:
    """A set of annotated images with the boxes of a detector from a file; see `BoxDataset`.

    Args:
        images: The annotated images, which may be absent.
        path: The COCO results file.
        sidecar: The file with logits and features, if there is one.
        record_ids: The id that the results file uses for each image.
        numbering: The classes of the detector.
        all_ids: The ids of all images of the annotation file; boxes on others are refused.
    """

    images: BoxDataset
    path: Path
    sidecar: Path | None
    record_ids: Shaped[np.ndarray, "n"] = field(repr=False)
    numbering: DetectorClasses = field(repr=False)
    all_ids: Shaped[np.ndarray, "all"] = field(repr=False)

    labels: None = None
    source_classes: None = None

    @property
    def name(self) -> str:
        """The name of the set."""
        return self.images.name

    @property
    def image_ids(self) -> Sequence[str]:
        """One id per image."""
        return self.images.image_ids

    def __len__(self) -> int:
        return len(self.image_ids)

    @property
    def widths(self) -> dict[str, int]:
        """The number of columns of logits and features, where the sidecar has them."""
        from incognita.formats.coco_results import sidecar_widths  # waits for a compiler

        return {} if self.sidecar is None else sidecar_widths(self.sidecar)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        return self.images.load(index)

    def truth(self) -> BoxTruth:
        return self.images.truth()

    def fingerprint(self) -> str:
        """Hash the files, the images that are used and their objects; no image is read."""
        files = [file_hash(path) for path in (self.path, self.sidecar) if path is not None]
        content = f"{files} {list(self.image_ids)} {self.numbering}"
        digest = sha256(content.encode(errors="surrogateescape"))
        truth = self.truth()
        for column in (truth.offsets, truth.xyxy, truth.class_ids, truth.is_crowd, truth.areas):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int]) -> "RecordedBoxes":
        places = np.asarray(indices, np.int64)
        images = self.images.subset(list(indices))
        return replace(self, images=images, record_ids=self.record_ids[places])

    def detections(self) -> Detections:
        """Load the boxes of known classes on these images, with what the sidecar holds."""
        from incognita.formats.coco_results import load_detections  # waits for a compiler

        found = load_detections(self.path, self._every_image(), sidecar=self.sidecar)
        known = self.numbering.known
        is_here = np.isin(found.image_ids, self.record_ids)[found.image_index]
        found = found[is_here & (found.class_ids < len(known))].for_images(self.record_ids)
        rows = np.arange(len(found))
        logits = logits_from_confidence(found.class_ids, found.confidence, len(known))
        if found.logits is not None:
            logits = self._known_columns(found.logits)
        return replace(
            found,
            image_ids=[str(image) for image in self.image_ids],
            classes=Classes(known, (Role.KNOWN,) * len(known)),
            logits=logits,
            source_index=rows if found.source_index is None else found.source_index,
            head_index=np.zeros_like(rows) if found.head_index is None else found.head_index,
        )

    def _every_image(self) -> CocoTruth:
        """Return the images of the annotation file with the classes of the detector."""
        n_known, ids = len(self.numbering.known), self.numbering.category_ids
        names = (*self.numbering.known, "classes that are not known")
        classes = Classes(names, (*(Role.KNOWN,) * n_known, Role.IGNORED))
        categories = {category: n_known if k is None else k for category, k in ids.items()}
        return CocoTruth(BoxTruth.empty(self.all_ids, classes), categories, self.numbering.source)

    def _known_columns(self, logits: np.ndarray) -> Float[np.ndarray, "boxes classes"]:
        n_columns = len(self.numbering.category_ids)
        if self.numbering.is_listed and logits.shape[1] != n_columns:
            raise InvalidDataError(
                f"Expected {n_columns} columns of logits in {self.sidecar}, one per class of "
                f"{self.numbering.source}, got {logits.shape[1]}."
            )
        if not self.numbering.is_listed and logits.shape[1] != len(self.numbering.known):
            raise InvalidDataError(
                f"Expected {len(self.numbering.known)} columns of logits in {self.sidecar}, one "
                f"per known class in the order of the benchmark, got {logits.shape[1]}. List the "
                f"classes of the detector in {CLASSES}."
            )
        return logits[:, list(self.numbering.places)]


def images_file(path: Path) -> Path:
    """Return the file beside boxes that lists the images they were searched in."""
    return path.with_suffix(".images.json")


def load_image_ids(path: Path) -> list[int | str] | None:
    """Load the ids of the images a detector was run on; None where no file lists them."""
    if not path.exists():
        return None
    ids = load_json(path)
    if not isinstance(ids, list) or not all(type(k) in (int, str) for k in ids):
        raise InvalidDataError(f"Expected {path} to hold a list of image ids.")
    return ids


def logits_from_confidence(
    class_ids: Int[np.ndarray, "boxes"], confidence: Float[np.ndarray, "boxes"], n_classes: int
) -> Float[np.ndarray, "boxes classes"]:
    """Return logits whose softmax is the confidence at the class of a box, and even elsewhere.

    >>> logits = logits_from_confidence(np.array([1]), np.array([0.8]), 3).astype(np.float64)
    >>> (np.exp(logits) / np.exp(logits).sum()).round(6).tolist()
    [[0.1, 0.8, 0.1]]
    """
    own = np.clip(np.asarray(confidence, np.float64), _SMALLEST, 1 - _SMALLEST)
    others = np.log((1 - own) / max(1, n_classes - 1))
    logits = np.repeat(others[:, None], n_classes, axis=1)
    logits[np.arange(len(own)), class_ids] = np.log(own)
    return logits.astype(np.float32)
