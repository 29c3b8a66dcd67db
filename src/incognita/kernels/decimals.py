"""Turns the decimal digits of a JSON number into the nearest float64, bit for bit as `float` does.

These functions are compiled into `json_scanning.scan_results`, whose cache on disk does not notice
a change of this file; `DECIMALS` there makes it notice.
"""

from typing import Any

import numba
import numpy as np

# by LLVM, which makes the scan 1.7 times as fast as leaving the choice to it
inlined = numba.njit(error_model="numpy", forceinline=True)

_MINUS, _PLUS, _POINT, _ZERO, _NINE, _LOWER_E, _UPPER_E = b"-+.09eE"
_MANTISSA_ROOM = 10**17  # one more digit still fits a signed 64-bit integer
_LARGEST_EXACT = 2**53
_EXACT_POWERS = np.array([float(f"1e{power}") for power in range(23)])


def _five_to_the(power: int) -> int:
    """Give the first 128 bits of a power of five; short reciprocals are rounded up (Lemire)."""
    if power >= 0:
        digits: int = 5**power << 128
        return digits >> (digits.bit_length() - 128)
    divisor: int = 5**-power
    return (1 << (divisor.bit_length() + 127)) // divisor + (power >= -27)


_FIRST_POWER, _LAST_POWER = -342, 308
_FIVES = [_five_to_the(power) for power in range(_FIRST_POWER, _LAST_POWER + 1)]
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
    """Append decimal digits to a mantissa; says at last whether all of them found room."""
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
    """Give the float64 nearest to mantissa * 10**power; NaN where that needs a closer look."""
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
    """Give the upper and the lower 64 bits of a product."""
    a_high, a_low, b_high, b_low = a >> _U32, a & _LOW_HALF, b >> _U32, b & _LOW_HALF
    middle = a_high * b_low + (a_low * b_low >> _U32)
    other = a_low * b_high + (middle & _LOW_HALF)
    return a_high * b_high + (middle >> _U32) + (other >> _U32), a * b
