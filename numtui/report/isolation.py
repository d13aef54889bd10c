"""The outcome of an isolation: causes, own errors of modules, what was grafted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from numtui.report.own_errors import OwnError
from numtui.text.counts import plural

__all__ = ["LEAST", "Found", "Isolation", "Place", "limit_of"]

Place = tuple[int | None, int | None]
"""A row in the explorer: by its record in a, or else by its line in the log of b."""


@dataclass(frozen=True)
class Found:
    """A cause that was isolated.

    Attributes:
        key_a, key_b: of its first operation, empty in a run that lacks it; both are where no operation tells.
        rows: of the comparison that start it.
        module: the called module that it lies in; empty outside of all.
        phase: of the step.
        line: source line, of b where it has one.
        sentence: what differs.
        alone: one run alone has this operation.
        place: of the first row; None where no operation tells.
        cut: its line cuts a gradient; what lacks that may begin in several modules.
        first: a first cause of the comparison, which tells it without kept boundaries.
        also: further modules that run this line and show the same.
    """

    key_a: str
    key_b: str
    rows: tuple[int, ...]
    module: str
    phase: str
    line: str
    sentence: str
    alone: bool = False
    place: Place | None = None
    cut: bool = False
    first: bool = False
    also: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it ready for JSON, without what only this comparison knows."""
        names = ("key_a", "key_b", "module", "phase", "line", "sentence")
        return {name: getattr(self, name) for name in names} | {"also_in": [*self.also], "operations": len(self.rows)}


LEAST: Final = 16.0
"""ε that a module may always add by itself: a thousand roundings one after the other, each of half an ε, in random
directions.
"""
_CANCELLED: Final = 8.0
"""Times this in float32 and float64, where no bug is that small: a sum is no larger than its terms, whose rounding it
has, as the gradient of a bias.
"""
_COARSE: Final = ("bfloat16", "float16")
_PEERS: Final = 8.0
"""Times the median of all modules that one may add, where both runs have other kernels or another precision."""


def limit_of(errors: Iterable[OwnError]) -> float:
    """Return the ε above which an error of a module is none of rounding."""
    errors = [*errors]
    sizes = [size for each in errors for size in (each.forward, each.backward, each.weights, each.joint)]
    least = LEAST if any(each.dtype in _COARSE for each in errors) else LEAST * _CANCELLED
    return max(least, _PEERS * median([size for size in sizes if size is not None] or [0.0]))


@dataclass(frozen=True)
class Isolation:
    """The outcome of an isolation.

    Attributes:
        names: of both runs.
        runs: number of captures.
        causes: that are independent of each other.
        red: number of red rows of the last comparison.
        errors: own errors of modules.
        grafted: what was grafted in the last capture.
        missed: why some of it was not.
        open: why there may be more causes; empty if there are none.
        places: rows of modules with errors of their own.
        limit: ε that rounding may add; modules with less are only counted. Zero: each module is shown.
    """

    names: tuple[str, str]
    runs: int
    causes: Sequence[Found]
    red: int
    errors: Sequence[OwnError]
    grafted: Sequence[str]
    missed: Mapping[str, str]
    open: str = ""
    places: Mapping[str, Place] = field(default_factory=dict)
    limit: float = 0.0

    @property
    def shown(self) -> list[OwnError]:
        """The errors that are no rounding, or all where no limit is set, in the order of the modules."""
        return [error for error in self.errors if not self._rounding(error)]

    @property
    def only_counted(self) -> list[OwnError]:
        """The other errors."""
        return [error for error in self.errors if self._rounding(error)]

    def _rounding(self, error: OwnError) -> bool:
        return self.limit > 0 and error.largest <= self.limit

    @property
    def result(self) -> str:
        """The outcome in a sentence."""
        runs = plural(self.runs, "capture")
        if not self.causes:
            return f"No cause in {runs}: nothing is red" if not self.red else f"No cause in {runs}"
        noun = "independent causes" if len(self.causes) > 1 else "cause"
        return f"{len(self.causes):,} {noun} in {runs}"
