"""Which relations of a query to the rows of a bank exceed a threshold, decided without rounding."""

import numba
import numpy as np

Array = np.ndarray


@numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


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
        bank: Rows as they came, what brings them to unit length, and probabilities, in float64.
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
