"""The similarity that the user expects of two runs, beside the rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matchers.verdict.noise_floor import NoiseFloor

__all__ = ["Expect", "Expectation"]


class Expect(Enum):
    """Presets for the expected similarity.

    BITWISE: any difference is red. REDUCTION_ORDER: the same formulas in the same dtypes, with sums in another order; a
    difference is red if neither the operation's own rounding nor its propagated input error explains it
    (error_propagation.py). LOW_PRECISION: the same, and either run may round to the coarsest dtype of both logs
    anywhere.
    """

    BITWISE = "bitwise"
    REDUCTION_ORDER = "reduction-order"
    LOW_PRECISION = "low-precision"


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected similarity of two runs; by default none, and every pair is judged by itself.

    Attributes:
        preset: see `Expect`.
        rtol: relative error up to which a pair is close, unless a rule covers it.
        noise: the noise floor from further runs of the same configuration.
    """

    preset: Expect | None = None
    rtol: float | None = None
    noise: NoiseFloor | None = None

    @property
    def explains(self) -> bool:
        """True if differences are judged against propagated input errors, or noise."""
        return self.noise is not None or self.preset in (Expect.REDUCTION_ORDER, Expect.LOW_PRECISION)

    @property
    def is_open(self) -> bool:
        """True if nothing is expected."""
        return self.preset is None and self.rtol is None and self.noise is None

    @property
    def options(self) -> tuple[str, ...]:
        """The equivalent command-line options."""
        preset = () if self.preset is None else ("--expect", self.preset.value)
        rtol = () if self.rtol is None else ("--rtol", f"{self.rtol:g}")
        return (*preset, *rtol, *(() if self.noise is None else self.noise.option))
