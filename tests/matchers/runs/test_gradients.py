"""The way of each gradient from the backward pass to the optimizer, and the gradient that goes another way."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from matchers.logs.parser import read_log
from matchers.runs.finding import Check, Stage
from matchers.runs.gradients import Gradients, Way
from matchers.runs.rank_logs import RankLogs
from matchers.runs.run import Run, find_run
from tests.captured import Step, captured_log
from tests.matchers.runs.simulated import Faults, Layout, Plan, SimulatedRun, checked, said, simulate, write_run
from tests.matchers.runs.strategies import plans
from tests.needs import examples

NAMES = tuple(f"layers.{k}.{kind}.weight" for k in (1, 0) for kind in ("w2", "w1", "norm"))


def ways(run: SimulatedRun, rank: int) -> dict[str, Way]:
    with tempfile.TemporaryDirectory() as folder:
        found = find_run(str(write_run(run, Path(folder))))
        logs = RankLogs(found, {rank: read_log(path) for rank, path in found.paths.items()})
        return dict(Gradients(logs).ways(rank))


FORMS = [
    *(
        Plan(layout=Layout(dp=2), lists=lists, functional=functional)
        for lists in (False, True)
        for functional in (False, True)
    ),
    *(Plan(layout=Layout(dp=2), bucket=True, lists=lists, functional=not lists) for lists in (False, True)),
    *(Plan(layout=Layout(dp=2, sharded=True), functional=functional, lists=functional) for functional in (False, True)),
]


@pytest.mark.parametrize("plan", FORMS)
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_a_way_is_its_reductions_its_scale_and_its_source(plan: Plan, mean: bool, clip: bool) -> None:
    """Whether the collective takes the mean or an operation divides, and whatever clipping does."""
    run = simulate(Plan(**{**vars(plan), "mean": mean, "clip": clip}))
    found = ways(run, 1)
    assert tuple(found) == NAMES
    kind = "reduce_scatter" if plan.layout.sharded else "all_reduce"
    factor = _clipped(run) if clip else 1.0
    for name, way in found.items():
        assert way.reductions == ((kind, (0, 1)),)
        assert way.scale == pytest.approx(factor / 2, rel=1e-5)
        source = run.logs[1][way.source].key
        if plan.bucket and not mean:
            assert source == "buckets.0/op_0_cat", "it is divided as a whole"
            continue
        module, ending = name.removesuffix(".weight"), "sum" if name.endswith("norm.weight") else "mm"
        assert source.startswith(f"{module}/")
        assert source.endswith(ending)


def _clipped(run: SimulatedRun) -> float:
    """The factor by which the step scales its gradients down."""
    (key,) = run.keys(1, "_clamp")
    return float(run.op(1, key).outputs[0])


def test_gradients_of_norms_are_reduced_twice_where_samples_are_divided() -> None:
    found = ways(simulate(Plan(layout=Layout(dp=2, tp=2, sequence=True))), 3)
    twice, once = (("all_reduce", (2, 3)), ("all_reduce", (1, 3))), (("all_reduce", (1, 3)),)
    assert {name: way.reductions for name, way in found.items()} == {
        name: twice if name.endswith("norm.weight") else once for name in NAMES
    }


def test_a_way_in_words() -> None:
    way = Way((("all_reduce", (0, 1, 2)),), 0.5, 3, 9, None)
    assert way.told == "reduced over ranks 0–2, scaled by 0.5"
    assert Way((), 0.5, 3, 9, None).told == "not reduced, scaled by 0.5"
    assert Way((), 1.0, 3, 9, None).told == "not reduced"


@given(plans(at_least=2), st.data())
@settings(max_examples=examples(25))
def test_any_gradient_that_is_not_reduced_is_named(plan: Plan, data: st.DataObject) -> None:
    """And none that follows through the norm to which all are clipped."""
    assume(plan.layout.dp > 1 and not plan.layout.sharded)
    healthy = simulate(plan)
    names = {name for rank in range(plan.layout.world) for name in healthy.parameters(rank)}
    name = data.draw(st.sampled_from(sorted(names)), "name")
    run = simulate(plan, Faults(reduced={name: ()}))
    left = {info["end_state"][name][0] for info in run.info.values() if name in info["end_state"]}
    assume(len(left) > (1 if name.endswith("norm.weight") else plan.layout.tp))
    (found,) = checked(run).findings
    assert found.check in (Check.TRAINED, Check.ODD_ONE_OUT)
    assert (found.subject, found.more) == (name, ())
    assert len({*found.ranks}) == len(found.ranks)
    stage = plan.layout.dp * plan.layout.tp
    assert {*found.ranks} <= {*range(stage)} or {*found.ranks} <= {*range(stage, 2 * stage)}
    assert "reduced over" in found.text


def test_a_gradient_that_is_not_reduced() -> None:
    run = simulate(Plan(layout=Layout(dp=2), layers=1), Faults(reduced={"layers.0.w1.weight": ()}))
    (found,) = checked(run).findings
    assert (found.check, found.stage, found.subject) == (Check.TRAINED, Stage.UPDATE, "layers.0.w1.weight")
    assert found.text == "gradient not reduced over dp"
    assert found.notes == ("2 other gradients are reduced",)
    assert [place.key for place in found.places] == ["layers.0.w1/op_2_mm"] * 2


@pytest.mark.parametrize("layers", [1, 4])
def test_a_gradient_that_is_reduced_over_other_ranks(layers: int) -> None:
    """Over the ranks that divide the matrix, not over those that hold the same part of it."""
    plan = Plan(layout=Layout(dp=2, tp=2), layers=layers)
    (found,) = checked(simulate(plan, Faults(reduced={"layers.0.w1.weight": ("tp",)}))).findings
    assert found.check == (Check.TRAINED if layers == 1 else Check.ODD_ONE_OUT)
    assert found.subject == "layers.0.w1.weight"
    assert found.ranks == (0, 1, 2, 3)
    assert "reduced over ranks 0, 1" in found.notes[0]


def test_a_dtensor_is_reduced_when_its_sum_is_wanted() -> None:
    """In the optimizer, where others had been reduced in the backward pass, or need not be."""
    run = simulate(Plan(layout=Layout(dp=2, tp=2), layers=4), Faults(reduced={"layers.0.w1.weight": ("tp",)}))
    assert said(run) == [(Check.ODD_ONE_OUT, "layers.0.w1.weight", (0, 1, 2, 3))]
    for rank, log in run.logs.items():
        source = log[ways(run, rank)["layers.0.w1.weight"].source]
        source.extra = {**source.extra, "Placement": '{"mesh": {"dp": 2}, "placements": ["Partial(sum)"]}'}
    # what is wrong in this run is that nothing reduces it over the other ranks
    assert said(run) == [(Check.TRAINED, "layers.0.w1.weight", (0, 1, 2, 3))]


@pytest.mark.parametrize("plan", FORMS)
def test_a_gradient_that_is_summed_where_others_are_averaged(plan: Plan) -> None:
    (found,) = checked(simulate(plan, Faults(summed=["layers.1.w1.weight"]))).findings
    assert (found.check, found.subject, found.ranks) == (Check.ODD_ONE_OUT, "layers.1.w1.weight", (0, 1))
    assert found.text == "gradient scaled unlike 5 others"
    assert found.size == pytest.approx(1.0, rel=1e-3), "twice as large"


def test_the_scale_of_an_empty_shard_is_unknown() -> None:
    """It has no norm when the optimizer reads it, nor had it one when clipping scaled it."""
    run = simulate(Plan(layout=Layout(dp=2), clip=True))
    row = ways(run, 1)[NAMES[0]].read
    op = run.logs[1][row]
    slot = op.extra["Parameter"].split(";").index(f"{NAMES[0]}.grad")
    op.inputs = [math.nan if k == slot else norm for k, norm in enumerate(op.inputs)]
    found = ways(run, 1)
    assert math.isnan(found[NAMES[0]].scale)
    assert math.isfinite(found[NAMES[1]].scale)


def test_a_gradient_that_is_set_to_zero_is_not_called_unreduced() -> None:
    """Between its reduction and the optimizer, where nothing tells any more what it was."""
    run = simulate(Plan(layout=Layout(dp=2), clip=True, lists=False))
    for rank, log in run.logs.items():
        row = ways(run, rank)[NAMES[0]].read
        scaled = log[row].producers[log[row].extra["Parameter"].split(";").index(f"{NAMES[0]}.grad")]
        (op,) = (op for op in log if op.key == scaled)
        op.key = op.key.replace("mul_", "zero_")
        log[row].producers = [op.key if maker == scaled else maker for maker in log[row].producers]
        assert [way.source < 0 for way in ways(run, rank).values()] == [True] + [False] * 5
    assert said(run) == []


def test_where_ways_are_evenly_divided_none_is_odd() -> None:
    """Two of four, or three of six: it is not known which are right."""
    summed = [f"layers.{k}.{kind}.weight" for k in range(2) for kind in ("w1", "norm")]
    assert said(simulate(Plan(layout=Layout(dp=2)), Faults(summed=summed[:3]))) == []


def test_logs_that_do_not_name_gradients() -> None:
    run = simulate(Plan(layout=Layout(dp=2)))
    for ops in run.logs.values():
        for op in ops:
            op.extra = {name: text for name, text in op.extra.items() if name != "Parameter"}
    found = checked(run)
    assert found.findings == ()
    assert {unmade.check for unmade in found.unmade} >= {Check.ODD_ONE_OUT, Check.TRAINED}


@pytest.mark.parametrize(("line", "scale"), [(5, 1.0), (6, 2.0)])
def test_the_derivative_of_a_factor_in_the_model_scales_no_gradient(line: int, scale: float) -> None:
    """The forward pass has it on the same line; what scales gradients elsewhere does so to them."""
    weight = np.arange(1, 7, dtype=np.float32)
    forward = Step(
        key="m/op_0_mul", gives=[weight * 2], reads=[weight], fields={"phase": "forward", "location": "m.py:5"}
    )
    made = Step(key="m/op_1_mm", gives=[weight], reads=[weight], fields={"phase": "backward", "location": "m.py:9"})
    place = {"phase": "backward", "location": f"m.py:{line}"}
    scaled = Step(key="m/op_2_mul", gives=[weight * 2], reads=[weight], made=[made.key], fields=place)
    named = {"phase": "optimizer", "parameters": ["m.b", "m.b.grad"]}
    update = Step(key="m/op_3_add_", gives=[weight], reads=[weight, weight * 2], made=["", scaled.key], fields=named)
    log = captured_log([forward, made, scaled, update])
    (way,) = Gradients(RankLogs(Run("run", {0: ""}), {0: log})).ways(0).values()
    assert way.scale == scale
