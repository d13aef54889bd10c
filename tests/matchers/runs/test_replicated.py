"""Equal values on two ranks that part ways: in an operation, or in the random numbers that they meet."""

from __future__ import annotations

import pytest

from matchers.runs.finding import Check
from tests.builders import op
from tests.matchers.runs.simulated import Faults, Layout, Plan, checked, said, simulate
from tests.matchers.runs.strategies import flipped, raised

TP = Layout(tp=2)


@pytest.mark.parametrize(("layout", "rank", "pair"), [(TP, 1, (0, 1)), (Layout(dp=2, tp=2), 3, (2, 3))])
def test_random_numbers_that_differ_where_values_are_equal(layout: Layout, rank: int, pair: tuple[int, ...]) -> None:
    run = simulate(Plan(layout=layout, dropout=True), Faults(draws={rank: 1}))
    (found,) = checked(run).findings
    assert (found.check, found.subject, found.ranks) == (
        Check.REPLICATED_STAYS,
        "layers.0.dropout/op_0_bernoulli_",
        pair,
    )
    assert found.text == "random numbers differ where values are equal"
    assert [place.rank for place in found.places] == list(pair)


@pytest.mark.parametrize("layout", [TP, Layout(dp=2, tp=2), Layout(tp=2, sequence=True), Layout(dp=2, sharded=True)])
def test_random_numbers_on_divided_values_may_differ(layout: Layout) -> None:
    assert said(simulate(Plan(layout=layout, dropout=True))) == []


def test_random_numbers_on_weights_may_differ_between_batches() -> None:
    """Weights are equal on ranks with different batches, and each draws its own mask of them."""
    run = simulate(Plan(layout=Layout(dp=2)))
    for rank, ops in run.logs.items():
        drawn, weight = f"{rank + 1:016x}", run.info[rank]["parameter_digests"]["layers.0.w1.weight"]
        ops[0:0] = [
            op("noise/op_0_bernoulli_", 3.0 + rank, extra={"Digest": drawn}),
            op(
                "noise/op_1_mul",
                5.0 + rank,
                inputs=[7.25, 9.0 + 3 * rank],
                producers=["", "noise/op_0_bernoulli_"],
                extra={"Digest": f"{rank + 5:016x}", "Input digests": f"{weight}, {drawn}"},
            ),
        ]
    assert said(run) == []


def test_random_numbers_that_were_overwritten_are_not_known() -> None:
    """Of a draw that is written over, the log does not know what the operation read."""
    run = simulate(Plan(layout=TP))
    for ops in run.logs.values():
        ops[0:0] = [
            op("batch/op_0_randint", 3.0, extra={"Digest": f"{1:016x}"}),
            op("batch/op_1_lift_fresh", 5.0, extra={"Digest": f"{2:016x}"}),
            op(
                "batch/op_2_fill_",
                5.0,
                inputs=["nan", 5.0],
                producers=["batch/op_0_randint", "batch/op_1_lift_fresh"],
                extra={"Digest": f"{3:016x}", "Input digests": f"-, {2:016x}"},
            ),
        ]
    assert said(run) == []


@pytest.mark.parametrize("change", [flipped, raised])
def test_a_kernel_that_gives_other_bits_on_one_rank(change: object) -> None:
    run = simulate(Plan(layout=TP), Faults(results={(1, "layers.1.norm/op_1_sum"): change}))  # type: ignore[dict-item]
    (found,) = checked(run).findings
    assert (found.check, found.subject, found.ranks) == (Check.REPLICATED_STAYS, "layers.1.norm/op_1_sum", (0, 1))
    assert (found.text, found.dimension) == ("result differs, inputs do not", "tp")


def test_the_first_of_several_is_listed() -> None:
    """For each pair of ranks."""
    keys = [f"layers.{k}.norm/op_1_sum" for k in (0, 1)]
    changed = {(rank, key): raised for rank in (1, 2) for key in keys}
    found = said(simulate(Plan(layout=Layout(tp=3)), Faults(results=changed)))
    assert [subject for _, subject, _ in found] == [keys[1]], "the backward pass begins with the last layer"
    assert found[0][2] == (0, 1, 2)


def test_other_inputs_may_give_other_results() -> None:
    """A wrong result of a collective is what is wrong, not what is computed of it."""
    run = simulate(Plan(layout=Layout(tp=3)), Faults(results={(1, "layers.0.w2/op_1_allreduce_"): raised}))
    assert said(run) == [(Check.COLLECTIVES_COMPUTE, "layers.0.w2/op_1_allreduce_", (1,))]
