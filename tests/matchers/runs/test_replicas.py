"""What is replicated and differs is named before the step and after it; what is divided may differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.laws.law import Kind
from matchers.runs.finding import Check, Stage
from matchers.runs.gradients import Way
from matchers.runs.replicas import Replication
from tests.matchers.runs.simulated import Faults, Layout, Plan, checked, said, simulate
from tests.matchers.runs.strategies import flipped, plans, raised
from tests.needs import examples


def holders(plan: Plan, name: str, rank: int) -> tuple[int, ...]:
    """The ranks that are known to hold what this one does: ones are replicas where gradients are reduced only."""
    layout = plan.layout
    together = set() if layout.sharded else {"dp"}
    if name.endswith("norm.weight") and (layout.sharded or layout.sequence):
        together.add("tp")
    here = layout.at(rank)
    ranks = [
        at for at in range(layout.world) if all(layout.at(at)[of] == n for of, n in here.items() if of not in together)
    ]
    return tuple(ranks)


@given(plans(at_least=2), st.data())
@settings(max_examples=examples(30))
def test_any_weight_that_was_changed_on_a_rank_is_named(plan: Plan, data: st.DataObject) -> None:
    """And nothing that follows. Of two that differ, both are named; without a replica, nothing is known."""
    healthy = simulate(plan)
    rank = data.draw(st.sampled_from(range(plan.layout.world)), "rank")
    names = [
        name for name in healthy.parameters(rank) if plan.layout.dp > 1 or name.endswith(("w1.weight", "w2.weight"))
    ]
    name = data.draw(st.sampled_from(names), "name")
    change = data.draw(st.sampled_from([flipped, raised]), "change")
    replicas = holders(plan, name, rank)
    odd = (rank,) if len(replicas) > 2 else replicas
    found = checked(simulate(plan, Faults(weights={(rank, name): change}))).findings
    told = [(one.check, one.stage, one.subject, one.ranks, one.group) for one in found]
    assert told == ([(Check.REPLICAS, Stage.BEFORE, name, odd, replicas)] if len(replicas) > 1 else [])


def test_a_finding_says_where_the_weight_is_used_first() -> None:
    run = simulate(Plan(layout=Layout(dp=3)), Faults(weights={(1, "layers.1.w1.weight"): flipped}))
    (found,) = checked(run).findings
    assert [(place.rank, place.key, place.location) for place in found.places] == [
        (rank, "layers.1.w1/op_0_mm", "layers.1.w1.py:1") for rank in (1, 0)
    ]
    assert found.dimension == "dp"


def test_weights_that_differ_on_the_same_ranks_are_one_finding() -> None:
    names = [f"layers.{k}.{kind}.weight" for k in range(2) for kind in ("norm", "w1", "w2")]
    run = simulate(Plan(layout=Layout(dp=3)), Faults(weights={(2, name): raised for name in names}))
    (found,) = checked(run).findings
    assert (found.subject, *found.more) == tuple(names)
    assert found.text.startswith("6 parameters differ before the step")
    assert found.ranks == (2,)


def test_without_a_majority_all_are_named() -> None:
    """Ranks 0 and 1 against ranks 2 and 3."""
    changed = {(rank, "layers.0.w1.weight"): raised for rank in (2, 3)}
    assert said(simulate(Plan(layout=Layout(dp=4)), Faults(weights=changed))) == [
        (Check.REPLICAS, "layers.0.w1.weight", (0, 1, 2, 3))
    ]


@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(dp=2, tp=2), Layout(dp=2, tp=3, sequence=True)])
@pytest.mark.parametrize("layers", [1, 2])
def test_ones_that_shards_share_are_no_replicas(layout: Layout, layers: int) -> None:
    """A scale divided over tp starts as ones on all ranks, and is another one on each after the step."""
    plan = Plan(layout=layout, layers=layers, scale=True)
    run = simulate(plan)
    assert len({info["parameter_digests"]["layers.0.scale.weight"] for info in run.info.values()}) == 1
    assert len({info["end_state"]["layers.0.scale.weight"][0] for info in run.info.values()}) == layout.tp
    assert said(run) == []


@pytest.mark.parametrize("exchanged", [False, True])
@pytest.mark.parametrize("group", [2, 4])
def test_zeros_that_experts_share_are_as_the_weight_beside_them(exchanged: bool, group: int) -> None:
    """Ranks 0, 2 and 1, 3 hold the same experts; a bias is reduced as their weights are, or it is one of all ranks."""
    ranks = range(4)

    def ways(rank: int) -> dict[str, Way]:
        own = (rank % 2, rank % 2 + 2)
        over = {"moe.w": own, "moe.bias": own if group == 2 else (0, 1, 2, 3)}
        return {name: Way((("all_reduce", of),), 1.0, 0, 0, None, False) for name, of in over.items()}

    logs = {rank: cast(Any, SimpleNamespace(module_name=lambda row: "moe")) for rank in ranks}
    call = SimpleNamespace(kind=Kind.ALL_TO_ALL if exchanged else Kind.ALL_REDUCE, row=0)
    start = {rank: {"moe.w": 10 + rank % 2, "moe.bias": 1, "norm.bias": 1} for rank in ranks}
    of_run = SimpleNamespace(start=start, logs=logs, calls={rank: [call] for rank in ranks}, table=lambda *_: {})
    for rank in ranks:
        logs[rank].inputs = logs[rank].input_digests = SimpleNamespace(value=np.array([], np.uint64))
    gradients = SimpleNamespace(
        ways=ways, reduced_over=lambda name: [(0, 2), (1, 3)] if name == "moe.w" else [(0, 1, 2, 3)]
    )
    sets = Replication(cast(Any, of_run), cast(Any, gradients)).sets
    assert sets["moe.w"] == [(0, 2), (1, 3)]
    assert sets["moe.bias"] == ([(0, 2), (1, 3)] if exchanged and group == 2 else [(0, 1, 2, 3)])


def test_a_buffer_that_one_rank_has_otherwise() -> None:
    run = simulate(Plan(layout=Layout(dp=3)), Faults(buffers={(1, "buffers.2"): raised}))
    (found,) = checked(run).findings
    assert (found.check, found.stage, found.subject, found.ranks) == (Check.REPLICAS, Stage.BEFORE, "buffers.2", (1,))


def test_a_buffer_of_each_rank_s_own_is_none() -> None:
    """Counts of what each rank has seen, which no other rank has."""
    changed = {(rank, "buffers.2"): lambda values, rank=rank: values + rank for rank in range(3)}
    assert said(simulate(Plan(layout=Layout(dp=3)), Faults(buffers=changed))) == []


@pytest.mark.parametrize(("lists", "key"), [(False, "optimizer/op_1_add_"), (True, "optimizer/op_0__foreach_add_")])
@pytest.mark.parametrize(("layout", "odd"), [(Layout(dp=3), (1,)), (Layout(dp=2, tp=2), (1, 3))])
def test_a_weight_that_parts_in_its_update(layout: Layout, odd: tuple[int, ...], lists: bool, key: str) -> None:
    """Nothing before it differs, and the finding shows the optimizer's operation."""
    run = simulate(Plan(layout=layout, lists=lists, layers=1), Faults(results={(1, key): raised}))
    (found,) = checked(run).findings
    assert (found.check, found.stage, found.ranks) == (Check.REPLICAS, Stage.UPDATE, odd)
    parted = ["layers.0.norm.weight", "layers.0.w1.weight", "layers.0.w2.weight"] if lists else ["layers.0.w1.weight"]
    assert [found.subject, *found.more] == parted
    assert found.places[0].key == key


def test_what_has_no_replica_is_counted() -> None:
    found = checked(simulate(Plan(layout=Layout(tp=2, sequence=True))))
    assert [made.many for made in found.made if made.check == Check.REPLICAS] == [2, 2], "of the norms"
    assert [unmade.reason for unmade in found.unmade if unmade.check == Check.REPLICAS] == [
        "4 parameters: it is not known which ranks share them"
    ]


def test_without_digests_nothing_is_said_of_replicas() -> None:
    run = simulate(Plan(layout=Layout(dp=2)))
    for info in run.info.values():
        info |= {"parameter_digests": {}, "end_state": {}}
    found = checked(run)
    assert found.findings == ()
    assert "the logs have no digests of parameters" in [unmade.reason for unmade in found.unmade]


def test_nan_in_a_weight_is_equal_to_itself() -> None:
    """Bits are compared."""
    spoilt = {(rank, "layers.0.w1.weight"): lambda values: np.full_like(values, np.nan) for rank in range(2)}
    found = said(simulate(Plan(layout=Layout(dp=2)), Faults(weights=spoilt)))
    assert Check.REPLICAS not in [check for check, *_ in found]
