"""Small trees of real images with COCO files, and a detection benchmark that uses them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.image_trees import write_image

Box = tuple[str, list[float]]

ROAD = """
name = "mine/road"
version = 1
title = "Cars and people against animals"
task = "detection"
classes = ["person", "car"]

[[set]]
name = "train"
role = "train"
kind = "coco"
annotations = "train.json"
images = "train"

[[set]]
name = "test"
role = "test"
kind = "coco"
annotations = "test.json"
images = "test"
count = 3

[[set]]
name = "animals"
role = "near"
kind = "coco"
annotations = "animals.json"
images = "animals"

[[set]]
name = "both"
role = "mixed"
kind = "coco"
annotations = "both.json"
images = "both"
"""
CATEGORIES = {1: "car", 4: "person", 7: "deer", 9: "fox"}


def document_of(
    images: Mapping[str, Sequence[Box]], categories: Mapping[int, str] = CATEGORIES
) -> dict[str, Any]:
    """Give a COCO document from the boxes of each file; ids count down, as no reader expects."""
    number = {name: category_id for category_id, name in categories.items()}
    ids = {name: 100 - place for place, name in enumerate(images)}
    boxes = [(ids[file], *box) for file, each in images.items() for box in each]
    return {
        "images": [{"id": ids[name], "file_name": name} for name in images],
        "categories": [{"id": k, "name": name} for k, name in categories.items()],
        "annotations": [
            {"id": k, "image_id": image, "category_id": number[name], "bbox": xywh}
            for k, (image, name, xywh) in enumerate(boxes, start=1)
        ],
    }


def write_coco(
    folder: Path,
    name: str,
    images: Mapping[str, Sequence[Box]],
    categories: Mapping[int, str] = CATEGORIES,
) -> Path:
    """Write `name`.json and a picture of each image into the folder `name`."""
    for color, file in enumerate(images):
        write_image(folder / name / file, sum(name.encode()) + color, (20, 20))
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document_of(images, categories)))
    return path


def write_road(folder: Path, definition: str = ROAD) -> Path:
    """Write a benchmark of 4 + 3 known, 3 unknown and 2 mixed images; give its TOML file."""
    write_coco(folder, "train", {f"{k}.png": [("car", [k, 1, 5, 6])] for k in range(4)})
    write_coco(
        folder,
        "test",
        {"a.png": [("car", [0, 0, 4, 5]), ("person", [3, 3, 2, 2])], "b.png": [], "c.png": [
            ("person", [1, 2, 3.5, 4])]},
    )  # fmt: skip
    write_coco(
        folder,
        "animals",
        {"x.png": [("deer", [0, 0, 9, 9])], "y.png": [("fox", [1, 1, 2, 2])], "z.png": [
            ("deer", [5, 5, 2, 9]), ("fox", [0, 0, 1, 1])]},
    )  # fmt: skip
    write_coco(
        folder,
        "both",
        {
            "m.png": [("car", [0, 0, 9, 9]), ("deer", [9, 9, 3, 3])],
            "n.png": [("fox", [1, 1, 2, 2])],
        },
    )
    path = folder / "road.toml"
    path.write_text(definition)
    return path
