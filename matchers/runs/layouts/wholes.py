"""Shapes of whole tensors, as the run to compare with has them: whole, or in parts of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from matchers.arrays import Float64
from matchers.logs.op_log import OpLog
from matchers.ops.arguments import tensors_read
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.laws import law_of, positions, rows_named
from matchers.ops.module_path import canonical
from matchers.ops.shapes import dimensions
from matchers.ops.shards import infer_shards
from matchers.ops.sketch import PROJECTIONS, decode_sketches
from matchers.ops.values import further

__all__ = ["Wholes", "contracted", "whole_of"]

Shape = tuple[int, ...]
_SAME = 1e-4
"""Relative deviation of sketches that add up."""
_NEAR = 1e-3
"""Relative deviation of norms that add up: those of other kernels, too, and in bfloat16."""


class Wholes:
    """The shapes that results of each operation can have as a whole."""

    def __init__(self, log: OpLog, parts: int = 1, batches: int = 1) -> None:
        """The shapes in a log.

        Args:
            parts: so many ranks hold a part each of what this log of one of them has, where nothing is placed.
            batches: so many groups of ranks have a part each of what this log has of a batch, along some dimension.
        """
        self._log, self._parts, self.batches = log, parts, batches
        self._further: dict[tuple[str, int], set[Shape]] = {}

    @cached_property
    def of_all(self) -> Wholes:
        """The shapes of the whole batch alone."""
        return Wholes(self._log, self._parts) if self.batches > 1 else self

    @cached_property
    def start(self) -> Mapping[str, str]:
        """Digests of the parameters before the step, of one process: a rank may hold a part of each."""
        run = self._log.header.run
        known = run.get("parameter_digests") if self._parts == 1 and run.get("world_size", 1) == 1 else None
        return {canonical(str(name)): str(of) for name, of in known.items()} if isinstance(known, dict) else {}

    def of(self, op: str, module: str | None = None) -> set[Shape]:
        """The shapes of the first output: in a module, if it has the operation; else anywhere."""
        key = None if module is None else canonical(module), op
        return self._first[key if key in self._first else (None, op)]

    def contracting(self, module: str, op: str, length: int) -> set[Shape]:
        """The shapes of results of an operation in a module of which each number is a sum of so many products."""
        return set().union(*map(self._possible, self._contracted[canonical(module), op].get(length, ())))

    def off_sum(self, module: str, op: str, sketch: Float64) -> float | None:
        """The relative deviation of this sketch, a sum of several, from that of a result of an operation in a module.

        None where there is no result that it is close to: sums round.
        """
        known = self._sketches[canonical(module), op]
        totals = (sketch / scale for scale in self._scales)
        off = [np.linalg.norm(known - of, axis=1) / (np.linalg.norm(of) or np.nan) for of in totals]
        least = float(np.fmin.reduce(np.concatenate(off), initial=np.inf))  # sketches that cannot be read are NaN
        return least if least <= _SAME else None

    def with_norm(self, module: str, op: str, norm: float) -> dict[Shape, float]:
        """By shape, the relative deviation of this L1 norm, a sum of several, from that of an operation in a module.

        Without shapes that are not close to it.
        """
        totals, found = [norm / scale for scale in self._scales], dict[Shape, float]()
        for shape, of in self._norms[canonical(module), op]:
            found[shape] = min(found.get(shape, np.inf), *(abs(of - total) / total for total in totals))
        return {shape: off for shape, off in found.items() if off <= _NEAR}

    def of_further(self, op: str, number: int) -> set[Shape]:
        """The shapes of an output after the first."""
        if (op, number) not in self._further:
            values, found = further(self._log), set[Shape]()
            of_op = rows_named(self._log, {op})[values.maker]
            for v in np.flatnonzero((values.slot == number) & (values.shape >= 0) & of_op).tolist():
                part = values.part(v)
                found |= self._possible(dimensions(values.shapes[values.shape[v]]) if part is None else part.whole)
            self._further[op, number] = found
        return self._further[op, number]

    def over(self, groups: int) -> Wholes:
        """The shapes that groups of ranks with other parts of a batch have, each by itself."""
        batches = groups // max(self._scales)
        return Wholes(self._log, self._parts, batches) if batches > 1 else self

    @cached_property
    def _scales(self) -> set[int]:
        """1, and the number of micro-batches, by which this run alone may have divided its losses."""
        return {1, 1 + int(micro_batch_numbers(self._log).max(initial=0))}

    @cached_property
    def _contracted(self) -> dict[tuple[str, str], dict[int, set[Shape]]]:
        """Of products of matrices, by module and operation, the shapes of results by the length that is contracted."""
        log, found = self._log, defaultdict[tuple[str, str], dict[int, set[Shape]]](dict)
        for row in np.flatnonzero(positions(log, lambda law: law.factor) >= 0).tolist():
            if (length := contracted(log, row)) and log.shape[row] >= 0:
                kind = canonical(log.module_name(row)), log.op_name(row)
                found[kind].setdefault(length, set()).add(dimensions(log.shape_text(row)))
        return found

    @cached_property
    def _norms(self) -> dict[tuple[str, str], list[tuple[Shape, float]]]:
        """The shapes and L1 norms of an operation in a module."""
        log, found = self._log, defaultdict[tuple[str, str], list[tuple[Shape, float]]](list)
        norms = log.outputs.first()
        for row in np.flatnonzero((norms > 0) & np.isfinite(norms) & (log.shape >= 0)).tolist():
            kind = canonical(log.module_name(row)), log.op_name(row)
            found[kind].append((dimensions(log.shape_text(row)), float(norms[row])))
        return found

    @cached_property
    def _sketches(self) -> dict[tuple[str, str], Float64]:
        """float64[k, 16], the sketches of an operation in a module."""
        log, rows = self._log, defaultdict[tuple[str, str], list[bytes]](list)
        texts = log.texts("Sketch")
        for row in texts:
            rows[canonical(log.module_name(row)), log.op_name(row)].append(texts.raw(row))
        found = defaultdict[tuple[str, str], Float64](lambda: np.empty((0, PROJECTIONS)))
        found.update({kind: decode_sketches(of) for kind, of in rows.items()})
        return found

    @cached_property
    def _first(self) -> dict[tuple[str | None, str], set[Shape]]:
        """By module (None for all) and operation."""
        log, info = self._log, infer_shards(self._log)
        found: dict[tuple[str | None, str], set[Shape]] = defaultdict(set)
        shaped = log.shape >= 0
        columns = (column[shaped].tolist() for column in (log.module, log.op, log.shape, info.placed))
        for module, op, shape, placed in set(zip(*columns, strict=True)):
            here = {info.parts[placed].whole} if placed >= 0 else self._possible(dimensions(log.shapes[shape]))
            found[canonical(log.modules[module]), log.ops[op]] |= here
            found[None, log.ops[op]] |= here
        return found

    def _possible(self, shape: Shape) -> set[Shape]:
        """A shape, those of which it is a shard, and those that are a part of it by the batch."""
        found = {shape}
        for k, length in enumerate(shape):
            if self._parts > 1:
                found.add((*shape[:k], length * self._parts, *shape[k + 1 :]))
            if self.batches > 1 and length % self.batches == 0:
                found.add((*shape[:k], length // self.batches, *shape[k + 1 :]))
        return found


def contracted(log: OpLog, row: int) -> int:
    """The number of products that a product of matrices adds up to each number of its result; 0 if it is not known."""
    factor, read = law_of(log, row).factor, tensors_read(log, row)
    shape = dimensions(read[factor][1]) if factor is not None and factor < len(read) else ()
    return shape[-1] if shape else 0


def whole_of(shapes: Sequence[Shape], known: Collection[Shape]) -> Shape | None:
    """The known shape of a tensor of which these are the shapes of shards; None for none."""
    local, uneven = shapes[0], len({*shapes}) > 1  # a rank may have all, and others nothing
    if any(len(shape) != len(local) for shape in shapes):
        return None
    for k in range(len(local)):
        whole = (*local[:k], sum(shape[k] for shape in shapes), *local[k + 1 :])
        if (whole != local or uneven) and whole in known:
            return whole
    return None
