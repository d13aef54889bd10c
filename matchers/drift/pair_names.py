"""The names of all pairs, as ids of distinct texts, for the detectors of drift.

Texts are compared only among distinct modules and ops; rows take part only as integer columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Hash, Int32, Int64, one_of
from matchers.comparison import Comparison
from matchers.drift.suggestion import instances
from matchers.logs.hashing import float_bits, mix, shared_ids
from matchers.logs.op_log import OpLog
from matchers.ops.module_path import canonical
from matchers.pairing.anchors import joined
from matchers.pairing.features import Features, LogFeatures
from matchers.pairing.matching import Matching
from matchers.pairing.pairing import Method

__all__ = ["Names", "PairNames", "Place", "Segments", "Side", "escaped", "key_segments", "key_text", "same_prints"]

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


class Names:
    """The operations of one log under the names that the rules give its modules; entry -1 is "no module".

    Attributes:
        names, canonical, places: of each module.
        of_row: int64[n], a number for the pattern of each record's module.
    """

    def __init__(self, log: OpLog, names: Sequence[str]) -> None:
        self.log = log
        self.names = [*names, ""]
        self.canonical = [canonical(name) for name in self.names]
        self.places = [Place.of(name) for name in self.names]
        numbers: dict[Segments, int] = {}
        pattern = [numbers.setdefault(place.pattern, len(numbers)) for place in self.places]
        self.of_row = np.array(pattern, np.int64)[log.module]

    def place(self, record: int) -> Place:
        """The place of an operation's module."""
        return self.places[int(self.log.module[record])]

    def numbers(self, record: int) -> tuple[int, ...]:
        """The numbers in an operation's name, the counter last."""
        return (*self.place(record).numbers, int(self.log.counter[record]))


class Side(Names):
    """One of two logs with pairs.

    Attributes:
        is_a: the first of the two.
        features: as the matching sees it.
        unpaired: the unpaired records, in order, without known recomputed copies.
        op: int64[n], ids of the ops, shared by both sides.
    """

    def __init__(self, features: LogFeatures, names: Sequence[str], of: Int64, op: Int64, *, is_a: bool) -> None:
        super().__init__(features.log, names)
        self.is_a, self.features, self.op = is_a, features, op
        self.unpaired = np.flatnonzero((of < 0) & ~features.repeat)

    def alone(self, rows: NDArray[np.integer[Any]] | Sequence[int] | int) -> Int32:
        """Records without partner as instances of a family."""
        return instances(rows, -1) if self.is_a else instances(-1, rows)


class PairNames:
    """The pairs that no rule made, and the names on both sides of each.

    Attributes:
        i, j: the leads.
        ops: number of distinct ops.
        same_module: bool[pairs], by the names that the rules give.
        same_op: bool[pairs].
    """

    def __init__(self, c: Comparison, matching: Matching) -> None:
        self.c = c
        self.f = matching.features
        by_rule = one_of(c.pairing.method, (Method.OVERRIDE, Method.TEMPLATE))
        self.pair = np.flatnonzero(~by_rule)
        self.i, self.j = (lead[self.pair] for lead in (c.pairing.lead_a, c.pairing.lead_b))
        self.grouped = c.pairing.grouped[self.pair]
        op_a, op_b, self.ops = shared_ids(list(c.a.ops), list(c.b.ops))
        self.a = Side(self.f.a, matching.names.modules_a, c.pairing.of_a, op_a[c.a.op], is_a=True)
        self.b = Side(self.f.b, matching.names.modules_b, c.pairing.of_b, op_b[c.b.op], is_a=False)
        name_a, name_b, _ = shared_ids(self.a.names[:-1], self.b.names[:-1])
        self.same_module: Bool = name_a[c.a.module[self.i]] == name_b[c.b.module[self.j]]
        self.same_op: Bool = self.a.op[self.i] == self.b.op[self.j]

    def instances(self, which: Int64) -> Int32:
        """Some of the pairs, by index, as instances of a family."""
        return instances(self.i[which], self.j[which])

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


def key_text(pattern: Segments, holes: Sequence[str], counter: str, op: str) -> str:
    """The template of a key, with a placeholder for each number of its module."""
    return f"{'.'.join(key_segments(pattern, holes))}/op_{counter}_{escaped(op)}"


def same_prints(f: Features, rows_a: Int64, rows_b: Int64, *, of_one_op: bool = False) -> tuple[Int64, Int64]:
    """Records, of these, with equal printed results that no other one of these has on either side.

    A result is the phase, the shape and all numbers; of one op, also the op.
    """

    def code(side: LogFeatures, rows: Int64) -> Hash:
        code = mix((f.shapes + 2) * side.phase[rows].astype(np.uint64) + (side.shape[rows] + 1).astype(np.uint64))
        for column in (side.log.outputs.first(rows), *side.log.stats[1:, rows]):
            code = code * np.uint64(31) + mix(float_bits(column))
        return code ^ mix((side.op[rows] + 1).astype(np.uint64)) if of_one_op else code

    return joined(f, (rows_a, rows_b), code, most=1)
