"""LRP and its optimum against the slow definition."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.metrics.scene_cases import CASES, make_scene
from tests.oracles import lrp as slow
from tests.oracles.scenes import Scene, found, real, to_containers

from incognita.errors import InvalidDataError
from incognita.metrics import conventions
from incognita.metrics.lrp import lrp_error, optimal_lrp
from incognita.metrics.matching import match


def table_of(scene: Scene, tau: float, convention=conventions.COCO):
    return match(*to_containers(scene), convention=convention, thresholds=(tau,))


@pytest.mark.parametrize("tau", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_lrp_and_its_parts_equal_their_definition(kind, seed, tau):
    scene = make_scene(kind, seed)
    ours = lrp_error(table_of(scene, tau), len(scene.known_labels))
    expected = slow.mean_lrp(list(slow.class_lrps(scene, tau).values()))
    np.testing.assert_allclose(
        [ours.total.value, ours.localization.value, ours.false_positive.value,
         ours.false_negative.value],
        [expected.error, expected.localisation, expected.false_positives, expected.false_negatives],
        rtol=0, atol=1e-12,
    )  # fmt: skip


@pytest.mark.parametrize("inside_ties", [False, True])
@pytest.mark.parametrize("tau", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_optimal_lrp_and_thresholds_equal_their_definition(kind, seed, tau, inside_ties):
    scene = make_scene(kind, seed)
    ours = optimal_lrp(table_of(scene, tau), len(scene.known_labels), inside_ties=inside_ties)
    by_label = slow.class_optimal_lrps(scene, tau, "any" if inside_ties else "ties")
    classes = list(by_label.values())
    np.testing.assert_allclose(ours.per_class, [c.error for c in classes], rtol=0, atol=1e-12)
    is_same = np.isclose(ours.thresholds, [c.threshold for c in classes], equal_nan=True)
    others = np.array(list(by_label))[~is_same]
    for label, threshold in zip(others, ours.thresholds[~is_same], strict=True):
        # two thresholds can be equally good, and rounding then chooses between them
        assert lrp_above(scene, label, threshold, tau) == pytest.approx(by_label[label].error)
    if not is_same.all():
        return
    expected = slow.mean_lrp(classes)
    np.testing.assert_allclose(
        [ours.total.value, ours.localization.value, ours.false_positive.value],
        [expected.error, expected.localisation, expected.false_positives],
        rtol=0, atol=1e-12,
    )  # fmt: skip


def lrp_above(scene: Scene, label: str, threshold: float, tau: float) -> float:
    kept = [d for d in scene.detections if d.score >= threshold]
    return slow.class_lrps(replace(scene, detections=kept), tau)[label].error


@pytest.mark.parametrize("seed", range(6))
def test_keeping_what_reaches_the_threshold_reproduces_the_optimum(seed):
    scene = make_scene("ties", seed)
    detections, truth = to_containers(scene)
    n_known = len(scene.known_labels)
    best = optimal_lrp(table_of(scene, 0.1), n_known)
    thresholds = np.append(np.nan_to_num(best.thresholds, nan=np.inf), np.inf)
    keep = detections.confidence >= thresholds[detections.classes.labels[detections.class_ids]]
    table = match(detections[keep], truth, convention=conventions.COCO, thresholds=(0.1,))
    assert lrp_error(table, n_known).total.value == pytest.approx(best.total.value, abs=1e-12)


def test_lrp_of_one_box_is_its_scaled_distance():
    # IoU 0.8: (1 - 0.8) / (1 - 0.5) over one object, found once
    scene = Scene(1, [found(0, (0, 0, 10, 8), 0.9, "a")], [real(0, (0, 0, 10, 10), "a")], ["a"], {})
    ours = lrp_error(table_of(scene, 0.5), 1)
    assert ours.total.value == pytest.approx(0.4)
    assert ours.localization.value == pytest.approx(0.2)
    assert ours.total.parameters == {"tau": 0.5}


def test_a_class_without_true_positive_has_lrp_one_and_no_threshold():
    scene = Scene(1, [found(0, (50, 0, 5, 5), 0.9, "a")], [real(0, (0, 0, 9, 9), "a")], ["a"], {})
    best = optimal_lrp(table_of(scene, 0.1), 1)
    assert best.total.value == 1.0
    assert best.false_negative.value == 1.0
    assert math.isnan(best.thresholds[0])
    assert math.isnan(best.localization.value)
    assert best.localization.reason == "no known class has a true positive or a detection"


def test_without_known_objects_lrp_is_nan_with_a_reason():
    scene = Scene(1, [found(0, (0, 0, 5, 5), 0.9, "a")], [], ["a"], {})
    assert lrp_error(table_of(scene, 0.1), 1).total.reason == "no known object is in these images"


def test_with_tau_zero_any_object_of_the_class_matches():
    scene = Scene(1, [found(0, (50, 0, 5, 5), 0.9, "a")], [real(0, (0, 0, 9, 9), "a")], ["a"], {})
    ours = lrp_error(table_of(scene, 0.0), 1)
    assert ours.false_positive.value == 0.0
    assert ours.localization.value == 1.0


def test_tau_of_one_is_refused():
    scene = make_scene("plain", 0)
    with pytest.raises(
        InvalidDataError, match=r"tau must be at least 0 and below 1, but it is 1\.0"
    ):
        lrp_error(table_of(scene, 1.0), 3)
