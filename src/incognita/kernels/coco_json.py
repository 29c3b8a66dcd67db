"""Scan the bytes of a COCO results list, `[{"image_id": …}, …]`, straight into columns.

The scanner is strict: what it does not fully understand it reports as malformed, and the caller
reads the file again with `json`, slowly, which either understands it or says what is wrong.

One trick carries it: the byte after the buffer is 0, which no JSON token contains. Every loop
stops there by itself, and a failure at that very place means "cut off", not "malformed", so the
caller may come back with more bytes. Helpers return the next position, or `-1 - position` of
the byte that is wrong.
"""

from typing import Any

import numba
import numpy as np

# by LLVM, not by numba
inlined = numba.njit(error_model="numpy", forceinline=True)

_MINUS, _PLUS, _POINT, _ZERO, _NINE, _LOWER_E, _UPPER_E = b"-+.09eE"
_MANTISSA_ROOM = 10**17  # one more digit still fits a signed 64-bit integer
_LARGEST_EXACT = 2**53
_EXACT_POWERS = np.array([float(f"1e{power}") for power in range(23)])


# the first 128 bits of the powers of five; short reciprocals are rounded up (Lemire 2021)
_FIRST_POWER, _LAST_POWER = -342, 308
_FIVES = [
    (1 << ((five := 5**-power).bit_length() + 127)) // five + (power >= -27)
    for power in range(_FIRST_POWER, 0)
] + [(five := 5**power << 128) >> (five.bit_length() - 128) for power in range(_LAST_POWER + 1)]
_FIVES_HIGH = np.array([five >> 64 for five in _FIVES], np.uint64)
_FIVES_LOW = np.array([five & (2**64 - 1) for five in _FIVES], np.uint64)

# A typed constant, unlike a literal, does not make numba compile its callee once more; and
# uint64 with a plain integer would become float64.
_I0: Any = np.int64(0)
_U0, _U1, _U3, _U9, _U32, _U52, _U63 = (np.uint64(n) for n in (0, 1, 3, 9, 32, 52, 63))
_LOW_HALF = np.uint64(2**32 - 1)
_UNDECIDED = np.uint64(2**9 - 1)
_HIDDEN_BIT = np.uint64(2**52)


@inlined
def scan_number(buffer: Any, i: int) -> tuple[int, bool, int, int, bool]:
    """Split a JSON number into sign, mantissa and power of ten.

    Returns:
        The next position, or `-1 - position` where it is malformed; whether it is negative; its
        digits as an integer, -1 if they are more than 18; its power of ten; whether it is a plain
        integer, without fraction and exponent.
    """
    is_negative = buffer[i] == _MINUS
    if is_negative:
        i += 1
    first = i
    mantissa, i, fits = _scan_digits(buffer, i, _I0)
    if i == first or (buffer[first] == _ZERO and i > first + 1):
        return -1 - i, False, 0, 0, False
    power, is_plain = 0, True
    if buffer[i] == _POINT:
        first, is_plain = i + 1, False
        mantissa, i, also_fits = _scan_digits(buffer, first, mantissa)
        fits &= also_fits
        power = first - i
        if i == first:
            return -1 - i, False, 0, 0, False
    if buffer[i] == _LOWER_E or buffer[i] == _UPPER_E:
        i += 1
        is_small = buffer[i] == _MINUS
        if is_small or buffer[i] == _PLUS:
            i += 1
        first, is_plain = i, False
        exponent, i, also_fits = _scan_digits(buffer, i, _I0)
        fits &= also_fits
        power += -exponent if is_small else exponent
        if i == first:
            return -1 - i, False, 0, 0, False
    return i, is_negative, mantissa if fits else -1, power, is_plain


@inlined
def _scan_digits(buffer: Any, i: int, mantissa: int) -> tuple[int, int, bool]:
    """Append decimal digits to a mantissa; the last value tells whether all of them fit."""
    fits = True
    while _ZERO <= buffer[i] <= _NINE:
        if mantissa < _MANTISSA_ROOM:
            mantissa = mantissa * 10 + (buffer[i] - _ZERO)
        else:
            fits = False
        i += 1
    return mantissa, i, fits


@inlined
def to_float(mantissa: int, power: int) -> float:
    """Return the float64 nearest to mantissa * 10**power; NaN where that needs a closer look."""
    if mantissa == 0:
        return 0.0
    if mantissa < 0:
        return np.nan
    if mantissa <= _LARGEST_EXACT and -22 <= power <= 22:
        # both numbers are exact in float64, so that one operation rounds once (Clinger 1990)
        scale: float = _EXACT_POWERS[abs(power)]
        return mantissa / scale if power < 0 else mantissa * scale
    return _eisel_lemire(mantissa, power)


@inlined
def _eisel_lemire(mantissa: int, power: int) -> float:
    """Round mantissa * 10**power by its first 128 bits; NaN where it is not a normal number.

    Lemire, Number parsing at a gigabyte per second, 2021, algorithm 1. That 128 bits always
    decide is proven in Mushtak and Lemire, Fast number parsing without fallback, 2023.
    """
    if power < _FIRST_POWER or power > _LAST_POWER:
        return np.nan
    word, shift = _normalize(np.uint64(mantissa))
    high, low = _multiply(word, _FIVES_HIGH[power - _FIRST_POWER])
    if high & _UNDECIDED == _UNDECIDED:
        carry, _ = _multiply(word, _FIVES_LOW[power - _FIRST_POWER])
        low += carry
        if low < carry:
            high += _U1
    upper = high >> _U63
    bits = high >> (upper + _U9)  # 53 bits, and one for rounding
    exponent = ((217706 * power) >> 16) + 1086 + np.int64(upper) - shift
    if exponent <= 0 or exponent >= 2046:
        return np.nan
    is_tie = low <= _U1 and -4 <= power <= 23 and bits << (upper + _U9) == high
    if is_tie and bits & _U3 == _U1:
        bits -= _U1  # exactly between two floats: to the even one
    bits = (bits + (bits & _U1)) >> _U1
    # a carry out of the mantissa adds one to the exponent by itself
    return np.uint64((np.uint64(exponent) << _U52) + (bits - _HIDDEN_BIT)).view(np.float64)


@inlined
def _normalize(word: Any) -> tuple[Any, int]:
    """Shift a word left until its highest bit is set; also by how much."""
    shift, step = 0, 32
    while step:
        if word >> np.uint64(64 - step) == _U0:
            word <<= np.uint64(step)
            shift += step
        step >>= 1
    return word, shift


@inlined
def _multiply(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the upper and the lower 64 bits of a product."""
    a_high, a_low, b_high, b_low = a >> _U32, a & _LOW_HALF, b >> _U32, b & _LOW_HALF
    middle = a_high * b_low + (a_low * b_low >> _U32)
    other = a_low * b_high + (middle & _LOW_HALF)
    return a_high * b_high + (middle >> _U32) + (other >> _U32), a * b


# where in the list the scanner stands between two calls
BEFORE_LIST, AFTER_OPEN, AFTER_RECORD, AFTER_COMMA, AFTER_LIST, MALFORMED = range(6)

N_IDS, N_VALUES = 2, 5  # image and category; x, y, width, height and score
SHORTEST_RECORD = len('{"image_id":0,"category_id":0,"bbox":[0,0,0,0],"score":0},')


_IMAGE_ID, _CATEGORY_ID, _BBOX, _SCORE, _TRUE, _FALSE, _NULL, _ESCAPES = (
    np.frombuffer(text, np.uint8)
    for text in (
        b'image_id"', b'category_id"', b'bbox"', b'score"', b"true", b"false", b"null",
        b'"\\/bfnrt',
    )
)  # fmt: skip
_QUOTE, _BACKSLASH, _COMMA, _COLON, _LOWER_U = b'"\\,:u'
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = b"[]{}"

_HAS_IMAGE_ID, _HAS_CATEGORY_ID, _HAS_BBOX, _HAS_SCORE, _HAS_ALL = 1, 2, 4, 8, 15
_DEEPEST = 60  # levels of a skipped value, one bit each
# a typed constant, unlike a literal, does not make numba compile its callee once more
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
        The state; the position of the first unread byte; the numbers of rows and of hard numbers.
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
    """Return where the scanner stands after one of the bytes between the records."""
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
    """Skip a key and return its bit, or 0 for one we do not read."""
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
