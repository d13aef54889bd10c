"""A collective that one member leaves out, adds or calls in another form; messages without their other end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.runs.finding import Check
from tests.builders import Op
from tests.matchers.runs.simulated import Faults, Layout, Plan, SimulatedRun, checked, said, simulate
from tests.matchers.runs.strategies import plans
from tests.needs import examples

DP = Plan(layout=Layout(dp=3), layers=1)
KEY = "layers.0.w1/op_3_allreduce_"


def group_of(op: Op) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(op.extra.get("Group", "{}"))
    return found


def counted(run: SimulatedRun, rank: int) -> None:
    """Number a rank's calls anew, as its capture does."""
    calls: dict[tuple[Any, ...], int] = {}
    for op in run.logs[rank]:
        if group := group_of(op):
            call = (
                *group["ranks"],
                group["name"],
                *([op.key.rpartition("_")[2], group["peer"]] if "peer" in group else []),
            )
            group["nth"] = calls[call] = calls.get(call, -1) + 1
            op.extra = {**op.extra, "Group": json.dumps(group)}


def without(run: SimulatedRun, rank: int, key: str) -> SimulatedRun:
    """A rank does not call this."""
    run.logs[rank] = [op for op in run.logs[rank] if op.key != key]
    counted(run, rank)
    return run


def twice(run: SimulatedRun, rank: int, key: str) -> SimulatedRun:
    """A rank calls this twice."""
    ops = run.logs[rank]
    at = next(at for at, op in enumerate(ops) if op.key == key)
    ops.insert(at + 1, replace(ops[at], key=ops[at].key.replace("/op_", "/op_10")))
    counted(run, rank)
    return run


def cut(run: SimulatedRun, rank: int, key: str) -> None:
    """A rank waits in a collective until its time is out: the last record of its log, without a result."""
    ops = run.logs[rank]
    at = next(at for at, op in enumerate(ops) if op.key == key)
    fields = {name: text for name, text in ops[at].extra.items() if name not in ("Digest", "Sketch")}
    fields["Counts"] = "numel=0 nan=0 inf=0 zero=0"
    unread = replace(ops[at], outputs=["nan"], l2=None, min=None, max=None, mean=None, extra=fields)
    run.logs[rank] = [*ops[:at], unread]
    run.info[rank]["incomplete"] = "RuntimeError: Timed out"


@given(plans(at_least=2), st.data())
@settings(max_examples=examples(20))
def test_any_collective_that_a_rank_leaves_out_or_adds_is_named_first(plan: Plan, data: st.DataObject) -> None:
    """With two members, either may be the one that leaves out what the other calls."""
    run = simulate(plan)
    calls = [(rank, op.key) for rank, ops in run.logs.items() for op in ops if group_of(op)]
    if not calls:
        return
    rank, key = data.draw(st.sampled_from(calls), "call")
    members = group_of(run.op(rank, key))["ranks"]
    change = data.draw(st.sampled_from([without, twice]), "change")
    first = checked(change(run, rank, key)).findings[0]
    assert first.check == Check.SAME_COLLECTIVES
    assert {rank} == {*first.ranks} if len(members) > 2 else {*first.ranks} <= {*members}


def test_a_collective_that_a_rank_leaves_out() -> None:
    (found,) = checked(without(simulate(DP), 1, KEY)).findings
    assert found.text == "rank 1 skips the 2. collective of dp, all_reduce (avg), that other ranks call"
    assert (found.ranks, found.group, found.dimension) == ((1,), (0, 1, 2), "dp")
    assert found.places[-1].key == KEY


def test_a_collective_that_a_rank_adds() -> None:
    (found,) = checked(twice(simulate(DP), 1, KEY)).findings
    assert found.text == "rank 1 calls the 3. collective of dp, all_reduce (avg), that other ranks do not call"
    assert (found.ranks, found.places[0].rank, found.places[0].key) == ((1,), 1, KEY.replace("op_", "op_10"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"shape": (3, 5)}, "all_reduce of 15 float32, of 864 float32 on other ranks"),
        ({"dtype": "bfloat16"}, "all_reduce of bfloat16, of float32 on other ranks"),
    ],
)
def test_a_collective_of_another_form(change: dict[str, Any], told: str) -> None:
    run = simulate(DP)
    run.logs[1] = [replace(op, **change) if op.key == KEY else op for op in run.logs[1]]
    first = checked(run).findings[0]
    assert (first.check, first.subject, first.ranks, first.text) == (Check.SAME_COLLECTIVES, KEY, (1,), told)


def test_another_reduction_is_another_collective() -> None:
    """All others average, one sums."""
    run = simulate(DP)
    op = run.op(1, KEY)
    op.extra = {**op.extra, "Group": json.dumps(group_of(op) | {"op": "sum"})}
    first = checked(run).findings[0]
    assert (first.check, first.ranks) == (Check.SAME_COLLECTIVES, (1,))


def test_only_the_first_of_a_group_is_listed() -> None:
    run = simulate(DP)
    for key in run.keys(2, "_allreduce_"):
        without(run, 2, key)
    assert [found[0] for found in said(run)] == [Check.SAME_COLLECTIVES]


def test_what_the_others_wait_for_is_what_one_left_out() -> None:
    """Rank 1 leaves one out and waits in the next one; the others wait for it. The logs end there."""
    run = without(simulate(DP), 1, KEY)
    cut(run, 0, KEY)
    cut(run, 2, KEY)
    cut(run, 1, "layers.0.norm/op_3_allreduce_")
    found = checked(run)
    (first,) = found.findings
    assert (first.check, first.ranks) == (Check.SAME_COLLECTIVES, (1,))
    assert first.notes == ("the log of rank 0 is cut off: RuntimeError: Timed out",)
    assert found.run.cut == dict.fromkeys(range(3), "RuntimeError: Timed out")


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("change", [without, twice])
def test_of_two_members_the_one_that_other_groups_are_unlike(rank: int, change: Callable[..., SimulatedRun]) -> None:
    run = simulate(Plan(layout=Layout(dp=2, tp=2), layers=1))
    first = checked(change(run, rank, "layers.0.w2/op_1_allreduce_")).findings[0]
    assert (first.check, first.ranks) == (Check.SAME_COLLECTIVES, (rank,))
    assert first.text.startswith(f"rank {rank} skips" if change is without else f"rank {rank} calls")


def test_other_groups_may_do_other_things() -> None:
    """The stages of a pipeline: all members of one call once more, or once less."""
    for change in (without, twice):
        run = simulate(Plan(layout=Layout(tp=2, pp=2), layers=2))
        for rank in (2, 3):
            change(run, rank, "layers.2.w2/op_1_allreduce_")
        assert said(run) == []


def test_a_log_that_ends_early_leaves_nothing_out() -> None:
    run = simulate(DP)
    cut(run, 1, KEY)
    found = checked(run)
    assert found.findings == ()
    assert found.run.cut == {1: "RuntimeError: Timed out"}


def test_groups_of_a_rank_without_a_log_are_said(tmp_path: object) -> None:
    """The others are checked."""
    run = simulate(Plan(layout=Layout(dp=2, tp=2), layers=1))
    del run.logs[3]
    found = checked(run)
    assert found.findings == ()
    assert found.run.missing == (3,)
    assert "groups with rank 3, whose log is missing" in [unmade.reason for unmade in found.unmade]
    key = simulate(run.plan).keys(0, "_allreduce_")[0]
    assert said(without(run, 0, key))[0][::2] == (Check.SAME_COLLECTIVES, (0,))


def test_groups_of_the_same_ranks_may_overtake_each_other() -> None:
    """Each has its own name and its own count."""
    run = simulate(DP)
    for rank, ops in run.logs.items():
        others = [at for at, op in enumerate(ops) if op.key.endswith("_allreduce_")][:2]
        op = ops[others[0]]
        op.extra = {**op.extra, "Group": json.dumps(group_of(op) | {"name": "another"})}
        if rank == 1:
            ops[others[0]], ops[others[1]] = ops[others[1]], ops[others[0]]
        counted(run, rank)
    assert Check.SAME_COLLECTIVES not in [check for check, *_ in said(run)]


@pytest.mark.parametrize(
    ("rank", "key", "told"),
    [
        (1, "stages.1/op_0_recv_", "rank 1 receives 0 of 1 messages"),
        (0, "stages.1/op_0_send", "rank 0 sends 0 of 1 messages"),
    ],
)
def test_a_message_without_its_other_end(rank: int, key: str, told: str) -> None:
    run = without(simulate(Plan(layout=Layout(pp=2), layers=1)), rank, key)
    (found,) = checked(run).findings
    assert (found.check, found.text, found.ranks, found.group) == (Check.SAME_COLLECTIVES, told, (rank,), (0, 1))


def test_nothing_after_it_is_listed() -> None:
    """But what was wrong before the step is."""
    wrong = {(1, "layers.0.norm/op_0_mul"): lambda values: np.full_like(values, np.nan)}
    weights = {(2, "layers.0.w2.weight"): lambda values: values + 1}
    run = without(simulate(DP, Faults(results=wrong, weights=weights)), 1, KEY)
    assert [check for check, *_ in said(run)] == [Check.REPLICAS, Check.SAME_COLLECTIVES]
