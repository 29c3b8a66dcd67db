"""The twelve COCO numbers and LRP-optimal thresholds: ours and the fastest peers.

For the twelve numbers everybody starts from the arrays or lists it takes; making and checking our
containers is part of our time. For LRP everybody starts from its own container of the truth, and we
from our own of the detections as well. The numbers of every peer are first checked to be ours, bit
for bit those of pycocotools.
"""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.box_sets import DetectedSet, make_boxes, to_coco, to_containers
from bench.harness import Measurement, Row, Run, at_least, at_most, compare, measure, peer, share
from incognita.containers.boxes import BoxTruth, Detections
from incognita.formats import load_detections, load_truth
from incognita.metrics.calibration import laece_of
from incognita.metrics.conventions import COCO
from incognita.metrics.detection import coco_numbers
from incognita.metrics.lrp import optimal_lrp
from incognita.metrics.matching import match

OURS = "incognita"
SIZES = {"5k images": (5_000, 36_750), "45k images": (45_000, 237_000)}


def rows() -> list[Row]:
    """Check the numbers on a small set, then time the large ones."""
    check(make_boxes(400, 2_900))
    table = []
    for part, (n_images, n_truth) in SIZES.items():
        boxes = make_boxes(n_images, n_truth)
        table += numbers_from_arrays(part, boxes, is_large=n_images > 10_000)
        if n_images < 10_000:
            table += optimal_thresholds(part, boxes)
            table += numbers_from_files(part, boxes)
    return table


def numbers_from_arrays(part: str, boxes: DetectedSet, *, is_large: bool) -> list[Row]:
    cases: dict[str, Run | None] = {
        OURS: lambda: coco_numbers(*to_containers(boxes)),
        "hotcoco": peer("hotcoco", lambda: hotcoco_numbers(boxes)),
        "vernier": peer("vernier", lambda: vernier_numbers(boxes)),
    }
    if not is_large:
        lists = to_coco(boxes)
        cases["faster-coco-eval"] = peer("faster_coco_eval", lambda: faster_numbers(*lists))
    bars = {"hotcoco": at_least(3), "faster-coco-eval": at_least(30)}
    measured = measure(cases, rounds=3)
    table = compare(f"12 numbers, {part}", cases, measured, ours=OURS, bars=bars)
    return table + memory_against(f"12 numbers, {part}", measured, is_large=is_large)


def memory_against(part: str, measured: dict[str, Measurement], *, is_large: bool) -> list[Row]:
    if "hotcoco" not in measured:
        return []
    bar = at_most(1 / 3) if is_large else None
    return [share(part, "memory of incognita / hotcoco", measured[OURS], measured["hotcoco"], bar)]


def optimal_thresholds(part: str, boxes: DetectedSet) -> list[Row]:
    containers = to_containers(boxes)
    cases: dict[str, Run | None] = {
        OURS: lambda: lrp_and_laece(*containers),
        "vernier optimal_lrp": peer("vernier", lambda: vernier_lrp(boxes)),
    }
    bars = {"vernier optimal_lrp": at_least(18)}
    name = f"LRP-optimal thresholds + LaECE, {part}"
    return compare(name, cases, measure(cases), ours=OURS, bars=bars)


def numbers_from_files(part: str, boxes: DetectedSet) -> list[Row]:
    truth, results = to_coco(boxes)
    with TemporaryDirectory() as folder:
        paths = Path(folder, "truth.json"), Path(folder, "results.json")
        paths[0].write_text(json.dumps(truth))
        paths[1].write_text(json.dumps(results))
        annotated = load_truth(paths[0])
        cases: dict[str, Run | None] = {
            OURS: lambda: coco_numbers(load_detections(paths[1], annotated), annotated.boxes),
            "hotcoco": peer("hotcoco", lambda: hotcoco_from_file(*paths)),
        }
        bars = {"hotcoco": at_least(2)}
        name = f"results file to 12 numbers, {part}"
        return compare(name, cases, measure(cases), ours=OURS, bars=bars)


def lrp_and_laece(detections: Detections, truth: BoxTruth) -> tuple[object, object]:
    table = match(detections, truth, convention=COCO, thresholds=(0.1,))
    n_known = truth.classes.n_known
    return optimal_lrp(table, n_known, inside_ties=True), laece_of(table, n_known)


def check(boxes: DetectedSet) -> None:
    """Stop where a peer and we disagree."""
    ours = np.array(coco_numbers(*to_containers(boxes)))
    truth, results = to_coco(boxes)
    peers = {
        "pycocotools": (lambda: pycocotools_numbers(truth, results), 0.0),
        "faster-coco-eval": (lambda: faster_numbers(truth, results), 1e-12),
        "hotcoco": (lambda: hotcoco_numbers(boxes), 1e-12),
        "vernier": (lambda: vernier_numbers(boxes), 1e-12),
    }
    for name, (prepare, tolerance) in peers.items():
        run = peer(name.replace("-", "_"), prepare)
        if run is not None and not np.allclose(run(), ours, rtol=0, atol=tolerance):
            raise SystemExit(f"{name} gives {run()}, incognita {ours}.")


def pycocotools_numbers(truth: dict, results: list) -> Callable[[], np.ndarray]:
    from pycocotools import coco, cocoeval

    return lambda: evaluate(truth, results, coco.COCO, cocoeval.COCOeval)


def faster_numbers(truth: dict, results: list) -> Callable[[], np.ndarray]:
    import faster_coco_eval as faster

    return lambda: evaluate(truth, results, faster.COCO, faster.COCOeval_faster)


def evaluate(truth: dict, results: list, truth_class: type, evaluator: type) -> np.ndarray:
    with contextlib.redirect_stdout(io.StringIO()):
        annotated = truth_class()
        annotated.dataset = truth
        annotated.createIndex()
        evaluation = evaluator(annotated, annotated.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return np.array(evaluation.stats[:12])


def result_matrix(boxes: DetectedSet) -> np.ndarray:
    """Rows of image id, box, confidence and category id, as the Rust peers take them."""
    columns = (
        boxes.images + 1,
        boxes.boxes,
        boxes.confidence.astype(np.float64),
        boxes.classes + 1,
    )
    return np.ascontiguousarray(np.column_stack(columns), dtype=np.float64)


def hotcoco_numbers(boxes: DetectedSet) -> Callable[[], np.ndarray]:
    import hotcoco

    truth, _ = to_coco(boxes)
    matrix = result_matrix(boxes)

    def run() -> np.ndarray:
        annotated = hotcoco.COCO.from_arrays(
            truth["images"],
            truth["categories"],
            boxes.truth_images + 1,
            boxes.truth_classes + 1,
            boxes.truth_boxes,
            area=boxes.truth_areas,
            iscrowd=boxes.is_crowd,
        )
        return hotcoco_evaluate(hotcoco, annotated, annotated.load_res(matrix))

    return run


def hotcoco_from_file(truth_path: Path, results_path: Path) -> Callable[[], np.ndarray]:
    import hotcoco

    annotated = hotcoco.COCO(str(truth_path))
    return lambda: hotcoco_evaluate(hotcoco, annotated, annotated.load_res(str(results_path)))


def hotcoco_evaluate(hotcoco: object, annotated: object, found: object) -> np.ndarray:
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = hotcoco.COCOeval(annotated, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return np.array(evaluation.stats[:12])


def vernier_numbers(boxes: DetectedSet) -> Callable[[], np.ndarray]:
    from vernier.instance import Bbox, CocoDataset, Evaluator

    truth = CocoDataset.from_json(json.dumps(to_coco(boxes)[0]).encode())
    matrix = result_matrix(boxes)
    evaluator = Evaluator(iou=Bbox(), parity_mode="strict")
    return lambda: np.array(evaluator.evaluate(truth, matrix, num_threads=1).stats[:12])


def vernier_lrp(boxes: DetectedSet) -> Run:
    from vernier.instance import CocoDataset, optimal_lrp

    truth = CocoDataset.from_json(json.dumps(to_coco(boxes)[0]).encode())
    matrix = result_matrix(boxes)
    return lambda: optimal_lrp(truth, matrix)
