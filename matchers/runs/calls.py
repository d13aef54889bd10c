"""Calls of collectives, and of sends and receives: of one rank, and joined over the members of a group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Float64, columns
from matchers.laws.law import Kind
from matchers.laws.register import law
from matchers.logs.op_log import STATISTICS, OpLog
from matchers.ops.json_values import hex_digest, integers, number, parsed_object
from matchers.ops.nonfinite import broken
from matchers.ops.shapes import dimensions
from matchers.ops.sketch import decode_sketches
from matchers.ops.values import first_output

__all__ = ["ONE_RESULT", "Call", "Group", "Part", "calls_of", "groups_of"]

ONE_RESULT = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.BROADCAST)
"""Collectives whose result is the same on all members."""
_MEAN = STATISTICS.index("Mean")


@columns
class Part:
    """A tensor that a rank gives to a collective, or gets from it.

    Attributes:
        digest: None if unknown.
        l2, total: norm, and the sum of the elements; NaN if unknown.
        sketch: float64[16] at the positions in the collective's buffer (docs/sketch.md); NaN if unknown.
        pieces: (digest, sum of the elements) of the piece of each member; empty if unknown.
    """

    digest: int | None
    l2: float
    total: float
    sketch: Float64
    pieces: tuple[tuple[int | None, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's part in a collective, a send or a receive.

    Attributes:
        kind: `all_reduce`, `all_gather`, `reduce_scatter`, …, in the words of torch.distributed.
        reduces: `sum`, `avg`, … of a reduction; empty if unknown.
        group: the members, global ranks.
        name: of the process group; empty if the log has none.
        nth: number of earlier collectives of the group; of messages, of those with the same peer and direction.
        peer: the other rank of a send or receive, -1 else.
        numel: elements of the result; -1 if unknown.
        dtype: of the result.
        complete: the result was read.
        finite: it has no NaN or Inf.
        given, got: the tensors; empty if the log does not describe them.
    """

    rank: int
    row: int
    kind: Kind
    reduces: str
    group: tuple[int, ...]
    name: str
    nth: int
    peer: int
    numel: int
    dtype: str
    complete: bool
    finite: bool
    given: tuple[Part, ...]
    got: tuple[Part, ...]

    @property
    def does(self) -> str:
        """`all_reduce (avg)`: the collective in words."""
        return f"{self.kind} ({self.reduces})" if self.reduces else self.kind


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its calls by rank, in order; none of a member that calls nothing."""

    ranks: tuple[int, ...]
    name: str
    calls: Mapping[int, Sequence[Call]]

    @property
    def whole(self) -> bool:
        """True if the log of each member is there."""
        return all(rank in self.calls for rank in self.ranks)

    def messages(self, sender: int, receiver: int) -> tuple[list[Call], list[Call]]:
        """Messages that one member sends to the other, and those that this one receives, each in order.

        Without those before the first of the other end: its log begins later, as its numbers tell. Of what ranks tell
        each other before their first pass, a log has what its step reads.
        """
        ends = ((sender, Kind.SEND), (receiver, Kind.RECEIVE))
        sent, received = ([call for call in self.calls[rank] if call.kind is kind] for rank, kind in ends)
        first = max((calls[0].nth for calls in (sent, received) if calls), default=0) if sent and received else 0
        sent, received = ([call for call in calls if not 0 <= call.nth < first] for calls in (sent, received))
        return sent, received

    def joined(self) -> Iterator[tuple[Call, ...]]:
        """Yield the calls of all members with the same number, in the order of the group."""
        if self.whole:
            yield from zip(*(self.calls[rank] for rank in self.ranks), strict=False)


def calls_of(log: OpLog, rank: int) -> tuple[Call, ...]:
    """Return the calls of a log, in order; records without a group, or one of another form, are left out."""
    found = []
    odd = np.logical_or(*broken(log))
    for row, text in log.texts("Group").items():
        # of a name that torch has twice, a record with a group is the collective
        kind = law(log.op_name(row)).kind or law(f"c10d::{log.op_name(row)}").kind
        group = parsed_object(text) or {}
        ranks = integers(group.get("ranks"))
        if kind is None or kind is Kind.WAIT or not ranks:
            continue
        given, got = _parts(log, row, kind)
        reduces, name = group.get("op"), group.get("name")
        nth, peer = group.get("nth"), group.get("peer")
        # a norm that is NaN is that of a tensor of NaN, or of one that was not read
        has_result = log.outputs.count[row] > 0 and (not math.isnan(log.outputs[row][0]) or log.counts[0, row] > 0)
        found.append(
            Call(
                rank=rank,
                row=row,
                kind=kind,
                reduces=reduces.lower() if isinstance(reduces, str) else "",
                group=ranks,
                name=name if isinstance(name, str) else "",
                nth=nth if type(nth) is int else -1,
                peer=peer if type(peer) is int else -1,
                numel=math.prod(dimensions(log.shape_text(row))) if log.shape[row] >= 0 else -1,
                dtype=log.dtype_text(row),
                complete=bool(has_result) or bool(log.texts("Mutated").raw(row)) or kind in (Kind.SEND, Kind.BARRIER),
                finite=not odd[row],
                given=given,
                got=got,
            )
        )
    return tuple(sorted(found, key=lambda call: call.row))


def groups_of(calls: Mapping[int, Iterable[Call]], *, messages: bool = False) -> list[Group]:
    """Join the calls of all ranks by process group.

    Args:
        messages: the sends and receives instead of the collectives; a group is then a pair of ranks.
    """
    by_group: dict[tuple[tuple[int, ...], str], dict[int, list[Call]]] = defaultdict(dict)
    for rank, of_rank in calls.items():
        for call in of_rank:
            if (call.peer >= 0) == messages:
                members = tuple(sorted((rank, call.peer))) if messages else call.group
                by_group[members, call.name].setdefault(rank, []).append(call)
    for (members, _), found in by_group.items():
        for rank in set(members) & set(calls):
            found.setdefault(rank, [])
    return [Group(ranks, name, found) for (ranks, name), found in by_group.items()]


def _parts(log: OpLog, row: int, kind: Kind) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Return what a record gives and gets; a first output that `Exchanged` does not list lies at position 0."""
    exchanged = parsed_object(log.texts("Exchanged").raw(row)) or {}
    given, got = (exchanged.get(name) for name in ("in", "out"))
    outputs = [entry for entry in (got if isinstance(got, list) else ()) if isinstance(entry, dict)]
    first = () if any(entry.get("output") == 0 for entry in outputs) else _first_output(log, row)
    known = bool(exchanged) or kind in ONE_RESULT
    return _entries(given), (*(first if known else ()), *_entries(outputs))


def _first_output(log: OpLog, row: int) -> tuple[Part, ...]:
    if not log.outputs.count[row]:
        return ()
    result = first_output(log, row)
    total = float(log.stats[_MEAN, row]) * result.numel if result.numel >= 0 else math.nan
    return (Part(result.digest, result.l2, total, decode_sketches([result.sketch])[0]),)


def _entries(value: object) -> tuple[Part, ...]:
    return tuple(part for entry in (value if isinstance(value, list) else ()) if (part := _part(entry)) is not None)


def _part(entry: object) -> Part | None:
    if not isinstance(entry, dict):
        return None
    sketch = entry.get("sketch")
    return Part(
        digest=hex_digest(entry.get("digest")),
        l2=number(entry.get("l2")),
        total=number(entry.get("mean")) * number(entry.get("numel")),
        sketch=decode_sketches([sketch if isinstance(sketch, str) else ""])[0],
        pieces=_pieces(entry.get("pieces")),
    )


def _pieces(value: object) -> tuple[tuple[int | None, float], ...]:
    pairs = value if isinstance(value, list) else []
    return tuple((hex_digest(pair[0]), number(pair[1])) for pair in pairs if isinstance(pair, list) and len(pair) == 2)
