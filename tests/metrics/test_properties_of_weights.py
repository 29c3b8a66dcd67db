"""Splits, weights and intervals: a choice of images is the same as having only those images.

Every metric of a certificate is held against every property, and the ranking metrics too.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.property_cases import (
    RANKING,
    SEEDS,
    TRAITS,
    Trait,
    certified,
    certified_as_it_is,
    measured,
    untied_scene,
)
from tests.metrics.test_detection import repeat_images
from tests.oracles.boxes import restrict, split_images
from tests.oracles.ranking_rows import tied_rows
from tests.oracles.scenes import Scene, found, real, to_containers

from incognita.metrics import conventions
from incognita.metrics.lrp import optimal_lrp
from incognita.metrics.matching import match
from incognita.metrics.measure import MetricValue
from incognita.metrics.open_set import SPLITS
from incognita.metrics.ranking import RankingMetrics, ranking_metrics
from incognita.results.result import Result


def assert_equal(ours: MetricValue | Result, expected: MetricValue | Result, key: tuple) -> None:
    assert ours.value == pytest.approx(expected.value, abs=1e-12, nan_ok=True), key
    assert ours.reason == expected.reason, key
    assert ours.support == expected.support, key
    assert ours.parameters == expected.parameters, key


def test_every_metric_is_held_against_the_weights():
    assert {metric for metric, _ in measured(untied_scene(0))} == set(TRAITS)


# --- box metrics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_an_image_of_weight_zero_is_as_good_as_removed(seed):
    scene = untied_scene(seed)
    is_kept = np.random.default_rng(seed).random(scene.n_images) < 0.6
    is_kept[0] = True
    ours = measured(scene, is_kept)
    expected = measured(restrict(scene, np.flatnonzero(is_kept).tolist()))
    assert ours.keys() == expected.keys()
    for key in ours:
        assert_equal(ours[key], expected[key], key)


@pytest.mark.parametrize("inside_ties", [False, True])
@pytest.mark.parametrize("tau", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(8))
def test_no_threshold_is_taken_from_an_image_of_weight_zero(seed, tau, inside_ties):
    # matters where LRP is 1 at best: all true positives have an IoU of exactly tau
    scene = untied_scene(seed)
    is_kept = np.arange(scene.n_images) % 2 == 0
    tables = [
        match(*to_containers(s), convention=conventions.COCO, thresholds=(tau,))
        for s in (scene, restrict(scene, np.flatnonzero(is_kept).tolist()))
    ]
    n_known, weights = len(scene.known_labels), is_kept[:, None].astype(np.float32)
    ours = optimal_lrp(tables[0], n_known, weights=weights, inside_ties=inside_ties)
    expected = optimal_lrp(tables[1], n_known, inside_ties=inside_ties)
    np.testing.assert_allclose(ours.thresholds, expected.thresholds)
    np.testing.assert_allclose(ours.per_class, expected.per_class, atol=1e-12)
    for part in ("total", "localization", "false_positive", "false_negative"):
        assert_equal(getattr(ours, part), getattr(expected, part), (part,))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_image_of_weight_two_is_as_good_as_two_images(seed):
    scene = untied_scene(seed)
    counts = np.random.default_rng(seed).integers(0, 3, scene.n_images)
    counts[0] = 2
    ours, expected = measured(scene, counts), measured(repeat_images(scene, counts))
    for key in ours:
        if Trait.COPIES in TRAITS[key[0]] or key[0] == "open_set_error":
            expectation = pytest.approx(expected[key].value, abs=1e-12, nan_ok=True)
            assert ours[key].value == expectation, key


@pytest.mark.parametrize("seed", SEEDS)
def test_weighting_all_images_alike_changes_no_ratio(seed):
    scene = untied_scene(seed)
    once, thrice = measured(scene), measured(scene, np.full(scene.n_images, 3))
    for key in once:
        times = 3 if key[0] == "open_set_error" else 1
        expected = pytest.approx(times * once[key].value, abs=1e-12, nan_ok=True)
        assert thrice[key].value == expected, key


@pytest.mark.parametrize("seed", SEEDS)
def test_a_split_is_as_good_as_certifying_only_its_images(seed):
    scene, results = untied_scene(seed), certified_as_it_is(seed)
    for split in SPLITS:
        images = split_images(scene, split)
        if not images:
            continue
        alone = certified(restrict(scene, images))
        for metric, convention, where in results:
            if where != split:
                continue
            there = split if metric == "ap_superclass" else "all"  # which is given nowhere else
            key = (metric, convention, split)
            assert_equal(results[key], alone[metric, convention, there], key)


def test_a_confidence_that_is_no_probability_spoils_only_the_split_it_is_in():
    # Image 0 has a known object and 0.9 for it, image 1 an unknown object and a known label at 7.
    truths = [real(0, (0, 0, 10, 10), "a"), real(1, (0, 0, 10, 10), "unknown")]
    detections = [found(0, (0, 0, 10, 10), 0.9, "a"), found(1, (0, 0, 10, 10), 7.0, "a")]
    results = certified(Scene(2, detections, truths, ["a"]))
    for metric, convention, split in results:
        if metric in ("laece", "laace", "d_ece"):
            value = results[metric, convention, split].value
            if split == "known-only":
                assert value == pytest.approx(0.1), (metric, convention)  # |0.9 - 1|
            else:
                assert math.isnan(value), (metric, convention, split)


# --- intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_intervals_lie_in_the_range_of_their_metric(seed):
    for key, result in certified(untied_scene(seed), n_resamples=30, seed=seed).items():
        if math.isnan(result.low):
            assert math.isnan(result.high), key
            continue
        assert 0 <= result.low <= result.high, key
        if Trait.SHARE in TRAITS[key[0]]:
            assert result.high <= 1 + 1e-12, key


@pytest.mark.parametrize("seed", SEEDS)
def test_without_replicates_there_is_no_interval(seed):
    for result in certified_as_it_is(seed).values():
        assert math.isnan(result.low)
        assert math.isnan(result.high)


@pytest.mark.parametrize("seed", SEEDS)
def test_images_that_are_all_alike_leave_nothing_uncertain(seed):
    # Every replicate is the same images again. Only wilderness impact, which is read between two
    # copies of a detection, depends on which copies were drawn.
    scene = untied_scene(seed)
    busiest = max(range(scene.n_images), key=lambda i: sum(t.image == i for t in scene.truths))
    alike = repeat_images(restrict(scene, [busiest]), np.array([12]))
    results = certified(alike, n_resamples=20)
    assert sum(not math.isnan(result.low) for result in results.values()) > 50
    for key, result in results.items():
        if key[0] == "wilderness_impact" or math.isnan(result.low):  # no image contributes
            continue
        bounds = (result.low, result.high)
        assert bounds == pytest.approx((result.value, result.value), abs=1e-12), key


@pytest.mark.parametrize("seed", SEEDS)
def test_replicates_do_not_change_the_last_bit_of_the_value_itself(seed):
    scene = untied_scene(seed)
    without, with_some = certified_as_it_is(seed), certified(scene, n_resamples=7, seed=seed)
    for key, result in without.items():
        assert with_some[key].value == pytest.approx(result.value, abs=0, nan_ok=True), key
        assert with_some[key].support == result.support, key


def test_an_interval_of_a_split_is_drawn_from_its_own_images():
    # Known-only images are all alike, unknown-only images are not: no interval of the first moves.
    truths = [real(i, (0, 0, 10, 10), "a") for i in range(12)]
    truths += [real(i, (0, 0, 10, 10), "unknown") for i in range(12, 24)]
    detections = [found(i, (0, 0, 10, 10), 0.9, "a") for i in (*range(12), 15, 16, 17)]
    results = certified(Scene(24, detections, truths, ["a"]), n_resamples=50)
    known = results["lrp", "paper", "known-only"]
    assert (known.low, known.value, known.high) == (0.0, 0.0, 0.0)
    mistaken = results["normalized_open_set_error", "paper", "unknown-only"]
    assert mistaken.value == 0.25
    assert mistaken.low < 0.25 < mistaken.high


# --- ranking metrics ------------------------------------------------------------------------------


def ranks(metrics: RankingMetrics) -> dict[str, float]:
    return {name: getattr(metrics, name) for name in RANKING}


@given(tied_rows())
def test_every_ranking_metric_is_a_share(rows):
    score, is_unknown, _ = rows
    for name, value in ranks(ranking_metrics(score, is_unknown)).items():
        assert 0 <= value <= 1, name


@given(tied_rows(), st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_row_of_weight_zero_is_as_good_as_removed(rows, drawn):
    score, is_unknown, _ = rows
    is_kept = np.array(drawn[: len(score)])
    is_kept[:2] = True  # one of each class
    ours = ranks(ranking_metrics(score, is_unknown, weights=is_kept.astype(float)))
    assert ours == pytest.approx(
        ranks(ranking_metrics(score[is_kept], is_unknown[is_kept])), abs=1e-12
    )


HIGH_IS_GOOD = {name for name in RANKING if name.startswith("au")}


@given(tied_rows())
def test_one_more_unknown_row_above_all_others_makes_no_ranking_metric_of_unknown_worse(rows):
    score, is_unknown, _ = rows
    above = np.append(np.unique(score, return_inverse=True)[1].astype(float), len(score) + 1.0)
    before = ranks(ranking_metrics(score, is_unknown))
    after = ranks(ranking_metrics(above, np.append(is_unknown, True)))
    for name in ("auroc", "aupr_unknown"):
        assert after[name] >= before[name] - 1e-12, name
    for name in ("fpr_at_95_unknown_recall", "fpr_at_95_known_recall", "detection_error"):
        assert after[name] <= before[name] + 1e-12, name
    assert after["detection_error_at_95_known_recall"] <= (
        before["detection_error_at_95_known_recall"] + 1e-12
    )


@given(tied_rows())
def test_a_score_that_separates_the_classes_is_perfect_in_every_ranking_metric(rows):
    _, is_unknown, _ = rows
    for name, value in ranks(ranking_metrics(is_unknown.astype(float), is_unknown)).items():
        assert value == (1.0 if name in HIGH_IS_GOOD else 0.0), name
