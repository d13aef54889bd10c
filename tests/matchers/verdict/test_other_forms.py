"""Attention that repeats heads itself, against heads that are repeated before it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare, noise_floor
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.rules.model import PairRule, RuleSet
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from matchers.verdict.without_consequence import _multiples
from tests.builders import Op, op
from tests.captured import Step, captured_log
from tests.matchers.drifted_logs import made_up_log

KEYS = op("attn.k/op_0_mm", 1.25, shape=(2, 8), inputs=[9.0])
OUT = op("attn.o/op_0_mm", 2.5, shape=(4, 8), inputs=[11.0])
REPEATED = op("attn/op_0_repeat_interleave", 3.5, shape=(4, 8), inputs=[3.75], producers=[KEYS.key])
GRADIENT = op("attn/op_1_attend_backward", 4.25, shape=(4, 8), inputs=[7.5, 10.5], producers=[OUT.key, REPEATED.key])
SUMMED = op("attn/op_2_sum", 5.75, shape=(2, 8), inputs=[12.75], producers=[GRADIENT.key])
WEIGHT = op("attn.k/op_1_mm", 6.5, shape=(8, 8), inputs=[17.25], producers=[SUMMED.key])

A = [KEYS, OUT, REPEATED, GRADIENT, SUMMED, WEIGHT]
FUSED = op("attn/op_0_attend_backward", 5.75, shape=(2, 8), inputs=[7.5, 3.75], producers=[OUT.key, KEYS.key])
B = [KEYS, OUT, FUSED, replace(WEIGHT, producers=[FUSED.key])]


def statuses(a: list[Op], b: list[Op]) -> tuple[Comparison, Status]:
    keys = [next(each.key for each in log if "attend" in each.key) for log in (a, b)]
    c = compare(made_up_log(a), made_up_log(b), RuleSet((PairRule(a=(keys[0],), b=(keys[1],)),)))
    (row,) = [row for row in range(len(c)) if c.pair[row] >= 0 and "attend" in c.a.keys[int(c.row_a[row])]]
    return c, Status(c.status[row])


@pytest.mark.parametrize(("a", "b"), [(A, B), (B, A)], ids=["repeated ↔ fused", "fused ↔ repeated"])
def test_another_form_is_not_red_where_all_that_it_leads_to_agrees(a: list[Op], b: list[Op]) -> None:
    c, status = statuses(a, b)
    assert status == Status.NOT_JUDGED
    assert not c.red.any()
    assert c.coverage.a.uncovered == c.coverage.b.uncovered == 0


def test_it_is_red_where_something_that_reads_it_is() -> None:
    c, status = statuses(A, [*B[:3], replace(B[3], outputs=[60.0], l2=30.0)])
    assert status == Status.SHAPE
    assert c.red.any()


def test_it_is_red_where_nothing_reads_it() -> None:
    _, status = statuses(A[:4], B[:3])
    assert status == Status.SHAPE


def test_it_is_red_where_something_else_differs_on_the_way() -> None:
    """An addition that both runs have, and of which one gives another sum."""
    add = op("attn/op_3_add", 8.5, shape=(2, 8), inputs=[17.25], producers=[SUMMED.key])
    other = replace(add, producers=[FUSED.key], outputs=[44.0], l2=22.0)
    _, status = statuses([*A, add], [*B, other])
    assert status == Status.SHAPE


def scaled(*, first: bool, factor: float = 2.0) -> list[Op]:
    """An adapter: (x · 2) A B, or x A B · 2; its result is added and read."""
    x = op("embed/op_0_embedding", 1.25, inputs=[9.0])
    if first:
        made = [scale("layer/op_0_mul", 1.25 * factor, x)]
        made += [scale("layer/op_1_mm", 3.5 * factor, made[0])]
        made += [scale("layer/op_2_mm", 4.75 * factor, made[1])]
    else:
        made = [scale("layer/op_0_mm", 3.5, x)]
        made += [scale("layer/op_1_mm", 4.75, made[0])]
        made += [scale("layer/op_2_mul", 4.75 * factor, made[1])]
    total = scale("layer/op_3_add", 7.25 * factor, made[-1])
    return [x, *made, total, scale("head/op_0_mm", 8.5 * factor, total)]


def scale(key: str, value: float, maker: Op) -> Op:
    return op(key, value, inputs=[maker.outputs[0]], producers=[maker.key])


@pytest.mark.parametrize("first", [True, False])
def test_what_lies_between_operations_of_one_run_is_not_red_where_the_result_agrees(first: bool) -> None:
    """Two products in the midst are pairs by name; one run has scaled before them, the other does so behind them."""
    c = compare(made_up_log(scaled(first=first)), made_up_log(scaled(first=not first)))
    assert not c.red.any()
    assert not c.cause.any()


def test_what_lies_between_them_is_red_where_the_result_differs() -> None:
    c = compare(made_up_log(scaled(first=True)), made_up_log(scaled(first=False, factor=2.5)))
    assert c.red.any()
    assert c.cause.any()


def with_backward(loss: float, *, first: bool) -> list[Op]:
    """The same with gradients, which read what the form has kept; `loss` scales them."""
    forward = scaled(first=first)
    lost = scale("loss/op_0_nll_loss", 2.25 * loss, forward[-1])
    head = op("head/op_1_mm", 6.25 * loss, inputs=lost.outputs, producers=[lost.key], phase="backward")
    gradients = [
        op(
            f"layer/op_{4 + k}_mm",
            (5.5 + k) * loss,
            inputs=[head.outputs[0], kept.outputs[0]],
            producers=[head.key, kept.key],
            phase="backward",
        )
        for k, kept in enumerate(forward[1:4])
    ]
    return [*forward, lost, head, *gradients]


def test_a_form_is_no_cause_where_only_gradients_differ_that_read_what_it_kept() -> None:
    """Most of the step differs: the loss does, and all that follows; the forward results before it agree."""
    c = compare(made_up_log(with_backward(1.0, first=True)), made_up_log(with_backward(1.5, first=False)))
    assert [c.a.keys[int(c.row_a[row])] for row in c.cause.nonzero()[0]] == ["loss/op_0_nll_loss"]
    assert not c.red[: int(c.cause.argmax())].any()


def kept(*, first: bool, factor: float = 1.0) -> list[Op]:
    """The same; a product of the backward pass reads what the form keeps, and is wrong by a factor."""
    forward = scaled(first=first)
    if not first:
        forward[3] = replace(forward[3], key="layer/op_2_div")
        forward[4] = replace(forward[4], producers=["layer/op_2_div"])
    head = op("head/op_1_mm", 6.25, inputs=[8.0], phase="backward")
    other = forward[1 if first else 3]
    read = [head.outputs[0], other.outputs[0]]
    wrong = op("layer/op_4_mm", 5.5 * factor, inputs=read, producers=[head.key, other.key], phase="backward")
    return [*forward, head, wrong, replace(scale("embed/op_1_mm", 9.5 * factor, wrong), phase="backward")]


def test_what_a_form_keeps_is_no_cause_where_its_results_agree() -> None:
    """One run keeps what it has scaled first, the other what it has scaled last: only gradients differ."""
    c = compare(made_up_log(kept(first=True)), made_up_log(kept(first=False, factor=1.5)))
    assert [c.a.keys[int(c.row_a[row])] for row in c.cause.nonzero()[0]] == ["layer/op_4_mm"]


def placed(places: float, *, fused: bool, given: bool) -> list[Op]:
    """Keys turned by the places of their tokens, and attention, which sees the distance of two places alone."""
    extra = {"Inputs": "float32;int64[4]"}
    numbers = [] if given else [op("model/op_0_arange", places / 3)]
    turned = op(
        "attn/op_0_mul",
        places * 1.5,
        inputs=[KEYS.outputs[0], places],
        producers=[KEYS.key, *(each.key for each in numbers or [replace(KEYS, key="")])],
        extra=extra,
    )
    inside = [turned] if fused else [turned, scale("attn/op_1_softmax", places / 7, turned)]
    end = [
        scale("attn.o/op_0_mm", 2.5, inside[-1]),
        op("head/op_0_mm", 6.5, inputs=[7.5], producers=["attn.o/op_0_mm"]),
    ]
    return [KEYS, *numbers, *inside, *end]


def test_whole_numbers_that_a_run_is_given_are_none_of_the_form() -> None:
    """Places that are not reset turn queries and keys alike: nothing shows behind the attention."""
    a, b = placed(39.0, fused=True, given=True), placed(84.0, fused=False, given=False)
    rules = RuleSet((PairRule(a=("attn/op_0_mul",), b=("attn/op_0_mul",)),))
    assert compare(made_up_log(a), made_up_log(b), rules).red.any()


SCORES = op("attn/op_3_bmm", 7.25, inputs=[3.0], producers=[""])


def masked(constant: float, found: float = 13.0, *, alone: bool) -> list[Op]:
    """Scores behind a mask, in one form with an operation of its own, and what reads them; only the mask differs."""
    fill = op("attn/op_4_mul", constant, inputs=[21.75], producers=[SCORES.key])
    copy = [op("attn/op_5_sign", 33.0, inputs=[constant * 3], producers=[fill.key])] if alone else []
    last = [fill, *copy][-1]
    weights = op("attn/op_6_softmax", found, inputs=[last.outputs[0]], producers=[last.key])
    return [
        KEYS,
        SCORES,
        fill,
        *copy,
        weights,
        op("attn.o/op_1_mm", 21.5 * found / 13, inputs=[found * 3], producers=[weights.key]),
    ]


def test_a_difference_inside_of_another_form_that_leaves_nothing_is_not_red() -> None:
    c = compare(made_up_log(masked(100.0, alone=False)), made_up_log(masked(200.0, alone=True)))
    assert c.counts[Status.NOT_JUDGED] == 1
    assert not (c.red | c.cause).any()


def test_in_one_form_it_is() -> None:
    c = compare(made_up_log(masked(100.0, alone=False)), made_up_log(masked(200.0, alone=False)))
    assert c.red.sum() == 1


@pytest.mark.parametrize(("error", "red"), [(1e-2, True), (1e-7, False)])
def test_what_is_left_of_it_counts(error: float, red: bool) -> None:
    """An error of 10 % of which a tenth is left is no matter of form."""
    a, b = masked(100.0, alone=False), masked(110.0, 13.0 * (1 + error), alone=True)
    c = compare(made_up_log(a), made_up_log(b), expectation=Expectation(preset=Expect.REDUCTION_ORDER))
    assert c.red.any() == red


def test_what_is_red_elsewhere_has_a_cause_of_its_own() -> None:
    logs = (
        [*masked(constant, alone=alone), op("tail/op_0_mm", value, inputs=[64.5], producers=["attn.o/op_1_mm"])]
        for constant, alone, value in ((100.0, False, 3.0), (200.0, True, 4.0))
    )
    a, b = map(made_up_log, logs)
    c = compare(a, b)
    assert [c.a.keys[int(c.row_a[row])] for row in c.red.nonzero()[0]] == ["tail/op_0_mm"]
    assert c.counts[Status.NOT_JUDGED] == 1


def of_a_margin(sign: float) -> list[Op]:
    """−log σ(0.3 m), averaged, or softplus(−0.3 m): a factor of the other sign, a mean of it, and a gradient."""

    def made(key: str, value: float, *makers: Op, signed: float = 1.0, **more: Any) -> Op:
        low, high = sorted((signed * value, 2 * signed * value))
        mean = 1.5 * signed * value
        read = {"inputs": [maker.outputs[0] for maker in makers] or [9.0], "producers": [m.key for m in makers]}
        return op(key, value, shape=(), mean=mean, min=low, max=high, **read, **more)

    backward: dict[str, Any] = {"phase": "backward"}
    factor = {"extra": {"Arguments": f'{{"other": {0.3 * sign}}}', "Inputs": "float32[1]"}}
    margin = made("loss/op_0_sub", 1.25)
    scaled = made("loss/op_1_mul", 0.375, margin, signed=sign, **factor)
    steps = [margin, scaled, made(f"loss/op_2_{'log_sigmoid' if sign > 0 else 'softplus'}", 0.75, scaled, signed=-sign)]
    steps.append(made("loss/op_3_mean", 0.5, steps[-1], signed=-sign))
    loss = steps[-1] if sign < 0 else made("loss/op_4_neg", 0.5, steps[-1])
    one = made("loss/op_5_ones_like", 1.0, loss)
    back = made(f"loss/op_6_{'log_sigmoid' if sign > 0 else 'softplus'}_backward", 0.625, one, signed=-sign, **backward)
    gradient = made("loss/op_7_mul", 0.1875, back, signed=-1.0, **(backward | factor))
    return [*steps, *([loss] if sign > 0 else []), one, back, gradient, made("m/op_0_mm", 2.5, gradient, **backward)]


def test_factors_of_the_other_sign_are_a_matter_of_form_where_the_losses_agree() -> None:
    c = compare(made_up_log(of_a_margin(1.0)), made_up_log(of_a_margin(-1.0)))
    assert not c.red.any(), [c.a.keys[int(c.row_a[row])] for row in c.red.nonzero()[0]]


@pytest.mark.parametrize(("error", "red"), [(1e-5, True), (0.0, False)])
def test_nothing_is_left_of_another_argument_only_where_more_than_a_bound_tells(error: float, red: bool) -> None:
    """Of scores behind a mask, whose norm is that of the mask, a bound tells little."""
    logs = masked(100.0, alone=False), masked(110.0, 13.0 * (1 + error), alone=True)
    a, b = (
        [replace(o, extra={"Arguments": f'{{"other": {by}}}'}) if o.key.endswith("_mul") else o for o in log]
        for log, by in zip(logs, (0.5, 0.55), strict=True)
    )
    c = compare(made_up_log(a), made_up_log(b), expectation=Expectation(preset=Expect.REDUCTION_ORDER))
    assert c.red.any() == red


def test_a_multiple_is_a_matter_of_form_where_one_run_makes_its_factor() -> None:
    """As the gradient of a mean that one run divides earlier: all numbers of it, or it is something else."""

    def log(factor: float, least: float, phase: str = "forward") -> OpLog:
        halved = op("loss/op_0_div", factor)
        mul = op("m/op_0_mul", 4 * factor, inputs=[9.0], producers=[halved.key], min=least, phase=phase)
        return made_up_log([halved, mul])

    def found(a: OpLog, b: OpLog, alone: bool) -> bool:
        of = np.array([-1 if alone else 0, 1])
        pairing = SimpleNamespace(of_a=of, of_b=of)
        case: Any = SimpleNamespace(a=a, b=b, i=np.array([1]), j=np.array([1]), pairing=pairing, flow=DataFlow(a, b))
        return bool(_multiples(case, np.array([0]))[0])

    assert found(log(0.5, -2.0), log(1.0, -4.0), alone=True)
    assert not found(log(0.5, -2.1), log(1.0, -4.0), alone=True)
    assert not found(log(0.5, -2.0), log(1.0, -4.0), alone=False), "both runs have what made it"

    def of_ranks(many: int, factor: float, phase: str) -> bool:
        """A mean over the part of a rank has a gradient for each element that is as many times as large."""
        b = replace(log(factor, -4 * factor, phase), members=dict.fromkeys(range(many), ""))
        return found(log(0.5, -2.0, phase), b, alone=False)

    assert of_ranks(2, 1.0, "backward")
    assert of_ranks(4, 0.125, "backward")
    assert not of_ranks(2, 0.125, "backward"), "another number of ranks"
    assert not of_ranks(2, 1.0, "forward")


def test_a_constant_of_another_size_whose_reader_differs_leaves_no_region() -> None:
    def log(size: int, value: float) -> list[Op]:
        places = op("m/op_0_arange", size / 4, shape=(size,))
        product = op("m/op_1_mul", value, inputs=[9.0, 3 * size / 4], producers=["", places.key])
        return [places, product, op("m/op_2_clamp", 2.25, inputs=[3 * value], producers=[product.key])]

    rules = RuleSet(tuple(PairRule(a=(step.key,), b=(step.key,)) for step in log(4, 1.5)))
    c = compare(made_up_log(log(4, 1.5)), made_up_log(log(6, 1.75)), rules)
    assert c.red.tolist() == [True, True, False]


def test_a_repeat_has_the_same_dtypes_so_that_noise_explains_no_other() -> None:
    """A router computes in bfloat16; its results agree within the noise of the run."""

    def router(*, coarse: bool, error: float = 0.0) -> list[Op]:
        read = op("norm/op_0_mul", 1.25 * (1 + error), dtype="bfloat16", inputs=[9.0])
        wide = op("router/op_0__to_copy", 1.25 * (1 + error), inputs=read.outputs, producers=[read.key])
        dtype, maker = ("bfloat16", read) if coarse else ("float32", wide)
        scores = op("router/op_1_mm", 3.5 * (1 + error), dtype=dtype, inputs=read.outputs, producers=[maker.key])
        out = op("moe/op_0_mul", 5.75 * (1 + error), inputs=scores.outputs, producers=[scores.key])
        return [read, *([] if coarse else [wide]), scores, out]

    a, third = made_up_log(router(coarse=False)), made_up_log(router(coarse=False, error=1e-6))
    for coarse, red in ((False, []), (True, [Reason.OTHER_DTYPE])):
        b = made_up_log(router(coarse=coarse, error=1e-6))
        assert compare(a, b).reason[compare(a, b).red].tolist() == []
        c = compare(a, b, expectation=Expectation(noise=noise_floor(a, b, third)))
        assert c.reason[c.red].tolist() == red


def classified(factor: float | None) -> list[Op]:
    """A loss of scores that one run multiplies by a factor, and adds up; its gradient reads the shape of what it was
    given.
    """
    scores = scale("head/op_0_mm", 2.5, KEYS)
    last = scores if factor is None else scale("head/op_1_mul", 2.5 * factor, scores)
    off = 1.0 if factor is None else factor
    chances = scale("loss/op_0__log_softmax", 3.25 * off, last)
    weight = {"Output 1": '{"shape": [], "dtype": "float32", "l1": 12.0, "l2": 12.0, "min": 12.0, "max": 12.0}'}
    lost = replace(scale("loss/op_1_nll_loss_forward", 1.75 * off, chances), outputs=[5.25 * off, 12.0], extra=weight)
    ones = op("loss/op_2_ones_like", 1.0, inputs=lost.outputs[:1], producers=[lost.key], phase="backward")
    read, made = [ones, chances, lost], [ones.outputs[0], chances.outputs[0], 12.0]
    terms = op(
        "loss/op_3_nll_loss_backward",
        4.5,
        inputs=made,
        producers=[each.key for each in read],
        phase="backward",
        extra={"Digest": "00ff"},
    )
    read = [terms, chances]
    back = op(
        "loss/op_4__log_softmax_backward_data",
        6.25 * off,
        inputs=[each.outputs[0] for each in read],
        producers=[each.key for each in read],
        phase="backward",
    )
    total = scale("train/op_0_add_", 8.5 * off, lost)
    own = ([], []) if factor is None else ([last], [total])
    return [KEYS, scores, *own[0], chances, lost, *own[1], ones, terms, back]


def test_what_reads_a_shape_or_another_output_does_not_show_that_a_form_agrees() -> None:
    c = compare(made_up_log(classified(None)), made_up_log(classified(1.5)))
    shown = [c.shown(int(row)) for row in c.cause.nonzero()[0]]
    assert [log.keys[record] for log, record in shown] == ["head/op_1_mul"]


@pytest.mark.parametrize(("error", "red"), [(1e-2, True), (None, False)])
def test_what_is_off_by_little_is_no_other_form(error: float | None, red: bool) -> None:
    """A value with an error, between operations of one run, though a loss behind them is insensitive."""
    rng = np.random.default_rng(8)
    x, value, noise = (rng.normal(size=(8, 8)).astype(np.float32) for _ in range(3))

    def log(before: str, between: np.ndarray, after: str) -> OpLog:
        given, made = (np.sinh(x), f"m/op_0_{before}") if before else (x, "in/op_0_mm")
        steps = [Step(key="in/op_0_mm", reads=[x + 1], made=[""], gives=[x])]
        if before:
            steps.append(Step(key=made, reads=[x], made=["in/op_0_mm"], gives=[given]))
        steps.append(Step(key="m/op_1_tanh", reads=[given], made=[made], gives=[between]))
        given, made = between, "m/op_1_tanh"
        if after:
            steps.append(Step(key=f"m/op_2_{after}", reads=[given], made=[made], gives=[np.cosh(value)]))
            given, made = np.cosh(value), f"m/op_2_{after}"
        steps.append(Step(key="m/op_3_sum", reads=[given], made=[made], gives=[value.sum(0)]))
        return captured_log(steps)

    other = noise if error is None else value + np.float32(error) * noise
    c = compare(
        log("sinh", value, ""), log("", other, "cosh"), RuleSet((PairRule(a=("m/op_1_tanh",), b=("m/op_1_tanh",)),))
    )
    assert c.red.any() == red
