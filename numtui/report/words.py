"""Small words that all formats share."""

from __future__ import annotations

__all__ = ["count"]


def count(n: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
