"""Whether float arithmetic explains what a row differs by, in words."""

from __future__ import annotations

from matchers.comparison import Comparison
from matchers.facts import format_error
from matchers.status import Status
from matchers.verdict.error_propagation import Ground
from matchers.verdict.expectation import Expect

__all__ = ["ground_of"]


def ground_of(c: Comparison, row: int) -> str:
    """A clause about the difference of a row (`which rounding explains: …`); empty where that was not asked."""
    if c.expectation.preset == Expect.BITWISE and c.status[row] == Status.DIVERGED and c.tolerance[row] == 0:
        return "where equal bits are expected"
    pair = int(c.pair[row])
    if c.arithmetic is None or pair < 0:
        return ""
    g, limit = c.arithmetic, f"{float(c.tolerance[row]):.1e}"
    noise = float(g.noise[pair])
    received = f"inputs that are off by {format_error(float(g.received[pair]), False)}"
    source = f"noise of {noise:.1e} in a third run" if noise > 0 else received if g.received[pair] > 0 else ""
    own = f"{float(g.own[pair]):.1e} of its own rounding" + (f" and {source}" if source else "")
    ground = Ground(g.ground[pair])
    if ground == Ground.EXPLAINED:
        return f"which float arithmetic explains: {own} allow {limit}"
    if ground == Ground.TOO_LARGE:
        return f"more than float arithmetic explains: {own} allow {limit}"
    if ground == Ground.SYSTEMATIC:
        norm, most = f"{float(g.norm[pair]):.1e}", f"{float(g.norm_limit[pair]):.1e}"
        changed = f"the norm changed by {norm}, and rounding moves it by {most} at most"
        return f"more than float arithmetic explains: {changed}"
    return ""
