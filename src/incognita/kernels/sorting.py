"""Stable orders by radix and counting: the one sort all box metrics share.

Orders are unsigned: numba then need not ask of every index whether it counts from the end.
"""

import numba
import numpy as np

Array = np.ndarray

SIGN_32 = np.uint32(0x80000000)
SIGN_64 = np.uint64(0x8000000000000000)
DIGIT = 11  # bits per pass: the histogram of 2048 counters stays in the first-level cache
LONG_RUN = 32


@numba.njit(inline="always")
def _descending_32(bits: np.uint32) -> np.uint32:
    """Map the bits of a float32 to an integer that falls where the float rises; -0.0 is 0.0."""
    if bits == SIGN_32:
        bits = np.uint32(0)
    return bits if bits & SIGN_32 else np.uint32(~(bits | SIGN_32))


@numba.njit(inline="always")
def _descending_64(bits: np.uint64) -> np.uint64:
    if bits == SIGN_64:
        bits = np.uint64(0)
    return bits if bits & SIGN_64 else np.uint64(~(bits | SIGN_64))


@numba.njit
def _sort_packed(packed: Array) -> Array:
    """Sort by the upper 32 bits, keeping the order of equals (three passes from the low digit)."""
    n = packed.size
    other = np.empty_like(packed)
    counts = np.zeros((3, 2048), np.int64)
    for i in range(n):
        key = packed[i] >> np.uint64(32)
        counts[0, key & np.uint64(2047)] += 1
        counts[1, (key >> np.uint64(DIGIT)) & np.uint64(2047)] += 1
        counts[2, key >> np.uint64(2 * DIGIT)] += 1
    for digit in range(3):
        total = 0
        for value in range(2048):
            count = counts[digit, value]
            counts[digit, value] = total
            total += count
        shift = np.uint64(32 + DIGIT * digit)
        for i in range(n):
            value = (packed[i] >> shift) & np.uint64(2047)
            other[counts[digit, value]] = packed[i]
            counts[digit, value] += 1
        packed, other = other, packed
    return packed


@numba.njit
def _low_words(packed: Array) -> Array:
    order = np.empty(packed.size, np.uint32)
    for i in range(packed.size):
        order[i] = np.uint32(packed[i] & np.uint64(0xFFFFFFFF))
    return order


@numba.njit(cache=True, nogil=True)
def descending_order_32(bits: Array) -> Array:
    """Give the stable order of float32 numbers, passed as their bits, from the largest down."""
    packed = np.empty(bits.size, np.uint64)
    for i in range(bits.size):
        packed[i] = (np.uint64(_descending_32(bits[i])) << np.uint64(32)) | np.uint64(i)
    order: Array = _low_words(_sort_packed(packed))
    return order


@numba.njit
def _sort_run(order: Array, begin: int, end: int, bits: Array) -> None:
    """Finish the order of entries whose upper 32 bits agree."""
    if end - begin > LONG_RUN:
        keys = np.empty(end - begin, np.uint64)
        for i in range(begin, end):
            keys[i - begin] = _descending_64(bits[order[i]])
        run = order[begin:end].copy()
        by_key = np.argsort(keys, kind="mergesort")
        for i in range(end - begin):
            order[begin + i] = run[by_key[i]]
        return
    for i in range(begin + 1, end):
        entry = order[i]
        key = _descending_64(bits[entry])
        j = i
        while j > begin and _descending_64(bits[order[j - 1]]) > key:
            order[j] = order[j - 1]
            j -= 1
        order[j] = entry


@numba.njit(cache=True, nogil=True)
def descending_order_64(bits: Array) -> Array:
    """Give the stable order of float64 numbers, passed as their bits, from the largest down.

    The upper half of the bits is sorted by radix; few entries share it, and those are finished
    one by one, which is cheaper than three more passes over everything.
    """
    n = bits.size
    packed = np.empty(n, np.uint64)
    upper = np.uint64(0xFFFFFFFF00000000)
    for i in range(n):
        packed[i] = (_descending_64(bits[i]) & upper) | np.uint64(i)
    packed = _sort_packed(packed)
    order: Array = _low_words(packed)
    begin = 0
    for i in range(1, n + 1):
        if i == n or (packed[i] & upper) != (packed[begin] & upper):
            if i - begin > 1:
                _sort_run(order, begin, i, bits)
            begin = i
    return order


@numba.njit(cache=True, nogil=True)
def group_order(groups: Array, n_groups: int, first: Array) -> tuple[Array, Array]:
    """Order by group, keeping inside each group the order `first`; also where each group begins."""
    starts = np.zeros(n_groups + 1, np.int64)
    for i in range(groups.size):
        starts[groups[i] + 1] += 1
    for g in range(n_groups):
        starts[g + 1] += starts[g]
    place = starts[:-1].copy()
    order = np.empty(groups.size, np.uint32)
    for j in range(first.size):
        i = first[j]
        g = groups[i]
        order[place[g]] = i
        place[g] += 1
    return order, starts
