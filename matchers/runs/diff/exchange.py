"""Collectives and messages of a rank, and their differences between the two runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from matchers.arrays import Float64
from matchers.comparison import Comparison
from matchers.laws.law import Kind
from matchers.ops.collectives import read_by_collective
from matchers.runs.calls import Call, Part, calls_of
from matchers.runs.diff.summary import Received
from matchers.status import LabelledEnum, Status
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.sketches import distance
from matchers.verdict.tolerance import ACCUMULATED, default_tolerance

__all__ = ["Exchanges", "Given", "channel_of"]

_MAX_WALK = 5_000
"""Records that are looked at to find the collectives behind one."""


class Given(LabelledEnum):
    """Input of a collective on a rank, against that in the other run."""

    ALIKE = 0
    DIFFERENT = 1
    RED = 2


@dataclass(frozen=True)
class Exchanges:
    """The collectives and messages of log a.

    Attributes:
        calls: by record of a.
        given: by record of a, of those whose input differs.
    """

    comparison: Comparison
    calls: Mapping[int, Call]
    given: Mapping[int, Given] = field(default_factory=dict)

    @classmethod
    def of(cls, c: Comparison, rank: int) -> Exchanges:
        """Find them."""
        calls = {call.row: call for call in calls_of(c.a, rank)}
        others = {call.row: call for call in calls_of(c.b, rank)}
        # a call that was paired with none, because its input differs, has its counterpart by its number
        by_number = {(channel_of(call, sends=True), call.nth): call for call in others.values()}
        norms = read_by_collective(c.a), read_by_collective(c.b)
        given = {}
        for record, call in calls.items():
            row = int(c.at_a[record])
            partner = int(c.row_b[row]) if c.pair[row] >= 0 else -1
            other = others.get(partner) or by_number.get((channel_of(call, sends=True), call.nth))
            if _sends(call) and (found := _given(c, row, call, other, norms)):
                given[record] = found
        return cls(c, calls, given)

    @property
    def channels(self) -> tuple[str, ...]:
        """All process groups and messages."""
        return tuple(dict.fromkeys(channel_of(call, sends=call.kind == Kind.SEND) for call in self.calls.values()))

    def behind(self, row: int) -> tuple[Received, ...]:
        """The calls from which the difference at a row may have come, over operations that are not equal in bits."""
        c, found = self.comparison, dict[Received, None]()
        records = c.members(row)[0]
        if not records:  # only b has it: what it reads stands in a's rows
            records = _records_of_a(c, c.members(row)[1])
        seen, waiting = set(records), list(records)
        while waiting and len(seen) < _MAX_WALK:
            record = waiting.pop()
            call = self.calls.get(record)
            if call is not None:
                if call.kind not in (Kind.SEND, Kind.BARRIER) and self.given.get(record, Given.ALIKE) != Given.RED:
                    found[Received(channel_of(call, sends=False), call.nth, call.does)] = None
                continue
            makers = c.flow.a[record] if c.flow is not None else ()
            for maker in (int(m) for m in makers if m >= 0):
                if maker not in seen and c.status[c.at_a[maker]] != Status.EQUAL:
                    seen.add(maker)
                    waiting.append(maker)
        return tuple(found)

    def before(self, record: int) -> dict[str, int]:
        """The number of calls of each channel before a record of a."""
        found: dict[str, int] = {}
        for row, call in self.calls.items():
            if row < record:
                channel = channel_of(call, sends=call.kind == Kind.SEND)
                found[channel] = max(found.get(channel, 0), call.nth + 1)
        return found


def channel_of(call: Call, *, sends: bool) -> str:
    """The process group of a collective, or sender and receiver of a message: `dp 0-6:2`, `pp 0>1`."""
    if call.peer >= 0:
        ends = (call.rank, call.peer) if sends else (call.peer, call.rank)
        return f"{call.name} {ends[0]}>{ends[1]}"
    return f"{call.name} {_ranges(call.group)}"


def _ranges(ranks: Sequence[int]) -> str:
    """Ranks as ranges with a stride, `0-3,8-14:2`: thousands of them stay short."""
    runs: list[list[int]] = []  # first, last, stride
    for rank in ranks:
        last = runs[-1] if runs else None
        if last is not None and (last[0] == last[1] or rank - last[1] == last[2]):
            last[1:] = [rank, rank - last[1]]
        else:
            runs.append([rank, rank, 1])
    return ",".join(str(a) if a == b else f"{a}-{b}" + (f":{stride}" if stride != 1 else "") for a, b, stride in runs)


def _sends(call: Call) -> bool:
    return call.kind not in (Kind.RECEIVE, Kind.BARRIER)


def _given(c: Comparison, row: int, one: Call, other: Call | None, norms: tuple[Float64, Float64]) -> Given:
    """The difference of a call's input, by its values and by the rows that made it."""
    found = [Given.RED] if c.red[row] and not c.cause[row] else []
    makers = c.flow.a[one.row] if c.flow is not None else ()
    statuses = [Status(c.status[c.at_a[maker]]) for maker in makers if maker >= 0]
    if one.kind != Kind.BROADCAST or one.given:
        found += [Given.RED for status in statuses if status.red]
    if other is not None and one.given and len(one.given) == len(other.given):
        found += [_differ(x, y, one.dtype) for x, y in zip(one.given, other.given, strict=True)]
    elif other is not None and not one.given:
        found.append(_by_norm(float(norms[0][one.row]), float(norms[1][other.row]), one.dtype))
    return max(found, default=Given.ALIKE)


def _differ(x: Part, y: Part, dtype: str) -> Given:
    if x.digest == y.digest:
        return Given.ALIKE if x.digest is not None else _by_norm(x.l2, y.l2, dtype)
    of_tensors = ACCUMULATED * default_tolerance(dtype)
    error = float(distance(x.sketch[None], y.sketch[None], np.array([x.l2]), np.array([y.l2]))[0])
    by_norm = _by_norm(x.l2, y.l2, dtype)
    beyond = error > of_tensors or (math.isnan(error) and by_norm == Given.RED)
    return Given.RED if beyond or math.isnan(x.total) != math.isnan(y.total) else Given.DIFFERENT


def _by_norm(x: float, y: float, dtype: str) -> Given:
    if math.isnan(x) != math.isnan(y):
        return Given.RED
    error = relative_difference(x, y)
    if not error > 0:  # NaN: neither is known
        return Given.ALIKE
    return Given.RED if error > default_tolerance(dtype) else Given.DIFFERENT


def _records_of_a(c: Comparison, records: Iterable[int]) -> tuple[int, ...]:
    """The records of a that show what some records of b, which a lacks, read."""
    if c.flow is None:
        return ()
    read = {int(maker) for record in records for maker in c.flow.b[record] if maker >= 0}
    rows = (int(c.at_b[maker]) for maker in read)
    return tuple(int(c.row_a[row]) for row in rows if c.row_a[row] >= 0 and c.status[row] != Status.EQUAL)
