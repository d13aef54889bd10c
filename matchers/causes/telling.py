"""First causes in stretches that no pair shows: the operation in them that tells most.

Where two runs compute in other ways, or ranks for each other, what differs shows only behind a stretch of operations
without judged partners. One of them may tell what is wrong: it runs on some ranks of a run alone, in some layers alone,
at a line that the other run never reaches, or was asked something else than its like in the other run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, distinct, marked, numbered_together, one_of
from matchers.causes.causes import BY_SIZE, MOST, Causes
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import OpLog, Phase, once_per_pair
from matchers.logs.raw_record import ranks_of
from matchers.ops.arguments import text_ids
from matchers.ops.dataflow import fed_by, upstream
from matchers.ops.module_path import canonical, template
from matchers.ops.nonfinite import broken
from matchers.regions.find import OPEN
from matchers.rows import Rows
from matchers.status import Status
from matchers.verdict.arguments import unexplained
from matchers.verdict.reason import Reason

__all__ = ["blame_telling"]


def blame_telling(found: Causes) -> None:
    """Replace first causes that prove nothing by the operation that tells most in the stretch behind them."""
    c = found.c
    if not found.cause.any():
        return
    open_ = (c.pair < 0) | OPEN[c.verdict]
    # a constant of which another form makes something else is one of the stretch
    constant = c.by_row(lambda log: log.inputs.count) == 0
    constant &= ~marked(c.edges.value[~open_[c.edges.row]], len(c)) & (c.pair >= 0)
    open_ |= constant
    proves = (
        c.inputs_equal
        | c.by_row(lambda log: np.logical_or(*broken(log)))
        | ~one_of(c.reason, (*BY_SIZE, Reason.OTHER_SHAPE))
    )
    telling, done = _Telling(c), np.full(len(c), -1)
    for row in np.flatnonzero(found.cause & (~proves | constant))[:MOST].tolist():
        if done[row] < 0:
            ends = np.array([row])
            if open_[row]:  # it begins the stretch; the first red row behind it ends that
                ends = np.flatnonzero(fed_by(c.edges, ends, open_) & c.red & ~open_)[:1]
            leads = upstream(c.edges, ends, open_ | marked(ends, len(c)))
            stretch = np.flatnonzero(leads & (c.pair < 0) & (c.verdict != Status.RECOMPUTE))
            first = telling.first(row, stretch)
            done[stretch] = first if first >= 0 else stretch
            done[row] = first if first >= 0 else row
        if done[row] != row:
            found.acquit(row, for_=int(done[row]))
    found.likes.update(telling.likes)


class _Telling:
    """The search for operations that tell.

    Attributes:
        likes: the operations that were asked something else, with their likes in b.
    """

    def __init__(self, c: Rows) -> None:
        self._c, self._of = c, _records(c.a, c.b)
        self.likes: dict[int, int] = {}

    def first(self, row: int, stretch: Int64) -> int:
        """The first unpaired operation of a stretch that tells more than a row of it; -1 for none."""
        # what both runs have at one line is unpaired because of what it reads: it tells nothing of itself
        says_nothing = self._in_both[row] or self._c.reason[row] == Reason.ARGUMENTS

        def such(tells: Bool) -> int:
            return row if tells[row] else next(iter(stretch[tells[stretch]].tolist()), -1)

        if (some := such(self._on_some_ranks)) >= 0:
            return some
        in_a = self._c.row_a[stretch] >= 0
        # what one run alone has is found by itself; and a layout has operations and lines of its own
        if in_a.all() or not in_a.any() or self._c.a.members or self._c.b.members:
            return -1
        ways: tuple[Callable[[], int], ...] = (
            lambda: such(self._by_row(self._of.in_some_layers)),
            lambda: self._asked_otherwise(stretch, self._of.kind, self._of.asked_of_kind),
            lambda: such(self._by_row(self._of.at_further_lines)) if says_nothing else -1,
            lambda: self._asked_otherwise(stretch, self._of.at_place, self._of.asked_at_place),
            lambda: such(self._by_row(self._of.missing_in_a_layer)),
        )
        return next((found for way in ways if (found := way()) >= 0), -1)

    @cached_property
    def _in_both(self) -> Bool:
        return self._by_row(self._of.in_both)

    @cached_property
    def _on_some_ranks(self) -> Bool:
        return self._by_row(self._of.on_some_ranks)

    def _asked_otherwise(self, stretch: Int64, kind: Int64, asked: Int64) -> int:
        """The first operation whose like in the other run, of one kind, was asked something else; -1 for none."""
        c = self._c
        in_a = stretch[c.row_a[stretch] >= 0]
        one, other = c.row_a[in_a], c.row_b[np.setdiff1d(stretch, in_a)]
        # the first record of each call that the other run never makes, by its kind
        calls = asked[one], asked[len(c.a) + other]
        likes: dict[int, tuple[list[int], list[int]]] = {}
        for side, (records, mine, theirs) in enumerate(((one, *calls), (other, *calls[::-1]))):
            _, first = np.unique(mine, return_index=True)
            for record in records[np.sort(first[~np.isin(mine[first], theirs)])].tolist():
                likes.setdefault(int(kind[record + side * len(c.a)]), ([], []))[side].append(record)
        found = []
        for of_a, of_b in likes.values():
            if len(of_a) == len(of_b):
                told = unexplained(c.a, c.b, np.array(of_a), np.array(of_b), 1.0)
                # a tensor plus a number is no like of a sum of two
                as_many = c.a.inputs.count[of_a] == c.b.inputs.count[of_b]
                pairs = zip(of_a, of_b, told, as_many.tolist(), strict=True)
                found += [(int(c.at_a[i]), int(c.at_b[j])) for i, j, left, alike in pairs if left and alike]
        row, like = min(found, default=(-1, -1))
        if row >= 0:
            self.likes[row] = like
        return row

    def _by_row(self, which: Bool) -> Bool:
        """bool[r] of bool[n_a + n_b]."""
        c = self._c
        return marked(np.concatenate((c.at_a, c.at_b))[which], len(c))


class _Records:
    """Properties by which single operations tell, whoever their partners are; [n_a + n_b] is of a and then of b.

    Attributes:
        in_both: bool, operations that both runs have at this line of the module.
        on_some_ranks: bool, operations that some ranks of a run alone have, in a module where all ranks have
            operations.
        in_some_layers: bool, operations that both runs have equally often in some layer, but not in this one; or that
            one run has in one layer alone of several.
        missing_in_a_layer: bool, operations of a module that both runs have equally often in some layer, and the other
            run not in this one; their lines are those of two libraries.
        at_further_lines: bool, operations at lines that one run alone has, in a module of which it has all lines of
            the other. Not of what prepares a step: of that a log has only what the step reads.
        kind, at_place: int64, the operation at its line of a module, and the phase; without the line.
        asked_of_kind, asked_at_place: int64, the same with what it was asked.
    """

    def __init__(self, a: OpLog, b: OpLog) -> None:
        self._a, self._b = a, b

    @cached_property
    def in_both(self) -> Bool:
        _, theirs = self._counts(self.kind)
        return theirs > 0

    @cached_property
    def on_some_ranks(self) -> Bool:
        ranks = np.concatenate((ranks_of(self._a), ranks_of(self._b)))
        if not ranks.any():
            return np.zeros(len(ranks), bool)
        of_log = np.repeat((0, 1), (len(self._a), len(self._b)))
        here, there, all_ = (
            _united(ranks, numbered_together(of_log, *of)) for of in ((self._place, self._op), (self._place,), ())
        )
        return (ranks > 0) & (there == all_) & (here != there)

    @cached_property
    def _layers(self) -> tuple[Int64, Int64]:
        """The module without the number of its layer, and the layer."""
        names = [[template(canonical(name)) for name in log.modules] for log in (self._a, self._b)]
        patterns = [[split.pattern for split in side] for side in names]
        places = [[split.place for split in side] for side in names]
        return self._of_both(patterns, lambda log: log.module), self._of_both(places, lambda log: log.module)

    @cached_property
    def missing_in_a_layer(self) -> Bool:
        pattern, _ = self._layers
        kind = numbered_together(pattern, self._op, self._phase)
        many, theirs = self._counts(self.at_place)
        even = np.bincount(kind, many == theirs) > 0
        return even[kind] & (theirs == 0)

    @cached_property
    def in_some_layers(self) -> Bool:
        pattern, layer = self._layers
        kind = numbered_together(pattern, self._op, self._phase, self._line)
        cell, place = numbered_together(kind, layer), numbered_together(pattern, layer)
        many, theirs = self._counts(cell)
        even = np.bincount(kind, many == theirs) > 0
        alone = (_distinct(kind, cell) == 1) & (_distinct(pattern, place) > 1) & (theirs == 0)
        # the lines of two libraries are all others: there it is the operation that the other run lacks
        shared = np.bincount(pattern, self._counts(numbered_together(pattern, self._line))[1] > 0) > 0
        alone &= shared[pattern] | (self._counts(self.at_place)[1] == 0)
        return (even[kind] & (many > theirs)) | alone

    @cached_property
    def at_further_lines(self) -> Bool:
        place = self._place
        _, theirs = self._counts(numbered_together(place, self._line))
        of_b = np.arange(len(place)) >= len(self._a)
        lacks = [np.bincount(place, (theirs == 0) & (of_b != side)) > 0 for side in (False, True)]
        further = (theirs == 0) & ~np.where(of_b, lacks[1][place], lacks[0][place])
        shared = np.bincount(place, theirs > 0) > 0
        return further & shared[place] & (self._phase != Phase.PREPARE) & (self._line >= 0)

    @cached_property
    def kind(self) -> Int64:
        return numbered_together(self._place, self._op, self._line)

    @cached_property
    def at_place(self) -> Int64:
        return numbered_together(self._place, self._op)

    @cached_property
    def asked_of_kind(self) -> Int64:
        return numbered_together(self.kind, self._asked)

    @cached_property
    def asked_at_place(self) -> Int64:
        return numbered_together(self.at_place, self._asked)

    @cached_property
    def _asked(self) -> Int64:
        return np.concatenate(text_ids(self._a, self._b, "Arguments"))

    @cached_property
    def _place(self) -> Int64:
        """The module and the phase."""
        names = [[canonical(name) for name in log.modules] for log in (self._a, self._b)]
        return numbered_together(self._of_both(names, lambda log: log.module), self._phase)

    # the next three are made quickly, and would stay as long as the log

    @property
    def _phase(self) -> Int64:
        return np.concatenate((self._a.phase, self._b.phase)).astype(np.int64)

    @property
    def _op(self) -> Int64:
        return self._of_both((self._a.ops, self._b.ops), lambda log: log.op)

    @property
    def _line(self) -> Int64:
        return self._of_both((self._a.locations, self._b.locations), lambda log: log.location)

    def _of_both(self, texts: Sequence[Sequence[str]], column: Callable[[OpLog], NDArray[Any]]) -> Int64:
        """A column of both logs in one numbering of its texts; -1 for none."""
        ids = shared_ids(*texts)[:2]
        return np.concatenate([np.append(of, -1)[column(log)] for of, log in zip(ids, (self._a, self._b), strict=True)])

    def _counts(self, cell: Int64) -> tuple[Int64, Int64]:
        """Numbers of records of the own run, and of the other one, in the same cell."""
        n, cells = len(self._a), int(cell.max(initial=-1)) + 1
        of_a, of_b = (np.bincount(of, minlength=cells)[cell] for of in (cell[:n], cell[n:]))
        own = np.arange(len(cell)) < n
        return np.where(own, of_a, of_b), np.where(own, of_b, of_a)


_records = once_per_pair(_Records)


def _distinct(group: Int64, member: Int64) -> Int64:
    """int64[n]: the number of different members of each one's group; both count from 0."""
    many = int(member.max(initial=0)) + 1
    return np.bincount(distinct(group * many + member) // many)[group]


def _united(ranks: NDArray[np.uint64], group: Int64) -> NDArray[np.uint64]:
    """uint64[n]: the ranks, a bit each, that any record of the same group has."""
    out = np.zeros(int(group.max(initial=-1)) + 1, ranks.dtype)
    np.bitwise_or.at(out, group, ranks)
    return out[group]
