"""A small part of the truth suite, and the suite itself; `python -m benchmarks.truth` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.truth.bugs import BUGS, marked_lines
from tests.truth.captures import capture_all, log_of
from tests.truth.forms import FORMS, MODELS, Case, cases
from tests.truth.judge import Outcome, judged

FOUND = (
    ("conv", "same", "bn-eps"),
    ("conv", "for-loop", "shortcut-scale"),
    ("encdec", "ac", "norm-eps"),
    ("encdec", "fused", "positions-shifted"),
    ("packed", "same", "document-mask"),
    ("packed", "chunked", "key-norm"),
)
"""Model, form and bug that are found where they are by the first cause; at most one other place is named."""
QUIET = (("conv", "ac"), ("encdec", "for-loop"), ("packed", "same"))
"""Model and form of agreeing pairs."""


def case(model: str, form: str, bug: str = "none") -> Case:
    (only,) = cases([model], [form], [bug])
    return only


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("truth")
    chosen = [*(case(*names) for names in FOUND), *(case(*names) for names in QUIET)]
    capture_all((run for one in chosen for run in one.runs), made, processes=1)
    return made


@pytest.mark.parametrize("names", FOUND, ids=" ".join)
def test_the_first_cause_is_the_bug(folder: Path, names: tuple[str, str, str]) -> None:
    found = judged(case(*names), folder)
    assert found.outcome == Outcome.RIGHT, found.said
    assert found.further <= 1, found.said
    assert found.changed


@pytest.mark.parametrize("names", QUIET, ids=" ".join)
def test_agreeing_runs_are_quiet(folder: Path, names: tuple[str, str]) -> None:
    found = judged(case(*names), folder)
    assert (found.outcome, found.red) == (Outcome.QUIET, 0), found.said
    assert found.changed == (names[1] != "same")


def test_a_finding_elsewhere_is_wrong(folder: Path) -> None:
    """The judge knows the place of each bug: the finding for one of them is wrong for another of the same model."""
    planted, other = (bug for bug in BUGS if bug.model == "packed" and bug.name in {"document-mask", "no-decay"})
    shown = case("packed", "same", planted.name)
    mistaken = Case(shown.form, "packed", 1, other)
    source, target = (one.runs[1] for one in (shown, mistaken))
    log_of(target, folder).write_bytes(log_of(source, folder).read_bytes())
    assert judged(mistaken, folder).outcome == Outcome.WRONG


def test_the_registry_is_whole() -> None:
    """Every bug has a marked line or names parameters, every marker a bug; forms name models that exist."""
    lines = marked_lines()
    for bug in BUGS:
        assert bool(bug.lines) != bool(bug.parameters), bug.name
        assert bug.model in MODELS
    named = {bug.name for bug in BUGS}
    assert {name for _, name in lines} <= named
    assert len({(bug.model, bug.name) for bug in BUGS}) == len(BUGS)
    for form in FORMS:
        assert {*form.models, *form.exact} <= set(MODELS)
