"""Equal inputs give equal results on several ranks: where that stops, replicated values part ways."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.arrays import Int64
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.laws import drawing, law_of, rows_where
from matchers.runs.finding import Check, Finding, Made, Unmade
from matchers.runs.rank_logs import RankLogs, Role, connected

__all__ = ["check_replicated_stays"]


def check_replicated_stays(ranks: RankLogs) -> Iterator[Finding | Made | Unmade]:
    """Yield operations that give other results of equal inputs on two ranks, the first for each pair of ranks.

    Random numbers are inputs, too: those that meet equal values on ranks with one batch must be equal.
    """
    made = 0
    for role in ranks.roles:
        for rank, other, one_batch in _pairs(ranks, role):
            pair = _Pair(ranks, role, rank, other)
            equal = pair.with_equal_inputs()
            made += len(equal)
            wrong = [at for at in equal if pair.differ(at)][:1]
            if not wrong and one_batch:
                wrong = pair.other_draws()
            yield from (pair.finding(at) for at in wrong)
    if made:
        yield Made(Check.REPLICATED_STAYS, made, "operations with equal inputs on two ranks")
    elif len(ranks.logs) > 1:
        yield Unmade(Check.REPLICATED_STAYS, "no operation has equal inputs on two ranks, or there are no digests")


def _pairs(ranks: RankLogs, role: Role) -> Iterator[tuple[int, int, bool]]:
    """Yield pairs of ranks to compare, and whether they work on one batch; each rank is in one pair at least."""
    with_digests = [rank for rank in role.ranks if len(ranks.logs[rank].digests.value)]
    together = connected([*ranks.sharing, *((rank,) for rank in with_digests)])
    sets = [of for found in together if (of := [rank for rank in found if rank in with_digests])]
    for of in sets:
        yield from ((of[0], rank, ranks.batch[rank] == ranks.batch[of[0]] != ()) for rank in of[1:])
    yield from ((sets[0][0], of[0], False) for of in sets[1:])


class _Pair:
    """The operations that two ranks of one role share, by their position in the order of the role's reference."""

    def __init__(self, ranks: RankLogs, role: Role, rank: int, other: int) -> None:
        self._ranks, self._pair = ranks, (rank, other)
        self._a, self._b = ranks.logs[rank], ranks.logs[other]
        both = (role.partner[rank] >= 0) & (role.partner[other] >= 0)
        self._rows = role.partner[rank][both], role.partner[other][both]

    def with_equal_inputs(self) -> list[int]:
        """Operations that their tensors decide, and whose tensors are known and equal."""
        a, b = self._a, self._b
        decided = rows_where(a, lambda law: law.determined, self._rows[0])
        found = []
        for at in np.flatnonzero(decided).tolist():
            one, other = a.input_digests[self._rows[0][at]], b.input_digests[self._rows[1][at]]
            if len(one) and np.array_equal(one, other) and not (one == NO_DIGEST).any():
                found.append(at)
        return found

    def differ(self, at: int) -> bool:
        """True if the first outputs are known and differ."""
        x, y = (log.digests[rows[at]] for log, rows in zip((self._a, self._b), self._rows, strict=True))
        return len(x) > 0 and len(y) > 0 and x[0] != y[0] and NO_DIGEST not in (x[0], y[0])

    def other_draws(self) -> list[int]:
        """The first draw of random numbers that differ, and meet values that do not."""
        a, b, flow = self._a, self._b, self._ranks.flows[self._pair[0]]
        origin = _draw_of(a, flow)
        place = {row: at for at, row in enumerate(self._rows[0].tolist())}
        for row, other in zip(*(rows.tolist() for rows in self._rows), strict=True):
            makers = flow[row]
            drawn = np.append(origin, -1)[makers]
            if (drawn < 0).all() or (drawn >= 0).all() or origin[row] >= 0:
                continue
            x, y = a.input_digests[row], b.input_digests[other]
            if len(x) != len(makers) or len(x) != len(y):
                continue
            known = (x != NO_DIGEST) & (y != NO_DIGEST)
            same, other_draw = (x == y) & known, (x != y) & known & (drawn >= 0)
            if (same & (drawn < 0) & (a.inputs[row] > 0)).any() and other_draw.any():
                draw = int(drawn[other_draw][0])
                return [place[draw]] if draw in place else []
        return []

    def finding(self, at: int) -> Finding:
        places = [(rank, int(rows[at])) for rank, rows in zip(self._pair, self._rows, strict=True)]
        random = law_of(self._a, places[0][1]).random
        text = "random numbers differ where values are equal" if random else "result differs, inputs do not"
        return self._ranks.finding(Check.REPLICATED_STAYS, text, self._pair, self._pair, *places)


def _draw_of(log: OpLog, flow: Ragged) -> Int64:
    """int64[n], the draw that a record is or that alone it was made of; -1 for all others."""
    out = np.where(drawing(log), np.arange(len(log)), -1)
    for row in np.flatnonzero(flow.count == 1).tolist():
        maker = int(flow[row][0])
        if out[row] < 0 <= maker:
            out[row] = out[maker]
    return out
