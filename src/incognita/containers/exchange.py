"""Boxes of supervision and of FiftyOne as ours, and back.

Boxes are read through the attributes of their objects, so that neither library is imported; only
`to_supervision` imports supervision.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes
from incognita.errors import InvalidDataError, unknown_name
from incognita.registry import need

NAMES_KEY = "class_name"  # of `data`, under which supervision keeps the names of classes


def from_supervision(
    images: Any,
    classes: Classes | Sequence[str] | None = None,
    image_ids: Sequence[Any] | np.ndarray | None = None,
) -> Detections:
    """Convert detections of supervision; see `Detections.from_supervision`."""
    given = _images_of(images)
    names = [_names_of(image) for image in given]
    known = _classes(classes) or _classes_of_ids(given, names)
    ids = [
        _ids_by_name(texts, known) if texts is not None else _own_ids(image, k)
        for k, (image, texts) in enumerate(zip(given, names, strict=True))
    ]
    return Detections(
        list(range(len(given))) if image_ids is None else image_ids,
        _offsets(ids),
        _joined([np.asarray(image.xyxy, np.float64).reshape(-1, 4) for image in given], width=4),
        _joined([_confidence(image, k) for k, image in enumerate(given)]),
        _joined(ids).astype(np.int32),
        known,
    )


def _images_of(given: Any) -> list[Any]:
    """Return what was given for each image; raise unless all are like supervision's detections."""
    images = [given] if hasattr(given, "xyxy") or not isinstance(given, Iterable) else list(given)
    for k, image in enumerate(images):
        if not hasattr(image, "xyxy"):
            raise InvalidDataError(
                f"Expected supervision.Detections for each image, got {type(image).__name__} for "
                f"image {k}. Pass supervision.Detections.empty() for an image without boxes."
            )
    return images


def to_supervision(detections: Detections) -> list[Any]:
    """Convert to one `supervision.Detections` per image; see `Detections.to_supervision`."""
    supervision = need("supervision", extra="supervision", needed_by="to_supervision")
    names = np.array(detections.classes.names, dtype=np.str_)
    found = []
    for start, end in zip(detections.offsets[:-1], detections.offsets[1:], strict=True):
        class_ids = detections.class_ids[start:end].astype(np.int64)
        found.append(
            supervision.Detections(
                xyxy=detections.xyxy[start:end].copy(),
                confidence=detections.confidence[start:end].copy(),
                class_id=class_ids,
                data={NAMES_KEY: names[class_ids]},
            )
        )
    return found


def from_fiftyone(
    dataset: Any, field: str = "predictions", classes: Classes | Sequence[str] | None = None
) -> Detections:
    """Convert detections of FiftyOne; see `Detections.from_fiftyone`."""
    columns = _fiftyone_columns(dataset, field, classes)
    confidence = _values(dataset, f"{field}.detections.confidence")
    numbers = [number for image in confidence for number in image or ()]
    if None in numbers:
        raise InvalidDataError(
            f"Expected a confidence for each detection of {field!r}, got None for "
            f"{numbers.count(None)} of {len(numbers)}. Is {field!r} the field of the truth?"
        )
    return Detections(**columns, confidence=np.array(numbers, np.float64))


def truth_from_fiftyone(
    dataset: Any, field: str = "ground_truth", classes: Classes | Sequence[str] | None = None
) -> BoxTruth:
    """Convert annotated objects of FiftyOne; see `BoxTruth.from_fiftyone`."""
    columns = _fiftyone_columns(dataset, field, classes)
    crowds = f"{field}.detections.iscrowd"
    if dataset.get_field(crowds) is None:
        return BoxTruth(**columns)
    flags = [bool(flag) for image in _values(dataset, crowds) for flag in image or ()]
    return BoxTruth(**columns, is_crowd=np.array(flags, np.bool_))


def _fiftyone_columns(
    dataset: Any, field: str, classes: Classes | Sequence[str] | None
) -> dict[str, Any]:
    """Return what detections and truth share; boxes are relative to the image in FiftyOne."""
    fields = dataset.get_field_schema()
    if field not in fields:
        raise unknown_name("field of the dataset", field, fields)
    boxes = _values(dataset, f"{field}.detections.bounding_box")
    labels = _values(dataset, f"{field}.detections.label")
    texts = [[str(label) for label in image or ()] for image in labels]
    known = _classes(classes) or Classes(tuple(sorted({t for image in texts for t in image})))
    ids = [_ids_by_name(image, known) for image in texts]
    scale = _image_sizes(dataset)
    relative = _joined([np.array(image or [], np.float64).reshape(-1, 4) for image in boxes], 4)
    xywh = relative * np.repeat(np.tile(scale, 2), [len(image) for image in ids], axis=0)
    return {
        "image_ids": [str(name) for name in dataset.values("id")],
        "offsets": _offsets(ids),
        "xyxy": np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1),
        "class_ids": _joined(ids).astype(np.int32),
        "classes": known,
        "sizes": xywh[:, 2:],
    }


def _values(dataset: Any, path: str) -> list[Any]:
    try:
        return list(dataset.values(path))
    except Exception as error:  # FiftyOne raises errors of several kinds
        field = path.partition(".")[0]
        raise InvalidDataError(
            f"Expected detections in the field {field!r}: {path} cannot be read. Name a field of "
            f"the type Detections."
        ) from error


def _image_sizes(dataset: Any) -> np.ndarray:
    sides = [dataset.values(f"metadata.{side}") for side in ("width", "height")]
    missing = sum(None in pair for pair in zip(*sides, strict=True))
    if missing:
        raise InvalidDataError(
            f"Expected the size of each image, got none for {missing} of {len(sides[0])}. Call "
            f"dataset.compute_metadata() first."
        )
    return np.array(sides, np.float64).T.reshape(-1, 2)


def _classes(given: Classes | Sequence[str] | None) -> Classes | None:
    return given if given is None or isinstance(given, Classes) else Classes(tuple(given))


def _names_of(image: Any) -> list[str] | None:
    """Return the class names of an image's boxes, or None where there are only numbers."""
    data: Mapping[str, Any] = getattr(image, "data", None) or {}
    names = data.get(NAMES_KEY)
    if names is None or (len(names) == 0 and len(image.xyxy) > 0):
        return None if len(image.xyxy) else []
    return [str(name) for name in names]


def _classes_of_ids(images: Sequence[Any], names: Sequence[list[str] | None]) -> Classes:
    """Collect the classes that boxes name, in the order of their numbers."""
    name_of: dict[int, str] = {}
    for k, (image, texts) in enumerate(zip(images, names, strict=True)):
        if texts is None or (image.class_id is None and texts):
            what = f"data[{NAMES_KEY!r}]" if texts is None else "class_id"
            raise InvalidDataError(
                f"Expected {what} for each box, got none for image {k}. Pass classes, the names in "
                f"the order of class_id."
            )
        for class_id, name in zip(image.class_id if texts else (), texts, strict=True):
            if name_of.setdefault(int(class_id), name) != name:
                raise InvalidDataError(
                    f"Expected one name for class_id {class_id}, got {name_of[int(class_id)]!r} "
                    f"and {name!r}. Pass classes."
                )
    return Classes(tuple(name_of[class_id] for class_id in sorted(name_of)))


def _ids_by_name(names: Iterable[str], classes: Classes) -> np.ndarray:
    places = {name: k for k, name in enumerate(classes.names)}
    for name in names:
        if name not in places:
            raise unknown_name("class", name, classes.names)
    return np.array([places[name] for name in names], np.int64)


def _own_ids(image: Any, k: int) -> np.ndarray:
    if image.class_id is None:
        raise InvalidDataError(
            f"Expected class_id for each box, got none for image {k}. Pass detections with classes."
        )
    return np.asarray(image.class_id, np.int64)


def _confidence(image: Any, k: int) -> np.ndarray:
    if image.confidence is None and len(image.xyxy):
        raise InvalidDataError(
            f"Expected a confidence for each box, got none for image {k}. Is it the truth?"
        )
    return np.asarray([] if image.confidence is None else image.confidence, np.float64)


def _offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.cumsum([0, *map(len, parts)])


def _joined(parts: Sequence[np.ndarray], width: int | None = None) -> np.ndarray:
    empty = np.zeros((0,) if width is None else (0, width))
    return np.concatenate([empty, *parts])
