"""Sizes of files as text."""

from __future__ import annotations

__all__ = ["shown_size"]


def shown_size(size: int) -> str:
    """Return a number of bytes as `1.5 MiB`."""
    value, units = float(size), iter(("KiB", "MiB", "GiB"))
    unit = "bytes"
    while value >= 1024 and (larger := next(units, None)):
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
