"""Orders of detections against numpy's stable sorts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from incognita.kernels.matching import order_by_group
from incognita.metrics.matching import order_by_confidence

few = st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0, 1e-45, -1e-45, np.inf, -np.inf])


def expected(values: np.ndarray) -> np.ndarray:
    return np.argsort(-values, kind="stable")


@given(st.lists(st.one_of(st.floats(allow_nan=False, width=32), few), max_size=80))
def test_float32_is_ordered_from_the_largest_down_and_ties_keep_their_order(numbers):
    values = np.array(numbers, np.float32)
    np.testing.assert_array_equal(order_by_confidence(values), expected(values))


@given(st.lists(st.one_of(st.floats(allow_nan=False), few), max_size=80))
def test_float64_is_ordered_from_the_largest_down_and_ties_keep_their_order(numbers):
    values = np.array(numbers, np.float64)
    np.testing.assert_array_equal(order_by_confidence(values), expected(values))


@pytest.mark.parametrize("n", [10, 500, 20_000])
def test_float64_that_differ_only_in_their_lower_half_are_told_apart(n):
    rng = np.random.default_rng(n)
    bits = np.float64(0.5).view(np.uint64) + rng.integers(0, 2**20, n).astype(np.uint64)
    values = bits.view(np.float64)
    np.testing.assert_array_equal(order_by_confidence(values), expected(values))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_confidences_with_ties_are_ordered_like_numpy(dtype):
    values = np.random.default_rng(0).random(200_000).round(3).astype(dtype)
    np.testing.assert_array_equal(order_by_confidence(values), expected(values))


@given(hnp.arrays(np.int32, st.integers(0, 60), elements=st.integers(0, 7)), st.randoms())
def test_groups_keep_the_order_they_are_given_in(groups, random):
    first = np.arange(len(groups), dtype=np.uint32)
    random.shuffle(first)
    order, starts = order_by_group(groups, 8, first)
    np.testing.assert_array_equal(order, first[np.argsort(groups[first], kind="stable")])
    np.testing.assert_array_equal(np.diff(starts), np.bincount(groups, minlength=8))
