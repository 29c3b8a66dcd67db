"""What a detector finds in a few images: boxes with the logits and features behind them."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from incognita.containers.boxes import Detections
from incognita.containers.dataset import ArrayDataset
from incognita.errors import InvalidDataError
from incognita.extraction.extract import extract_boxes
from incognita.formats.images import load_image
from incognita.models.detector import finds_objects
from incognita.models.wrap_detector import wrap_detector


def detect(model: Any, images: Any) -> Detections:
    """Find objects, and give the row of logits and the feature vector behind every box.

    `xyxy`, `confidence`, `class_ids` (places in `classes.names`) are what the library gives;
    `logits`, `features`, `background` and `source_index` are what it does not. Boxes of image k
    are the rows `offsets[k]` to `offsets[k + 1]`.

    Args:
        model: What `wrap_detector` gives, or a network that it takes.
        images: One image or several: a path, an RGB array [height, width, 3] of uint8, or a
            picture of PIL.
    """
    detector = model if finds_objects(model) else wrap_detector(model)
    several = images if isinstance(images, list | tuple) else [images]
    ids = [_name(each, place) for place, each in enumerate(several)]
    ids = [name if ids.count(name) == 1 else f"{name}#{k}" for k, name in enumerate(ids)]
    dataset = ArrayDataset("images", tuple(ids), _pixels(several))
    extracted = extract_boxes(detector, dataset)
    if extracted.failed_images:
        first = extracted.failed_images[0]
        raise InvalidDataError(f"{first.image_id} cannot be looked at: {first.reason}.")
    return extracted.outputs.detections


def _name(image: Any, place: int) -> str:
    return str(image) if isinstance(image, str | PathLike) else str(place)


def _pixels(images: Sequence[Any]) -> list[np.ndarray]:
    return [
        load_image(Path(each))
        if isinstance(each, str | PathLike)
        else each
        if isinstance(each, np.ndarray)
        else np.asarray(each.convert("RGB"))
        for each in images
    ]
