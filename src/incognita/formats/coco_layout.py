"""Images and boxes in the layout that FiftyOne and others import: `data/` and `labels.json`."""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from incognita.containers.boxes import BoxTruth, Detections
from incognita.errors import InvalidDataError
from incognita.formats.coco_records import save_annotations
from incognita.formats.images import opened_image

Paths = Mapping[Any, str | PathLike[str]] | Sequence[str | PathLike[str]]


def save_fiftyone(
    boxes: BoxTruth | Detections,
    images: Paths,
    folder: str | PathLike[str],
    *,
    links: bool = False,
) -> None:
    """Save images and boxes as a COCO data set that FiftyOne imports.

    The confidence of a detection is its `score`, and each object has the `role` of its class; all
    of that becomes attributes in FiftyOne:

        dataset = fiftyone.Dataset.from_dir(
            dataset_dir=folder,
            dataset_type=fiftyone.types.COCODetectionDataset,
            label_types="detections",
            label_field="predictions",
        )

    Args:
        boxes: What to save.
        images: The file of each image: by image id, or in the order of `boxes.image_ids`.
        folder: A folder without a `labels.json`; it is made.
        links: Whether `data/` gets links to the images instead of copies.
    """
    out = Path(folder)
    if (out / "labels.json").exists():
        raise InvalidDataError(
            f"Expected a new folder, got {out} with labels.json. Choose another."
        )
    paths = _paths(boxes.image_ids.tolist(), images)
    names = _file_names(paths)
    (out / "data").mkdir(parents=True, exist_ok=True)
    for path, name in zip(paths, names, strict=True):
        _place(path, out / "data" / name, links=links)
    classes = boxes.classes
    save_annotations(
        out / "labels.json",
        list(_image_records(boxes, paths, names)),
        _objects(boxes),
        [
            {"id": k, "name": name} | ({"supercategory": above} if above else {})
            for k, (name, above) in enumerate(
                zip(classes.names, classes.superclasses, strict=True), start=1
            )
        ],
        passed_on={},
    )


def _paths(image_ids: Sequence[Any], images: Paths) -> list[Path]:
    if not isinstance(images, Mapping):
        if len(images) != len(image_ids):
            raise InvalidDataError(
                f"Expected {len(image_ids)} files, one per image, got {len(images)}."
            )
        return [Path(path) for path in images]
    missing = [image_id for image_id in image_ids if image_id not in images]
    if missing:
        raise InvalidDataError(
            f"Expected a file for each image, got none for {missing[0]!r}"
            f"{f' and {len(missing) - 1} others' if len(missing) > 1 else ''}. Add it to images."
        )
    return [Path(images[image_id]) for image_id in image_ids]


def _file_names(paths: Sequence[Path]) -> list[str]:
    """Return the names of the files, numbered where two folders have the same."""
    repeats = Counter(path.name for path in paths)
    names = [p.name if repeats[p.name] == 1 else f"{k}-{p.name}" for k, p in enumerate(paths)]
    if len(set(names)) < len(names):  # 1-a.png beside a.png twice
        return [f"{k}-{path.name}" for k, path in enumerate(paths)]
    return names


def _place(source: Path, target: Path, *, links: bool) -> None:
    if links:
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.abspath(source))  # noqa: PTH100 - a link to a link stays one
    else:
        shutil.copyfile(source, target)


def _image_records(
    boxes: BoxTruth | Detections, paths: Sequence[Path], names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the records of the images; text ids are numbered and kept as `original_id`."""
    given = boxes.image_ids.tolist()
    for number, (image_id, path, name) in enumerate(zip(given, paths, names, strict=True), 1):
        with opened_image(path) as image:
            width, height = image.size
        record = {"id": image_id, "file_name": name, "width": width, "height": height}
        is_text = isinstance(image_id, str)
        yield record | ({"id": number, "original_id": image_id} if is_text else {})


def _objects(boxes: BoxTruth | Detections) -> Iterator[list[dict[str, Any]]]:
    """Yield the objects of each image, numbered from 1."""
    ids = boxes.image_ids.tolist()
    xywh = zip(boxes.xyxy[:, :2].tolist(), boxes.sizes.tolist(), strict=True)
    bboxes = [[*corner, *size] for corner, size in xywh]
    roles = [role.value for role in boxes.classes.roles]
    for k, image_id in enumerate(ids):
        yield [
            {
                "id": row + 1,
                "image_id": k + 1 if isinstance(image_id, str) else image_id,
                "category_id": int(boxes.class_ids[row]) + 1,
                "bbox": bboxes[row],
                "role": roles[boxes.class_ids[row]],
                **_further(boxes, row),
            }
            for row in range(boxes.offsets[k], boxes.offsets[k + 1])
        ]


def _further(boxes: BoxTruth | Detections, row: int) -> dict[str, Any]:
    if isinstance(boxes, Detections):
        area = float(boxes.sizes[row].prod())
        return {"area": area, "iscrowd": 0, "score": float(boxes.confidence[row])}
    return {
        "area": float(boxes.areas[row]),
        "iscrowd": int(boxes.is_crowd[row]),
        **({"difficult": 1} if boxes.is_difficult[row] else {}),
    }
