"""The text of what a log tells of inputs besides norms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from matchers.logs.input_statistics import pack, unpack, unpacked


def test_the_numbers_of_each_input_come_back() -> None:
    numbers = [[-1.5, 2.0, 0.25, 4294967295.0, *[math.nan] * 4], [*range(8)]]
    first, second = map(unpack, pack(np.array(numbers)))
    assert unpacked(first, 0).tolist() == [-1.5, 2.0, 0.25, 4294967295.0]
    assert all(math.isnan(number) for place in (1, 2) for number in unpacked(first, place))
    assert unpacked(second, 1).tolist() == [4, 5, 6, 7]
    assert unpack(second) == second, "it is a text already"


@pytest.mark.parametrize("text", [b"", b"!", b"AAAA", b"\xff\xfe", unpack(next(pack(np.ones((1, 3)))))])
def test_a_text_that_is_none_tells_nothing(text: bytes) -> None:
    assert all(math.isnan(number) for number in unpacked(text, 0))
