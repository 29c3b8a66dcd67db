"""The rows of a bank that may be among the k best of a query, and their exact products.

Products that come from a matrix multiplication are rounded, each by no more than a known error.
A row whose rounded product lies more than twice that error below the k-th largest rounded one
cannot be among the k best; all others are candidates. Only those are multiplied again, in float64
and always in the same order, so the result depends on no block, batch or precision.
"""

import numba
import numpy as np

Array = np.ndarray

OVERFLOWN = -1  # count of a query that has more candidates than there is room
_LANES = 64  # products that are compared at once


@numba.njit(nogil=True, error_model="numpy")
def _shrink(values: Array, rows: Array, n: int, k: int, slack: float) -> tuple[float, int]:
    """Keep the candidates that the k-th largest product does not exclude; give it and how many."""
    kth = np.partition(values[:n], n - k)[n - k]
    lowest = kth - slack
    kept = 0
    for i in range(n):
        if values[i] >= lowest:
            values[kept] = values[i]
            rows[kept] = rows[i]
            kept += 1
    return kth, kept


@numba.njit(nogil=True, error_model="numpy")
def _append(
    products: Array, scale: Array, lowest: float, first: int, values: Array, rows: Array, n: int
) -> int:
    for j in range(products.size):
        value = products[j] * scale[j]
        if value >= lowest:
            values[n] = value
            rows[n] = first + j
            n += 1
    return n


@numba.njit(cache=True, nogil=True, error_model="numpy")
def gather_candidates(
    products: Array,
    scale: Array,
    first_row: int,
    k: int,
    slack: Array,
    kth: Array,
    counts: Array,
    limits: Array,
    values: Array,
    rows: Array,
) -> None:
    """Add a block of products [queries, bank rows] to the candidates of each query.

    Args:
        products: Rounded products of queries with rows that still lack their scale.
        scale: What the product of each row is to be multiplied with.
        first_row: Place of the block's first row in the bank.
        k: How many of the largest products are wanted.
        slack: Per query, twice the largest error of a product so far.
        kth: Per query, a lower bound of the k-th largest rounded product so far.
        counts: Per query, the number of candidates; OVERFLOWN once they do not fit.
        limits: Per query, the number of candidates at which to look which can be dropped; at
            first k and two blocks of lanes, or more.
        values: Per query, the rounded products of the candidates.
        rows: Per query, their places in the bank.
    """
    n_rows = products.shape[1]
    capacity = values.shape[1]
    for q in range(products.shape[0]):
        n = counts[q]
        if n == OVERFLOWN:
            continue
        of_query = products[q]
        lowest = kth[q] - slack[q]
        for first in range(0, n_rows, _LANES):
            some = of_query[first : first + _LANES]
            their_scale = scale[first : first + _LANES]
            n_passing = np.int32(0)
            for j in range(some.size):  # free of branches, so that it runs in vector registers
                n_passing += np.int32(some[j] * their_scale[j] >= lowest)
            if n_passing == 0:
                continue
            if n + n_passing > limits[q]:  # soon rather than late: a higher k-th stops more rows
                kth[q], n = _shrink(values[q], rows[q], n, k, slack[q])
                lowest = kth[q] - slack[q]
                limits[q] = min(n + k + 2 * _LANES, capacity)
                if n + _LANES > capacity:
                    n = OVERFLOWN
                    break
            n = _append(some, their_scale, lowest, first_row + first, values[q], rows[q], n)
        counts[q] = n


@numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def best_of_candidates(
    queries: Array,
    bank: Array,
    scale: Array,
    k: int,
    slack: Array,
    counts: Array,
    values: Array,
    rows: Array,
    best: Array,
) -> None:
    """Write the k largest float64 products of each query, largest first; skip the overflown."""
    for q in range(queries.shape[0]):
        if counts[q] == OVERFLOWN:
            continue
        _, n = _shrink(values[q], rows[q], counts[q], k, slack[q])
        exact = np.empty(n)
        for i in range(n):
            exact[i] = _dot(queries[q], bank[rows[q, i]]) * scale[rows[q, i]]
        largest = np.sort(np.partition(exact, n - k)[n - k :])
        for i in range(k):
            best[q, i] = largest[k - 1 - i]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def dot_products(query: Array, bank: Array, scale: Array) -> Array:
    """Give the float64 products of one query with all rows, rounded as above."""
    exact = np.empty(bank.shape[0])
    for i in range(bank.shape[0]):
        exact[i] = _dot(query, bank[i]) * scale[i]
    return exact
