"""Copies of known images whose objects are painted over: unknown images that cost nothing.

Oksuz et al., CVPR 2023, section 4, choose the image threshold of a self-aware detector with them.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from os.path import normpath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from incognita.containers.boxes import BoxTruth
from incognita.containers.dataset import BoxDataset
from incognita.errors import InvalidDataError, MissingDataError
from incognita.files import replacing, replacing_text
from incognita.formats.coco_dataset import CocoDataset, CocoFile, find_files
from incognita.shapes import Float, Shaped

MANIFEST = "painted.json"
_MADE_BY = {"description": "images with painted-over objects", "made_by": "incognita"}


@dataclass(frozen=True, eq=False)
class PaintedOver:
    """A data set whose annotated boxes, other than crowd regions, are black; see `BoxDataset`.

    Boxes are painted on the image as it was read, before any resizing, from the whole pixel at
    their upper left corner up to, but without, the one at their lower right, as the public code
    does. The truth is empty.

    Args:
        source: The annotated images.
    """

    source: BoxDataset

    @property
    def name(self) -> str:
        """The name of the source, and what was done to it."""
        return f"{self.source.name} (painted over)"

    @property
    def image_ids(self) -> Sequence[str]:
        """The ids of the source."""
        return self.source.image_ids

    labels = None
    source_classes = None

    def __len__(self) -> int:
        return len(self.image_ids)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        """Load one image and paint its objects black."""
        truth = self.source.truth()
        rows = slice(truth.offsets[index], truth.offsets[index + 1])
        boxes = truth.xyxy[rows][~truth.is_crowd[rows]]
        return paint_over(self.source.load(index), boxes)

    def fingerprint(self) -> str:
        """Hash the source and what was done to it."""
        return sha256(f"painted over\n{self.source.fingerprint()}".encode()).hexdigest()

    def subset(self, indices: Sequence[int]) -> "PaintedOver":
        """Return the images at these positions, in this order."""
        return PaintedOver(self.source.subset(indices))

    def truth(self) -> BoxTruth:
        """Return the truth without objects; always one instance."""
        return self._truth

    @cached_property
    def _truth(self) -> BoxTruth:
        found = self.source.truth()
        return BoxTruth.empty(found.image_ids, found.classes)


def paint_over(
    image: Shaped[np.ndarray, "height width 3"], boxes: Float[np.ndarray, "boxes 4"]
) -> Shaped[np.ndarray, "height width 3"]:
    """Return a copy with black boxes.

    >>> paint_over(np.ones((2, 3, 3), np.uint8), np.array([[0.9, 0.0, 2.5, 1.0]]))[:, :, 0].tolist()
    [[0, 0, 1], [1, 1, 1]]
    """
    painted = image.copy()
    height, width = image.shape[:2]
    inside = np.clip(boxes, 0, [width, height, width, height])
    for x1, y1, x2, y2 in inside.astype(np.int64).tolist():
        painted[y1:y2, x1:x2] = 0
    return painted


class WrittenImages(NamedTuple):
    """The number of images written, and those that were not: absent, or unreadable and why."""

    n_images: int
    missing: tuple[str, ...]
    unreadable: Mapping[str, str]


def write_painted(
    annotations: Path,
    images: Path,
    out: Path,
    *,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> WrittenImages:
    """Write the images of a COCO file with painted-over objects, for a detector run elsewhere.

    The tree of the images comes out, as PNG without loss, and `painted.json`: a COCO file of the
    written images, with the ids and categories of the annotation file and without objects.

    Args:
        annotations: The COCO file.
        images: The folder of its images.
        out: A new folder, or one that this function wrote.
        on_progress: Called with the number of images done, and of all.
    """
    _check_folders(images, out)
    source, missing = _load_source(annotations, images)
    targets = _targets(source.image_ids, images, out)
    _check_ours(targets, out)
    _write_manifest(out, source, targets, [])  # first: a killed run is recognized as ours
    dataset, unreadable = PaintedOver(source), {}
    for index, target in enumerate(targets):
        try:
            _write_png(dataset.load(index), target)
        except InvalidDataError as error:
            name, problem = str(source.image_ids[index]), str(error)
            unreadable[name] = problem if name in problem else f"{name}: {problem}"
        on_progress(index + 1, len(targets))
    done = [k for k, image_id in enumerate(source.image_ids) if image_id not in unreadable]
    _write_manifest(out, source, targets, done)
    return WrittenImages(len(done), missing, unreadable)


def _load_source(annotations: Path, images: Path) -> tuple[CocoDataset, tuple[str, ...]]:
    """Load the images that are there, and the names of the others."""
    file = CocoFile(annotations)
    content = file.content
    paths, is_there = find_files(images, content.file_names)
    present = tuple(path for path, there in zip(paths, is_there, strict=True) if there)
    if not present:
        raise MissingDataError(
            f"None of the {len(paths):,} images of {annotations} is in {images}; check the folder."
        )
    dataset = CocoDataset(
        images.name,
        images,
        present,
        file=file,
        record_ids=content.truth.image_ids[is_there],
        sizes=content.sizes[is_there],
    )
    return dataset, tuple(path for path, there in zip(paths, is_there, strict=True) if not there)


def _check_folders(images: Path, out: Path) -> None:
    real_in, real_out = images.resolve(), out.resolve()
    if real_out.is_relative_to(real_in) or real_in.is_relative_to(real_out):
        raise InvalidDataError(
            f"Expected the painted images beside {images}, got {out}, one inside the other. Name "
            f"another folder."
        )
    if out.exists() and not out.is_dir():
        raise InvalidDataError(f"Expected a folder for the painted images, got the file {out}.")


def _targets(image_ids: Sequence[str], images: Path, out: Path) -> list[Path]:
    """Return where each image goes: its path below the folder, with another suffix."""
    folder = Path(normpath(images.absolute()))
    paths = [Path(normpath(folder / image_id)) for image_id in image_ids]
    outside = [name for name, p in zip(image_ids, paths, strict=True) if folder not in p.parents]
    if outside:
        raise InvalidDataError(
            f"Expected images inside {images}, got the file name {outside[0]!r:.200}. Write names "
            f"relative to the folder."
        )
    targets = [(out / path.relative_to(folder)).with_suffix(".png") for path in paths]
    repeated = [target for target, n in Counter(targets).items() if n > 1]
    if repeated:
        raise InvalidDataError(
            f"Two images would both become {repeated[0].name}. Rename one of them."
        )
    return targets


def _check_ours(targets: Sequence[Path], out: Path) -> None:
    """Refuse to replace files that `write_painted` did not write."""
    manifest = out / MANIFEST
    if manifest.exists():
        try:
            said = json.loads(manifest.read_bytes())
        except (OSError, ValueError):
            said = None
        if isinstance(said, dict) and said.get("info") == _MADE_BY:
            return
    foreign = [path for path in (manifest, *targets) if path.exists()]
    if foreign:
        raise InvalidDataError(
            f"Expected a new folder, or one of painted images with its {MANIFEST}, got {out}, "
            f"where {foreign[0].name} would be replaced. Name another folder."
        )


def _write_png(image: Shaped[np.ndarray, "height width 3"], path: Path) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        Image.fromarray(image).save(unfinished, "PNG", compress_level=1)


def _write_manifest(
    out: Path, source: CocoDataset, targets: Sequence[Path], done: Sequence[int]
) -> None:
    content = source.file.content
    records: list[dict[str, Any]] = []
    for k in done:
        record = {"id": source.record_ids[k].item(), "file_name": _below(targets[k], out)}
        width, height = source.sizes[k].tolist()
        records.append(record | ({"width": int(width), "height": int(height)} if width else {}))
    names = content.truth.classes.names
    categories = [{"id": c, "name": names[k]} for c, k in content.categories.items()]
    out.mkdir(parents=True, exist_ok=True)
    with replacing_text(out / MANIFEST) as file:
        document = {"info": _MADE_BY, "images": records, "categories": categories}
        json.dump(document | {"annotations": []}, file)


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
