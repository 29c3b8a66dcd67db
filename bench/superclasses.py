"""Super-class split of one million boxes in OpenImages' format, against reading the file by polars.

Labels are drawn from a hierarchy of the size of the real one: 30 super-classes with 20 classes
each. Once with a scene filter that leaves a tenth of the images, as of streets, and once with none.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from bench.harness import Row, Run, at_most, measure
from incognita.benchmarks.splits.superclasses import (
    ClassTree,
    SuperclassRules,
    split_by_superclass,
)
from incognita.formats.openimages import load_box_columns, load_hierarchy

N_BOXES, PER_IMAGE, N_SUPERCLASSES, N_CLASSES = 1_000_000, 8, 30, 20
LABELS = [f"/m/{k:04d}" for k in range(N_SUPERCLASSES * N_CLASSES)]
THEIRS = "polars.read_csv"
BAR = at_most(3)
SCENES: dict[str, list[str]] = {"with a scene filter": [LABELS[0]], "without": []}


def rows() -> list[Row]:
    """Compare on one file, with and without a scene filter."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        cases: dict[str, Run | None] = {THEIRS: lambda: pl.read_csv(folder / "boxes.csv")}
        for case, contains in SCENES.items():
            cases[case] = prepare(folder, contains)
        costs = measure(cases)
    read = costs[THEIRS].seconds
    part = f"{N_BOXES // 1_000_000} million boxes"
    table = [Row(part, THEIRS, read)]
    for case in SCENES:
        ratio = costs[case].seconds / read
        table.append(
            Row(part, f"incognita, {case}", costs[case].seconds, ratio, "x reading", None,
                str(BAR), BAR.is_met(ratio))
        )  # fmt: skip
    return table


def prepare(folder: Path, contains: list[str]) -> Run:
    """Return the whole split, from the file to the part of each image."""
    rules = SuperclassRules(name="bench", version=1, title="bench", contains=contains)
    tree = ClassTree.of(
        dict(zip(LABELS, LABELS, strict=True)), load_hierarchy(folder / "tree.json"), rules
    )
    return lambda: split_by_superclass(load_box_columns(folder / "boxes.csv", LABELS), tree)


def write_files(folder: Path) -> None:
    """Write boxes of images that resemble each other, of which one in twenty is doubled."""
    below = [
        [{"LabelName": label} for label in LABELS[k * N_CLASSES + 1 : (k + 1) * N_CLASSES]]
        for k in range(N_SUPERCLASSES)
    ]
    tops = [{"LabelName": LABELS[k * N_CLASSES], "Subcategory": b} for k, b in enumerate(below)]
    (folder / "tree.json").write_text(json.dumps({"LabelName": "/m/all", "Subcategory": tops}))
    rng = np.random.default_rng(0)
    image = np.sort(rng.integers(0, N_BOXES // PER_IMAGE, N_BOXES))
    scene = rng.integers(0, N_SUPERCLASSES, N_BOXES // PER_IMAGE)
    is_own = rng.random(N_BOXES) < 0.9
    superclass = np.where(is_own, scene[image], rng.integers(0, N_SUPERCLASSES, N_BOXES))
    label = superclass * N_CLASSES + (N_CLASSES * rng.random(N_BOXES) ** 3).astype(np.int64)
    corners = rng.random((4, N_BOXES))
    edges = {"XMin": corners[:2].min(0), "XMax": corners[:2].max(0),
             "YMin": corners[2:].min(0), "YMax": corners[2:].max(0)}  # fmt: skip
    doubled = np.flatnonzero((rng.random(N_BOXES - 1) < 0.05) & (image[1:] == image[:-1])) + 1
    for values in edges.values():
        values[doubled] = values[doubled - 1]
    ids = np.array([f"{k * 7919:016x}" for k in range(N_BOXES // PER_IMAGE)])
    flags = {name: rng.integers(0, 2, N_BOXES, np.int8) for name in
             ("IsOccluded", "IsTruncated", "IsGroupOf", "IsDepiction", "IsInside")}  # fmt: skip
    columns = {"ImageID": ids[image], "Source": ["xclick"] * N_BOXES,
               "LabelName": np.array(LABELS)[label], "Confidence": np.ones(N_BOXES, np.int8),
               **edges, **flags}  # fmt: skip
    pl.DataFrame(columns).write_csv(folder / "boxes.csv", float_precision=6)
