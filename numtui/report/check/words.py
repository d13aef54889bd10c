"""Words for what checking a run finds, shared by the reports and the screen; names of logs are made safe in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from matchers.runs.finding import Check, CheckedRun, Finding, Made, Place
from matchers.runs.run import Run
from numtui.text.counts import plural
from numtui.text.ranks import ranks_words
from numtui.text.safe import safe_text

__all__ = [
    "CheckSummary",
    "log_line",
    "result",
    "run_words",
    "size",
    "subjects",
    "summaries",
    "trouble",
    "unmade",
    "where",
]

_MAX_NAME = 100
_MAX_NAMES = 3
_MAX_PATH = 400
_MAX_SENTENCE = 300


@dataclass(frozen=True, slots=True)
class CheckSummary:
    """A kind of checks, and what came of it: `reasons` say why (parts of) it could not be made."""

    check: Check
    findings: int
    made: tuple[Made, ...]
    reasons: tuple[str, ...]

    @property
    def claim(self) -> str:
        """Name, and what holds in a healthy run."""
        return f"{self.check.label}: {self.check.holds}"

    @property
    def verdict(self) -> str:
        """`2 findings`, `held` or `not made`."""
        if self.findings:
            return plural(self.findings, "finding")
        return "held" if self.made else "not made"

    @property
    def extent(self) -> str:
        """Number that it was made on: `44 parameters, 12 buffers`."""
        return ", ".join(f"{made.many:,} {safe_text(made.what, _MAX_NAME)}" for made in self.made)

    @property
    def sentence(self) -> str:
        """The claim, and what it was made on, if anything."""
        return f"{self.claim} ({self.extent})" if self.made else self.claim


def summaries(checked: CheckedRun) -> list[CheckSummary]:
    """Return one for each kind of checks."""
    return [
        CheckSummary(
            check,
            sum(finding.check is check for finding in checked.findings),
            tuple(made for made in checked.made if made.check is check),
            tuple(unmade.reason for unmade in checked.unmade if unmade.check is check),
        )
        for check in Check
    ]


def run_words(run: Run) -> str:
    """Return name and extent: `run_x: 3 of 4 ranks, step 2, mesh dp 2 × tp 2`."""
    ranks = len(run.paths or run.dumps or ())
    part = run.world_size is not None and ranks < run.world_size
    told = [f"{ranks:,} of {plural(run.world_size, 'rank')}" if part and run.world_size else plural(ranks, "rank")]
    if run.step is not None:
        told.append(f"step {run.step}")
    if run.stage:
        told.append(f"stage {safe_text(run.stage, _MAX_NAME)}")
    if run.mesh:
        told.append(safe_text("mesh " + " × ".join(f"{name} {size}" for name, size in run.mesh.items()), _MAX_NAME))
    if run.dumps:
        told.append(f"{plural(len(run.dumps), 'dump')} of the flight recorder")
    return f"{safe_text(run.name, _MAX_NAME)}: {', '.join(told)}"


def result(checked: CheckedRun) -> str:
    """Return `2 findings`, `no finding` or `Nothing was checked`, and the ranks whose log is not whole."""
    if checked.findings:
        found = plural(len(checked.findings), "finding")
    else:
        found = "Nothing was checked" if checked.nothing else "no finding"
    return f"{found}; {ranks_words(tuple(checked.run.cut))} left no whole log" if checked.run.cut else found


def trouble(run: Run) -> Iterator[str]:
    """Yield what is missing from the logs of a run."""
    if run.missing:
        yield f"{ranks_words(run.missing)} {'has' if len(run.missing) == 1 else 'have'} no log"
    for rank, why in (run.cut or {}).items():
        yield f"the log of rank {rank} is not whole: {safe_text(why, _MAX_SENTENCE)}"


def unmade(checked: CheckedRun) -> Iterator[str]:
    """Yield the checks, or parts of them, that could not be made."""
    for each in summaries(checked):
        yield from (f"{each.check.label}: {safe_text(reason, _MAX_SENTENCE)}" for reason in each.reasons)


def subjects(finding: Finding) -> str:
    """Return the parameters or operations of a finding: `wq.weight, wk.weight and 3 more`."""
    names = [finding.subject, *finding.more]
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(safe_text(name, _MAX_NAME) for name in names[:_MAX_NAMES]) + more


def where(finding: Finding) -> str:
    """Return the ranks, and the group with its dimension: `rank 2 of ranks 0–3 · dp`."""
    told = ranks_words(finding.ranks or finding.group)
    if finding.group and finding.ranks and set(finding.ranks) != set(finding.group):
        told += f" of {ranks_words(finding.group)}"
    return told + (f" · {safe_text(finding.dimension, 40)}" if finding.dimension else "")


def size(finding: Finding) -> str:
    """Return the size of the difference; empty if it is unknown or none."""
    return "" if math.isnan(finding.size) else f"relative error {finding.size:.2g}"


def log_line(run: Run, place: Place) -> str:
    """Return the line of a record: `run/rank_2_activations.log:123`; of a dump its entry."""
    if place.dump:
        return f"{safe_text(place.dump, _MAX_PATH)}, entry {place.line}"
    return f"{safe_text(run.paths.get(place.rank, f'rank {place.rank}'), _MAX_PATH)}:{place.line}"
