"""The pieces that a report is made of. Text of a log stands in them as it is in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from matchers.logs.op_log import OpLog
from matchers.status import Role, Status

__all__ = [
    "MEANING",
    "CauseFacts",
    "Doubt",
    "FamilyFacts",
    "Log",
    "Note",
    "RowFacts",
    "RuleUse",
    "Weight",
    "log_trouble",
    "plural",
]

Weight = Literal["fatal", "suspicious", "harmless"]
"""How much a difference between the runs, or a flaw of a log, takes away from what the comparison says."""

MEANING: Final = {
    Status.PENDING: "not compared yet",
    Status.EQUAL: "the bits are the same",
    Status.SAME_PRINT: "every printed number is the same",
    Status.CLOSE: "different, within tolerance",
    Status.SHARDED: "different shards of one tensor, not judged",
    Status.UNFINISHED: "collectives logged before they had finished, not judged",
    Status.PARTIAL: "parts of sums that are added up in another order, whose totals agree",
    Status.RECOMPUTE: "run again in the backward pass (checkpointing) on one side only",
    Status.IGNORED: "ignored by a rule",
    Status.ONLY_A: "no partner in b",
    Status.ONLY_B: "no partner in a",
    Status.SHAPE: "shape or dtype differ",
    Status.DIVERGED: "different beyond tolerance",
    Status.NAN: "NaN in either run, or Inf that only one has",
}
"""What each status says about a row."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that makes the comparison say less than it seems to; `weight` is how much."""

    weight: Weight
    text: str


@dataclass(frozen=True, slots=True)
class Log:
    """One of the two logs.

    Attributes:
        name: what the side is called.
        path: as the user gave it.
        declared: how many operations its header promises, None where it says nothing.
        complete: False when it is known to be cut off, None when its format cannot tell.
        trouble: what is wrong with it, a sentence each.
        problems: the first spots that could not be read, as (line, what was wrong); `problem_count` counts all.
    """

    side: str
    name: str
    path: str
    operations: int
    declared: int | None
    complete: bool | None
    trouble: tuple[str, ...]
    problems: tuple[tuple[int, str], ...]
    problem_count: int


@dataclass(frozen=True, slots=True)
class RowFacts:
    """One row in words.

    Attributes:
        row: index into the comparison.
        a_keys, b_keys: the operations of each side; empty where it has none, several for a group.
        error: as it is shown everywhere, `≥1.2e-03`; empty when there is nothing to compare.
        in_eps: the same in units of the dtype's ε; empty where that says nothing.
        location: of a's record, of b's where a has none; so are phase, shape and dtype.
        location_b: of b's record, where it is another than a's; else empty.
        line_a, line_b: 1-based line of the log, 0 where the side has no record.
        sentence: what is known about it; empty where nobody asked for it.
    """

    row: int
    a_keys: tuple[str, ...]
    b_keys: tuple[str, ...]
    status: Status
    role: Role
    cause: bool
    error: str
    in_eps: str
    phase: str
    shape: str
    dtype: str
    module: str
    location: str
    location_b: str
    line_a: int
    line_b: int
    sentence: str

    @property
    def role_word(self) -> str:
        """What it is in the data flow, as a person reads it; empty where there is nothing to say."""
        return "first cause" if self.cause else self.role.word if self.role else ""

    def place(self, safe: Callable[[str], str]) -> str:
        """The source line, of both sides where they differ, each as `safe` writes it; empty where none is known."""
        if not self.location_b:
            return safe(self.location) if self.location else ""
        (file_a, _, _), (file_b, _, line_b) = self.location.rpartition(":"), self.location_b.rpartition(":")
        if file_a and file_a == file_b:
            return f"{safe(self.location)} (in b: {safe(line_b)})"
        return f"{safe(self.location)} in a and {safe(self.location_b)} in b"

    def keys(self, safe: Callable[[str], str]) -> str:
        """`key`, `key of a <-> key of b`, or `key (only in b)`; each key as `safe` writes it."""
        a, b = (" + ".join(map(safe, keys)) for keys in (self.a_keys, self.b_keys))
        if not a or not b:
            return f"{a or b} (only in {'a' if a else 'b'})"
        return a if a == b else f"{a} <-> {b}"


@dataclass(frozen=True, slots=True)
class CauseFacts:
    """One first cause and what follows from it, see `matchers.causes.consequences.Cause`.

    Attributes:
        row: the first row that starts it; `rows` are all of them.
        growth: (phase, index in the module's name or empty, largest error as it is shown) along the step.
        follows: the same in a sentence.
    """

    row: RowFacts
    rows: tuple[int, ...]
    red: int
    assumed: int
    masked: int
    modules: int
    growth: tuple[tuple[str, str, str], ...]
    follows: str


@dataclass(frozen=True, slots=True)
class FamilyFacts:
    """A known kind of drift between the names or the operations of the two runs, and how many rows show it."""

    name: str
    rows: int
    explanation: str


@dataclass(frozen=True, slots=True)
class RuleUse:
    """A rule in force, as it would stand in a file, and what became of it.

    `problem` is empty when all is well, `hint` when nothing suggests that the rule could go.
    """

    section: str
    text: str
    line: int | None
    matched: int
    problem: str
    hint: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """How many pairs are uncertain, and the one that is most likely to be wrong; `runner_up` may be empty."""

    pairs: int
    below: float
    a_key: str
    b_key: str
    method: str
    confidence: float
    runner_up: str
    runner_up_score: float


def plural(n: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def log_trouble(log: OpLog) -> Iterator[str]:
    """Sentences about operations that a log lacks: it was cut off, or its header promises others."""
    declared = log.header.declared
    if log.complete is False:
        missing = (
            f"{len(log):,} of {declared:,} operations are there"
            if declared is not None and declared > len(log)
            else "operations are missing at its end"
        )
        why = f": {log.header.incomplete}" if log.header.incomplete else ""
        yield f"the log is cut off, {missing}{why}"
    elif declared is not None and declared != len(log):
        yield f"the header promises {plural(declared, 'operation')}, there are {len(log):,}"
