"""Find where a divergence starts: the role of every red row, and the first causes.

* receiver: an input already differs, or comes from a red row (also over rows that are close, unpaired or not judged),
or from an unpaired operation; * origin: every input agrees, the output differs; * unknown: no upstream row is red, but
an input differs (or has no hash) and no captured operation produced it: look one hop upstream.

Before the first red row an input agrees if it is within the tolerance. After it only an equal one does: there, a small
difference is more likely propagated divergence than noise. If both logs have digests, equal means bitwise equal; an
input whose bits differ although its producers' outputs are equal was changed on the way by something uncaptured (a view
of something else), and the row that reads it is unknown wherever it is.

First causes are the red rows that no other red row explains: origins and unknowns. Unpaired operations are first causes
too, if their own inputs are sound and a red row reads their result in place of another value (an inserted `neg` leaves
every norm unchanged), or if they produce the first NaN or Inf that a red row reads. So is a draw of random numbers
behind such an input, if only one run draws there: dropout that is off in the other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from matchers.arrays import Bool, Float64, Int64, marked, marked_at, one_of
from matchers.causes.causes import Causes
from matchers.causes.handed_on import acquit_copies
from matchers.causes.red_inputs import Inputs, fed_pairs, flow_of_red_tensors, inputs_of_pairs
from matchers.causes.unjudged_stretch import Stretches
from matchers.causes.unpaired_branches import Branches
from matchers.laws.law import Form
from matchers.logs.columns import Ragged
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import NO_DIGEST, STATISTICS, OpLog, Phase, once_per_log
from matchers.ops.collectives import awaiting
from matchers.ops.dataflow import downstream, fed_by, upstream
from matchers.ops.laws import copies, drawing, law_of, rows_where
from matchers.ops.nonfinite import broken, where_broken_begins
from matchers.ops.shapes import numel
from matchers.ops.values import first_outputs
from matchers.rows import Rows
from matchers.status import Role, Status
from matchers.verdict.judge_values import Differences
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.sketches import estimates
from matchers.verdict.tolerance import GROWTH

__all__ = ["find_first_causes"]


def find_first_causes(
    found: Causes, given: Collection[tuple[str, int]] = (), gradients: Sequence[tuple[int, int]] = ()
) -> None:
    """Determine roles and first causes.

    Args:
        given: by side and record, the unpaired red records that others explain.
        gradients: the records of a and b that made gradients which differ, of what the red ones update.
    """
    c = found.c
    red = c.verdict >= Status.SHAPE
    if not red.any():
        return
    search = _Search(found, red)
    search.unpaired([int((c.at_a if side == "a" else c.at_b)[record]) for side, record in given], gradients)
    if search.pairs.any():
        search.follow()
        search.enter_roles()
        acquit_copies(found)
    if not found.cause.any():  # crossing pairs let red rows explain each other: take the earliest
        found.cause[np.flatnonzero(search.pairs if search.pairs.any() else red)[0]] = True


class _Search:
    """The search for what explains each red row.

    Attributes:
        pairs: bool[r], red pairs.
        alone: bool[r], unpaired operations.
        explained: bool[r], a red row, or a first cause among unpaired ones, is upstream.
    """

    def __init__(self, found: Causes, red: Bool) -> None:
        c = found.c
        assert c.flow is not None
        self._c, self._found, self._cause = c, found, found.cause
        self.alone = c.pair < 0
        self.pairs = red & ~self.alone
        self._flows = flow_of_red_tensors(c, "a", c.flow.a), flow_of_red_tensors(c, "b", c.flow.b)
        edges = c.edges_of(*self._flows)
        # where pairs cross, what a row leads to in one run may lead to it in the other
        self._flow, self._of_runs = edges.both, (edges.a, edges.b)
        self._branches = Branches(c, self._flow)
        self._folded = c.a.batches > 1 or c.b.batches > 1
        # not judged, or within the tolerance: their results may differ
        self._passive = (c.verdict >= Status.CLOSE) & (c.verdict < Status.SHAPE)
        self._by_norms = _by_norms(c)
        # norms of micro-batches hide a difference that a mask, say, is larger than; norms alone any sign
        self._hides = c.bound & (c.verdict <= Status.CLOSE) & (self._by_norms | self._folded)
        self._fed, self._carries = self._led_by(red, red)
        self.explained = np.zeros(len(c), bool)

    def _led_by(self, in_a: Bool, in_b: Bool) -> tuple[tuple[Bool, Bool], tuple[Bool, Bool]]:
        """By run, bool[r]: rows that read what some rows made, over passive ones; and what hands that on, they too."""
        fed = [fed_by(flow, of, self._passive) for flow, of in zip(self._of_runs, (in_a, in_b), strict=True)]
        return (fed[0], fed[1]), (in_a | (self._passive & fed[0]), in_b | (self._passive & fed[1]))

    def unpaired(self, given: list[int], gradients: Sequence[tuple[int, int]]) -> None:
        """Enter the roles of red unpaired rows, and the beginnings of terms of gradients that one run alone adds."""
        c, found = self._c, self._found
        red = self.alone & (c.verdict >= Status.SHAPE)
        found.role[red] = Role.ORIGIN
        found.role[red & (self._fed_alone | marked(given, len(c)))] = Role.RECEIVER
        one, other = (np.append(at, -1)[[made[k] for made in gradients]] for k, at in ((0, c.at_a), (1, c.at_b)))
        made = [
            row
            for maker, extra in ((one, self._extra(one, other)), (other, self._extra(other, one)))
            for row in maker[extra & marked_at(~self._fed_alone, maker)].tolist()
        ]
        if made:  # nothing red leads to them
            found.role[red & c.by_row(lambda log: log.updates)] = Role.RECEIVER
        self._cause[found.role == Role.ORIGIN] = True
        self._cause[[self._branches.start(row) for row in made]] = True

    @property
    def _fed_alone(self) -> Bool:
        """bool[r]: unpaired rows that read what a red one made; each has the data flow of one run."""
        return np.logical_or(*self._fed)

    def follow(self) -> None:
        """Find the first causes among rows that are not red pairs, each kind among what is left to explain."""
        self._read()
        self._random_draws()
        self._kept_sizes()
        self._unpaired_producers()
        self._broken_producers()
        self._insertions()
        if self._reads_parts.any():
            reads_parts = marked(self._reads.row[self._reads_parts], len(self._c))
            stretches = Stretches(self._found, self._flow, self._of_runs, self._branches, self.pairs)
            self.explained |= stretches.follow(np.flatnonzero(self.pairs & reads_parts & ~self.explained))

    def enter_roles(self) -> None:
        """Enter the roles of red pairs, and those that are first causes."""
        reads, red, explained = self._reads, self.pairs, self.explained
        differs, unhashed, hidden = (
            marked(reads.row[which], len(red)) for which in (reads.differs, reads.unhashed, reads.hidden)
        )
        first = marked(np.flatnonzero(red)[:1], len(red))
        first[np.logical_or.accumulate(self._cause & self.alone)] = False
        open_to_doubt = hidden | first
        role = self._found.role
        role[red] = Role.ORIGIN
        # of what was asked for it is known that the inputs agree, fresh memory among them
        role[red & unhashed & (self._c.reason != Reason.ARGUMENTS)] = Role.UNKNOWN
        # what Python put into a tensor may follow from what it has read
        computed = self._c.by_row(lambda log: rows_where(log, lambda law: law.enters)) & ~first
        role[red & (differs | explained | computed)] = Role.RECEIVER
        role[red & open_to_doubt & differs & ~explained] = Role.UNKNOWN
        self._cause |= red & ((role == Role.ORIGIN) | ((role == Role.UNKNOWN) & open_to_doubt & ~explained))

    def _read(self) -> None:
        """Read which red pairs others explain, and of those left the inputs, and which are parts of tensors."""
        c, red = self._c, self.pairs
        if self._folded:
            spread = [self._red | (self._hides & fed_by(flow, self._red, self._hides)) for flow in self._of_runs]
            self._fed, self._carries = self._led_by(*spread)
        # nothing else is asked of a row that what is red explains
        rows = np.flatnonzero(red)
        self.explained[rows] = fed = fed_pairs(c, *self._flows, rows, *self._carries)
        reads = inputs_of_pairs(c, *self._flows, rows[~fed], int(rows[0]))
        carries_a, carries_b = self._carries
        from_red = (marked_at(carries_a, reads.a) | marked_at(carries_b, reads.b)) & ~reads.equal
        # NaN with equal bits in both runs that a pair reads, which has such NaN itself: it begins earlier
        both = c.reason == Reason.NAN_IN_BOTH
        from_red |= both[reads.row] & (reads.broken | marked_at(both, reads.a) | marked_at(both, reads.b))
        self.explained[reads.row[from_red]] = True
        by_weight, by_scalar = (
            marked([row for row, slot in c.slots.items() if of(slot)], len(c))
            for of in (lambda slot: slot.read, lambda slot: slot.scalars is not None)
        )
        self._by_scalar = by_scalar
        begins = c.reason == Reason.OTHER_START
        if self._folded:  # they read terms, which differ by design
            begins |= by_scalar | (c.reason == Reason.OTHER_DATA)
        reads = replace(reads, differs=reads.differs & ~begins[reads.row])
        parts = c.parts | (self.alone & downstream(self._flow, c.parts, self.alone))
        self._reads_parts = c.parts.any() & (
            (c.parts & ~by_weight)[reads.row] | marked_at(parts, reads.a) | marked_at(parts, reads.b)
        )
        whole = ~self._reads_parts
        self._reads = replace(reads, differs=reads.differs & whole, hidden=reads.hidden & whole)

    @property
    def _red(self) -> Bool:
        return self._c.verdict >= Status.SHAPE

    def _random_draws(self) -> None:
        """Random numbers that one run alone draws.

        Of what prepares a step a log has only what the step reads: the other run may have drawn them for nothing.
        """
        reads, alone = self._reads, self.alone
        draws = alone & self._c.by_row(_draws_in_step)
        if not draws.any():
            return
        drawn = alone & downstream(self._flow, draws, alone)
        random = (marked_at(drawn, reads.a) != marked_at(drawn, reads.b)) & ~reads.equal & ~self.explained[reads.row]
        makers = np.concatenate((reads.a[random], reads.b[random]))
        ends = drawn & marked(makers[makers >= 0], len(alone))
        self._cause |= draws & upstream(self._flow, ends, alone)
        self.explained[reads.row[random]] = True

    def _unpaired_producers(self) -> None:
        """Unpaired producers of another value, or of one that agrees in L1 only."""
        c = self._c
        reads = self._over_moved(self._over_unjudged(self._reads))
        extra_a, extra_b = self._extra(reads.a, reads.b), self._extra(reads.b, reads.a)
        # other operations made it in each run: what differs is known by its numbers only
        both = marked_at(self.alone, reads.a) & marked_at(self.alone, reads.b) & (c.verdict[reads.row] != Status.NAN)
        suspect = (extra_a | extra_b | both) & ~reads.equal & ~self.explained[reads.row] & ~self._reads_parts
        # what was asked otherwise on inputs that agree needs no other explanation
        suspect &= ~one_of(c.reason, (Reason.OTHER_START, Reason.ARGUMENTS))[reads.row]
        given = _given(c)
        suspect &= ~(marked_at(given, reads.a) | marked_at(given, reads.b))
        unshown = np.flatnonzero(suspect & ~reads.differs & both)
        hidden = _hidden_error(c, reads.a[unshown], reads.b[unshown])
        suspect[unshown] = c.error[reads.row[unshown]] <= GROWTH * hidden
        alike = np.flatnonzero(suspect & ~reads.differs & ~both)
        suspect[alike] = _altered(c, reads.a[alike], reads.b[alike], c.tolerance[reads.row[alike]])
        # in place of a weight, of whose numbers more than the norm is not known: elements were moved, not cast
        moved = reads.other_bits & (np.minimum(reads.a, reads.b) < 0) & (c.reason != Reason.OTHER_DTYPE)[reads.row]
        suspect[alike] |= moved[alike]
        # norms alone, and those of micro-batches, do not show that elements were moved or negated
        unseen = self._folded | (self._by_norms[reads.row] & (np.minimum(reads.a, reads.b) >= 0))
        if np.any(unseen):
            makes = ~c.by_row(copies)
            moved = extra_a & marked_at(makes, reads.a) | extra_b & marked_at(makes, reads.b)
            suspect[alike] |= (unseen & moved)[alike]
        if suspect.any():  # what a region hands on to another phase is no mistake where its own results agree
            suspect &= marked_at(self._open, reads.a) | marked_at(self._open, reads.b)
        suspect &= ~((extra_a | both) & marked_at(self._fed[0], reads.a))
        suspect &= ~((extra_b | both) & marked_at(self._fed[1], reads.b))
        self.explained[reads.row[suspect]] = True
        # a row that reads hundreds of tensors (an optimizer's) names one suspect, not hundreds
        named = np.flatnonzero(suspect)
        named = named[np.unique(reads.row[named], return_index=True)[1]]
        ends = {
            tuple(maker for maker in makers if maker >= 0 and self._open[maker])
            for makers in zip(reads.a[named].tolist(), reads.b[named].tolist(), strict=True)
        }
        self._cause[[self._branches.start(*rows) for rows in ends]] = True

    @cached_property
    def _open(self) -> Bool:
        """bool[r]: unpaired operations, but those of a stretch whose results agree."""
        return self.alone & ~self._c.covered

    def _over_unjudged(self, reads: Inputs) -> Inputs:
        """The inputs, but what a pair reads in place of its result, if it is not judged and no partners make that."""
        c = self._c
        at = np.flatnonzero((reads.a == reads.b) & marked_at(c.verdict == Status.NOT_JUDGED, reads.a))
        firsts = []
        for flow, record, of in zip(self._flows, (c.row_a, c.row_b), (c.at_a, c.at_b), strict=True):
            firsts.append(np.append(of, -1)[flow.first(record[reads.a[at]], -1)])
        alone = marked_at(self.alone, firsts[0]) & marked_at(self.alone, firsts[1])
        before_a, before_b = reads.a.copy(), reads.b.copy()
        before_a[at[alone]], before_b[at[alone]] = firsts[0][alone], firsts[1][alone]
        return replace(reads, a=before_a, b=before_b)

    def _over_moved(self, reads: Inputs) -> Inputs:
        """The inputs, but what one run alone copies, or moves between its ranks, where the other reads the partner.

        If its norm is not known: what merged ranks have of it cannot be put together, or other rows were computed.
        """
        c = self._c
        moved = self.alone & c.by_row(
            lambda log: (_moves_between_ranks(log) | copies(log)) & np.isnan(log.outputs.first())
        )
        behind = np.append(np.arange(len(c)), -1)
        for row in np.flatnonzero(moved).tolist():
            read = self._flow[row][self._flow[row] < row]
            behind[row] = behind[read[0]] if len(read) == 1 else -1

        def over(one: Int64, other: Int64) -> Int64:
            return np.where((other >= 0) & (behind[one] == other) & ~marked_at(self.alone, other), other, one)

        return replace(reads, a=over(reads.a, reads.b), b=over(reads.b, reads.a))

    def _kept_sizes(self) -> None:
        """Backward operations with another shape or scalar, of a line whose forward operations differ: autograd keeps
        sizes.
        """
        c = self._c
        shapes = self.pairs & ((c.verdict == Status.SHAPE) | self._by_scalar) & ~self.explained & (c.row_a >= 0)
        if not shapes.any():
            return
        phase, module, line = c.phase, c.by_row(lambda log: log.module), c.by_row(_lines)
        shapes = np.flatnonzero(shapes & (phase == Phase.BACKWARD))
        differs = (self._red | self.alone) & (phase == Phase.FORWARD) & (line >= 0) & (c.row_a >= 0)
        places = set(zip(module[differs].tolist(), line[differs].tolist(), strict=True)) if len(shapes) else set()
        found = [(int(module[row]), int(line[row])) in places for row in shapes.tolist()]
        self.explained[shapes[np.array(found, bool)]] = True

    def _broken_producers(self) -> None:
        """Unpaired producers of the first NaN or Inf."""
        c, reads = self._c, self._reads
        wanted = self.pairs & (c.verdict == Status.NAN) & ~self.explained
        if not wanted.any():
            return
        odd = [
            np.append(np.logical_or(*broken(log)), False)[record] for log, record in ((c.a, c.row_a), (c.b, c.row_b))
        ]
        for maker, other, (mine, theirs) in ((reads.a, reads.b, odd), (reads.b, reads.a, odd[::-1])):
            # computations by different operations (a softmax written out) have no pair that could be red
            alone = mine & self.alone
            led = wanted[reads.row] & ~marked_at(theirs, other) & marked_at(alone, maker)
            begins = where_broken_begins(self._flow, maker[led], alone)
            self._cause[begins[~self._fed_alone[begins]]] = True
            self.explained[reads.row[led]] = True

    def _insertions(self) -> None:
        """Operations between partners, whose effect norms alone, or those of folded micro-batches, do not show."""
        if not self._hides.any():
            return
        c, reads, flow = self._c, self._reads, self._flow
        # what was asked or given otherwise needs no other explanation
        pairs = self.pairs & ~one_of(c.reason, (Reason.ARGUMENTS, Reason.OTHER_DATA))
        pairs &= ~marked(reads.row[self._reads_parts], len(c))  # the stretch before these is looked at later
        stands = c.by_row(lambda log: ~copies(log) & (log.joined < 0))
        between = self.alone & stands
        partners = ~self.alone & (c.reason != Reason.OTHER_FORM)
        for row in np.unique(flow.value[between[flow.value] & self._hides[flow.row]]).tolist():
            before = flow[row][partners[flow[row]]]
            readers = flow.row[(flow.value == row) & self._hides[flow.row]]
            # the other run reads in place of its result what it reads
            readers = [
                reader for reader in readers.tolist() if np.isin(self._made_otherwise(reader, row), before).any()
            ]
            of_run = self._of_runs[int(c.row_a[row] < 0)]
            start = marked(readers, len(c))
            hides = self._hides & ~self._shows_order(of_run, row, start) if self._passes[row] else self._hides
            led = fed_by(of_run, start & hides, hides) & pairs & ~self.explained
            if led.any():
                self._cause[row], self.explained[led] = True, True
        if not self._folded:
            return
        # of the terms of micro-batches, the same value does not mean the same share: a loss divided by one
        same = (pairs & ~self.explained & ~marked(reads.row[reads.differs], len(c)))[reads.row]
        makes = ~c.by_row(copies) & ~self._fed_alone
        for maker, other in ((reads.a, reads.b), (reads.b, reads.a)):
            led = same & self._extra(maker, other) & marked_at(makes, maker)
            self._cause[maker[led]] = True
            self.explained[reads.row[led]] = True
        number = self._size == 1
        behind = np.flatnonzero(same & (reads.a == reads.b) & marked_at(number, reads.a))
        for reader, maker in zip(reads.row[behind].tolist(), reads.a[behind].tolist(), strict=True):
            scales = flow[maker][(makes & self.alone & number)[flow[maker]]]
            self._cause[scales] = True
            self.explained[reader] |= len(scales) > 0

    def _shows_order(self, flow: Ragged, row: int, readers: Bool) -> Bool:
        """bool[r]: rows whose norms show an order of elements.

        Products, element by element, of what a row and its readers lead to with a tensor of at least the product's size
        that they do not lead to; and what is computed of such sums and masks, whose large values hide an order.
        """
        c = self._c
        led, size = readers | (self._hides & fed_by(flow, readers, self._hides)), self._size
        multiplies, joins = self._multiplies_joins
        other = (flow.value != row) & ~led[flow.value] & (size[flow.value] >= size[flow.row]) & (size[flow.row] > 1)
        with_other = led & marked(flow.row[other], len(c))
        behind = led & marked(flow.row[(joins & with_other)[flow.value]], len(c))
        return (multiplies & with_other) | (behind & ~self._passes)

    @cached_property
    def _size(self) -> Float64:
        """float64[r], the number of elements of the first result; NaN if unknown."""
        return self._c.by_row(lambda log: numel(log)[log.shape])

    @cached_property
    def _passes(self) -> Bool:
        return self._c.by_row(lambda log: rows_where(log, lambda law: law.passes_elements))

    @cached_property
    def _multiplies_joins(self) -> tuple[Bool, Bool]:
        of = self._c.by_row
        return (
            of(lambda log: rows_where(log, lambda law: law.form == Form.MULTIPLY)),
            of(lambda log: rows_where(log, lambda law: law.form in (Form.ADD, Form.MASK))),
        )

    def _made_otherwise(self, reader: int, maker: int) -> Int64:
        """The rows that made what a pair reads in the run which does not have one of its makers."""
        c = self._c
        flow, record, at = (
            (self._flows[1], c.row_b, c.at_b) if c.row_a[maker] >= 0 else (self._flows[0], c.row_a, c.at_a)
        )
        made = flow[int(record[reader])]
        return at[made[made >= 0]]

    def _extra(self, maker: Int64, other: Int64) -> Bool:
        """bool: the input's producer is unpaired, while that of the other side is paired or unknown."""
        return marked_at(self.alone, maker) & ~marked_at(self.alone, other)


def _draws_in_step(log: OpLog) -> Bool:
    """bool[n]: draws of random numbers, but those that prepare a step."""
    return drawing(log) & (log.phase != Phase.PREPARE)


def _lines(log: OpLog) -> Int64:
    return log.location


def _by_norms(c: Rows) -> Bool:
    """bool[r]: pairs of whose results both logs tell norms alone, which show neither signs nor order."""
    others = sum(1 << STATISTICS.index(name) for name in ("Min", "Max", "Mean"))
    tell = [(log.present & others > 0) | (log.digests.count > 0) for log in (c.a, c.b)]
    return (c.pair >= 0) & ~marked_at(tell[0], c.row_a) & ~marked_at(tell[1], c.row_b)


def _altered(c: Rows, one: Int64, other: Int64, tolerance: Float64) -> Bool:
    """bool: the outputs of the two producers differ by their further statistics or sketches, although L1 may agree."""
    out = np.zeros(len(one), bool)
    known = np.flatnonzero((one >= 0) & (other >= 0))
    i, j = c.row_a[one[known]], c.row_b[other[known]]
    found = Differences(first_outputs(c.a, i), first_outputs(c.b, j))
    with np.errstate(invalid="ignore"):
        out[known] = np.fmax(np.maximum(found.norms, found.extremes), found.estimate) > tolerance[known]
    return out


def _hidden_error(c: Rows, one: Int64, other: Int64) -> Float64:
    """The relative error that the results of some rows of a and b may have against each other.

    By their sketches, or by their norms where the shapes are not the same: errors of random signs change the norm of n
    numbers by 1/√n of their size.
    """
    a, b, i, j = c.a, c.b, c.row_a[one], c.row_b[other]
    shape_a, shape_b, _ = shared_ids(a.shapes, b.shapes)
    _, error = estimates(first_outputs(a, i), first_outputs(b, j), shape_a[a.shape[i]] == shape_b[b.shape[j]])
    change = np.fmax(relative(a.outputs.first(i), b.outputs.first(j)), relative(a.stats[1][i], b.stats[1][j]))
    return np.where(np.isnan(error), change * np.sqrt(numel(a)[a.shape[i]]), error)


@once_per_log
def _moves_between_ranks(log: OpLog) -> Bool:
    """bool[n]: collectives that reduce nothing, and what awaits one."""
    moved = awaiting(log).copy()
    moved[[row for row in log.texts("Group") if not law_of(log, row).reduces]] = True
    return moved


def _given(c: Rows) -> Bool:
    """bool[r]: unpaired copies of what the step was given: ranks send each other buffers that they have already."""
    found = np.zeros(len(c), bool)
    for (log, at), flow in (((c.a, c.at_a), c.flow.a), ((c.b, c.at_b), c.flow.b)) if c.flow is not None else ():
        if np.array_equal(log.input_digests.start, flow.start):
            given = log.input_digests.value[flow.value < 0]
            records = np.flatnonzero(copies(log))
            records = records[np.isin(log.digests.first(records, NO_DIGEST), given[given != NO_DIGEST])]
            found[at[records]] = True
    return found & (c.pair < 0)
