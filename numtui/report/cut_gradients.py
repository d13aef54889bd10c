"""Causes that cut gradients off: lines that detach a tensor in one run alone, and what lacks a gradient by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from matchers.arrays import Bool, marked
from matchers.causes.given_states import read_from
from matchers.comparison import Comparison
from matchers.logs.op_log import Phase
from matchers.ops.dataflow import upstream
from matchers.ops.run_info import detaches
from matchers.status import Status
from numtui.report.called_modules import Called, module_of
from numtui.report.grafts_behind import sharing
from numtui.report.isolation import Found
from numtui.report.lost_gradients import LostGradients
from numtui.report.whereabouts import explains, of_module

__all__ = ["BEHIND_BACKWARD", "behind_cuts", "cut_jointly", "cut_off", "cuts_in", "of_lost"]

BEHIND_BACKWARD: Final = (Phase.GRADIENTS.label, Phase.OPTIMIZER.label)
_CUT: Final = "detach() cuts a gradient here in b"


def cuts_in(c: Comparison, side: int) -> list[str]:
    """Return the lines that detach more tensors in one run; `side`: 0 if it is b, 1 if it is a."""
    return [at for at, *many in detaches(c.a.header.run, c.b.header.run) if many[1 - side] > many[side]]


def behind_cuts(c: Comparison, lost: LostGradients) -> Bool:
    """bool[r]: what one run alone does backward in modules of which the other one's weights have no gradient."""
    alone = (c.pair < 0) & (c.phase == Phase.BACKWARD)
    return alone & c.by_row(lambda log: np.array([*(name in lost.weights for name in log.modules), False])[log.module])


def cut_off(c: Comparison, found: Sequence[Found], lost: LostGradients) -> Iterator[Found]:
    """Yield what cuts a gradient off inside of modules; without a line only if no other cause there is known."""
    known = {cause.line for cause in found}
    cuts = cuts_in(c, 0)
    if len(cuts) > 1:
        cuts = [line for line in cuts if line not in known]
    for module in lost.cut_in:
        if len(cuts) == 1:
            yield of_module(module, Phase.BACKWARD, cuts[0], _CUT, cut=True)
        elif not explains(found, [module], [Phase.FORWARD, Phase.BACKWARD]):
            yield of_module(module, Phase.BACKWARD, what="a gradient ends here in b, and not in a")


def cut_jointly(c: Comparison, called: Called, found: Sequence[Found], modules: Sequence[str]) -> Iterator[Found]:
    """Yield the one line that cuts a gradient off beside the known causes, if such a gradient may be a missing term.

    Args:
        modules: those with a gradient that is no rounding off from the sum of which they make a term.
    """
    known = {cause.line for cause in found}
    cuts = [line for line in cuts_in(c, 0) if line not in known]
    readers = sharing(c.a, called) if len(cuts) == 1 and modules else {}
    for module in modules:
        if module in readers and not explains(found, readers[module], [Phase.FORWARD, Phase.BACKWARD]):
            yield of_module(module, Phase.BACKWARD, cuts[0], _CUT, cut=True)


def of_lost(c: Comparison, cause: Found, lost: LostGradients) -> bool:
    """Return True for what one run alone does to gradients that it alone has, or an optimizer to their weights.

    So it is for what both do by a number that Python read from a result which such gradients are in.
    """
    if not lost.weights or cause.phase not in BEHIND_BACKWARD:
        return False
    if cause.phase == Phase.OPTIMIZER.label:
        return cause.alone and module_of(cause.key_a or cause.key_b) in lost.weights
    rows, over = [*cause.rows], c.pair < 0
    if not cause.alone:  # a number that Python read, as from the norm of all gradients
        reads = [read_from(c, row) for row in cause.rows]
        rows, over = [one for read in reads for one in read] if all(reads) else [], over | (c.status != Status.EQUAL)
    made = upstream(c.edges, marked(rows, len(c)), over) & (c.pair < 0)
    return bool((made & (c.phase == Phase.BACKWARD)).any())
