"""Bootstrap weights, intervals and paired differences."""

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tests.metrics.scene_cases import make_scene
from tests.metrics.test_detection import repeat_images
from tests.oracles import boxes
from tests.oracles.scenes import to_containers

from incognita.errors import InvalidDataError
from incognita.metrics import conventions
from incognita.metrics.matching import match
from incognita.metrics.measure import (
    MetricValue,
    bootstrap_weights,
    interval,
    interval_of,
    paired_difference,
)
from incognita.metrics.open_set import unknown_recall
from incognita.metrics.ranking import bootstrap_ranking


def test_weights_draw_as_many_images_as_there_are():
    weights = bootstrap_weights(50, n_resamples=30, seed=1)
    assert weights.shape == (50, 31)
    assert (weights[:, 0] == 1).all()
    assert (weights.sum(axis=0) == 50).all()


def test_images_outside_a_split_are_never_drawn():
    keep = np.arange(50) % 3 == 0
    weights = bootstrap_weights(50, n_resamples=30, seed=1, keep=keep)
    assert (weights[~keep] == 0).all()
    assert (weights.sum(axis=0) == keep.sum()).all()


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
    first = bootstrap_weights(50, n_resamples=5, seed=1)
    assert (first == bootstrap_weights(50, n_resamples=5, seed=1)).all()
    assert (first != bootstrap_weights(50, n_resamples=5, seed=2)).any()


def test_a_split_without_images_has_no_weights():
    weights = bootstrap_weights(5, n_resamples=3, seed=1, keep=np.zeros(5, np.bool_))
    assert weights.shape == (5, 4)
    assert (weights == 0).all()


def test_a_replicate_of_a_box_metric_equals_the_metric_of_the_repeated_images():
    scene = make_scene("plain", 3)
    table = match(*to_containers(scene), convention=conventions.PAPER)
    weights = bootstrap_weights(scene.n_images, n_resamples=8, seed=0)
    values = unknown_recall(table, len(scene.known_labels), weights=weights).values
    for column in range(9):
        repeated = repeat_images(scene, weights[:, column].astype(int))
        expected = boxes.recall_unknown(repeated, "paper", 0.5)
        assert values[column] == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_bootstrap_of_ranking_draws_images_not_rows():
    rng = np.random.default_rng(0)
    images = np.repeat(np.arange(20), 3)
    is_unknown = images % 2 == 0
    score = rng.normal(size=60) + is_unknown
    values = bootstrap_ranking(score, is_unknown, images=images, n_resamples=4, seed=7)
    weights = bootstrap_weights(20, n_resamples=4, seed=7)[images].astype(int)
    for column in range(5):
        rows = np.repeat(np.arange(60), weights[:, column])
        expected = roc_auc_score(is_unknown[rows], score[rows])
        assert values.auroc[column] == pytest.approx(expected, abs=1e-12)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    # AUROC of two normal distributions one apart is Phi(1 / sqrt 2) = 0.7602
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        is_unknown = np.arange(200) % 2 == 0
        score = rng.normal(size=200) + is_unknown
        values = bootstrap_ranking(score, is_unknown, n_resamples=200, seed=seed)
        bounds = interval(values.auroc[1:])
        covered += bounds.low <= 0.76025 <= bounds.high
    assert 50 <= covered <= 60  # 57 expected; fewer than 50 has a chance below one in a thousand


def test_undefined_replicates_are_left_out_and_none_at_all_is_nan():
    assert interval(np.array([1.0, math.nan, 1.0])) == (1.0, 1.0)
    assert math.isnan(interval(np.array([math.nan])).low)
    assert math.isnan(interval(np.array([])).high)


def test_a_paired_difference_is_narrower_than_the_unpaired_one():
    rng = np.random.default_rng(0)
    is_unknown = np.arange(300) % 2 == 0
    score = rng.normal(size=300) + is_unknown
    better = score + 0.3 * is_unknown
    first = bootstrap_ranking(better, is_unknown, n_resamples=300, seed=1).auroc
    second = bootstrap_ranking(score, is_unknown, n_resamples=300, seed=1).auroc
    other = bootstrap_ranking(score, is_unknown, n_resamples=300, seed=2).auroc
    paired, unpaired = paired_difference(first, second), paired_difference(first, other)
    assert paired.value == first[0] - second[0]
    assert paired.share_above == 1.0
    assert paired.high - paired.low < 0.5 * (unpaired.high - unpaired.low)


def test_a_method_compared_with_itself_cannot_be_told_apart():
    values = np.linspace(0.6, 0.8, 11)
    assert paired_difference(values, values) == (0.0, 0.0, 0.0, 0.5)
    few = paired_difference(values[:10], values[:10])  # nine replicates make no interval
    assert (few.value, few.share_above) == (0.0, 0.5)
    assert math.isnan(few.low)
    assert math.isnan(few.high)


def valued(value: float, low: float, high: float, **options: object) -> MetricValue:
    """A value with replicates evenly from low to high."""
    return MetricValue(np.array([value, *np.linspace(low, high, 101)]), {}, **options)


def test_an_interval_that_misses_its_value_is_moved_by_the_bias():
    # 11.7 [6.3, 11.2]: the percentiles of these replicates end below the value
    value = valued(0.117, 0.06, 0.115)
    plain = interval(value.values[1:])
    assert plain.high < 0.117
    bounds = interval_of(value)
    assert bounds.low < 0.117 < bounds.high
    assert bounds.high - bounds.low == pytest.approx(plain.high - plain.low)
    assert bounds.low + bounds.high == pytest.approx(2 * 0.117)  # the median moves to the value
    untouched = valued(0.1, 0.06, 0.115)
    assert interval_of(untouched) == interval(untouched.values[1:])


def test_a_moved_interval_does_not_leave_the_range_of_a_share():
    assert interval_of(valued(0.001, 0.01, 0.2)).low == 0.0
    assert interval_of(valued(0.999, 0.8, 0.99)).high == 1.0
    assert interval_of(valued(5.0, 8.0, 40.0)).low == 0.0  # a count
    assert interval_of(valued(-0.1, 0.1, 0.5)).low < -0.1  # neither


def test_too_few_images_or_replicates_have_no_interval():
    assert math.isnan(interval_of(valued(0.5, 0.4, 0.6, units=9)).low)
    assert interval_of(valued(0.5, 0.4, 0.6, units=10)).low < 0.5
    assert interval_of(valued(0.5, 0.4, 0.6)).low < 0.5  # not counted
    for n, has_interval in ((1, False), (9, False), (10, True)):
        replicates = MetricValue(np.full(1 + n, 0.5), {}, units=50)
        assert math.isnan(interval_of(replicates).low) != has_interval


def test_wrong_input_is_refused():
    with pytest.raises(InvalidDataError, match="with the same replicates, got 2 and 3"):
        paired_difference(np.zeros(2), np.zeros(3))
    with pytest.raises(InvalidDataError, match=r"level must lie between 0 and 1, but it is 95\.0"):
        interval(np.zeros(2), level=95.0)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 39, 40, 41, 200, 1000])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_bounds_are_those_of_numpy_bit_by_bit(n, level):
    replicates = np.random.default_rng(n).normal(size=n)
    expected = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    assert interval(replicates, level=level) == tuple(expected)
