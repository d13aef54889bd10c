"""Parse printed numbers to float64, thousands at a time.

A log is mostly numbers printed with `%.6e` (torchtitan's) or with `repr` (our own). The first form takes twelve bytes,
read as two machine words and decoded by arithmetic on whole arrays; numpy reads the second. Everything else (`nan`,
`inf`, garbage) goes through `float`. All paths round correctly: `parse_numbers(format(x, ".6e")) == float(format(x,
".6e"))`.
"""

from __future__ import annotations

import re

import numpy as np

from capture.log_format import UNKNOWN_DIGEST
from matchers.arrays import Bool, Float64, Hash, Int64
from matchers.logs.byte_words import Words, WordSet
from matchers.logs.op_log import NO_DIGEST

__all__ = ["parse_digests", "parse_numbers"]

_U = np.uint64
_ZEROS = _U(0x3030303030303030)
_HIGH = _U(0x8080808080808080)
_OVER_9 = _U(0x7676767676767676)
_PAIRS = _U(0x000000FF000000FF)
_POWERS = np.arange(-22, 23)
"""Powers of ten that scale a seven-digit integer; 10^22 is the largest that is exact in float64."""
_EXPONENTS = WordSet([int.from_bytes(b"e%+03d" % (power + 6), "little") for power in _POWERS.tolist()])
_FACTORS = 10.0 ** np.maximum(_POWERS, 0)
_DIVISORS = 10.0 ** np.maximum(-_POWERS, 0)

_MAX_REPR_LENGTH = 24
"""Length of the longest `repr` of a float64, `-2.2250738585072014e-308`."""
_FIRST_BYTES = np.array([(1 << (8 * k)) - 1 for k in range(9)], np.uint64)
"""Masks that keep the first k bytes of a word, k = 0 … 8."""

_HEXADECIMAL = re.compile(rb"[0-9a-fA-F]{1,16}")
_UNKNOWN = UNKNOWN_DIGEST.encode()
_NO_DIGIT = np.uint8(0xFF)
_DIGITS = np.full(256, _NO_DIGIT)
_DIGITS[list(b"0123456789abcdef")] = np.arange(16)
_DIGITS[list(b"ABCDEF")] = np.arange(10, 16)


def parse_digests(buffer: bytes, words: Words, start: Int64, end: Int64) -> tuple[Hash, Bool]:
    """Parse the hexadecimal numbers at `buffer[start[i]:end[i]]`.

    Returns (values, bad): bad[i] marks text that is no digest; values[i] is `NO_DIGEST` there and for the dash that
    stands for a digest not taken.
    """
    text = np.stack((words.at(start), words.at(start + 8)), axis=1).view(np.uint8)
    digits = _DIGITS[text]
    fits = (end - start == 16) & (digits.max(axis=1, initial=0) != _NO_DIGIT)
    pairs = (digits[:, 0::2] << 4) | (digits[:, 1::2] & 0xF)
    value = np.ascontiguousarray(pairs[:, ::-1]).view("<u8").reshape(-1).astype(np.uint64)
    bad = np.zeros(len(start), bool)
    for i in np.flatnonzero(~fits).tolist():
        text_i = buffer[start[i] : end[i]]
        if _HEXADECIMAL.fullmatch(text_i):
            value[i] = int(text_i, 16)
        else:
            value[i] = NO_DIGEST
            bad[i] = text_i != _UNKNOWN
    return value, bad


def parse_numbers(buffer: bytes, words: Words, start: Int64, end: Int64) -> tuple[Float64, Bool]:
    """Parse the numbers at `buffer[start[i]:end[i]]`.

    Returns (values, bad): bad[i] marks text that is no number, and values[i] is NaN there. `nan` and `inf` are numbers.
    """
    # a log prints all its numbers in one format
    if np.count_nonzero((end - start == 12) | (end - start == 13)) * 2 >= len(start):
        value, fits = _seven_digits(words, start, end)
        others = np.flatnonzero(~fits)
        if len(others):
            value[others], fits[others] = _repr_numbers(words, start[others], end[others])
    else:
        value, fits = _repr_numbers(words, start, end)
    bad = np.zeros(len(start), bool)
    for i in np.flatnonzero(~fits).tolist():
        text = buffer[start[i] : end[i]]
        try:
            if b"_" in text or len(text) > 400:
                raise ValueError
            value[i] = float(text)
        except ValueError:
            value[i], bad[i] = np.nan, True
    return value, bad


def _seven_digits(words: Words, start: Int64, end: Int64) -> tuple[Float64, Bool]:
    """Parse numbers printed with `%.6e`: (values, mask of those in that form)."""
    length = end - start
    fits = length == 12
    signed = np.flatnonzero(length == 13)
    negative = signed[(words.at(start[signed]) & _U(0xFF)) == _U(0x2D)]
    fits[negative] = True

    # d.dddddd -> 0ddddddd, then eight digits at once
    text = words.at(end - 12)
    fits &= (text & _U(0xFF00)) == _U(0x2E00)
    digits = (text & _U(0xFFFFFFFFFFFF0000)) | ((text & _U(0xFF)) << _U(8)) | _U(0x30)
    digits ^= _ZEROS
    fits &= ((digits + _OVER_9) | digits) & _HIGH == 0
    digits = digits * _U(10) + (digits >> _U(8))
    mantissa = (
        (digits & _PAIRS) * _U(0x000F424000000064) + ((digits >> _U(16)) & _PAIRS) * _U(0x0000271000000001)
    ) >> _U(32)

    exponent = _EXPONENTS.find(words.at(end - 8) >> _U(32))
    fits &= exponent >= 0
    # one of the two factors is 1: a single rounding
    value = mantissa.view(np.int64) / _DIVISORS.take(exponent) * _FACTORS.take(exponent)
    value[negative] = -value[negative]
    return value, fits


def _repr_numbers(words: Words, start: Int64, end: Int64) -> tuple[Float64, Bool]:
    """Parse numbers as `repr` prints them, with numpy: (values, mask of those in that form)."""
    length = end - start
    fits = (length > 0) & (length <= _MAX_REPR_LENGTH)
    fits &= words.at(np.maximum(end - 1, 0)) & _U(0xFF) != 0  # numpy treats trailing zero bytes as padding
    at, length = start[fits], length[fits]
    text = np.empty((len(at), _MAX_REPR_LENGTH // 8), "<u8")
    for k in range(text.shape[1]):
        np.bitwise_and(words.at(at + 8 * k), _FIRST_BYTES[np.clip(length - 8 * k, 0, 8)], out=text[:, k])
    value = np.full(len(start), np.nan)
    if not (text.view(np.uint8) == ord("_")).any():
        try:
            with np.errstate(over="ignore"):  # 1e999 is inf, as with `float`
                value[fits] = text.view(f"S{_MAX_REPR_LENGTH}")[:, 0].astype(np.float64)
        except ValueError:
            pass
        else:
            return value, fits
    # at least one only looks like a number: leave all to `float`
    return value, np.zeros(len(start), bool)
