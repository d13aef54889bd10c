"""Report on two runs of many ranks: what every form has in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Outcome
from numtui.report.gate import NOT_COMPARED, Failure
from numtui.report.next_steps import NextStep
from numtui.report.options import FAIL_ON
from numtui.report.runs.words import reasons, result
from numtui.text.ranks import ranks_words

__all__ = ["RunsReport"]

_MAX_REASONS = 20
_MAX_PAGES = 4


@dataclass(frozen=True)
class RunsReport:
    """Result of comparing two runs.

    Attributes:
        comparison: of all ranks.
        runs: paths of the runs, as the user named them.
        criteria: arguments of the command line on which the verdicts depend.
        fail_on: conditions (`numtui.report.options.CONDITIONS`) that fail it.
        pages: names of the pages of ranks with every row, in the folder of the page of all; by rank.
    """

    comparison: RunComparison
    runs: tuple[str, str]
    criteria: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = FAIL_ON
    pages: Mapping[int, str] = field(default_factory=dict)

    @property
    def typical(self) -> tuple[int, ...]:
        """The first rank of each class whose logs were read, as far as its rows are worth a page."""
        firsts = (each.ranks[0] for each in self.comparison.classes)
        return tuple(islice((rank for rank in firsts if self.comparison.summaries[rank].read), _MAX_PAGES))

    @property
    def result(self) -> str:
        """The outcome in one sentence."""
        return result(self.comparison)

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """The conditions that hold; it fails in any case if no rank was compared."""
        told = [Failure(name, text) for name in self.fail_on for text in _failures(self.comparison, name)]
        return (*told, Failure(NOT_COMPARED, "no rank was compared")) if self.comparison.nothing else tuple(told)

    @property
    def next_steps(self) -> tuple[NextStep, ...]:
        """The commands that tell more, the most useful first."""
        rank = self.began
        if rank is None:
            return ()
        command = ("numtui", *self.runs, "--rank", str(rank), *self.criteria)
        return (NextStep(command, f"rank {rank}, where it began"),)

    @property
    def began(self) -> int | None:
        """The rank where it began, the lowest of several; None where nothing diverges."""
        origins = self.comparison.traced.origins
        return min(origins[0].events) if origins else None


def _failures(c: RunComparison, condition: str) -> Iterator[str]:
    if condition == "incomplete":
        yield from reasons(c)
        return
    if condition == NOT_COMPARED and c.uncompared:
        yield f"{ranks_words(c.uncompared)}: not compared"
    by_text: dict[str, list[int]] = {}
    for rank, text in c.odd_starts.items() if condition == "diverged" else ():
        by_text.setdefault(text, []).append(rank)
    for rank, summary in c.summaries.items():
        for name, text in summary.failures:
            if name == condition:
                by_text.setdefault("red" if name == "diverged" else text, []).append(rank)
    if condition == "stale-rule":  # a rule is used if it matches on any rank
        read = c.outcomes(Outcome.COMPARED)
        by_text = {text: ranks for text, ranks in by_text.items() if len(ranks) == len(read)}
        yield from c.broken_rules  # also where all ranks are equal by their footers, and no rule was used
        by_text = {text: ranks for text, ranks in by_text.items() if text not in c.broken_rules}
    yield from (f"{ranks_words(ranks)}: {text}" for text, ranks in islice(by_text.items(), _MAX_REASONS))
