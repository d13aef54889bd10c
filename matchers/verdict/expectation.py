"""How alike two runs are expected to be: what the user says of them beside the rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matchers.verdict.noise_floor import NoiseFloor

__all__ = ["Expect", "Expectation"]


class Expect(Enum):
    """A preset.

    BITWISE: any difference is red. REDUCTION_ORDER: the same formulas in the same dtypes, sums in another order; red is
    what arithmetic does not explain, an operation's own rounding and what came in (error_propagation.py).
    LOW_PRECISION: the same, where a run may round to the coarsest dtype of the two logs anywhere.
    """

    BITWISE = "bitwise"
    REDUCTION_ORDER = "reduction-order"
    LOW_PRECISION = "low-precision"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the user expects of two runs; by default nothing, and every pair is judged by itself.

    Attributes:
        preset: see `Expect`.
        rtol: relative error up to which a pair is close, for all that no rule speaks of.
        noise: what a third run of the same configuration shows of noise.
    """

    preset: Expect | None = None
    rtol: float | None = None
    noise: NoiseFloor | None = None

    @property
    def explains(self) -> bool:
        """Whether differences are to be explained by what came in, or by noise."""
        return self.noise is not None or self.preset in (Expect.REDUCTION_ORDER, Expect.LOW_PRECISION)

    @property
    def is_open(self) -> bool:
        """Whether nothing is expected."""
        return self.preset is None and self.rtol is None and self.noise is None

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the command line that ask for it."""
        preset = () if self.preset is None else ("--expect", self.preset.value)
        rtol = () if self.rtol is None else ("--rtol", f"{self.rtol:g}")
        return (*preset, *rtol, *(() if self.noise is None else ("--noise", self.noise.path)))
