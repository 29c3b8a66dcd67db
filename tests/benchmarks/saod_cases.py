"""Small files in the formats of Objects365, iNaturalist, SVHN, BDD100K, nuImages and COCO."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from incognita.benchmarks.splits.saod_sets import TABLES

CONTENT = tomllib.loads(TABLES.read_text())
KNOWN = [name for names in CONTENT["objects365"]["known"].values() for name in names]
AMBIGUOUS, UNKNOWN = CONTENT["objects365"]["ambiguous"], CONTENT["objects365"]["unknown"]
SUPER = ("Actinopterygii", "Amphibia", "Animalia", "Arachnida", "Aves", "Insecta", "Mammalia",
         "Mollusca", "Plantae", "Reptilia")  # fmt: skip
BDD = ("pedestrian", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
       "traffic light", "traffic sign", "other vehicle", "other person", "trailer")  # fmt: skip
NUIMAGES = (
    "animal", "human.pedestrian.adult", "human.pedestrian.child",
    "human.pedestrian.construction_worker", "human.pedestrian.personal_mobility",
    "human.pedestrian.police_officer", "human.pedestrian.stroller", "human.pedestrian.wheelchair",
    "movable_object.barrier", "movable_object.trafficcone", "vehicle.bicycle", "vehicle.bus.bendy",
    "vehicle.bus.rigid", "vehicle.car", "vehicle.construction", "vehicle.ego",
    "vehicle.emergency.ambulance", "vehicle.motorcycle", "vehicle.trailer", "vehicle.truck",
)  # fmt: skip


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def write_picture(path: Path, size: tuple[int, int] = (8, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (len(str(path)) % 256, hash(path.name) % 256, 3)).save(path)
    return path


def objects365(
    held: Mapping[int, Sequence[str]], *, first: int = 1, rng: np.random.Generator | None = None
) -> dict[str, Any]:
    """Return an annotation file from the class names that each image id holds."""
    rng = rng or np.random.default_rng(0)
    order = [*UNKNOWN[:100], *KNOWN, *AMBIGUOUS, *UNKNOWN[100:]]  # ids of no list are in a row
    numbers = {name: number for number, name in enumerate(order, start=1)}
    rows = [(image_id, name) for image_id, names in held.items() for name in names]
    boxes = rng.uniform(0.5, 60, (len(rows), 4)).round(10).tolist()
    return {
        "images": [
            {"height": 512, "id": k, "license": 5, "width": 769, "url": "",
             "file_name": f"images/v1/patch{k % 3}/objects365_v1_{k:08d}.jpg"}
            for k in held
        ],
        "annotations": [
            {"id": k, "iscrowd": int(k % 7 == 0), "isfake": 0, "area": box[2] * box[3],
             "isreflected": 0, "bbox": box, "image_id": image_id, "category_id": numbers[name]}
            for k, ((image_id, name), box) in enumerate(zip(rows, boxes, strict=True), first)
        ],
        "categories": [{"name": name, "id": number} for name, number in numbers.items()],
        "licenses": [{"name": "CC", "id": 5}],
    }  # fmt: skip


def random_objects365(rng: np.random.Generator, n_images: int, first: int) -> dict[str, Any]:
    """Return a file of images that hold nothing, one kind of classes, or a mixture."""
    pools = ([], KNOWN, UNKNOWN, AMBIGUOUS, KNOWN + UNKNOWN, KNOWN + UNKNOWN + AMBIGUOUS)
    held = {}
    for k in rng.permutation(n_images).tolist():
        pool = pools[rng.choice(6, p=[0.05, 0.2, 0.25, 0.05, 0.35, 0.1])]
        size = int(rng.integers(1, 6)) if pool else 0
        held[first + k] = [str(name) for name in rng.choice(pool or ["-"], size)]
    return objects365(held, rng=rng)


def write_objects365(folder: Path, seed: int = 0, n_images: int = 60) -> Path:
    rng = np.random.default_rng(seed)
    write_json(folder / "zhiyuan_objv2_val.json", random_objects365(rng, n_images, 420_000))
    write_json(folder / "zhiyuan_objv2_train.json", random_objects365(rng, n_images, 1))
    return folder


def write_objects365_images(folder: Path) -> None:
    for split in ("val", "train"):
        for image in json.loads((folder / f"zhiyuan_objv2_{split}.json").read_text())["images"]:
            *_, patch, name = image["file_name"].split("/")
            write_picture(folder / split / patch / name)


def write_inaturalist(folder: Path, seed: int = 0, n_images: int = 40) -> Path:
    rng = np.random.default_rng(seed)
    categories = [
        {"id": k, "name": f"Species {k}", "supercategory": str(rng.choice(SUPER))}
        for k in range(30)
    ]
    images = [
        {"id": 7 * k, "width": 800, "height": 600, "license": 3, "rights_holder": "x",
         "file_name": f"train_val_images/{k % 4}/{k}.jpg"}
        for k in range(n_images)
    ]  # fmt: skip
    annotations = []
    for image in images:
        base = int(rng.integers(30))
        for _ in range(int(rng.integers(0, 4))):
            own = base if rng.random() < 0.8 else int(rng.integers(30))
            box = rng.integers(1, 300, 4).tolist()
            annotations.append({"area": float(box[2] * box[3]), "iscrowd": 0, "bbox": box,
                                "image_id": image["id"], "category_id": own,
                                "id": len(annotations)})  # fmt: skip
    content = {"info": {}, "licenses": [], "images": images, "annotations": annotations,
               "categories": categories}  # fmt: skip
    write_json(folder / "val_2017_bboxes.json", content)
    return folder


def write_svhn(folder: Path, n_train: int = 12, n_test: int = 3) -> Path:
    for split, n in (("train", n_train), ("test", n_test)):
        for k in range(1, n + 1):
            write_picture(folder / split / f"{k}.png", (20 + k, 10))
        (folder / split / "digitStruct.mat").write_bytes(b"MATLAB")
    return folder


def bdd_frame(name: str, labels: Sequence[tuple[str, Sequence[float]]], **attributes: str) -> Any:
    stated = {"weather": "clear", "timeofday": "daytime", "scene": "highway"} | attributes
    frame = {"name": name, "attributes": stated, "timestamp": 10000}
    boxes = [dict(zip(("x1", "y1", "x2", "y2"), xyxy, strict=True)) for _, xyxy in labels]
    frame["labels"] = [
        {"id": str(k), "attributes": {"occluded": False, "trafficLightColor": "NA"},
         "category": category, "box2d": box}
        for k, ((category, _), box) in enumerate(zip(labels, boxes, strict=True))
    ]  # fmt: skip
    return frame


def random_frames(rng: np.random.Generator, n_frames: int, start: str) -> list[Any]:
    """Return frames with close riders and rideables, riders alone, other objects, or nothing."""
    frames = []
    for k in range(n_frames):
        labels = [(str(name), _corners(rng)) for name in rng.choice(BDD, rng.integers(0, 4))]
        for _ in range(int(rng.integers(0, 3))):
            x, y, x2, y2 = _corners(rng)
            shift = rng.uniform(-30, 30, 2)
            labels.append(("rider", (x + shift[0], y + shift[1], x2 + shift[0], y2 + shift[1])))
            if rng.random() < 0.9:
                labels.append((str(rng.choice(("bicycle", "motorcycle"))), (x, y, x2, y2)))
        weather, time = rng.choice(["rainy", "clear", "snowy"]), rng.choice(["night", "daytime"])
        labels = [labels[i] for i in rng.permutation(len(labels))]
        frame = bdd_frame(f"{start}{k:04d}.jpg", labels, weather=str(weather), timeofday=str(time))
        if not labels and k % 2:
            del frame["labels"]  # as in images without labels
        frames.append(frame)
    return frames


def _corners(rng: np.random.Generator) -> tuple[float, float, float, float]:
    x, y = rng.uniform(0, 400, 2).tolist()
    width, height = rng.uniform(40, 120, 2).tolist()
    return (x, y, x + width, y + height)


def write_bdd(folder: Path, seed: int = 0, n_train: int = 60, n_val: int = 30) -> Path:
    rng = np.random.default_rng(seed)
    write_json(folder / "labels/det_20/det_train.json", random_frames(rng, n_train, "a"))
    write_json(folder / "labels/det_20/det_val.json", random_frames(rng, n_val, "b"))
    return folder


def write_bdd_images(folder: Path) -> None:
    for split in ("train", "val"):
        path = folder / "labels" / "det_20" / f"det_{split}.json"
        for frame in json.loads(path.read_text()):
            write_picture(folder / "images" / "100k" / split / frame["name"])


def write_nuimages(folder: Path, split: str = "val", seed: int = 0, n_images: int = 20) -> Path:
    rng = np.random.default_rng(seed)
    place = folder / f"v1.0-{split}"
    categories = [{"token": f"c{k}", "name": name, "description": ""}
                  for k, name in enumerate(NUIMAGES)]  # fmt: skip
    frames = []
    for k in range(2 * n_images):  # every second one is a sweep
        kind = "sweeps" if k % 2 else "samples"
        frames.append({"token": f"{split}{k:05d}", "sample_token": f"s{k // 2}", "width": 1600,
                       "filename": f"{kind}/CAM_FRONT/{split}{k}.jpg", "fileformat": "jpg",
                       "height": 900, "timestamp": k, "is_key_frame": not k % 2, "prev": "",
                       "next": ""})  # fmt: skip
    objects = []
    for k in range(6 * n_images):
        x, y, x2, y2 = (int(value) for value in _corners(rng))
        mask = None if rng.random() < 0.1 else {"size": [900, 1600], "counts": "UDBQMQ=="}
        image = 2 * int(rng.integers(n_images // 2)) + (rng.random() < 0.05)
        objects.append({"token": f"o{k}", "category_token": f"c{rng.integers(len(NUIMAGES))}",
                        "bbox": [x, y, x2, y2], "mask": mask, "attribute_tokens": [],
                        "sample_data_token": f"{split}{image:05d}"})  # fmt: skip
    write_json(place / "category.json", categories)
    write_json(place / "sample_data.json", frames)
    write_json(place / "object_ann.json", objects)
    return folder


def write_coco_val(folder: Path, n_images: int = 6) -> Path:
    """Write instances_val2017.json with the ids of COCO, and the images."""
    names = list(CONTENT["objects365"]["known"])
    ids = CONTENT["coco"]["category_ids"]
    content = {
        "images": [{"id": k, "file_name": f"{k:012d}.jpg", "width": 8, "height": 6}
                   for k in range(1, n_images + 1)],
        "annotations": [{"id": 10 * k + i, "image_id": k, "category_id": ids[(k + i) % 80],
                         "bbox": [1.0, 1.0, 4.0, 3.0], "area": 12.0, "iscrowd": 0}
                        for k in range(1, n_images + 1) for i in range(3)],
        "categories": [{"id": number, "name": name, "supercategory": "thing"}
                       for number, name in zip(ids, names, strict=True)],
    }  # fmt: skip
    for image in content["images"]:
        write_picture(folder / "val2017" / str(image["file_name"]))
    return write_json(folder / "annotations" / "instances_val2017.json", content)
