"""The comparison of two runs: all ranks, their classes, and where the divergence began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from matchers.runs.diff.classes import Kind, RankClass, classes_of
from matchers.runs.diff.origins import Traced, of_causes, of_differences, trace
from matchers.runs.diff.summary import Outcome, RankSummary
from matchers.runs.run import MAX_WORLD

__all__ = ["RunComparison"]


@dataclass(frozen=True)
class RunComparison:
    """Two runs, compared rank by rank.

    Attributes:
        names: of the runs.
        summaries: by rank, ascending, of all ranks of which a run has a log.
        broken_rules: what is wrong with single entries of the rule file.
    """

    names: tuple[str, str]
    summaries: Mapping[int, RankSummary]
    broken_rules: tuple[str, ...] = ()

    @cached_property
    def red(self) -> tuple[int, ...]:
        """Ranks with red rows."""
        return tuple(rank for rank, summary in self.summaries.items() if summary.red)

    @cached_property
    def odd_starts(self) -> dict[int, str]:
        """What differs before the step, by rank, where ranks with parameters of the same names begin as in both runs.

        Rounding does not do that: what the equal ranks begin with depends on what all ranks computed before.
        """
        read = {rank: summary.start for rank, summary in self.summaries.items() if summary.read and summary.start[1]}
        alike = {names for differs, names in read.values() if not differs}
        return {rank: differs for rank, (differs, names) in read.items() if differs and names in alike}

    @cached_property
    def causes(self) -> Traced:
        """Origins of the first causes of all ranks."""
        return trace(self.summaries, of_causes)

    @cached_property
    def differences(self) -> Traced:
        """Origins of the first differences of all ranks, however little they are."""
        return trace(self.summaries, of_differences)

    @cached_property
    def classes(self) -> tuple[RankClass, ...]:
        """The ranks by what they have in common; where nothing is red, by their first difference."""
        behind = {rank: self.causes.behind.get(rank, ()) for rank in self.red} if self.red else self.differences.behind
        return classes_of(self.summaries, behind)

    @property
    def traced(self) -> Traced:
        """The origins that the classes name: of first causes, or where nothing is red, of first differences."""
        return self.causes if self.red else self.differences

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """Ranks of the world of which neither run has a log."""
        world = max((size for s in self.summaries.values() for size in s.world_size if size), default=0)
        return tuple(rank for rank in range(min(world, MAX_WORLD)) if rank not in self.summaries)

    @cached_property
    def uncompared(self) -> tuple[int, ...]:
        """Ranks without comparison: no run has a log of them, or one could not be read."""
        unread = (rank for rank, summary in self.summaries.items() if not summary.read)
        return tuple(sorted({*self.missing, *unread}))

    @property
    def nothing(self) -> bool:
        """True if no rank was compared."""
        return all(each.kind == Kind.NOT_COMPARED for each in self.classes)

    def outcomes(self, outcome: Outcome) -> tuple[int, ...]:
        """The ranks with an outcome."""
        return tuple(rank for rank, summary in self.summaries.items() if summary.outcome == outcome)
