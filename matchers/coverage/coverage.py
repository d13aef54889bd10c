"""The coverage of two logs: compared and covered operations, and the parts of a log that nothing vouches for.

An operation is *compared* if what it returned or wrote was, or if it is a covered copy of that: with the bits of its
input and the norm of what agrees (one layout copies to transpose where another need not). Any other is *covered* if one
that agrees reads its results or reads what such an operation makes of them, and no red one does, or if the named
tensors that it wrote agree at the end of the step: then an error in it would have shown. This does not hold for a half
of a log or a phase that the other log does not have. Copies that activation checkpointing computes again are not
counted, nor are micro-batches that other ranks of the other run have, nor results without elements that one run lacks,
nor what is around a call of a model, or around the forward pass of a step where the other log is that of a call, nor
what such a step makes of the call's result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, marked, one_of
from matchers.coverage.cover import Cover, covers
from matchers.coverage.parts import REASONS, Part, parts, reasons
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import OpLog
from matchers.ops.run_info import MERGED_RANKS
from matchers.ops.values import records_changes
from matchers.rows import Rows
from matchers.status import AGREE, Status

__all__ = ["Coverage", "Side", "coverage"]


@dataclass(frozen=True, slots=True)
class Side:
    """Numbers of operations of one log."""

    compared: int
    covered: int
    uncovered: int
    ignored: int

    @property
    def operations(self) -> int:
        """All that are to be compared: not those that rules ignore."""
        return self.compared + self.covered + self.uncovered


@dataclass(frozen=True)
class Coverage:
    """The coverage of a comparison.

    Attributes:
        cover: int8[r] of `Cover`, by row.
        a, b: numbers of operations of each log.
        parts: the parts that were not compared: ranks, then the largest first.
        left: why operations of the log with more of them are neither compared nor covered: (for one, for several,
            number).
        fewer: pairs that agree in fewer kinds of values than one of their records has: a line of the other is missing.
        unmerged: `a` or `b` if it alone is the log of one process, and the other one is merged of ranks; else empty.
    """

    cover: NDArray[np.int8]
    a: Side
    b: Side
    parts: tuple[Part, ...]
    left: tuple[tuple[str, str, int], ...]
    fewer: int = 0
    unmerged: str = ""

    @property
    def nothing(self) -> bool:
        """True if not one row was compared."""
        return not bool((self.cover == Cover.COMPARED).any())

    @property
    def enough(self) -> bool:
        """True if something was compared, no rank was left out, and no part of a log."""
        return not self.nothing and not self.parts

    @property
    def understood(self) -> bool:
        """False if ranks compute for each other what neither log shows, so that a difference need not be one."""
        return not any(part.layout for part in self.parts)

    @property
    def missing(self) -> str:
        """The parts without comparison, in words: all ranks that were left out, else the largest part; or none."""
        return " and ".join(str(part) for part in self.parts if part.ranks) or next(map(str, self.parts), "")

    @property
    def half(self) -> bool:
        """True if at least half of a log was not compared."""
        return any(2 * part.operations >= max(self.a.operations, self.b.operations) for part in self.parts)

    @property
    def larger(self) -> Side:
        """The log with more operations."""
        return max(self.a, self.b, key=lambda side: side.operations)

    @cached_property
    def sentence(self) -> str:
        """The number of compared operations, and the part or the reasons of those that were not."""
        side = self.larger
        told = f"{side.compared:,} of {side.operations:,} operation{'s' * (side.operations != 1)} compared"
        one = {"a": self.a, "b": self.b}.get(self.unmerged, side)
        if one is not side:  # what only communicates or arranges parts has no counterpart in one process
            other = "b" if one is self.a else "a"
            told = f"{one.compared:,} of {one.operations:,} operations of {self.unmerged} compared, "
            told += f"{side.compared:,} of {side.operations:,} of {other}"
        if self.fewer:
            told += f" ({self.fewer:,} by fewer values than one log has)"
        if side.covered and self.left:
            told += f", {side.covered:,} covered"
        if self.parts and not self.nothing:
            return f"{told}; {self.missing} {self.parts[0].why}"
        if self.left:
            return f"{told}; {', '.join(f'{n:,} {one if n == 1 else several}' for one, several, n in self.left)}"
        if side.covered:
            other = "one leads" if side.covered == 1 else f"{side.covered:,} lead"
            return f"{told}; what the other {other} to agrees"
        return told


def coverage(c: Rows, kept: tuple[Bool, Bool] | None = None, allowed: Bool | None = None) -> Coverage:
    """Return the coverage of a comparison.

    Args:
        kept: bool[n_a], bool[n_b], the records that wrote named tensors whose last contents all agree; may be
            empty for none.
        allowed: bool[r], rows that the user allows not to be compared; they count as ignored.
    """
    cover = covers(c, kept)
    if allowed is not None:
        cover[(cover == Cover.UNCOVERED) & allowed] = Cover.IGNORED
    why = reasons(c)
    a, b = _side(cover[c.at_a]), _side(cover[c.at_b])
    at = max(((a, c.at_a), (b, c.at_b)), key=lambda side: side[0].operations)[1]
    many = np.bincount(why[at][cover[at] == Cover.UNCOVERED], minlength=len(REASONS)).tolist()
    return Coverage(
        cover=cover,
        a=a,
        b=b,
        parts=parts(c, cover, why),
        left=tuple((*reason, n) for reason, n in zip(REASONS, many, strict=True) if n),
        fewer=_by_fewer_values(c),
        unmerged=_unmerged(c),
    )


def _unmerged(c: Rows) -> str:
    """As of `Coverage`."""
    of_ranks = [MERGED_RANKS in log.header.run for log in (c.a, c.b)]
    return "" if of_ranks[0] == of_ranks[1] else "b" if of_ranks[0] else "a"


def _by_fewer_values(c: Rows) -> int:
    """Count the pairs that agree though one side alone has a kind of value: a shape, a number, a change in place."""
    p = c.pairing
    i, j = p.lead_a, p.lead_b
    verdict = c.status[c.row_of_pair]
    a, b = c.a, c.b
    shape = (a.shape[i] >= 0) != (b.shape[j] >= 0)
    norms = (a.outputs.count[i] > 0) != (b.outputs.count[j] > 0)
    numbers = one_of(verdict, (Status.SAME_PRINT, Status.CLOSE)) & (norms | (a.present[i] != b.present[j]))
    # equal bits that only one of the two made: the other read them already, or does not say what it changed
    op_a, op_b, _ = shared_ids(a.ops, b.ops)
    changes = (_says_changes(a)[i] != _says_changes(b)[j]) & (op_a[a.op[i]] == op_b[b.op[j]])
    changes &= (verdict == Status.EQUAL) & (records_changes(a) and records_changes(b))
    return int(np.count_nonzero(~p.grouped & (np.isin(verdict, list(AGREE)) & shape | numbers | changes)))


def _says_changes(log: OpLog) -> Bool:
    """bool[n]: the record says what the operation changed in place."""
    return marked(log.texts("Mutated").rows, len(log))


def _side(cover: NDArray[np.int8]) -> Side:
    many = np.bincount(cover, minlength=len(Cover)).tolist()
    return Side(many[Cover.COMPARED], many[Cover.COVERED], many[Cover.UNCOVERED], many[Cover.IGNORED])
