"""Sums that cancel among the further outputs of an operation: the gradient of a norm's bias."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow, sources
from matchers.ops.laws import rows_named
from matchers.status import Status
from matchers.verdict.cancellation import _far_apart, condition
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.noise_flow import Noise, noise_of
from tests.captured import Step, as_parts, captured_log

RNG = np.random.default_rng(4)
TERMS = RNG.normal(size=(64, 8)).astype(np.float32)
GRADIENT, WEIGHT = RNG.normal(size=(64, 8)).astype(np.float32), RNG.normal(size=8).astype(np.float32)


def log(bias: np.ndarray, weight: np.ndarray = WEIGHT) -> OpLog:
    """The gradients of a norm, and what an optimizer makes of that of its bias."""
    back = {"phase": "backward"}
    key = "norm/op_1_native_layer_norm_backward"
    return captured_log(
        [
            Step(key="next/op_0_mm", gives=[TERMS], fields=back),
            Step(key=key, reads=[TERMS], gives=[GRADIENT, weight, bias], made=["next/op_0_mm"], fields=back),
            Step(key="norm/op_2_sign", reads=[bias], gives=[np.sign(bias)], made=[key], fields={"phase": "optimizer"}),
        ]
    )


@pytest.mark.parametrize(("size", "red"), [(1e-6, False), (1.0, True)])
def test_the_gradient_of_a_bias_that_is_rounding_is_not_judged(size: float, red: bool) -> None:
    one, other = (np.float32(size) * RNG.normal(size=8).astype(np.float32) for _ in range(2))
    assert compare(log(one), log(other)).red.any() == red


@pytest.mark.parametrize(("numel", "apart"), [(500, True), (2_000, False)])
def test_the_least_of_many_numbers_is_small_by_chance(numel: int, apart: bool) -> None:
    """Here it is 1e-5 of the largest."""
    assert _far_apart(1e-10, 1.0, numel) == apart


def test_a_bias_gradient_is_as_far_off_as_its_terms() -> None:
    """Half of it cancels, in coarse terms."""
    total = np.float32(0.05) * TERMS.sum(0)
    c = compare(log(total), log(np.float32(1.0001) * total))
    assert not c.red.any()
    assert compare(log(total), log(np.float32(1.5) * total)).red.any()


def test_a_row_is_judged_by_its_other_results_where_the_gradient_of_a_bias_is_rounding() -> None:
    one, other = (np.float32(1e-6) * RNG.normal(size=8).astype(np.float32) for _ in range(2))
    c = compare(log(one), log(other, np.nextafter(WEIGHT, np.float32(9))))
    assert c.status[1] == Status.CLOSE


@pytest.mark.parametrize(("part", "red"), [(1.0, False), (1e-7, True)])
def test_the_terms_may_be_a_slice_of_a_result(part: float, red: bool) -> None:
    """The gradient of one of several tensors that were joined; its norm is known as a part of the whole."""
    back, key = {"phase": "backward"}, "norm/op_1_native_layer_norm_backward"
    read, logs = np.float32(part) * TERMS[:, :4], []
    for _ in range(2):
        total = np.float32(1e-7) * RNG.normal(size=4).astype(np.float32)
        steps = [
            Step(key="next/op_0_mm", gives=[TERMS], fields=back),
            Step(key=key, reads=[read], gives=[GRADIENT, WEIGHT, total], made=["next/op_0_mm"], fields=back),
        ]
        logs.append(captured_log(steps))
    assert compare(logs[0], logs[1]).red.any() == red


@pytest.mark.parametrize(("times", "red"), [(1.0, False), (1.2, True)])
def test_what_reads_a_sum_that_its_row_is_judged_without_receives_its_error(times: float, red: bool) -> None:
    """Three digits of it mean something, so that a factor between the two is seen."""
    key, back = "norm/op_1_native_layer_norm_backward", {"phase": "backward"}
    total = np.float32(1e-2) * RNG.normal(size=8).astype(np.float32)
    shift = np.sign(total) * np.array([1e-5, -1e-5, 0, 0, 0, 0, 0, 0], np.float32)  # which no norm shows
    logs = []
    for factor, of in ((1.0, total), (times, total + shift)):
        steps = [
            Step(key="next/op_0_mm", gives=[TERMS], fields=back),
            Step(key=key, reads=[TERMS], gives=[GRADIENT, WEIGHT, of], made=["next/op_0_mm"], fields=back),
            Step(key="norm/op_2_mul", reads=[of], gives=[np.float32(factor) * of], made=[f"{key}[2]"], fields=back),
        ]
        logs.append(captured_log(steps))
    c = compare(logs[0], logs[1], expectation=Expectation(Expect.REDUCTION_ORDER))
    assert c.red.any() == red


@pytest.mark.parametrize("times", [1, 2])
def test_noise_is_followed_through_a_view_that_no_log_has(times: int) -> None:
    logs = []
    for _ in range(2):
        total = np.float32(1e-8) * RNG.normal(size=8).astype(np.float32)
        view = np.tile(total, (times, 1))
        steps = [
            Step(key="next/op_0_mm", gives=[TERMS]),
            Step(key="k/op_0_sum", reads=[TERMS], gives=[total], made=["next/op_0_mm"]),
            Step(key="k/op_1_div", reads=[view], gives=[view / np.float32(48)], made=["k/op_0_sum"]),
        ]
        logs.append(captured_log(steps))
    assert not compare(logs[0], logs[1]).red.any()


def test_noise_is_followed_again_where_it_begins_elsewhere() -> None:
    of = log(TERMS.sum(0))
    flow, nothing, sums = sources(of), np.zeros(3, bool), np.array([True, False, False])
    first, some = noise_of(of, flow, nothing, [], [], []), [(1, 2)]
    assert noise_of(of, flow, nothing.copy(), [], [], []) is first
    assert not first.outputs.any()
    for begins, results in ((sums, ([], [], [])), (nothing, ([], some, [])), (nothing, ([], [], some))):
        assert noise_of(of, flow, nothing, [], [], []).outputs.tolist() == first.outputs.tolist()
        found, expected = noise_of(of, flow, begins, *results), Noise(of, flow, begins, *results)
        assert found.outputs.tolist() == expected.outputs.tolist() != first.outputs.tolist()


def test_what_reads_noise_teaches_nothing_of_equal_inputs() -> None:
    """It is judged as if both runs had the same noise, which they have not."""
    one, other = (np.float32(1e-6) * RNG.normal(size=8).astype(np.float32) for _ in range(2))
    c = compare(log(one), log(other))
    assert c.equality.rows.tolist() == [0, 1, 2]
    assert c.equality.inputs.tolist() == [True, True, False]
    assert not c.equality.begins_at(2)


def test_the_other_gradients_of_the_norm_are() -> None:
    bias = np.float32(1e-6) * WEIGHT
    assert compare(log(bias), log(-bias, 1.01 * WEIGHT)).red.any()


@pytest.mark.parametrize(("size", "times", "red"), [(1e-8, 1.0, False), (1e-8, 1.01, True), (1e-2, 1.0, True)])
def test_the_mean_of_what_has_none_is_as_far_off_as_that(size: float, times: float, red: bool) -> None:
    """A norm behind a norm: what it reads has a mean of zero but for rounding."""
    logs = []
    for factor in (1.0, times):
        mean = np.float32(size) * RNG.normal(size=(64, 1)).astype(np.float32)
        gives = [np.float32(factor) * GRADIENT, mean, np.ones((64, 1), np.float32)]
        read = TERMS + np.float32(1e-6) * RNG.normal(size=TERMS.shape).astype(np.float32)
        steps = [
            Step(key="a/op_0_mm", gives=[read]),
            Step(key=(norm := "norm/op_0_native_layer_norm"), reads=[read], gives=gives, made=["a/op_0_mm"]),
            Step(key="norm/op_1_sub", reads=[read, mean], gives=[read - mean], made=["a/op_0_mm", f"{norm}[1]"]),
        ]
        logs.append(captured_log(steps))
    assert compare(logs[0], logs[1]).red.any() == red


@pytest.mark.parametrize(
    ("asked", "red"), [([False, True, True], False), ([True, True, False], True), ([True, False, True], False)]
)
def test_the_place_of_a_gradient_is_that_among_those_asked_for(asked: list[bool], red: bool) -> None:
    """As of a convolution on the batch, which has no gradient."""
    back, key = {"phase": "backward"}, "conv/op_1_convolution_backward"
    logs = []
    for _ in range(2):
        rounding = np.float32(1e-6) * RNG.normal(size=8).astype(np.float32)
        fields: dict[str, Any] = {**back, "arguments": {"output_mask": asked}}
        steps = [
            Step(key="next/op_0_mm", gives=[TERMS], fields=back),
            Step(key=key, reads=[TERMS], gives=[WEIGHT, rounding], made=["next/op_0_mm"], fields=fields),
        ]
        logs.append(captured_log(steps))
    assert compare(logs[0], logs[1]).red.any() == red


def keys_gradient(bias: np.ndarray) -> OpLog:
    """The gradients of attention's queries, keys and values, and that of the bias of the keys."""
    back, maker = {"phase": "backward"}, "attn/op_1_attention_backward"
    gradients = [GRADIENT, TERMS, -GRADIENT]
    return captured_log(
        [
            Step(key="proj/op_0_mm", gives=[TERMS], fields=back),
            Step(key=maker, reads=[TERMS], gives=gradients, made=["proj/op_0_mm"], fields=back),
            Step(key="attn.k/op_2_sum", reads=[TERMS], gives=[bias], made=[maker], fields=back),
        ]
    )


@pytest.mark.parametrize(("size", "red"), [(1e-8, False), (1.0, True)])
def test_the_sum_of_a_further_output_that_cancels_is_not_judged(size: float, red: bool) -> None:
    one, other = (np.float32(size) * RNG.normal(size=8).astype(np.float32) for _ in range(2))
    assert compare(keys_gradient(one), keys_gradient(other)).red.any() == red


def test_a_sum_of_infinite_values_does_not_cancel() -> None:
    """The logged norms are those of the finite values, which are others in the terms than in the sums."""
    terms = TERMS.copy()
    terms[0] = [np.inf, *[np.float32(1e30)] * 7]
    scores, sums = "attn/op_0_exp", terms.sum(axis=1)
    exp = Step(key=scores, gives=[terms])
    made = captured_log([exp, Step(key="attn/op_1_sum", reads=[terms], gives=[sums], made=[scores])])
    assert condition(made, DataFlow(made, made).a).tolist() == [1.0, 1.0]


def test_an_unknown_norm_is_no_noise() -> None:
    """A sum of terms of ranks that cancels has no norm; nor have others, which do not read it."""

    def ranks(factor: float) -> OpLog:
        bias = np.float32(1e-8 * factor) * RNG.normal(size=8).astype(np.float32)
        back, maker = {"phase": "backward"}, "proj/op_0_mm"
        return captured_log(
            [
                Step(key=maker, gives=[TERMS], fields=back),
                Step(key="attn.k/op_1_sum", reads=[TERMS], gives=[bias], made=[maker], fields=back),
                Step(key="attn.v/op_2_mm", reads=[TERMS], gives=[GRADIENT], made=[maker], fields=back),
                Step(
                    key="attn.v/op_3_mul",
                    reads=[GRADIENT],
                    gives=[np.float32(factor) * GRADIENT],
                    made=["attn.v/op_2_mm"],
                    fields=back,
                ),
            ]
        )

    b = ranks(1.01)
    c = compare(ranks(1.0), as_parts(b, rows_named(b, {"mm", "sum"})))
    assert [c.a.op_name(int(c.row_a[row])) for row in np.flatnonzero(c.red)] == ["mul"]


@pytest.mark.parametrize("zeros", [1, 2])
@pytest.mark.parametrize(("noise", "red"), [(1e-10, False), (3e-5, True)])
def test_an_update_by_rounding_over_rounding_is_not_judged(noise: float, red: bool, zeros: int) -> None:
    """Half of the gradient of a bias for keys and values is rounding: zero in some elements of each run."""
    real = RNG.normal(size=16).astype(np.float32) * np.float32(1e-3)

    def update(rounding: list[float], rate: float = 1e-2, ops: tuple[str, str] = ("addcmul_", "addcdiv_")) -> OpLog:
        gradient = np.concatenate((np.array(rounding, np.float32) * np.float32(noise), real))
        square, bias = gradient * gradient, np.ones(len(gradient), np.float32)
        made = bias - np.float32(rate) * gradient / (np.sqrt(square) + np.float32(1e-8))
        fields = {"phase": "optimizer"}
        states, names = ["kv.bias.exp_avg_sq", *["kv.bias.grad"] * 2], ["kv.bias", "kv.bias.exp_avg", ""]
        return captured_log(
            [
                Step(key="kv/op_0_sum", gives=[gradient], fields={"phase": "backward"}),
                Step(
                    key=f"kv/op_1_{ops[0]}",
                    gives=[square],
                    reads=[0 * square, gradient, gradient],
                    made=["", "kv/op_0_sum", "kv/op_0_sum"],
                    fields={**fields, "parameters": states},
                ),
                Step(
                    key=f"kv/op_2_{ops[1]}",
                    gives=[made],
                    reads=[bias, gradient, np.sqrt(square) + np.float32(1e-8)],
                    made=["", "kv/op_0_sum", ""],
                    fields={**fields, "parameters": names},
                ),
            ]
        )

    other = update([*[0] * zeros, *[-2, 1, -1][: 4 - zeros]])
    c = compare(update([0, 1, 2, -1]), other, expectation=Expectation(Expect.REDUCTION_ORDER))
    assert bool(c.red.any()) == red
    assert (c.status[2] == Status.NOT_JUDGED) == (not red)
    other = update([*[0] * zeros, *[-2, 1, -1][: 4 - zeros]], ops=("copy_", "sub_"))
    c = compare(update([0, 1, 2, -1]), other, expectation=Expectation(Expect.REDUCTION_ORDER))
    assert bool(c.red.any()) == red, "an optimizer of another form"
    unnamed = update([3, 1, 2, -1])
    unnamed = replace(unnamed, extra={name: of for name, of in unnamed.extra.items() if name != "Parameter"})
    c = compare(unnamed, update([0, -2, 1, -1]), expectation=Expectation(Expect.REDUCTION_ORDER))
    assert bool(c.red.any()) == red, "one log has the names, the other the least square"
    same = update([0, 0, 0, 0])
    c = compare(same, update([0, 0, 0, 0], rate=3e-2), expectation=Expectation(Expect.REDUCTION_ORDER))
    assert c.red.any(), "units that are dead in both runs are no rounding"


@pytest.mark.parametrize(
    ("decay", "size", "red"), [(1e-3, 1e-6, False), (1e-3, 1e-1, True), (2e-5, 1e-6, True), (5e-6, 1e-6, False)]
)
def test_a_sum_with_some_rounding_is_as_far_off_as_that(decay: float, size: float, red: bool) -> None:
    """Weight decay of a bias whose gradient is rounding, before a norm: the gradient hardly counts, or it is noise."""

    def decayed(seed: int) -> OpLog:
        noise = np.float32(size) * np.random.default_rng(seed).normal(size=8).astype(np.float32)
        total, back = np.float32(decay) * WEIGHT + noise, {"phase": "backward"}
        makers, update = ["attn.k/op_2_sum", ""], {"phase": "optimizer"}
        return captured_log(
            [
                Step(key="proj/op_0_mm", gives=[TERMS], fields=back),
                Step(key=makers[0], reads=[TERMS], gives=[noise], made=["proj/op_0_mm"], fields=back),
                Step(key="attn.k/op_3_add", reads=[noise, WEIGHT], gives=[total], made=makers, fields=update),
            ]
        )

    assert compare(decayed(1), decayed(2)).red.any() == red


@pytest.mark.parametrize(("rate", "red"), [(1e-2, False), (2e-2, True)])
@pytest.mark.parametrize("ops", [("addcmul_", "addcdiv_"), ("_fused_adam_",)])
def test_signs_that_rounding_decides_are_not_judged(ops: tuple[str, ...], rate: float, red: bool) -> None:
    """Adam's first step makes signs of a gradient, and of zeros a bias that is nothing else."""
    rest = RNG.normal(size=63).astype(np.float32)
    rest += np.sign(rest)

    def update(least: float, rate: float = 1e-2) -> OpLog:
        gradient = np.concatenate((np.array([least], np.float32), rest))
        square, zeros = gradient * gradient, np.zeros(64, np.float32)
        made = -np.float32(rate) * gradient / (np.sqrt(square) + np.float32(1e-8))
        reads = [zeros, gradient, np.sqrt(square) + np.float32(1e-8)]
        return captured_log(
            [
                Step(key="up/op_0_sum", gives=[gradient], fields={"phase": "backward"}),
                Step(
                    key=f"up/op_1_{ops[-1]}",
                    gives=[made],
                    reads=reads,
                    made=["", "up/op_0_sum", ""],
                    fields={"phase": "optimizer", "parameters": ["up.bias", "up.bias.grad", ""]},
                ),
            ]
        )

    c = compare(update(1e-4), update(-1e-4, rate), expectation=Expectation(Expect.REDUCTION_ORDER))
    assert bool(c.red.any()) == red
    assert (c.status[1] == Status.NOT_JUDGED) == (not red)
