"""Small files in the formats of VOC, COCO and OpenImages, for tests of open sets."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.benchmarks.saod_cases import write_json, write_picture

SIZE = (40, 30)
HEADER = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,"
    "IsDepiction,IsInside"
)
# a hierarchy with a class in two places, parts with classes below them, and classes of no group
TREE = {
    "Vehicle": {"Land vehicle": {"Car": {"Van": {}, "Limousine": {}}, "Bicycle": {}, "Truck": {}},
                "Boat": {}},
    "Animal": {"Mammal": {"Dog": {}, "Cat": {}}, "Bird": {}, "Fish": {}, "Shellfish": {"Crab": {}}},
    "Food": {"Shellfish": {"Crab": {}}, "Bread": {}},
    "Clothing": {"Hat": {}, "Boot": {}},
    "Flag": {}, "Street light": {}, "Auto part": {"Wheel": {}, "Tire": {}},
}  # fmt: skip
PARTS = {"Land vehicle": ["Auto part"]}
Row = tuple[str, str, Sequence[float]]  # image, class, box


def write_voc(folder: Path, held: Mapping[str, Sequence[str]], **lists: Sequence[str]) -> Path:
    """Write annotations of VOC from the names that each image holds, pictures and lists."""
    for image_id, names in held.items():
        things = "".join(
            f"<object><name>{name}</name><difficult>{k % 2}</difficult><bndbox><xmin>{k + 1}</xmin>"
            f"<ymin>2</ymin><xmax>{k + 9}</xmax><ymax>20</ymax></bndbox></object>"
            for k, name in enumerate(names)
        )
        path = folder / "Annotations" / f"{image_id}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"<annotation><filename>{image_id}.jpg</filename><size><width>{SIZE[0]}</width>"
            f"<height>{SIZE[1]}</height></size>{things}</annotation>"
        )
        write_picture(folder / "JPEGImages" / f"{image_id}.jpg", SIZE)
    for name, ids in lists.items():
        path = folder / "ImageSets" / "Main" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{image_id}\n" for image_id in ids))
    return folder


def write_coco(path: Path, held: Mapping[int, Sequence[str]]) -> Path:
    """Write an annotation file of COCO with these objects, and pictures beside it."""
    names = sorted({name for inside in held.values() for name in inside})
    numbers = {name: 3 * k + 1 for k, name in enumerate(names)}
    split = path.stem.removeprefix("instances_")
    rows = [(image_id, name) for image_id, inside in held.items() for name in inside]
    for image_id in held:
        write_picture(path.parent / split / f"{image_id:012d}.jpg", SIZE)
    content = {
        "images": [{"id": k, "file_name": f"{k:012d}.jpg", "width": SIZE[0], "height": SIZE[1]}
                   for k in held],
        "annotations": [
            {"id": k, "image_id": image_id, "category_id": numbers[name], "bbox": [k % 9, 2, 10, 8],
             "area": 80, "iscrowd": 0}
            for k, (image_id, name) in enumerate(rows, start=1)
        ],
        "categories": [{"id": k, "name": name, "supercategory": f"{name[0]}s"}
                       for name, k in numbers.items()],
    }  # fmt: skip
    return write_json(path, content)


def label(name: str) -> str:
    return "/m/" + name.lower().replace(" ", "_")


def hierarchy(tree: Mapping[str, Any] = TREE, parts: Mapping[str, Sequence[str]] = PARTS) -> Any:
    """Return a tree in the format of OpenImages."""

    def entry(name: str, below: Mapping[str, Any]) -> dict[str, Any]:
        node: dict[str, Any] = {"LabelName": label(name)}
        if below:
            node["Subcategory"] = [entry(child, inside) for child, inside in below.items()]
        if name in parts:
            node["Part"] = [entry(part, tree.get(part, {})) for part in parts[name]]
        return node

    return {**entry("Entity", tree), "LabelName": "/m/entity"}


def names_of(tree: Mapping[str, Any]) -> list[str]:
    found = dict.fromkeys(tree)
    for below in tree.values():
        found |= dict.fromkeys(names_of(below))
    return list(found)


def write_openimages(
    folder: Path,
    rows: Sequence[tuple[str, str, Sequence[float]]],
    *,
    tree: Mapping[str, Any] = TREE,
) -> Path:
    """Write the files of OpenImages from image, class and XMin, XMax, YMin, YMax of each box."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "bbox_labels_600_hierarchy.json", hierarchy(tree))
    with (folder / "class-descriptions-boxable.csv").open("w", newline="") as file:
        csv.writer(file).writerows((label(name), name) for name in names_of(tree))
    lines = [
        f"{image},xclick,{label(name)},1,{','.join(f'{v:.6f}' for v in box)},0,0,{k % 7 == 0:d},0,0"
        for k, (image, name, box) in enumerate(rows)
    ]
    (folder / "train-annotations-bbox.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    return folder


def random_boxes(
    rng: np.random.Generator, n_images: int, classes: Sequence[str]
) -> list[tuple[str, str, list[float]]]:
    """Draw boxes, of which many lie at the place of an earlier one of their image."""
    rows: list[tuple[str, str, list[float]]] = []
    for k in range(n_images):
        image = f"{int(rng.integers(2**60)):016x}{k}"
        places: list[list[float]] = []
        own = rng.choice(classes, 4)  # an image shows few classes
        for _ in range(int(rng.integers(1, 7))):
            if places and rng.random() < 0.5:
                box = list(places[int(rng.integers(len(places)))])
                box[1] = min(1.0, box[1] + float(rng.choice([0, 0.01, 0.05])))
            else:
                x, y = np.sort(rng.random(2)), np.sort(rng.random(2))
                box = [*x.round(2).tolist(), *y.round(2).tolist()]
            places.append(box)
            rows.append((image, str(rng.choice(own)), box))
    return rows


def write_pictures(folder: Path, rows: Sequence[Row]) -> None:
    for image in {image for image, *_ in rows}:
        write_picture(folder / "train" / f"{image}.jpg", SIZE)


def rules_toml(rules: Mapping[str, Any]) -> str:
    """Write rules as TOML; a value is written as JSON, which is the same for these."""
    flat = {k: v for k, v in rules.items() if not isinstance(v, dict) and v is not None}
    tables = {k: v for k, v in rules.items() if isinstance(v, dict)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in flat.items()]
    for key, table in tables.items():
        lines.append(f"[{key}]")
        lines += [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in table.items()]
    return "\n".join(lines) + "\n"
