"""Ranks × stretches of the step: the columns that all ranks share, and rows of one rank or of several alike."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Cell, RankSummary
from matchers.status import Status

__all__ = ["Row", "Stretch", "rows_of", "status_of", "stretches"]

Stretch: TypeAlias = tuple[str, str]
"""Phase and place, as in `Cell`."""

_STATUS: Final = {status.label: status for status in Status}
_PHASES: Final = ("prepare", "forward", "backward", "gradients", "optimizer", "after", "other")
"""In the order of the step."""


@dataclass(frozen=True, slots=True)
class Row:
    """Ranks that look alike in the matrix.

    Attributes:
        ranks: in order.
        cells: the worst cell of them by column; none where no log was read.
        began: columns in which the divergence began on one of them.
    """

    ranks: tuple[int, ...]
    cells: Mapping[int, Cell]
    began: frozenset[int]


def status_of(cell: Cell) -> Status:
    """Return the worst status of a stretch; NOT_JUDGED for a name that no status has."""
    return _STATUS.get(cell.status, Status.NOT_JUDGED)


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
    cells = {rank: {number[cell.stretch]: cell for cell in summary.cells} for rank, summary in runs.summaries.items()}
    began: dict[int, set[int]] = defaultdict(set)
    for origin in runs.traced.origins:
        for rank, event in origin.events.items():
            if event.stretch in number:
                began[rank].add(number[event.stretch])
    if folded:
        alike = [ranks for each in runs.classes for ranks in _alike(each.ranks, cells)]
    else:
        alike = [(rank,) for rank in sorted(cells, key=lambda r: (*runs.summaries[r].coordinates.values(), r))]
    return tuple(
        Row(ranks, _worst(cells[rank] for rank in ranks), frozenset().union(*(began.get(r, ()) for r in ranks)))
        for ranks in alike
    )


def _alike(ranks: Iterable[int], cells: Mapping[int, Mapping[int, Cell]]) -> Iterator[tuple[int, ...]]:
    """Group ranks on which the same stretches are red."""
    found: dict[tuple[tuple[int, bool], ...], list[int]] = defaultdict(list)
    for rank in ranks:
        found[tuple((column, status_of(cell).red) for column, cell in cells[rank].items())].append(rank)
    yield from map(tuple, found.values())


def _worst(cells: Iterable[Mapping[int, Cell]]) -> dict[int, Cell]:
    found: dict[int, Cell] = {}
    for of_rank in cells:
        for column, cell in of_rank.items():
            if column not in found or status_of(cell) > status_of(found[column]):
                found[column] = cell
    return found
