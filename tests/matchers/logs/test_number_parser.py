"""Printed numbers become the doubles that `float` would make of them, to the last bit."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from matchers.logs.byte_words import PADDING, Words
from matchers.logs.number_parser import parse_numbers

floats = st.floats(allow_nan=False)


def parse(texts: list[bytes], before: bytes = b"") -> tuple[list[float], list[bool]]:
    """The numbers of a buffer in which the texts stand side by side, `before` in front to move them about."""
    buffer = before + b",".join(texts) + bytes(PADDING)
    length = np.array([len(text) for text in texts], np.int64)
    start = len(before) + np.cumsum(length + 1) - length - 1
    value, bad = parse_numbers(buffer, Words(buffer), start, start + length)
    return value.tolist(), bad.tolist()


def same(x: float, y: float) -> bool:
    """Equal bits: tells 0.0 from -0.0."""
    return struct.pack("d", x) == struct.pack("d", y)


@given(st.lists(floats, max_size=30), st.integers(0, 9))
@example([0.0, -0.0, 9.9999995, 1e22, 1e-22, 1e23, 1e-16, 1e28, 1e29, 5e-324, 1.7976931348623157e308], 3)
def test_seven_digits_become_what_float_makes_of_them(numbers: list[float], shift: int) -> None:
    texts = [f"{number:.6e}".encode() for number in numbers]
    value, bad = parse(texts, b"x" * shift)
    assert not any(bad)
    assert all(same(v, float(text)) for v, text in zip(value, texts, strict=True)), texts


@pytest.mark.parametrize("exponent", range(-45, 46))
def test_every_exponent_a_float32_can_have(exponent: int) -> None:
    """Also those around 22, up to which a power of ten is exact."""
    texts = [f"{sign}{mantissa}e{exponent:+03d}".encode() for sign in ("", "-") for mantissa in MANTISSAS]
    value, bad = parse(texts)
    assert not any(bad)
    assert all(same(v, float(text)) for v, text in zip(value, texts, strict=True))


MANTISSAS = ("0.000000", "1.000000", "1.000001", "1.234567", "9.999999", "5.000000", "7.777777", "3.141593")


@given(st.lists(floats, max_size=30))
def test_numbers_that_round_trip_do(numbers: list[float]) -> None:
    value, bad = parse([repr(number).encode() for number in numbers])
    assert not any(bad)
    assert all(same(v, number) for v, number in zip(value, numbers, strict=True))


AROUND = (2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63, 2**64 - 1, 10**19 - 1, 10**16, 9007199254740993, 1)


@pytest.mark.parametrize("exponent", range(-330, 320, 3))
def test_digits_that_no_double_has_are_rounded_as_float_rounds_them(exponent: int) -> None:
    """Halves between two doubles, and what is just beside them; where doubles end, too."""
    texts = [f"{mantissa}e{exponent:+03d}".encode() for mantissa in AROUND]
    texts += [f"{str(m)[0]}.{str(m)[1:] or 0}e{exponent:+03d}".encode() for m in AROUND]
    value, bad = parse(texts, b"x" * 30)
    assert not any(bad)
    assert all(same(v, float(text)) for v, text in zip(value, texts, strict=True)), texts


@given(st.lists(st.floats(-1e5, 1e5) | floats, min_size=1, max_size=60), st.integers(24, 31))
def test_a_log_of_our_own_keeps_every_bit(numbers: list[float], shift: int) -> None:
    value, bad = parse([repr(number).encode() for number in numbers], b"x" * shift)
    assert not any(bad)
    assert all(same(v, number) for v, number in zip(value, numbers, strict=True))


@given(st.lists(st.text("0123456789.e+- x", max_size=26), max_size=20))
def test_what_only_looks_like_a_long_number(texts: list[str]) -> None:
    value, bad = parse([text.encode() for text in texts], b"x" * 24)
    for text, v, wrong in zip(texts, value, bad, strict=True):
        try:
            expected = float(text)
        except ValueError:
            assert wrong
        else:
            assert not wrong
            assert same(v, expected)


def test_nan_and_infinity_are_numbers() -> None:
    value, bad = parse([b"nan", b"inf", b"-inf", b"1e999", b"-1e999"])
    assert not any(bad)
    assert np.isnan(value[0])
    assert value[1:] == [np.inf, -np.inf, np.inf, -np.inf]


ALMOST = (
    *(
        b"",
        b" ",
        b"-",
        b"e",
        b"1_0",
        b"1.35_316e+02",
        b"1.357316e+0x",
        b"1.357316e 02",
        b"1,357316e+02",
        b"1.3573a6e+02",
    ),
    *(b"x.357316e+02", b"1.357316f+02", b"--1.35731e+02", b"1.357316e+:2", b"/.357316e+02", b":.357316e+02", b"0x10"),
    *(b"1.\x00\x00\x00\x00\x00\x00e+02", b"1.\xb1\xb1\xb1\xb1\xb1\xb1e+02", b"9" * 401, b"None", b"\xd9\xa1"),
)


@pytest.mark.parametrize("text", ALMOST)
def test_what_is_no_number_is_bad_and_nan(text: bytes) -> None:
    value, bad = parse([b"1.000000e+00", text, b"2.000000e+00"])
    assert bad == [False, True, False]
    assert value[0] == 1.0
    assert np.isnan(value[1])
    assert value[2] == 2.0


@given(st.lists(st.text("0123456789.eE+-naif_ x", max_size=14), max_size=20))
def test_anything_else_is_as_float_has_it(texts: list[str]) -> None:
    value, bad = parse([text.encode() for text in texts])
    for text, v, wrong in zip(texts, value, bad, strict=True):
        try:
            expected = float("x" if "_" in text else text)
        except ValueError:
            assert wrong
            assert np.isnan(v)
        else:
            assert not wrong
            assert same(v, expected) or (np.isnan(v) and np.isnan(expected))


def test_no_numbers_at_all() -> None:
    assert parse([]) == ([], [])
