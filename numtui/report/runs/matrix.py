"""Ranks × stretches of the step: the columns that all ranks share, and rows of one rank or of several alike."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Cell, RankSummary
from matchers.status import Status
from numtui.text.glyphs import GLYPHS, STYLES

__all__ = [
    "BEGAN", "BEGAN_WITHIN", "NOT_READ", "Row", "Stretch", "in_mesh_order", "layer_of", "legend", "rows_of", "sign_of",
    "stretches",
]  # fmt: skip

Stretch: TypeAlias = tuple[str, str]
"""Phase and place, as in `Cell`."""

BEGAN: Final = "●"
"""Where the divergence began."""
BEGAN_WITHIN: Final = "○"
"""Where a difference began that nothing red follows from."""
NOT_READ: Final = "–"
_MEANING: Final = {
    BEGAN: "began here",
    BEGAN_WITHIN: "began here, within tolerance",
    "✗ ≠ !": "red",
    "≈": "close",
    "≡ =": "equal",
    "◀ ▶": "only in a, b",
    "↻": "recompute",
    "·": "ignored",
    "∥ … Σ ∅ ?": "not judged",
    NOT_READ: "not compared",
}
_PHASES: Final = ("prepare", "forward", "backward", "gradients", "optimizer", "after", "other")
"""In the order of the step."""


@dataclass(frozen=True, slots=True)
class Row:
    """Ranks that look alike in the matrix.

    Attributes:
        ranks: in order.
        cells: the worst cell of them by column; none where no log was read.
        began: columns in which the divergence began on them, or the first difference.
        red: those of them from which red rows follow.
        coordinates: those that all of them have, along each dimension of the mesh.
    """

    ranks: tuple[int, ...]
    cells: Mapping[int, Cell]
    began: frozenset[int]
    red: frozenset[int]
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
    at = _PHASES.index(phase) if phase in _PHASES else len(_PHASES)
    if not (layer := layer_of(place)):
        return at, -(1 << 40)
    return at, -int(layer) if phase == "backward" else int(layer)


def layer_of(place: str) -> str:
    """Return the number at the end of a place, `3` of `layers.3`; empty for none."""
    last = place.rpartition(".")[2][:9]
    return last if last.isascii() and last.isdigit() else ""


def rows_of(runs: RunComparison, columns: Sequence[Stretch], *, folded: bool) -> tuple[Row, ...]:
    """Return the rows: each rank by itself, in the order of the mesh; or folded, the worst class first.

    Folded, the ranks of a class are one row where the same stretches are red on them.
    """
    number = {stretch: n for n, stretch in enumerate(columns)}
    began: dict[int, set[int]] = defaultdict(set)
    red: dict[int, set[int]] = defaultdict(set)
    for origin in runs.traced.origins:
        for rank, event in origin.events.items():
            if event.stretch in number:
                began[rank].add(number[event.stretch])
                if event.red:
                    red[rank].add(number[event.stretch])
    rows = {
        rank: Row(
            (rank,),
            {number[cell.stretch]: cell for cell in summary.cells},
            frozenset(began.get(rank, ())),
            frozenset(red.get(rank, ())),
            summary.coordinates,
        )
        for rank, summary in runs.summaries.items()
    }
    if not folded:
        return tuple(rows[rank] for rank in in_mesh_order(runs))
    return tuple(_joined(alike) for each in runs.classes for alike in _alike(rows[rank] for rank in each.ranks))


def sign_of(row: Row, columns: range, *, equal: bool) -> tuple[str, str]:
    """Return the sign of the worst cell of some columns, and its role; `equal`: the logs were not read, but agree."""
    if any(column in row.began for column in columns):
        return (BEGAN, "cause") if any(column in row.red for column in columns) else (BEGAN_WITHIN, "close")
    found = [row.cells[column].worst for column in columns if column in row.cells]
    if not found:
        return (GLYPHS[Status.EQUAL], "dim") if equal else (" ", "")
    return GLYPHS[max(found)], STYLES.get(max(found), "dim")


def legend(signs: Container[str] | None = None) -> str:
    """Return the meaning of these signs; None: of all."""
    told = []
    for of, word in _MEANING.items():
        if known := [sign for sign in of.split() if signs is None or sign in signs]:
            told.append(f"{' '.join(known)} {word}")
    return "  ".join(told)


def in_mesh_order(runs: RunComparison) -> list[int]:
    """Return the ranks by their coordinates, where they have any, then by number."""
    return sorted(runs.summaries, key=lambda rank: (*runs.summaries[rank].coordinates.values(), rank))


def _alike(rows: Iterable[Row]) -> Iterable[Sequence[Row]]:
    """Group rows in which the same stretches are red, and the divergence began in the same."""
    found: dict[object, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.began, row.red, tuple((column, cell.worst.red) for column, cell in row.cells.items())].append(row)
    return found.values()


def _joined(rows: Sequence[Row]) -> Row:
    worst: dict[int, Cell] = {}
    for row in rows:
        for column, cell in row.cells.items():
            if column not in worst or cell.worst > worst[column].worst:
                worst[column] = cell
    shared = set.intersection(*(set(row.coordinates.items()) for row in rows))
    coordinates = {name: n for name, n in rows[0].coordinates.items() if (name, n) in shared}
    return Row(tuple(rank for row in rows for rank in row.ranks), worst, rows[0].began, rows[0].red, coordinates)
