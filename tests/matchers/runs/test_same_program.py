"""Operations that few of the ranks with one role run, or leave out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from matchers.runs.finding import Check
from tests.builders import op
from tests.matchers.runs.simulated import Layout, Plan, SimulatedRun, checked, said, simulate


def added(run: SimulatedRun, *ranks: int) -> SimulatedRun:
    """Some ranks run an operation more."""
    for rank in ranks:
        run.logs[rank].insert(3, op("metrics/op_0_var", 3.0))
    return run


def test_an_operation_that_one_rank_adds() -> None:
    (found,) = checked(added(simulate(Plan(layout=Layout(dp=3))), 1)).findings
    assert (found.check, found.subject, found.ranks, found.group) == (
        *(Check.SAME_PROGRAM, "metrics/op_0_var", (1,)),
        (0, 1, 2),
    )
    assert found.text == "1 more operations than on ranks of one role"
    assert found.places[0].rank == 1


def test_an_operation_that_one_rank_leaves_out() -> None:
    run = simulate(Plan(layout=Layout(dp=3)))
    run.logs[2] = [op for op in run.logs[2] if op.key != "layers.1/op_0_relu"]
    (found,) = checked(run).findings
    assert (found.check, found.subject, found.ranks) == (Check.SAME_PROGRAM, "layers.1/op_0_relu", (2,))


@pytest.mark.parametrize(("line", "found"), [("data.py:7", False), ("data.py:8", True)])
def test_how_often_the_batch_is_prepared_depends_on_the_samples(line: str, found: bool) -> None:
    """An operation at a line that the other ranks do not reach is one more, as ever."""
    run = simulate(Plan(layout=Layout(dp=3)))
    for ops in run.logs.values():
        ops.insert(0, op("batch/op_0_fill_", 3.0, phase="prepare", location="data.py:7"))
    run.logs[1].insert(1, op("batch/op_1_fill_", 3.0, phase="prepare", location=line))
    assert bool(said(run)) == found


def test_norms_of_gradients_are_counted_on_one_rank() -> None:
    """Of those that hold the same parameter."""
    run = simulate(Plan(layout=Layout(dp=3)))
    run.logs[1].insert(3, op("clip/op_0_linalg_vector_norm", 3.0, phase="gradients"))
    assert said(run) == []


@pytest.mark.parametrize(("layout", "ranks"), [(Layout(dp=2), (1,)), (Layout(dp=4), (1, 2))])
def test_where_as_many_ranks_do_it_as_do_not(layout: Layout, ranks: tuple[int, ...]) -> None:
    """It is not known which are right, and the law did not hold."""
    found = checked(added(simulate(Plan(layout=layout)), *ranks))
    assert not found.findings
    assert Check.SAME_PROGRAM not in {made.check for made in found.made}
    (why,) = (unmade.reason for unmade in found.unmade if unmade.check == Check.SAME_PROGRAM)
    assert "two cannot say which is right" in why or "neither is a majority" in why


def test_a_gradient_that_one_rank_writes_to() -> None:
    run = simulate(Plan(layout=Layout(dp=3)))
    run.logs[1].insert(3, op("train/op_0_zero_", 3.0, phase="gradients"))
    (found,) = checked(run).findings
    assert (found.check, found.subject, found.ranks) == (Check.SAME_PROGRAM, "train/op_0_zero_", (1,))


def test_where_most_ranks_run_programs_of_their_own() -> None:
    """The data decides then, as which experts get tokens."""
    run = simulate(Plan(layout=Layout(dp=3)))
    for rank, name in ((1, "var"), (2, "std")):
        run.logs[rank].insert(3, op(f"metrics/op_0_{name}", 3.0))
    assert said(run) == []


def test_where_no_two_ranks_are_alike() -> None:
    """As in a ring, where the later a rank's part of the sequence is, the fewer blocks it skips."""
    run = simulate(Plan(layout=Layout(dp=4)))
    for rank in range(4):
        for nth in range(rank):
            run.logs[rank].insert(3, op(f"metrics/op_{nth}_var", 3.0))
    assert said(run) == []


def test_stages_of_a_pipeline_run_other_operations() -> None:
    run = simulate(Plan(layout=Layout(dp=3, pp=2)))
    assert len({len(ops) for ops in run.logs.values()}) == 2, "one stage has the loss"
    assert said(run) == []


def test_a_log_that_was_cut_off_leaves_nothing_out() -> None:
    run = simulate(Plan(layout=Layout(dp=3)))
    run.logs[1] = run.logs[1][:20]
    run.info[1]["incomplete"] = "SIGTERM"
    assert said(run) == []


def test_operations_that_the_data_decides() -> None:
    """Another number of experts got tokens on each rank: their operations are below a module that chooses."""
    run = simulate(Plan(layout=Layout(dp=3)))
    for rank, ops in run.logs.items():
        experts = [op(f"layers.0.moe.experts.{k}/op_0_mm", 3.0 + k) for k in range(rank + 1)]
        ops[3:3] = [op("layers.0.moe/op_0_topk", 2.0), *experts]
    assert said(run) == []


def test_gradients_of_experts_that_other_ranks_run() -> None:
    """A rank that runs all of them fills no bucket with zeros, and looks at no counts of what others run."""
    run = simulate(Plan(layout=Layout(dp=3)))
    for rank, ops in run.logs.items():
        experts = [op(f"layers.0.moe.experts.{k}/op_0_mm", 3.0 + k) for k in range(1 + (rank == 1))]
        ops[3:3] = [op("layers.0.moe/op_0_topk", 2.0), *experts]
        counted = op("inner/op_1_allreduce_", 4.0, shape=[8], dtype="int32", phase="backward")
        ops.append(counted)
        if rank != 1:
            ops.append(op("inner/op_2_copy_", 4.0, inputs=[12.0], producers=[counted.key], phase="backward"))
            ops.append(op("inner/op_3_zero_", 0.0, phase="backward"))
    assert said(run) == []


def test_gradients_that_one_rank_does_not_fill() -> None:
    run = simulate(Plan(layout=Layout(dp=3)))
    for rank in (0, 2):
        run.logs[rank].append(op("inner/op_3_zero_", 0.0, phase="backward"))
    assert [finding.ranks for finding in checked(run).findings] == [(1,)]


def test_a_batch_of_another_size_explains_other_operations() -> None:
    run = added(simulate(Plan(layout=Layout(dp=3))), 1)
    run.info[1]["batch"] = [{**run.info[1]["batch"][0], "shape": [3, 12]}]
    assert said(run) == []


def test_a_result_of_a_collective_that_one_rank_does_not_use() -> None:
    """A gather whose result is overwritten."""
    run = simulate(Plan(layout=Layout(dp=3, sharded=True)))
    gathered = "layers.0.w1/op_0__allgather_base_"
    run.logs[1] = [
        replace(
            one, producers=["" if key == gathered else key for key in one.producers], inputs=[9.25 for _ in one.inputs]
        )
        if gathered in one.producers
        else one
        for one in run.logs[1]
    ]
    found = checked(run).findings[0]
    assert (found.check, found.subject, found.ranks) == (Check.SAME_PROGRAM, gathered, (1,))
    assert found.text == "result of a collective not used here, used on other ranks"
