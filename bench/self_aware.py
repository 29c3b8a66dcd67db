"""`selfaware evaluate` from files, beside `json.load` of the same files.

Known images, three shifted copies of them and unknown images, 100 detections each, as detectors
write them: 45,000 + 3 x 45,000 + 110,000 images at the paper's scale, 10,000 here in the same
shares. The time is that of reading, matching, measuring and 200 bootstrap replicates.

At the paper's scale, 3.2 GB of files, `incognita selfaware evaluate` took 47 s of processor time
and 2.4 GB; `json.load` of the same files 103 s and 7.7 GB, on two cores shared with other work.

python -m bench.self_aware FOLDER 290000     writes files of that scale
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.harness import Row, Run, at_least, compare, measure
from incognita.decisions import SelfAware, load_self_aware, save_self_aware
from incognita.evaluation.self_aware import AnnotatedSet, SelfAwareTest, evaluate_self_aware
from incognita.formats import load_detections, load_truth

OURS, PEER = "incognita, whole evaluation", "json.load of the files"
N_IMAGES, PER_IMAGE, N_CLASSES = 10_000, 100, 80
SHARES = {"known": 45, "1": 45, "3": 45, "5": 45, "unknown": 110}  # of 290
DIMMED = {"known": 1.0, "1": 0.95, "3": 0.85, "5": 0.7, "unknown": 0.6, "painted": 0.5}
N_RESAMPLES = 200
BARS = {PEER: at_least(1)}
_ROWS_AT_ONCE = 200_000


def rows() -> list[Row]:
    """Compare on 10,000 images."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, N_IMAGES)
        cases: dict[str, Run | None] = {
            OURS: lambda: evaluate(folder),
            PEER: lambda: load_all(folder),
        }
        part = f"{N_IMAGES:,} images, {N_IMAGES * PER_IMAGE:,} boxes"
        return compare(part, cases, measure(cases, rounds=2), ours=OURS, bars=BARS)


def evaluate(folder: Path) -> object:
    """Do what `incognita selfaware evaluate` does."""
    truth = load_truth(folder / "truth.json")
    others = truth.for_images_of(folder / "unknown-images.json")
    found = {
        name: load_detections(folder / f"{name}.json", others if name == "unknown" else truth)
        for name in SHARES
    }
    shifted = {name: AnnotatedSet(found[name], truth.boxes) for name in "135"}
    known = AnnotatedSet(found["known"], truth.boxes)
    test = SelfAwareTest(known, shifted, frozenset("5"), {"unknown": found["unknown"]})
    rules = load_self_aware(folder / "rules.json")
    return evaluate_self_aware(rules, test, n_resamples=N_RESAMPLES)


def load_all(folder: Path) -> None:
    """Load every file and forget it, so that memory is that of the largest one."""
    for name in ("truth", "unknown-images", *SHARES):
        with (folder / f"{name}.json").open("rb") as file:
            json.load(file)


def write_files(folder: Path, n_images: int) -> None:
    """Write truth, detections and rules; the objects are those of 7.3 per image, as in COCO."""
    rng = np.random.default_rng(0)
    counts = {name: n_images * share // 290 for name, share in SHARES.items()}
    objects = write_truth(folder / "truth.json", counts["known"], rng)
    write_truth(folder / "unknown-images.json", counts["unknown"], rng, per_image=0)
    for name, n in counts.items():
        boxes = None if name == "unknown" else objects
        write_detections(folder / f"{name}.json", n, boxes, DIMMED[name], rng)
    write_rules(folder, rng)


def write_truth(
    path: Path, n_images: int, rng: np.random.Generator, *, per_image: float = 7.3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write a COCO file; return image, category and box of each object."""
    counts = rng.poisson(per_image, n_images)
    n = int(counts.sum())
    images, categories = np.repeat(np.arange(n_images), counts), rng.integers(0, N_CLASSES, n)
    xywh = np.hstack([rng.random((n, 2)) * (450, 330), rng.lognormal(4, 0.8, (n, 2))]).round(2)
    columns = zip(images.tolist(), categories.tolist(), xywh.tolist(), strict=True)
    document = {
        "images": [{"id": i, "width": 640, "height": 480} for i in range(n_images)],
        "annotations": [
            {"id": k + 1, "image_id": i, "category_id": c, "bbox": box,
             "area": box[2] * box[3], "iscrowd": 0}
            for k, (i, c, box) in enumerate(columns)
        ],
        "categories": [{"id": c, "name": f"class {c}"} for c in range(N_CLASSES)],
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return images, categories, xywh


def write_detections(
    path: Path,
    n_images: int,
    objects: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    dimmed: float,
    rng: np.random.Generator,
) -> None:
    """Write a COCO results file: boxes near the objects, surer ones closer, and many beside."""
    with path.open("w") as file:
        file.write("[")
        for start, text in enumerate(_chunks(n_images, objects, dimmed, rng)):
            file.write((",\n" if start else "") + text)
        file.write("]")


def _chunks(
    n_images: int,
    objects: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    dimmed: float,
    rng: np.random.Generator,
) -> Iterator[str]:
    step = _ROWS_AT_ONCE // PER_IMAGE
    for first in range(0, n_images, step):
        n = min(step, n_images - first) * PER_IMAGE
        images = first + np.arange(n) // PER_IMAGE
        categories = rng.integers(0, N_CLASSES, n)
        xywh = np.hstack([rng.random((n, 2)) * (450, 330), rng.lognormal(4, 0.8, (n, 2))])
        confidence = rng.beta(1, 12, n)
        if objects is not None:
            low, high = np.searchsorted(objects[0], [first, first + step])
            _hit(images, categories, xywh, confidence, [c[low:high] for c in objects], rng)
        scores = (confidence * dimmed).astype(np.float32).tolist()
        columns = zip(
            images.tolist(), categories.tolist(), xywh.round(2).tolist(), scores, strict=True
        )
        yield ",\n".join(
            f'{{"image_id": {i}, "category_id": {c}, "bbox": {box}, "score": {p}}}'
            for i, c, box, p in columns
        )


def _hit(
    images: np.ndarray,
    categories: np.ndarray,
    xywh: np.ndarray,
    confidence: np.ndarray,
    objects: list[np.ndarray],
    rng: np.random.Generator,
) -> None:
    """Move the first boxes of an image onto its objects, most of them with the right class."""
    of_image, labels, boxes = objects
    place = np.arange(len(of_image)) - np.searchsorted(of_image, of_image)
    rows = (of_image - images[0]) * PER_IMAGE + place
    is_found = (place < PER_IMAGE) & (rng.random(len(rows)) < 0.8)
    rows, labels, boxes = rows[is_found], labels[is_found], boxes[is_found]
    confidence[rows] = rng.beta(4, 2, len(rows))
    spread = (1 - confidence[rows])[:, None] * boxes[:, [2, 3, 2, 3]] * 0.3
    xywh[rows] = boxes + rng.normal(0, 1, (len(rows), 4)) * spread
    xywh[rows, 2:] = np.maximum(xywh[rows, 2:], 1)
    categories[rows] = np.where(rng.random(len(rows)) < 0.9, labels, categories[rows])


def write_rules(folder: Path, rng: np.random.Generator) -> None:
    """Fit rules on images of their own."""
    n = 1000
    objects = write_truth(folder / "val.json", n, rng)
    truth = load_truth(folder / "val.json")
    found = []
    for name in ("known", "painted"):
        boxes = objects if name == "known" else None
        write_detections(folder / "val-dets.json", n, boxes, DIMMED[name], rng)
        found.append(load_detections(folder / "val-dets.json", truth))
    save_self_aware(SelfAware.fit(found[0], truth.boxes, found[1]), folder / "rules.json")


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), int(sys.argv[2]))
