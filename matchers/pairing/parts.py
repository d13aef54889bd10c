"""Parts: several operations of one run that are one operation of the other, whose result is theirs side by side.

Separate projections of queries, keys and values against a fused one. The marks: operations of one name that read the
same tensor, whose results are those of one operation of the other run, cut along one dimension. Once the modules of the
parts are known, their other operations (states of the optimizer) are parts, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, Hash, Int64, numbered, stable_order
from matchers.joins import first_equal
from matchers.laws.law import Form
from matchers.logs.hashing import float_bits, mix
from matchers.logs.op_log import Phase
from matchers.ops.laws import collective, law_of
from matchers.ops.shapes import dimensions, numel, side_by_side
from matchers.pairing.assignment import WINDOW
from matchers.pairing.evidence import Order
from matchers.pairing.features import Features, LogFeatures, in_both_runs

__all__ = ["Parts", "find_parts"]

_NEAREST = 8
"""Operations on either side of the expected place that may be the whole."""
_SAME = 1e-3
"""Largest relative difference of the norm of parts together and that of the whole."""
_READ = 3
"""Inputs that are compared."""
_ALIKE = 0.7
"""Largest difference of the logarithms of the norms of what the parts and the whole read."""


Sides = tuple[Bool, Bool]


@dataclass(frozen=True, slots=True)
class Parts:
    """One operation of one run, and its parts in the other run, in order. `side`: that of the parts."""

    side: str
    rows: tuple[int, ...]
    whole: int


def find_parts(f: Features, free: Sides, order: Order, known: Sequence[Parts] = (), same: bool = False) -> list[Parts]:
    """Groups of free rows; no row is in two.

    Args:
        free: bool[n_a], bool[n_b], the rows that may be in a group.
        known: groups that were found before.
        same: only parts whose norms together are that of the whole. Otherwise the nearest that fit.
    """
    # where a module has as many operations of a name in both runs, none is in parts
    # numbered anew: there are as many numbers of sites as modules times names
    site, many = numbered(np.concatenate((f.a.site, f.b.site)))
    sites = np.split(site, [len(f.a)])
    in_a, in_b = (np.bincount(of, minlength=many) for of in sites)
    free_a, free_b = (
        rows & (in_a != in_b)[of] & (side.kind >= 0) & (side.log.shape >= 0) & ~collective(side.log)
        for side, of, rows in zip((f.a, f.b), sites, free, strict=True)
    )
    if not (free_a.any() and free_b.any()):
        return []
    of_a = np.clip((order.before + order.after) // 2, 0, len(f.b))
    of_b = np.searchsorted(np.maximum.accumulate(of_a), np.arange(len(f.b)))
    in_both = in_both_runs(f.a, f.b)
    searches = (
        _Search("a", f.a, f.b, free_a, free_b, of_a, known, same, in_both),
        _Search("b", f.b, f.a, free_b, free_a, of_b, known, same, in_both),
    )
    return [group for search in searches for group in search.groups()]


class _Search:
    """The search for parts in one log and their wholes in the other.

    `place`: expected rows in the other log; `in_both`: as of `in_both_runs`. Rows that are found are free no longer.
    """

    def __init__(
        self,
        side: str,
        parts: LogFeatures,
        wholes: LogFeatures,
        free: Bool,
        free_wholes: Bool,
        place: Int64,
        known: Sequence[Parts],
        same: bool,
        in_both: Bool,
    ) -> None:
        self._side, self._parts, self._wholes, self._place, self._same = side, parts, wholes, place, same
        self._free, self._free_wholes = free, free_wholes
        self._in_both = in_both
        self._shapes = [dimensions(text) for text in parts.log.shapes]
        self._whole_shapes = [dimensions(text) for text in wholes.log.shapes]
        self._known = [group for group in known if group.side == side]
        self._found = self._known.copy()
        self._sums: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        self._candidates = np.flatnonzero(free_wholes)
        self._by_form: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}

    def groups(self) -> list[Parts]:
        """The groups that were not known before."""
        size = numel(self._wholes.log)[self._wholes.log.shape[self._candidates]]
        sizes = _code(self._wholes, self._candidates) + float_bits(size)
        single = np.flatnonzero(self._free & (self._parts.log.outputs.count == 1))
        for slot in range(_READ):
            single = single[self._free[single] & (self._parts.arity[single] > slot)]
            for rows in self._readers(single, slot, sizes):
                self._add(rows, slot)
        if self._found:
            self._by_modules()
            self._by_flow()
        return self._found[len(self._known) :]

    def _wholes_like(self, row: int, shape: tuple[int, ...]) -> list[int]:
        """The rows that may be wholes, of the op and phase of a part and of this shape."""
        op, phase, wholes = int(self._parts.op[row]), int(self._parts.phase[row]), self._wholes
        if (op, phase, shape) not in self._by_form:
            rows = self._candidates[(wholes.op == op)[self._candidates]]
            alike = np.array([dims == shape for dims in self._whole_shapes])[wholes.log.shape[rows]]
            self._by_form[op, phase, shape] = rows[alike & (wholes.phase[rows] == phase)].tolist()
        return self._by_form[op, phase, shape]

    def _readers(self, rows: Int64, slot: int, sizes: Hash) -> Iterator[list[int]]:
        """Of some rows those of one op that read one tensor in this slot, two or more, together of the size of a whole.

        Args:
            sizes: the ops of the wholes with their numbers of elements.
        """
        log = self._parts.log
        read = log.inputs.value[log.inputs.start[rows] + slot]
        rows, read = rows[read > 0], read[read > 0]
        key = _code(self._parts, rows) + float_bits(read)
        order = stable_order(key)
        rows, key = rows[order], key[order]
        starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1], [True])))
        if len(rows):
            together = np.add.reduceat(numel(log)[log.shape[rows]], starts[:-1])
            fits = first_equal(_code(self._parts, rows[starts[:-1]]) + float_bits(together), sizes) >= 0
            for k in np.flatnonzero((np.diff(starts) > 1) & fits).tolist():
                yield rows[starts[k] : starts[k + 1]].tolist()

    def _together(self, rows: Sequence[int]) -> list[tuple[int, ...]]:
        shapes = tuple(self._parts.log.shape[row] for row in rows)
        if shapes not in self._sums:
            self._sums[shapes] = side_by_side([self._shapes[shape] for shape in shapes])
        return self._sums[shapes]

    def _add(self, rows: list[int], slot: int) -> None:
        """Make these rows the parts of the nearest free row of their form that reads a similar tensor."""
        expected = int(self._place[rows[-1]])
        factor = law_of(self._parts.log, rows[0]).factor
        one = self._shapes[self._parts.log.shape[rows[0]]]
        for shape in self._together(rows):
            # products with one first factor have its rows, side by side in columns; the two gradients of a layer,
            # which read the gradient of its result, are not side by side
            if factor is not None and slot - factor == (shape[:-1] == one[:-1]):
                continue
            wholes = self._wholes_like(rows[0], shape)
            at = bisect_left(wholes, expected)
            near = [row for row in wholes[max(at - _NEAREST, 0) : at + _NEAREST] if self._free_wholes[row]]
            near = [row for row in near if abs(row - expected) <= WINDOW and self._may_be(rows, row)]
            if self._same:
                near = [row for row in near if self._add_up(rows, row)]
            whole = min(near, key=lambda row: abs(row - expected), default=None)
            if whole is None:
                continue
            read, read_whole = self._parts.inputs[slot, rows[-1]], self._wholes.inputs[slot, whole]
            inputs = self._parts.log.inputs
            # several readers of the same tensors repeat each other
            if abs(read - read_whole) <= _ALIKE and len({tuple(inputs[row].tolist()) for row in rows}) == len(rows):
                self._take(rows, whole)
                return

    def _may_be(self, rows: Sequence[int], whole: int) -> bool:
        """False if a part is in another module that the run of the whole has, too: its partner is there."""
        modules = self._parts.module[list(rows)]
        return not (self._in_both[modules] & (modules != self._wholes.module[whole])).any()

    def _add_up(self, rows: Sequence[int], whole: int) -> bool:
        """True if the norms of the parts together are that of the whole."""
        parts, log = self._parts.log, self._wholes.log
        l1, l2 = parts.outputs.first(np.array(rows)).sum(), np.sqrt((parts.stats[1, rows] ** 2).sum())
        one, two = log.outputs[whole][0], log.stats[1, whole]
        return bool(abs(l1 - one) <= _SAME * one and not abs(l2 - two) > _SAME * two)

    def _take(self, rows: Sequence[int], whole: int) -> None:
        self._found.append(Parts(self._side, tuple(rows), whole))
        self._free[list(rows)], self._free_wholes[whole] = False, False

    def _by_modules(self) -> None:
        """Other operations of modules that are parts of a module: the r-th of an op in each."""
        modules: dict[int, tuple[int, ...]] = {}
        for group in self._found:
            names = tuple(self._parts.module[list(group.rows)].tolist())
            if len(set(names)) == len(names):
                modules.setdefault(int(self._wholes.module[group.whole]), names)
        mine = _by_op(self._parts, self._free, {name for names in modules.values() for name in names})
        for (module, op, phase), wholes in _by_op(self._wholes, self._free_wholes, set(modules)).items():
            columns = [mine.get((name, op, phase), []) for name in modules[module]]
            if all(len(column) == len(wholes) for column in columns):
                for whole, rows in zip(wholes, zip(*columns, strict=True), strict=True):
                    fits = self._whole_shapes[self._wholes.log.shape[whole]] in self._together(rows)
                    if fits and self._may_be(rows, whole):
                        self._take(sorted(rows), whole)

    def _by_flow(self) -> None:
        """The readers of the parts, against those of the whole: element by element a part stays a part."""
        readers, readers_of_whole = _readers(self._parts, self._free), _readers(self._wholes, self._free_wholes)
        for group in self._found:  # grows
            for op, (whole, *others) in readers_of_whole.get(group.whole, {}).items():
                rows = [next(iter(readers.get(row, {}).get(op, [])), -1) for row in group.rows]
                if others or not self._free_wholes[whole] or -1 in rows or not self._free[rows].all():
                    continue
                shape = self._whole_shapes[self._wholes.log.shape[whole]]
                # norms of parts are no parts of a norm, but their squares add up
                norms = shape == () and law_of(self._wholes.log, whole).form is Form.NORM
                if (norms or shape in self._together(rows)) and self._may_be(rows, whole):
                    self._take(rows, whole)


def _code(side: LogFeatures, rows: Int64) -> Hash:
    """The op and the phase of some rows in one number."""
    return mix((side.op[rows] * len(Phase) + side.phase[rows]).astype(np.uint64))


def _readers(side: LogFeatures, free: Bool) -> dict[int, dict[tuple[int, int], list[int]]]:
    """By producer, and by op and slot: the free rows that read it."""
    out: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    slot, row = np.nonzero((side.producers >= 0) & free)
    for k, reader in zip(slot.tolist(), row.tolist(), strict=True):
        out[int(side.producers[k, reader])][int(side.op[reader]), k].append(reader)
    return out


def _by_op(side: LogFeatures, free: Bool, modules: set[int]) -> dict[tuple[int, int, int], list[int]]:
    """Free rows by module, op and phase."""
    out: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for row in np.flatnonzero(free & np.isin(side.module, list(modules))).tolist():
        out[int(side.module[row]), int(side.op[row]), int(side.phase[row])].append(row)
    return out
