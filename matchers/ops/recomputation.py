"""Recomputed operations of one log that do not repeat what they did in the forward pass.

Activation checkpointing runs a part of the forward pass again; each copy must give the same bits. It does not if random
state was not restored, if the first pass had changed a buffer that it reads, or if a kernel is not deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from matchers.arrays import Bool, Hash, Int64, one_of, stable_order
from matchers.joins import first_equal
from matchers.logs.hashing import mix
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.last_contents import LastContents
from matchers.ops.laws import collective, law_of
from matchers.ops.module_path import canonical
from matchers.ops.values import Result, first_output, further_output, written

__all__ = ["Mismatch", "Reason", "recompute_mismatches"]


class Reason(Enum):
    """The reason for a recomputed copy to differ from its original; the value is said of it."""

    RANDOM = "other random numbers: the random state was not restored"
    IN_PLACE = "written to in the forward pass and again in the copy"
    KERNEL = "other bits from equal inputs: the kernel is not deterministic"
    INPUT = "an input has changed since the forward pass"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A recomputed copy that differs from its original, although what it reads from other copies does not.

    Attributes:
        row, original: the copy and the forward operation that it repeats.
        reason: why they differ.
        name: the tensor that is written to twice, `input k` if the log does not name it; else empty.
        error: relative difference of the norms of the results; NaN if unknown.
        undone: the later record after which the tensor holds what the first pass had left; -1 for none.
    """

    row: int
    original: int
    reason: Reason
    name: str = ""
    error: float = float("nan")
    undone: int = -1

    @property
    def text(self) -> str:
        """The reason in words, with the name of what is written to."""
        return f"{self.name} was {self.reason.value}" if self.name else self.reason.value


def perhaps_recomputed(log: OpLog) -> Bool:
    """bool[n]: records that are marked as recomputed, or may be where a log marks none."""
    return log.recompute if log.tells.copies else one_of(log.phase, (Phase.BACKWARD, Phase.OTHER))


def recompute_mismatches(log: OpLog) -> tuple[Mismatch, ...]:
    """The copies that do not repeat their originals, in the order of the log; without those that follow from others."""
    copies = perhaps_recomputed(log) & ~collective(log)
    forward = (log.phase == Phase.FORWARD) & ~log.recompute & ~collective(log)
    if not copies.any() or not forward.any():
        return ()
    original = _Originals(log, copies, forward)
    found: list[Mismatch] = []
    made: set[float] = set()
    for row, first in original.of_unlike():
        mismatch = _judged(log, row, first, made)
        if mismatch is not None:
            found.append(mismatch)
    return tuple(found)


class _Originals:
    """The forward operation that each copy repeats.

    Copies with the bits of a forward operation, inputs included, are its copies. Between them, the others follow in the
    order of the forward pass. A log that does not mark copies has them where others surround them.
    """

    def __init__(self, log: OpLog, copies: Bool, forward: Bool) -> None:
        self._log = log
        self._copies, self._forward = np.flatnonzero(copies), np.flatnonzero(forward)
        self._kind = (log.op + 1) * (len(log.shapes) + 2) + log.shape + 1
        self._below: dict[int, Bool] = {}
        """By module: which modules of the log have its name as their last parts."""
        self._by_end: dict[str, list[tuple[int, str]]] = {}
        """The modules, and their paths after a dot, by the last part of those."""
        # what is run again without a backward operation in between
        self._region = np.cumsum(~(copies | collective(log)))
        self.of = np.full(len(log), -1, np.int64)
        # what only one of the two passes runs is no copy, and has none
        ran = [np.bincount(log.op[rows] + 1, minlength=len(log.ops) + 1) > 0 for rows in (self._forward, self._copies)]
        first, repeated = (rows[(ran[0] & ran[1])[log.op[rows] + 1]] for rows in (self._forward, self._copies))
        at = first_equal(self._content(repeated), self._content(first))
        same = (at >= 0) & (np.nan_to_num(log.outputs.first(repeated)) != 0)
        self.of[repeated[same]] = first[at[same]]

    def _content(self, rows: Int64) -> Hash:
        """Hashes of operations: of their kind, inputs and results, and of their modules where those are paths."""
        log = self._log
        outputs, inputs = ("digests", "input_digests") if len(log.digests.value) else ("outputs", "inputs")
        read = mix(log.fingerprints(outputs)[rows] + mix(log.fingerprints(inputs)[rows]))
        content = mix(mix(self._kind[rows].astype(np.uint64)) ^ read)
        return mix(content ^ mix(log.module[rows].astype(np.uint64))) if log.tells.copies else content

    def of_unlike(self) -> Iterator[tuple[int, int]]:
        """The copies without the bits of a forward operation, with the operation whose place they have."""
        of, log = self.of, self._log
        known = np.flatnonzero(of >= 0)
        if not len(known) and not log.tells.copies:
            return
        unlike = self._copies[of[self._copies] < 0]
        # the nearest copies with known bits on both sides; -1 and len(log) for none
        at = np.searchsorted(known, unlike)
        after, region = np.append(known, len(log))[at], np.append(self._region, -1)
        near = (after < len(log)) & (after - unlike <= _NEAR) & (region[after] == region[unlike])
        last = np.where(near, np.append(of, -1)[after], -1)
        if not log.tells.copies:
            earlier = np.append(-1, known)[at]
            start = np.append(of, -1)[earlier]
            inside = near & (earlier >= 0) & (unlike - earlier <= _NEAR) & (last - start > 1) & (last - start <= _NEAR)
            unlike, last = unlike[inside], last[inside]
        if not len(unlike):
            return
        by_kind = _by(self._kind, self._forward)
        for row, end in zip(unlike.tolist(), last.tolist(), strict=True):
            before = self._before(row)
            places = by_kind.get(int(self._kind[row]), _NONE)
            places = places[: np.searchsorted(places, row)]
            inside = _NONE
            if before >= 0:
                start, stop = np.searchsorted(places, (before + 1, end if end > before else row))
                inside = places[start:stop]
                inside = inside[self._of_module(row, inside)]
            first = int(inside[0]) if len(inside) else -1
            if first < 0 and log.tells.copies:
                first = self._first(row, places[self._of_module(row, places)])
            if first >= 0:
                of[row] = first
                yield row, first

    def _before(self, row: int) -> int:
        """The original of the copy just before in the region, -1 without one."""
        for before in range(row - 1, max(row - _NEAR, 0) - 1, -1):
            if self._region[before] != self._region[row]:
                break
            if self.of[before] >= 0:
                return int(self.of[before])
        return -1

    def _of_module(self, row: int, places: Int64) -> Bool:
        """bool: the module is the copy's; a log that does not mark copies names it without its parents."""
        log = self._log
        if log.tells.copies:
            return np.asarray(
                (log.module[places] == log.module[row]) & (log.micro_batch[places] == log.micro_batch[row])
            )
        module = int(log.module[row])
        if module not in self._below:
            if not self._below:
                for at, path in enumerate((*log.modules, "")):
                    self._by_end.setdefault(path.rpartition(".")[2], []).append((at, f".{path}"))
            name = f".{log.modules[module]}"
            self._below[module] = below = np.zeros(len(log.modules) + 1, bool)
            below[[at for at, path in self._by_end[name.rpartition(".")[2]] if path.endswith(name)]] = True
        return self._below[module][log.module[places]]

    def _first(self, row: int, places: Int64) -> int:
        """The original of the first copy of a region: with the same inputs, else the last (backward goes back).

        -1 without one.
        """
        for place in places[::-1].tolist():
            if np.array_equal(self._log.input_digests[place], self._log.input_digests[row]):
                return int(place)
        return int(places[-1]) if len(places) else -1


_NEAR = 64
"""Maximum distance of neighbours in one region that is run again."""
_NONE = np.zeros(0, np.int64)


def _by(code: Int64, rows: Int64) -> dict[int, Int64]:
    """Rows by their code, ascending."""
    order = rows[stable_order(code[rows])]
    first = np.flatnonzero(np.concatenate(([True], code[order[1:]] != code[order[:-1]])))
    return dict(zip(code[order[first]].tolist(), np.split(order, first[1:]), strict=True))


def _judged(log: OpLog, row: int, first: int, made: set[float]) -> Mismatch | None:
    """A mismatch of a copy and its original; None if there is none, or if it follows from another.

    `made`: the norms of what copies made that differ from their originals; those of this copy are added.
    """
    one, other = _contents(log, row), _contents(log, first)
    unlike = [slot for slot in one if slot in other and _differ(one[slot], other[slot])]
    if not unlike:
        return None
    read = _differing_inputs(log, row, first)
    follows = any(float(log.inputs[row][slot]) in made for slot in read if slot < len(log.inputs[row]))
    made.update(one[slot].l1 for slot in unlike)
    if follows:
        return None
    written = [slot for slot in read if slot in one]
    in_place = written[0] if written and len(written) == len(read) else -1
    x, y = (one[in_place], other[in_place]) if in_place >= 0 else (one[unlike[0]], other[unlike[0]])
    error = _relative(x.l1, y.l1)
    if in_place >= 0:
        name = x.name
        return Mismatch(row, first, Reason.IN_PLACE, name, error, _undone(log, row, name, x, y))
    if read:
        return Mismatch(row, first, Reason.INPUT, "", error)
    random = (of := law_of(log, row)).random or of.may_drop
    return Mismatch(row, first, Reason.RANDOM if random else Reason.KERNEL, "", error)


_OUTPUT = -1
"""The first output, where it is no input changed in place; -2, -3, … are those after it."""


def _contents(log: OpLog, row: int) -> dict[int, Result]:
    """The results of an operation: the inputs that it changed, by slot, and its outputs."""
    found = written(log, row)
    if len(log.outputs[row]):
        in_place = law_of(log, row).in_place and len(log.outputs[row]) == 1
        found[0 if in_place else _OUTPUT] = first_output(log, row)
    for k in range(1, len(log.outputs[row])):
        result = further_output(log, row, k)
        if result is not None and result.digest is not None and _is_read(log, result.digest):
            found[_OUTPUT - k] = result
    return found


def _is_read(log: OpLog, digest: int) -> bool:
    return bool((log.input_digests.value == np.uint64(digest)).any())


def _differ(x: Result, y: Result) -> bool:
    if x.digest is not None and y.digest is not None:
        return x.digest != y.digest
    return not (x.l1 == y.l1 or math.isnan(x.l1) or math.isnan(y.l1))


def _differing_inputs(log: OpLog, row: int, first: int) -> list[int]:
    """The slots of inputs that are known and differ."""
    one, other = log.input_digests[row], log.input_digests[first]
    if len(one) and len(other):
        n = min(len(one), len(other))
        unlike = (one[:n] != other[:n]) & (one[:n] != NO_DIGEST) & (other[:n] != NO_DIGEST)
    else:
        x, y = log.inputs[row], log.inputs[first]
        n = min(len(x), len(y))
        unlike = (x[:n] != y[:n]) & ~np.isnan(x[:n]) & ~np.isnan(y[:n])
    return [int(slot) for slot in np.flatnonzero(unlike)]


def _undone(log: OpLog, row: int, name: str, twice: Result, once: Result) -> int:
    """The later record that makes what the first pass had left of what the copy left; -1 for none."""
    if not (once.l1 > 0 and twice.l1 > 0):
        return -1
    reads = log.inputs.row[log.inputs.value == twice.l1]
    reads = reads[(reads > row) & ~log.recompute[reads]]
    made = reads[log.outputs.first(reads) == once.l1]
    if len(made):
        return int(made[0])
    contents = LastContents(log, tuple(log.modules))
    touch = contents.last.get(canonical(name))
    if touch is None or touch.row <= row or once.digest is None or contents.after(touch).digest != once.digest:
        return -1
    return contents.writer(canonical(name))


def _relative(x: float, y: float) -> float:
    """The relative difference of two norms; NaN if one is unknown."""
    largest = max(abs(x), abs(y))
    return abs(x - y) / largest if largest > 0 else 0.0 if largest == 0 else math.nan
