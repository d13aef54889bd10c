"""Constants of `matchers` that limit work: whatever they are, results are equal, as `test_work_limits.py` holds."""

from __future__ import annotations

__all__ = ["LIMITS"]

LIMITS: dict[tuple[str, str], tuple[int, ...]] = {}
