"""Layouts that divide a model or its updates, as torch runs them: what differs in a healthy run is no first cause."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.runs.layouts.read import layouts_differ, read_both
from matchers.runs.run import find_run
from numtui.report.gate import Allowed, failures_of
from numtui.report.options import FAIL_ON
from tests.examples.layouts import CASES, LAYOUTS
from tests.forks import Forks
from tests.two_ranks import made_once, run_two_ranks

_LAST = f"{'-'.join(CASES[-1])}/numerics"


@pytest.fixture(scope="session")
def layouts(tmp_path_factory: pytest.TempPathFactory, forked: Forks) -> Path:
    """The folder of the captured runs."""
    return made_once(tmp_path_factory, "layouts", _LAST, partial(run_two_ranks, forked, "tests.examples.layouts"))


def compared(folder: Path, layout: str, bug: str = "") -> Comparison:
    """One process against two ranks, which read halves of its batch where the layout divides that."""
    one = folder / ("micro-" if layout in ("fsdp1", "zero1") else "whole-") / "numerics"
    two = folder / f"{layout}-{bug}" / "numerics"
    assert layouts_differ(find_run(str(one)), find_run(str(two)))
    return compare(*read_both((str(one / "rank_0_activations.log"), str(two))))


def causes(c: Comparison) -> list[str]:
    """Keys of the first causes, of b where it has one."""
    rows = np.flatnonzero(c.cause).tolist()
    return [c.b.keys[int(c.row_b[row])] if c.row_b[row] >= 0 else c.a.keys[int(c.row_a[row])] for row in rows]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_healthy_run_has_no_red_row_and_no_first_cause(layouts: Path, layout: str) -> None:
    c = compared(layouts, layout)
    assert not c.red.any()
    assert causes(c) == []
    assert c.coverage.understood
    failed = {failure.condition for failure in failures_of(c, FAIL_ON, Allowed(np.zeros(len(c), bool)))}
    assert failed == set()


@pytest.mark.parametrize("bug", ["scaled", "eps"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bug_is_blamed_on_nothing_that_a_healthy_run_has(layouts: Path, layout: str, bug: str) -> None:
    """It is named where the records prove it, and else not understood."""
    c = compared(layouts, layout, bug)
    named = causes(c)
    assert named or not c.coverage.understood
    assert all("layers.1" in key for key in named)
