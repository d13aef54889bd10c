"""Jobs of a session that run in a thread."""

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
    """A comparison to compute: `run` it in any thread, then pass it to `Session.accept`."""

    generation: int
    base: Comparison
    rules: RuleSet
    preview: int = 0
    """Number of the proposal that the result belongs to; 0 for the shown comparison."""
    result: Comparison | None = None

    def run(self, progress: Progress | None = None) -> Comparison:
        """Match again with the rules of this job. Changes only the job."""
        if self.result is None:
            self.result = self.base.with_rules(self.rules, progress=progress)
            _ = self.result.coverage  # cached here, because the screen's own thread reads it
        return self.result


@dataclass
class RealignmentSearch:
    """A search for mispaired runs: `run` it in any thread, then pass it to `Session.take`."""

    comparison: Comparison
    found: tuple[Suggestion, ...] = ()

    def run(self) -> None:
        """Search. Changes only this object."""
        self.found = realignments(self.comparison)


@dataclass
class Proposal:
    """A proposed rule change: its alternatives, and the effect of the chosen one.

    `effect` is None until the preview job is accepted.
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
