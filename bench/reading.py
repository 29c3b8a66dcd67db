"""Reading a COCO results list of 500k detections: ours, and the parsers others build on.

Two files: boxes with two decimals and float32 scores, as detectors usually write them (52 MiB), and
every number with all its digits (74 MiB). Our columns are first checked to be the numbers `json`
reads, bit for bit.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.harness import Row, Run, at_least, at_most, compare, measure, memory_per_row, peer
from incognita.formats import CocoTruth, load_detections, load_truth
from incognita.formats.coco_results import load_columns

N_IMAGES, PER_IMAGE, N_CATEGORIES = 5_000, 100, 80
OURS = "incognita, columns"
BARS = {"json.load": at_least(8)}
# a row of columns is 56 bytes; the rest is room to grow and a chunk of the file
BYTES_PER_ROW = at_most(112)


def rows() -> list[Row]:
    """Compare on both files."""
    table = []
    with TemporaryDirectory() as folder:
        truth_path = Path(folder, "truth.json")
        truth_path.write_text(json.dumps(truth_document()))
        truth = load_truth(truth_path)
        for part, decimals in (("500k, 2 decimals", 2), ("500k, all digits", None)):
            path = Path(folder, "detections.json")
            path.write_text(json.dumps(results(decimals)))
            check_columns(path)
            cases = cases_of(path, truth, truth_path)
            measured = measure(cases)
            table += compare(part, cases, measured, ours=OURS, bars=BARS)
            n_rows = N_IMAGES * PER_IMAGE
            table.append(memory_per_row(part, OURS, measured[OURS], n_rows, BYTES_PER_ROW))
    return table


def cases_of(path: Path, truth: CocoTruth, truth_path: Path) -> dict[str, Run | None]:
    return {
        OURS: lambda: load_columns(path),
        "incognita, Detections": lambda: load_detections(path, truth),
        "json.load": lambda: json.loads(path.read_bytes()),
        "orjson.loads": peer("orjson", lambda: orjson_loads(path)),
        "hotcoco load_res(path)": peer("hotcoco", lambda: hotcoco_load(path, truth_path)),
    }


def truth_document() -> dict[str, list[dict[str, object]]]:
    return {
        "images": [{"id": i, "width": 640, "height": 480} for i in range(N_IMAGES)],
        "annotations": [],
        "categories": [{"id": i, "name": f"class {i}"} for i in range(N_CATEGORIES)],
    }


def results(decimals: int | None) -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    n = N_IMAGES * PER_IMAGE
    xywh = np.hstack([rng.random((n, 2)) * (450, 330), rng.lognormal(4, 1, (n, 2))])
    confidence = rng.beta(1, 12, n)
    if decimals is not None:
        xywh, confidence = xywh.round(decimals), confidence.astype(np.float32)
    columns = (rng.integers(0, N_CATEGORIES, n), xywh, confidence)
    return [
        {"image_id": i // PER_IMAGE, "category_id": category, "bbox": box, "score": score}
        for i, (category, box, score) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def check_columns(path: Path) -> None:
    """Stop where our numbers are not those `json` reads."""
    columns, records = load_columns(path), json.loads(path.read_bytes())
    same = {
        "image_id": np.array_equal(columns.image_ids, [r["image_id"] for r in records]),
        "category_id": np.array_equal(columns.category_ids, [r["category_id"] for r in records]),
        "bbox": np.array_equal(columns.xywh, [r["bbox"] for r in records]),
        "score": np.array_equal(columns.confidence, [r["score"] for r in records]),
    }
    if not all(same.values()):
        raise SystemExit(f"incognita reads other numbers than json does: {same}.")


def orjson_loads(path: Path) -> Run:
    import orjson

    return lambda: orjson.loads(path.read_bytes())


def hotcoco_load(path: Path, truth_path: Path) -> Run:
    import hotcoco

    truth = hotcoco.COCO(str(truth_path))
    return lambda: truth.load_res(str(path))
