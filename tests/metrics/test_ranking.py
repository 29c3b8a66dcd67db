"""Ranking metrics against their definitions and scikit-learn, and what must not change them."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics
from tests.oracles import ranking as oracle
from tests.oracles.ranking_rows import DTYPES, fpr_at_95, levels, random_rows, tied_rows

from incognita.kernels.ranking import sweep_scores
from incognita.metrics.ranking import (
    RANKING_METRICS,
    RankingMetrics,
    auroc,
    average_precision,
    fpr_at_known_recall,
    fpr_at_unknown_recall,
    ranking_metrics,
    ranking_replicates,
    roc_points,
)

METRICS = list(RANKING_METRICS)
SWAPPED = {
    name: name.replace("unknown", "?").replace("known", "unknown").replace("?", "known")
    for name in METRICS
    if name != "detection_error_at_95_known_recall"
}


@pytest.fixture(scope="module", autouse=True)
def compiled_kernels() -> None:
    """Compile before hypothesis starts to watch the clock."""
    for dtype in DTYPES:
        ranking_metrics(*random_rows(0, dtype))
    ranking_metrics(*random_rows(0, np.float64), weights=np.ones(2000))


def values(metrics: RankingMetrics) -> dict[str, float]:
    return {name: getattr(metrics, name) for name in METRICS}


# --- against definitions ---


@given(tied_rows())
def test_every_metric_equals_its_definition(rows) -> None:
    score, is_unknown, _ = rows
    expected = oracle.ranking_metrics(oracle.rows_of(score, is_unknown))
    assert values(ranking_metrics(score, is_unknown)) == pytest.approx(expected, abs=1e-12)


@given(tied_rows())
def test_every_weighted_metric_equals_its_definition(rows) -> None:
    score, is_unknown, weights = rows
    expected = oracle.ranking_metrics(oracle.rows_of(score, is_unknown, weights))
    measured = ranking_metrics(score, is_unknown, weights=np.array(weights, float))
    assert values(measured) == pytest.approx(expected, abs=1e-12)


@given(tied_rows(), st.integers(1, 20))
def test_the_false_positive_rates_follow_any_recall(rows, twentieths: int) -> None:
    score, is_unknown, _ = rows
    slow = oracle.rows_of(score, is_unknown)
    recall = Fraction(twentieths, 20)
    fast = fpr_at_unknown_recall(score, is_unknown, recall=float(recall))
    assert fast == pytest.approx(float(oracle.fpr_at_unknown_recall(slow, recall)), abs=1e-12)
    fast = fpr_at_known_recall(score, is_unknown, recall=float(recall))
    assert fast == pytest.approx(float(oracle.fpr_at_known_recall(slow, recall)), abs=1e-12)


@given(tied_rows())
def test_roc_points_are_the_recalls_of_every_threshold(rows) -> None:
    score, is_unknown, _ = rows
    points = roc_points(score, is_unknown)
    expected = oracle.recalls(oracle.rows_of(score, is_unknown))
    measured = np.column_stack([points.unknown_recall, points.known_recall])
    np.testing.assert_allclose(measured, np.array(expected, float), atol=1e-12)
    assert points.threshold.dtype == score.dtype
    for threshold, recall in zip(points.threshold, points.unknown_recall, strict=True):
        assert np.mean(score[is_unknown] >= threshold) == pytest.approx(recall)


@given(tied_rows())
def test_weighted_roc_points_are_the_recalls_of_every_threshold(rows) -> None:
    score, is_unknown, weights = rows
    points = roc_points(score, is_unknown, weights=np.array(weights, float))
    expected = oracle.recalls(oracle.rows_of(score, is_unknown, weights))
    measured = np.column_stack([points.unknown_recall, points.known_recall])
    np.testing.assert_allclose(measured, np.array(expected, float), atol=1e-12)


# --- against scikit-learn ---


def trapezoid(is_positive: np.ndarray, score: np.ndarray, weights: np.ndarray | None) -> float:
    curve = sklearn_metrics.precision_recall_curve(is_positive, score, sample_weight=weights)
    return sklearn_metrics.auc(curve[1], curve[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decimals", [1, 3, 9])
@pytest.mark.parametrize(("location", "scale"), [(0, 1), (-800, 100), (1e6, 1e-1), (0, 1e30)])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_every_metric_equals_scikit_learn(dtype, decimals, location, scale, is_weighted) -> None:
    score, is_unknown = random_rows(decimals, dtype, decimals=decimals)
    score = dtype(location) + dtype(scale) * score
    weights = np.random.default_rng(1).random(len(score)) if is_weighted else None
    measured = ranking_metrics(score, is_unknown, weights=weights)
    average = sklearn_metrics.average_precision_score
    expected = {
        "auroc": sklearn_metrics.roc_auc_score(is_unknown, score, sample_weight=weights),
        "aupr_unknown": average(is_unknown, score, sample_weight=weights),
        "aupr_known": average(~is_unknown, -score, sample_weight=weights),
        "aupr_unknown_trapezoid": trapezoid(is_unknown, score, weights),
        "aupr_known_trapezoid": trapezoid(~is_unknown, -score, weights),
        "fpr_at_95_unknown_recall": fpr_at_95(is_unknown, score, weights),
        "fpr_at_95_known_recall": fpr_at_95(~is_unknown, -score, weights),
    }
    for name, value in expected.items():
        assert getattr(measured, name) == pytest.approx(value, abs=1e-12), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_agree_with_scikit_learn_and_with_the_weighted_sweep(dtype) -> None:
    score, is_unknown = random_rows(0, dtype, n_rows=200_000)
    score *= np.random.default_rng(1).choice([-1e-3, 1e-20, 1.0, 1e12], len(score)).astype(dtype)
    fast = ranking_metrics(score, is_unknown)
    swept = ranking_metrics(score, is_unknown, weights=np.ones(len(score)))
    assert fast == pytest.approx(swept, abs=1e-12)
    assert fast.auroc == pytest.approx(sklearn_metrics.roc_auc_score(is_unknown, score), abs=1e-12)


def test_single_metrics_are_the_fields_of_all_metrics() -> None:
    score, is_unknown = random_rows(3, np.float64)
    metrics = ranking_metrics(score, is_unknown)
    assert auroc(score, is_unknown) == metrics.auroc
    assert average_precision(score, is_unknown) == metrics.aupr_unknown
    assert fpr_at_unknown_recall(score, is_unknown) == metrics.fpr_at_95_unknown_recall
    assert fpr_at_known_recall(score, is_unknown) == metrics.fpr_at_95_known_recall
    assert (metrics.n_known, metrics.n_unknown) == (np.sum(~is_unknown), np.sum(is_unknown))


# --- properties ---


def test_auroc_counts_a_tie_as_one_half() -> None:
    assert auroc(np.array([1.0, 1.0]), np.array([True, False])) == 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_negative_zero_ties_with_zero(dtype) -> None:
    score, is_unknown = np.array([0.0, -0.0], dtype), np.array([True, False])
    assert auroc(score, is_unknown) == auroc(score[::-1], is_unknown) == 0.5
    assert auroc(score, is_unknown, weights=np.ones(2)) == 0.5


@given(st.lists(st.tuples(st.integers(-20, 20), st.booleans()), min_size=2))
def test_a_monotone_map_changes_nothing(rows) -> None:
    score = np.array([level for level, _ in rows], float)
    is_unknown = np.array([True, False, *(truth for _, truth in rows[2:])])
    expected = ranking_metrics(score, is_unknown)
    for mapped in (np.exp(score), score.astype(np.float32), -1e300 + score * 1e290, score * 5e-324):
        assert ranking_metrics(mapped, is_unknown) == expected


@given(tied_rows(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows, random) -> None:
    score, is_unknown, _ = rows
    order = list(range(len(score)))
    random.shuffle(order)
    assert ranking_metrics(score[order], is_unknown[order]) == ranking_metrics(score, is_unknown)


@given(tied_rows())
def test_duplicated_rows_change_nothing(rows) -> None:
    score, is_unknown, _ = rows
    twice = ranking_metrics(np.tile(score, 2), np.tile(is_unknown, 2))
    assert values(twice) == pytest.approx(values(ranking_metrics(score, is_unknown)), abs=1e-12)


@given(tied_rows())
def test_swapping_the_classes_swaps_the_names(rows) -> None:
    score, is_unknown, _ = rows
    metrics, swapped = ranking_metrics(score, is_unknown), ranking_metrics(-score, ~is_unknown)
    for name, other in SWAPPED.items():
        assert getattr(metrics, name) == pytest.approx(getattr(swapped, other), abs=1e-12), name


@pytest.mark.parametrize("scale", [1.0, 0.1, 1 / 3, 1e-300, 1e300])
def test_equal_weights_change_nothing(scale) -> None:
    for score, is_unknown in (levels(1, 1, n_levels=20), random_rows(4, np.float64)):
        weighted = ranking_metrics(score, is_unknown, weights=np.full(len(score), scale))
        assert weighted == pytest.approx(ranking_metrics(score, is_unknown), abs=1e-12)


@pytest.mark.parametrize("weight", [None, 1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("twentieths", range(1, 21))
def test_rounding_moves_no_threshold(twentieths, weight) -> None:
    score, is_unknown = levels(1, 1, n_levels=20)  # 0.55 * 20 is a little more than 11
    weights = None if weight is None else np.full(len(score), weight)
    for metric in (fpr_at_unknown_recall, fpr_at_known_recall):
        fpr = metric(score, is_unknown, recall=twentieths / 20, weights=weights)
        assert fpr == pytest.approx(twentieths / 20, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, ">f8", ">f4"])
def test_other_kinds_of_numbers_are_compared_as_float64(dtype) -> None:
    score = np.array([3, 1, 2, 2]).astype(dtype)
    is_unknown = np.array([True, False, True, False])
    assert ranking_metrics(score, is_unknown) == ranking_metrics(score.astype(float), is_unknown)


def test_float64_scores_keep_their_last_bit() -> None:
    score = np.array([1.0, np.nextafter(1.0, 2.0)])
    assert auroc(score, np.array([False, True])) == 1.0


def test_strided_and_read_only_rows_are_like_any_others_and_compile_nothing_new() -> None:
    score, is_unknown = random_rows(5, np.float32)
    expected = ranking_metrics(score[::2].copy(), is_unknown[::2].copy())
    score.flags.writeable = is_unknown.flags.writeable = False
    assert ranking_metrics(score[::2], is_unknown[::2]) == expected
    ranking_metrics(score, is_unknown)
    assert len(sweep_scores.signatures) == len(DTYPES)


def test_scores_are_left_as_they_came() -> None:
    score, is_unknown = random_rows(6, np.float64)
    before = score.copy()
    ranking_metrics(score, is_unknown)
    np.testing.assert_array_equal(score, before)


# --- replicates ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count_dtype", [np.uint8, np.int64, np.float64])
def test_replicates_equal_repeating_rows(dtype, count_dtype) -> None:
    score, is_unknown = random_rows(7, dtype, n_rows=60, decimals=1)
    counts = np.random.default_rng(0).poisson(1.0, (60, 19)).astype(count_dtype)
    replicates = ranking_replicates(score, is_unknown, counts)
    for column, count in enumerate(counts.T.astype(int)):
        repeated = ranking_metrics(np.repeat(score, count), np.repeat(is_unknown, count))
        measured = {name: getattr(replicates, name)[column] for name in METRICS}
        assert measured == pytest.approx(values(repeated), abs=1e-12)
        assert replicates.n_known[column] == repeated.n_known
        assert replicates.n_unknown[column] == repeated.n_unknown


def test_replicates_carry_the_names_of_the_metrics() -> None:
    replicates = ranking_replicates(np.array([1.0, 0.0]), np.array([True, False]), np.ones((2, 3)))
    assert {*replicates.columns, "recall"} == set(RankingMetrics._fields)
    with pytest.raises(AttributeError, match="has no field 'aurocs'"):
        _ = replicates.aurocs


def test_names_with_95_are_only_there_at_that_recall() -> None:
    score, is_unknown = random_rows(8, np.float64)
    metrics = ranking_metrics(score, is_unknown)
    assert metrics.fpr_at_95_known_recall == metrics.fpr_at_known_recall
    other = metrics._replace(recall=0.8)
    for name in ("fpr_at_95_unknown_recall", "fpr_at_95_known_recall"):
        with pytest.raises(AttributeError, match=r"at recall 0\.8, not 0\.95; use fpr_at_"):
            getattr(other, name)


def test_a_replicate_that_lost_a_class_is_nan() -> None:
    counts = np.array([[1, 0, 1], [1, 1, 0]])
    replicates = ranking_replicates(np.array([1.0, 0.0]), np.array([True, False]), counts)
    for name in METRICS:
        assert np.isnan(getattr(replicates, name)).tolist() == [False, True, True]
    assert replicates.n_known.tolist() == [1, 1, 0]
    assert replicates.n_unknown.tolist() == [1, 0, 1]


def test_no_replicates_give_no_values() -> None:
    replicates = ranking_replicates(
        np.array([1.0, 0.0]), np.array([True, False]), np.zeros((2, 0), int)
    )
    assert replicates.auroc.shape == (0,)


def test_importing_the_metrics_loads_no_heavy_library() -> None:
    # numba asks scipy for its version, which loads none of scipy's parts.
    code = (
        "import sys, incognita.metrics.ranking\n"
        "heavy = {'torch', 'sklearn', 'pandas', 'scipy.linalg', 'scipy.special', 'scipy.stats'}\n"
        "sys.exit(', '.join(sorted(heavy & sys.modules.keys())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
