"""Results that the first frame of a comparison reads, computed beforehand in another thread."""

from __future__ import annotations

from matchers.comparison import Comparison
from matchers.explain.step_numbers import step_numbers

__all__ = ["prepare"]


def prepare(c: Comparison) -> None:
    """Compute what the screen's own thread would wait for. It is kept, so a second call costs nothing."""
    _ = c.coverage, c.comparability, c.first_difference, c.starts, c.further_causes
    if c.flow is not None and not c.single:
        _ = c.regions
    step_numbers(c)
