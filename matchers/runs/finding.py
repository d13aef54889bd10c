"""Result of checking one run against itself: what does not hold, what held, and what could not be checked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from matchers.runs.run import Run
from matchers.status import LabelledEnum

__all__ = ["Check", "CheckedRun", "Finding", "Made", "Place", "Stage", "Unmade", "listed", "made_on"]


def listed(ranks: Iterable[int]) -> str:
    """Ranks in words: `0–3, 8`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


class Check(LabelledEnum):
    """Kinds of checks, in the order in which their findings are listed where nothing else orders them."""

    SAME_COLLECTIVES = 0
    DATA = 1
    REPLICAS = 2
    SAME_PROGRAM = 3
    FINITE = 4
    COLLECTIVES_COMPUTE = 5
    RECOMPUTE = 6
    REPLICATED_STAYS = 7
    TRAINED = 8
    ODD_ONE_OUT = 9
    FLIGHT_RECORDER = 10

    @property
    def holds(self) -> str:
        """The law of a healthy run, as a clause."""
        return _HOLDS[self]


_HOLDS = {
    Check.SAME_COLLECTIVES: "members of a group call the same collectives in the same order",
    Check.DATA: "ranks that share a batch read the same one, all others different ones",
    Check.REPLICAS: "what is replicated has equal bits on all ranks that hold it, before and after the step",
    Check.SAME_PROGRAM: "ranks with one role run the same operations",
    Check.FINITE: "no operation makes NaN or Inf that a result takes",
    Check.COLLECTIVES_COMPUTE: "the result of a collective is that of what its members gave",
    Check.RECOMPUTE: "a recomputed operation repeats the bits of the forward pass",
    Check.REPLICATED_STAYS: "equal inputs on several ranks give equal results",
    Check.TRAINED: "each parameter with a gradient is updated on every rank that holds it",
    Check.ODD_ONE_OUT: "gradients of parameters of one kind are reduced and scaled alike",
    Check.FLIGHT_RECORDER: "all members of a group have called the collectives that others wait in, and in one form",
}


class Stage(LabelledEnum):
    """Part of the step in which something is wrong first: what is wrong before it may change all that follows.

    UPDATE: gradients and states that differ, which also follows from anything wrong in the passes.
    """

    BEFORE = 0
    PASSES = 1
    UPDATE = 2


@dataclass(frozen=True, slots=True)
class Place:
    """A record of one rank.

    Attributes:
        rank: the rank, whose log `Run` has.
        row: of the record in that log; -1: it is no log of operations.
        key: of the operation; untrusted text, as `location`.
        line: 1-based line of the record in the log; of a dump the number of its entry.
        location: `file:line` of the source; empty if the log names none.
        dump: path of the dump of the flight recorder that has the record; empty: the log has it.
    """

    rank: int
    row: int
    key: str
    line: int
    location: str
    dump: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that does not hold. Texts quote the logs: sanitise them for display.

    Attributes:
        text: the verdict, a sentence without full stop.
        subject: the full name of the parameter or buffer, or the key of the operation.
        more: further subjects with the same verdict, of which `text` counts.
        ranks: the ranks where it is wrong; all of `group` where it cannot be told which.
        group: the ranks that must agree, or that take part in the collective; empty for one rank by itself.
        dimension: the mesh dimension that the group runs along, `dp`; empty if unknown.
        places: the record on a rank where it is wrong; then, if there is one, its counterpart on another rank.
        size: relative difference (a ratio), NaN if unknown or not a matter of size.
        notes: further facts, a sentence each, without full stop.
    """

    check: Check
    stage: Stage = Stage.PASSES
    text: str
    subject: str
    more: tuple[str, ...] = ()
    ranks: tuple[int, ...]
    group: tuple[int, ...] = ()
    dimension: str = ""
    places: tuple[Place, ...] = ()
    size: float = math.nan
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """A check that was made, and what on: `many` of `what` ("collectives", "parameters")."""

    check: Check
    many: int
    what: str


@dataclass(frozen=True, slots=True)
class Unmade:
    """A check, or a part of one, that could not be made, and the reason: a sentence without full stop."""

    check: Check
    reason: str


def made_on(check: Check, many: int, what: str, why_not: str) -> Made | Unmade:
    """A check that was made on so many of something; on none, the reason."""
    return Made(check, many, what) if many else Unmade(check, why_not)


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """All that checking a run has found.

    Attributes:
        findings: the first cause first.
        made: the checks that were made; a check may have several entries.
        unmade: what could not be checked.
        notes: facts that are no findings: a parameter that gets no gradient.
    """

    run: Run
    findings: tuple[Finding, ...]
    made: tuple[Made, ...]
    unmade: tuple[Unmade, ...]
    notes: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """True if no check could be made."""
        return not self.made
