"""Logs of our own capture: what digests, sketches, counts and changed parameters let a comparison say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capture.log_writer import TensorSummary
from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain
from matchers.logs.columns import Texts
from matchers.logs.op_log import OpLog
from matchers.pairing.pairing import Method
from matchers.rules.model import RuleSet, ToleranceRule
from matchers.status import Role, Status
from matchers.verdict.digests import altered_by_one_run
from matchers.verdict.slots import SlotVerdict
from tests.builders import op
from tests.captured import Step, captured_log, summary
from tests.matchers.drifted_logs import made_up_log
from tests.needs import examples

RNG = np.random.default_rng(1)
X = RNG.normal(size=(16, 32)).astype(np.float32)
W = RNG.normal(size=(32, 32)).astype(np.float32)
Y = X @ W


def compared(a: Sequence[Step], b: Sequence[Step]) -> Comparison:
    """Two logs; swapped, they are told to be the same."""
    logs = captured_log(a), captured_log(b)
    assert all(log.problems == () and log.complete for log in logs)
    forth, back = compare(logs[0], logs[1]), compare(logs[1], logs[0])
    swap = {Status.ONLY_A: Status.ONLY_B, Status.ONLY_B: Status.ONLY_A}
    assert sorted(forth.status) == sorted(swap.get(Status(s), s) for s in back.status)
    return forth


def mm(result: Any, reads: Sequence[Any] = (X, W), **fields: Any) -> Step:
    gives = result if isinstance(result, list) else [result]
    return Step(key="layers.0.wq/op_0_mm", reads=reads, gives=gives, fields=fields)


def judged(a: Step, b: Step) -> tuple[Status, float, bool]:
    """Status, error and whether that is a bound, of one operation against another."""
    c = compared([a], [b])
    assert len(c) == 1
    return Status(c.status[0]), float(c.error[0]), bool(c.bound[0])


# ---------------------------------------------------------------------- what the tensors are


def test_equal_digests_are_equal_bits() -> None:
    assert judged(mm(Y), mm(Y)) == (Status.EQUAL, 0.0, False)


def test_a_sign_flip_is_seen_though_every_norm_is_the_same() -> None:
    both = np.concatenate((Y, -Y))  # with the same extremes and mean, too
    status, error, bound = judged(mm(both), mm(-both))
    assert status == Status.DIVERGED
    assert error == pytest.approx(2.0, rel=0.5)
    assert not bound


def test_a_permutation_is_seen_though_every_norm_is_the_same() -> None:
    status, error, bound = judged(mm(Y), mm(Y[::-1].copy()))
    assert status == Status.DIVERGED
    assert error == pytest.approx(math.sqrt(2), rel=0.5)
    assert not bound


@settings(max_examples=examples(60), deadline=None)
@given(st.floats(-7.5, 0), st.integers(0, 2**32 - 1), st.sampled_from(["all", "one row", "one element"]))
def test_the_error_of_the_tensors_is_estimated(exponent: float, seed: int, where: str) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(16, 32))
    noise = rng.normal(size=x.shape)
    if where != "all":
        keep = np.zeros_like(noise)
        keep[(3,) if where == "one row" else (3, 5)] = 1
        noise *= keep
    noise *= 10**exponent * np.linalg.norm(x) / np.linalg.norm(noise)
    y = x + noise
    _, error, bound = judged(mm(x), mm(y))
    truth = np.linalg.norm(noise) / max(np.linalg.norm(x), np.linalg.norm(y))
    if not bound:  # else an extreme differs by more than the tensor
        assert truth / 2.5 < error < truth * 2.5


def test_a_difference_within_the_tolerance_is_close() -> None:
    status, error, bound = judged(mm(Y), mm(Y * np.float32(1 + 2e-6)))
    assert status == Status.CLOSE
    assert error == pytest.approx(2e-6, rel=0.5)
    assert not bound


def test_without_sketches_the_norms_bound_the_error() -> None:
    one, other = (summary(values, sketch=False) for values in (Y, Y * np.float32(1.01)))
    status, error, bound = judged(mm(one), mm(other))
    assert (status, bound) == (Status.DIVERGED, True)
    assert error == pytest.approx(0.0099, rel=0.01)


def test_rounding_that_came_in_is_given_more_room_than_the_operation_itself() -> None:
    """The same error is the operation's own doing where the same bits went in."""
    off = Y * (1 + 3e-5 * RNG.normal(size=Y.shape)).astype(np.float32)
    other_input = X * np.float32(1 + 3e-5)
    assert judged(mm(Y), mm(off))[0] == Status.DIVERGED
    assert judged(mm(Y), mm(off, reads=(other_input, W)))[0] == Status.CLOSE


def test_an_operation_by_element_has_no_order_to_differ_in() -> None:
    """A scale of 1 + 1e-6 is rounding for a matrix product, and a cause for a `mul`."""
    off = X * np.float32(1 + 1e-6)
    product = Step(key="m/op_0_mul", reads=[X], gives=[X])
    assert judged(product, replace(product, gives=[off]))[0] == Status.DIVERGED
    assert judged(replace(product, key="m/op_0_mm"), replace(product, key="m/op_0_mm", gives=[off]))[0] == Status.CLOSE
    one_ulp = np.nextafter(X, np.float32(9))
    assert judged(product, replace(product, gives=[one_ulp]))[0] == Status.CLOSE


def test_the_user_has_the_last_word_here_too() -> None:
    a, b = captured_log([mm(Y)]), captured_log([mm(-Y)])
    rules = RuleSet((ToleranceRule(match="layers.*/*", rtol=3.0),))
    assert compare(a, b, rules).status.tolist() == [Status.CLOSE]


def test_zeros_of_both_signs_are_close() -> None:
    zeros = np.zeros((4, 4), np.float32)
    assert judged(mm(zeros), mm(-zeros)) == (Status.CLOSE, 0.0, False)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (0.5, 0.5, Status.EQUAL),
        (0.5, 0.50000001, Status.EQUAL),  # the bits are equal: the function is not a function of them
    ],
)
def test_equal_bits_outweigh_what_the_user_makes_of_them(one: float, other: float, expected: Status) -> None:
    assert judged(*(mm(replace(summary(Y), user_hash=value)) for value in (one, other)))[0] == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (0.5, 0.5, Status.CLOSE),
        (0.5, 0.6, Status.DIVERGED),
        (12345, 99999, Status.CLOSE),
        ("a", "b, c", Status.CLOSE),
        (float("nan"), 0.5, Status.CLOSE),
    ],
)
def test_a_number_of_the_user_is_compared_as_a_norm_is(one: object, other: object, expected: Status) -> None:
    """A whole number or a text may be a hash, which only tells that something differs."""
    near = Y * np.float32(1 + 2e-6)
    steps = (mm(replace(summary(y), user_hash=value)) for y, value in ((Y, one), (near, other)))  # type: ignore[arg-type]
    assert judged(*steps)[0] == expected


# ---------------------------------------------------------------------- NaN, Inf, integers, empty tensors


def with_odd(value: float, count: int) -> NDArray[np.float32]:
    out = Y.copy()
    out.ravel()[:count] = value
    return out


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_another_number_of_odd_values_is_red(odd: float) -> None:
    assert judged(mm(with_odd(odd, 1)), mm(with_odd(odd, 2)))[0] == Status.NAN
    assert judged(mm(with_odd(odd, 1)), mm(Y))[0] == Status.NAN


def test_nan_in_both_is_no_match_and_infinities_in_both_are() -> None:
    assert judged(mm(with_odd(np.nan, 2)), mm(with_odd(np.nan, 2)))[0] == Status.NAN
    assert judged(mm(with_odd(-np.inf, 2)), mm(with_odd(-np.inf, 2)))[0] == Status.EQUAL
    assert judged(mm(with_odd(-np.inf, 9)), mm(with_odd(-np.inf, 9) * np.float32(1 + 1e-6)))[0] == Status.CLOSE


def test_a_tensor_with_no_finite_value_has_no_norm_and_is_compared_all_the_same() -> None:
    masked = np.full((4, 4), -np.inf, np.float32)
    assert judged(mm(masked), mm(masked))[0] == Status.EQUAL
    assert judged(mm(masked), mm(-masked))[0] == Status.NOT_JUDGED  # the same counts; what differs is not known
    empty = np.zeros((0, 4), np.float32)
    assert judged(mm(empty), mm(empty))[0] == Status.EQUAL


def test_indices_that_differ_are_no_rounding() -> None:
    index = np.arange(1000, 2000)
    other = index.copy()
    other[3] += 1
    status, error, _ = judged(mm(index), mm(other))
    assert status == Status.DIVERGED
    assert error < 1e-4
    assert judged(mm([Y, index], phase="backward"), mm([Y, other], phase="backward"))[0] == Status.DIVERGED
    flags = RNG.random((4, 4)) < 0.5
    assert judged(mm(flags), mm(~flags))[0] == Status.DIVERGED


# ---------------------------------------------------------------------- further outputs, changed inputs


def slot_of(c: Comparison) -> SlotVerdict:
    (slot,) = c.slots.values()
    return slot


def test_a_further_output_decides_where_it_differs_more() -> None:
    c = compared([mm([Y, X, W], phase="backward")], [mm([Y, X, -W], phase="backward")])
    assert c.status[0] == Status.DIVERGED
    assert c.error[0] == pytest.approx(2.0, rel=0.5)
    assert slot_of(c).name == "output 2"
    assert compared([mm([Y, X])], [mm([-Y, X])]).slots == {}


def optimizer(before: Sequence[Any], after: Sequence[Any], **fields: Any) -> Step:
    """An optimizer's step over some weights and their gradients."""
    names = [f"layers.{i}.weight" for i in range(len(before))]
    gradients = [np.full_like(w, 0.5) for w in before]
    return Step(
        key="optimizer/op_0__fused_adamw_",
        reads=[*before, *gradients],
        changed=dict(enumerate(after)),
        fields={"phase": "optimizer", "parameters": [*names, *(f"{name}.grad" for name in names)], **fields},
    )


WEIGHTS = [RNG.normal(size=(8, 8)).astype(np.float32) for _ in range(4)]
AFTER = [w - np.float32(1e-3) for w in WEIGHTS]


def test_an_update_that_is_the_same_is_equal() -> None:
    c = compared([optimizer(WEIGHTS, AFTER)], [optimizer(WEIGHTS, AFTER)])
    assert c.status.tolist() == [Status.EQUAL]
    assert c.error.tolist() == [0.0]


def test_weight_decay_that_is_off_in_one_parameter_is_an_origin_by_name() -> None:
    """It moves the weight by a ten-thousandth, far less than rounding may."""
    decayed = [*AFTER[:2], AFTER[2] - WEIGHTS[2] * np.float32(1e-5), AFTER[3]]
    c = compared([optimizer(WEIGHTS, AFTER)], [optimizer(WEIGHTS, decayed)])
    assert c.status.tolist() == [Status.DIVERGED]
    assert c.role.tolist() == [Role.ORIGIN]
    assert c.cause.tolist() == [True]
    assert c.inputs_equal.tolist() == [True]
    assert c.error[0] == pytest.approx(1e-5, rel=0.5)
    assert slot_of(c).name == "layers.2.weight"


def test_weight_decay_that_is_an_operation_of_its_own_is_a_cause_at_any_learning_rate() -> None:
    """One run has an operation that the other has not, and what it does is far below what rounding may do."""

    def step(decay: float) -> list[Step]:
        """A decay, if there is one, and the update, as optimizers dispatch them without a fused kernel."""
        fields = {"phase": "optimizer"}
        weights, directions = WEIGHTS, [np.full_like(w, 0.5) for w in WEIGHTS]
        steps, made = [], [""] * 8
        if decay:
            decayed = [w * np.float32(1 - decay) for w in weights]
            mul = Step(
                key="optimizer/op_0__foreach_mul_", reads=weights, changed=dict(enumerate(decayed)), fields=fields
            )
            steps.append(mul)
            weights, made = decayed, [mul.key] * 4 + [""] * 4
        after = dict(enumerate(w - np.float32(1e-3) for w in weights))
        key = f"optimizer/op_{len(steps)}__foreach_addcdiv_"
        reads = [*weights, *directions]
        return [*steps, Step(key=key, reads=reads, made=made, changed=after, fields=fields)]

    c = compared(step(3e-6), step(0))
    assert dict(zip(c.status.tolist(), c.cause.tolist(), strict=True)) == {Status.ONLY_A: True, Status.DIVERGED: False}
    assert compared(step(3e-6), step(3e-6)).status.tolist() == [Status.EQUAL] * 2


def test_the_gradient_that_operations_of_one_run_make_is_named() -> None:
    """One run alone scales it, and adds to the result, as a reduction over ranks does."""
    gradient, scaled, added = WEIGHTS[0], 2 * WEIGHTS[0], 2 * WEIGHTS[0] + WEIGHTS[1]

    def steps(reduces: bool) -> list[Step]:
        out = [Step(key="layers.0/op_0_mm", reads=[X], gives=[gradient], fields={"phase": "backward"})]
        if reduces:
            read, made = [scaled, WEIGHTS[1]], ["sum/op_0_mul", ""]
            by = {"phase": "gradients"}
            out.append(Step(key=made[0], reads=[gradient], gives=[scaled], made=[out[0].key], fields=by))
            fields: dict[str, Any] = {**by, "parameters": ["layers.0.weight.grad", ""]}
            out.append(Step(key="sum/op_1_add_", reads=read, made=made, gives=[added], fields=fields))
        read, made = [WEIGHTS[2], added if reduces else gradient], ["", out[-1].key]
        fields = {"phase": "optimizer", "parameters": ["layers.0.weight", "layers.0.weight.grad"]}
        after = {0: read[0] - np.float32(0.1) * read[1]}
        return [*out, Step(key="optimizer/op_0__fused_sgd_", reads=read, made=made, changed=after, fields=fields)]

    c = compared(steps(True), steps(False))
    (row,) = np.flatnonzero(c.cause).tolist()
    assert c.a.keys[int(c.row_a[row])] == "sum/op_0_mul"
    assert "only a has this operation, which makes the gradient of layers.0.weight" in explain(c, row).headline


@pytest.mark.parametrize("both", [False, True])
def test_what_both_runs_alter_by_operations_without_a_partner_may_round(both: bool) -> None:
    """Gradients are scaled in one run, or in both: then what follows differs by rounding, not by what one run does."""

    def step(scales: bool, by: float) -> OpLog:
        fields, given = {"phase": "optimizer"}, WEIGHTS[0] * np.float32(by)
        scale = Step(key="optimizer/op_0_mul", reads=[WEIGHTS[0]], gives=[given], fields=fields)
        made = scale.key if scales else ""
        square = Step(key="optimizer/op_1_mul", reads=[given], made=[made], gives=[given * given], fields=fields)
        return captured_log([scale, square] if scales else [square])

    a, b = step(True, 0.1), step(both, 0.1 + 1e-7)
    last = np.array([len(a) - 1]), np.array([len(b) - 1])
    assert altered_by_one_run(a, b, *last, np.zeros(1, bool)).tolist() == [not both]


def test_an_update_that_is_rounded_otherwise_is_close_and_its_inputs_were_equal() -> None:
    other = [np.nextafter(w, np.float32(9)) for w in AFTER]
    c = compared([optimizer(WEIGHTS, AFTER)], [optimizer(WEIGHTS, other)])
    assert c.status.tolist() == [Status.CLOSE]
    assert c.inputs_equal.tolist() == [True]


def test_a_parameter_that_only_one_run_changed() -> None:
    frozen = optimizer(WEIGHTS, AFTER)
    frozen.changed = {slot: after for slot, after in enumerate(AFTER) if slot != 1}
    c = compared([optimizer(WEIGHTS, AFTER)], [frozen])
    assert c.status.tolist() == [Status.DIVERGED]
    assert (slot_of(c).name, slot_of(c).only) == ("layers.1.weight", "a")


def test_a_parameter_that_only_one_run_had_to_change() -> None:
    """Afterwards it holds the same in both."""
    ready = [WEIGHTS[0], AFTER[1], *WEIGHTS[2:]]
    late = optimizer(ready, AFTER)
    late.changed = {slot: after for slot, after in enumerate(AFTER) if slot != 1}
    c = compared([optimizer(WEIGHTS, AFTER)], [late])
    assert c.status.tolist() == [Status.EQUAL]


def test_what_differed_before_is_judged_as_rounding_is() -> None:
    near = [w * np.float32(1 + 1e-6) for w in WEIGHTS]
    late = optimizer(near, AFTER)
    late.changed = {}
    assert compared([optimizer(WEIGHTS, AFTER)], [late]).status[0] in (Status.CLOSE, Status.DIVERGED)


def test_an_update_that_went_to_nan_in_one_run() -> None:
    broken = [*AFTER[:3], np.full_like(AFTER[3], np.nan)]
    c = compared([optimizer(WEIGHTS, AFTER)], [optimizer(WEIGHTS, broken)])
    assert c.status.tolist() == [Status.NAN]
    assert c.error.tolist() == [math.inf]
    assert slot_of(c).name == "layers.3.weight"


def test_hundreds_of_parameters_take_milliseconds_each_time_they_differ() -> None:
    weights = [RNG.normal(size=(4,)).astype(np.float32) for _ in range(300)]
    after = [w * np.float32(0.5) for w in weights]
    other = [w * np.float32(0.5) for w in weights]
    other[217] = -other[217]
    c = compared([optimizer(weights, after)], [optimizer(weights, other)])
    assert slot_of(c).name == "layers.217.weight"


@pytest.mark.parametrize(
    "text", ["", "[", "{}", "[1]", '[{"input": "0"}]', '[{"input": 0, "l1": [], "sketch": 7}]', "[[]]"]
)
def test_a_broken_description_of_a_change_is_not_known(text: str) -> None:
    a, b = captured_log([optimizer(WEIGHTS, AFTER)]), captured_log([optimizer(WEIGHTS, AFTER)])
    b = replace(b, extra={**b.extra, "Mutated": Texts.of({0: text.encode()})})
    for c in (compare(a, b), compare(b, a)):
        assert len(c) == 1
        assert c.status[0] != Status.EQUAL


# ---------------------------------------------------------------------- shards


def shard(values: NDArray[Any], of: NDArray[Any], start: int = 0, kind: str = "Shard(0)") -> TensorSummary:
    offsets = [start] + [0] * (of.ndim - 1)
    placement = {"mesh": {"dp": 2}, "placements": [kind], "shape": list(of.shape), "offsets": offsets}
    return summary(values, placement=placement)


def test_a_shard_against_the_whole_is_not_judged() -> None:
    for part in (shard(Y[:8], Y), shard(Y[:5], Y), shard(Y / 2, Y, kind="Partial(sum)")):
        c = compared([mm(Y)], [mm(part)])
        assert c.status.tolist() == [Status.SHARDED]
        assert math.isnan(c.error[0])


def test_two_ranks_hold_other_shards() -> None:
    assert judged(mm(shard(Y[:8], Y)), mm(shard(Y[8:], Y, 8)))[0] == Status.SHARDED


def test_the_same_shard_is_compared_by_its_sketch() -> None:
    status, error, bound = judged(mm(shard(Y[8:], Y, 8)), mm(shard(-Y[8:], Y, 8)))
    assert (status, bound) == (Status.DIVERGED, False)
    assert error == pytest.approx(2.0, rel=0.5)
    assert judged(mm(shard(Y, Y, kind="Replicate()")), mm(Y))[0] == Status.EQUAL


def test_a_part_of_another_tensor_has_another_shape() -> None:
    assert judged(mm(Y), mm(shard(Y[:8], W[:16, :32])))[0] in (Status.SHAPE, Status.SHARDED)


def test_parameters_in_shards_are_not_judged_and_whole_ones_are() -> None:
    parts = [shard(w[:4], w) for w in AFTER[:3]]
    c = compared([optimizer(WEIGHTS, AFTER)], [optimizer(WEIGHTS, [*parts, AFTER[3]])])
    assert c.status.tolist() == [Status.SHARDED]
    c = compared([optimizer(WEIGHTS, AFTER)], [optimizer(WEIGHTS, [*parts, -AFTER[3]])])
    assert c.status.tolist() == [Status.DIVERGED]
    assert slot_of(c).name == "layers.3.weight"


# ---------------------------------------------------------------------- where it starts


def chain(*values: NDArray[Any], names: Sequence[str] = ("mul", "mm", "softmax"), seen: Any = None) -> list[Step]:
    """Operations of which each reads what the one before it made; `seen`: what the last one reads instead."""
    steps: list[Step] = []
    for i, (name, value) in enumerate(zip(names, values, strict=False)):
        reads = X if i == 0 else seen if seen is not None and i == len(values) - 1 else values[i - 1]
        steps.append(Step(key=f"m/op_{i}_{name}", reads=[reads], gives=[value], made=[steps[-1].key if steps else ""]))
    return steps


def roles(c: Comparison) -> list[tuple[str, Role, bool]]:
    return [(c.a.op_name(int(c.row_a[r])), Role(c.role[r]), bool(c.cause[r])) for r in np.flatnonzero(c.red)]


def test_the_origin_is_where_equal_bits_go_in_and_others_come_out() -> None:
    c = compared(chain(X, Y, Y * 2), chain(X, -Y, Y * -2))
    assert roles(c) == [("mm", Role.ORIGIN, True), ("softmax", Role.RECEIVER, False)]


def test_what_was_permuted_on_its_way_by_a_view_makes_the_reader_suspect() -> None:
    """Its maker is equal, its norm too; only its bits tell."""
    permuted = Y[::-1].copy()
    c = compared(chain(X, Y, Y * 2), chain(X, Y, permuted * 3, seen=permuted))
    assert roles(c) == [("softmax", Role.UNKNOWN, True)]


def test_a_second_cause_behind_the_first_is_found() -> None:
    """By norms, anything behind a red row could be its consequence; equal bits are not."""
    steps = [*chain(X, Y), Step(key="m/op_5_conv", reads=[W], gives=[W * 2])]
    other = [*chain(X, -Y), Step(key="m/op_5_conv", reads=[W], gives=[W * 3])]
    steps[1].key = other[1].key = "m/op_1_mm"
    assert [role for role in roles(compared(steps, other)) if role[2]] == [
        ("mm", Role.ORIGIN, True),
        ("conv", Role.ORIGIN, True),
    ]


def test_a_buffer_that_was_not_read_is_no_unknown_input() -> None:
    def gather(result: NDArray[Any]) -> Step:
        return Step(key="m/op_0__allgather_base_", reads=[None, X], gives=[result])

    c = compared([gather(Y)], [gather(-Y)])
    assert roles(c) == [("_allgather_base_", Role.ORIGIN, True)]
    assert c.inputs_equal.tolist() == [True]


# ---------------------------------------------------------------------- pairing


def test_rows_of_another_micro_batch_are_no_partners() -> None:
    """Their values are as near as those of the right one."""

    def batch(k: int, noise: float) -> list[Step]:
        rng = np.random.default_rng(k)
        made = [rng.normal(size=(8, 8)) + noise * rng.normal(size=(8, 8)) for _ in range(6)]
        return [
            Step(key=f"m/op_{6 * k + i}_mm", reads=[values * 2], gives=[values], fields={"micro_batch": k})
            for i, values in enumerate(made)
        ]

    c = compared([*batch(0, 0), *batch(1, 0)], [*batch(0, 0.1), *batch(1, 0.1)])
    assert (c.pair >= 0).all()
    assert (c.a.micro_batch[c.row_a] == c.b.micro_batch[c.row_b]).all()


@pytest.mark.parametrize("share", [0, 1])
def test_the_only_micro_batch_of_a_run_is_the_one_it_is_like(share: int) -> None:
    """A rank that got its share of the batch calls it its first."""

    def batch(k: int, label: int) -> list[Step]:
        rng = np.random.default_rng(k)
        return [
            Step(key=f"m/op_{i}_mm", reads=[], gives=[rng.normal(size=(8, 8))], fields={"micro_batch": label})
            for i in range(6)
        ]

    c = compared([*batch(0, 0), *batch(1, 1)], batch(share, 0))
    paired = c.pair >= 0
    assert paired.sum() == 6
    assert (c.status[paired] == Status.EQUAL).all()
    assert (c.a.micro_batch[c.row_a[paired]] == share).all()


def test_what_is_labelled_otherwise_throughout_is_paired_all_the_same() -> None:
    """Gradients are clipped behind the last micro-batch, whichever that is."""

    def steps(batches: int) -> list[Step]:
        made = [
            Step(key=f"m/op_{k}_mm", gives=[Y * (k + 1)], reads=[X * (k + 1)], fields={"micro_batch": k})
            for k in range(batches)
        ]
        return [*made, Step(key="clip/op_0_clamp", gives=[W], reads=[W * 2], fields={"micro_batch": batches - 1})]

    c = compared(steps(2), steps(1))
    assert c.counts[Status.EQUAL] == 2
    assert c.counts[Status.ONLY_A] == 1


def test_a_recomputed_copy_is_said_to_be_one_and_pairs_with_its_like() -> None:
    first = Step(key="m/op_0_mm", reads=[X, W], gives=[Y])
    again = Step(key="m/op_1_mm", reads=[X, W], gives=[Y], fields={"phase": "backward", "recompute": True})
    gradient = Step(key="m/op_2_mm", reads=[Y, W], gives=[Y * 2], fields={"phase": "backward"})
    c = compared([first, gradient], [first, again, gradient])
    assert c.status.tolist() == [Status.EQUAL, Status.RECOMPUTE, Status.EQUAL]
    assert c.original.tolist() == [-1, 0, -1]
    assert compared([first, again, gradient], [first, again, gradient]).counts[Status.EQUAL] == 3


@pytest.mark.parametrize(("module", "said"), [("m", "m/op_0_mm"), ("n", "m/op_0_mm in a and n/op_0_mm in b")])
def test_copies_of_partners_are_partners_and_say_what_they_repeat(module: str, said: str) -> None:
    def steps(module: str, factor: float) -> list[Step]:
        reads = [X * factor, W]
        again = {"phase": "backward", "recompute": True}
        return [
            Step(key=f"{module}/op_0_mm", reads=reads, gives=[Y * factor]),
            Step(key=f"{module}/op_1_mm", reads=reads, gives=[Y * factor], fields=again),
        ]

    c = compared(steps("m", 1.0), steps(module, 1.5))
    assert c.pairing.method.tolist() == [Method.ALIGNED, Method.DATAFLOW]
    assert c.original.tolist() == [-1, 0]
    assert explain(c, 1).pairing == f"paired as recomputed copies of partners, both of {said}, confidence 0.99"


def test_the_same_result_of_something_else_is_found_by_its_bits() -> None:
    """Whatever went in."""
    noise = [Step(key=f"m/op_{i}_mm", reads=[X * i], gives=[Y * (i + 2)]) for i in range(1, 5)]
    c = compared([*noise, mm(Y)], [replace(mm(Y, reads=(-X, -W)), key="other/op_9_mm"), *noise])
    row = int(c.at_a[4])
    assert c.b.keys[int(c.row_b[row])] == "other/op_9_mm"
    assert c.status[row] == Status.EQUAL


def test_a_log_with_digests_against_one_without() -> None:
    """As good as the other log is."""
    known = summary(Y)
    old = op(
        "layers.0.wq/op_0_mm",
        shape=Y.shape,
        l2=known.l2,
        min=known.min,
        max=known.max,
        mean=known.mean,
        outputs=[known.l1],
        inputs=[summary(X).l1, summary(W).l1],
    )
    c = compare(captured_log([mm(Y)]), made_up_log([old]))
    assert c.status.tolist() == [Status.CLOSE]  # seven digits against all of them
    masked = captured_log([mm(with_odd(-np.inf, 3))])
    c = compare(masked, made_up_log([replace(old, outputs=["inf"], l2="inf", min="-inf", mean="-inf")]))
    assert c.status.tolist() == [Status.CLOSE]
    assert compare(masked, made_up_log([old])).status.tolist() == [Status.NAN]
    broken = captured_log([mm(with_odd(np.nan, 3))])
    assert compare(broken, made_up_log([old])).status.tolist() == [Status.NAN]
