"""Real detections on real photographs: published numbers, peers, and the slow definitions."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tests.oracles import boxes, openset
from tests.oracles.scenes import Detection, Scene, Truth

from incognita.evaluation.certify import certify
from incognita.formats import load_detections, load_truth
from incognita.metrics.detection import coco_numbers

pytestmark = pytest.mark.data

VOC_NAMES = (
    "person", "bird", "cat", "cow", "dog", "horse", "sheep", "airplane", "bicycle", "boat", "bus",
    "car", "motorcycle", "train", "bottle", "chair", "dining table", "potted plant", "couch", "tv",
)  # fmt: skip


def test_the_result_file_of_coco_gives_its_published_numbers(data_dir):
    fixtures = data_dir / "detection" / "metric_fixtures"
    truth = load_truth(fixtures / "coco_instances_val2014_100.json.gz")
    found = load_detections(fixtures / "coco_val2014_fakebbox100_results.json.gz", truth)
    expected = json.loads((fixtures / "expected_coco_bbox.json").read_text())
    published = list(expected["stats"].values())  # to three decimals, as COCO's own demo prints
    ours = np.array(coco_numbers(found, truth.boxes))
    np.testing.assert_array_equal(ours.round(3), published)


@pytest.fixture(scope="module")
def voc_coco(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """NanoDet on COCO photographs; its confident guesses at other classes become "unknown"."""
    folder = data_dir / "detection"
    truth_path = folder / "coco" / "instances_val2017_subset.json.gz"
    categories = json.loads(gzip.decompress(truth_path.read_bytes()))["categories"]
    by_place = sorted(categories, key=lambda category: category["id"])
    outputs = np.load(folder / "nanodet_m_416_outputs.npz")
    columns = (outputs[f"coco/{name}"] for name in ("image_id", "box_xyxy", "label80", "score"))
    results = [
        {
            "image_id": int(image),
            "category_id": by_place[int(label)]["id"],
            "bbox": [float(v) for v in (x1, y1, x2 - x1, y2 - y1)],
            "score": float(score),
        }
        for image, (x1, y1, x2, y2), label, score in zip(*columns, strict=True)
        if score > 0.3
    ]
    path = tmp_path_factory.mktemp("voc_coco") / "detections.json"
    path.write_text(json.dumps(results))
    return truth_path, path


def test_a_real_detector_on_voc_coco_equals_the_definitions(voc_coco):
    truth = load_truth(voc_coco[0], known=VOC_NAMES)
    found = load_detections(voc_coco[1], truth)
    certificate = certify(truth.boxes, found, n_resamples=0)
    scene = as_scene(found, truth.boxes)
    expected = {
        ("map_known", "owdetr"): boxes.map_known(scene, "owdetr", 0.5),
        ("unknown_ap", "fmiyc"): boxes.ap_unknown(scene, "fmiyc", 0.5),
        ("unknown_recall", "paper"): boxes.recall_unknown(scene, "paper", 0.5),
        ("open_set_error", "paper"): openset.aose_by_objects(scene),
        ("open_set_error", "owod"): openset.aose_by_detections(scene, "owod"),
        ("wilderness_impact", "opendet"): openset.wilderness_impact_owod(scene),
        ("ap_all", "coco"): boxes.ap_all(scene, 0.5),
    }
    for (metric, convention), value in expected.items():
        ours = certificate.get(metric, convention).value
        assert ours == pytest.approx(value, abs=1e-12), (metric, convention)
    # 53 of the photographs hold no VOC class; one of those may hold nothing at all
    support = certificate.get("unknown_recall", split="unknown-only").support
    assert 50 <= support["images"] <= 53


def as_scene(found, truth) -> Scene:
    """Give containers as the oracles see them."""
    names, known = found.classes.names, found.classes.known_names
    labels = [name if name in known else "unknown" for name in names]
    detections = [
        Detection(int(image), tuple(box), float(score), labels[label], tuple(size))
        for image, box, score, label, size in zip(
            found.image_index, found.xyxy.tolist(), found.confidence, found.class_ids,
            found.sizes.tolist(), strict=True,
        )
    ]  # fmt: skip
    truths = [
        Truth(int(image), tuple(box), labels[label], bool(crowd), False, bool(unknown), None,
              tuple(size), float(area))
        for image, box, label, crowd, unknown, size, area in zip(
            truth.image_index, truth.xyxy.tolist(), truth.class_ids, truth.is_crowd,
            truth.is_unknown, truth.sizes.tolist(), truth.areas, strict=True,
        )
    ]  # fmt: skip
    return Scene(truth.n_images, detections, truths, list(known), {})
