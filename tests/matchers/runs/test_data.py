"""Batches that two ranks read, or that differ on ranks that share one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.logs.parser import read_log
from matchers.ops.placement import CONTRADICTED
from matchers.runs.data import readers_of_batches
from matchers.runs.finding import Check, Stage
from matchers.runs.layouts.virtual_log import virtual_log
from matchers.runs.rank_logs import RankLogs
from matchers.runs.run import find_run
from tests.builders import op
from tests.matchers.runs.simulated import Faults, Layout, Plan, SimulatedRun, checked, said, simulate, write_run
from tests.matchers.runs.strategies import plans
from tests.needs import examples


@pytest.mark.parametrize(
    ("layout", "read", "twice"),
    [
        (Layout(dp=2), {1: 0}, (0, 1)),
        (Layout(dp=3), {2: 1}, (1, 2)),
        (Layout(dp=3, sharded=True), {2: 1}, (1, 2)),
        (Layout(dp=3, tp=2), {4: 0, 5: 0}, (0, 1, 4, 5)),
        (Layout(dp=2, tp=2, sequence=True), {2: 0, 3: 0}, (0, 1, 2, 3)),
    ],
)
def test_a_batch_that_is_read_twice(layout: Layout, read: dict[int, int], twice: tuple[int, ...]) -> None:
    (found,) = checked(simulate(Plan(layout=layout), Faults(batches=read))).findings
    assert (found.check, found.stage, found.subject, found.ranks) == (Check.DATA, Stage.BEFORE, "batch", twice)
    assert found.text.startswith("batch read twice")
    assert found.places[0].key == f"layers.0.norm/op_{int(layout.sharded)}_mul", "not what gathers its weights"


@pytest.mark.parametrize("divided", [False, True])
def test_a_batch_whose_results_are_divided_is_read_once(divided: bool) -> None:
    """As a sequence is, after the embedding: each rank goes on with other elements of one result."""
    run = simulate(Plan(layout=Layout(dp=2)), Faults(batches={1: 0}))
    for rank, ops in run.logs.items():
        at = next(k for k, each in enumerate(ops) if each.key == "layers.0.norm/op_0_mul")
        part = f"{7 + rank * divided:016x}"
        digests = {"Digest": part, "Input digests": part}
        ops.insert(at + 1, op("layers.0/op_7_clone", 3.0, inputs=[9.0], producers=[ops[at].key], extra=digests))
    assert bool(said(run)) != divided


@pytest.mark.parametrize(
    ("layout", "rank", "odd"),
    [
        (Layout(dp=2, tp=2), 2, (2, 3)),
        (Layout(dp=3, tp=3), 7, (7,)),
        (Layout(dp=2, tp=3), 4, (4,)),
        (Layout(dp=2, tp=3, sequence=True), 4, (4,)),
    ],
)
@pytest.mark.parametrize("batch", [0, 7])
def test_a_batch_that_differs_on_ranks_that_share_one(
    layout: Layout, rank: int, odd: tuple[int, ...], batch: int
) -> None:
    """Also if it is another group's, which thereby is read twice."""
    (found,) = checked(simulate(Plan(layout=layout), Faults(batches={rank: batch}))).findings
    assert (found.check, found.stage, found.ranks) == (Check.DATA, Stage.BEFORE, odd)
    assert (found.text, found.dimension) == ("batch differs on ranks that share one", "tp")


@pytest.mark.parametrize(
    ("layout", "read", "readers"),
    [
        (Layout(dp=2), {1: 0}, [(0,), (1,)]),
        (Layout(dp=3, sharded=True), {2: 1}, [(0,), (1,), (2,)]),
        (Layout(dp=3, tp=2), {}, [(0, 1), (2, 3), (4, 5)]),
        (Layout(dp=3, tp=2), {4: 0, 5: 0}, [(0, 1), (2, 3), (4, 5)]),
    ],
)
def test_ranks_that_read_a_batch_twice_are_apart_and_begin_to_be_wrong_there(
    layout: Layout, read: dict[int, int], readers: list[tuple[int, ...]], tmp_path: Path
) -> None:
    run = find_run(str(write_run(simulate(Plan(layout=layout), Faults(batches=read)), tmp_path)))
    ranks = RankLogs(run, {rank: read_log(path) for rank, path in run.paths.items()})
    assert sorted(readers_of_batches(ranks)) == readers
    told = virtual_log(ranks, [ranks.logs[0]]).texts(CONTRADICTED)
    assert {text[:16] for text in told.values()} == ({"batch read twice"} if read else set())


def statistics(run: SimulatedRun, numel: int) -> SimulatedRun:
    """All dp groups reduce a vector in the forward pass, too: statistics of their batches."""
    for rank, ops in run.logs.items():
        group = run.plan.layout.group("dp", rank)
        reduce = next(op for op in ops if json.loads(op.extra.get("Group", "{}")).get("ranks") == [*group])
        extra = {**reduce.extra, "Group": json.dumps({"ranks": group, "nth": 0, "name": "statistics", "op": "sum"})}
        del extra["Exchanged"]
        ops.insert(0, type(reduce)(key="center/op_0_allreduce_", shape=(numel,), extra=extra))
    return run


@pytest.mark.parametrize("numel", [1, 2, 64, 65, 4096])
def test_ranks_that_reduce_statistics_of_their_batches_share_none(numel: int) -> None:
    """Counts of tokens, a loss, centers of features: gradients are reduced over the same ranks."""
    plan = Plan(layout=Layout(dp=3))
    assert said(statistics(simulate(plan), numel)) == []
    (found,) = checked(statistics(simulate(plan, Faults(batches={2: 1})), numel)).findings
    assert (found.check, found.ranks) == (Check.DATA, (1, 2))


@pytest.mark.parametrize(("dp", "batch"), [(1, 1), (2, 1), (2, 2)])
def test_small_activations_are_shared_all_the_same(dp: int, batch: int) -> None:
    """Gradients of norms are reduced over these ranks as well: they read one batch, and rightly."""
    plan = Plan(layout=Layout(dp=dp, tp=2, sequence=True), batch=batch, width=1)
    assert said(simulate(plan)) == []


@given(plans(at_least=2), st.data())
@settings(max_examples=examples(15))
def test_a_batch_of_another_size_is_no_other_batch(plan: Plan, data: st.DataObject) -> None:
    """Only the digest tells batches apart."""
    run = simulate(plan)
    rank = data.draw(st.sampled_from(sorted(run.info)), "rank")
    run.info[rank]["batch"][0]["shape"] = [1]
    assert Check.DATA not in [check for check, *_ in said(run)]


def test_without_batches_nothing_is_known() -> None:
    run = simulate(Plan(layout=Layout(dp=2)))
    del run.info[1]["batch"]
    found = checked(run)
    assert found.findings == ()
    assert "the logs do not have the batch of each rank" in [unmade.reason for unmade in found.unmade]
