"""Summary of the comparison of one rank: small enough to travel, and enough to order the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from matchers.ops.module_path import canonical
from matchers.status import LabelledEnum, Status

__all__ = ["Cell", "Event", "Outcome", "RankSummary", "Received", "Sent", "place_of"]

_STATUS: Final = {status.label: status for status in Status}


class Outcome(LabelledEnum):
    """The extent of the comparison of a rank.

    EQUAL: the footers of both logs say that all records are equal; they were not read. COMPARED: both logs were read.
    ABSENT: one run has no log of the rank. FAILED: a log cannot be read, or the process that compared it ended.
    """

    EQUAL = 0
    COMPARED = 1
    ABSENT = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Received:
    """A collective or message that may have brought a difference from another rank.

    Attributes:
        channel: the process group, or the direction between two ranks (`matchers.runs.diff.exchange`).
        nth: number of earlier calls of the channel.
        does: `all_reduce (sum)`.
    """

    channel: str
    nth: int
    does: str


@dataclass(frozen=True, slots=True)
class Sent:
    """Successive calls of a channel to which a rank gave something that differs between the runs.

    Attributes:
        first, last: their numbers, both included.
        event: index of the rank's event that they follow from.
    """

    channel: str
    first: int
    last: int
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A first cause on one rank, or the first difference there. Texts quote the logs: sanitise them for display.

    Attributes:
        row: of the comparison.
        record: of log a, at or before the row; the explorer opens there.
        key: of the operation.
        module, op, phase, location: of the operation; location is `file:line`, empty if unknown.
        status: label of its `Status`.
        error: relative; NaN if unknown, inf for NaN or Inf.
        line_a, line_b: 1-based line of the record in each log; 0 for none.
        text: what is said of it, a sentence.
        red: number of red rows that it explains; 0 for a first difference.
        received: collectives that may have brought it; empty if it arose here, as far as the log tells.
        before: number of earlier calls by channel.
    """

    row: int
    record: int
    key: str
    module: str
    op: str
    phase: str
    location: str
    status: str
    error: float
    line_a: int
    line_b: int
    text: str
    red: int = 0
    received: tuple[Received, ...] = ()
    before: Mapping[str, int] = field(default_factory=dict)

    @property
    def stretch(self) -> tuple[str, str]:
        """Phase and place, as of the `Cell` that has the operation."""
        return self.phase, place_of(self.module)


@dataclass(frozen=True, slots=True)
class Cell:
    """A stretch of the step on one rank.

    Attributes:
        phase: label of its `Phase`.
        place: the module with its layer, `layers.3`; empty for operations outside modules.
        status: label of the worst `Status`.
        red: number of red rows.
        record: of log a, where the worst status begins.
    """

    phase: str
    place: str
    status: str
    red: int
    record: int

    @property
    def stretch(self) -> tuple[str, str]:
        """Phase and place: a rank has a cell of each at most."""
        return self.phase, self.place

    @property
    def worst(self) -> Status:
        """The worst status; NOT_JUDGED for a label that no status has."""
        return _STATUS.get(self.status, Status.NOT_JUDGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """The comparison of one rank.

    Attributes:
        rank: its number.
        outcome: how far the comparison went.
        why: of ABSENT and FAILED, a sentence without full stop.
        paths: of log a and b; empty for none.
        records: number of operations of both.
        rows, red: number of rows of the comparison, and of red ones.
        compared: number of operations that were compared or are covered.
        counts: rows by label of their status.
        causes: the first causes, the earliest first; `cause_count` of them in all.
        difference: the first difference, however little; None without one.
        channels: process groups and messages that the rank takes part in.
        sent: calls with red input, by the cause it follows from.
        sent_difference: calls whose input differs at all; they follow from the first difference.
        cells: the step in order; empty where nothing was read.
        failures: (condition, sentence) for each condition that could fail the rank and holds.
        troubles: what is wrong with the logs: cut off, damaged.
        notes: (kind, sentence) of what weakens or explains the comparison; the kind is one word.
        host: node that ran the rank; empty if unknown.
        coordinates: index along each dimension of the mesh; empty if unknown.
        mesh: sizes of the dimensions.
        world_size: of each run; None if unknown.
        step: of each run; None if unknown.
        start: what differs before the step, a sentence, empty for nothing; and a digest of the parameters' names.
    """

    rank: int
    outcome: Outcome
    why: str = ""
    paths: tuple[str, str] = ("", "")
    records: tuple[int, int] = (0, 0)
    rows: int = 0
    red: int = 0
    compared: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    causes: tuple[Event, ...] = ()
    cause_count: int = 0
    difference: Event | None = None
    channels: tuple[str, ...] = ()
    sent: tuple[Sent, ...] = ()
    sent_difference: tuple[Sent, ...] = ()
    cells: tuple[Cell, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    troubles: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    host: str = ""
    coordinates: Mapping[str, int] = field(default_factory=dict)
    mesh: Mapping[str, int] = field(default_factory=dict)
    world_size: tuple[int | None, int | None] = (None, None)
    step: tuple[int | None, int | None] = (None, None)
    start: tuple[str, str] = ("", "")

    @property
    def read(self) -> bool:
        """True if both logs were compared, by their footers or row by row."""
        return self.outcome in (Outcome.EQUAL, Outcome.COMPARED)


def place_of(module: str) -> str:
    """Return `layers.3` of `layers.3.attention.wq`: the path up to its first number, else its first name."""
    parts = canonical(module).split(".")
    number = next((at for at, part in enumerate(parts) if part.isdigit()), 0)
    return ".".join(parts[: number + 1])
