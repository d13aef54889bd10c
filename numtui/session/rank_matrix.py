"""Ranks × stretches of the step: the columns that all ranks share, and rows of one rank or of several alike."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Cell, RankSummary

__all__ = ["Row", "Stretch", "in_mesh_order", "rows_of", "stretches"]

Stretch: TypeAlias = tuple[str, str]
"""Phase and place, as in `Cell`."""

_PHASES: Final = ("prepare", "forward", "backward", "gradients", "optimizer", "after", "other")
"""In the order of the step."""


@dataclass(frozen=True, slots=True)
class Row:
    """Ranks that look alike in the matrix.

    Attributes:
        ranks: in order.
        cells: the worst cell of them by column; none where no log was read.
        began: columns in which the divergence began on them.
        coordinates: those that all of them have, along each dimension of the mesh.
    """

    ranks: tuple[int, ...]
    cells: Mapping[int, Cell]
    began: frozenset[int]
    coordinates: Mapping[str, int]


def stretches(summaries: Iterable[RankSummary]) -> tuple[Stretch, ...]:
    """Merge the steps of all ranks into one, in the order of dispatch.

    Stages of a pipeline hold different layers: what no rank orders goes by phase, then by the number of the layer, from
    the last one to the first in the backward pass.
    """
    steps = dict.fromkeys(tuple(dict.fromkeys(cell.stretch for cell in each.cells)) for each in summaries)
    later: dict[Stretch, set[Stretch]] = defaultdict(set)
    for step in steps:
        for one, other in pairwise(step):
            later[one].add(other)
    found = dict.fromkeys(stretch for step in steps for stretch in step)
    before = dict.fromkeys(found, 0)
    for follow in later.values():
        for stretch in follow:
            before[stretch] += 1
    number = {stretch: (*_order(stretch), n) for n, stretch in enumerate(found)}
    ready = [(number[stretch], stretch) for stretch, n in before.items() if not n]
    heapq.heapify(ready)
    waiting = iter(sorted(found, key=number.__getitem__))
    merged: dict[Stretch, None] = {}
    while len(merged) < len(found):
        # ranks that contradict each other leave none ready: the first one is next
        stretch = heapq.heappop(ready)[1] if ready else next(each for each in waiting if each not in merged)
        if stretch in merged:
            continue
        merged[stretch] = None
        for each in later[stretch]:
            before[each] -= 1
            if not before[each]:
                heapq.heappush(ready, (number[each], each))
    return tuple(merged)


def _order(stretch: Stretch) -> tuple[int, int]:
    phase, place = stretch
    last = place.rpartition(".")[2]
    layer = int(last[:9]) if last.isascii() and last.isdigit() else None
    at = _PHASES.index(phase) if phase in _PHASES else len(_PHASES)
    if layer is None:
        return at, -(1 << 40)
    return at, -layer if phase == "backward" else layer


def rows_of(runs: RunComparison, columns: Sequence[Stretch], *, folded: bool) -> tuple[Row, ...]:
    """Return the rows: each rank by itself, in the order of the mesh; or folded, the worst class first.

    Folded, the ranks of a class are one row where the same stretches are red on them.
    """
    number = {stretch: n for n, stretch in enumerate(columns)}
    began: dict[int, set[int]] = defaultdict(set)
    for origin in runs.traced.origins:
        for rank, event in origin.events.items():
            if event.stretch in number:
                began[rank].add(number[event.stretch])
    rows = {
        rank: Row(
            (rank,),
            {number[cell.stretch]: cell for cell in summary.cells},
            frozenset(began.get(rank, ())),
            summary.coordinates,
        )
        for rank, summary in runs.summaries.items()
    }
    if not folded:
        return tuple(rows[rank] for rank in in_mesh_order(runs))
    return tuple(_joined(alike) for each in runs.classes for alike in _alike(rows[rank] for rank in each.ranks))


def in_mesh_order(runs: RunComparison) -> list[int]:
    """Return the ranks by their coordinates, where they have any, then by number."""
    return sorted(runs.summaries, key=lambda rank: (*runs.summaries[rank].coordinates.values(), rank))


def _alike(rows: Iterable[Row]) -> Iterable[Sequence[Row]]:
    """Group rows in which the same stretches are red, and the divergence began in the same."""
    found: dict[object, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.began, tuple((column, cell.worst.red) for column, cell in row.cells.items())].append(row)
    return found.values()


def _joined(rows: Sequence[Row]) -> Row:
    worst: dict[int, Cell] = {}
    for row in rows:
        for column, cell in row.cells.items():
            if column not in worst or cell.worst > worst[column].worst:
                worst[column] = cell
    shared = set.intersection(*(set(row.coordinates.items()) for row in rows))
    coordinates = {name: n for name, n in rows[0].coordinates.items() if (name, n) in shared}
    return Row(tuple(rank for row in rows for rank in row.ranks), worst, rows[0].began, coordinates)
