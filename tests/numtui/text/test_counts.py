"""Counts read as a person would write them."""

from __future__ import annotations

import pytest

from numtui.text.counts import plural


@pytest.mark.parametrize(
    ("n", "told"), [(0, "0 copies"), (1, "1 copy"), (2, "2 copies"), (1_234_567, "1,234,567 copies")]
)
def test_plural(n: int, told: str) -> None:
    assert plural(n, "copy", "copies") == told
    assert plural(n, "row") == told.replace("copies", "rows").replace("copy", "row")
