"""Scans the bytes of a COCO results list, `[{"image_id": …}, …]`, straight into columns.

The scanner is strict: what it does not fully understand it reports as malformed, and the caller
reads the file again with `json`, slowly, which either understands it or says what is wrong.

One trick carries it: the byte after the buffer is 0, which no JSON token contains. Every loop
stops there by itself, and a failure at that very place means "cut off", not "malformed", so the
caller may come back with more bytes. Helpers return the next position, or `-1 - position` of
the byte they stumbled over.
"""

from typing import Any

import numba
import numpy as np

from incognita.kernels.decimals import inlined, scan_number, to_float

# numba takes its cache for fresh as long as this file is unchanged, whatever it calls elsewhere:
# so this line has to change with decimals.py, and a test sees to it
DECIMALS = "082eed0f369dd5d0"

# where in the list the scanner stands between two calls
BEFORE_LIST, AFTER_OPEN, AFTER_RECORD, AFTER_COMMA, AFTER_LIST, MALFORMED = range(6)

N_IDS, N_VALUES = 2, 5  # image and category; x, y, width, height and score
SHORTEST_RECORD = len('{"image_id":0,"category_id":0,"bbox":[0,0,0,0],"score":0},')


def _constant(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


_IMAGE_ID, _CATEGORY_ID = _constant('image_id"'), _constant('category_id"')
_BBOX, _SCORE = _constant('bbox"'), _constant('score"')
_TRUE, _FALSE, _NULL = _constant("true"), _constant("false"), _constant("null")
_ESCAPES = _constant('"\\/bfnrt')
_QUOTE, _BACKSLASH, _COMMA, _COLON, _LOWER_U, _ZERO, _NINE = b'"\\,:u09'
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = b"[]{}"

_HAS_IMAGE_ID, _HAS_CATEGORY_ID, _HAS_BBOX, _HAS_SCORE, _HAS_ALL = 1, 2, 4, 8, 15
_DEEPEST = 60  # levels of a skipped value, one bit each
# a typed constant, unlike a literal, does not make numba compile its callee once more
_I0: Any = np.int64(0)
_I4: Any = np.int64(4)


@numba.njit(cache=True, nogil=True)
def scan_results(
    buffer: Any, start: int, size: int, state: int, ids: Any, values: Any, hard: Any
) -> tuple[int, int, int, int]:
    """Read as many whole records as the buffer holds and the columns take.

    Args:
        buffer: Bytes of the file; the one at `size` must be 0.
        start: Where to begin.
        size: How many bytes are valid.
        state: The state after the previous call, at first `BEFORE_LIST`.
        ids: Filled with image and category ids, int64 [rows, 2].
        values: Filled with x, y, width, height and score, float64 [rows, 5].
        hard: Filled with row, column, start and end of the numbers that are too hard to convert
            here (int64, at least 5 rows); the caller must convert those.

    Returns:
        The state; the position of the first unread byte; how many rows and hard numbers came.
    """
    row = n_hard = _I0
    position = start
    while row < len(ids) and n_hard + N_VALUES <= len(hard):
        position = _skip_space(buffer, position)
        if position == size:
            break
        byte = buffer[position]
        if state == AFTER_COMMA or (state == AFTER_OPEN and byte != _CLOSE_LIST):
            end, n_hard = _scan_record(buffer, position, row, ids, values, hard, n_hard)
            if end == -1 - size:
                break
            if end < 0:
                return MALFORMED, position, row, n_hard
            state, position, row = AFTER_RECORD, end, row + 1
            continue
        state = _next_state(state, byte)
        if state == MALFORMED:
            break
        position += 1
    return state, position, row, n_hard


@inlined
def _next_state(state: int, byte: int) -> int:
    """Where the scanner stands after one of the bytes between the records."""
    if state == BEFORE_LIST and byte == _OPEN_LIST:
        return AFTER_OPEN
    if state == AFTER_RECORD and byte == _COMMA:
        return AFTER_COMMA
    if state in (AFTER_OPEN, AFTER_RECORD) and byte == _CLOSE_LIST:
        return AFTER_LIST
    return MALFORMED


@inlined
def _scan_record(
    buffer: Any, i: int, row: int, ids: Any, values: Any, hard: Any, n_hard: int
) -> tuple[int, int]:
    """Read one object that holds each of the four keys once, and any others."""
    if buffer[i] != _OPEN_OBJECT:
        return -1 - i, n_hard
    first_hard, seen = n_hard, 0
    while True:
        key = _skip_space(buffer, i + 1)
        i, bit = _scan_key(buffer, key)
        if i < 0:
            return i, first_hard
        if seen & bit:
            return -1 - key, first_hard
        seen |= bit
        i = _skip_colon(buffer, i)
        if i < 0:
            return i, first_hard
        if bit in (_HAS_IMAGE_ID, _HAS_CATEGORY_ID):
            i = _scan_integer(buffer, i, ids, row, bit - 1)  # bits 1 and 2 are columns 0 and 1
        elif bit == _HAS_BBOX:
            i, n_hard = _scan_box(buffer, i, row, values, hard, n_hard)
        elif bit == _HAS_SCORE:
            i, n_hard = _scan_float(buffer, i, row, _I4, values, hard, n_hard)
        else:
            i = _skip_value(buffer, i)
        if i < 0:
            return i, first_hard
        i = _skip_space(buffer, i)
        if buffer[i] != _COMMA:
            break
    if buffer[i] != _CLOSE_OBJECT or seen != _HAS_ALL:
        return -1 - i, first_hard
    return i + 1, n_hard


@inlined
def _scan_key(buffer: Any, i: int) -> tuple[int, int]:
    """Skip a key; also gives its bit, or 0 for one we do not read."""
    if buffer[i] != _QUOTE:
        return -1 - i, 0
    end = _match(buffer, i + 1, _IMAGE_ID)
    if end > 0:
        return end, _HAS_IMAGE_ID
    end = _match(buffer, i + 1, _CATEGORY_ID)
    if end > 0:
        return end, _HAS_CATEGORY_ID
    end = _match(buffer, i + 1, _BBOX)
    if end > 0:
        return end, _HAS_BBOX
    end = _match(buffer, i + 1, _SCORE)
    if end > 0:
        return end, _HAS_SCORE
    end = _skip_string(buffer, i)
    for k in range(i, end):
        if buffer[k] == _BACKSLASH:  # may spell one of our keys after all
            return -1 - k, 0
    return end, 0


@inlined
def _match(buffer: Any, i: int, constant: Any) -> int:
    """Skip these very bytes."""
    for k in range(len(constant)):
        if buffer[i + k] != constant[k]:
            return -1 - (i + k)
    return i + len(constant)


@inlined
def _scan_box(
    buffer: Any, i: int, row: int, values: Any, hard: Any, n_hard: int
) -> tuple[int, int]:
    """Read a list of exactly four numbers."""
    if buffer[i] != _OPEN_LIST:
        return -1 - i, n_hard
    for column in range(4):
        i = _skip_space(buffer, i + 1)
        i, n_hard = _scan_float(buffer, i, row, column, values, hard, n_hard)
        if i < 0:
            return i, n_hard
        i = _skip_space(buffer, i)
        if buffer[i] != (_COMMA if column < 3 else _CLOSE_LIST):
            return -1 - i, n_hard
    return i + 1, n_hard


@inlined
def _scan_integer(buffer: Any, i: int, ids: Any, row: int, column: int) -> int:
    """Read a number without fraction and exponent that surely fits 64 bits."""
    end, is_negative, mantissa, _, is_plain = scan_number(buffer, i)
    if end < 0:
        return end
    if mantissa < 0 or not is_plain:
        return -1 - i
    ids[row, column] = -mantissa if is_negative else mantissa
    return end


@inlined
def _scan_float(
    buffer: Any, i: int, row: int, column: int, values: Any, hard: Any, n_hard: int
) -> tuple[int, int]:
    """Read a number; one that cannot be converted here is put on the list of hard ones."""
    end, is_negative, mantissa, power, _ = scan_number(buffer, i)
    if end < 0:
        return end, n_hard
    value = to_float(mantissa, power)
    values[row, column] = -value if is_negative else value
    if np.isnan(value):
        # one by one: numba takes seconds to compile the assignment of a tuple
        hard[n_hard, 0], hard[n_hard, 1] = row, column
        hard[n_hard, 2], hard[n_hard, 3] = i, end
        n_hard += 1
    return end, n_hard


@inlined
def _skip_space(buffer: Any, i: int) -> int:
    while buffer[i] == 32 or 9 <= buffer[i] <= 10 or buffer[i] == 13:
        i += 1
    return i


@inlined
def _skip_colon(buffer: Any, i: int) -> int:
    """Skip from the end of a key to its value."""
    i = _skip_space(buffer, i)
    return _skip_space(buffer, i + 1) if buffer[i] == _COLON else -1 - i


@inlined
def _skip_string(buffer: Any, i: int) -> int:
    """Skip a string of ASCII; other bytes may be broken UTF-8, which is left to `json`."""
    if buffer[i] != _QUOTE:
        return -1 - i
    i += 1
    while buffer[i] != _QUOTE:
        if buffer[i] == _BACKSLASH:
            i = _skip_escape(buffer, i + 1)
            if i < 0:
                return i
        elif buffer[i] < 32 or buffer[i] > 127:
            return -1 - i
        else:
            i += 1
    return i + 1


@numba.njit
def _skip_escape(buffer: Any, i: int) -> int:
    for k in range(len(_ESCAPES)):
        if buffer[i] == _ESCAPES[k]:
            return i + 1
    if buffer[i] != _LOWER_U:
        return -1 - i
    for _ in range(4):
        i += 1
        lower = buffer[i] | 32
        if not (_ZERO <= buffer[i] <= _NINE or 97 <= lower <= 102):
            return -1 - i
    return i + 1


@numba.njit
def _skip_value(buffer: Any, i: int) -> int:
    """Skip a value of any kind; bit k of `is_object` tells the kind of the k-th level outwards."""
    depth = is_object = 0
    while True:
        if buffer[i] == _OPEN_OBJECT or buffer[i] == _OPEN_LIST:
            if depth == _DEEPEST:
                return -1 - i
            is_object = is_object << 1 | (buffer[i] == _OPEN_OBJECT)
            depth += 1
            i = _skip_space(buffer, i + 1)
            if buffer[i] != (_CLOSE_OBJECT if is_object & 1 else _CLOSE_LIST):
                i = _skip_name(buffer, i) if is_object & 1 else i
                if i < 0:
                    return i
                continue
        else:
            i = _skip_scalar(buffer, i)
            if i < 0:
                return i
        i, depth, is_object = _close_levels(buffer, i, depth, is_object)
        if i < 0 or depth == 0:
            return i


@numba.njit
def _close_levels(buffer: Any, i: int, depth: int, is_object: int) -> tuple[int, int, int]:
    """After a value: leave the lists and objects that end here, and go on to the next value."""
    while depth > 0:
        i = _skip_space(buffer, i)
        if buffer[i] == _COMMA:
            i = _skip_space(buffer, i + 1)
            return (_skip_name(buffer, i) if is_object & 1 else i), depth, is_object
        if buffer[i] != (_CLOSE_OBJECT if is_object & 1 else _CLOSE_LIST):
            return -1 - i, depth, is_object
        i, depth, is_object = i + 1, depth - 1, is_object >> 1
    return i, depth, is_object


@numba.njit
def _skip_name(buffer: Any, i: int) -> int:
    i = _skip_string(buffer, i)
    return i if i < 0 else _skip_colon(buffer, i)


@numba.njit
def _skip_scalar(buffer: Any, i: int) -> int:
    if buffer[i] == _QUOTE:
        return _skip_string(buffer, i)
    for literal in (_TRUE, _FALSE, _NULL):
        if buffer[i] == literal[0]:
            return _match(buffer, i, literal)
    return scan_number(buffer, i)[0]
