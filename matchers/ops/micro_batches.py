"""Micro-batches of one log, and the log that has them in one.

Two runs that divide one batch differently (1 micro-batch of 8, 4 of 2) have no operation in common that returns the
same tensor. But the parts tell nearly everything about the whole (`folding.py`), and of gradients, which add up, the
log has the total: the result of the last accumulation. So both logs are read as if they had one micro-batch: the record
of the last one stands for the operation in all of them, with the numbers of the whole, and the accumulations of a
gradient belong to the record that made its last term.

What a run computes from one micro-batch by itself has no whole: the mean loss, the statistics of a batch norm, a
dropout's mask. `Folding.terms` and `Folding.by_part` name these results.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Hash, Int64, columns, marked, numbered_together
from matchers.logs.columns import Ragged, repeated
from matchers.logs.hashing import float_bits, mix, shared_ids
from matchers.logs.input_statistics import FIELD
from matchers.logs.op_log import MARKS, NO_DIGEST, OTHER_UNKNOWN, Folding, OpLog, Phase, is_mark
from matchers.ops.arguments import odd_arguments
from matchers.ops.batch_alignment import aligned
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.combine import combine, joined, with_values
from matchers.ops.dataflow import sources
from matchers.ops.laws import additions, drawing, in_place, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.placement import REDUCED, merged_records
from matchers.ops.shapes import dimensions, numel
from matchers.ops.share import Holds, Share
from matchers.ops.values import Values, first_outputs, further

__all__ = [
    "accumulations",
    "fold_micro_batches",
    "of_other_ranks",
    "output_read",
]

Shape = tuple[int, ...]

_SAME_SIZE = 0.5
"""Share of equal shapes from which on the micro-batches of two runs have one size."""


def fold_micro_batches(a: OpLog, b: OpLog) -> tuple[OpLog, OpLog]:
    """The two logs; if they divide their batches into micro-batches of different sizes, as if they did not."""
    if a.folding is not None or b.folding is not None:
        return a, b
    batch_a, batch_b = micro_batch_numbers(a), micro_batch_numbers(b)
    if int(batch_a.max(initial=0)) == int(batch_b.max(initial=0)):
        return a, b
    if _same_size(a, b, batch_a, batch_b):
        return a, b
    one, other = _Parts.of(a, batch_a), _Parts.of(b, batch_b)
    # two unknown digests must not look equal
    return one.folded(other, NO_DIGEST), other.folded(one, NO_DIGEST if one.batches == 1 else OTHER_UNKNOWN)


def of_other_ranks(log: OpLog, other: OpLog, paired: Bool) -> Bool:
    """bool[n]: records of micro-batches that other ranks of the other run have computed.

    Args:
        paired: bool[n], the record has a partner in the other log, which is that of one rank.
    """
    ranks, others = (run.get("world_size", 1) for run in (log.header.run, other.header.run))
    number = micro_batch_numbers(log)
    many = int(number.max(initial=-1)) + 1
    if not (type(ranks) is type(others) is int and 0 < ranks < others and many * ranks % others == 0):
        return np.zeros(len(log), bool)
    inside = number >= 0
    share = np.bincount(number[inside & paired], minlength=many) / np.maximum(np.bincount(number[inside]), 1)
    here = np.flatnonzero(share > _SAME_SIZE)
    return inside & ~np.isin(number, here) & ~paired & (len(here) * others == many * ranks)


class _Whole(NamedTuple):
    """The whole that the results of several micro-batches make together.

    Attributes:
        shape: None if they have none.
        term: they are terms, or each has a result of its own, or parts are missing: nothing is known of the whole.
        certain: they are certainly parts.
    """

    shape: tuple[int, ...] | None
    term: bool
    certain: bool

    @classmethod
    def of(cls, dims: Shape | None, many: int, batches: int, there: Collection[tuple[Shape, int]]) -> _Whole:
        """Of so many parts of a shape, where the other log has parts, or wholes, `there`: shapes and their numbers.

        Args:
            batches: number of micro-batches; those whose samples skip an operation have no part in it.
        """
        if dims is None:
            return cls(None, term=False, certain=False)
        # of parts that are no stretch of memory a term may keep more dimensions of length 1
        lengths = [k for k in dims if k != 1]
        known = any(lengths == [k for k in shape if k != 1] for shape, _ in there)
        divided = _divided(dims, many, there)
        if divided is None and many < batches and (by := _divided(dims, batches, there)) is not None:
            return cls((*dims[:by], dims[by] * batches, *dims[by + 1 :]), term=True, certain=True)
        term = divided is None and (math.prod(dims) == 1 or known)
        whole = list(dims)
        if not term and dims:
            whole[divided or 0] *= many
        return cls(tuple(whole), term, certain=divided is not None and not known)


@columns
class _Parts:
    """The records of a log, those that are one operation in several micro-batches together.

    Attributes:
        rows: int64[m], the records, in groups, each in order; the last one leads its group.
        start: int64[g], the first of each group in `rows`.
        into: int64[n], as in `Folding`.
        total: the last accumulation of an output, by the leading record that made its last term and the number of the
            output.
        running: by the last accumulation of what is no gradient of these micro-batches (a counter, the loss of the
            step), all of them in order.
        flow: of the log (`sources`).
    """

    log: OpLog
    batches: int
    rows: Int64
    start: Int64
    into: Int64
    total: Mapping[tuple[int, int], int]
    running: Mapping[int, list[int]]
    flow: Ragged

    @classmethod
    def of(cls, log: OpLog, number: Int64) -> _Parts:
        """The parts of a log whose records have these micro-batches."""
        n = len(log)
        batches = int(number.max(initial=0)) + 1
        if batches == 1:
            return cls(log, 1, np.arange(n), np.arange(n), np.full(n, -1, np.int64), {}, {}, log.producers)
        flow = sources(log)
        added = accumulations(log, number, flow)
        apart = marked([row for row, _, _ in added], n)
        rows, start = aligned(log, number, np.flatnonzero((number >= 0) & ~apart), flow)
        lead = np.repeat(_last(rows, start), np.diff(np.append(start, len(rows))))
        into = np.full(n, -1, np.int64)
        into[rows] = np.where(rows == lead, -1, lead)
        return cls(log, batches, rows, start, into, *_totals(log, added, into), flow)

    @property
    def size(self) -> Int64:
        """int64[g], number of records of each group."""
        return np.diff(np.append(self.start, len(self.rows)))

    @property
    def lead(self) -> Int64:
        """int64[g], the last record of each group."""
        return _last(self.rows, self.start)

    def shapes(self, *, modules: bool) -> dict[tuple[str, str, int], set[tuple[tuple[int, ...], int]]]:
        """The shapes of parts, each with the number of parts, by module (if `modules`), op and phase."""
        log, lead = self.log, self.lead
        where = log.module[lead] if modules else np.zeros(len(lead), np.int64)
        seen = np.stack((where, log.op[lead], log.phase[lead], log.shape[lead], self.size))
        out: dict[tuple[str, str, int], set[tuple[tuple[int, ...], int]]] = defaultdict(set)
        for module, op, phase, shape, many in np.unique(seen[:, log.shape[lead] >= 0], axis=1).T.tolist():
            name = canonical(log.modules[module]) if modules else ""
            out[name, log.ops[op], phase].add((dimensions(log.shapes[shape]), many))
        return out

    def folded(self, other: _Parts, unknown: np.uint64) -> OpLog:
        """The log with one micro-batch.

        Args:
            other: of the log to compare with; it tells which results are parts and which are terms.
            unknown: the digest of tensors that only their parts are known of.
        """
        if self.batches == 1:
            return self.log
        log, lead = self.log, self.lead
        alike = _alike(self._prints()[self.rows], self.start)
        several = np.flatnonzero(self.size > 1)
        wholes = self._wholes(other, several)
        # parts may hold equal numbers by themselves
        differ = [not alike[group] or of.certain for group, of in zip(several.tolist(), wholes, strict=True)]
        wholes, fold = list(compress(wholes, differ)), np.zeros(len(lead), bool)
        fold[list(compress(several.tolist(), differ))] = True
        k, of_whole, first = lead[fold], np.zeros(len(log), bool), np.zeros(len(log.outputs.value), bool)
        of_whole[k] = True
        first[log.outputs.start[k[log.outputs.count[k] > 0]]] = True
        outputs, digests = self._lists(log.outputs, log.digests, fold, first, unknown)
        read = (self.flow.value >= 0) & of_whole[self.flow.value]
        inputs, input_digests = self._lists(log.inputs, log.input_digests, self.size > 1, read, unknown)
        for last, chain in self.running.items():
            place = int(self.flow.value[self.flow.start[last]]) != chain[-2]
            _join_terms(log, inputs, input_digests, chain, place, unknown)
        made, lost = self._further_outputs(other, np.flatnonzero(fold))
        values = joined([self._first_outputs(fold, wholes, unknown), made, self._totals()])
        is_term, by_part = np.zeros(len(log), bool), np.zeros(len(log), bool)
        terms = k[[of.term for of in wholes]] if wholes else k
        is_term[np.setdiff1d(terms, [row for row, output in self.total if not output])] = True
        # whole numbers may be positions within a part
        is_term[k[np.array(["int" in name for name in log.dtypes] + [False])[log.dtype[k]]]] = True
        # a factor of each micro-batch, such as the share of its loss
        is_term[lead[(self.size > 1) & alike & (numel(log)[log.shape[lead]] == 1)]] = True
        by_part[k] = (drawing(log) | rows_where(log, lambda law: law.over_batch))[k]
        by_part[terms] |= rows_where(log, lambda law: law.extreme)[terms]  # of its own rows: no term of a sum
        run = {name: value for name, value in log.header.run.items() if name != "batch"}
        whole = replace(
            log,
            header=replace(log.header, run=run),
            outputs=outputs,
            digests=digests,
            inputs=inputs,
            input_digests=input_digests,
            micro_batch=np.where(log.micro_batch > 0, 0, log.micro_batch),
            extra={
                **log.extra,
                **{name: log.texts(name).changed(dict.fromkeys(k.tolist(), b"")) for name in ("User hash", FIELD)},
                "Arguments": log.texts("Arguments").changed(odd_arguments(log, self.rows, self.start, lead)),
            },
            folding=Folding(log, self.batches, self.into, is_term, by_part),
        )
        return with_values(whole, values, lost)

    def _first_outputs(self, fold: Bool, wholes: Sequence[_Whole], unknown: np.uint64) -> Values:
        """The first outputs of some groups (bool[g]), of all micro-batches."""
        rows, start = self._members(fold)
        term, certain = (np.array([of[k] for of in wholes], bool) for k in (1, 2))
        # what a pass computes of the whole batch, or parameters get of it, is a sum: their sketches tell if it is
        adds = term & ~certain & (self.log.phase[self.lead[fold]] == Phase.BACKWARD)
        shares = [
            Share(Holds.PARTIAL if of_sum and math.prod(of.shape or ()) > 1 else Holds.SHARD, whole=of.shape)
            for of, of_sum in zip(wholes, adds.tolist(), strict=True)
        ]
        parts = first_outputs(self.log, rows)
        found = combine(parts, start, shares)
        found.shape[[of.shape is None for of in wholes]] = -1
        adds &= found.counts[0] < 0
        # finite where its terms are: a norm that is unknown is no NaN where numbers were counted
        found.counts[:, adds] = np.maximum.reduceat(parts.counts, start, axis=1)[:, adds]
        scalar = term & (found.numel == 1)
        stats, present = found.stats, found.present
        stats[:, scalar] = stats[4, scalar] * self.size[fold][scalar]
        stats[:2, scalar] = np.abs(stats[:2, scalar])
        present[term & ~scalar] = 0
        return replace(found, maker=self.lead[fold], digest=np.full(len(found), unknown))

    def _further_outputs(self, other: _Parts, groups: Int64) -> tuple[Values, list[tuple[int, int]]]:
        """The further outputs of some groups that differ between parts, of all micro-batches; and (record, output) of
        those of which the whole is unknown.
        """
        values, theirs, twin = further(self.log), further(other.log), self._counterparts(other)
        place = {at: v for v, at in enumerate(zip(values.maker.tolist(), values.slot.tolist(), strict=True))}
        parts, shares, lost = list[list[int]](), list[Share](), list[tuple[int, int]]()
        makers = list[int]()
        for group in groups.tolist():
            rows, of_twin, many_twins = self._rows_of(group), range(0), int(other.size[twin[group]])
            if twin[group] >= 0:
                of_twin = theirs.of(int(other.lead[twin[group]]))
            for v in values.of(rows[-1]):
                slot = int(values.slot[v])
                if slot < 0:
                    continue
                told = [(theirs.dims(w), many_twins) for w in of_twin if theirs.slot[w] == slot]
                # what all parts have, the whole has once, if it has the same shape
                if _same_bits(self.log, rows, slot) and all(dims == values.dims(v) for dims, _ in told):
                    continue
                of = [place[row, slot] for row in rows if (row, slot) in place]
                shapes, whole = [dims for at in of if (dims := values.dims(at)) is not None], None
                # whole numbers may be positions within a part
                if len(shapes) == len(rows) and "int" not in values.dtypes[values.dtype[v]]:
                    by = _divided(shapes[-1], len(rows), told)
                    whole = None if by is None else _put_together(shapes, by)
                if whole is None:
                    lost.append((rows[-1], slot))
                else:
                    makers.append(rows[-1])
                    parts.append(of)
                    shares.append(Share(Holds.SHARD, whole=whole))
        start = np.cumsum([0, *map(len, parts)])[:-1]
        found = combine(values.taken(np.array([at for of in parts for at in of], np.int64)), start, shares)
        return replace(found, maker=np.array(makers, np.int64)), lost

    def _totals(self) -> Values:
        """What gradients have added up to, as outputs of the records that made their last terms."""
        log, last = self.log, np.array(list(self.total.values()), np.int64)
        rows, outputs = np.array(list(self.total), np.int64).reshape(-1, 2).T
        form = np.where(outputs == 0, rows, last)  # a sum may have lost a dimension of length 1
        found = first_outputs(log, last)
        return replace(found, maker=rows, slot=outputs, shape=log.shape[form], dtype=log.dtype[form])

    def _prints(self) -> Hash:
        """uint64[n], equal for equal results; those that are not known to be equal are not."""
        log = self.log
        if len(log.digests.value):
            unknown = log.digests.row[is_mark(log.digests.value)]
            prints = log.fingerprints("digests").copy()
            prints[unknown] = mix(unknown.astype(np.uint64))
            return prints
        return log.fingerprints("outputs") + mix(float_bits(log.stats[1])) + mix(float_bits(log.stats[2]))

    def _members(self, which: Bool) -> tuple[Int64, Int64]:
        """`rows` and `start` of some groups."""
        size = self.size
        return self.rows[np.repeat(which, size)], np.cumsum(size[which]) - size[which]

    def _lists(
        self, values: Ragged, digests: Ragged, which: Bool, parts: Bool, unknown: np.uint64
    ) -> tuple[Ragged, Ragged]:
        """The lists of norms and of digests; in the leading records of some groups, those of the whole.

        Args:
            which: bool[g], these groups.
            parts: bool, by value: it is known to be of a part; others are where they differ between micro-batches.
        """
        listed = _alike(values.count[self.rows], self.start)
        rows, start = self._members(which & listed)
        value, digest = values.value.copy(), digests.value.copy()
        if len(rows):
            group = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(rows))))
            owner, place = repeated(np.arange(len(rows)), values.count[rows])
            order = np.lexsort((owner, place, group[owner]))
            owner, place = owner[order], place[order]
            new = np.flatnonzero(np.diff(group[owner], prepend=-1) | np.diff(place, prepend=-1))
            if not len(new):
                return values, digests
            last = np.append(new[1:], len(owner)) - 1
            at = values.start[rows[owner]] + place
            same = _alike(float_bits(values.value[at]), new)
            if np.array_equal(values.count[rows], digests.count[rows]):
                at_digest = digests.start[rows[owner]] + place
                same = _alike(digests.value[at_digest], new)
                digest[at_digest[last[~same | parts[at[last]]]]] = unknown
            whole = ~same | parts[at[last]]
            value[at[last[whole]]] = np.add.reduceat(values.value[at], new)[whole]
        return Ragged(values.start, value), Ragged(digests.start, digest)

    def _wholes(self, other: _Parts, groups: Int64) -> list[_Whole]:
        """What the results of some groups make together."""
        log, known = self.log, dict[tuple[int, ...], _Whole]()
        by_module, by_op = other.shapes(modules=True), other.shapes(modules=False)
        lead, even = self.lead[groups], _alike(log.shape[self.rows], self.start)[groups]
        twin = self._counterparts(other)[groups]
        of_twin = np.where(twin >= 0, other.log.shape[other.lead[twin]], -1)
        kinds = (log.module[lead], log.op[lead], log.phase[lead], log.shape[lead])
        columns = (*kinds, self.size[groups], of_twin, np.where(twin >= 0, other.size[twin], 0))
        found = []
        for group, alike, *key in zip(groups.tolist(), even.tolist(), *(of.tolist() for of in columns), strict=True):
            if not alike:  # the tokens of an expert
                rows = np.array(self._rows_of(group))
                told = bool((log.shape[rows] >= 0).all())
                whole = _put_together([dimensions(log.shape_text(row)) for row in rows.tolist()], None)
                found.append(_Whole(whole if told else None, term=not told, certain=True))
                continue
            module, op, phase, part, many, twin_shape, twins = key
            if tuple(key) not in known:
                dims, kind = dimensions(log.shapes[part]), (log.ops[op], phase)
                there = {(dimensions(other.log.shapes[twin_shape]), twins)} if twin_shape >= 0 else set()
                if _divided(dims, many, there) is None and all(dims != shape for shape, _ in there):
                    there = by_module.get((canonical(log.modules[module]), *kind)) or by_op.get(("", *kind), set())
                known[tuple(key)] = _Whole.of(dims if part >= 0 else None, many, self.batches, there)
            found.append(known[tuple(key)])
        return self._of_terms(groups, found)

    def _of_terms(self, groups: Int64, wholes: Sequence[_Whole]) -> list[_Whole]:
        """The wholes, terms also where they are scaled terms of which the other log shows nothing.

        What an operation that adds up makes of a term is one.
        """
        found, place = list(wholes), np.full(len(self.log) + 1, -1, np.int64)
        log, lead, linear = self.log, self.lead[groups], rows_where(self.log, lambda law: law.linear)
        size = numel(log)[log.shape]
        place[lead] = np.arange(len(groups))
        for at in np.argsort(lead)[linear[np.sort(lead)]].tolist():
            maker = int(self.flow.first(lead[[at]], -1)[0])
            of = found[place[maker]] if maker >= 0 and place[maker] >= 0 else None
            if of is not None and of.term and size[maker] == size[lead[at]] and not found[at].certain:
                found[at] = _Whole(dimensions(log.shape_text(int(lead[at]))), term=True, certain=False)
        return found

    def _rows_of(self, group: int) -> list[int]:
        return self.rows[self.start[group] : self.start[group] + self.size[group]].tolist()

    def _counterparts(self, other: _Parts) -> Int64:
        """int64[g], the group of the other log at the same place among those of its module and op; -1 without one.

        Places count only where both logs have equally many: in a line of the program, or else in the module.
        """
        numbers: dict[str, int] = {}
        ops, lines = (
            shared_ids(mine, theirs)
            for mine, theirs in ((self.log.ops, other.log.ops), (self.log.locations, other.log.locations))
        )
        keys = []
        for parts, op, line in ((self, ops[0], lines[0]), (other, ops[1], lines[1])):
            log, lead = parts.log, parts.lead
            module = np.array([numbers.setdefault(canonical(name), len(numbers)) for name in log.modules] + [-1])
            key = ((module[log.module[lead]] + 1) * (ops[2] + 1) + op[log.op[lead]] + 1) * 16 + log.phase[lead] * 2
            keys.append((key + log.recompute[lead], line[log.location[lead]] + 1))
        (mine, mine_at), (theirs, theirs_at) = keys
        by_line = _same_place(mine * (lines[2] + 1) + mine_at, theirs * (lines[2] + 1) + theirs_at, self, other)
        return np.where(by_line >= 0, by_line, _same_place(mine, theirs, self, other))


def _same_place(mine: Int64, theirs: Int64, one: _Parts, other: _Parts) -> Int64:
    """int64[g], the group of the other log at the same place among those of its key, if both have equally many."""
    sides = []
    for key, lead in ((mine, one.lead), (theirs, other.lead)):
        order = np.lexsort((lead, key))
        _, start, count = np.unique(key[order], return_index=True, return_counts=True)
        place = np.arange(len(order)) - np.repeat(start, count)
        sides.append((order, np.stack((key[order], np.repeat(count, count), place))))
    (here, of_mine), (there, of_theirs) = sides
    code = numbered_together(*np.concatenate((of_mine, of_theirs), axis=1))
    found = np.full(int(code.max(initial=0)) + 1, -1, np.int64)
    found[code[len(here) :]] = there
    out = np.full(len(here), -1, np.int64)
    out[here] = found[code[: len(here)]]
    return out


def _divided(dims: Shape, many: int, there: Iterable[tuple[Shape | None, int]]) -> int | None:
    """The dimension in which these many parts make the same whole as the parts of the other log; None for none."""
    for shape, others in there:
        if shape is not None and len(shape) == len(dims) and shape != dims:
            differ = [k for k, (x, y) in enumerate(zip(dims, shape, strict=True)) if x != y]
            if len(differ) == 1 and dims[differ[0]] * many == shape[differ[0]] * others:
                return differ[0]
    return None


def _put_together(shapes: Sequence[Shape], by: int | None) -> Shape:
    """The shape of all parts along a dimension; by default the one in which they differ."""
    whole = list(shapes[-1])
    if by is None and len(set(map(len, shapes))) == 1:
        by = next((k for k, lengths in enumerate(zip(*shapes, strict=True)) if len(set(lengths)) > 1), None)
    if by is not None:
        whole[by] = sum(shape[by] for shape in shapes)
    return tuple(whole)


def _same_size(a: OpLog, b: OpLog, batch_a: Int64, batch_b: Int64) -> bool:
    """True if most results of a micro-batch's forward pass have shapes that both logs have: the sizes are the same."""
    ops_a, ops_b, _ = shared_ids(a.ops, b.ops)
    shapes_a, shapes_b, shapes = shared_ids(a.shapes, b.shapes)
    sides = []
    for log, batch, op, shape in ((a, batch_a, ops_a, shapes_a), (b, batch_b, ops_b, shapes_b)):
        rows = np.flatnonzero((log.phase == Phase.FORWARD) & (numel(log)[log.shape] > 1) & (batch <= 0))
        sides.append(np.unique((op[log.op[rows]] + 1) * (shapes + 1) + shape[log.shape[rows]] + 1, return_counts=True))
    (kinds_a, many_a), (kinds_b, many_b) = sides
    _, at_a, at_b = np.intersect1d(kinds_a, kinds_b, assume_unique=True, return_indices=True)
    common = int(np.minimum(many_a[at_a], many_b[at_b]).sum())
    return common > _SAME_SIZE * min(int(many.sum()) for _, many in sides)


def accumulations(log: OpLog, number: Int64, flow: Ragged) -> list[tuple[int, int, int]]:
    """Additions to a result of an earlier micro-batch, in order: (record, what it adds to, what it adds).

    What gathers a gradient belongs to no call of the model: a log may number it by the last one, which a pipeline's
    schedule runs before the backward pass of the term. It is of the micro-batch of that.
    """
    accumulates = in_place(log) | (numel(log)[log.shape] == 1) | (log.phase == Phase.BACKWARD)
    rows = np.flatnonzero(additions(log) & (number > 0) & (flow.count == 2) & accumulates)
    sums, terms = flow.value[flow.start[rows]], flow.value[flow.start[rows] + 1]
    out, number = [], number.copy()
    for row, total, term in zip(rows.tolist(), sums.tolist(), terms.tolist(), strict=True):
        for before, added in ((total, term), (term, total)):
            of_term = number[row] if added < 0 else number[added]
            if before >= 0 and 0 <= number[before] < of_term <= number[row]:
                number[row] = of_term
                out.append((row, before, added))
                break
    return out


def _last(rows: Int64, start: Int64) -> Int64:
    return rows[np.append(start[1:], len(rows)) - 1]


def _totals(
    log: OpLog, added: Iterable[tuple[int, int, int]], into: Int64
) -> tuple[dict[tuple[int, int], int], dict[int, list[int]]]:
    """`_Parts.total` and `running`. In `into`, accumulations join the group of their last term, or the last of them."""
    begins: dict[int, int] = {}
    chains: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    # the last addition of what ranks reduce may read that, of many parameters at once, in place of the sum before it
    reduced = {*merged_records(log, REDUCED)}
    for row, before, term in added:
        begins[row] = term if row in reduced else begins.get(before, before)
        chains[begins[row], output_read(log, term, row)].append((row, term))
    out, running = {}, {}
    for (begin, output), chain in chains.items():
        last, term = chain[-1]
        lead = int(into[term]) if term >= 0 and into[term] >= 0 else term
        if lead >= 0 and lead in (begin, into[begin]):
            out[lead, output] = last
            into[[row for row, _ in chain]] = lead
        elif into[begin] < 0 and not (into == begin).any():
            running[last] = [begin, *(row for row, _ in chain)]
            into[running[last][:-1]] = last
    return out, running


def output_read(log: OpLog, made: int, read: int) -> int:
    """The output of a record that an addition reads; 0 if no norm is the same."""
    same = np.isin(log.outputs[made], log.inputs[read]) if made >= 0 else np.zeros(0, bool)
    return int(np.argmax(same)) if same.any() else 0


def _alike(values: NDArray[Any], start: Int64) -> Bool:
    """bool[g], all values of each group are equal."""
    if not len(start):
        return np.zeros(0, bool)
    return np.asarray(np.minimum.reduceat(values, start) == np.maximum.reduceat(values, start))


def _join_terms(log: OpLog, inputs: Ragged, digests: Ragged, chain: list[int], place: bool, unknown: np.uint64) -> None:
    """Let the last of a chain of additions read what the first one adds to, and all that they add.

    `place`: of what they add to, 0 or 1.
    """
    first, last = chain[0], chain[-1]
    if any(len(log.inputs[row]) != 2 for row in chain):
        return
    at = inputs.start[last]
    inputs.value[at + place] = log.inputs[first][int(place)]
    inputs.value[at + 1 - place] = sum(float(log.inputs[row][1 - place]) for row in chain)
    if len(log.input_digests[first]) == len(log.input_digests[last]) == 2:
        at = digests.start[last]
        digests.value[at + place], digests.value[at + 1 - place] = log.input_digests[first][int(place)], unknown


def _same_bits(log: OpLog, rows: Sequence[int], output: int) -> bool:
    """True if an output of some records is known to have the same bits in all."""
    digests = {int(of[output]) if output < len(of := log.digests[row]) else row for row in rows}
    return len(digests) == 1 and not digests.intersection(MARKS)
