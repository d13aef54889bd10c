"""Ranks in words."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from numtui.text.ranks import ranks_words


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((), "no rank"),
        ((2,), "rank 2"),
        ((1, 0), "ranks 0, 1"),
        ((11, 0, 1, 2, 3, 8, 9, 10), "ranks 0–3, 8–11"),
        (range(16_384), "ranks 0–16383"),
        (range(0, 1024, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, … (512 in all)"),
        (range(10_000_000, 10_000_100, 2), "ranks 10000000, 10000002, 10000004, 10000006, … (50 in all)"),
    ],
)
def test_ranks_are_ranges_and_not_too_many(ranks: Collection[int], words: str) -> None:
    assert ranks_words(ranks) == words
