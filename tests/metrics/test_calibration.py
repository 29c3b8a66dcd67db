"""Calibration errors against their slow definitions and netcal."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.scene_cases import CASES, make_scene
from tests.oracles import calibration as slow
from tests.oracles.scenes import Scene, found, real, to_containers

from incognita.errors import InvalidDataError
from incognita.metrics import conventions
from incognita.metrics.calibration import (
    brier_score,
    d_ece_of,
    ece,
    laace_of,
    laece,
    laece_of,
    reliability,
)
from incognita.metrics.matching import match

RULES = {
    "paper": (conventions.PAPER_CALIBRATION, conventions.PAPER),
    "saod": (conventions.SAOD, conventions.COCO),
    "detection-calibration": (conventions.DETECTION_CALIBRATION, conventions.COCO),
}


def table_of(scene: Scene, tau: float, convention=conventions.COCO):
    return match(*to_containers(scene), convention=convention, thresholds=(tau,))


def same(ours: float, expected: float) -> bool:
    return math.isclose(ours, expected, rel_tol=0, abs_tol=1e-12) or (
        math.isnan(ours) and math.isnan(expected)
    )


@pytest.mark.parametrize("mode", RULES)
@pytest.mark.parametrize("tau", [None, 0.3])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_laece_equals_its_definition(kind, seed, tau, mode):
    scene = make_scene(kind, seed)
    rule, convention = RULES[mode]
    table = table_of(scene, rule.tau if tau is None else tau, convention)
    ours = laece_of(table, len(scene.known_labels), rule=rule)
    assert same(ours.value, slow.laece(scene, mode, tau))


@pytest.mark.parametrize("mode", ["paper", "detection-calibration"])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_laace_equals_its_definition(kind, seed, mode):
    scene = make_scene(kind, seed)
    rule, convention = RULES[mode]
    ours = laace_of(table_of(scene, rule.tau, convention), len(scene.known_labels), rule=rule)
    assert same(ours.value, slow.laace(scene, mode))


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_d_ece_equals_its_definition(kind, seed):
    scene = make_scene(kind, seed)
    ours = d_ece_of(table_of(scene, 0.5), len(scene.known_labels))
    assert same(ours.value, slow.detection_ece(scene))


@pytest.mark.parametrize("n_bins", [10, 15, 25])
@pytest.mark.parametrize("seed", range(5))
def test_ece_equals_netcal(seed, n_bins):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # netcal imports libraries that warn
        from netcal.metrics import ECE

    rng = np.random.default_rng(seed)
    confidence = rng.random(500)
    is_correct = rng.random(500) < confidence
    expected = ECE(bins=n_bins).measure(confidence, is_correct.astype(int))
    assert ece(confidence, is_correct, n_bins=n_bins) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_d_ece_equals_netcal_on_matched_boxes(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from netcal.metrics import ECE

    scene = make_scene("plain", seed)
    table = table_of(scene, 0.5)
    n_known = len(scene.known_labels)
    keep = (table.detection_labels < n_known) & ~table.is_ignored()
    expected = ECE(bins=10).measure(
        table.confidence[keep], table.is_true_positive()[keep].astype(int)
    )
    assert d_ece_of(table, n_known).value == pytest.approx(expected, abs=1e-12)


grid = st.integers(0, 50).map(lambda k: k / 50)  # half of these are edges of 25 bins


@given(st.lists(st.tuples(grid, grid, st.integers(0, 2)), min_size=1), st.sampled_from(list(RULES)))
def test_laece_of_columns_puts_confidences_on_an_edge_into_the_right_bin(rows, mode):
    confidence, quality, class_ids = (np.array(column) for column in zip(*rows, strict=True))
    rule = RULES[mode][0]
    bin_of = {
        "paper": slow.bin_closed_at_end,
        "saod": slow.bin_closed_below,
        "detection-calibration": slow.bin_closed_above,
    }[mode]
    errors = []
    for label in range(3):
        mine = class_ids == label
        error = slow.binned_error(confidence[mine].tolist(), quality[mine].tolist(), 25, bin_of)
        if mode == "saod":
            error = 0.0 if math.isnan(error) else error
        if not math.isnan(error) and not (mode == "detection-calibration" and error == 0):
            errors.append(error)
    expected = sum(errors) / len(errors) if errors else math.nan
    ours = laece(confidence, quality, class_ids=class_ids, n_classes=3, rule=rule)
    # whether a sum is exactly zero, the skipping rule, hangs on the order of the additions
    if mode != "detection-calibration" or min(errors, default=1) > 1e-12:
        assert same(ours, expected)


def test_float32_confidences_are_binned_as_the_numbers_they_are():
    confidence = np.array([0.12, 0.2, 0.56], dtype=np.float32)
    quality = np.zeros(3)
    ids = np.zeros(3, np.int32)
    single = laece(confidence, quality, class_ids=ids, n_classes=1)
    double = laece(confidence.astype(np.float64), quality, class_ids=ids, n_classes=1)
    assert single == pytest.approx(double, abs=1e-15)


def test_a_confidence_of_one_is_in_no_bin_of_the_saod_code():
    confidence, quality = np.array([1.0, 0.5]), np.array([0.0, 0.0])
    ids = np.zeros(2, np.int32)
    arguments = {"class_ids": ids, "n_classes": 1}
    # the paper's bins: (1.0 + 0.5) / 2; the code misses the first but still divides by two
    assert laece(confidence, quality, **arguments) == pytest.approx(0.75)
    assert laece(confidence, quality, rule=conventions.SAOD, **arguments) == pytest.approx(0.25)


def test_a_class_without_detections_is_skipped_by_the_paper_and_zero_in_the_saod_code():
    confidence, quality, ids = np.array([0.5]), np.array([0.0]), np.array([0])
    arguments = {"class_ids": ids, "n_classes": 2}
    assert laece(confidence, quality, **arguments) == pytest.approx(0.5)
    assert laece(confidence, quality, rule=conventions.SAOD, **arguments) == pytest.approx(0.25)


def test_confidences_that_are_no_probabilities_are_refused_or_give_a_reason():
    sentence = "confidences must be between 0 and 1, but they reach from 0.5 to 7"
    with pytest.raises(InvalidDataError, match=sentence):
        laece(np.array([0.5, 7.0]), np.zeros(2), class_ids=np.zeros(2, np.int32), n_classes=1)
    scene = Scene(
        1,
        [found(0, (0, 0, 9, 9), 7.0, "a"), found(0, (0, 0, 9, 9), 0.5, "a")],
        [real(0, (0, 0, 9, 9), "a")],
        ["a"],
        {},
    )
    table = table_of(scene, 0.5)
    for measure in (laece_of(table, 1), laace_of(table, 1), d_ece_of(table, 1)):
        assert math.isnan(measure.value)
        assert measure.reason == sentence


def test_no_detection_at_all_is_nan_with_a_reason():
    table = table_of(Scene(1, [], [real(0, (0, 0, 9, 9), "a")], ["a"], {}), 0.5)
    assert laece_of(table, 1).reason == "no known class has a detection"
    assert d_ece_of(table, 1).reason == "no detection is of a known class"


def test_brier_score_is_the_mean_squared_distance():
    rng = np.random.default_rng(0)
    confidence, is_correct = rng.random(100), rng.random(100) < 0.5
    expected = slow.brier(confidence.tolist(), is_correct.tolist())
    assert brier_score(confidence, is_correct) == pytest.approx(expected, abs=1e-15)


def test_reliability_averages_bins_over_classes_and_leaves_out_empty_ones():
    confidence = np.array([0.1, 0.15, 0.9, 0.1])
    quality = np.array([0.0, 0.2, 0.8, 0.4])
    diagram = reliability(confidence, quality, class_ids=np.array([0, 0, 0, 1]), n_bins=2)
    # first bin: class 0 has mean quality 0.1, class 1 has 0.4
    np.testing.assert_allclose(diagram.quality, [0.25, 0.8])
    np.testing.assert_allclose(diagram.confidence, [(0.125 + 0.1) / 2, 0.9])
    assert diagram.n_detections.tolist() == [3, 1]


@pytest.mark.parametrize("mode", RULES)
def test_weights_of_two_equal_repeated_images(mode):
    rule, convention = RULES[mode]
    scene = make_scene("crowd", 2)
    table = table_of(scene, rule.tau, convention)
    n_known = len(scene.known_labels)
    twice = laece_of(table, n_known, rule=rule, weights=np.full((10, 1), 2, np.float32))
    assert same(twice.value, laece_of(table, n_known, rule=rule).value)
