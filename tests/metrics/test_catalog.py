"""The catalog: it lists what certificates hold, and its directions are those of the numbers."""

import math

import numpy as np
import pytest

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role
from incognita.errors import UnknownNameError
from incognita.evaluation.certify import Certificate, certify
from incognita.metrics.calibration import brier_score, ece
from incognita.metrics.catalog import (
    BOX_METRICS,
    COLUMN_METRICS,
    METRICS,
    Direction,
    get_metric,
)
from incognita.metrics.ranking import RANKING_METRICS, ranking_metrics
from incognita.metrics.selective import aurc, ccr_at_fpr, excess_aurc, operating_point, oscr
from incognita.metrics.self_awareness import (
    balanced_accuracy,
    detection_awareness_quality,
    in_distribution_quality,
)
from incognita.results.result import Result

NAMES = sorted(BOX_METRICS)
CLASSES = Classes(
    ("car", "dog", "deer", "unknown"),
    (Role.KNOWN, Role.KNOWN, Role.UNKNOWN, Role.UNKNOWN),
    ("vehicle", "animal", "animal", None),
)
# COCO's small, medium and large
SIDES = (20, 60, 120)


def street() -> BoxTruth:
    """Twelve images: car and dog of every size; with a deer, or without, or a deer alone."""
    boxes, class_ids, offsets = [], [], [0]
    for side in SIDES:
        for objects in ((0, 1), (0, 1, 2), (2,), (2,)):
            for place, class_id in enumerate(objects):
                x = 200 * place
                boxes.append([x, 0, x + side, side])
                class_ids.append(class_id)
            offsets.append(len(boxes))
    return BoxTruth(np.arange(12), offsets, boxes, class_ids, CLASSES)


def perfect(truth: BoxTruth) -> Detections:
    """Every object found where it is, sure of it; deer are called unknown."""
    labels = np.where(truth.is_unknown, CLASSES.id_of("unknown"), truth.class_ids)
    return Detections(
        truth.image_ids, truth.offsets, truth.xyxy, np.ones(len(truth)), labels, CLASSES
    )


def blundering(truth: BoxTruth) -> Detections:
    """The first two images silent; elsewhere boxes beside the objects, each under two names.

    A third box lies on nothing, and is called unknown with the highest confidence.
    """
    objects = truth[truth.image_index > 1]
    sides = objects.sizes[:, :1]
    beside = objects.xyxy + np.hstack([0.2 * sides, 0 * sides, 0.2 * sides, 0 * sides])
    nothing = objects.xyxy + 1000
    right = np.where(objects.is_unknown, CLASSES.id_of("car"), objects.class_ids)
    labels = [right, 1 - right, np.full(len(right), CLASSES.id_of("unknown"))]
    confidence = [np.full(len(right), each) for each in (0.5, 0.9, 0.95)]
    image_index = np.tile(objects.image_index, 3)
    order = np.argsort(image_index, kind="stable")
    counts = np.bincount(image_index, minlength=truth.n_images)
    return Detections(
        truth.image_ids,
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([beside, beside, nothing])[order],
        np.concatenate(confidence)[order],
        np.concatenate(labels)[order],
        CLASSES,
    )


@pytest.fixture(scope="module")
def best() -> Certificate:
    truth = street()
    return certify(truth, perfect(truth), n_resamples=0)


@pytest.fixture(scope="module")
def worse() -> Certificate:
    truth = street()
    return certify(truth, blundering(truth), n_resamples=0)


def is_measured(result: Result) -> bool:
    """Whether there is a value, and objects behind it: the public codes call AP of none 0."""
    return not math.isnan(result.value) and result.support.get("objects") != 0


def test_a_certificate_holds_the_metrics_of_the_catalog_and_no_other(best):
    assert {result.metric for result in best.results} == set(BOX_METRICS)


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_detector_reaches_the_best_value(name, best):
    goal = 1.0 if METRICS[name].direction is Direction.HIGHER else 0.0
    results = [r for r in best.results if r.metric == name and is_measured(r)]
    assert results
    for result in results:
        assert result.value == pytest.approx(goal, abs=1e-12), (result.convention, result.split)


@pytest.mark.parametrize("name", NAMES)
def test_a_worse_detector_is_worse_in_the_direction_of_the_metric(name, best, worse):
    sign = 1 if METRICS[name].direction is Direction.HIGHER else -1
    pairs = [
        (good, bad)
        for good, bad in zip(best.results, worse.results, strict=True)
        if good.metric == name and is_measured(good) and is_measured(bad)
    ]
    assert all(sign * good.value >= sign * bad.value - 1e-12 for good, bad in pairs)
    assert any(sign * good.value > sign * bad.value + 1e-3 for good, bad in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_that_ends_in_error_is_better_low(name):
    info = METRICS[name]
    assert not name.endswith("_error") or info.direction is Direction.LOWER
    assert (
        info.direction.arrow
        == {"higher is better": "↑", "lower is better": "↓"}[info.direction.value]
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_has_a_title_a_group_and_a_meaning(name):
    info = get_metric(name)
    assert info.title
    assert info.group
    assert info.meaning
    assert name == name.lower()


def test_titles_are_different_and_the_metrics_of_a_group_stand_together():
    titles = [info.title for info in METRICS.values()]
    assert len(set(titles)) == len(titles)
    groups = [info.group for info in BOX_METRICS.values()]
    assert groups == sorted(groups, key=groups.index)


def test_only_the_open_set_error_is_a_count(best):
    assert [name for name, info in METRICS.items() if info.is_count] == ["open_set_error"]
    values = [r.value for r in best.results if not METRICS[r.metric].is_count]
    assert np.nanmax(values) <= 1 + 1e-12


def test_a_name_that_is_not_there_gets_a_suggestion():
    with pytest.raises(UnknownNameError) as caught:
        get_metric("open_set_eror")
    assert str(caught.value) == "No metric is called 'open_set_eror'. Did you mean open_set_error?"


def column_values(score: np.ndarray) -> dict[str, float]:
    """Every metric of columns for scores of five known and five unknown rows."""
    is_unknown = np.arange(10) >= 5
    is_correct = np.arange(10) < 5
    confidence = 1 - score
    balanced = balanced_accuracy(score[:5], score[5:], threshold=0.5)
    ba = balanced.value
    error = ece(confidence, is_correct)
    quality = in_distribution_quality(error, error)
    ranked = ranking_metrics(score, is_unknown)
    at = operating_point(score, is_unknown, ~is_correct, threshold=0.5)
    at_known = operating_point(score[:5], is_unknown[:5], ~is_correct[:5], threshold=0.5)
    return {
        "accuracy": float(np.mean((score > 0.5) == is_unknown)),
        **{name: getattr(ranked, name) for name in RANKING_METRICS},
        "oscr": oscr(score, is_unknown, is_correct),
        "ccr_at_fpr": ccr_at_fpr(score, is_unknown, is_correct, fpr=0.2),
        "aurc": aurc(score, ~is_correct),
        "excess_aurc": excess_aurc(score, ~is_correct),
        "coverage": float(at_known.coverage[0]),
        "selective_risk": float(at.selective_risk[0]),
        "false_alarm_rate": float(at.false_alarm_rate[0]),
        "missed_unknown_rate": float(at.missed_unknown_rate[0]),
        "ece": error,
        "brier_score": brier_score(confidence, is_correct),
        "balanced_accuracy": ba,
        "known_accepted": balanced.true_positive_rate,
        "unknown_rejected": balanced.true_negative_rate,
        "in_distribution_quality": quality,
        "detection_awareness_quality": detection_awareness_quality(ba, quality, quality),
    }  # fmt: skip


def test_metrics_of_columns_are_all_listed_and_get_better_in_their_direction():
    good = column_values(np.repeat([0.01, 0.99], 5))
    bad = column_values(np.array([0.9, 0.8, 0.4, 0.3, 0.1, 0.85, 0.7, 0.35, 0.2, 0.05]))
    assert set(good) == set(COLUMN_METRICS)
    for name, info in COLUMN_METRICS.items():
        is_better = good[name] > bad[name]
        assert is_better == (info.direction is Direction.HIGHER), name
