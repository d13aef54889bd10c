"""Parameters that no optimizer updates, on some ranks or on all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.runs.finding import Check
from tests.matchers.runs.simulated import Faults, Layout, Plan, checked, said, simulate
from tests.matchers.runs.strategies import plans
from tests.needs import examples

NAME = "layers.1.w1.weight"


@given(plans(), st.data())
@settings(max_examples=examples(20))
def test_any_parameter_that_is_left_out_of_an_optimizer_is_named(plan: Plan, data: st.DataObject) -> None:
    """On one rank or on all that hold it, and nothing that follows."""
    healthy, ranks = simulate(plan), range(plan.layout.world)
    rank = data.draw(st.sampled_from(ranks), "rank")
    name = data.draw(st.sampled_from(healthy.parameters(rank)), "name")
    holders = tuple(rank for rank in ranks if name in healthy.parameters(rank))
    where = data.draw(st.sampled_from([(rank,), holders]), "where")
    assert said(simulate(plan, Faults(left_out=dict.fromkeys(where, (name,))))) == [(Check.TRAINED, name, where)]


@pytest.mark.parametrize("lists", [False, True])
def test_left_out_on_one_rank(lists: bool) -> None:
    run = simulate(Plan(layout=Layout(dp=3), lists=lists), Faults(left_out={1: (NAME,)}))
    (found,) = checked(run).findings
    assert (found.check, found.subject, found.ranks) == (Check.TRAINED, NAME, (1,))
    assert found.text == "parameter updated on other ranks only"
    assert found.places[0].rank != 1, "where another rank updates it"


def test_left_out_on_all_ranks() -> None:
    names = (NAME, "layers.0.w2.weight")
    run = simulate(Plan(layout=Layout(dp=2)), Faults(left_out=dict.fromkeys(range(2), names)))
    (found,) = checked(run).findings
    assert {found.subject, *found.more} == {*names}
    assert (found.text, found.ranks) == ("2 parameters in no optimizer", (0, 1))


def test_one_process_is_checked_as_well() -> None:
    assert said(simulate(Plan(), Faults(left_out={0: (NAME,)}))) == [(Check.TRAINED, NAME, (0,))]


@pytest.mark.parametrize("layout", [Layout(), Layout(dp=2), Layout(dp=2, tp=2), Layout(dp=2, sharded=True)])
def test_a_parameter_that_is_frozen_by_design(layout: Layout) -> None:
    assert said(simulate(Plan(layout=layout), Faults(frozen=(NAME,)))) == []


def test_a_parameter_that_gets_no_gradient_is_noted() -> None:
    """An optimizer has it. That is no finding: it may be unused by design."""
    run = simulate(Plan(layout=Layout(dp=2)), Faults(frozen=(NAME,)))
    for info in run.info.values():
        info["optimizer"]["no_gradient"] = [NAME]
    found = checked(run)
    assert found.findings == ()
    assert found.notes == (f"{NAME} gets no gradient",)
    del run.info[1]["optimizer"]
    assert checked(run).notes == (f"{NAME} gets no gradient on rank 0",)


def test_where_another_optimizer_has_not_stepped_nothing_is_left_out() -> None:
    """It may have the parameter."""
    run = simulate(Plan(layout=Layout(dp=2)), Faults(left_out=dict.fromkeys(range(2), (NAME,))))
    for info in run.info.values():
        info["coverage"]["optimizers"] = [1, 2]
    assert said(run) == []
