"""A collective's result that is not that of its inputs, or not the same on all members, is named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from matchers.laws.law import Kind
from matchers.runs.calls import Call, Part
from matchers.runs.collective_results import _judged
from matchers.runs.finding import Check
from matchers.verdict.tolerance import EPSILON
from tests.matchers.runs.lockstep import Array
from tests.matchers.runs.simulated import Faults, Layout, Plan, SimulatedRun, checked, said, simulate
from tests.matchers.runs.strategies import flipped, nan, plans, raised
from tests.needs import examples

SHARDED = Plan(layout=Layout(dp=3, sharded=True), layers=1)
TP = Plan(layout=Layout(tp=3), layers=1)
GATHER, SCATTER, REDUCE = (
    "layers.0.w1/op_0__allgather_base_",
    "layers.0.w1/op_4__reduce_scatter_base_",
    "layers.0.w2/op_1_allreduce_",
)


def edited(run: SimulatedRun, field: str, change: Callable[[Any], Any]) -> SimulatedRun:
    """Change a JSON field of all records that have it; None drops it."""
    for ops in run.logs.values():
        for op in ops:
            if field in op.extra:
                value = change(json.loads(op.extra[field]))
                op.extra = {name: text for name, text in op.extra.items() if name != field}
                op.extra |= {} if value is None else {field: json.dumps(value)}
    return run


@given(plans(at_least=2), st.data())
@settings(max_examples=examples(30))
def test_any_result_that_was_changed_on_a_member_is_named(plan: Plan, data: st.DataObject) -> None:
    """And nothing that follows."""
    results = simulate(plan).results
    assume(results)
    rank, key = data.draw(st.sampled_from(results), "result")
    (found,) = checked(simulate(plan, Faults(results={(rank, key): raised}))).findings
    assert (found.check, found.subject, found.places[0].key) == (Check.COLLECTIVES_COMPUTE, key, key)
    assert rank in found.ranks
    assert len(found.ranks) == 1 or len(found.group) == 2, "of three and more members, one is to blame"


@pytest.mark.parametrize(("plan", "key"), [(SHARDED, GATHER), (TP, REDUCE)])
def test_one_bit_is_enough_where_all_members_have_one_result(plan: Plan, key: str) -> None:
    assert said(simulate(plan, Faults(results={(1, key): flipped}))) == [(Check.COLLECTIVES_COMPUTE, key, (1,))]


def test_rounding_is_no_error() -> None:
    """Another order of the sum: a bit of a member's part."""
    assert said(simulate(SHARDED, Faults(results={(1, SCATTER): flipped}))) == []


@pytest.mark.parametrize(("dtype", "wrong"), [("float64", 1e-6), ("float32", 1e-4), ("float16", 0.2)])
def test_an_error_is_what_no_rounding_makes(dtype: str, wrong: float) -> None:
    """Relative to the dtype: the same factor is found in one and not in another."""
    plan = replace(SHARDED, dtype=dtype)
    changed = {(1, SCATTER): lambda values: values * values.dtype.type(1 + wrong)}
    assert said(simulate(plan, Faults(results=changed)))[:1] == [(Check.COLLECTIVES_COMPUTE, SCATTER, (1,))]
    changed = {(1, SCATTER): lambda values: values * values.dtype.type(1 + wrong / 1000)}
    assert said(simulate(plan, Faults(results=changed))) == []


@pytest.mark.parametrize("dtype", sorted(EPSILON))
def test_a_sum_of_any_dtype_may_round(dtype: str) -> None:
    """The result of three members is off by one rounding, and by a thousand."""
    term, group = Part(None, 4.0, math.nan, np.ones(16)), (0, 1, 2)
    calls = [
        Call(rank, 0, Kind.ALL_REDUCE, "sum", group, "", 0, -1, 16, dtype, True, True, (term,), (off,))
        for rank in group
        for off in [replace(term, sketch=3 * np.ones(16) * (1 + EPSILON[dtype]))]
    ]
    assert _judged(calls)[0] == ()
    far = [
        replace(call, got=(replace(term, sketch=3 * np.ones(16) * (1 + 1000 * EPSILON[dtype] + 1e-6)),))
        for call in calls
    ]
    assert _judged(far)[0] == group


def test_a_sum_that_is_wrong_on_all_members_alike() -> None:
    """Twice what was given."""
    changed = {(rank, REDUCE): lambda values: values * 2 for rank in range(3)}
    (found,) = checked(simulate(TP, Faults(results=changed))).findings
    assert (found.subject, found.ranks) == (REDUCE, (0, 1, 2))
    assert found.text == "result of all_reduce (sum) is not that of its inputs"
    assert 0.2 < found.size < 2, "relative to the sum of the norms of what was given"


def test_what_a_member_gave_earlier_is_laid_to_it() -> None:
    """All members get the same, but rank 1's part is not what it gave."""

    def stale(values: Array) -> Array:
        first, second, third = np.split(values, 3)
        return np.concatenate([first, second / 2, third])

    changed = {(rank, GATHER): stale for rank in range(3)}
    assert said(simulate(SHARDED, Faults(results=changed)))[0] == (Check.COLLECTIVES_COMPUTE, GATHER, (1,))


def test_without_pieces_all_members_of_a_scatter_are_named() -> None:
    def whole(exchanged: dict[str, list[dict[str, Any]]]) -> Any:
        return {
            side: [{name: value for name, value in entry.items() if name != "pieces"} for entry in entries]
            for side, entries in exchanged.items()
        }

    run = edited(simulate(SHARDED, Faults(results={(1, SCATTER): raised})), "Exchanged", whole)
    assert said(run) == [(Check.COLLECTIVES_COMPUTE, SCATTER, (0, 1, 2))]


def test_without_inputs_equal_results_are_all_that_is_known() -> None:
    """Logs of before what a collective exchanges was noted."""
    reduced = edited(simulate(TP, Faults(results={(1, REDUCE): raised})), "Exchanged", lambda _: None)
    assert said(reduced)[0] == (Check.COLLECTIVES_COMPUTE, REDUCE, (1,))
    scattered = checked(edited(simulate(SHARDED, Faults(results={(1, SCATTER): raised})), "Exchanged", lambda _: None))
    assert Check.COLLECTIVES_COMPUTE not in [found.check for found in scattered.findings]
    assert "collectives: the logs do not have their inputs" in " ".join(unmade.reason for unmade in scattered.unmade)


def test_a_largest_value_is_no_sum() -> None:
    """Results by another reduction are compared with each other only."""
    by_max = lambda group: group | {"op": "max"}  # noqa: E731 — the change in one expression
    same = {(rank, REDUCE): raised for rank in range(3)}
    assert said(edited(simulate(TP, Faults(results=same)), "Group", by_max)) == []
    one = edited(simulate(TP, Faults(results={(1, REDUCE): raised})), "Group", by_max)
    assert said(one) == [(Check.COLLECTIVES_COMPUTE, REDUCE, (1,))]


def test_a_result_with_nan_is_not_judged() -> None:
    """The operation that made it is named, not the collective that hands it on."""
    found = said(simulate(SHARDED, Faults(results={(1, "layers.0/op_0_relu"): nan})))
    assert found == [(Check.FINITE, "layers.0/op_0_relu", (1,))]


def test_a_message_that_arrives_otherwise() -> None:
    key = "stages.1/op_0_recv_"
    run = simulate(Plan(layout=Layout(dp=2, pp=2), layers=1), Faults(results={(3, key): flipped}))
    (found,) = checked(run).findings
    assert (found.subject, found.ranks, found.group, found.dimension) == (key, (3,), (1, 3), "pp")
    assert [(place.rank, place.key) for place in found.places] == [(3, key), (1, "stages.1/op_0_send")]
