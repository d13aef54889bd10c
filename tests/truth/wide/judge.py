"""The tool's verdict on a pair of the wide suite, against the oracle's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from matchers.comparison import Comparison
from matchers.runs.check import check_run
from matchers.runs.run import find_run
from numtui.cli.comparing import compare_logs
from numtui.inputs import DEFAULT_RULES, OpenRequest, resolve_logs
from tests.truth.captures import side_by_side
from tests.truth.judge import Found, Outcome, judged_as
from tests.truth.wide.captures import values_of
from tests.truth.wide.oracle import differing
from tests.truth.wide.subject import Case, Run, load

__all__ = ["Answer", "answers", "needed", "reference"]


@dataclass(frozen=True)
class Answer:
    """What was said about a pair, and what is true.

    Attributes:
        outcome: `unknown` where nothing is red and not everything was compared; else as of `tests.truth.judge`.
        beyond: values of either run that the oracle finds beyond the limit, and the largest multiple of it.
        findings: of `numtui check` on the healthy run alone.
    """

    case: Case
    found: Found
    beyond: tuple[int, float]
    findings: tuple[str, ...]

    @property
    def outcome(self) -> str:
        if self.found.outcome != Outcome.RIGHT and self.found.failed == ("not-compared",):
            return "unknown"
        return self.found.outcome.value

    @property
    def sound(self) -> bool:
        """True if the pair is what it is meant to be: healthy, or with a bug that shows."""
        return bool(self.beyond[0]) == bool(self.case.bug)


def reference(run: Run) -> Run:
    """The float64 run of the first form."""
    forms = load(run.subject).FORMS
    return Run(subject=run.subject, form=forms[0], seed=run.seed, dtype="float64")


def needed(chosen: Sequence[Case]) -> list[Run]:
    """All runs that judging takes."""
    runs = [run for case in chosen for run in (case.a, case.b, _healthy(case.b))]
    return list(dict.fromkeys([*runs, *(reference(run) for run in runs)]))


def _healthy(run: Run) -> Run:
    return replace(run, bug="", size=0.0, every=False, only=-1)


def answers(chosen: Sequence[Case], folder: Path, *, processes: int = 2) -> list[Answer]:
    """Judge all cases, side by side."""
    return side_by_side(_answer, chosen, folder, processes)


def _answer(case: Case, folder: Path) -> Answer:
    truth = values_of(reference(case.a), folder)
    beyond = [each for run in (case.a, case.b) for each in differing(values_of(run, folder), truth, run.dtype)]
    found = judged_as(case, _compared(case, folder))
    alone = () if case.bug else _findings(folder / case.b.folder)
    return Answer(case, found, (len(beyond), max((off for _, off in beyond), default=0.0)), alone)


def _compared(case: Case, folder: Path) -> Comparison:
    """The comparison that `numtui diff` makes; another order is expected where the healthy forms have other bits."""
    healthy = [values_of(run, folder) for run in (case.a, _healthy(case.b))]
    exact = all((healthy[0][name] == value).all() for name, value in healthy[1].items())
    paths = resolve_logs(*(str(folder / run.folder) for run in (case.a, case.b)))
    request = OpenRequest(
        path_a=paths[0],
        path_b=paths[1],
        name_a="a",
        name_b="b",
        rules_path=DEFAULT_RULES,
        expect=None if exact else "reduction-order",
    )
    return compare_logs(request, None)


@lru_cache(maxsize=4096)
def _findings(path: Path) -> tuple[str, ...]:
    return tuple(finding.text for finding in check_run(find_run(str(path))).findings)
