"""Features of both logs that the matching compares, as integer and float columns.

Ids are shared between the sides (equal ids mean equal text), so that every comparison of names is a comparison of
integers. Almost every column is a function of one row and its log, independent of the other side's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Hash, Int32, Int64, columns, marked, numbered, stable_order
from matchers.joins import first_equal
from matchers.logs.columns import Ragged
from matchers.logs.hashing import _U, float_bits, mix, shared_ids
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.collectives import Chain, find_chains, lowered, read_by_collective, unfinished
from matchers.ops.laws import collective, functional, receiving
from matchers.ops.phases import comparable_phases
from matchers.ops.recomputation import perhaps_recomputed
from matchers.ops.shapes import dimensions, elements
from matchers.ops.shards import Shards, global_shapes
from matchers.ops.turned import turned, turned_products
from matchers.ops.values import further
from matchers.pairing.micro_batches import micro_batches, split_kinds
from matchers.pairing.module_names import ModuleNames, NameColumns

__all__ = ["SAME", "Copies", "Features", "LogFeatures", "in_both_runs", "more_often", "tolerance"]

SAME, _SAME_HALF = 2e-5, 1e-2
"""Relative difference up to which two norms are one; the second for dtypes of 16 bits."""

_Side = TypeVar("_Side")
Both = tuple[_Side, _Side]
"""Of a, and of b."""


class Copies(NamedTuple):
    """Of `LogFeatures`: the records that activation checkpointing ran again, and what they repeat."""

    repeat: Bool
    original: Int64


@columns
class LogFeatures:
    """The features of one log's n rows.

    Attributes:
        kind: (op, shape, phase) in one id, with the micro-batch where that separates rows; only rows of one kind are
            candidates for each other at first. Negative for a row that has no partner of its own. A shard has the shape
            of its whole tensor, where that is known, and a tensor of a weight that is stored transposed the reversed
            one. Where each run has results of an op in a shape that the other has less often, and both have one number
            of elements (two layouts of one tensor), these shapes are one.
        op, shape, phase, location: shared ids; -1 for none. A message that is received prepares something, whatever the
            schedule that waits for it does just then.
        module: id of the canonical module path, which is empty where the log names none.
        pattern, place: ids of the module's template and of its indices; place -1 without indices.
        known: int8[n], 1 where rows of the other log have the module's pattern, too; 0 where none has; -1 where the log
            names no module.
        site: (pattern, op) in one id: "the add of the layers' attention".
        context: `site` with the ops before and after it in the log.
        stats: float32[4, n], logarithm of the magnitude of the first output's L1, L2, Min, Max; NaN where absent.
        signs: uint8[n], bit k is set where the k-th of these is negative.
        inputs: float32[3, n], logarithm of the L1 of the first three inputs; NaN where absent.
        arity: int64[n], number of inputs; 0 where the log lists none.
        producers: int32[3, n], rows that made them; -1 where unknown.
        exact: hash of all digests of the row, or, where one of the logs has no digests, of its printed values of the
            kinds that both logs have; `telling` is False where they identify nothing (no values, or all zero).
        result: hash of the digests of the outputs; without digests, of logs that add up norms in other ways, of the
            extremes, which no sum rounds; 0 where they identify nothing.
        batch: int64[n], the micro-batch in one numbering for both sides; -1 where it does not matter.
        repeat: bool[n], a copy of an earlier forward operation, run again in the backward pass.
        original: int64[n], that operation, -1 elsewhere.
        read: float64[n], L1 of what a collective read, on the row that stands for it, and of what a message brought;
            NaN elsewhere.
        lead: int64[n], for a step of a chain (a collective before its wait, where the other side has both in one
            operation) the row that finishes the chain, -1 elsewhere.
    """

    log: OpLog
    kind: Int64
    op: Int64
    shape: Int64
    phase: NDArray[np.int8]
    location: Int32
    module: Int32
    pattern: Int32
    place: Int32
    known: NDArray[np.int8]
    site: Int64
    context: Int64
    stats: NDArray[np.float32]
    signs: NDArray[np.uint8]
    inputs: NDArray[np.float32]
    arity: Int64
    producers: Int32
    exact: Hash
    result: Hash
    batch: Int64
    telling: Bool
    repeat: Bool
    original: Int64
    read: Float64
    lead: Int64

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def copies(self) -> Copies:
        return Copies(self.repeat, self.original)


def _with_turned(log: OpLog, shapes: list[tuple[int, ...]], at: Int64) -> tuple[list[tuple[int, ...]], Int64]:
    """Shapes of tensors, and per row an index into them (-1: the logged one), with those of `turned` rows reversed."""
    rows = np.flatnonzero(turned(log) & (at < 0))
    if len(rows):
        own, which = np.unique(log.shape[rows], return_inverse=True)
        at[rows] = len(shapes) + which
        shapes = [*shapes, *(dimensions(log.shapes[shape])[::-1] for shape in own.tolist())]
    return shapes, at


def _columns(lists: Ragged, width: int, missing: float) -> NDArray[Any]:
    """The first `width` values of each row as columns: [width, n]."""
    count = lists.count
    out = np.full((width, len(lists)), missing, lists.value.dtype)
    for k in range(width):
        has = np.flatnonzero(count > k)
        out[k, has] = lists.value[lists.start[:-1][has] + k]
    return out


class _Numbers(NamedTuple):
    """The numbers that tell the same of a tensor in both logs.

    Attributes:
        digests: digests do.
        outputs, inputs: the L1 norms of all results, and the norms of inputs.
        stats: statistics, as rows of `OpLog.stats`.
        extremes: extremes alone: the logs have other norms, or round them otherwise.
    """

    digests: bool
    outputs: bool
    inputs: bool
    stats: tuple[int, ...]
    extremes: bool

    @classmethod
    def of(cls, a: OpLog, b: OpLog) -> _Numbers:
        some = [(~np.isnan(log.stats)).any(axis=1) for log in (a, b)]
        stats = np.flatnonzero(some[0] == some[1])
        return cls(
            digests=bool(len(a.digests.value) and len(b.digests.value)),
            outputs=(len(a.outputs.value) > 0) == (len(b.outputs.value) > 0),
            inputs=a.tells.inputs == b.tells.inputs,
            stats=tuple(stats.tolist()),
            extremes=a.tells.numbers != b.tells.numbers,
        )


def _log(x: Float64) -> NDArray[np.float32]:
    """Natural logarithm of |x|, cut at e^±300 (0 and Inf); NaN for NaN."""
    size = np.abs(x)
    with np.errstate(divide="ignore"):
        np.log(size, out=size)
    return np.clip(size, -300.0, 300.0, out=size).astype(np.float32)


def _only_what_was_read(log: OpLog, stats: Float64, inputs: Float64, lead: Int64) -> Float64:
    """Remove meaningless numbers of unfinished collectives, in place; return the L1 of what each collective read.

    A log has the input of a collective even where its result is unfinished. That input stays as the only one, and a
    chain's last step gets it from the first, so that a collective and its lowered form have a number in common.
    """
    meaningless = unfinished(log)
    read = read_by_collective(log)
    stats[:, meaningless] = np.nan
    inputs[:, meaningless] = np.nan
    inputs[0, meaningless] = read[meaningless]
    start = np.flatnonzero((lead >= 0) & ~np.isnan(read))
    inputs[:, lead[start]] = np.nan
    inputs[0, lead[start]] = read[start]
    read[lead[start]], read[start] = read[start], np.nan
    stands = meaningless.copy()
    stands[lead[start]] = True
    read[~stands] = np.nan
    return read


def _brought(log: OpLog) -> Float64:
    """float64[n]: the L1 norm of what each record leaves in its inputs; NaN where it does not, or none is known."""
    left, out = further(log), np.full(len(log), np.nan)
    changed = left.slot < 0
    out[left.maker[changed]] = left.l1[changed]
    return out


def _repeats(log: OpLog, same: Hash, telling: Bool, collectives: Bool) -> Int64:
    """For each recomputed row the forward row with the same values, -1 elsewhere.

    Our own capture marks recomputed rows; in other logs any row of the backward pass may be one. Collectives are left
    out: gathering the same weights again is not recomputation.
    """
    original = np.full(len(log), -1, np.int64)
    again = np.flatnonzero(perhaps_recomputed(log) & telling & ~collectives)
    first = np.flatnonzero((log.phase == Phase.FORWARD) & ~log.recompute & telling & ~collectives)
    if len(again) and len(first):
        at = first_equal(same[again], same[first])
        found = np.where(at >= 0, first[at], len(log))
        original[again] = np.where(found < again, found, -1)
    return original


def _name_columns(log: OpLog, names: NameColumns, op: Int64, ops: int) -> dict[str, Any]:
    """The columns of `LogFeatures` that depend on module names; `known` as far as one side determines it."""
    site = names.pattern[log.module] * (ops + 1) + op
    before = np.concatenate(([-1], op[:-1]))[: len(op)]
    after = np.concatenate((op[1:], [-1]))[: len(op)]
    width = ops + 2
    return {
        "module": names.path.astype(np.int32)[log.module],
        "pattern": names.pattern.astype(np.int32)[log.module],
        "place": names.place.astype(np.int32)[log.module],
        "known": np.where(names.nameless[log.module], np.int8(-1), np.int8(0)),
        "site": site,
        "context": (site * width + before + 1) * width + after + 1,
    }


def _layouts_merged(a: LogFeatures, b: LogFeatures, size: Float64) -> tuple[Int64, Int64]:
    """The kinds, where shapes that are layouts of one tensor are one: (batch, heads, …) in a, (…, heads, …) in b.

    These are kinds of one op, phase and number of elements of which each run has one that the other has less often.
    `size`: number of elements by id of the shape; NaN for none.
    """
    kind_a, kind_b = a.kind.copy(), b.kind.copy()
    more_a, more_b = more_often(kind_a, kind_b)
    rows_a, rows_b = (np.flatnonzero(more & (size[side.shape] > 1)) for side, more in ((a, more_a), (b, more_b)))
    if not (len(rows_a) and len(rows_b)):
        return kind_a, kind_b

    # one kind for all shapes of an op, phase and size of which both runs have more in one shape
    seen: dict[tuple[int, int, float], list[set[int]]] = {}
    for k, (side, rows) in enumerate(((a, rows_a), (b, rows_b))):
        kinds, at = np.unique(side.kind[rows], return_index=True)
        for kind, row in zip(kinds.tolist(), rows[at].tolist(), strict=True):
            tensor = int(side.op[row]), int(side.phase[row]), float(size[side.shape[row]])
            seen.setdefault(tensor, [set(), set()])[k].add(kind)
    merged = {kind: min(one) for one, two in seen.values() if one and two for kind in one | two}
    if merged:
        old = np.array(sorted(merged))
        new = np.array([merged[kind] for kind in old.tolist()])
        for of in (kind_a, kind_b):
            at = np.minimum(np.searchsorted(old, of), len(old) - 1)
            of[:] = np.where(old[at] == of, new[at], of)
    return kind_a, kind_b


def more_often(kind_a: Int64, kind_b: Int64) -> tuple[Bool, Bool]:
    """The rows of each side whose kind their own side has more often than the other."""
    number, kinds = numbered(np.concatenate((kind_a, kind_b)))
    of_a, of_b = np.split(number, [len(kind_a)])
    more = np.bincount(of_a, minlength=kinds) - np.bincount(of_b, minlength=kinds)
    return (kind_a >= 0) & (more > 0)[of_a], (kind_b >= 0) & (more < 0)[of_b]


def in_both_runs(a: LogFeatures, b: LogFeatures) -> Bool:
    """Bool by id of a module: rows of both runs are in it. What is in one such module is not found in another."""
    occurs = np.zeros((2, int(max(a.module.max(initial=0), b.module.max(initial=0))) + 1), bool)
    for of, side in zip(occurs, (a, b), strict=True):
        of[side.module[side.known >= 0]] = True
    return np.asarray(occurs.all(axis=0))


def _known(side: LogFeatures, other: LogFeatures) -> NDArray[np.int8]:
    """`LogFeatures.known`, given the other side."""
    occurs = marked(other.pattern, max(side.pattern.max(initial=0), other.pattern.max(initial=0)) + 2)
    return np.where(side.known < 0, side.known, occurs[side.pattern].astype(np.int8))


class Features:
    """The features of both logs, `a` and `b`."""

    def __init__(
        self, a: OpLog, b: OpLog, shards: Shards, modules: Both[Sequence[str]], chains: Both[Sequence[Chain]]
    ) -> None:
        """Compute the features.

        Args:
            shards: the shards that the records hold; a shard is matched by the shape of its whole tensor.
            modules: the module tables of a and b after the user's renames.
            chains: ops of each side that stand for one op of the other side, from the user's rules; collectives that
                are lowered on one side only are recognised without.
        """
        every = [*chains[0], *lowered(a, b)], [*chains[1], *lowered(b, a)]
        shapes_a, at_a = _with_turned(a, *global_shapes(a, shards.a, b, shards.b))
        shapes_b, at_b = _with_turned(b, *global_shapes(b, shards.b, a, shards.a))
        tables = [
            (
                [*map(functional, (*log.ops, *(chain.stands_for for chain in of_side)))],
                [*log.shapes, *(str(list(shape)) for shape in shapes)],
                list(log.locations),
            )
            for log, of_side, shapes in ((a, every[0], shapes_a), (b, every[1], shapes_b))
        ]
        ids = [shared_ids(left, right) for left, right in zip(*tables, strict=True)]
        self.ops, self.shapes = ids[0][2], ids[1][2]
        self.names = ModuleNames(*modules)
        numbers = _Numbers.of(a, b)
        phases = comparable_phases(a, b)
        if any(len(log) and not len(log.shapes) for log in (a, b)):  # no shape of the other has a counterpart
            ids[1] = np.full_like(ids[1][0], -1), np.full_like(ids[1][1], -1), 0
            self.shapes = 0
        one = self._side(a, [left for left, _, _ in ids], at_a, self.names.a, every[0], 2, numbers, phases)
        two = self._side(b, [right for _, right, _ in ids], at_b, self.names.b, every[1], 3, numbers, phases)
        batches = micro_batches(a, b, one.result, two.result)
        batch_a, batch_b = (np.where(receiving(log), -1, of) for log, of in zip((a, b), batches, strict=True))
        size = elements(dict.fromkeys([*tables[0][1], *tables[1][1]]))
        kind_a, kind_b = split_kinds(*_layouts_merged(one, two, size), batch_a, batch_b)
        if a.tells.copies and b.tells.copies:
            kind_a, kind_b = kind_a * 2 + a.recompute, kind_b * 2 + b.recompute
        number, _ = numbered(np.concatenate((kind_a, kind_b)))
        kind_a, kind_b = np.where(kind_a < 0, kind_a, number[: len(a)]), np.where(kind_b < 0, kind_b, number[len(a) :])
        known_a, known_b = _known(one, two), _known(two, one)
        self.a = replace(one, kind=kind_a, batch=batch_a, known=known_a)
        self.b = replace(two, kind=kind_b, batch=batch_b, known=known_b)

    @cached_property
    def by_names(self) -> tuple[Int64, Int64]:
        """The rows of a, and of b behind them, in the order of a number of their module and kind; the numbers."""
        width = np.int64(self.names.size + 2)
        number = np.concatenate([side.kind * width + side.module + 1 for side in (self.a, self.b)])
        order = stable_order(number)
        return order, number[order]

    def renamed(self, modules_a: Sequence[str], which: Iterable[int]) -> Features:
        """The same logs with other names for some modules of a, as indices into its module table.

        All existing ids keep their meaning, so weights learned from these features hold for the renamed ones.
        """
        out = copy(self)
        out.names = self.names.renamed(modules_a, which)
        vars(out).pop("by_names", None)
        out.a = replace(self.a, **_name_columns(self.a.log, out.names.a, self.a.op, self.ops))
        out.a, out.b = replace(out.a, known=_known(out.a, self.b)), replace(self.b, known=_known(self.b, out.a))
        return out

    def _side(
        self,
        log: OpLog,
        ids: list[Int64],
        whole: Int64,
        names: NameColumns,
        chains: Sequence[Chain],
        parity: int,
        numbers: _Numbers,
        phases: Int64,
    ) -> LogFeatures:
        shape = ids[1][np.where(whole >= 0, len(log.shapes) + whole, log.shape)]
        location = ids[2][log.location]
        lead, stands_for = find_chains(log, chains)
        op = ids[0][np.where(stands_for >= 0, len(log.ops) + stands_for, log.op)]
        phase = np.where(receiving(log), Phase.PREPARE, phases[log.phase])
        kind = ((op + 1) * (self.shapes + 2) + shape + 1) * len(Phase) + phase
        # a step of a chain, and one of several micro-batches, has no partner of its own: a kind that no other row has
        kind = np.where((lead >= 0) | (log.joined >= 0), -parity - 2 * np.arange(len(log)), kind)

        l1 = log.outputs.first()
        telling = np.nan_to_num(l1) != 0
        no_output = log.outputs.count == 0
        written = log.written
        if numbers.digests:
            output, inputs_read = written.fingerprints("digests"), written.fingerprints("input_digests")
            result = np.where(telling & (log.digests.count > 0), mix(output), _U(0))
        else:
            none = np.zeros(len(log), _U)
            output = written.fingerprints("outputs") if numbers.outputs else none
            inputs_read = written.fingerprints("inputs") if numbers.inputs else none
            for k in numbers.stats:
                output = output * _U(31) + mix(float_bits(written.stats[k]) + _U(k))
            low, high = written.stats[2:4]
            extremes = mix(float_bits(low) + mix(float_bits(high)))
            result = np.where((low < high) & numbers.extremes, extremes, _U(0))
        kind_hash = mix(((op + 1) * (self.shapes + 2) + shape + 1).astype(np.uint64))
        output = mix(output ^ kind_hash)
        exact = mix(output + inputs_read)
        telling |= no_output & (log.inputs.count > 0)

        stats = np.stack((l1, log.stats[1], log.stats[2], log.stats[3]))
        inputs = _columns(log.inputs, 3, np.nan)
        producers = np.maximum(_columns(log.producers, 3, -1), -1)
        products = turned_products(log)
        inputs[:2, products], producers[:2, products] = inputs[1::-1, products], producers[1::-1, products]
        read = _only_what_was_read(log, stats, inputs, lead)
        if (received := receiving(log)).any():  # what is written is JSON, which is read for it alone
            read = np.where(received, _brought(written), read)
        original = _repeats(log, exact, telling, collective(log))
        return LogFeatures(
            log=log,
            kind=kind,
            op=op,
            shape=shape,
            phase=phase.astype(np.int8),
            location=location.astype(np.int32),
            **_name_columns(log, names, op, self.ops),
            stats=_log(stats),
            signs=np.packbits(np.signbit(stats), axis=0, bitorder="little")[0],
            inputs=_log(inputs),
            arity=log.inputs.count,
            producers=producers,
            exact=exact,
            result=result,
            batch=np.broadcast_to(np.int64(-1), len(log)),
            telling=telling,
            repeat=(original >= 0) | log.recompute,
            original=original,
            read=read,
            lead=lead,
        )


def tolerance(f: Features) -> float:
    """The relative difference up to which two norms are one in these logs."""
    half = any(name.endswith("16") for log in (f.a.log, f.b.log) for name in log.dtypes if "float" in name)
    return _SAME_HALF if half else SAME
