"""The k-th largest number of a row against sorting it."""

import numpy as np
import pytest

from incognita.kernels.selection import kth_largest, mark_largest, sum_largest

INTEGERS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


def rows_of(kind: str, dtype: type) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 83))
    made = {
        "any": rows,
        "rectified": np.maximum(rows, 0),
        "negative": -np.abs(rows),
        "few values": np.round(rows),
        "all alike": np.full_like(rows, -0.25),
        "many sizes": rows * 10.0 ** rng.integers(-30, 30, rows.shape),
        "signed zeros": np.where(rows > 0, 0.0, -0.0),
        "extremes": np.where(rows > 0, np.finfo(dtype).max, np.finfo(dtype).min),
    }
    return made[kind].astype(dtype)


KINDS = [
    "any",
    "rectified",
    "negative",
    "few values",
    "all alike",
    "many sizes",
    "signed zeros",
    "extremes",
]


def kth_of(rows: np.ndarray, n_kept: np.ndarray) -> np.ndarray:
    kth = np.empty(len(rows), rows.dtype)
    integer = INTEGERS[rows.dtype]
    kth_largest(rows.view(integer), n_kept, kth.view(integer))
    return kth


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kth_largest_is_that_of_a_sorted_row(kind, dtype):
    rows = rows_of(kind, dtype)
    falling = -np.sort(-rows, axis=1)
    for k in (1, 2, 40, 82, 83):
        np.testing.assert_array_equal(kth_of(rows, np.full(60, k)), falling[:, k - 1])
    n_kept = np.arange(60) + 1
    np.testing.assert_array_equal(kth_of(rows, n_kept), falling[np.arange(60), n_kept - 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 7, 83])
def test_the_first_of_equal_numbers_are_marked(kind, k):
    rows = rows_of(kind, np.float64)
    is_kept = np.empty(rows.shape, bool)
    mark_largest(rows, kth_of(rows, np.full(60, k)), k, is_kept)
    order = np.argsort(-rows, axis=1, kind="stable")[:, :k]
    expected = np.zeros(rows.shape, bool)
    np.put_along_axis(expected, order, True, axis=1)
    np.testing.assert_array_equal(is_kept, expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("many sizes", "extremes")])
def test_the_sum_is_that_of_the_positive_ones_among_the_largest(kind):
    rows, n_kept, sums = rows_of(kind, np.float64), np.arange(60) + 1, np.empty(60)
    sum_largest(rows, kth_of(rows, n_kept), n_kept, sums)
    falling = np.maximum(-np.sort(-rows, axis=1), 0)
    expected = [row[:k].sum() for row, k in zip(falling, n_kept, strict=True)]
    np.testing.assert_allclose(sums, expected, rtol=1e-13)
