"""The first NaN or Inf of all ranks, and operations that are run again and do not repeat themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.runs.check import check_logs
from matchers.runs.finding import Check
from matchers.runs.run import Run
from tests.builders import op
from tests.captured import Step, captured_log
from tests.matchers.runs.lockstep import Array, Change
from tests.matchers.runs.simulated import Faults, Layout, Plan, checked, said, simulate
from tests.matchers.runs.strategies import nan, plans, raised
from tests.needs import examples


def infinite(values: Array) -> Array:
    out = values.copy()
    out.reshape(-1)[0] = np.inf
    return out


@given(plans(), st.data())
@settings(max_examples=examples(25))
def test_any_operation_that_makes_nan_is_named(plan: Plan, data: st.DataObject) -> None:
    """On the rank where it does, however far collectives and messages spread it."""
    plan = replace(plan, checkpoint=False)  # the copies would not repeat it
    healthy = simulate(plan)
    rank = data.draw(st.sampled_from(sorted(healthy.logs)), "rank")
    made = [op.key for op in healthy.logs[rank] if op.key.endswith(("_mm", "_mul", "_add", "_relu", "_sum"))]
    key = data.draw(st.sampled_from(made), "key")
    assert said(simulate(plan, Faults(results={(rank, key): nan}))) == [(Check.FINITE, key, (rank,))]


def test_the_same_operation_on_several_ranks_is_one_finding() -> None:
    key = "layers.1.w1/op_0_mm"
    run = simulate(Plan(layout=Layout(dp=3)), Faults(results={(rank, key): nan for rank in range(3)}))
    (found,) = checked(run).findings
    assert (found.check, found.subject, found.ranks) == (Check.FINITE, key, (0, 1, 2))
    assert found.text == "1 NaN of 192 numbers made of finite values"


@pytest.mark.parametrize("key", ["loss/op_0_sum", "layers.1.norm/op_1_sum"])
def test_where_another_rank_makes_a_number_of_the_same(key: str) -> None:
    """It is said once, and of the rank that makes NaN."""
    run = simulate(Plan(layout=Layout(tp=2)), Faults(results={(1, key): nan}))
    assert said(run) == [(Check.FINITE, key, (1,))]


def test_of_two_ranks_the_one_that_makes_it() -> None:
    """Rank 2 gets it from the collective, and has it in all that follows."""
    run = simulate(Plan(layout=Layout(tp=3)), Faults(results={(1, "layers.0/op_0_relu"): nan}))
    assert sum("nan=0 " not in op.extra.get("Counts", "nan=0 ") for op in run.logs[2]) > 10
    assert said(run) == [(Check.FINITE, "layers.0/op_0_relu", (1,))]


@pytest.mark.parametrize(("change", "told"), [(nan, "1 NaN of "), (infinite, "1 Inf of ")])
@pytest.mark.parametrize("layout", [Layout(), Layout(dp=2, tp=2)])
def test_an_operation_on_a_list_that_makes_nan(layout: Layout, change: Change, told: str) -> None:
    """It returns nothing: what it has changed is what it made."""
    key = "optimizer/op_0__foreach_add_"
    changed = {(rank, key): change for rank in range(layout.world)}
    (found,) = checked(simulate(Plan(layout=layout), Faults(results=changed))).findings
    assert (found.check, found.subject, found.ranks) == (Check.FINITE, key, tuple(range(layout.world)))
    assert found.text.startswith(told)


def test_infinite_values_of_a_mask_are_meant() -> None:
    """They end in the forward pass."""
    run = simulate(Plan(layout=Layout(dp=2)))
    for ops in run.logs.values():
        ops.insert(0, op("mask/op_0_masked_fill", 3.0, extra={"Counts": "numel=32 nan=0 inf=16 zero=0"}))
    assert said(run) == []


def test_an_infinite_constant_that_gradients_read_is_meant() -> None:
    """Attention's mask is added to scores again in the backward pass: -inf where nothing is seen."""
    hidden, shown = (np.array([-np.inf, value], np.float32) for value in (1, 2))
    mask, back = hidden[:1].reshape(()), {"phase": "backward"}
    made, seen = "attention/op_0_scalar_tensor", "attention/op_1_where"
    log = captured_log(
        [
            Step(key=made, gives=[mask]),
            Step(key=seen, gives=[hidden], reads=[mask], made=[made]),
            Step(key="attention/op_2_add", gives=[shown], reads=[hidden], made=[seen], fields=back),
        ]
    )
    assert not list(check_logs(Run("run", {0: ""}), {0: log}).findings)


def test_infinite_values_that_come_as_far_as_gradients() -> None:
    run = simulate(Plan(layout=Layout(dp=2), clip=False), Faults(results={(1, "layers.0.w1/op_2_mm"): infinite}))
    found = said(run)
    assert found == [(Check.FINITE, "layers.0.w1/op_2_mm", (1,))]


def test_recomputed_operations_that_differ_on_all_ranks_are_one_finding() -> None:
    """A mask that is drawn anew."""
    plan = Plan(layout=Layout(dp=3), checkpoint=True, dropout=True)
    key = "layers.1.between/op_2_bernoulli_"
    changed = {(rank, key): lambda mask: 1 - mask for rank in range(3)}
    (found,) = checked(simulate(plan, Faults(results=changed))).findings
    assert (found.check, found.subject, found.ranks) == (Check.RECOMPUTE, key, (0, 1, 2))
    assert found.text == "recomputed copy differs: other random numbers: the random state was not restored"
    assert [place.key for place in found.places] == [key, "layers.1.between/op_0_bernoulli_"]


@pytest.mark.parametrize("layout", [Layout(), Layout(tp=2), Layout(dp=2, sharded=True), Layout(tp=2, sequence=True)])
def test_a_kernel_that_does_not_repeat_itself(layout: Layout) -> None:
    key = "layers.0/op_2_relu"
    plan = Plan(layout=layout, checkpoint=True)
    (found,) = checked(simulate(plan, Faults(results={(0, key): raised}))).findings
    assert (found.check, found.subject, found.ranks) == (Check.RECOMPUTE, key, (0,))
    assert "not deterministic" in found.text
    assert found.size > 0


def test_without_values_nothing_is_known() -> None:
    run = simulate(Plan())
    run.logs[0] = [op(key, outputs=[], shape=None) for key in (one.key for one in run.logs[0])]
    assert "the logs have no values" in [unmade.reason for unmade in checked(run).unmade]


def test_nan_that_comes_out_of_a_collective_is_found_where_no_rank_makes_it() -> None:
    """The rank that makes it has no log, or nothing that was captured does."""
    run = simulate(Plan(layout=Layout(tp=3)), Faults(results={(1, "layers.0/op_0_relu"): nan}))
    del run.logs[1], run.info[1]
    (found,) = [found for found in checked(run).findings if found.check is Check.FINITE]
    assert found.text.endswith("returned by a collective, and no rank that has a log makes it")
    assert found.ranks == (0, 2)
