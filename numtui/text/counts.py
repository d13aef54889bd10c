"""Counts in words: thousands with a comma, one row and two rows."""

from __future__ import annotations

__all__ = ["plural"]


def plural(n: int, one: str, many: str | None = None) -> str:
    """Return `1 row`, `2 rows`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
