"""A detector with saved rules decides about live images as about stored detections."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.extraction.test_extract_boxes import scenes
from tests.extraction.tiny_detector import GridDetector

from incognita.benchmarks.pseudo_unknown import PaintedOver
from incognita.benchmarks.terra.datasets import terra_scenes
from incognita.containers.boxes import BoxTruth, Detections
from incognita.decisions import (
    SelfAware,
    SelfAwareDetector,
    SelfAwareOutput,
    SelfAwareSettings,
    load_self_aware,
    save_self_aware,
)
from incognita.errors import InvalidDataError, MissingDataError
from incognita.extraction.extract import detect, extract
from incognita.extraction.settings import Settings
from incognita.extraction.store import OutputStore
from incognita.models.detector import select_classes
from incognita.models.embedded.terra_detector import load_wrapped_terra_detector

IN_A_NEW_PROCESS = """
import json, sys
from incognita.decisions import SelfAwareDetector
from incognita.models.embedded.terra_detector import load_wrapped_terra_detector

detector = SelfAwareDetector(load_wrapped_terra_detector(), sys.argv[1])
accepted, found, uncertainty = detector(sys.argv[2:])
print(json.dumps({
    "accepted": accepted.tolist(), "uncertainty": uncertainty.tolist(),
    "offsets": found.offsets.tolist(), "class_ids": found.class_ids.tolist(),
    "xyxy": found.xyxy.tolist(), "confidence": found.confidence.tolist(),
}))
"""


@pytest.fixture(scope="module")
def terra(tmp_path_factory):
    """Rules of the shipped detector, and its stored detections on scenes it was not fitted on."""
    store = OutputStore(tmp_path_factory.mktemp("store"))
    detector = load_wrapped_terra_detector()
    validation = terra_scenes("validation", seed=0, n=40)

    def run(dataset) -> Detections:
        return extract(detector, dataset, store=store).outputs.detections

    truth = validation.truth()
    copies = run(PaintedOver(validation))
    rules = SelfAware.fit(run(validation), known_truth(truth), copies)
    tests = [
        terra_scenes("test", seed=0, n=8),
        terra_scenes("test", seed=0, n=8, classes="far"),
    ]
    return rules, tests, [run(dataset) for dataset in tests]


def known_truth(truth: BoxTruth) -> BoxTruth:
    """The truth with the classes of the detector, which has none called unknown."""
    classes = truth.classes
    names = classes.known_names
    return replace(truth, classes=type(classes)(names), superclasses=None)


def columns(output: SelfAwareOutput) -> dict[str, list]:
    found = output.detections
    return {
        "accepted": output.accepted.tolist(),
        "uncertainty": output.image_uncertainty.tolist(),
        "offsets": found.offsets.tolist(),
        "class_ids": found.class_ids.tolist(),
        "xyxy": found.xyxy.tolist(),
        "confidence": found.confidence.tolist(),
    }


def test_a_new_process_decides_live_images_as_apply_decides_stored_detections(
    terra, tmp_path
) -> None:
    rules, tests, stored = terra
    save_self_aware(rules, tmp_path / "rules.json")
    paths = []
    for k, dataset in enumerate(tests):
        for index in range(len(dataset)):
            paths.append(str(tmp_path / f"{k}-{index}.png"))
            Image.fromarray(dataset.load(index)).save(paths[-1])
    command = [sys.executable, "-c", IN_A_NEW_PROCESS, str(tmp_path / "rules.json"), *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    live = json.loads(done.stdout)
    expected = [columns(rules.apply(found)) for found in stored]
    for name in ("accepted", "uncertainty", "class_ids", "xyxy", "confidence"):
        assert live[name] == expected[0][name] + expected[1][name], name
    n = expected[0]["offsets"][-1]
    assert live["offsets"] == expected[0]["offsets"] + [n + k for k in expected[1]["offsets"][1:]]
    assert True in live["accepted"]
    assert False in live["accepted"]


def test_one_image_and_several_are_decided_alike(terra) -> None:
    rules, tests, stored = terra
    detector = SelfAwareDetector(load_wrapped_terra_detector(), rules)
    assert "terra-detector" in repr(detector)
    images = [tests[0].load(k) for k in range(3)]
    together = detector(images)
    alone = [detector(image) for image in images]
    expected = rules.apply(stored[0]).accepted[:3].tolist()
    assert together.accepted.tolist() == expected
    assert [bool(one.accepted[0]) for one in alone] == expected
    assert sum(len(one.detections) for one in alone) == len(together.detections)


def test_no_image_gives_an_empty_answer(terra) -> None:
    output = SelfAwareDetector(load_wrapped_terra_detector(), terra[0])([])
    assert output.accepted.tolist() == []
    assert output.detections.n_images == 0


# --- classes and filters -------------------------------------------------------------------------


def grid_rules(detector=None) -> SelfAware:
    """Rules fitted on images whose objects are the first boxes."""
    found = detect(detector or GridDetector(), [scenes(8).load(k) for k in range(8)])
    counts = np.minimum(np.diff(found.offsets), 1)
    first = found.offsets[:-1][counts > 0]
    truth = BoxTruth(
        found.image_ids,
        np.append(0, np.cumsum(counts)),
        found.xyxy[first],
        found.class_ids[first],
        found.classes,
    )
    settings = SelfAwareSettings(image_threshold="quantile(share=0.5)")
    return SelfAware.fit(found, truth, None, settings)


def test_classes_in_another_order_are_put_in_order() -> None:
    rules, image = grid_rules(), scenes(1).load(0)
    expected = SelfAwareDetector(GridDetector(), rules)(image)
    assert len(expected.detections)
    turned = select_classes(GridDetector(), ("Blue", "Green", "Red"), (2, 1, 0))
    output = SelfAwareDetector(turned, rules)(image)
    assert columns(output) == columns(expected)
    assert output.detections.classes.known_names == ("red", "green", "blue")


def test_boxes_of_further_classes_are_left_out() -> None:
    two = select_classes(GridDetector(), ("red", "green"), (0, 1))
    rules = grid_rules(two)
    output = SelfAwareDetector(GridDetector(), rules)([scenes(6).load(k) for k in range(6)])
    expected = SelfAwareDetector(two, rules)([scenes(6).load(k) for k in range(6)])
    assert columns(output) == columns(expected)


def test_a_missing_class_is_named() -> None:
    two = select_classes(GridDetector(), ("red", "green"), (0, 1))
    with pytest.raises(InvalidDataError, match="has no class 'blue' of the self-aware rules"):
        SelfAwareDetector(two, grid_rules())


def test_repeated_names_of_a_detector_are_those_of_its_rules() -> None:
    detector = GridDetector(class_names=("N/A", "green", "N/A"))
    rules = grid_rules(detector)
    output = SelfAwareDetector(detector, rules)(scenes(1).load(0))
    assert output.detections.classes.names == ("N/A", "green", "N/A (2)")


def test_a_detector_that_drops_more_boxes_than_in_fitting_is_refused() -> None:
    rules = grid_rules()
    with pytest.raises(InvalidDataError, match=r"drops boxes below 0\.9"):
        SelfAwareDetector(GridDetector().with_filter(score_threshold=0.9), rules)
    with pytest.raises(InvalidDataError, match="fitted on, got grid with at most 1"):
        SelfAwareDetector(GridDetector().with_filter(max_per_image=1), rules)
    SelfAwareDetector(GridDetector().with_filter(score_threshold=0.1, max_per_image=200), rules)


def test_what_is_no_detector_or_no_rules_is_one_sentence(tmp_path, outside_tests) -> None:
    rules = grid_rules()
    with pytest.raises(InvalidDataError, match="Expected a detector, got str"):
        SelfAwareDetector("grid", rules)
    with pytest.raises(MissingDataError, match=r"nowhere\.json"):
        SelfAwareDetector(GridDetector(), tmp_path / "nowhere.json")


def test_the_network_runs_as_the_settings_say() -> None:
    detector = SelfAwareDetector(GridDetector(), grid_rules(), Settings(precision="bfloat16"))
    with pytest.raises(InvalidDataError, match="Expected precision float32"):
        detector(scenes(1).load(0))


def test_rules_of_another_detector_are_noted_and_other_suppression_is_refused() -> None:
    rules, detector = grid_rules(), GridDetector()
    own = {"detector": detector.name, "nms_iou": detector.rules.nms_iou}
    with_own = replace(rules, metadata=rules.metadata | own)
    assert SelfAwareDetector(detector, with_own).note is None
    assert SelfAwareDetector(detector, rules).note is None  # the rules do not say
    other = replace(rules, metadata=with_own.metadata | {"detector": "yolo"})
    wrapped = SelfAwareDetector(detector, other)
    assert wrapped.note == "with rules fitted on the detector yolo"
    assert "yolo" in repr(wrapped)
    strict = replace(rules, metadata=rules.metadata | {"nms_iou": 0.123})
    with pytest.raises(InvalidDataError, match=r"Expected a detector with nms_iou=0\.123"):
        SelfAwareDetector(detector, strict)


def test_given_metadata_are_saved_with_the_rules(tmp_path) -> None:
    found = detect(GridDetector(), [scenes(8).load(k) for k in range(8)])
    offsets, n = np.arange(9), 8
    xyxy = np.tile([0.0, 0.0, 9.0, 9.0], (n, 1))
    truth = BoxTruth(found.image_ids, offsets, xyxy, [0] * n, found.classes)
    settings = SelfAwareSettings(image_threshold=0.9)
    rules = SelfAware.fit(found, truth, None, settings, metadata={"detector": "grid"})
    save_self_aware(rules, tmp_path / "rules.json")
    assert load_self_aware(tmp_path / "rules.json").metadata["detector"] == "grid"


@pytest.mark.parametrize(
    ("image", "what"),
    [
        (None, "NoneType"),
        (b"bytes", "bytes"),
        (torch.zeros(3, 8, 8), "Tensor"),
        (np.zeros((8, 8, 3), np.float32), r"float32 \[8, 8, 3\]"),
        ([np.zeros((3, 8, 8), np.uint8)], r"uint8 \[3, 8, 8\]"),
    ],
)
def test_what_is_no_image_is_one_sentence(image, what) -> None:
    aware = SelfAwareDetector(GridDetector(), grid_rules())
    with pytest.raises(InvalidDataError, match=f"Expected a path, a PIL image .* got {what}"):
        aware(image)
