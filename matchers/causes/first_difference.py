"""The first difference: where two runs that agree to the bit, or in every printed number, cease to.

It is the first row whose inputs are equal and whose result is not, however small the difference: with every number
before it equal, no tolerance matters. Rows that only one run has, and inputs that differ before any operation made
them, can come first as well; `Kind` tells them apart. Nothing here changes a status.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from matchers.arrays import Bool, one_of
from matchers.logs.op_log import NO_DIGEST, Phase
from matchers.ops.dataflow import downstream
from matchers.ops.input_statistics import statistics_apart
from matchers.ops.laws import law_of
from matchers.ops.shapes import sharded_runs
from matchers.ops.start import known_digests
from matchers.rows import Rows
from matchers.status import LabelledEnum, Status
from matchers.verdict.comparability import other_weights
from matchers.verdict.determinism import Determinism, equal_inputs, made_elsewhere
from matchers.verdict.digests import inputs_equal, other_bits
from matchers.verdict.reason import UNSIZED

__all__ = ["Equality", "FirstDifference", "Kind", "differences", "first_difference"]

_DIFFERS = (Status.CLOSE, Status.SHAPE, Status.DIVERGED, Status.NAN)
_AGREES = (Status.EQUAL, Status.SAME_PRINT)
_MAX_ROWS = 2000
"""Differing rows that are looked at: the first of them nearly always is the one."""


class Kind(LabelledEnum):
    """The way in which the first difference arises.

    OPERATION: the inputs are equal, the result is not. DRAW: likewise, and it draws random numbers. START: it reads
    weights, buffers or a batch that differ before the step. GIVEN: it reads another tensor that no captured operation
    made. UNPAIRED: only one run has the operation, and its result is read where the other run reads something else.
    OTHER_INPUT: its inputs differ although the operations that made them agree: it reads others, or another part of
    them. FORM: it is made of other operations in the two runs. UNJUDGED: it reads what could not be compared. CONTENT:
    no pair differs, but what an operation leaves in a parameter, buffer or optimizer state does. ENTERS: it is made of
    other numbers of Python.
    """

    OPERATION = 0
    DRAW = 1
    START = 2
    GIVEN = 3
    UNPAIRED = 4
    OTHER_INPUT = 5
    FORM = 6
    UNJUDGED = 7
    CONTENT = 8
    ENTERS = 9


_STARTS = ("weights", "buffers", "the batch")

_OF_FORM = (Kind.GIVEN, Kind.UNPAIRED, Kind.OTHER_INPUT, Kind.FORM, Kind.UNJUDGED)
"""Kinds that arise between any two layouts."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first difference between two runs.

    Attributes:
        row: the row of the comparison.
        by_digest: equality was told by digests; else by the printed numbers.
        position: the input by which the difference comes in, -1 if all are equal.
        makers: the records of a and of b that made this input, -1 for none.
        reader: for UNPAIRED, the row that reads the result; else -1.
        start: for START, what differs: `weights`, `buffers`, `the batch`, or several, in this order.
        others: pairs of the same kind of operation whose inputs are equal, beside this row; `others_differ` of them
            return something else too.
        operation: for START, the first row whose own inputs are equal and whose result is not, -1 for none.
    """

    row: int
    kind: Kind
    by_digest: bool
    position: int = -1
    makers: tuple[int, int] = (-1, -1)
    reader: int = -1
    start: tuple[str, ...] = ()
    others: int = 0
    others_differ: int = 0
    operation: int = -1


class Equality:
    """The pairs of single operations: whether their inputs and their results are equal.

    Attributes:
        rows: int64[p], the rows with such a pair, ascending.
        inputs: bool[p], all inputs are equal.
        by_digest: equal means equal bits; else equal printed numbers.
        differs: bool[r], by row of the comparison: the results are compared and not equal.
        same: bool[r], they are compared and equal.
    """

    def __init__(self, c: Rows) -> None:
        paired = c.pair >= 0
        self._c = c
        self.rows = np.flatnonzero(paired & ~np.append(c.pairing.grouped, False)[c.pair])
        self._i, self._j = c.row_a[self.rows], c.row_b[self.rows]
        # by the logs: what reads noise is judged as if it were equal
        by_digest = inputs_equal(c.a, c.b, self._i, self._j)
        self.inputs, self.by_digest = equal_inputs(c.a, c.b, self._i, self._j, by_digest)
        alike = np.zeros(len(c), bool)
        alike[[row for row in np.flatnonzero(c.verdict == Status.NAN).tolist() if paired[row] and _alike(c, row)]] = (
            True
        )
        if not self.by_digest:  # the same infinities are close for what they hide, not for a difference
            alike |= (c.verdict == Status.CLOSE) & (c.error == 0)
        self.differs = paired & one_of(c.verdict, _DIFFERS) & ~alike
        # what cannot be judged by itself differs for certain only where its inputs are equal
        unjudged = self.inputs & (c.verdict[self.rows] == Status.NOT_JUDGED)
        unsized = np.isin(self.rows, [row for row, slot in c.slots.items() if slot.reason in UNSIZED])
        unjudged &= (c.error[self.rows] > 0) | unsized | other_bits(c.a, c.b, self._i, self._j)
        self.differs[self.rows[unjudged]] = True
        self.same = paired & (one_of(c.verdict, _AGREES) | alike)

    @cached_property
    def determinism(self) -> Determinism:
        """The rate at which each kind of operation agrees on equal inputs."""
        c, rows = self._c, self.rows
        counted = self.inputs & (self.differs | self.same)[rows]
        return Determinism.of(c.a, c.b, self._i, self._j, counted, self.differs[rows])

    def place(self, row: int) -> int:
        """The place of a row in `rows`; -1 for none."""
        k = int(np.searchsorted(self.rows, row))
        return k if k < len(self.rows) and self.rows[k] == row else -1

    def begins_at(self, row: int) -> bool:
        """The inputs of a row are equal to the bit, its results are not."""
        k = self.place(row)
        return self.by_digest and k >= 0 and bool(self.inputs[k] and self.differs[row])

    def others(self, row: int) -> tuple[int, int]:
        """(pairs of the kind of a row with equal inputs, beside it; those of them whose results differ).

        Printed numbers hide small differences from the first one on: without digests only earlier pairs count.
        """
        k = self.place(row)
        return (0, 0) if k < 0 else self.determinism.others(k, None if self.by_digest else k)


def first_difference(c: Rows, equality: Equality) -> FirstDifference | None:
    """Find the first difference; None where no compared row differs. In the dispatch order of a."""
    search = _Search(c, equality)
    for found in search.all(np.ones(len(c), bool)):
        if c.merged and found.kind in _OF_FORM:
            continue
        if found.kind != Kind.START or search.by_norms:
            return found
        return replace(found, operation=search.first_operation(found.row))
    left = np.flatnonzero(c.red & (c.pair < 0))
    return FirstDifference(int(left[0]), Kind.CONTENT, equality.by_digest) if len(left) else None


def differences(c: Rows, equality: Equality, among: Bool) -> Iterator[FirstDifference]:
    """The differences at some rows (bool[r]) that no earlier difference explains."""
    return _Search(c, equality).all(among)


@dataclass(frozen=True, slots=True)
class _Input:
    """One input of a pair: the records that made it, -1 for none; `differs` is None where it cannot be told.

    Attributes:
        rows: those that show the records.
        alone: one of the records has no partner.
        explained: it comes from a row that differs, directly or over operations that were not compared.
    """

    position: int
    makers: tuple[int, int]
    rows: list[int]
    alone: bool
    explained: bool
    differs: bool | None

    @property
    def doubtful(self) -> bool:
        """True if equal printed numbers prove little: one pair of operations that agree did not make the input."""
        return self.alone or self.explained or len(set(self.rows)) > 1


class _Search:
    def __init__(self, c: Rows, equality: Equality) -> None:
        assert c.flow is not None
        self._c = c
        self._equality = equality
        self._flow = (c.flow.a, c.flow.b)
        self._inputs_equal = np.zeros(len(c), bool)
        self._inputs_equal[equality.rows] = equality.inputs
        self._behind_none = set[int]()
        """Rows that nothing which differs before the step leads to over operations without a verdict."""

    @cached_property
    def _reached(self) -> Bool:
        """bool[r]: rows that differ, or to which one leads over operations that were not compared."""
        return downstream(self._c.edges, self._equality.differs, ~self._equality.same)

    def all(self, among: Bool) -> Iterator[FirstDifference]:
        """The first differences at some rows (bool[r])."""
        rows = np.flatnonzero(self._equality.differs & among & (self._c.excluded_by < 0))[:_MAX_ROWS]
        return (found for row in rows.tolist() if (found := self.at(row)) is not None)

    def at(self, row: int) -> FirstDifference | None:
        """The first difference, if it is at this differing row; None where another one explains it."""
        c = self._c
        if not self._matters(row):
            return None
        if c.pairing.grouped[c.pair[row]]:
            explained = self._reached[c.edges[row]].any()
            return None if explained else FirstDifference(row, Kind.FORM, self._equality.by_digest)
        if found := self._by_norms(row):
            return found
        if self._arises(row):
            return None if self._elsewhere[row] else self._operation(row)
        return self._by_input(row)

    def first_operation(self, after: int) -> int:
        """The first row from `after` on whose inputs are equal and whose result is not, -1 for none."""
        c, e = self._c, self._equality
        rows = e.rows[e.inputs & (e.differs & (c.excluded_by < 0))[e.rows]]
        arises = (row for row in rows[rows > after][:_MAX_ROWS].tolist() if self._arises(row) and self._matters(row))
        return next((row for row in arises if not self._elsewhere[row]), -1)

    def _arises(self, row: int) -> bool:
        """True if a difference arises in an operation: its inputs are equal, and no print hides that they are not."""
        if not self._inputs_equal[row]:
            return False
        return self._equality.by_digest or not any(given.doubtful for given in self._inputs(row))

    def _operation(self, row: int) -> FirstDifference:
        others, differ = self._equality.others(row)
        law = law_of(self._c.a, int(self._c.row_a[row]))
        kind = Kind.DRAW if law.random else Kind.ENTERS if law.enters else Kind.OPERATION
        return FirstDifference(row, kind, self._equality.by_digest, others=others, others_differ=differ)

    def _by_input(self, row: int) -> FirstDifference | None:
        """The first difference at a row that reads something else."""
        c, inputs, by_digest = self._c, list(self._inputs(row)), self._equality.by_digest
        suspects = [given for given in inputs if given.differs] or [
            given for given in inputs if given.differs is None or given.alone
        ]
        if any(given.explained for given in suspects):
            return None
        if what := {text for given in suspects if (text := self._start(row, given) or self._start_behind(given))}:
            position = suspects[0].position
            return FirstDifference(row, Kind.START, by_digest, position, start=tuple(w for w in _STARTS if w in what))
        if not suspects:
            return FirstDifference(row, Kind.OTHER_INPUT, by_digest)
        given = next((given for given in suspects if given.alone), suspects[0])
        if given.alone:
            first = min(maker for maker in given.rows if c.pair[maker] < 0)
            return FirstDifference(first, Kind.UNPAIRED, by_digest, given.position, given.makers, reader=row)
        if not given.rows:
            return FirstDifference(row, Kind.GIVEN, by_digest, given.position)
        kind = Kind.OTHER_INPUT if self._equality.same[given.rows].all() else Kind.UNJUDGED
        return FirstDifference(row, kind, by_digest, given.position, given.makers)

    def _inputs(self, row: int) -> Iterator[_Input]:
        """The inputs of a pair of single operations, position by position."""
        c, alone = self._c, self._c.pair < 0
        i, j = int(c.row_a[row]), int(c.row_b[row])
        made = self._flow[0][i], self._flow[1][j]
        for k in range(max(len(c.a.inputs[i]), len(c.b.inputs[j]))):
            x, y = (int(of[k]) if k < len(of) else -1 for of in made)
            rows = [int(at[maker]) for at, maker in ((c.at_a, x), (c.at_b, y)) if maker >= 0]
            explained = bool(self._reached[rows].any())
            yield _Input(k, (x, y), rows, bool(alone[rows].any()), explained, _differ(c, i, j, k))

    def _matters(self, row: int) -> bool:
        """False for memory without content, and for a further result that changes nothing that reads it."""
        c = self._c
        i = int(c.row_a[row])
        if c.unread[row] or law_of(c.a, i).unwritten:
            return False
        slot = c.slots.get(row)
        if slot is None or not slot.name.startswith("output ") or c.a.phase[i] == Phase.BACKWARD:
            return True
        readers = c.at_a[self._flow[0].row[self._flow[0].value == i]]
        return bool(self._equality.differs[readers].any())

    @cached_property
    def _elsewhere(self) -> Bool:
        """bool[r]: another operation of b read the same and returned what a's did: the pair is wrong, not the run."""
        c, rows = self._c, self._equality.rows
        found = np.zeros(len(c), bool)
        found[rows] = made_elsewhere(c.a, c.b, c.row_a[rows], c.row_b[rows])
        return found

    def _start(self, row: int, given: _Input) -> str:
        """The kind of a differing input that no operation made, of `_STARTS`; empty for anything else, or unknown."""
        if given.rows or not given.differs:
            return ""
        c, start, record = self._c, self._c.start, int(self._c.row_a[row])
        if law_of(c.a, record).tokens == given.position:
            return "the batch" if start.batch is not False else ""
        digests = c.a.input_digests[record]
        if given.position < len(digests) and f"{int(digests[given.position]):016x}" in self._digests_of_buffers:
            return "buffers"
        weights = start.weights if start.weights is not None else self._other_weights[True]
        return "weights" if weights else "the batch" if start.batch else ""

    def _start_behind(self, given: _Input) -> str:
        """The kind of what differs before the step that operations without a verdict read to make an input."""
        c, e = self._c, self._equality
        seen = set(given.rows) - self._behind_none
        left = list(seen)
        while left:
            row = left.pop()
            if e.same[row] or e.differs[row] or c.pair[row] < 0:
                continue
            for one in self._inputs(row):
                if text := self._start(row, one):
                    return text
                new = set(one.rows) - seen - self._behind_none
                left += new
                seen |= new
        self._behind_none |= seen
        return ""

    def _by_norms(self, row: int) -> FirstDifference | None:
        """The first difference at a row that reads weights of which norms alone are known, and others differ."""
        if not self.by_norms:
            return None
        inputs, tokens = list(self._inputs(row)), law_of(self._c.a, int(self._c.row_a[row])).tokens
        weights = [one.position for one in inputs if not one.rows and one.position != tokens]
        if not weights or any(one.explained for one in inputs):
            return None
        batch = ("the batch",) if any(one.position == tokens and self._start(row, one) for one in inputs) else ()
        return FirstDifference(row, Kind.START, False, weights[0], start=("weights", *batch))

    @cached_property
    def by_norms(self) -> bool:
        """Other weights are told by norms alone, which hide how much they differ, and in which operations."""
        return not self._equality.by_digest and self._c.start.weights is None and self._other_weights[False]

    @cached_property
    def _digests_of_buffers(self) -> set[str]:
        """The digests in a of buffers that differ before the step."""
        if self._c.start.buffers is None:
            return set()
        digests = known_digests(self._c.a.header.run, "buffer_digests")
        return {str(digests[name]) for name in self._c.start.buffers.names}

    @cached_property
    def _other_weights(self) -> tuple[bool, bool]:
        """Other weights by their norms, where results have the same dtype, and where they have any."""
        c = self._c
        if sharded_runs(c.a, c.b):
            return False, False
        same, any_dtype = (
            other_weights(c.a, c.b, c.pairing, c.flow, any_dtype=each) is not None for each in (False, True)
        )
        return same, any_dtype


def _differ(c: Rows, i: int, j: int, k: int) -> bool | None:
    """True where the k-th inputs differ, by digest where both are known, else by norm; None where neither is."""
    norms, digests = (c.a.inputs[i], c.b.inputs[j]), (c.a.input_digests[i], c.b.input_digests[j])
    if k >= min(map(len, norms)):
        return None
    if k < min(map(len, digests)):
        one, other = digests[0][k], digests[1][k]
        if one == other:
            return False  # equal bits, or not read on either side
        return None if NO_DIGEST in (one, other) else True
    x, y = float(norms[0][k]), float(norms[1][k])
    if math.isnan(x) or math.isnan(y):
        return None
    told, other = statistics_apart(c.a, c.b, np.array([i]), np.array([j]), np.array([k]))
    return x != y or bool(told[0] > 0 or other[0])


def _alike(c: Rows, row: int) -> bool:
    """All that the two records of a row return and change is the same, NaN included."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    if len(c.a.digests[i]) or len(c.b.digests[j]):
        same = np.array_equal(c.a.digests[i], c.b.digests[j]) and NO_DIGEST not in c.a.digests[i]
        return bool(same) and c.a.texts("Mutated").raw(i) == c.b.texts("Mutated").raw(j)
    return bool(
        np.array_equal(c.a.outputs[i], c.b.outputs[j], equal_nan=True)
        and np.array_equal(c.a.stats[:, i], c.b.stats[:, j], equal_nan=True)
        and np.array_equal(c.a.counts[:, i], c.b.counts[:, j])
        and c.a.texts("Mutated").raw(i) == c.b.texts("Mutated").raw(j)
    )
