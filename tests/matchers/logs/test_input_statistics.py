"""The text of what a log tells of inputs besides norms."""

from __future__ import annotations

import math

import pytest

from matchers.logs.input_statistics import pack, unpacked


def test_the_numbers_of_each_input_come_back() -> None:
    text = pack([-1.5, 2.0, 0.25, 4294967295.0, *[math.nan] * 4]).encode()
    assert unpacked(text, 0).tolist() == [-1.5, 2.0, 0.25, 4294967295.0]
    assert all(math.isnan(number) for place in (1, 2) for number in unpacked(text, place))


@pytest.mark.parametrize("text", [b"", b"!", b"AAAA", b"\xff\xfe", pack([1.0] * 3).encode()])
def test_a_text_that_is_none_tells_nothing(text: bytes) -> None:
    assert all(math.isnan(number) for number in unpacked(text, 0))
