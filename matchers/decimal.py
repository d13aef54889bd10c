"""Decimal numbers of any length to float64, thousands at a time: `0.8414709848078965`, `-1.5e-07`, `12`.

The digits become an integer m of at most nineteen digits and a power of ten q. Where m and 10^|q| are exact in float64,
one multiplication or division rounds correctly. Elsewhere m·10^q is computed in 64 × 64 bits with the first 64 bits of
the power (Lemire, "Number parsing at a gigabyte per second", 2021): in all but about one of 250 cases these decide how
to round, and the others are left to `float`.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Float64, Hash, Int64
from matchers.words import Words

__all__ = ["read"]


_U = np.uint64
_ZEROS = _U(0x3030303030303030)
_HIGH = _U(0x8080808080808080)
_LOW = _U(0x0101010101010101)
_OVER_9 = _U(0x7676767676767676)
_DOTS = _U(0x2E2E2E2E2E2E2E2E)
_PAIRS = _U(0x000000FF000000FF)
_HALF = _U(0xFFFFFFFF)
_KEEP_LAST = np.array([0, *(((1 << (8 * k)) - 1) << (64 - 8 * k) for k in range(1, 9))], np.uint64)
"""Masks for the last k of eight bytes; the last byte of a text is the highest of a little-endian word."""
_EXACT = 10.0 ** np.arange(23)
_TENS = 10 ** np.arange(20, dtype=np.uint64)
_LONGEST = 24
"""Characters of the digits before the exponent, at most: `repr` needs no more."""
_LEAST, _MOST = -290, 290
"""Powers of ten that are read here: far from where doubles are subnormal or overflow."""


def _powers() -> tuple[Hash, Int64]:
    """10^q = p · 2^e (rounded down), 2^63 ≤ p < 2^64, for q from `_LEAST` on."""
    mantissas, exponents = [], []
    for q in range(_LEAST, _MOST + 1):
        value = 10**q if q >= 0 else (1 << 1200) // 10**-q
        shift = value.bit_length() - 64
        mantissas.append(value >> shift if shift >= 0 else value << -shift)
        exponents.append(shift if q >= 0 else shift - 1200)
    return np.array(mantissas, np.uint64), np.array(exponents, np.int64)


_POWER, _POWER_EXPONENT = _powers()


def read(words: Words, start: Int64, end: Int64) -> tuple[Float64, Bool]:
    """The numbers between positions: (values, read). A value means something only where `read` is True."""
    first = words.at(start)
    negative = (first & _U(0xFF)) == _U(0x2D)
    at = start + negative
    # digits are read in words that end where they do, so there must be something in front of them
    ok = (end - at > 0) & (at >= _LONGEST)
    last = np.maximum(end, 8)
    stop, exponent, ok = _exponent(words.at(last - 8), end, ok)
    ok &= (stop - at > 0) & (stop - at <= _LONGEST)

    dot = _find_dot(words, at, stop)
    has_dot = dot < stop
    ok &= (dot > at) & ~(has_dot & (dot + 1 == stop))
    whole, ok = _digits(words, dot, dot - at, ok)
    behind = np.where(has_dot, stop - dot - 1, 0)
    fraction, ok = _digits(words, stop, behind, ok)
    ok &= (whole == 0) | (dot - at + behind <= 19)
    m = whole * _TENS[np.minimum(behind, 19)] + fraction
    q = exponent - behind

    value, exact = _multiplied(m, q)
    hard = np.flatnonzero(ok & ~exact)
    if len(hard):
        value[hard], sure = _rounded(m[hard], q[hard])
        ok[hard] &= sure
    return np.where(negative, -value, value), ok


def _exponent(tail: Hash, end: Int64, ok: Bool) -> tuple[Int64, Int64, Bool]:
    """(where the digits before the exponent end, the exponent, still readable); `tail` are the last eight bytes."""

    def byte(k: int) -> Int64:
        """The k-th byte from the end."""
        return ((tail >> _U(64 - 8 * k)) & _U(0xFF)).astype(np.int64)

    ones, tens, third = byte(1) - 0x30, byte(2) - 0x30, byte(3)
    short, long = byte(4) == 0x65, byte(5) == 0x65  # e±dd, e±ddd
    short &= ~long
    hundreds = np.where(long, third - 0x30, 0)
    sign = np.where(long, byte(4), third)
    size = np.where(short, 4, np.where(long, 5, 0))
    with_exponent = size > 0
    digits = (ones >= 0) & (ones < 10) & (tens >= 0) & (tens < 10) & (hundreds >= 0) & (hundreds < 10)
    ok = ok & (~with_exponent | (digits & ((sign == 0x2B) | (sign == 0x2D))))
    number = hundreds * 100 + tens * 10 + ones
    return end - size, np.where(with_exponent & ok, np.where(sign == 0x2D, -number, number), 0), ok


def _find_dot(words: Words, at: Int64, stop: Int64) -> Int64:
    """Where the first dot is; `stop` where there is none before."""
    dot = stop.copy()
    open_ = np.arange(len(at))
    for k in range(0, _LONGEST, 8):
        x = words.at(at[open_] + k) ^ _DOTS
        # the lowest byte that is zero is marked surely; higher marks may be wrong
        mark = (x - _LOW) & ~x & _HIGH
        lowest = mark & (~mark + _U(1))
        found = mark != 0
        bit = (lowest[found].astype(np.float64).view(np.int64) >> 52) - 1023
        dot[open_[found]] = at[open_[found]] + k + (bit >> 3)
        open_ = open_[~found]
        open_ = open_[at[open_] + k + 8 < stop[open_]]
        if not len(open_):
            break
    return np.minimum(dot, stop)


def _digits(words: Words, end: Int64, length: Int64, ok: Bool) -> tuple[Hash, Bool]:
    """The integers whose digits end at `end`, of at most nineteen digits that count."""
    total = np.zeros(len(end), np.uint64)
    place = np.maximum(end, _LONGEST)
    for k in range(0, _LONGEST, 8):
        width = np.clip(length - k, 0, 8)
        if k and not width.any():
            break
        digits = (words.at(place - k - 8) ^ _ZEROS) & _KEEP_LAST[width]
        ok = ok & (((digits + _OVER_9) | digits) & _HIGH == 0)
        digits = digits * _U(10) + (digits >> _U(8))
        part = (
            (digits & _PAIRS) * _U(0x000F424000000064) + ((digits >> _U(16)) & _PAIRS) * _U(0x0000271000000001)
        ) >> _U(32)
        if k == 16:
            ok = ok & (part < 1000)
            part = np.where(part < 1000, part, _U(0))
        total = total + part * _TENS[k]
    return total, ok


def _multiplied(m: Hash, q: Int64) -> tuple[Float64, Bool]:
    """m·10^q by one operation on doubles, and where that is correctly rounded."""
    size = np.abs(q)
    exact = (m <= _U(1 << 53)) & (size <= 22) | (m == 0)
    power = _EXACT[np.where(size <= 22, size, 0)]
    number = m.astype(np.float64)
    return np.where(q < 0, number / power, number * power), exact


def _rounded(m: Hash, q: Int64) -> tuple[Float64, Bool]:
    """m·10^q for m > 0, correctly rounded where the second result is True."""
    sure = (q >= _LEAST) & (q <= _MOST)
    at = np.where(sure, q, 0) - _LEAST
    # as many leading zeros as the double says, or one more where m was rounded up to a power of two
    bits = (m.astype(np.float64).view(np.int64) >> 52) - 1023
    shift = (63 - bits).clip(0, 63).astype(np.uint64)
    w = m << shift
    again = (w >> _U(63) == 0) & (w != 0)
    w, shift = np.where(again, w << _U(1), w), shift + again.astype(np.uint64)
    high = _high_product(w, _POWER[at])
    top = high >> _U(63)
    # 54 bits: the last one rounds
    drop = _U(9) + top
    mantissa = high >> drop
    rest = high & ((_U(1) << drop) - _U(1))
    # the product is at most 1 below the true one (in units of the last bit of `high`), never above it
    sure &= (rest < (_U(1) << drop) - _U(2)) & (rest > _U(1))
    mantissa = (mantissa + (mantissa & _U(1))) >> _U(1)
    exponent = _POWER_EXPONENT[at] + 64 + drop.astype(np.int64) + 1 - shift.astype(np.int64)
    sure &= (exponent > -1070) & (exponent < 960)
    return np.ldexp(mantissa.astype(np.float64), np.where(sure, exponent, 0).astype(np.int32)), sure


def _high_product(x: Hash, y: Hash) -> Hash:
    """The upper 64 bits of the product of two words."""
    x_low, x_high, y_low, y_high = x & _HALF, x >> _U(32), y & _HALF, y >> _U(32)
    low = x_low * y_low
    middle = x_high * y_low + (low >> _U(32))
    other = x_low * y_high + (middle & _HALF)
    return x_high * y_high + (middle >> _U(32)) + (other >> _U(32))
