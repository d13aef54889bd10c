"""Origins: where a divergence began, over all ranks.

An event of a rank (a first cause, or its first difference) is a consequence if a collective behind it was given, by
another member, something that differs already. Followed back over all ranks, what remains are the origins. Between
ranks there is no other order than that of their collectives and messages: one event precedes another if a call of a
common channel lies after the one and before the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

import numpy as np

from matchers.arrays import Bool
from matchers.ops.module_path import canonical
from matchers.runs.diff.summary import Event, RankSummary, Received, Sent

__all__ = ["Origin", "Reached", "Traced", "of_causes", "of_differences", "trace"]

_MAX_ORDERED = 24
"""Origins that are put in order."""
_MAX_RANKS = 16
"""Ranks of an origin that are looked at to order it, and senders that are named."""

Node: TypeAlias = tuple[int, int]
"""Rank, and index of its event."""
Place: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Reached:
    """A rank that a divergence reached.

    Attributes:
        event: there.
        by: the collective or message that brought it.
        senders: ranks that gave it something that differs; the first ones of many.
    """

    event: Event
    by: Received
    senders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """A place of the program at which a divergence began, on one rank or several.

    Attributes:
        events: by rank where it began.
        reached: by rank that it reached; not those where it began.
        after: indices of origins that precede it; all others but those that it precedes are in no order to it.
    """

    events: Mapping[int, Event]
    reached: Mapping[int, Reached]
    after: tuple[int, ...] = ()

    @property
    def event(self) -> Event:
        """The event on the first of its ranks."""
        return self.events[min(self.events)]


@dataclass(frozen=True, slots=True)
class Traced:
    """The origins, the earliest and farthest-reaching first, and by rank those behind its earliest event."""

    origins: tuple[Origin, ...]
    behind: Mapping[int, tuple[int, ...]]


def of_causes(summary: RankSummary) -> tuple[tuple[Event, ...], tuple[Sent, ...]]:
    """The first causes of a rank, and what it sent on."""
    return summary.causes, summary.sent


def of_differences(summary: RankSummary) -> tuple[tuple[Event, ...], tuple[Sent, ...]]:
    """The first difference of a rank, and what it sent on."""
    return () if summary.difference is None else (summary.difference,), summary.sent_difference


def trace(
    summaries: Mapping[int, RankSummary],
    events_of: Callable[[RankSummary], tuple[tuple[Event, ...], tuple[Sent, ...]]],
) -> Traced:
    """Follow the events of all ranks back to where they began."""
    events: dict[Node, Event] = {}
    sent: dict[str, list[tuple[int, Sent]]] = defaultdict(list)
    for rank, summary in summaries.items():
        of_rank, given = events_of(summary)
        events |= {(rank, k): event for k, event in enumerate(of_rank)}
        for each in given:
            sent[each.channel].append((rank, each))
    senders = _Senders(sent)
    calls = {
        (rank, k): [by for by in event.received if any(sender != rank for sender, _ in senders(by))]
        for (rank, k), event in events.items()
    }
    roots, places = _followed(events, calls, senders)
    return _ordered(summaries, events, calls, senders, roots, places)


class _Senders:
    """The events whose ranks gave a call something that differs."""

    def __init__(self, sent: Mapping[str, Sequence[tuple[int, Sent]]]) -> None:
        self._sent = sent
        self._known: dict[tuple[str, int], frozenset[Node]] = {}

    def __call__(self, call: Received) -> frozenset[Node]:
        key = call.channel, call.nth
        if key not in self._known:
            self._known[key] = frozenset(
                (rank, each.event)
                for rank, each in self._sent.get(call.channel, ())
                if each.first <= call.nth <= each.last
            )
        return self._known[key]


def _followed(
    events: Mapping[Node, Event], calls: Mapping[Node, Sequence[Received]], senders: _Senders
) -> tuple[set[Node], dict[Node, set[Place]]]:
    """(events that nothing brought, the places at which each event began)."""
    roots = {node for node in events if not calls[node]}
    found = {node: {_place(event)} if node in roots else set[Place]() for node, event in events.items()}
    changed = True
    while changed:
        changed = False
        of_call: dict[tuple[str, int], set[Place]] = {}
        for node in events.keys() - roots:
            for by in calls[node]:
                key = by.channel, by.nth
                if key not in of_call:
                    of_call[key] = set().union(*(found.get(sender, ()) for sender in senders(by)))
                if not of_call[key] <= found[node]:
                    found[node] |= of_call[key]
                    changed = True
    # events that lead to each other alone: where they began is not known
    for node in (node for node, places in found.items() if not places):
        roots.add(node)
        found[node] = {_place(events[node])}
    return roots, found


def _place(event: Event) -> Place:
    return event.phase, canonical(event.module), event.op, event.location


def _ordered(
    summaries: Mapping[int, RankSummary],
    events: Mapping[Node, Event],
    calls: Mapping[Node, Sequence[Received]],
    senders: _Senders,
    roots: set[Node],
    places: Mapping[Node, set[Place]],
) -> Traced:
    began: dict[Place, dict[int, Event]] = {}
    reached: dict[Place, dict[int, Reached]] = defaultdict(dict)
    for node, event in events.items():
        if node in roots:
            began.setdefault(_place(event), {}).setdefault(node[0], event)
            continue
        by = calls[node][0]
        ranks = sorted({sender for sender, _ in senders(by) if sender != node[0]})
        for place in places[node]:
            reached[place].setdefault(node[0], Reached(event, by, tuple(ranks[:_MAX_RANKS])))
    origins = {
        place: Origin(of_rank, {rank: at for rank, at in reached[place].items() if rank not in of_rank})
        for place, of_rank in began.items()
    }
    named = list(origins)
    precedes = _precedence(summaries, list(origins.values())[:_MAX_ORDERED])
    earlier = dict(enumerate(_reachable(precedes).sum(axis=0).tolist()))

    def place_in_order(k: int) -> tuple[int, int, int, int]:
        origin = origins[named[k]]
        return earlier.get(k, 0), -len(origin.reached), -len(origin.events), origin.event.row

    order = sorted(range(len(named)), key=place_in_order)
    number = {named[k]: n for n, k in enumerate(order)}
    before = {k: np.flatnonzero(precedes[:, k]).tolist() for k in range(len(precedes))}
    after = [tuple(sorted(number[named[i]] for i in before.get(k, ()))) for k in order]
    return Traced(
        tuple(replace(origins[named[k]], after=those) for k, those in zip(order, after, strict=True)),
        {rank: tuple(sorted(number[place] for place in places[rank, 0])) for rank, k in events if k == 0},
    )


def _precedence(summaries: Mapping[int, RankSummary], origins: Sequence[Origin]) -> Bool:
    """bool[n, n]: the origin of each row precedes that of each column, without a cycle.

    Origins on several ranks, and calls that no two ranks share, leave room for cycles: those in one are in no order.
    """
    found = np.zeros((len(origins), len(origins)), bool)
    for i, one in enumerate(origins):
        for j, other in enumerate(origins):
            found[i, j] = i != j and _precedes(summaries, one, other)
    return found & ~_reachable(found).T


def _reachable(steps: Bool) -> Bool:
    """bool[n, n]: any number of steps lead from each row to each column."""
    found = steps.copy()
    for k in range(len(found)):
        found |= found[:, k : k + 1] & found[k]
    return found


def _precedes(summaries: Mapping[int, RankSummary], one: Origin, other: Origin) -> bool:
    """True if an event of one precedes an event of the other."""
    return any(
        _event_precedes(summaries[r], a, r, b, s)
        for r, a in islice(one.events.items(), _MAX_RANKS)
        for s, b in islice(other.events.items(), _MAX_RANKS)
    )


def _event_precedes(summary: RankSummary, a: Event, r: int, b: Event, s: int) -> bool:
    if r == s:
        return a.row < b.row
    for channel in summary.channels:
        sender, _, receiver = channel.rpartition(" ")[2].partition(">")
        if receiver and sender != str(r):
            continue  # a receiver's message says nothing about what it did before
        if b.before.get(channel, 0) > a.before.get(channel, 0):
            return True
    return False
