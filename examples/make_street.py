"""Generate the files of `incognita demo`: street scenes and a detector trained on five classes.

The data is simulated. The detector finds large objects better than small ones, is slightly
overconfident, and often labels an unknown object as the most similar known class.

    python examples/make_street.py            # writes src/incognita/benchmarks/examples/street
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HOME = Path(__file__).parents[1] / "src" / "incognita" / "benchmarks" / "examples" / "street"
N_IMAGES = 120
WIDTH, HEIGHT = 640, 480
# name: super-class, typical height in pixels, width over height
KNOWN = {
    "person": ("person", 110, 0.4),
    "bicycle": ("vehicle", 90, 1.5),
    "car": ("vehicle", 90, 1.9),
    "bus": ("vehicle", 150, 1.8),
    "dog": ("animal", 60, 1.4),
}
UNKNOWN = {
    "scooter": ("vehicle", 90, 0.7),
    "deer": ("animal", 120, 1.1),
    "suitcase": ("luggage", 55, 0.7),
}
CATEGORIES = {name: k + 1 for k, name in enumerate([*KNOWN, *UNKNOWN, "unknown"])}
# the known class that the detector confuses with each unknown class
MISTAKEN_FOR = {"scooter": "bicycle", "deer": "dog", "suitcase": "person"}


def place_object(rng: np.random.Generator, name: str) -> list[float]:
    """Draw a box of plausible size somewhere in the image."""
    _, typical, ratio = {**KNOWN, **UNKNOWN}[name]
    height = float(np.clip(typical * np.exp(rng.normal(0, 0.5)), 12, 440))
    width = float(np.clip(height * ratio * np.exp(rng.normal(0, 0.15)), 8, 620))
    x, y = rng.uniform(0, WIDTH - width), rng.uniform(0, HEIGHT - height)
    return [round(float(value), 1) for value in (x, y, width, height)]


def localize(rng: np.random.Generator, box: list[float], blur: float) -> list[float]:
    """Return the box with the localization error of a detector."""
    scale = np.array(box[2:] * 2)
    predicted = np.array(box) + rng.normal(0, blur, 4) * scale
    predicted[2:] = np.maximum(predicted[2:], 4)
    return [round(float(value), 2) for value in predicted]


def detect(rng: np.random.Generator, name: str, box: list[float]) -> list[tuple[str, float, list]]:
    """Return the detections of one object as (label, confidence, box); possibly none."""
    visibility = 1 / (1 + np.exp(-(box[3] - 35) / 14))
    if name in KNOWN:
        if rng.random() > 0.93 * visibility:
            return []
        found = [(name, float(rng.beta(8, 2)), localize(rng, box, 0.05))]
        if rng.random() < 0.15:  # a second, less accurate box on the same object
            found.append((name, float(rng.beta(3, 4)), localize(rng, box, 0.16)))
        return found
    found = []
    if rng.random() < 0.36 * visibility:
        found.append(("unknown", float(rng.beta(4, 4)), localize(rng, box, 0.07)))
    if rng.random() < 0.4 * visibility:  # also, or instead, a wrong label; sometimes twice
        for _ in range(int(rng.integers(1, 3))):
            found.append((MISTAKEN_FOR[name], float(rng.beta(4, 3)), localize(rng, box, 0.08)))
    return found


def make() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Generate the annotations and the detections."""
    rng = np.random.default_rng(20261115)
    annotations, results = [], []
    for image in range(1, N_IMAGES + 1):
        kinds = [KNOWN, UNKNOWN] if image % 3 == 0 else [UNKNOWN] if image % 5 == 0 else [KNOWN]
        for kind in kinds:
            for _ in range(int(rng.integers(1, 5))):
                name = str(rng.choice(list(kind)))
                box = place_object(rng, name)
                annotations.append(annotation(len(annotations) + 1, image, name, box))
                results += [result(image, *found) for found in detect(rng, name, box)]
        for _ in range(int(rng.poisson(1.6))):  # false positives on background
            name = str(rng.choice([*KNOWN, "unknown"]))
            shape = name if name in KNOWN else "suitcase"
            results.append(result(image, name, float(rng.beta(1.5, 6)), place_object(rng, shape)))
    return truth(annotations), results


def annotation(number: int, image: int, name: str, box: list[float]) -> dict[str, Any]:
    """Return one object as a COCO annotation."""
    area = round(box[2] * box[3] * 0.75, 2)
    where = {"id": number, "image_id": image, "category_id": CATEGORIES[name]}
    return where | {"bbox": box, "area": area, "iscrowd": 0}


def result(image: int, name: str, confidence: float, box: list[float]) -> dict[str, Any]:
    """Return one detection as a COCO result."""
    where = {"image_id": image, "category_id": CATEGORIES[name]}
    return where | {"bbox": box, "score": round(confidence, 4)}


def truth(annotations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the COCO annotation file."""
    size = {"width": WIDTH, "height": HEIGHT}
    images = [{"id": k, "file_name": f"{k:04}.jpg"} | size for k in range(1, N_IMAGES + 1)]
    superclasses = {name: shape[0] for name, shape in {**KNOWN, **UNKNOWN}.items()}
    categories = [
        {"id": number, "name": name}
        | ({"supercategory": superclasses[name]} if name in superclasses else {})
        for name, number in CATEGORIES.items()
    ]
    return {"images": images, "annotations": annotations, "categories": categories}


CLASS_MAP = """\
# What the street detector of `incognita demo` was taught; all other categories are unknown.
version = 1
known = ["person", "bicycle", "car", "bus", "dog"]
"""


def write(home: Path) -> None:
    """Write the three files of the example."""
    home.mkdir(parents=True, exist_ok=True)
    annotated, results = make()
    (home / "truth.json").write_text(json.dumps(annotated, separators=(",", ":")) + "\n")
    (home / "detections.json").write_text(json.dumps(results, separators=(",", ":")) + "\n")
    (home / "classes.toml").write_text(CLASS_MAP)


if __name__ == "__main__":
    home = Path(sys.argv[1]) if len(sys.argv) > 1 else HOME
    write(home)
    print(f"The example is in {home}")
