"""Gradients that ranks add up, as the additions with which one process accumulates them.

Where one process adds the gradient of each micro-batch to those before it, ranks reduce them: in buckets, over shards,
for many parameters at once. What comes of it is what the updates read that the log names, such as the norm for
clipping: the result of the last addition, as the ranks go on with it. The additions before have no tensor anywhere, but
sketches add up.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from matchers.arrays import Float64, Int64
from matchers.laws.law import Form, Law
from matchers.laws.register import ADDS_TO
from matchers.logs.columns import KeyColumn, Ragged, Strings
from matchers.logs.op_log import NO_DIGEST, OF_PARTS, OpLog, Phase
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.combine import with_values
from matchers.ops.dataflow import sources
from matchers.ops.last_contents import GRADIENT, LastContents, Touch
from matchers.ops.laws import communicating, rows_where
from matchers.ops.micro_batches import accumulations, output_read
from matchers.ops.module_path import canonical
from matchers.ops.placement import MERGED, REDUCED
from matchers.ops.sketch import decode_sketches, encode_sketch
from matchers.ops.values import Result, as_values, first_output, output
from matchers.runs.layouts.pieces import Piece

__all__ = ["ReducedGradients"]

_OP = ADDS_TO.encode()
_SAME = 1e-3
"""Relative deviation of sketches that add up: they round."""

_Place = tuple[str, str, int]


class _Gradient(NamedTuple):
    """The gradient of a parameter.

    Attributes:
        terms: in each micro-batch, the record of its term.
        output: of these records, the output that is the term.
        content: as it is read after the reduction.
        like: the last addition of the other run.
        adds_up: the sketch of a sum is that of its terms: they have its order of elements.
        readers: the updates that read it.
    """

    name: str
    terms: tuple[int, ...]
    output: int
    content: Result
    like: int
    adds_up: bool
    readers: list[Touch]


class ReducedGradients:
    """The gradients that another run accumulates, and the ranks of this one reduce.

    Their sums are records of the joined log. Most are new: doubles of the terms, which become additions.
    """

    def __init__(self, other: OpLog, pieces: Sequence[Piece], updates: OpLog) -> None:
        """`pieces`: the micro-batches; `updates`: the log with the updates of all ranks."""
        self._other, self._updates = other, updates
        self._pieces = pieces
        self._found = list(self._gradients()) if len(pieces) > 1 else []
        self._own = [_additions(piece.log) for piece in pieces]
        """By term and its output, the additions with which ranks themselves accumulate."""

    def _gradients(self) -> Iterator[_Gradient]:
        other, number, flow = self._other, micro_batch_numbers(self._other), sources(self._other)
        added = {record: (before, term) for record, before, term in accumulations(other, number, flow)}
        places = _places(other, np.flatnonzero(number == number.max(initial=0)))
        here = [{place: row for row, place in _places(of.log, of.rows).items()} for of in self._pieces] if added else []
        for name, touch in LastContents(other, tuple(other.modules)).first.items():
            record = int(flow[touch.row][touch.slot])
            before, term = added.get(record, (-1, -1))
            place, readers = places.get(term), self._readers.get(name)
            if place is None or not readers or not all(place in of for of in here):
                continue
            contents = map(self._contents.before, readers)  # some ranks alone may take the norm: it is not known there
            content = next((of for of in contents if math.isfinite(of.l1)), None)
            if content is not None:
                number_read = output_read(other, term, record)
                before_it = 0 if before in added else number_read
                of_sum = [output(other, *of) for of in ((record, 0), (before, before_it), (term, number_read))]
                total, *parts = _sketches(of_sum)
                adds_up = bool(np.linalg.norm(sum(parts) - total) <= _SAME * np.linalg.norm(total))
                yield _Gradient(name, tuple(of[place] for of in here), number_read, content, record, adds_up, readers)

    @cached_property
    def _contents(self) -> LastContents:
        return LastContents(self._updates, tuple(self._updates.modules))

    @cached_property
    def _readers(self) -> Mapping[str, list[Touch]]:
        """By the name of a gradient, the updates that read it as its reduction left it, not clipped.

        A loop that reduces gradients may copy them back, and scale them before the first norm is taken; what it does is
        named like an update.
        """
        found: dict[str, list[Touch]] = defaultdict(list)
        log, made = self._updates, self._updates.producers
        reduces, scales = (
            communicating(log) | rows_where(log, lambda law: law.form is Form.FILL),
            rows_where(log, _scales),
        )
        norms = np.flatnonzero(
            rows_where(log, lambda law: law.form in (Form.NORM, Form.POWER)) & (log.phase == Phase.GRADIENTS)
        )
        scales[norms[0] if len(norms) else len(log) :] = False
        reducing: dict[str, set[int]] = {}
        for row in self._contents.rows.tolist():
            for slot, name in enumerate(self._contents.names(row)):
                if not name.endswith(GRADIENT) or slot >= made.count[row]:
                    continue
                maker = int(made[row][slot])
                if reduces[row] or (scales[row] and not found[name] and maker in reducing.get(name, ())):
                    reducing.setdefault(name, set()).add(row)
                    found[name].clear()
                elif maker >= 0 and (not log.updates[maker] or maker in reducing.get(name, ())):
                    found[name].append(Touch(row, slot))
        return {name: readers for name, readers in found.items() if readers}

    @cached_property
    def pieces(self) -> list[Piece]:
        """The micro-batches, with the doubles."""
        out = list(self._pieces[:1])
        for k, (piece, own) in enumerate(zip(self._pieces, self._own, strict=True)):
            if k:
                doubled = [of.terms[k] for of in self._found if (of.terms[k], of.output) not in own]
                rows = np.sort(np.concatenate((piece.rows, np.array(doubled, np.int64))))
                out.append(piece._replace(rows=rows))
        return out

    def joined(self, log: OpLog, updates: Int64, ranks: int) -> OpLog:
        """The joined log with the sums.

        Args:
            updates: these records of the updates follow the micro-batches.
            ranks: for the reader.
        """
        if not self._found:
            return log
        start = np.cumsum([0, *(len(piece.rows) for piece in self.pieces)])
        terms, sums = (np.zeros((len(self.pieces), len(self._found)), np.int64) for _ in range(2))
        new = np.zeros(sums.shape, bool)
        for k, (piece, own) in enumerate(zip(self.pieces, self._own, strict=True)):
            doubles = Counter[int]()
            for j, of in enumerate(self._found):
                made = of.terms[k]
                at = own.get((made, of.output), made)
                new[k, j] = at == made and k > 0
                doubles[made] += int(new[k, j])
                terms[k, j], sums[k, j] = (start[k] + np.searchsorted(piece.rows, row) for row in (made, at))
                sums[k, j] += doubles[made] if new[k, j] else 0
        log = _as_additions(log, sums[new], terms[new], np.array([of.output for of in self._found])[np.nonzero(new)[1]])
        log = self._with_producers(log, terms, sums, start[-1], updates)
        return self._with_contents(log, terms, sums, ranks)

    def _with_producers(self, log: OpLog, terms: Int64, sums: Int64, after: int, updates: Int64) -> OpLog:
        """Let each sum read the one before it, the last one what was reduced; and the updates read that."""
        makers, start = log.producers.value.copy(), log.producers.start
        for k in range(1, len(sums)):
            makers[start[sums[k]]] = terms[0] if k == 1 else sums[k - 1]
        for row, of in zip(sums[-1].tolist(), self._found, strict=True):
            for touch in of.readers:
                slot = start[after + np.searchsorted(updates, touch.row)] + touch.slot
                reduced = makers[slot]
                if reduced > row and start[reduced] < start[reduced + 1]:
                    makers[start[reduced]] = row  # which what ranks run after the passes reduces
                    continue
                makers[slot] = row
                if reduced < row:
                    makers[start[row]] = reduced
        return replace(log, producers=Ragged(start, makers))

    def _with_contents(self, log: OpLog, terms: Int64, sums: Int64, ranks: int) -> OpLog:
        """The totals of the sums: the last ones as they are read, the others by the sketches of their terms.

        They have the shape and dtype of the other log's.
        """
        made, rows, last = list[Result](), sums[1:].T.reshape(-1), len(sums) - 1
        told = dict[int, bytes]()
        for k, of in enumerate(self._found):
            like = first_output(self._other, of.like)
            parts = [output(log, term, of.output) for term in terms[:-1, k].tolist()]
            for nth, sketch in enumerate(np.cumsum(_sketches(parts), axis=0)[1:], 1):
                text, term = encode_sketch(sketch) if of.adds_up else b"", parts[nth]
                digest = int(OF_PARTS) if text else None
                # finite, as their terms are: a norm that is unknown is no NaN where numbers were counted
                numel, nan, inf = (max(count, 0) for count in (term.numel, term.nan, term.inf))
                form = like.shape, like.dtype
                made.append(Result("", *form, numel=numel, nan=nan, inf=inf, digest=digest, sketch=text))
                told[int(sums[nth, k])] = f"{of.name} of {nth + 1} micro-batches".encode()
            made.append(Result("", like.shape, like.dtype, l1=of.content.l1, digest=of.content.digest))
            told[int(sums[last, k])] = f"{ranks} ranks, {of.name}{REDUCED}".encode()
        values = replace(as_values(made), maker=rows)
        log = with_values(log, replace(values, present=np.zeros(len(values), np.uint8)))
        return replace(log, extra={**log.extra, MERGED: log.texts(MERGED).changed(told)})


def _scales(law: Law) -> bool:
    return law.scales and law.in_place and not law.on_lists


def _additions(log: OpLog) -> dict[tuple[int, int], int]:
    """Term and its output → addition, of a rank that accumulates over micro-batches of its own."""
    found = accumulations(log, micro_batch_numbers(log), sources(log))
    return {(term, output_read(log, term, row)): row for row, _, term in found}


def _sketches(parts: Iterable[Result]) -> Float64:
    """float64[m, 16] of some results; NaN without one."""
    return decode_sketches([part.sketch for part in parts])


def _places(log: OpLog, rows: Int64) -> dict[int, tuple[str, str, int]]:
    """The place of each record of the backward pass: its module, op, and number among those."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    out = {}
    for row in rows[log.phase[rows] == Phase.BACKWARD].tolist():
        kind = canonical(log.module_name(row)), log.op_name(row)
        out[row] = (*kind, seen[kind])
        seen[kind] += 1
    return out


def _as_additions(log: OpLog, rows: Int64, terms: Int64, number: Int64) -> OpLog:
    """The log with additions in place of some records, doubles of those that made what they add: an output."""
    ops = (*log.ops.raw, *(() if _OP in log.ops.raw else (_OP,)))
    op, counter, line = log.op.copy(), log.counter.copy(), log.line.copy()
    op[rows], counter[rows], line[rows] = ops.index(_OP), -1, 0
    keys = [log.keys.raw(row) for row in range(len(log))]
    for row in rows.tolist():
        keys[row] = log.modules.raw[log.module[row]] + b"/" + _OP
    none, unknown = np.full(len(rows), np.nan), np.full(len(rows), NO_DIGEST)
    found = list(zip(terms.tolist(), number.tolist(), strict=True))
    norms = np.array([of[k] if k < len(of := log.outputs[term]) else np.nan for term, k in found])
    digests = np.array([of[k] if k < len(of := log.digests[term]) else NO_DIGEST for term, k in found], np.uint64)
    return replace(
        log,
        keys=KeyColumn(b"".join(key + b"\n" for key in keys)),
        ops=Strings(ops),
        op=op,
        counter=counter,
        line=line,
        outputs=log.outputs.replaced(rows, none),
        digests=log.digests.replaced(rows, unknown),
        inputs=log.inputs.replaced(rows, none, norms),
        input_digests=log.input_digests.replaced(rows, unknown, digests),
        producers=log.producers.replaced(rows, np.full(len(rows), -1), terms),
        extra={name: texts.changed(dict.fromkeys(rows.tolist(), b"")) for name, texts in log.extra.items()},
    )
