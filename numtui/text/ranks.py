"""Ranks in words, of a length that fits a line."""

from __future__ import annotations

from collections.abc import Collection

from matchers.runs.finding import listed

__all__ = ["ranges", "ranks_words"]

_MAX_TEXT = 40


def ranges(numbers: Collection[int]) -> str:
    """Return `0–3, 8`; of very many the first, and their count."""
    text = listed(numbers)
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT].rpartition(', ')[0]}, … ({len(numbers):,} in all)"


def ranks_words(ranks: Collection[int]) -> str:
    """Return `rank 2`, `ranks 0–3, 8`; `no rank` for none."""
    return f"rank{'s' * (len(ranks) > 1)} {ranges(ranks)}" if ranks else "no rank"
