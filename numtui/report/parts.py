"""Data classes of a report. Text of a log in them is raw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from matchers.status import Role, Status
from numtui.text.counts import plural

__all__ = [
    "MEANING",
    "Argument",
    "CauseFacts",
    "DifferenceFacts",
    "Doubt",
    "FamilyFacts",
    "Log",
    "Note",
    "RowFacts",
    "RuleUse",
]

MEANING: Final = {
    Status.PENDING: "not compared yet",
    Status.EQUAL: "bitwise equal",
    Status.SAME_PRINT: "same printed values",
    Status.CLOSE: "differs within tolerance",
    Status.SHARDED: "different shards of one tensor, not judged",
    Status.UNFINISHED: "collectives logged before they finished, not judged",
    Status.PARTIAL: "partial sums in another reduction order, totals agree",
    Status.NO_VALUES: "nothing to compare: no result that both logs print",
    Status.NOT_JUDGED: "differs, but cannot be judged by itself",
    Status.RECOMPUTE: "recomputed in the backward pass (checkpointing) on one side only",
    Status.IGNORED: "ignored by a rule",
    Status.ONLY_A: "no partner in b",
    Status.ONLY_B: "no partner in a",
    Status.SHAPE: "shape or dtype mismatch",
    Status.DIVERGED: "differs beyond tolerance",
    Status.NAN: "NaN in either run, or Inf in only one",
}
"""Meaning of each status."""


@dataclass(frozen=True, slots=True)
class Note:
    """A caveat of the comparison; `weight` is the label of its `Severity`."""

    weight: str
    text: str


@dataclass(frozen=True, slots=True)
class Log:
    """One of the two logs.

    Attributes:
        name: name of the side.
        path: as given by the user.
        captured: what it covers of its step, as its header says; "" if it does not.
        losses, gradient_norm: as `matchers.ops.training_scalars` finds them.
        declared: number of operations in its header, None where it has none.
        complete: False when cut off, None when its format cannot tell.
        trouble: problems of the log as a whole, a sentence each.
        problems: the first unreadable spots, as (line, problem); `problem_count` counts all.
    """

    side: str
    name: str
    path: str
    captured: str
    losses: tuple[float, ...]
    gradient_norm: float | None
    operations: int
    declared: int | None
    complete: bool | None
    trouble: tuple[str, ...]
    problems: tuple[tuple[int, str], ...]
    problem_count: int


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument that an operation was given otherwise.

    Attributes:
        name: by its schema.
        a, b: as shown; `not given` where the side has none.
        explained: the other form of the step that explains it; empty for none.
    """

    name: str
    a: str
    b: str
    explained: str


@dataclass(frozen=True, slots=True)
class RowFacts:
    """Facts of one row as text.

    Attributes:
        row: index into the comparison.
        a_keys, b_keys: the operations of each side; empty where it has none, several for a group.
        error: as shown everywhere, `≥1.2e-03`; empty when nothing was compared.
        in_eps: the same in units of the dtype's ε; empty where meaningless.
        location: of a's record, of b's where a has none; so are phase, shape and dtype.
        location_b: of b's record where it differs from a's; else empty.
        arguments: those that the two sides were given otherwise.
        line_a, line_b: 1-based line of the log, 0 where the side has no record.
        sentence: explanation; empty where not requested.
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
    arguments: tuple[Argument, ...]
    sentence: str

    @property
    def role_word(self) -> str:
        """Return the role in the data flow in words; empty without one."""
        return "first cause" if self.cause else self.role.word if self.role else ""

    def place(self, safe: Callable[[str], str]) -> str:
        """Return the source line, of both sides where they differ, escaped by `safe`; empty where unknown."""
        if not self.location_b:
            return safe(self.location) if self.location else ""
        (file_a, _, _), (file_b, _, line_b) = self.location.rpartition(":"), self.location_b.rpartition(":")
        if file_a and file_a == file_b:
            return f"{safe(self.location)} (in b: {safe(line_b)})"
        return f"{safe(self.location)} in a and {safe(self.location_b)} in b"

    def keys(self, safe: Callable[[str], str]) -> str:
        """Return `key`, `key of a <-> key of b`, or `key (only in b)`; keys are escaped by `safe`."""
        a, b = (" + ".join(map(safe, keys)) for keys in (self.a_keys, self.b_keys))
        if not a or not b:
            return f"{a or b} (only in {'a' if a else 'b'})"
        return a if a == b else f"{a} <-> {b}"


@dataclass(frozen=True, slots=True)
class DifferenceFacts:
    """The first difference, see `matchers.causes.first_difference.FirstDifference`.

    Attributes:
        title: `First difference: row 33, ≈9.1e-06, within tolerance`.
        reasons: how it arises, a sentence each.
        row: its row; `reader` is the one that reads the result of an unpaired operation, -1 for none.
        kind: label of its `Kind`.
        within_tolerance: its row is paired and not red.
        by_digest: equal means equal bits; else equal printed numbers.
        differs: for runs that differ from the start, `weights` or `the batch`.
        others, others_differ: operations of its kind with equal inputs, and those of them whose results differ too.
        operation: where the runs differ from the start, the first row with equal inputs and another result; else -1.
    """

    title: str
    reasons: tuple[str, ...]
    row: RowFacts
    kind: str
    within_tolerance: bool
    by_digest: bool
    reader: int
    differs: tuple[str, ...]
    others: int
    others_differ: int
    operation: int


@dataclass(frozen=True, slots=True)
class CauseFacts:
    """A first cause and its consequences, see `matchers.causes.consequences.Cause`.

    Attributes:
        row: the first row that starts it; `rows` are all of them.
        growth: (phase, index in the module's name or empty, largest error as shown) along the step.
        follows: the consequences in a sentence.
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
    """A known kind of drift between names or operations of the two runs, with its number of rows.

    `failed`: the search for it failed, so there may be more of it; the explanation says why.
    """

    name: str
    rows: int
    explanation: str
    failed: bool = False

    @property
    def extent(self) -> str:
        """Its number of rows in words."""
        return "search failed" if self.failed else plural(self.rows, "row")


@dataclass(frozen=True, slots=True)
class RuleUse:
    """A rule in force, as in a file, and its matches.

    `problem` is empty without trouble, `hint` unless the rule seems unneeded.
    """

    section: str
    text: str
    line: int | None
    matched: int
    problem: str
    hint: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Number of uncertain pairs, and the least certain one; `runner_up` may be empty."""

    pairs: int
    below: float
    a_key: str
    b_key: str
    method: str
    confidence: float
    runner_up: str
    runner_up_score: float
