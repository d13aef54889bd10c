"""Consequences of known causes, in a comparison with grafts: whatever else differs begins anew.

A difference begins in an operation that shows one though what it reads agrees: it gives something else, is asked
something else, reads another tensor than in the other run, or one run alone has it. It spreads over operations that do
not agree, and by

- the backward pass: what differs there in a line that begins a difference is of this line, whatever it reads;
- replacement: what one run alone has, and the other run reads something else for that it alone has;
- exchange: operations of one module that read the same two tensors in place of each other show one mistake;
- wiring: where a module reads another tensor forward, its backward pass does, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from matchers.arrays import Bool, marked
from matchers.comparison import Comparison
from matchers.logs.op_log import Phase
from matchers.ops.dataflow import downstream, upstream

__all__ = ["explained", "read_instead"]


def explained(c: Comparison, known: Iterable[int], open_: Bool) -> Bool:
    """bool[r]: rows in which known causes begin, and those to which they lead.

    Args:
        known: rows that begin causes.
        open_: bool[r], rows that do not agree, over which a difference spreads.
    """
    begin = marked([*known], len(c))
    while True:
        reached = downstream(c.edges, begin, open_ | begin)
        further = begin.copy()
        further[[*_replaced(c, reached), *_exchanged_alike(c, begin, open_), *_wired(c, begin, open_)]] = True
        further |= _backward(c, begin | (reached & (c.pair < 0))) & open_
        if (further == begin).all():
            return reached
        begin = further


def read_instead(c: Comparison, row: int) -> Iterator[tuple[int, int]]:
    """Yield the rows that make an input of a pair in a and in b, where these are no partners."""
    if c.pair[row] < 0 or c.flow is None:
        return
    makers = zip(c.flow.a[int(c.row_a[row])].tolist(), c.flow.b[int(c.row_b[row])].tolist(), strict=False)
    for x, y in makers:
        if min(x, y) >= 0 and c.at_a[x] != c.at_b[y]:
            yield int(c.at_a[x]), int(c.at_b[y])


def _replaced(c: Comparison, reached: Bool) -> Iterator[int]:
    """Yield what one run alone does for a result that is read in place of one that is explained."""
    alone = c.pair < 0
    for row in np.unique(c.edges.row[(reached & alone)[c.edges.value]]).tolist():
        for x, y in read_instead(c, row):
            for one, other in ((x, y), (y, x)):
                if reached[one] and alone[one] and alone[other] and not reached[other]:
                    within = alone & (c.phase == c.phase[other])
                    yield from np.flatnonzero(upstream(c.edges, marked([other], len(c)), within) & within).tolist()
                    yield other


def _exchanged_alike(c: Comparison, begin: Bool, open_: Bool) -> Iterator[int]:
    """Yield rows that read the same two tensors in place of each other as one does in their module that begins."""
    told: set[tuple[int, ...]] = set()
    for row in np.flatnonzero(begin & (c.pair >= 0)).tolist():
        told |= {(c.module[row], *sorted(each)) for each in read_instead(c, row)}
    if told:
        for row in np.flatnonzero(open_ & ~begin & np.isin(c.module, [module for module, *_ in told])).tolist():
            if any((c.module[row], *sorted(each)) in told for each in read_instead(c, row)):
                yield row


def _wired(c: Comparison, begin: Bool, open_: Bool) -> Iterator[int]:
    """Yield rows of the backward pass that read another tensor, in modules in which one that begins does so forward.

    Of those that have no partner it is such as the other run has in this line, too.
    """
    forward = np.flatnonzero(begin & (c.pair >= 0) & (c.phase == Phase.FORWARD)).tolist()
    modules = {int(c.module[row]) for row in forward if any(read_instead(c, row))}
    alone: dict[tuple[int, str, str], list[int]] = {}
    for row in np.flatnonzero(open_ & ~begin & (c.phase == Phase.BACKWARD) & np.isin(c.module, [*modules])).tolist():
        if any(read_instead(c, row)):
            yield row
        elif c.pair[row] < 0:
            log, record = c.shown(row)
            alone.setdefault((int(c.module[row]), log.op_name(record), log.location_text(record)), []).append(row)
    for rows in alone.values():
        if len({bool(c.row_a[row] >= 0) for row in rows}) == 2:
            yield from rows


def _backward(c: Comparison, begin: Bool) -> Bool:
    """bool[r]: the backward pass of the lines of some rows, in their modules."""
    found = np.zeros(len(c), bool)
    for log, at in ((c.a, c.at_a), (c.b, c.at_b)):
        place = log.module.astype(np.int64) * (len(log.locations) + 1) + log.location
        lines = np.unique(place[begin[at] & (log.location >= 0)])
        found[at[(log.phase == Phase.BACKWARD) & np.isin(place, lines)]] = True
    return found
