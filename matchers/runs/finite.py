"""The first NaN or Inf of all ranks, and recomputed operations that do not repeat the forward pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.arrays import Int64, marked, one_of
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.collectives import unfinished
from matchers.ops.laws import communicating
from matchers.ops.nonfinite import broken, broken_text, where_broken_begins
from matchers.ops.recomputation import Mismatch, recompute_mismatches
from matchers.ops.unused_passes import unused_passes
from matchers.runs.finding import Check, Finding, Made, Unmade, made_on
from matchers.runs.rank_logs import RankLogs

__all__ = ["check_finite", "check_recompute"]


def check_finite(ranks: RankLogs) -> Iterator[Finding | Made | Unmade]:
    """Yield operations that make NaN or Inf of finite values; the same operation on several ranks is one finding.

    What a collective brings from another rank begins there.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    read = 0
    for rank, log in ranks.logs.items():
        read += int(np.count_nonzero(~np.isnan(log.outputs.first()) | (log.counts[0] >= 0) | (log.present > 0)))
        for row in _beginnings(log, ranks.flows[rank])[:1].tolist():
            found.setdefault(log.keys[row], []).append((rank, row))
    how = "made of finite values"
    if not found:
        found, how = _received(ranks), "returned by a collective, and no rank that has a log makes it"
    for key, places in found.items():
        rank, row = places[0]
        what = broken_text(ranks.logs[rank], row) or "NaN or Inf"
        on = (rank for rank, _ in places)
        yield ranks.finding(Check.FINITE, f"{what} {how}", on, (), *places[:2], subject=key)
    yield made_on(Check.FINITE, read, "operations", "the logs have no values")


def _received(ranks: RankLogs) -> dict[str, list[tuple[int, int]]]:
    """The first collective whose result has NaN, on the ranks where it is as early; nothing where there is none."""
    first: dict[int, int] = {}
    for rank, log in ranks.logs.items():
        nan, inf = broken(log)
        begins = where_broken_begins(ranks.flows[rank], np.flatnonzero(nan), nan | inf)
        rows = begins[(communicating(log) & ~unfinished(log))[begins]]
        if len(rows):
            first[rank] = int(rows[0])
    places = [(rank, row) for rank, row in first.items() if row == min(first.values())]
    return {ranks.logs[rank].keys[row]: places for rank, row in places[:1]}


def _beginnings(log: OpLog, flow: Ragged) -> Int64:
    """Rows that make NaN of finite values, or Inf that comes as far as a gradient: that of a mask does not.

    Nor does that of a pass over memory to which nothing was written, of which nothing is used.
    """
    nan, inf = broken(log)
    odd = nan | inf
    late = one_of(log.phase, (Phase.BACKWARD, Phase.GRADIENTS, Phase.OPTIMIZER))
    begins = marked(where_broken_begins(flow, np.flatnonzero(odd & (nan | late)), odd), len(log))
    communicates = communicating(log) & ~unfinished(log)
    # what a collective brings from another rank begins there, and shows up here in what holds it
    brought = np.maximum.accumulate(odd & communicates)
    # a number that cannot be read is NaN, too
    unread = np.searchsorted(log.line, [problem.line for problem in log.problems], "right") - 1
    begins[unread[unread >= 0]] = False
    begins &= nan | (log.inputs.count > 0)  # an infinite constant is the number of a mask
    return np.flatnonzero(begins & ~unfinished(log) & ~brought & ~unused_passes(log))


def check_recompute(ranks: RankLogs) -> Iterator[Finding | Made | Unmade]:
    """Yield recomputed operations with other bits than in the forward pass; the same on several ranks is one."""
    found: dict[tuple[str, str], list[tuple[int, Mismatch]]] = {}
    copies = 0
    for rank, log in ranks.logs.items():
        copies += int(np.count_nonzero(log.recompute))
        for mismatch in recompute_mismatches(log):
            if mismatch.undone < 0:
                found.setdefault((log.keys[mismatch.row], mismatch.text), []).append((rank, mismatch))
    for (key, text), places in found.items():
        rank, mismatch = places[0]
        at = (rank, mismatch.row), (rank, mismatch.original)
        told, on = f"recomputed copy differs: {text}", (rank for rank, _ in places)
        yield ranks.finding(Check.RECOMPUTE, told, on, (), *at, subject=key, size=mismatch.error)
    yield made_on(Check.RECOMPUTE, copies, "recomputed operations", "nothing is marked as recomputed")
