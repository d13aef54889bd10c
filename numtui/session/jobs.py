"""Jobs of a session that run in a thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchers.comparison import Comparison, Progress
from matchers.drift.realign import realignments
from matchers.drift.suggestion import Suggestion
from matchers.rules.model import RuleSet
from numtui.session.rule_edits import (
    Edit,
    Effect,
)

__all__ = ["Job", "RealignmentSearch", "Proposal", "RulesEffect"]


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
class RulesEffect:
    """Effect of the rules of a comparison: `run` it in any thread.

    Attributes:
        changed: number of rows with another status than their operation has without rules.
        more_red: number of red rows, less those without rules.
    """

    comparison: Comparison
    changed: int = 0
    more_red: int = 0

    def run(self, progress: Progress | None = None) -> None:
        """Compare without the rules, unless none of them matches anything. Changes only this object."""
        c = self.comparison
        if not any(used.matched for used in c.usage):
            return
        plain = c.with_rules(RuleSet(), progress=progress)
        # A side without a record has the number -1: the other side decides.
        rows = np.where(c.row_a >= 0, np.append(plain.at_a, -1)[c.row_a], np.append(plain.at_b, -1)[c.row_b])
        self.changed = int(np.count_nonzero(plain.status[rows] != c.status))
        self.more_red = int(np.count_nonzero(c.red)) - int(np.count_nonzero(plain.red))


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
    asked: bool = False
    """Asked for once, though it makes more rows red: that is asked twice."""

    @property
    def edit(self) -> Edit:
        return self.edits[self.chosen]

    @property
    def worse(self) -> bool:
        """True when more rows would be red."""
        return self.effect is not None and self.effect.red_after > self.effect.red_before
