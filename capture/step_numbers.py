"""Numbers of the steps to record: a few, every n-th, or both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["StepNumbers"]


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """Some steps, counted from 1.

    Attributes:
        numbers: these.
        every: and the multiples of these.
    """

    numbers: frozenset[int]
    every: frozenset[int] = frozenset()

    @classmethod
    def of(cls, steps: StepNumbers | Iterable[int]) -> StepNumbers:
        """Return the steps of a list of numbers."""
        return steps if isinstance(steps, StepNumbers) else cls(frozenset(steps))

    def __contains__(self, step: int) -> bool:
        return step in self.numbers or any(step % n == 0 for n in self.every)

    @property
    def several(self) -> bool:
        """True unless it is one step."""
        return bool(self.every) or len(self.numbers) > 1

    @property
    def last(self) -> float:
        """The last one; infinite where there is none, 0 without any."""
        return float("inf") if self.every else max(self.numbers, default=0)

    def following(self, step: int) -> int | None:
        """Return the first one after a step."""
        later = [number for number in self.numbers if number > step]
        return min([*later, *((step // n + 1) * n for n in self.every)], default=None)
