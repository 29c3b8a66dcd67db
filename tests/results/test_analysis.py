"""Correlations and family means against scipy and against sums made by hand."""

import math

import numpy as np
import pytest
from scipy.stats import pearsonr
from tests.results.method_records import record

from incognita.results.analysis import (
    BOTH_FAMILIES,
    family_means,
    metric_correlations,
    value_of,
)

NAN = math.nan
SPLITS = ("near/a", "near/b", "far/c")


def results_of(table):
    """Give one record per three rows of a table, a column for each metric."""
    records = []
    for k in range(0, len(table), len(SPLITS)):
        rows = zip(SPLITS, table[k : k + len(SPLITS)], strict=True)
        numbers = {
            (metric, split): float(value)
            for split, row in rows
            for metric, value in zip(BOTH_FAMILIES, row, strict=True)
        }
        records.append(record(f"method {k}", numbers))
    return records


def random_table(seed, n_rows=12):
    return np.random.default_rng(seed).random((n_rows, len(BOTH_FAMILIES)))


def assert_as_scipy(found, table):
    for i in range(len(BOTH_FAMILIES)):
        for j in range(len(BOTH_FAMILIES)):
            both = table[~np.isnan(table[:, i]) & ~np.isnan(table[:, j])]
            assert found.n_pairs[i, j] == len(both)
            expected = pearsonr(both[:, i], both[:, j]).statistic
            assert found.values[i, j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_correlations_are_pearsons_over_methods_and_sets(seed):
    table = random_table(seed)
    found = metric_correlations(results_of(table), ("near", "far"))
    assert found.metrics == BOTH_FAMILIES
    assert_as_scipy(found, table)
    np.testing.assert_allclose(found.values, found.values.T, atol=1e-12)
    np.testing.assert_allclose(np.diag(found.values), 1.0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_missing_value_leaves_out_its_pairs_alone(seed):
    table = random_table(seed)
    table[np.random.default_rng(seed + 9).random(table.shape) < 0.2] = NAN
    assert np.isnan(table).any()
    assert_as_scipy(metric_correlations(results_of(table), ("near", "far")), table)


def test_a_metric_that_never_changes_correlates_with_nothing():
    table = random_table(0)
    table[:, 2] = 0.1 + 0.2  # a number whose mean over twelve is another one
    found = metric_correlations(results_of(table), ("near", "far"))
    assert np.isnan(found.values[2]).all()
    assert np.isnan(found.values[:, 2]).all()
    assert not np.isnan(np.delete(np.delete(found.values, 2, 0), 2, 1)).any()


def test_two_pairs_are_too_few():
    table = random_table(0, n_rows=3)
    table[0, 1] = NAN
    found = metric_correlations(results_of(table), ("near", "far"))
    assert found.n_pairs[0, 1] == 2
    assert np.isnan(found.values[0, 1])
    assert not np.isnan(found.values[0, 2])  # three are enough


def test_only_single_unknown_sets_count():
    """Means of groups, known images and mixed sets would count what is there twice, or another."""
    table = random_table(1)
    plain = metric_correlations(results_of(table), ("near", "far"))
    more = []
    for each in results_of(table):
        numbers = {(r.metric, r.split): r.value for r in each.results}
        for split in ("near", "far", "known", "shifted/dim", "both/all"):
            numbers |= {(metric, split): 0.5 for metric in BOTH_FAMILIES}
        more.append(record(each.title, numbers))
    found = metric_correlations(more, ("near", "far"))
    np.testing.assert_array_equal(found.values, plain.values)
    np.testing.assert_array_equal(found.n_pairs, plain.n_pairs)


def test_without_any_result_there_is_no_correlation():
    found = metric_correlations([], ("near",))
    assert np.isnan(found.values).all()
    assert (found.n_pairs == 0).all()


def test_family_means_leave_out_what_is_undefined_and_say_how_many_are_left():
    records = [
        record("msp", {("auroc", "near"): 0.5, ("auroc", "far"): NAN}),
        record("gen", {("auroc", "near"): 0.75, ("auroc", "far"): NAN}),
        record("energy", {("auroc", "near"): NAN, ("auroc", "far"): 0.25}),
        record("knn", {("auroc", "near"): 0.125, ("auroc", "far"): NAN}),
    ]
    families = {"msp": "output", "gen": "output", "energy": "output", "knn": "feature"}
    means = list(family_means(records, families, ("near", "far"), ("auroc",)))
    found = {(m.family, m.group): (m.value, m.n_methods) for m in means}
    assert found["output", "near"] == (0.625, 2)
    assert found["output", "far"] == (0.25, 1)
    assert found["feature", "near"] == (0.125, 1)
    assert math.isnan(found["feature", "far"][0])
    assert found["feature", "far"][1] == 0
    assert [m.family for m in means] == ["feature"] * 2 + ["output"] * 2


def test_a_value_is_the_papers_unless_another_convention_is_named():
    numbers = {
        ("normalized_open_set_error", "near", "paper"): 0.25,
        ("normalized_open_set_error", "near", "fmiyc"): 1.5,
    }
    result = record("msp", numbers)
    assert value_of(result, "normalized_open_set_error", "near") == 0.25
    assert value_of(result, "normalized_open_set_error", "near", "fmiyc") == 1.5
    assert math.isnan(value_of(result, "normalized_open_set_error", "far"))
    assert math.isnan(value_of(result, "auroc", "near"))
