"""The k-th largest number of each row, by halving the range in which it must lie.

Numbers are compared by their bits, read as integers: those of positive floats rise with the float,
those of negative ones fall and are turned around. Counting how many numbers of a row reach a limit
runs in vector registers.
"""

import numba
import numpy as np

Array = np.ndarray


@numba.njit(nogil=True, error_model="numpy")
def _kth_key(bits: Array, keys: Array, turn: np.integer, k: int) -> np.integer:
    """Find the k-th largest key of one row; `keys` is work space."""
    low, high = turn, ~turn
    for j in range(bits.size):
        key = bits[j] ^ turn if bits[j] < 0 else bits[j]
        keys[j] = key
        low = min(low, key)
        high = max(high, key)
    while low < high:  # at least k reach low, fewer than k exceed high
        middle = (low | high) - ((low ^ high) >> keys.dtype.type(1))  # rounded up, no overflow
        n = np.int32(0)
        for j in range(keys.size):
            n += np.int32(keys[j] >= middle)
        if n < k:
            high = middle - keys.dtype.type(1)
            continue
        low = middle
        if n == k:  # the least of those that reach it, without closing in on it
            least = high
            for j in range(keys.size):
                least = min(least, keys[j] if keys[j] >= middle else high)
            return least
    return low


@numba.njit(cache=True, nogil=True, error_model="numpy")
def kth_largest(bits: Array, n_kept: Array, kth: Array) -> None:
    """Write the bits of the `n_kept[i]`-th largest number of each row i.

    Args:
        bits: Rows of finite floats, their bits read as signed integers.
        n_kept: Per row, from 1 to the number of columns.
        kth: Written to, one integer per row.
    """
    keys = np.empty(bits.shape[1], bits.dtype)
    turn = bits.dtype.type(np.iinfo(bits.dtype).max)
    for i in range(bits.shape[0]):
        key = _kth_key(bits[i], keys, turn, n_kept[i])
        kth[i] = key ^ turn if key < 0 else key


@numba.njit(cache=True, nogil=True, error_model="numpy")
def mark_largest(rows: Array, kth: Array, k: int, is_kept: Array) -> None:
    """Mark the k largest numbers of each row, given the k-th; of equal ones the first."""
    for i in range(rows.shape[0]):
        row, marks, limit = rows[i], is_kept[i], kth[i]
        n = np.int32(0)
        for j in range(row.size):
            marks[j] = row[j] >= limit
            n += np.int32(row[j] >= limit)
        j = row.size
        while n > k:
            j -= 1
            if row[j] == limit:
                marks[j] = False
                n -= np.int32(1)


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc"})
def sum_largest(rows: Array, kth: Array, n_kept: Array, sums: Array) -> None:
    """Sum the positive ones of the `n_kept[i]` largest numbers of each row i, given the last.

    Numbers equal to it count as often as it takes.
    """
    for i in range(rows.shape[0]):
        row, limit = rows[i], max(kth[i], 0.0)
        total = 0.0
        n = np.int32(0)
        for j in range(row.size):
            is_above = row[j] > limit
            total += row[j] if is_above else 0.0
            n += np.int32(is_above)
        sums[i] = total + (n_kept[i] - n) * limit
