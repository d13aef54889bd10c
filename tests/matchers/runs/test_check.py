"""A healthy run has no finding, in whatever layout; logs of any other form are no exception."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from matchers.errors import LogError
from matchers.runs.check import check_run
from matchers.runs.finding import Check
from matchers.runs.run import find_run
from tests.builders import write_log
from tests.matchers.runs.simulated import Layout, Plan, SimulatedRun, checked, simulate, write_run
from tests.matchers.runs.strategies import plans
from tests.needs import examples

FOUR = Layout(dp=2, tp=2)
ALL = Plan(layout=FOUR, checkpoint=True, dropout=True)


@given(plans())
@settings(max_examples=examples(30))
def test_a_healthy_run_has_no_finding(plan: Plan) -> None:
    found = checked(simulate(plan))
    assert found.findings == ()
    assert found.notes == ()


def test_all_checks_are_made_where_the_logs_say_all() -> None:
    found = checked(simulate(ALL))
    assert {made.check for made in found.made} == set(Check) - {Check.FLIGHT_RECORDER}
    assert all(made.many > 0 for made in found.made)
    assert found.unmade == ()


def test_one_rank_alone_is_checked_by_itself() -> None:
    found = checked(simulate(Plan(checkpoint=True)))
    assert found.findings == ()
    assert {made.check for made in found.made} == {Check.FINITE, Check.RECOMPUTE, Check.TRAINED, Check.ODD_ONE_OUT}
    assert [unmade.reason for unmade in found.unmade if unmade.check in (Check.DATA, Check.REPLICAS)] == [
        "one rank reads one batch",
        "one rank holds no replicas",
    ]


def test_logs_without_digests_and_groups_say_what_cannot_be_checked(tmp_path: Path) -> None:
    """Those of torchtitan's own tracer."""
    for rank, ops in simulate(ALL).logs.items():
        write_log(tmp_path / f"rank_{rank}_activations.log", [replace(op, extra={}) for op in ops])
    found = check_run(find_run(str(tmp_path)))
    assert found.findings == ()
    assert {made.check for made in found.made} == {Check.SAME_PROGRAM, Check.FINITE}
    assert {unmade.check for unmade in found.unmade} == set(Check) - {made.check for made in found.made} - {
        Check.COLLECTIVES_COMPUTE,
        Check.FLIGHT_RECORDER,
    }


def test_a_run_without_any_log_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank_{rank}_activations.log").write_bytes(b"")
    with pytest.raises(LogError, match="rank_0_activations"):
        check_run(find_run(str(tmp_path)))


def test_progress_ends_before_the_whole(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    write_run(simulate(Plan(layout=Layout(dp=2), layers=1)), tmp_path)
    check_run(find_run(str(tmp_path)), progress=lambda what, part: told.append((what, part)))
    assert [what for what, _ in told] == ["reading rank 0", "reading rank 1", "checking"]
    assert [part for _, part in told] == sorted(part for _, part in told if part < 1)


NASTY: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 10**30, -(10**30), 10**400, 0.5, 1e308, math.nan, math.inf, -0.0),
    *(
        "",
        "-",
        "ff",
        "xyz",
        "\u2028",
        "sum",
        "AAAA",
        "w.grad;;",
        [],
        {},
        [[]],
        [None, -1, "0", {}],
        [0, 1, 2, 3],
        [10**30],
    ),
    *({"ranks": [0, 1], "nth": 10**30}, {"in": [{}], "out": 3}, {"layers.0.w1.weight": [["ff"], -1]}, {"dp": 10**30}),
)
INFO = (
    *("step", "rank", "world_size", "mesh", "mesh_coordinates", "parameter_digests", "buffer_digests", "end_state"),
    *("batch", "parameter_placements", "optimizer", "coverage", "incomplete"),
)
FIELDS = ("Group", "Exchanged", "Mutated", "Sketch", "Parameter", "Digest", "Input digests", "Counts", "Recompute")
ENTRIES = (
    *(
        "ranks",
        "nth",
        "op",
        "name",
        "peer",
        "in",
        "out",
        "input",
        "output",
        "at",
        "numel",
        "digest",
        "l1",
        "l2",
        "mean",
    ),
    *("sketch", "shape", "counts", "dp", "layers.0.w1.weight", "not_held", "optimizers", "mesh", "placements"),
)


def spoiled(run: SimulatedRun, change: Callable[[str, Any], Any]) -> SimulatedRun:
    """Change all entries of the run info and all fields of all records; texts of JSON are given as what they say."""
    for rank, ops in run.logs.items():
        run.info[rank] = {name: change(name, value) for name, value in run.info[rank].items()}
        run.logs[rank] = [
            replace(op, extra={name: _text(change(name, _value(text))) for name, text in op.extra.items()})
            for op in ops
        ]
    return run


def _value(text: str) -> Any:
    return json.loads(text) if text.startswith(("{", "[")) else text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("first", range(0, len(NASTY), 3))
@pytest.mark.parametrize("names", [INFO, FIELDS], ids=["run info", "fields"])
def test_no_run_info_and_no_field_is_an_exception(names: tuple[str, ...], first: int) -> None:
    """Wrong types, huge numbers, NaN, nested; another value for each rank, entry and record."""
    nasty = cycle(NASTY[first:] + NASTY[:first])
    run = simulate(Plan(layout=FOUR, layers=1, checkpoint=True))
    checked(spoiled(run, lambda name, value: next(nasty) if name in names else value))


@pytest.mark.parametrize("entry", ENTRIES)
def test_nothing_inside_a_field_is_an_exception(entry: str) -> None:
    """One entry of all objects is of another form."""
    nasty = cycle(NASTY)

    def changed(found: Any) -> Any:
        if isinstance(found, dict):
            return {key: next(nasty) if key == entry else changed(of) for key, of in found.items()}
        return [changed(of) for of in found] if isinstance(found, list) else found

    run = simulate(Plan(layout=Layout(dp=2, pp=2), layers=1, functional=True))
    checked(spoiled(run, lambda _, value: changed(value)))
