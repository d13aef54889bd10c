"""Calls of collectives as the logs say them, joined over the members of their groups."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.runs.calls import Call, calls_of, groups_of
from tests.builders import Op, op, write_log
from tests.matchers.runs.lockstep import Array
from tests.matchers.runs.simulated import Faults, Layout, Plan, SimulatedRun, simulate, write_run


def all_calls(run: SimulatedRun) -> dict[int, tuple[Call, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        write_run(run, Path(folder))
        return {
            rank: calls_of(read_log(Path(folder) / f"rank_{rank}_activations.log"), rank) for rank in sorted(run.logs)
        }


def log_of(tmp_path: Path, *ops: Op) -> OpLog:
    return read_log(write_log(tmp_path / "rank_0_activations.log", ops, run={}, footer=True))


def called(name: str, group: Any, **fields: Any) -> Op:
    return op(f"m/op_0_{name}", extra={"Group": json.dumps(group)}, **fields)


@pytest.mark.parametrize("functional", [False, True])
def test_members_of_a_group_call_the_same(functional: bool) -> None:
    plan = Plan(layout=Layout(dp=2, tp=2, sharded=True), functional=functional)
    groups = groups_of(all_calls(simulate(plan)))
    assert sorted(group.ranks for group in groups) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    for group in groups:
        assert group.whole
        joined = list(group.joined())
        assert len(joined) == len(group.calls[group.ranks[0]]) > 0
        for nth, calls in enumerate(joined):
            assert {call.nth for call in calls} == {nth}
            assert [call.rank for call in calls] == list(group.ranks)
            assert len({(call.kind, call.reduces, call.numel, call.dtype) for call in calls}) == 1
            assert all(call.complete and call.finite for call in calls)


@pytest.mark.parametrize("functional", [False, True])
def test_what_is_given_adds_up_to_what_is_got(functional: bool) -> None:
    """At positions in what the members exchange, for each kind of collective."""
    plan = Plan(layout=Layout(dp=2, tp=2, sharded=True), functional=functional, dtype="float64")
    seen = set()
    for group in groups_of(all_calls(simulate(plan))):
        for calls in group.joined():
            given = np.sum([part.sketch for call in calls for part in call.given], axis=0)
            got = np.sum([part.sketch for call in calls for part in call.got], axis=0)
            alike = len(calls) if calls[0].kind != "reduce_scatter" else 1
            mean = len(calls) if calls[0].reduces == "avg" else 1
            assert got / alike == pytest.approx(given / mean, rel=1e-9, abs=1e-9)
            seen.add(calls[0].kind)
    assert seen == {"all_reduce", "all_gather", "reduce_scatter"}


def test_messages_are_joined_by_pair() -> None:
    calls = all_calls(simulate(Plan(layout=Layout(dp=2, pp=2))))
    pairs = groups_of(calls, messages=True)
    assert sorted(pair.ranks for pair in pairs) == [(0, 2), (1, 3)]
    for pair in pairs:
        first, second = (pair.calls[rank] for rank in pair.ranks)
        assert [call.kind for call in first] == ["send", "receive"]
        assert [call.kind for call in second] == ["receive", "send"]
        assert [call.peer for call in first] == [pair.ranks[1]] * 2
    assert not any(call.peer >= 0 for group in groups_of(calls) for of in group.calls.values() for call in of)


def test_a_member_that_calls_nothing_belongs_to_its_groups() -> None:
    calls = all_calls(simulate(Plan(layout=Layout(dp=3), layers=1)))
    (group,) = groups_of({**calls, 2: ()})
    assert group.calls[2] == []
    del calls[2]
    (group,) = groups_of(calls)
    assert not group.whole
    assert list(group.joined()) == []


def test_a_result_of_nan_alone_was_read(tmp_path: Path) -> None:
    key = "layers.0.w2/op_3_allreduce_"

    def all_nan(values: Array) -> Array:
        return np.full_like(values, math.nan)

    run = simulate(Plan(layout=Layout(dp=2), layers=1), Faults(results={(1, key): all_nan}))
    (call,) = (call for call in all_calls(run)[1] if call.row == [op.key for op in run.logs[1]].index(key))
    assert (call.complete, call.finite) == (True, False)


def test_a_result_that_was_never_read_is_incomplete(tmp_path: Path) -> None:
    extra = {"Group": '{"ranks": [0, 1]}', "Counts": "numel=0 nan=0 inf=0 zero=0"}
    (call,) = calls_of(log_of(tmp_path, op("m/op_0_allreduce_", outputs=["nan"], extra=extra)), 0)
    assert not call.complete


@pytest.mark.parametrize(
    ("name", "kind"),
    [("allreduce_", "all_reduce"), ("all_gather_into_tensor", "all_gather"), ("alltoall_base_", "all_to_all")],
)
def test_forms_of_a_collective_are_one_kind(tmp_path: Path, name: str, kind: str) -> None:
    group = {"ranks": [0, 4], "nth": 3, "op": "SUM", "name": "tp"}
    (call,) = calls_of(log_of(tmp_path, called(name, group, shape=(4, 8), dtype="bfloat16")), 7)
    assert (call.kind, call.reduces, call.group, call.name, call.nth, call.rank) == (kind, "sum", (0, 4), "tp", 3, 7)
    assert (call.numel, call.dtype, call.does) == (32, "bfloat16", f"{kind} (sum)")


@pytest.mark.parametrize("group", [[], {}, {"ranks": []}, {"ranks": ["0"]}, {"ranks": [0.5]}, {"ranks": True}, 3, None])
def test_a_group_of_another_form_is_left_out(tmp_path: Path, group: object) -> None:
    assert calls_of(log_of(tmp_path, called("allreduce_", group)), 0) == ()


def test_other_operations_are_no_calls(tmp_path: Path) -> None:
    assert (
        calls_of(log_of(tmp_path, called("mm", {"ranks": [0, 1]}), called("wait_tensor", {"ranks": [0, 1]})), 0) == ()
    )
