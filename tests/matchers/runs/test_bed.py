"""Real runs of four ranks: of faults planted in them, what a check names first; of healthy ones, that it finds none."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from matchers.runs.check import check_run
from matchers.runs.finding import Finding
from matchers.runs.run import find_run
from tests.bed_cases import CASES, Case

HEALTHY = [case for case in CASES if not case.bug]
FAULTY = [case for case in CASES if case.bug]
_MAX_FINDINGS = 3


def found(folder: Path, case: Case) -> tuple[Finding, ...]:
    """What checking one run finds."""
    return check_run(find_run(str(folder / case.name))).findings


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_healthy(runs_bed: Path, case: Case) -> None:
    assert not found(runs_bed, case)


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_the_fault_comes_first(runs_bed: Path, case: Case) -> None:
    """With the ranks that the logs allow to name, the parameter or the operation, the group and a source line."""
    first, *others = found(runs_bed, case)
    assert len(others) < _MAX_FINDINGS
    assert set(case.culprits) <= set(first.ranks)
    if case.parameter:
        names = (first.subject, *first.more)
        module = first.subject.rpartition("/")[0]
        assert any(fnmatchcase(name, case.parameter) for name in names) or module == case.module
    elif case.module or case.op:
        assert any(case.module in place.key or case.op in place.key for place in first.places)
    if len(case.groups) == 1:
        assert set(first.ranks) & set(case.groups[0])
    assert first.places[0].location
