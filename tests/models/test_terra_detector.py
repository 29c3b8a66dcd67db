"""The detector that ships with the package loads, and knows what its file says it knows."""

import contextlib
import io
import json

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn

from incognita.benchmarks.terra.classes import KNOWN_NAMES, TERRA_CLASSES
from incognita.benchmarks.terra.datasets import terra_scenes
from incognita.benchmarks.terra.rendering import RENDERER_VERSION
from incognita.models.embedded import terra_detector
from incognita.models.load import read_shipped_weights

N_SCENES = 60


def pixels_of(scenes, index):
    return torch.from_numpy(scenes.load(index)).permute(2, 0, 1).float() / 255


def found_in(detector, scenes, batch=8):
    pixels = [pixels_of(scenes, k) for k in range(len(scenes))]
    with torch.inference_mode():
        return [each for k in range(0, len(pixels), batch) for each in detector(pixels[k:][:batch])]


def as_xywh(box):
    left, top, right, bottom = map(float, box)
    return [left, top, right - left, bottom - top]


def pycocotools_ap(scenes, found):
    """AP at IoU 0.5 to 0.95 and at 0.5 by pycocotools, which shares no code with the package."""
    truth = COCO()
    objects = [
        {"image_id": k + 1, "category_id": int(label) + 1, "bbox": as_xywh(box), "iscrowd": 0}
        for k, scene in enumerate(map(scenes.scene, range(len(scenes))))
        for box, label in zip(scene.xyxy, scene.class_ids, strict=True)
    ]
    truth.dataset = {
        "images": [{"id": k + 1} for k in range(len(scenes))],
        "categories": [{"id": k + 1, "name": name} for k, name in enumerate(KNOWN_NAMES)],
        "annotations": [
            {**each, "id": k + 1, "area": each["bbox"][2] * each["bbox"][3]}
            for k, each in enumerate(objects)
        ],
    }
    boxes = [
        {"image_id": k + 1, "category_id": int(label), "bbox": as_xywh(box), "score": float(score)}
        for k, each in enumerate(found)
        for box, label, score in zip(each["boxes"], each["labels"], each["scores"], strict=True)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(boxes), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats[0], evaluation.stats[1]


@pytest.fixture(scope="module")
def detector():
    return terra_detector.load_terra_detector()


@pytest.fixture(scope="module")
def scenes():
    return terra_scenes("test", n=N_SCENES)


@pytest.fixture(scope="module")
def found(detector, scenes):
    return found_in(detector, scenes)


def test_the_detector_is_as_good_as_its_file_says(scenes, found):
    metadata = read_shipped_weights(terra_detector.WEIGHTS).metadata
    ap, ap50 = pycocotools_ap(scenes, found)
    # three deviations: parts of sixty scenes differ by 0.03
    assert ap50 == pytest.approx(float(metadata["ap50"]), abs=0.09)
    assert ap == pytest.approx(float(metadata["ap"]), abs=0.09)
    assert ap50 > 0.85
    assert 0.8 < float(metadata["ap50"]) < 0.95  # good, and the benchmarks stay hard


def test_labels_begin_with_the_first_class_of_the_tree_because_background_is_0(scenes, found):
    n_right = n_wrong = 0
    for k, each in enumerate(found):
        scene = scenes.scene(k)
        sure = each["scores"] >= 0.9
        for box, label in zip(each["boxes"][sure].numpy(), each["labels"][sure], strict=True):
            nearest = np.abs(scene.xyxy - box).sum(1).argmin()
            is_right = int(label) - 1 == scene.class_ids[nearest]
            n_right, n_wrong = n_right + is_right, n_wrong + (not is_right)
    assert n_right > 0.9 * (n_right + n_wrong)
    assert n_right > N_SCENES


def test_the_detector_was_trained_on_what_is_rendered_now():
    weights = read_shipped_weights(terra_detector.WEIGHTS)
    assert int(weights.metadata["renderer_version"]) == RENDERER_VERSION
    assert weights.class_names == terra_detector.CLASS_NAMES == KNOWN_NAMES
    assert tuple(each.name for each in TERRA_CLASSES[:12]) == terra_detector.CLASS_NAMES
    assert json.loads(weights.metadata["recipe"])["n_train"] > 0


def test_the_weights_are_small_enough_to_ship():
    assert terra_detector.WEIGHTS.stat().st_size < 3.5e6


def test_boxes_are_those_of_torchvision_within_the_scene_and_above_the_floor(found):
    boxes, labels, scores = (
        torch.cat([each[k] for each in found]) for k in ("boxes", "labels", "scores")
    )
    assert (boxes >= 0).all()
    assert (boxes <= terra_detector.SCENE_SIZE).all()
    assert scores.min() > 0.05
    assert (labels.min(), labels.max()) == (1, 12)


def test_another_copy_of_the_detector_finds_the_same_to_the_last_bit(scenes, found):
    again = found_in(terra_detector.load_terra_detector(), scenes.subset(range(8)))
    for first, second in zip(found[:8], again, strict=True):
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_scenes_beside_it_do_not_change_what_is_found_in_a_scene(detector, scenes, found):
    alone = found_in(detector, scenes.subset(range(4)), batch=1)
    for first, second in zip(found[:4], alone, strict=True):
        assert torch.equal(first["labels"], second["labels"])
        assert torch.allclose(first["boxes"], second["boxes"], atol=1e-2)
        assert torch.allclose(first["scores"], second["scores"], atol=1e-4)


def test_a_scene_reaches_the_backbone_at_its_own_size(detector, scenes):
    pixels = pixels_of(scenes, 0)
    images, _ = detector.transform([pixels])
    assert torch.allclose(images.tensors[0], (pixels - 0.5) / 0.25)


def test_every_stage_begins_with_a_shortcut_convolution(detector):
    names = {name for name, _ in detector.named_modules() if name.endswith(".downsample")}
    assert names == {f"backbone.body.layer{stage}.0.downsample" for stage in (1, 2, 3)}


def test_the_last_layer_is_one_linear_head_of_the_classes_and_background(detector):
    head = detector.roi_heads.box_predictor.cls_score
    assert isinstance(head, nn.Linear)
    assert (head.in_features, head.out_features) == (terra_detector.N_FEATURES, 13)


def test_the_detector_is_not_in_training(detector):
    assert not any(module.training for module in detector.modules())
