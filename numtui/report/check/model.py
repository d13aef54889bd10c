"""Report on a run that was checked against itself: what every form has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from matchers.runs.finding import CheckedRun, Finding, Place
from matchers.runs.run import Run
from numtui.report.check.words import result, run_words, summaries, trouble, unmade
from numtui.report.gate import Failure
from numtui.report.next_steps import NextStep
from numtui.report.options import FAIL_ON_OF_RUN
from numtui.text.counts import plural
from numtui.text.ranks import ranges

__all__ = ["CheckReport", "places_to_open"]


@dataclass(frozen=True)
class CheckReport:
    """Result of checking a run, with the conditions (`numtui.report.options.CONDITIONS_OF_RUN`) that fail it."""

    checked: CheckedRun
    fail_on: tuple[str, ...] = FAIL_ON_OF_RUN

    @property
    def run(self) -> Run:
        return self.checked.run

    @property
    def title(self) -> str:
        """The run and the result."""
        return f"{run_words(self.run)}: {result(self.checked)}"

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """The conditions that hold."""
        return tuple(Failure(name, text) for name in self.fail_on for text in _FAILURES[name](self.checked))

    @property
    def not_checked(self) -> list[str]:
        """Everything that was not checked, and why; the checks that apply to nothing in this run on one line."""
        idle = [each.check.label for each in summaries(self.checked) if each.verdict == "not made" and not each.reasons]
        nothing = [f"nothing to check: {', '.join(idle)}"] if idle else []
        return [*trouble(self.run), *unmade(self.checked), *nothing]

    @property
    def next_steps(self) -> list[NextStep]:
        """The commands that open the findings, each pair of logs once."""
        found: dict[tuple[str, ...], list[int]] = {}
        for number, finding in enumerate(self.checked.findings, 1):
            if logs := tuple(self.run.paths[place.rank] for place in places_to_open(self.run, finding)):
                found.setdefault(logs, []).append(number)
        return [
            NextStep(("numtui", *logs), f"opens finding{'s' * (len(numbers) > 1)} {ranges(numbers)} in the explorer")
            for logs, numbers in found.items()
        ]


def places_to_open(run: Run, finding: Finding) -> tuple[Place, ...]:
    """Return the first two places of a finding whose ranks have a log; one, or none, where there are no more."""
    opened = (place for place in reversed(finding.places[:2]) if place.rank in run.paths and place.row >= 0)
    places = {place.rank: place for place in opened}
    return tuple(reversed(places.values()))


def _findings(checked: CheckedRun) -> Iterator[str]:
    if checked.findings:
        yield plural(len(checked.findings), "finding")


def _not_checked(checked: CheckedRun) -> Iterator[str]:
    if checked.nothing:
        yield "nothing was checked"


def _incomplete(checked: CheckedRun) -> Iterator[str]:
    yield from trouble(checked.run)
    yield from unmade(checked)


_FAILURES: Mapping[str, Callable[[CheckedRun], Iterator[str]]] = MappingProxyType(
    {"finding": _findings, "not-checked": _not_checked, "incomplete": _incomplete}
)
