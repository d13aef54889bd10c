"""The first cause comes first, findings about one thing are one, and what follows is not listed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from matchers.runs.finding import Check, Finding, Place, Stage
from matchers.runs.order import in_order
from tests.matchers.runs.simulated import Faults, Layout, Plan, checked, said, simulate
from tests.matchers.runs.strategies import flipped, nan, raised

DP = Layout(dp=3)


def found(check: Check, row: int, subject: str = "w", **fields: Any) -> Finding:
    place = Place(0, row, f"m/op_{row}_mm", row, "model.py:1")
    return replace(Finding(check=check, text="it differs", subject=subject, ranks=(0,), places=(place,)), **fields)


def test_what_is_wrong_before_the_step_comes_first() -> None:
    """Then the passes in their order, then updates on other ranks."""
    before, late, early, update = (
        found(Check.REPLICAS, 90, "buffer", stage=Stage.BEFORE),
        found(Check.REPLICATED_STAYS, 50, "c"),
        found(Check.SAME_PROGRAM, 20, "b", ranks=(1,)),
        found(Check.REPLICAS, 10, "a", stage=Stage.UPDATE, text="after", ranks=(2, 3), group=(2, 3)),
    )
    assert in_order([update, late, early, before]) == (before, early, late), "a wrong value reaches all updates"
    assert in_order([update, early, before]) == (before, early, update)


def test_one_text_about_several_subjects_is_one_finding() -> None:
    one = found(Check.TRAINED, 3, "a", more=("b",), notes=("x",))
    other = found(Check.TRAINED, 9, "c", more=("a",), ranks=(2,), group=(2, 3), notes=("x", "y"))
    (joined,) = in_order([one, other])
    assert (joined.subject, joined.more) == ("a", ("b", "c"))
    assert (joined.ranks, joined.group, joined.notes, joined.places) == ((0, 2), (2, 3), ("x", "y"), one.places)


def test_findings_along_other_dimensions_stay_apart() -> None:
    assert len(in_order([found(Check.REPLICAS, k, f"w{k}", dimension=of) for k, of in enumerate(("dp", "tp"))])) == 2


def test_the_reason_for_a_parameter_is_given_once() -> None:
    """An earlier check has said it of one of two parameters."""
    reason = found(Check.TRAINED, 3, "a")
    both = found(Check.ODD_ONE_OUT, 5, "a", more=("b",), ranks=(1,))
    assert [(one.check, one.subject, one.more) for one in in_order([reason, both])] == [
        (Check.TRAINED, "a", ()),
        (Check.ODD_ONE_OUT, "b", ()),
    ]


def test_another_program_on_one_rank_hides_no_gradient_that_is_not_reduced() -> None:
    """What rank 0 alone logs is another operation, too; but parameters that differ may follow from one."""
    logged = found(Check.SAME_PROGRAM, 20)
    unreduced = found(Check.TRAINED, 30, "a", stage=Stage.UPDATE, ranks=(0, 1, 2))
    differ = found(Check.REPLICAS, 40, "b", stage=Stage.UPDATE, ranks=(0, 1, 2))
    assert in_order([logged, unreduced, differ]) == (logged, unreduced)


def test_nothing_in_the_order_depends_on_that_of_the_checks() -> None:
    findings = [found(Check.FINITE, row, f"m{row}", ranks=(row,), text=f"{row} NaN") for row in (7, 3, 5)]
    assert in_order(findings) == in_order(findings[::-1])


@pytest.mark.parametrize("clip", [False, True])
def test_a_weight_is_the_first_of_three_faults(clip: bool) -> None:
    """NaN in the pass follows, the update that parts is left out: NaN has spread to it."""
    faults = Faults(
        weights={(1, "layers.0.w2.weight"): flipped},
        results={(2, "layers.1/op_0_relu"): nan, (1, "optimizer/op_0__foreach_add_"): raised},
    )
    assert said(simulate(Plan(layout=DP, clip=clip), faults)) == [
        (Check.REPLICAS, "layers.0.w2.weight", (1,)),
        (Check.FINITE, "layers.1/op_0_relu", (2,)),
    ]


def test_two_faults_in_the_passes_are_in_their_order() -> None:
    plan = Plan(layout=DP, checkpoint=True)
    reduced, recomputed = simulate(plan).keys(2, "_allreduce_")[0], "layers.0/op_2_relu"
    faults = Faults(results={(2, reduced): raised, (1, recomputed): raised})
    run = simulate(plan, faults)
    assert [subject for _, subject, _ in said(run)] == sorted(
        (reduced, recomputed), key=[op.key for op in run.logs[1]].index
    )


def test_an_update_that_parts_is_listed_where_nothing_else_is_wrong() -> None:
    run = simulate(Plan(layout=DP, layers=1, lists=False), Faults(results={(1, "optimizer/op_0_add_"): raised}))
    (one,) = checked(run).findings
    assert one.stage == Stage.UPDATE


def test_what_one_rank_alone_runs_is_no_consequence_of_what_comes_after_it() -> None:
    odd = found(Check.SAME_PROGRAM, 20, "a")
    before, behind = (found(Check.REPLICAS, row, "b") for row in (10, 50))
    assert in_order([odd, before]) == (before,)
    assert in_order([behind, odd]) == (odd, behind)
