"""Compiled orders against numpy's stable sorts, and few rows against many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.metrics.scene_cases import CASES, make_scene
from tests.oracles.scenes import to_containers

from incognita.evaluation.certify import certify
from incognita.kernels.box_checks import are_sound
from incognita.kernels.sorting import descending_order_32, descending_order_64, group_order
from incognita.metrics import _ordering as arrangement

floats = st.floats(allow_nan=False, width=32)
few = st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0, 1e-45, -1e-45, np.inf, -np.inf])
columns = st.lists(st.one_of(floats, few), max_size=80)


def expected(values: np.ndarray) -> np.ndarray:
    return np.argsort(-values, kind="stable")


@given(columns)
def test_float32_is_ordered_from_the_largest_down_and_ties_keep_their_order(numbers):
    values = np.array(numbers, np.float32)
    np.testing.assert_array_equal(descending_order_32(values.view(np.uint32)), expected(values))


@given(st.lists(st.one_of(st.floats(allow_nan=False), few), max_size=80))
def test_float64_is_ordered_from_the_largest_down_and_ties_keep_their_order(numbers):
    values = np.array(numbers, np.float64)
    np.testing.assert_array_equal(descending_order_64(values.view(np.uint64)), expected(values))


@pytest.mark.parametrize("n", [10, 31, 33, 500, 20_000])
def test_float64_that_differ_only_in_their_lower_half_are_told_apart(n):
    # all share the upper 32 bits, so the whole order is made by the finishing step
    rng = np.random.default_rng(n)
    bits = np.float64(0.5).view(np.uint64) + rng.integers(0, 2**20, n).astype(np.uint64)
    values = bits.view(np.float64)
    np.testing.assert_array_equal(descending_order_64(bits), expected(values))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_confidences_with_ties_are_ordered_like_numpy(dtype):
    values = np.random.default_rng(0).random(200_000).round(3).astype(dtype)
    np.testing.assert_array_equal(arrangement.order_by_confidence(values), expected(values))


@given(hnp.arrays(np.int32, st.integers(0, 60), elements=st.integers(0, 7)), st.randoms())
def test_groups_keep_the_order_they_are_given_in(groups, random):
    first = np.arange(len(groups), dtype=np.uint32)
    random.shuffle(first)
    order, starts = group_order(groups, 8, first)
    np.testing.assert_array_equal(order, first[np.argsort(groups[first], kind="stable")])
    np.testing.assert_array_equal(np.diff(starts), np.bincount(groups, minlength=8))
    small = arrangement.order_by_group(groups, 8, first)
    np.testing.assert_array_equal(order, small[0])
    np.testing.assert_array_equal(starts, small[1])


@pytest.mark.parametrize(("kind", "seed"), CASES[::7])
def test_compiled_orders_give_the_same_certificate_as_those_of_numpy(kind, seed, monkeypatch):
    detections, truth = to_containers(make_scene(kind, seed))
    few = certify(truth, detections, n_resamples=0)
    monkeypatch.setattr(arrangement, "FEW", 0)
    many = certify(truth, detections, n_resamples=0)
    assert [r.as_json() for r in few.results] == [r.as_json() for r in many.results]


@pytest.mark.parametrize(
    ("box", "size", "is_fine"),
    [
        ([0, 0, 4, 3], [4, 3], True),
        ([0.1, 0.2, 0.1 + 0.3, 0.2 + 0.7], [0.3, 0.7], True),
        ([0, 0, 0, 0], [0, 0], True),
        ([4, 0, 0, 3], [-4, 3], False),
        ([0, 0, 4, 3], [4, 4], False),
        ([np.nan, 0, 4, 3], [4, 3], False),
        ([0, 0, np.inf, 3], [np.inf, 3], False),
        ([0, 0, 4, 3], [np.nan, 3], False),
        ([0, 0, 1e200, 1e200], [1e200, 1e200], False),
    ],
)
def test_the_quick_check_of_boxes_finds_whatever_is_wrong(box, size, is_fine):
    boxes = np.array([[1.0, 1.0, 2.0, 2.0], box])
    sizes = np.array([[1.0, 1.0], size])
    assert are_sound(boxes, sizes) is is_fine
