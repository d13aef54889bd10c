"""The names of all pairs, as ids of distinct texts, for the detectors of drift.

Texts are compared only among distinct modules and ops; rows take part only as integer columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, Hash, Int32, Int64
from matchers.comparison import Comparison
from matchers.drift.suggestion import instances
from matchers.logs.hashing import float_bits, mix, shared_ids
from matchers.logs.op_log import OpLog
from matchers.ops.module_path import canonical
from matchers.pairing.features import LogFeatures
from matchers.pairing.matching import Matching
from matchers.pairing.pairing import Method

__all__ = ["Modules", "PairNames", "Place", "Segments", "escaped", "key_head", "key_segments", "print_codes", "twins"]

Segments = tuple["str | None", ...]
"""The segments of a module path, None for a number."""


@dataclass(frozen=True, slots=True)
class Place:
    """A module path with its numbers separated: `layers.3.wq` is `("layers", None, "wq")` at `(3,)`."""

    pattern: Segments
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, path: str) -> Place:
        pattern: list[str | None] = []
        numbers: list[int] = []
        for part in path.split("."):
            # `007` is a name: a placeholder for numbers does not match it
            if part.isascii() and part.isdigit() and len(part) < 10 and part == str(int(part)):
                pattern.append(None)
                numbers.append(int(part))
            else:
                pattern.append(part)
        return cls(tuple(pattern), tuple(numbers))


class Modules:
    """The module table of one log under the names that the rules give; entry -1 is "no module"."""

    def __init__(self, log: OpLog, names: Sequence[str]) -> None:
        self.names = [*names, ""]
        self.canonical = [canonical(name) for name in self.names]
        self.places = [Place.of(name) for name in self.names]
        numbers: dict[Segments, int] = {}
        self.pattern = np.array([numbers.setdefault(place.pattern, len(numbers)) for place in self.places], np.int64)
        self.of_row = self.pattern[log.module]


class PairNames:
    """The pairs that no rule made, and the names on both sides of each.

    Attributes:
        i, j: the leads.
        op_a, op_b: ids of the ops by record of each log, shared by both sides; `ops` is their number.
        same_module: bool[pairs], by the names that the rules give.
        same_op: bool[pairs].
    """

    def __init__(self, c: Comparison, matching: Matching) -> None:
        self.c = c
        self.f = matching.features
        self.a = Modules(c.a, matching.names.modules_a)
        self.b = Modules(c.b, matching.names.modules_b)
        by_rule = np.isin(c.pairing.method, (Method.OVERRIDE, Method.TEMPLATE))
        keep = np.flatnonzero(~by_rule)
        self.pair = keep
        self.i, self.j = c.pairing.lead_a[keep].astype(np.int64), c.pairing.lead_b[keep].astype(np.int64)
        self.grouped = c.pairing.grouped[keep]
        op_a, op_b, self.ops = shared_ids(list(c.a.ops), list(c.b.ops))
        self.op_a, self.op_b = op_a[c.a.op], op_b[c.b.op]
        name_a, name_b, _ = shared_ids(self.a.names[:-1], self.b.names[:-1])
        self.same_module: Bool = name_a[c.a.module[self.i]] == name_b[c.b.module[self.j]]
        self.same_op: Bool = self.op_a[self.i] == self.op_b[self.j]

    def instances(self, which: Int64) -> Int32:
        """Some of the pairs, by index, as instances of a family."""
        return instances(self.i[which], self.j[which])

    def unpaired(self, side: str) -> Int64:
        """The unpaired records of a side, in order, without known recomputed copies."""
        one, of = (self.f.a, self.c.pairing.of_a) if side == "a" else (self.f.b, self.c.pairing.of_b)
        return np.flatnonzero((of < 0) & ~one.repeat)

    def example(self, k: int) -> str:
        """One pair as text."""
        return f"{self.c.a.keys[int(self.i[k])]} ↔ {self.c.b.keys[int(self.j[k])]}"


def escaped(text: str) -> str:
    """Text with its braces escaped for a template."""
    return text.replace("{", "{{").replace("}", "}}")


def key_segments(pattern: Segments, holes: Sequence[str]) -> list[str]:
    """The segments of a module pattern as template text, with a placeholder for each number."""
    left = iter(holes)
    return [next(left) if part is None else escaped(part) for part in pattern]


def key_head(pattern: Segments, holes: Sequence[str]) -> str:
    """A module pattern as template text."""
    return ".".join(key_segments(pattern, holes))


def print_codes(side: LogFeatures, rows: Int64, shapes: int) -> Hash:
    """A hash of each record's printed result: phase, shape (one of `shapes`) and all numbers."""
    code = mix((shapes + 2) * side.phase[rows].astype(np.uint64) + (side.shape[rows] + 1).astype(np.uint64))
    stats = side.log.stats[:, rows]
    for column in (side.log.outputs.first(rows), *stats[1:]):
        code = code * np.uint64(31) + mix(float_bits(column))
    return code


def twins(code_a: Hash, rows_a: Int64, code_b: Hash, rows_b: Int64) -> tuple[Int64, Int64]:
    """Pairs of records whose codes are equal and unique on each side."""
    found = []
    for code, rows in ((code_a, rows_a), (code_b, rows_b)):
        value, index, count = np.unique(code, return_index=True, return_counts=True)
        found.append((value[count == 1], rows[index[count == 1]]))
    (value_a, row_a), (value_b, row_b) = found
    _, at_a, at_b = np.intersect1d(value_a, value_b, assume_unique=True, return_indices=True)
    return row_a[at_a], row_b[at_b]
