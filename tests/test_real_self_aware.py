"""A real Faster R-CNN made self-aware on real VOC images, judged with COCO images as unknown ones.

All images, and the table beside it, in about five minutes:
python -m tests.test_real_self_aware DATA
"""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pytest

import incognita
from incognita.benchmarks.corruptions import corrupt, draw_kind, kinds_of
from incognita.benchmarks.pseudo_unknown import PaintedOver
from incognita.containers.boxes import Detections
from incognita.containers.dataset import ArrayDataset, BoxDataset, Dataset
from incognita.decisions import (
    SelfAware,
    SelfAwareDetector,
    SelfAwareSettings,
    load_self_aware,
    save_self_aware,
)
from incognita.evaluation.self_aware import AnnotatedSet, SelfAwareTest, evaluate_self_aware
from incognita.extraction.extract import extract
from incognita.models.detector import Detector
from incognita.results.self_aware import SelfAwareReport

STUDY = Path(__file__).parents[1] / "studies" / "voc_coco"
# table 7, first row: what a detector is without any of the paper's choices
PLAIN = SelfAwareSettings(
    image_threshold="quantile(share=0.95)", confidence_threshold=0.5, calibrator="none"
)
SEVERITIES = (1, 3, 5)


class Study(NamedTuple):
    """Validation and test sets of one detector."""

    detector: Detector
    validation: AnnotatedSet
    painted: Detections
    test: SelfAwareTest
    images: BoxDataset


def study(data: Path, folder: Path, limit: int | None) -> Study:
    runpy.run_path(str(STUDY / "prepare.py"))["prepare"](data / "detection", folder)
    benchmark = incognita.load_benchmark(definition(folder), data=folder, limit=limit)
    network = runpy.run_path(str(data / "weights" / "faster_rcnn_voc.py"))["build"]()
    detector = incognita.wrap_detector(network, class_names=benchmark.classes)

    def run(dataset: Dataset) -> Detections:
        return extract(detector, dataset).outputs.detections

    known = benchmark.test
    shifted = {
        str(severity): annotated(run(corrupted(known, severity)), known) for severity in SEVERITIES
    }
    test = SelfAwareTest(
        annotated(run(known), known),
        shifted,
        frozenset({"5"}),
        {"coco": run(without_known_objects(benchmark.mixed["voc-coco"]))},
    )
    validation = benchmark.validation
    painted = run(PaintedOver(validation))
    return Study(detector, annotated(run(validation), validation), painted, test, known)


def definition(folder: Path) -> Path:
    """Write the benchmark of the study without the sets that need splits."""
    head, *sets = (STUDY / "benchmark.toml").read_text().split("[[set]]")
    kept = [text for text in sets if "splits/" not in text]
    path = folder / "benchmark.toml"
    path.write_text("[[set]]".join([head, *kept]))
    return path


def annotated(found: Detections, dataset: BoxDataset) -> AnnotatedSet:
    """Give both the classes of the truth, of which the detector's are the first."""
    truth = dataset.truth()
    aligned = Detections(
        found.image_ids, found.offsets, found.xyxy, found.confidence, found.class_ids, truth.classes
    )
    return AnnotatedSet(aligned, truth)


def corrupted(dataset: BoxDataset, severity: int) -> ArrayDataset:
    kinds = kinds_of("saod")
    images = []
    for index, image_id in enumerate(dataset.image_ids):
        kind = draw_kind(kinds, image_id, severity, 0)
        images.append(corrupt(dataset.load(index), kind, severity, image_id=image_id))
    return ArrayDataset(f"severity {severity}", tuple(dataset.image_ids), images)


def without_known_objects(dataset: BoxDataset) -> Dataset:
    truth = dataset.truth()
    known = np.unique(truth.image_index[~truth.is_unknown])
    return dataset.subset([k for k in range(len(dataset.image_ids)) if k not in set(known)])


def reports(found: Study, *, n_resamples: int) -> dict[str, SelfAwareReport]:
    settings = {"self-aware": SelfAwareSettings(), "table 7, first row": PLAIN}
    return {
        name: evaluate_self_aware(fit(found, how), found.test, n_resamples=n_resamples)
        for name, how in settings.items()
    }


def fit(found: Study, how: SelfAwareSettings) -> SelfAware:
    return SelfAware.fit(*found.validation, found.painted, how)


@pytest.fixture(scope="module")
def found(data_dir, tmp_path_factory) -> Study:
    return study(data_dir, tmp_path_factory.mktemp("voc"), limit=30)


@pytest.mark.data
def test_calibration_helps_on_real_images(found) -> None:
    ours, plain = reports(found, n_resamples=0).values()
    assert ours.get("laece", "known").value < plain.get("laece", "known").value
    for report in (ours, plain):
        assert 0 < report.get("detection_awareness_quality").value < 1
        assert report.get("auroc", "unknown/coco").value > 0.7


@pytest.mark.data
def test_a_loaded_detector_decides_about_real_images_as_about_their_detections(
    found, tmp_path
) -> None:
    save_self_aware(fit(found, SelfAwareSettings()), tmp_path / "rules.json")
    rules = load_self_aware(tmp_path / "rules.json")
    stored = rules.apply(found.test.known.detections)
    places = [int(stored.accepted.argmax()), int(stored.accepted.argmin())]
    assert stored.accepted[places].tolist() == [True, False]
    live = SelfAwareDetector(found.detector, tmp_path / "rules.json")(
        [found.images.load(k) for k in places]
    )
    assert live.accepted.tolist() == [True, False]
    assert live.image_uncertainty.tolist() == stored.image_uncertainty[places].tolist()
    rows = stored.detections.image_index == places[0]
    assert live.detections.confidence.tolist() == stored.detections.confidence[rows].tolist()


def main(show: Callable[[str], object]) -> None:
    """Print the numbers of all images."""
    with TemporaryDirectory() as folder:
        found = study(Path(sys.argv[1]), Path(folder), limit=None)
        n = [found.validation.truth.n_images, found.test.known.truth.n_images]
        show(f"{n[0]} validation, {n[1]} test, {found.test.unknown['coco'].n_images} unknown\n")
        for name, report in reports(found, n_resamples=200).items():
            show(f"\n{name}\n{report}\n")


if __name__ == "__main__":
    main(sys.stdout.write)
