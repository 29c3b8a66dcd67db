"""The sets of SAOD in slow loops over plain JSON, as section 2.2 of the notes words them.

Riders are assigned by trying every assignment, where the package has scipy's solver.
"""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

VEHICLES = ("car", "truck", "bus", "motorcycle", "train", "trailer", "other vehicle")
BDD_CLASS = dict.fromkeys(VEHICLES, "vehicle") | {
    "pedestrian": "pedestrian", "other person": "pedestrian", "bicycle": "bicycle",
}  # fmt: skip
NUIMAGES_CLASS = {
    "vehicle.bicycle": "bicycle",
    "human.pedestrian.adult": "pedestrian", "human.pedestrian.child": "pedestrian",
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
    "vehicle.bus.bendy": "vehicle", "vehicle.bus.rigid": "vehicle", "vehicle.car": "vehicle",
    "vehicle.construction": "vehicle", "vehicle.motorcycle": "vehicle",
    "vehicle.trailer": "vehicle", "vehicle.truck": "vehicle",
}  # fmt: skip
WILD = {"Actinopterygii", "Amphibia", "Animalia", "Arachnida", "Insecta", "Mollusca", "Reptilia"}


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def names_held(path: Path, key: str = "name") -> dict[int, list[tuple[str, dict[str, Any]]]]:
    """Give the class name and the record of each annotation, by image."""
    content = load(path)
    held: dict[int, list[tuple[str, dict[str, Any]]]] = {}
    for image in content["images"]:
        held[image["id"]] = []
        for annotation in content["annotations"]:
            if annotation["image_id"] == image["id"]:
                for category in content["categories"]:
                    if category["id"] == annotation["category_id"]:
                        held[image["id"]].append((category[key], annotation))
    return held


def known_images(path: Path, tables: dict[str, Any]) -> dict[int, list[tuple[str, list[float]]]]:
    """Give COCO's class and the box of each object of the images of Obj45K."""
    coco = {name: own for own, names in tables["known"].items() for name in names}
    chosen = {}
    for image_id, held in names_held(path).items():
        names = [name for name, _ in held]
        if any(name in tables["ambiguous"] for name in names):
            continue
        if all(name in tables["unknown"] for name in names):
            continue
        chosen[image_id] = [(coco[n], record["bbox"]) for n, record in held if n in coco]
    return chosen


def unknown_images(path: Path, tables: dict[str, Any], *, with_empty: bool) -> dict[int, list[str]]:
    """Give the classes in the unknown images of Objects365."""
    chosen = {}
    for image_id, held in names_held(path).items():
        names = [name for name, _ in held]
        if (names or with_empty) and all(name in tables["unknown"] for name in names):
            chosen[image_id] = names
    return chosen


def wild_images(path: Path) -> dict[int, list[str]]:
    """Give the super-categories in the unknown images of iNaturalist."""
    chosen = {}
    for image_id, held in names_held(path, "supercategory").items():
        above = [name for name, _ in held]
        if above and set(above) <= WILD:
            chosen[image_id] = above
    return chosen


def iou(one: list[float], other: list[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (one, other)]
    return width * height / (areas[0] + areas[1] - width * height)


def merged(labels: list[tuple[str, list[float]]]) -> list[tuple[str, list[float]]] | None:
    """Give the labels with riders merged, or None for an image that is dropped."""
    riders = [box for name, box in labels if name == "rider"]
    rest = [(name, list(box)) for name, box in labels if name != "rider"]
    rideables = [k for k, (name, _) in enumerate(rest) if name in ("bicycle", "motorcycle")]
    if not riders:
        return rest
    if not rideables:
        return None
    n = min(len(riders), len(rideables))
    best: tuple[float, list[tuple[int, int]]] = (-1.0, [])
    for some_riders in permutations(range(len(riders)), n):
        for some_rideables in permutations(rideables, n):
            pairs = list(zip(some_riders, some_rideables, strict=True))
            total = sum(iou(riders[r], rest[k][1]) for r, k in pairs)
            if total > best[0] + 1e-12:
                best = (total, pairs)
    for r, k in best[1]:
        if iou(riders[r], rest[k][1]) < 0.10:
            return None
    for r, k in best[1]:
        name, box = rest[k]
        ends = [max(riders[r][2], box[2]), max(riders[r][3], box[3])]
        rest[k] = (name, [min(riders[r][0], box[0]), min(riders[r][1], box[1]), *ends])
    return rest


def street_images(path: Path, limit: int | None) -> dict[str, list[tuple[str, list[float]]]]:
    """Give class and corners of the objects of the images of BDD45K, by file name."""
    chosen: dict[str, list[tuple[str, list[float]]]] = {}
    for frame in load(path):
        if limit is not None and len(chosen) >= limit:
            break
        labels = [
            (label["category"], [label["box2d"][key] for key in ("x1", "y1", "x2", "y2")])
            for label in frame.get("labels", [])
        ]
        rest = merged(labels)
        if rest is None:
            continue
        known = [(BDD_CLASS[name], box) for name, box in rest if name in BDD_CLASS]
        if known:
            chosen[frame["name"]] = known
    return chosen


def masked_objects(folder: Path) -> dict[str, list[tuple[str, list[float]]]]:
    """Give class and corners of the objects of the key frames of nuImages, by file name."""
    names = {row["token"]: row["name"] for row in load(folder / "category.json")}
    found: dict[str, list[tuple[str, list[float]]]] = {}
    for frame in load(folder / "sample_data.json"):
        if not frame["is_key_frame"]:
            continue
        found[frame["filename"]] = []
        for row in load(folder / "object_ann.json"):
            name = names[row["category_token"]]
            is_here = row["sample_data_token"] == frame["token"] and row["mask"] is not None
            if is_here and name in NUIMAGES_CLASS:
                found[frame["filename"]].append((NUIMAGES_CLASS[name], row["bbox"]))
    return found
