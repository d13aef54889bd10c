"""Work that a session asks for and a thread does."""

from __future__ import annotations

from dataclasses import dataclass

from matchers.comparison import Comparison, Progress
from matchers.drift.realign import realignments
from matchers.drift.suggestion import Suggestion
from matchers.rules.model import RuleSet
from numtui.session.rule_edits import (
    Edit,
    Effect,
)

__all__ = ["Job", "RealignmentSearch", "Proposal"]


@dataclass
class Job:
    """A comparison to be made: `run` it anywhere, then give it to `Session.accept`."""

    generation: int
    base: Comparison
    rules: RuleSet
    preview: int = 0
    """Which proposal the result is for; 0 when it is to be shown."""
    result: Comparison | None = None

    def run(self, progress: Progress | None = None) -> Comparison:
        """Match again with the rules of this job. Touches nothing but the job."""
        if self.result is None:
            self.result = self.base.with_rules(self.rules, progress=progress)
        return self.result


@dataclass
class RealignmentSearch:
    """A search for pairs made past each other: `run` it anywhere, then give it to `Session.take`."""

    comparison: Comparison
    found: tuple[Suggestion, ...] = ()

    def run(self) -> None:
        """Touches nothing but the look."""
        self.found = realignments(self.comparison)


@dataclass
class Proposal:
    """A change of the rules that waits for a yes: its alternatives, and what the chosen one would do.

    `effect` is None until its preview job has been accepted.
    """

    key: str
    edits: tuple[Edit, ...]
    serial: int
    chosen: int = 0
    effect: Effect | None = None
    comparison: Comparison | None = None

    @property
    def edit(self) -> Edit:
        return self.edits[self.chosen]
