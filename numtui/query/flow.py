"""Data flow around one row: producers, consumers, and the path back to its first cause.

Pure functions of a comparison. `way_back` may visit every red row: not for the screen's own thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, marked
from matchers.comparison import Comparison
from matchers.ops.dataflow import consumers
from matchers.status import Status

__all__ = ["Hop", "Neighbour", "Way", "consuming", "producing", "way_back"]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A producer or consumer of a row.

    Attributes:
        row: the neighbour.
        sides: the runs that have this edge: "a", "b" or "ab".
        position: 0-based position of the input.
    """

    row: int
    sides: str
    position: int


def producing(c: Comparison, row: int) -> tuple[Neighbour, ...]:
    """Return the known producers of a row's inputs, by position of the input."""
    found: dict[tuple[int, int], str] = {}
    for side, position, maker in _makers(c, row):
        found[position, maker] = found.get((position, maker), "") + side
    return tuple(Neighbour(maker, sides, position) for (position, maker), sides in sorted(found.items()))


def consuming(c: Comparison, row: int) -> tuple[Neighbour, ...]:
    """Return the consumers of a row's output, in dispatch order."""
    if c.flow is None:
        return ()
    found: dict[tuple[int, int], str] = {}
    members = c.members(row)
    for side, log, flow, at, records in (
        ("a", c.a, c.flow.a, c.at_a, members[0]),
        ("b", c.b, c.flow.b, c.at_b, members[1]),
    ):
        for record in records:
            for reader in consumers(log, record, flow):
                if at[reader] == row:
                    continue
                position = int(np.flatnonzero(flow[reader] == record)[0])
                key = int(at[reader]), position
                if side not in found.get(key, ""):
                    found[key] = found.get(key, "") + side
    return tuple(Neighbour(reader, sides, position) for (reader, position), sides in sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Hop:
    """One row on the path to the first cause, with the side and input through which it reads the next one.

    `position` is -1 on the last hop.
    """

    row: int
    side: str = ""
    position: int = -1


@dataclass(frozen=True, slots=True)
class Way:
    """Path from a red row back to its first cause.

    Attributes:
        hops: from the row to the first cause, each consuming the next; only the row where no flow is known.
        cause: the first cause, -1 where unknown.
        proven: every row on the path is red or cannot be judged. Otherwise some have the same printed values or are
            close, and carry the difference unseen.
    """

    hops: tuple[Hop, ...]
    cause: int
    proven: bool

    @property
    def arrives(self) -> bool:
        """True when data flow leads to the cause; otherwise the row is attributed to it by position only."""
        return self.hops[-1].row == self.cause


def way_back(c: Comparison, row: int) -> Way:
    """Find the shortest path from a row to its first cause: over mismatching rows if there is one, else over rows
    not known to be bitwise equal.
    """
    known = c.consequences
    number = int(known.cause_of[row])
    wanted = marked(list(known.causes[number].rows) if number >= 0 else np.flatnonzero(c.cause), len(c))
    if wanted[row]:
        return Way((Hop(row),), row, proven=True)
    agree = np.isin(c.status, (Status.EQUAL, Status.SAME_PRINT, Status.CLOSE)) & ~c.cause
    for passing, proven in ((~agree, True), (c.status != Status.EQUAL, False)):
        hops = _shortest(c, row, passing, wanted)
        if hops:
            return Way(hops, hops[-1].row, proven)
    return Way((Hop(row),), known.causes[number].rows[0] if number >= 0 else -1, proven=False)


def _shortest(c: Comparison, start: int, passing: Bool, wanted: Bool) -> tuple[Hop, ...]:
    """Search breadth first against the data flow; empty when no wanted row is reached."""
    came: dict[int, tuple[int, str, int]] = {start: (-1, "", -1)}
    waiting = deque([start])
    while waiting:
        row = waiting.popleft()
        for side, position, maker in _makers(c, row):
            if maker in came or not passing[maker]:
                continue
            came[maker] = (row, side, position)
            if wanted[maker]:
                return _hops(came, maker)
            waiting.append(maker)
    return ()


def _hops(came: dict[int, tuple[int, str, int]], last: int) -> tuple[Hop, ...]:
    hops = [Hop(last)]
    row, side, position = came[last]
    while row >= 0:
        hops.append(Hop(row, side, position))
        row, side, position = came[row]
    return tuple(reversed(hops))


def _makers(c: Comparison, row: int) -> Iterator[tuple[str, int, int]]:
    """Yield (side, input position, producing row) of a row's inputs, those of a first."""
    if c.flow is None:
        return
    members = c.members(row)
    for side, flow, at, records in (("a", c.flow.a, c.at_a, members[0]), ("b", c.flow.b, c.at_b, members[1])):
        for record in records:
            for position, maker in enumerate(flow[record].tolist()):
                if maker >= 0 and at[maker] != row:
                    yield side, position, int(at[maker])
