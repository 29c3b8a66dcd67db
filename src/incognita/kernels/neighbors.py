"""The rows of a bank that may be among the k best of a query, and their exact products.

Products that come from a matrix multiplication are rounded, each by no more than a known error.
A row whose rounded product lies more than twice that error below the k-th largest rounded one
cannot be among the k best; all others are candidates. Only those are multiplied again, in float64
and always in the same order, so the result depends on no block, batch or precision.
"""

import numba
import numpy as np

Array = np.ndarray


@numba.njit(cache=True, nogil=True, error_model="numpy")
def keep_relations(
    products: Array,
    agreements: Array,
    threshold: float,
    errors: tuple[float, float],
    queries: tuple[Array, Array],
    bank: tuple[Array, Array, Array],
) -> None:
    """Put the relation of each query to each row in place of their product, or 0 if it is small.

    A relation is the cosine, if positive, times the agreement. Both come rounded; where that leaves
    open whether the relation exceeds the threshold, it is computed again in float64.

    Args:
        products: Rounded products of queries and rows [queries, rows], overwritten.
        agreements: Rounded products of their probabilities.
        threshold: What a relation must exceed.
        errors: The largest error of a cosine and of an agreement.
        queries: Unit vectors and probabilities, in float64.
        bank: Rows as given, what brings them to unit length, and probabilities, in float64.
    """
    units, shares = queries
    rows, scale, row_shares = bank
    scale32 = scale.astype(np.float32)
    limit = np.float32(threshold)
    of_cosine, of_agreement = np.float32(errors[0]), np.float32(errors[1])
    for q in range(products.shape[0]):
        of_query, agreement = products[q], agreements[q]
        n_open = np.int32(0)
        for j in range(of_query.size):  # free of branches, so that it runs in vector registers
            relation = max(of_query[j] * scale32[j], np.float32(0)) * agreement[j]
            slack = of_cosine * agreement[j] + of_agreement
            n_open += np.int32(abs(relation - limit) < slack)
            of_query[j] = relation
        if n_open > 0:
            for j in range(of_query.size):
                slack = of_cosine * agreement[j] + of_agreement
                if abs(of_query[j] - limit) < slack:
                    cosine = _dot(units[q], rows[j]) * scale[j]
                    relation = max(cosine, 0.0) * _dot(shares[q], row_shares[j])
                    above = max(np.float32(relation), np.nextafter(limit, np.float32(np.inf)))
                    of_query[j] = above if relation > threshold else np.float32(0)
        for j in range(of_query.size):
            of_query[j] = of_query[j] if of_query[j] > limit else np.float32(0)


OVERFLOWN = -1  # count of a query that has more candidates than there is room
_LANES = 64  # products that are compared at once


@numba.njit(nogil=True, error_model="numpy")
def _kth_largest(values: Array, k: int) -> float:
    """Find the k-th largest value by halving the range in which it must lie.

    Each step counts the values that reach a limit, in vector registers; a dozen steps are enough.
    """
    low: float = values[0]
    high: float = values[0]
    for j in range(values.size):
        low = min(low, values[j])
        high = max(high, values[j])
    while True:  # at least k values reach low, and none exceeds high unless fewer than k reach it
        limit = low + (high - low) / values.dtype.type(2)
        if limit <= low or limit >= high:  # neighbors among float32 numbers, or equal
            limit = high
        n = np.int32(0)
        for j in range(values.size):
            n += np.int32(values[j] >= limit)
        if n == k or (n > k and limit == high):
            least = high
            for j in range(values.size):
                least = min(least, values[j] if values[j] >= limit else high)
            return least
        if n > k:
            low = limit
        elif limit == high:
            return low
        else:
            high = limit


@numba.njit(nogil=True, error_model="numpy")
def _shrink(values: Array, rows: Array, n: int, k: int, slack: float) -> tuple[float, int]:
    """Keep the candidates that the k-th largest product does not exclude; give it and how many."""
    kth = _kth_largest(values[:n], k)
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
    """Write the last few of the k largest float64 products of each query; skip the overflown.

    `best` holds as many per query as are wanted, largest first. A row whose rounded product lies
    more than the slack above the first one wanted is larger than it, so it is counted and not
    multiplied: of 50 neighbors of which the last is wanted that leaves a few.
    """
    n_wanted = best.shape[1]
    for q in range(queries.shape[0]):
        if counts[q] == OVERFLOWN:
            continue
        kth, n = _shrink(values[q], rows[q], counts[q], k, slack[q])
        first = kth
        if n_wanted > 1:
            first = _kth_largest(values[q, :n], k - n_wanted + 1)
        highest = first + slack[q]
        exact = np.empty(n)
        n_exact = 0
        for i in range(n):
            if values[q, i] <= highest:
                row = rows[q, i]
                exact[n_exact] = _dot(queries[q], bank[row]) * scale[row]
                n_exact += 1
        largest = np.sort(exact[:n_exact])[::-1]
        n_above = n - n_exact
        for i in range(n_wanted):
            best[q, i] = largest[k - n_wanted + i - n_above]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def dot_products(query: Array, bank: Array, scale: Array) -> Array:
    """Compute the float64 products of one query with all rows, rounded as above."""
    exact = np.empty(bank.shape[0])
    for i in range(bank.shape[0]):
        exact[i] = _dot(query, bank[i]) * scale[i]
    return exact
