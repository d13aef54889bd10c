"""The tool's verdict on a case, against the truth: the first-ranked first cause, the exit code, what else is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from matchers.causes.contradicted import contradiction
from matchers.comparison import Comparison, compare
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.parser import read_log
from matchers.ops.last_contents import GRADIENT
from matchers.ops.module_path import canonical
from matchers.ops.run_info import contradictions
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from tests.truth.captures import log_of, side_by_side
from tests.truth.forms import Case

__all__ = ["Found", "Outcome", "as_failed", "Planted", "compared", "judged", "judged_all", "judged_as"]


class Planted(Protocol):
    """A bug's place, as of `tests.truth.bugs.Bug`."""

    @property
    def module(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def parameters(self) -> str: ...
    @property
    def ops(self) -> str: ...
    @property
    def lines(self) -> frozenset[str]: ...


class Pair(Protocol):
    """A case: its bug, None for an agreeing pair; `by_module` as of `tests.truth.forms.Form`."""

    @property
    def bug(self) -> Planted | None: ...
    @property
    def by_module(self) -> bool: ...
    @property
    def same_optimizer(self) -> bool: ...


class Outcome(Enum):
    """The tool's first answer about a planted bug.

    RIGHT: the operation or parameter of the bug. HOP: one that reads from it or that it reads, the end of a chain of
    unpaired operations that it begins, or its line in another phase or module. WRONG: something else, or red rows
    without a first cause. MISSED: exit code 0. QUIET, RED: an agreeing pair without and with red rows (or exit code 1).
    """

    RIGHT = "right"
    HOP = "one hop off"
    WRONG = "wrong"
    MISSED = "missed"
    QUIET = "quiet"
    RED = "red"


@dataclass(frozen=True)
class Found:
    """The verdict on one case.

    Attributes:
        further: first causes beside the first one that are not the bug either; of an agreeing pair, all.
        red: number of red rows.
        changed: the two logs differ in some bit or operation: a bug without an effect is no bug.
        failed: the conditions on which the comparison fails.
        placed: the first cause is in the module and phase of the bug.
        reason: of the first cause's status; empty without one.
        said: what the tool says first, for people.
    """

    case: Any
    outcome: Outcome
    further: int
    red: int
    changed: bool
    failed: tuple[str, ...]
    placed: bool
    reason: str
    said: str

    @property
    def good(self) -> bool:
        """True for a bug that is found, and for an agreeing pair that is quiet."""
        return self.outcome in (Outcome.RIGHT, Outcome.QUIET)


@lru_cache(maxsize=64)
def _log(path: str, _changed: int) -> OpLog:
    return read_log(path)


def compared(case: Case, folder: Path) -> Comparison:
    """The comparison that `numtui diff` makes of the case's two logs."""
    paths = [log_of(run, folder) for run in case.runs]
    a, b = (_log(str(path), path.stat().st_mtime_ns) for path in paths)
    return compare(a, b, expectation=Expectation(Expect.REDUCTION_ORDER) if case.expected else None)


def judged(case: Case, folder: Path) -> Found:
    """Compare the logs of a case and judge what is said."""
    return judged_as(case, compared(case, folder))


def judged_as(case: Pair, c: Comparison, first: int = -1) -> Found:
    """Judge what is said about a case; `first`: the row that is named first, by default the first cause."""
    report = Report(c, ReportOptions())
    red = int(np.count_nonzero(c.red))
    starts = c.consequences.starts
    first = starts[0][0] if starts and first < 0 else first
    failed = tuple(dict.fromkeys(failure.condition for failure in report.failures))
    said = f"exit {int(bool(failed))}: {report.result}"
    if starts:
        said += f"; first {_described(c, first)}"
    truth = None if case.bug is None else _Truth(c, case, case.bug)
    further, placed = len(starts), False
    if truth is None:
        outcome = Outcome.RED if red or failed else Outcome.QUIET
    else:
        further = sum(not any(map(truth.at, rows)) for rows in starts if first not in rows)
        placed = truth.placed(first) if starts else truth.contradicted()
        if not failed:
            outcome = Outcome.MISSED
        elif truth.at(first) if starts else truth.contradicted():
            outcome = Outcome.RIGHT
        else:
            outcome = Outcome.HOP if starts and truth.near(first) else Outcome.WRONG
    reason = Reason(c.reason[first]).name if starts else ""
    return Found(case, outcome, further, red, _changed(c), failed, placed, reason, said)


def as_failed(found: Found, failed: tuple[str, ...], said: str) -> Found:
    """The verdict with the conditions on which the comparison of all ranks fails."""
    outcome = found.outcome
    if found.case.bug is None:
        outcome = Outcome.RED if failed else outcome
    elif not failed:
        outcome = Outcome.MISSED
    return replace(found, outcome=outcome, failed=failed, said=said)


def judged_all(chosen: Sequence[Case], folder: Path, *, processes: int = 2) -> list[Found]:
    """All cases, side by side."""
    return side_by_side(judged, chosen, folder, processes)


def _changed(c: Comparison) -> bool:
    """True if the two logs hold other bits somewhere, or other operations."""
    if len(c.a) != len(c.b) or not np.array_equal(c.a.digests.value, c.b.digests.value):
        return True
    return dict(c.a.texts("Mutated")) != dict(c.b.texts("Mutated"))


def _described(c: Comparison, row: int) -> str:
    from matchers.explain.sentences import headline

    records = ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
    places = [f"{log.keys[i]} {Phase(log.phase[i]).label} {log.location_text(i)}" for log, i in records if i >= 0]
    return f"row {row} {' <-> '.join(dict.fromkeys(places))}: {headline(c, row)}"


class _Truth:
    """The place of a bug in two logs."""

    def __init__(self, c: Comparison, case: Pair, bug: Planted) -> None:
        self._c, self._bug, self._by_module, self._same = c, bug, case.by_module, case.same_optimizer

    def at(self, row: int) -> bool:
        """True if a row is the operation or parameter of the bug, in either log, or is said to be of the parameter."""
        said, named = contradiction(self._c, row)[1], self._bug.parameters
        return bool(said and named and re.search(named, said)) or any(
            self._is(*record) for record in self._records(row)
        )

    def placed(self, row: int) -> bool:
        """True if a row is in the module and phase of the bug, or works on its parameter."""
        bug = self._bug
        if self.at(row):
            return True
        for log, record in self._records(row):
            module = canonical(log.module_name(record))
            phase = bug.phase in ("", Phase(log.phase[record]).label)
            if self._is(log, record) or (phase and self._writes(log, record)):
                return True
            if phase and not bug.parameters and re.fullmatch(bug.module or ".*", module):
                return True
        return False

    def near(self, row: int) -> bool:
        """True for `Outcome.HOP`."""
        for log, record in self._records(row):
            near = [*self._neighbours(log, record), *self._chain(log, record)]
            if any(self._is(log, other) for other in near):
                return True
            if log.location_text(record) in self._bug.lines or self._writes(log, record):
                return True
        return False

    def contradicted(self) -> bool:
        """True if what ranks of one run say against each other names the bug's parameter or line."""
        texts = [text for _, log in self._c.logs for text in contradictions(log.header.run)]
        parameters = self._bug.parameters
        return any(
            (bool(parameters) and re.search(parameters, text) is not None)
            or any(line.rpartition("/")[2] in text for line in self._bug.lines)
            for text in texts
        )

    def _records(self, row: int) -> Iterator[tuple[OpLog, int]]:
        a, b = self._c.members(row)
        yield from ((self._c.a, int(record)) for record in a)
        yield from ((self._c.b, int(record)) for record in b)

    def _neighbours(self, log: OpLog, record: int) -> Iterator[int]:
        if self._c.flow is None:
            return
        flow = self._c.flow.a if log is self._c.a else self._c.flow.b
        yield from (int(made) for made in flow[record] if made >= 0)
        yield from flow.row[flow.value == record].tolist()

    def _chain(self, log: OpLog, record: int) -> Iterator[int]:
        """The unpaired operations from which an unpaired one is made, without a paired one between."""
        c = self._c
        if c.flow is None:
            return
        at, flow = (c.at_a, c.flow.a) if log is c.a else (c.at_b, c.flow.b)
        waiting, seen = [record], {record}
        while waiting:
            last = waiting.pop()
            if c.pair[at[last]] >= 0:
                continue
            yield last
            made = {int(maker) for maker in flow[last] if maker >= 0} - seen
            seen |= made
            waiting += made

    def _is(self, log: OpLog, record: int) -> bool:
        bug = self._bug
        if bug.phase and Phase(log.phase[record]).label != bug.phase:
            return False
        if bug.parameters:
            if bug.ops and self._same and not re.fullmatch(bug.ops, log.op_name(record)):
                return False
            found = self._writes(log, record) or (bool(bug.ops) and self._same and not _parameters(log, record))
            return found or log.location_text(record) in bug.lines
        name = canonical(log.module_name(record))
        if self._by_module and bug.module:
            # with the modules in it, unless it is a whole layer
            inside = r"(\..*)?" if not bug.module[-1].isdigit() else ""
            return re.fullmatch(bug.module + inside, name) is not None
        if bug.module and not re.fullmatch(bug.module, name):
            return False
        return log.location_text(record) in bug.lines

    def _writes(self, log: OpLog, record: int) -> bool:
        """True if the record changes one of the bug's parameters, or works on it."""
        if not self._bug.parameters:
            return False
        return any(re.fullmatch(self._bug.parameters, name) for name in _parameters(log, record))


def _parameters(log: OpLog, record: int) -> list[str]:
    """Names of parameters, buffers and states that a record works on or changes; of gradients, their parameters'."""
    names = log.texts("Parameter").get(record, "").split(";")
    if text := log.texts("Mutated").get(record, ""):
        names += [str(entry.get("name", "")) for entry in json.loads(text)]
    return [name.removesuffix(GRADIENT) for name in names if name]
