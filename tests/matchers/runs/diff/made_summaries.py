"""Summaries of ranks made up by hypothesis: any that a file may hold, and those of one execution of several ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from matchers.runs.diff.summary import Cell, Event, Outcome, RankSummary, Received, Sent

__all__ = ["Execution", "executions", "summaries"]

_TEXTS = st.text(max_size=8)
_INTEGERS = st.integers(0, 1 << 40)
_DIFFERENT = Event(
    row=0,
    record=0,
    key="",
    module="",
    op="",
    phase="forward",
    location="",
    status="diverged",
    error=1.0,
    line_a=1,
    line_b=1,
    text="",
    red=1,
)


def _of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of the type of a field."""
    if kind is str:
        return _TEXTS
    if kind is int:
        return _INTEGERS
    if kind is float:
        return st.floats()
    if kind is Outcome:
        return st.sampled_from(Outcome)
    if kind in (Event, Cell, Received, Sent):
        return st.builds(kind, **{each.name: _of(get_type_hints(kind)[each.name]) for each in fields(kind)})
    arguments = get_args(kind)
    if get_origin(kind) is tuple and arguments[1:] == (Ellipsis,):
        return st.lists(_of(arguments[0]), max_size=2).map(tuple)
    if get_origin(kind) is tuple:
        return st.tuples(*map(_of, arguments))
    if type(None) in arguments:
        return st.none() | _of(arguments[0])
    return st.dictionaries(_TEXTS, _of(arguments[1]), max_size=2)


def summaries(rank: int) -> st.SearchStrategy[RankSummary]:
    """Any summary of a rank."""
    hints = get_type_hints(RankSummary)
    rest = {each.name: _of(hints[each.name]) for each in fields(RankSummary) if each.name != "rank"}
    return st.builds(RankSummary, rank=st.just(rank), **rest)


@dataclass
class Execution:
    """Ranks that call collectives one after the other, and differ from some moment on.

    Attributes:
        summaries: by rank; what each logs of it.
        began: (time, rank, module) of each difference that arose on a rank by itself.
    """

    summaries: dict[int, RankSummary] = field(default_factory=dict)
    began: list[tuple[int, int, str]] = field(default_factory=list)


@st.composite
def executions(draw: st.DrawFn) -> Execution:
    """An execution; each rank differs at most once by itself, and from then on, as all that it gives to others."""
    ranks = draw(st.integers(1, 6))
    groups = draw(st.lists(st.sets(st.integers(0, ranks - 1), min_size=1), min_size=1, max_size=4, unique_by=frozenset))
    starts = draw(
        st.dictionaries(
            st.integers(0, ranks - 1), st.tuples(st.integers(0, 12), st.sampled_from("pqr")), max_size=ranks
        )
    )
    made, calls = Execution(), [Counter[str]() for _ in range(ranks)]
    events: dict[int, Event] = {}
    sent: list[list[Sent]] = [[] for _ in range(ranks)]
    for time in range(12):
        for rank, (start, module) in starts.items():
            if start == time and rank not in events:
                events[rank] = _event(time, module, calls[rank])
                made.began.append((time, rank, module))
        group = sorted(groups[draw(st.integers(0, len(groups) - 1))])
        channel = f"g {','.join(map(str, group))}"
        nth = calls[group[0]][channel]
        givers = [rank for rank in group if rank in events]
        for rank in group:
            if rank in givers:
                sent[rank].append(Sent(channel, nth, nth, 0))
            elif givers:
                events[rank] = _event(time, "reached", calls[rank], Received(channel, nth, "all_reduce (sum)"))
            calls[rank][channel] += 1
    for rank in range(ranks):
        made.summaries[rank] = RankSummary(
            rank=rank,
            outcome=Outcome.COMPARED,
            red=int(rank in events),
            causes=(events[rank],) if rank in events else (),
            channels=tuple(calls[rank]),
            sent=tuple(sent[rank]),
        )
    return made


def _event(time: int, module: str, before: Counter[str], *received: Received) -> Event:
    known = {each.name: getattr(_DIFFERENT, each.name) for each in fields(Event)}
    changes = {"row": time, "record": time, "key": f"{module}/op_{time}_mm", "module": module, "op": "mm"}
    return Event(**{**known, **changes, "before": dict(before), "received": received})
