"""What the metrics refuse at their doors: kernels behind them read arrays unchecked."""

from dataclasses import replace

import numpy as np
import pytest
from tests.metrics.scene_cases import make_scene
from tests.oracles.scenes import to_containers

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
from incognita.metrics.conventions import POINTS_101, round_as_written
from incognita.metrics.detection import label_average_precision
from incognita.metrics.lrp import lrp_error, optimal_lrp
from incognita.metrics.matching import match
from incognita.metrics.measure import MetricValue, bootstrap_weights
from incognita.metrics.open_set import (
    false_alarm_rate,
    images_without_detection,
    mean_average_precision,
    normalized_open_set_error,
    open_set_error_by_detections,
    open_set_error_by_objects,
    overlap_unknown,
    unknown_average_precision,
    unknown_objects_without_detection,
    unknown_precision,
    unknown_recall,
    wilderness_impact,
    wilderness_ratio,
)
from incognita.metrics.ranking import bootstrap_ranking, ranking_replicates

DETECTIONS, TRUTH = to_containers(make_scene("plain", 0))
TABLE = match(DETECTIONS, TRUTH)
OVERLAPS = overlap_unknown(DETECTIONS, TRUTH, convention=conventions.COCO)
N, N_KNOWN = TRUTH.n_images, TRUTH.classes.n_known


def refusal(function, *arguments, **options) -> str:
    with pytest.raises(InvalidDataError) as caught:
        function(*arguments, **options)
    return str(caught.value)


# --- image weights ---------------------------------------------------------------------------


def normalized(*, weights):
    error = MetricValue(np.ones(1), {})
    return normalized_open_set_error(error, TABLE, OVERLAPS, weights=weights)


WEIGHTED = {
    "average_precision": lambda weights: label_average_precision(TABLE, weights),
    "mean_average_precision": lambda weights: mean_average_precision(
        TABLE, N_KNOWN, rule=POINTS_101, weights=weights
    ),
    "unknown_average_precision": lambda weights: unknown_average_precision(
        TABLE, N_KNOWN, rule=POINTS_101, weights=weights
    ),
    "unknown_precision": lambda weights: unknown_precision(TABLE, N_KNOWN, weights=weights),
    "unknown_recall": lambda weights: unknown_recall(TABLE, N_KNOWN, weights=weights),
    "open_set_error_by_objects": lambda weights: open_set_error_by_objects(
        TABLE, OVERLAPS, weights=weights
    ),
    "open_set_error_by_detections": lambda weights: open_set_error_by_detections(
        TABLE, OVERLAPS, weights=weights
    ),
    "normalized_open_set_error": lambda weights: normalized(weights=weights),
    "unknown_objects_without_detection": lambda weights: unknown_objects_without_detection(
        TABLE, OVERLAPS, weights=weights
    ),
    "false_alarm_rate": lambda weights: false_alarm_rate(TABLE, N_KNOWN, weights=weights),
    "images_without_detection": lambda weights: images_without_detection(TABLE, weights=weights),
    "wilderness_impact": lambda weights: wilderness_impact(
        TABLE, OVERLAPS, N_KNOWN, weights=weights
    ),
    "wilderness_ratio": lambda weights: wilderness_ratio(TABLE, TRUTH, weights=weights),
    "lrp_error": lambda weights: lrp_error(TABLE, N_KNOWN, weights=weights),
    "optimal_lrp": lambda weights: optimal_lrp(TABLE, N_KNOWN, weights=weights),
    "laece_of": lambda weights: laece_of(TABLE, N_KNOWN, weights=weights),
    "laace_of": lambda weights: laace_of(TABLE, N_KNOWN, weights=weights),
    "d_ece_of": lambda weights: d_ece_of(TABLE, N_KNOWN, weights=weights),
}


@pytest.mark.parametrize("shape", [(N,), (N - 1, 2), (N + 1, 2), (2, N), (N, 0), (N, 1, 1), ()])
@pytest.mark.parametrize("metric", WEIGHTED)
@pytest.mark.usefixtures("outside_tests")
def test_weights_that_are_not_of_these_images_are_refused(metric, shape):
    assert refusal(WEIGHTED[metric], np.ones(shape, np.float32)) == (
        f"Expected image weights with one row for each of the {N} images and at least "
        f"one column, got an array of shape {list(shape)}."
    )


def values_of(answer) -> list[np.ndarray]:
    if isinstance(answer, MetricValue):
        return [answer.values]
    return [each.values if isinstance(each, MetricValue) else np.asarray(each) for each in answer]


@pytest.mark.parametrize("metric", sorted(WEIGHTED.keys() - {"normalized_open_set_error"}))
@pytest.mark.usefixtures("outside_tests")
def test_weights_of_any_kind_and_layout_count_the_same(metric):
    weights = bootstrap_weights(N, n_resamples=3, seed=1)
    expected = values_of(WEIGHTED[metric](weights))
    for same in (weights.astype(np.int64), weights.astype(np.float64), np.asfortranarray(weights)):
        for ours, theirs in zip(values_of(WEIGHTED[metric](same)), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


# --- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [lrp_error, optimal_lrp, laece_of, laace_of, d_ece_of])
@pytest.mark.parametrize("n_known", [N_KNOWN + 1, 1000, 0, -1])
def test_more_known_classes_than_labels_are_refused(metric, n_known):
    assert refusal(metric, TABLE, n_known) == (
        f"n_known is {n_known}, but this table has {N_KNOWN + 1} labels, the last of which is "
        "unknown; pass truth.classes.n_known."
    )


@pytest.mark.parametrize(
    "thresholds", [(-0.1,), (1.1,), (0.5, 1.5), (np.nan,), (0.5, np.nan), (np.inf,), ()]
)
def test_an_iou_threshold_outside_0_to_1_is_refused(thresholds):
    assert refusal(match, DETECTIONS, TRUTH, thresholds=thresholds) == (
        f"Expected 1 to 16 rising IoU thresholds from 0 to 1, got {list(thresholds)}."
    )


def test_0_and_1_are_iou_thresholds():
    assert match(DETECTIONS, TRUTH, thresholds=(0.0, 1.0)).thresholds.tolist() == [0.0, 1.0]


# --- columns ---------------------------------------------------------------------------------

P, Q, IDS = np.array([0.9, 0.5, 0.3]), np.array([0.8, 0.0, 0.3]), np.array([0, 0, 1])
RIGHT = np.array([True, False, True])


@pytest.mark.parametrize(
    ("quality", "class_ids", "problem"),
    [
        (Q[:2], IDS, "2 of quality"),
        (Q, IDS[:2], "2 of class_ids"),
        (Q, IDS[:0], "0 of class_ids"),
    ],
)
@pytest.mark.usefixtures("outside_tests")
def test_calibration_refuses_columns_of_different_lengths(quality, class_ids, problem):
    sentence = (
        f"Expected columns of one length in calibration, got 3 rows of confidence and {problem}."
    )
    assert refusal(laece, P, quality, class_ids=class_ids, n_classes=2) == sentence
    assert refusal(reliability, P, quality, class_ids=class_ids) == sentence


@pytest.mark.parametrize(("metric", "what"), [(ece, "ECE"), (brier_score, "The Brier score")])
@pytest.mark.usefixtures("outside_tests")
def test_answers_that_are_missing_or_neither_right_nor_wrong_are_refused(metric, what):
    assert refusal(metric, P, RIGHT[:2]) == (
        f"Expected columns of one length in {what}, got 3 rows of confidence and 2 of is_correct."
    )
    for wrong in (np.array([1, 0, 1]), np.array([1.0, 0.0, 1.0])):
        assert refusal(metric, P, wrong) == (
            f"{what} needs is_correct as booleans, got {wrong.dtype}. "
            "Compare predictions with labels first."
        )
    assert refusal(metric, P[:0], RIGHT[:0]) == (f"{what} needs at least one prediction, got none.")
    assert refusal(metric, P + 1, RIGHT) == (
        "Calibration is undefined: confidences must be between 0 and 1, "
        "but they reach from 1.3 to 1.9."
    )


@pytest.mark.parametrize("n_bins", [0, -3])
def test_calibration_without_bins_is_refused(n_bins):
    sentence = f"n_bins must be at least 1, but it is {n_bins}."
    rule = replace(conventions.PAPER_CALIBRATION, n_bins=n_bins)
    assert refusal(laece, P, Q, class_ids=IDS, n_classes=2, rule=rule) == sentence
    assert refusal(laece_of, TABLE, N_KNOWN, rule=rule) == sentence
    assert refusal(d_ece_of, TABLE, N_KNOWN, n_bins=n_bins) == sentence
    assert refusal(ece, P, RIGHT, n_bins=n_bins) == sentence
    assert refusal(reliability, P, Q, n_bins=n_bins) == sentence


def test_a_reliability_diagram_refuses_a_negative_class():
    assert refusal(reliability, P, Q, class_ids=np.array([0, -1, 1])) == (
        "Expected class_ids of detections from 0 to 1, got -1 in row 1."
    )


# --- bootstrap -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_marks", [0, 4, 6])
@pytest.mark.usefixtures("outside_tests")
def test_a_split_with_other_images_is_refused(n_marks):
    assert refusal(bootstrap_weights, 5, n_resamples=2, seed=0, keep=np.ones(n_marks) > 0) == (
        f"keep has {n_marks} marks for 5 images; pass one per image."
    )


DENSE = np.array([2, 0, 1, 1, 0, 2, 3])
SCORE = np.array([0.1, 0.9, 0.4, 0.8, 0.7, 0.3, 0.5])
UNKNOWN = np.array([False, True, False, True, True, False, False])


@pytest.mark.parametrize(
    "ids",
    [
        DENSE,
        DENSE - 10,
        DENSE * 2**60,
        DENSE.astype(np.uint64) + np.uint64(2**63),
        DENSE * 7,
        DENSE.tolist(),
        ["c", "a", "b", "b", "a", "c", "d"],
        np.array(["c", "a", "b", "b", "a", "c", "d"]),
        tuple(f"image {k}" for k in DENSE),
    ],
    ids=["dense", "negative", "huge", "unsigned", "gaps", "list", "texts", "text array", "tuple"],
)
def test_a_ranking_is_resampled_by_image_whatever_the_ids(ids):
    weights = bootstrap_weights(4, n_resamples=50, seed=3)
    expected = ranking_replicates(SCORE, UNKNOWN, weights[DENSE])
    ours = bootstrap_ranking(SCORE, UNKNOWN, images=ids, n_resamples=50, seed=3)
    assert ours.columns.keys() == expected.columns.keys()
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(ours.columns[name], column)


def test_a_ranking_with_ids_for_other_rows_is_refused():
    assert refusal(bootstrap_ranking, SCORE, UNKNOWN, images=[1, 2]) == (
        "Expected one image id per score, got 2 for 7."
    )


# --- rounding --------------------------------------------------------------------------------


def test_a_huge_number_is_rounded_without_a_warning():
    huge = np.array([1e308, -1e308, 1e15, 0.25])
    assert round_as_written(huge, 1).tolist() == [1e308, -1e308, 1e15, 0.2]
