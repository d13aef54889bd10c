"""What float arithmetic explains: real runs that differ in the order of sums, and made-up ones for each case."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare, noise_floor
from matchers.explain.facts import ground_of, inputs_of
from matchers.explain.limits import limit_of
from matchers.explain.sentences import explain
from matchers.explain.subject import Subject
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.logs.parser import read_log
from matchers.rules.file import parse_rules
from matchers.status import Role, Status
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from matchers.verdict.received import Nodes
from matchers.verdict.tolerance import systematic_share
from tests.builders import op
from tests.captured import Step, captured_log, summary
from tests.conftest import DATA
from tests.matchers.drifted_logs import made_up_log

ORDER = Expectation(preset=Expect.REDUCTION_ORDER)
Array = NDArray[np.float32]


@cache
def of(name: str) -> OpLog:
    return read_log(DATA / f"order_{name}.log.gz")


def noisy(dtype: str, other: str) -> Comparison:
    a, b, third = of(f"{dtype}_a"), of(f"{dtype}_{other}"), of(f"{dtype}_noise")
    return compare(a, b, expectation=Expectation(noise=noise_floor(a, b, third)))


def causes(c: Comparison) -> list[str]:
    return [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)]


# Real runs


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_another_order_of_sums_is_nothing_red(dtype: str) -> None:
    c = compare(of(f"{dtype}_a"), of(f"{dtype}_b"), expectation=ORDER)
    assert c.counts[Status.CLOSE] > 200, "the runs do differ"
    assert not c.red.any()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_factor_of_one_percent_on_top_is_the_first_cause(dtype: str) -> None:
    """In bfloat16 the factor is of the size of the noise."""
    c = compare(of(f"{dtype}_a"), of(f"{dtype}_bug"), expectation=ORDER)
    assert causes(c) == ["layers.1.attention/op_5_mul"]
    (row,) = np.flatnonzero(c.cause)
    assert c.role[row] == Role.ORIGIN
    reason = {"f32": "more than float arithmetic explains", "bf16": "the scalar argument, 0.25 in a and 0.252"}
    assert reason[dtype] in explain(c, int(row)).headline


def test_with_a_log_of_noise_no_preset_is_needed() -> None:
    assert not noisy("bf16", "b").red.any()
    assert causes(noisy("bf16", "bug")) == ["layers.1.attention/op_5_mul"]


def test_a_log_of_noise_says_what_it_is() -> None:
    c = noisy("bf16", "b")
    (note,) = [note.text for note in c.comparability.notes if note.kind == "noise"]
    assert note.startswith("the noise log repeats a, perturbed: ")
    row = int(np.flatnonzero(c.status == Status.CLOSE)[-1])
    assert any(fact.name == "noise" for fact in explain(c, row).facts)


def test_a_repetition_to_the_bit_shows_no_noise() -> None:
    a, b = of("f32_a"), of("f32_b")
    c = compare(a, b, expectation=Expectation(noise=noise_floor(a, b, a)))
    assert "repeats a bitwise and shows no noise" in c.comparability.sentence
    assert not c.red.any(), "what is unknown is judged by its inputs"


def test_bitwise_any_difference_is_red() -> None:
    c = compare(of("f32_a"), of("f32_b"), expectation=Expectation(preset=Expect.BITWISE))
    assert not c.counts[Status.CLOSE]
    assert c.red.sum() > 200
    assert not compare(of("f32_a"), of("f32_a"), expectation=Expectation(preset=Expect.BITWISE)).red.any()


def test_another_dtype_is_low_precision() -> None:
    c = compare(of("f32_a"), of("bf16_a"), expectation=Expectation(preset=Expect.LOW_PRECISION))
    assert not c.red.any()
    # sums in another order are no rounding: their parts are no tensors that both runs have
    assert c.error[c.status == Status.CLOSE].max() < 0.1
    assert c.error[c.status == Status.PARTIAL].max() > 0.5
    assert c.counts[Status.CLOSE] > 200


def test_a_tolerance_for_everything() -> None:
    a, b = of("bf16_a"), of("bf16_bug")
    assert not compare(a, b, expectation=Expectation(rtol=1.0)).red.any()
    assert compare(a, b, expectation=Expectation(rtol=0.0)).red.sum() > 200


def test_rules_say_more_than_what_is_expected() -> None:
    rules = parse_rules("version: 1\ntolerance:\n  - match: 'layers.1.*'\n    rtol: 0.5\n")
    c = compare(of("bf16_a"), of("bf16_bug"), rules, expectation=ORDER)
    assert not c.red.any()


def test_other_rules_leave_the_expectation() -> None:
    c = compare(of("bf16_a"), of("bf16_bug"), expectation=ORDER)
    rules = parse_rules("version: 1\ntolerance:\n  - match: 'layers.1.attention/*'\n    rtol: 0.5\n")
    again, anew = c.with_rules(rules), compare(c.a, c.b, rules, expectation=ORDER)
    assert np.array_equal(again.status, anew.status)
    assert np.array_equal(again.tolerance, anew.tolerance, equal_nan=True)
    assert np.array_equal(c.with_rules(c.rules).status, c.status)


# Made-up runs


def values(n: int = 4096, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)


def off(x: Array, error: float, seed: int) -> Array:
    """The array with a relative error in all directions."""
    return (x * (1 + error * np.random.default_rng(seed).normal(size=x.shape))).astype(np.float32)


def chain(steps: list[Array], op: str = "mm", dtype: str = "float32") -> OpLog:
    """Operations in a row, each reading the one before."""
    out: list[Step] = []
    for k, x in enumerate(steps):
        reads = [summary(steps[k - 1], dtype=dtype)] if k else []
        made = [out[-1].key] if k else []
        out.append(Step(key=f"layers.{k}/op_0_{op}", gives=[summary(x, dtype=dtype)], reads=reads, made=made))
    return captured_log(out)


def outcome(c: Comparison, k: int) -> Reason:
    assert c.arithmetic is not None
    return Reason(c.arithmetic.reason[int(np.flatnonzero(c.pairing.lead_a == k)[0])])


def test_an_error_that_grows_by_little_is_explained_however_large() -> None:
    """Each step doubles it: far beyond any fixed tolerance in the end, and no step did anything wrong."""
    exact = [values(seed=k) for k in range(16)]
    other = [off(x, 1e-6 * 2**k, 100 + k) for k, x in enumerate(exact)]
    assert compare(chain(exact), chain(other)).red.any()
    assert not compare(chain(exact), chain(other), expectation=ORDER).red.any()


def test_an_error_that_jumps_is_not() -> None:
    exact = [values(seed=k) for k in range(8)]
    other = [off(x, 1e-6 if k < 4 else 1e-3, 100 + k) for k, x in enumerate(exact)]
    c = compare(chain(exact), chain(other), expectation=ORDER)
    assert causes(c) == ["layers.4/op_0_mm"]
    assert outcome(c, 4) == Reason.MORE_THAN_ROUNDING
    assert c.red.tolist() == [False] * 4 + [True] * 4, "what reads a red row is excused by nothing"


def cell(error: float, steps: int = 1) -> OpLog:
    """A recurrent layer as one operation, or as many in a row, between two that both runs have."""
    exact = [values(seed=k) for k in range(steps + 2)]
    out = [Step(key="embed/op_0_embedding", gives=[exact[0]])]
    for k in range(steps):
        name = "lstm" if steps == 1 else "tanh" if k % 2 else "addmm"
        reads, made = [exact[k]], [out[-1].key]
        out.append(Step(key=f"rnn/op_{k}_{name}", gives=[exact[k + 1]], reads=reads, made=made))
    last = off(values(seed=99), error, 100)
    out.append(Step(key="head/op_0_mm", gives=[last], reads=[exact[steps]], made=[out[-1].key]))
    return captured_log(out)


def test_roundings_of_a_hundred_operations_of_one_run_are_independent() -> None:
    """They add up as the root of their number: a thousandth is a mistake, a fifth of it is not."""
    assert not compare(cell(0.0), cell(2e-4, steps=100), expectation=ORDER).red.any()
    assert compare(cell(0.0), cell(1e-3, steps=100), expectation=ORDER).red.any()


def test_a_factor_moves_the_norm_and_noise_does_not() -> None:
    exact = [values(seed=k) for k in range(3)]
    noise = [off(x, 6e-3, 100 + k) for k, x in enumerate(exact)]
    assert not compare(chain(exact, dtype="bfloat16"), chain(noise, dtype="bfloat16"), expectation=ORDER).red.any()
    wrong = [noise[0], noise[1] * np.float32(1.01), noise[2]]
    c = compare(chain(exact, dtype="bfloat16"), chain(wrong, dtype="bfloat16"), expectation=ORDER)
    assert outcome(c, 1) == Reason.SYSTEMATIC
    assert "the norm changed by" in explain(c, 1).headline


@pytest.mark.parametrize(("norm", "red"), [(1.03, True), (1.0005, False)])
def test_rounding_of_what_one_run_alone_computes_moves_no_norm(norm: float, red: bool) -> None:
    """A factor of eight roundings of bfloat16, where single elements may be off by more: of micro-batches, without a
    sketch.
    """

    def of(x: Array, factor: float = 1.0, largest: float = 1.0) -> Any:
        one: Any = summary(x, dtype="bfloat16", sketch=False)
        digest = int(1e6 * (factor + 3 * largest))
        return replace(one, l1=one.l1 * factor, l2=one.l2 * factor, max=one.max * largest, digest=digest)

    given = Step(key="a/op_0_mm", gives=[summary(values(seed=1), dtype="bfloat16")])
    scaled = Step(key="a/op_1_mul", gives=[of(values(seed=1), norm)], reads=given.gives, made=[given.key])
    total = Step(key="a/op_2_add", gives=[of(values(seed=2))], reads=given.gives, made=[given.key])
    other = replace(total, gives=[of(values(seed=2), norm, 1.031)], reads=scaled.gives, made=[scaled.key])
    c = compare(captured_log([given, total]), captured_log([given, scaled, other]), expectation=ORDER)
    assert (outcome(c, 1) == Reason.SYSTEMATIC) == bool(c.red.any()) == red


def test_a_norm_is_allowed_less_than_a_single_element() -> None:
    """Without an estimate of the tensors themselves: what the extremes may be off by excuses no change of the norm."""

    def log(norm: float, largest: float) -> OpLog:
        x: Any = summary(values(), sketch=False)
        given = Step(key="a/op_0_mm", gives=[values(seed=1)])
        x = replace(x, l1=x.l1 * norm, l2=x.l2 * norm, max=x.max * largest, digest=int(1e6 * (norm + 3 * largest)))
        return captured_log([given, Step(key="a/op_1_mm", gives=[x], reads=[values(seed=1)], made=[given.key])])

    element = compare(log(1, 1), log(1, 1 + 1e-4), expectation=ORDER)
    assert not element.red.any()
    c = compare(log(1, 1), log(1 + 5e-5, 1 + 1e-4), expectation=ORDER)
    assert outcome(c, 1) == Reason.SYSTEMATIC
    assert "the norm changed by 5.0e-05" in explain(c, 1).headline


def test_float32_that_reads_bfloat16_is_no_more_exact_than_it() -> None:
    def log(first: Array, second: Array) -> OpLog:
        one = Step(key="a/op_0_mm", gives=[summary(first, dtype="bfloat16")])
        reads = [summary(first, dtype="bfloat16")]
        return captured_log([one, Step(key="a/op_1__to_copy", gives=[second], reads=reads, made=[one.key])])

    x = values()
    y = off(x, 3e-3, 1)
    assert compare(log(x, x), log(y, y)).red.any()
    assert not compare(log(x, x), log(y, y), expectation=ORDER).red.any()


def test_a_mask_does_not_hide_the_error_from_what_comes_behind_it() -> None:
    """The lowest number beside the scores makes their relative error vanish; the softmax brings it back."""

    def log(scores: Array) -> OpLog:
        masked = scores.copy()
        masked[:, ::2] = np.finfo(np.float32).min
        soft = np.exp(scores) * (masked > -1e30)
        soft = (soft / soft.sum(axis=1, keepdims=True)).astype(np.float32)
        first = Step(key="a/op_0_mm", gives=[scores])
        mask = Step(key="a/op_1_masked_fill", gives=[masked], reads=[scores], made=[first.key])
        last = Step(key="a/op_2__softmax", gives=[soft], reads=[masked], made=[mask.key])
        return captured_log([first, mask, last])

    x = values().reshape(64, 64) * np.float32(3)
    c = compare(log(x), log(off(x, 1e-5, 1)), expectation=ORDER)
    assert c.error[1] < 1e-30
    assert not c.red.any()


def test_what_only_one_run_has_hands_errors_on() -> None:
    x, z = values(), values(seed=9)

    def log(first: Array, last: Array, between: bool) -> OpLog:
        steps = [Step(key="a/op_0_mm", gives=[first])]
        if between:
            steps.append(Step(key="a/op_1_clone", gives=[first], reads=[first], made=[steps[-1].key]))
        steps.append(Step(key="a/op_2_bmm", gives=[last], reads=[first], made=[steps[-1].key]))
        return captured_log(steps)

    e = 1e-5
    right = compare(log(x, z, False), log(off(x, e, 1), off(z, e, 2), True), expectation=ORDER)
    assert not right.red.any()
    wrong = compare(log(x, z, False), log(off(x, e, 1), off(z, 100 * e, 2), True), expectation=ORDER)
    assert causes(wrong) == ["a/op_2_bmm"]


def test_what_no_log_shows_rounds_all_the_same() -> None:
    """Norms of parts of parameters: only their sum over the ranks is known, and torch adds squares up in float32."""
    gradient, norms = values(), values(45)

    def log(result: Array) -> OpLog:
        read = Step(key="a/op_0_mm", gives=[gradient])
        unseen = Step(key="clip/op_0__foreach_norm", gives=[result], reads=[gradient], made=[read.key])
        total = Step(key="clip/op_1_all_reduce", gives=[result], reads=[result], made=[unseen.key])
        return without_values(captured_log([read, unseen, total]), 1)

    assert not compare(log(norms), log(off(norms, 1e-4, 1)), expectation=ORDER).red.any()
    wrong = compare(log(norms), log(off(norms, 1e-2, 1)), expectation=ORDER)
    assert causes(wrong) == ["clip/op_1_all_reduce"]


@pytest.mark.parametrize(
    ("error", "expected"), [(1e-5, Status.CLOSE), (1.2e-3, Status.NOT_JUDGED), (1e-2, Status.DIVERGED)]
)
def test_what_no_log_shows_excuses_no_large_error(error: float, expected: Status) -> None:
    """The rounding of thirty operations allows 2e-3 behind them; a factor of 1.001 is no more than that."""
    x, last = values(), values(seed=5)

    def log(result: Array) -> OpLog:
        made = chain([x] * 31 + [result])
        for unseen in range(1, 31):
            made = without_values(made, unseen)
        return made

    c = compare(log(last), log(off(last, error, 1)), expectation=ORDER)
    assert c.status[-1] == expected
    if expected is Status.NOT_JUDGED:
        assert ground_of(c, 31).endswith("would allow 1.8e-03, which neither log shows")


def test_what_is_not_judged_excuses_nothing() -> None:
    """A reader of an error that no log shows a reason for has none either."""
    x, last, after = values(), values(seed=5), values(seed=6)

    def log(error: float) -> OpLog:
        made = chain([x] * 31 + [off(last, error, 1), off(after, error, 1), after])
        for unseen in range(1, 31):
            made = without_values(made, unseen)
        return made

    c = compare(log(0.0), log(1.2e-3), expectation=ORDER)
    assert c.status[-3:].tolist() == [Status.NOT_JUDGED, Status.NOT_JUDGED, Status.EQUAL]


@pytest.mark.parametrize(("error", "expected"), [(1e-5, Status.CLOSE), (1.2e-3, Status.DIVERGED)])
def test_an_operation_of_one_run_alone_explains_what_no_log_shows(error: float, expected: Status) -> None:
    x, last = values(), values(seed=5)

    def log(result: Array, *inserted: Step) -> OpLog:
        steps = [Step(key=f"layers.{k}/op_0_mm", gives=[x], made=[f"layers.{k - 1}/op_0_mm"][:k]) for k in range(31)]
        before = [*steps, *inserted][-1]
        read = Step(key="layers.31/op_0_mm", gives=[result], reads=[x], made=[before.key])
        made = captured_log([*(replace(s, reads=[x] * len(s.made)) for s in steps), *inserted, read])
        for unseen in range(1, 31):
            made = without_values(made, unseen)
        return made

    scaled = Step(key="extra/op_0_mul", gives=[x], reads=[x], made=["layers.30/op_0_mm"])
    c = compare(log(last), log(off(last, error, 1), scaled), expectation=ORDER)
    assert c.status[-1] == expected
    assert [c.b.keys[c.row_b[row]] for row in np.flatnonzero(c.cause)] == [scaled.key] * int(c.red.any())


@pytest.mark.parametrize(("op", "rounds"), [("all_reduce", True), ("all_gather_into_tensor", False)])
def test_a_collective_of_one_run_alone_rounds_if_it_adds_up(op: str, rounds: bool) -> None:
    x = values()
    first = Step(key="layers.0/op_0_mm", gives=[x])
    inserted = Step(key=f"comm/op_0_{op}", gives=[x * 2], reads=[x], made=[first.key])
    c = compare(captured_log([first]), captured_log([first, inserted]))
    no = np.zeros(len(c.pairing), bool)
    zero = no.astype(np.float64)
    nodes = Nodes(c.a, c.b, c.pairing, zero, 0.0, values=zero + np.nan, settled=no, parts=no, whole=no)
    assert (nodes.own[nodes.b[1]] > 0) == rounds


def test_a_norm_shows_little_of_an_error_that_the_next_sketch_shows() -> None:
    """Shards between DTensors have norms, which add up, and no sketch."""
    exact = [values(seed=k) for k in range(3)]

    def log(error: float, last: float) -> OpLog:
        made = chain([off(x, e, k) for k, (x, e) in enumerate(zip(exact, (error, error, last), strict=True))])
        stats, present = made.stats.copy(), made.present.copy()
        stats[2:, 1], present[1] = np.nan, 0b11  # no extremes
        sketches = made.texts("Sketch").changed({1: b""})
        return replace(made, stats=stats, present=present, extra={**made.extra, "Sketch": sketches})

    assert not compare(log(0, 0), log(3e-6, 4e-5), expectation=ORDER).red.any()
    assert causes(compare(log(0, 0), log(3e-6, 2e-3), expectation=ORDER)) == ["layers.2/op_0_mm"]


def without_values(log: OpLog, row: int) -> OpLog:
    """The log without the results of a record, and without what others read of it."""
    stats, present = log.stats.copy(), log.present.copy()
    stats[:, row], present[row] = np.nan, 0
    outputs, inputs = log.outputs.value.copy(), log.inputs.value.copy()
    digests, input_digests = log.digests.value.copy(), log.input_digests.value.copy()
    outputs[log.outputs.start[row]], digests[log.digests.start[row]] = np.nan, NO_DIGEST
    inputs[log.inputs.start[row + 1]], input_digests[log.input_digests.start[row + 1]] = np.nan, NO_DIGEST
    return replace(
        log,
        stats=stats,
        present=present,
        outputs=Ragged(log.outputs.start, outputs),
        inputs=Ragged(log.inputs.start, inputs),
        digests=Ragged(log.digests.start, digests),
        input_digests=Ragged(log.input_digests.start, input_digests),
        extra={name: texts.changed({row: b""}) for name, texts in log.extra.items()},
    )


def test_whole_numbers_do_not_round() -> None:
    def log(index: NDArray[np.int64]) -> OpLog:
        return captured_log([Step(key="router/op_0_topk", gives=[index])])

    c = compare(log(np.arange(8)), log(np.arange(8)[::-1].copy()), expectation=ORDER)
    assert c.red.all()


@pytest.mark.parametrize(("exchanged", "red"), [(True, True), (False, False)])
def test_another_part_of_a_result_that_agrees_excuses_nothing(exchanged: bool, red: bool) -> None:
    """One run reads the values of attention where the other reads the keys: these differ, what holds both agrees."""
    x = values(256)
    x[:128] *= 1.05

    def log(x: Array, part: Array) -> OpLog:
        # without sketches, as in folded micro-batches
        whole, read = summary(x), summary(part, sketch=False)
        return captured_log(
            [
                Step(key="qkv/op_0_mm", gives=[whole]),
                Step(key="attention/op_0_clone", gives=[read], reads=[read], made=["qkv/op_0_mm"]),
            ]
        )

    y = off(x, 1e-6, 1)
    c = compare(log(x, x[:128]), log(y, y[128:] if exchanged else y[:128]), expectation=ORDER)
    assert c.red.any() == red
    assert not (c.status == Status.NOT_JUDGED).any()


def test_what_only_one_run_does_to_a_tensor_excuses_nothing() -> None:
    """A factor that is an operation of its own, which the other run does not have."""
    x, z = values(), values(seed=9)

    def log(factor: float) -> OpLog:
        steps = [Step(key="a/op_0_mm", gives=[x])]
        seen = x * np.float32(factor)
        if factor != 1:
            steps.append(Step(key="a/op_1_mul", gives=[seen], reads=[x], made=[steps[-1].key]))
        steps.append(Step(key="a/op_2_bmm", gives=[z * np.float32(factor)], reads=[seen], made=[steps[-1].key]))
        return captured_log(steps)

    c = compare(log(1), log(1.01), expectation=ORDER)
    assert c.red.any()
    assert [c.b.keys[int(c.row_b[row])] for row in np.flatnonzero(c.cause)] == ["a/op_1_mul"]


def routed(scores: Array, k: int = 2, offset: float = 0.0) -> OpLog:
    """A router that sends rows of values to the places with the highest scores."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, axis=1) + np.float32(offset)
    table = np.random.default_rng(5).normal(size=(scores.shape[1], 8)).astype(np.float32)
    first = Step(key="router/op_0_mm", gives=[scores])
    top = Step(key="router/op_1_topk", gives=[best, order], reads=[scores], made=[first.key])
    odd = Step(key="router/op_2_remainder", gives=[order % 2], reads=[order], made=[top.key])
    picked = Step(key="router/op_3_index", gives=[table[order]], reads=[table, order], made=["", top.key])
    return captured_log([first, top, odd, picked])


def test_a_near_tie_may_be_decided_otherwise() -> None:
    scores = values(4096).reshape(512, 8)
    scores[:8, 1] = scores[:8, 0] = 9.0
    noise = off(scores, 1e-6, 1)
    c = compare(routed(scores), routed(noise))
    assert [Status(s) for s in c.status[1:]] == [Status.DIVERGED] * 3, "whole numbers do not round"
    assert not compare(routed(scores), routed(noise), expectation=ORDER).red.any()


@pytest.mark.parametrize(("flips", "red"), [(4, False), (400, True)])
def test_a_sign_near_zero_may_be_decided_otherwise(flips: int, red: bool) -> None:
    """Behind a ReLU, a few elements of the gradient pass in one run alone."""
    x, gradient = values(), values(seed=1)
    other = off(x, 1e-5, 2)
    passed = np.where(x > 0, gradient, 0.0).astype(np.float32)
    otherwise = passed.copy()
    otherwise[np.argsort(np.abs(x))[:flips]] = gradient[np.argsort(np.abs(x))[:flips]]

    def log(x: Array, result: Array) -> OpLog:
        linear = Step(key="up/op_0_mm", gives=[x])
        back = {"phase": "backward"}
        down = Step(key="down/op_0_mm", gives=[gradient], fields=back)
        key, made = "relu/op_0_threshold_backward", [down.key, linear.key]
        return captured_log([linear, down, Step(key=key, gives=[result], reads=[gradient, x], made=made, fields=back)])

    assert compare(log(x, passed), log(other, otherwise), expectation=ORDER).red.any() == red


def test_what_sorts_by_a_choice_that_a_near_tie_decides_has_any_order() -> None:
    """One token of another expert moves all that it comes before; those of one expert have no order."""
    scores = values(4096).reshape(512, 8)
    scores[:2, 1] = scores[:2, 0] = 9.0

    def log(scores: Array, *, stable: bool) -> OpLog:
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, 0]
        order = np.argsort(chosen, kind="stable") if stable else np.lexsort((-np.arange(512), chosen))
        first = Step(key="router/op_0_mm", gives=[scores])
        top = Step(key="router/op_1_topk", gives=[scores.max(1), chosen], reads=[scores], made=[first.key])
        by_expert = Step(key="router/op_2_sort", gives=[chosen[order], order], reads=[chosen], made=[top.key])
        return captured_log([first, top, by_expert])

    c = compare(log(scores, stable=True), log(off(scores, 1e-6, 1), stable=False), expectation=ORDER)
    assert not c.red.any()
    assert c.reason[2] == Reason.CHOSEN_OTHERWISE


def test_ranks_of_other_values_are_no_near_tie() -> None:
    scores = values(4096).reshape(512, 8)
    noise = off(scores, 1e-6, 1)
    wrong = compare(routed(scores), routed(np.roll(noise, 1, axis=0)), expectation=ORDER)
    assert wrong.red.all()
    shifted = compare(routed(scores), routed(noise, offset=0.01), expectation=ORDER)
    assert causes(shifted) == ["router/op_1_topk"]


def test_other_positions_that_pick_the_same_values_excuse_nothing_behind_them() -> None:
    """Parts of a batch sort their tokens by themselves: the same rows, of which no sketch tells the order."""

    def log(scores: Array, flip: int, factor: float = 1.0) -> OpLog:
        order = np.argsort(-scores, axis=1, kind="stable")[:, :2]
        table = np.random.default_rng(5).normal(size=(scores.shape[1], 8)).astype(np.float32)
        picked = np.roll(table[order], flip, axis=0)
        place, rows, made = (order ^ flip) + 10_000, table[np.arange(8) ^ flip], picked * np.float32(factor)
        values, last = (replace(summary(each, sketch=False), digest=None) for each in (picked, made))
        first = Step(key="router/op_0_mm", gives=[scores])
        top = Step(key="router/op_1_argsort", gives=[place], reads=[scores], made=[first.key])
        pick = Step(key="router/op_2_index", gives=[values], reads=[rows, place], made=["", top.key])
        scaled = Step(key="experts/op_0_mul", gives=[last], reads=[values], made=[pick.key])
        return captured_log([first, top, pick, scaled])

    scores = values(4096).reshape(512, 8)
    noise = off(scores, 1e-6, 1)
    assert not compare(log(scores, 0), log(noise, 1), expectation=ORDER).red.any()
    # less than the positions are off by
    assert causes(compare(log(scores, 0), log(noise, 1, 1.00005), expectation=ORDER)) == ["experts/op_0_mul"]


def test_operations_that_are_not_steady_are_named() -> None:
    x, y = values(), values(seed=3)

    def log(last: Array) -> OpLog:
        first = Step(key="a/op_0_mm", gives=[x])
        return captured_log([first, Step(key="a/op_1_index_add", gives=[last], reads=[x], made=[first.key])])

    a, b, third = log(y), log(off(y, 2e-4, 1)), log(off(y, 2e-4, 2))
    c = compare(a, b, expectation=Expectation(noise=noise_floor(a, b, third)))
    assert not c.red.any()
    assert any(
        "non-deterministic, other results" in n.text and "a/op_1_index_add" in n.text for n in c.comparability.notes
    )
    assert compare(a, b, expectation=ORDER).red.any(), "without the third run it is more than rounding"


def test_the_share_of_rounding_in_a_norm() -> None:
    share = systematic_share(np.array([1.0, 100.0, 1e4, 1e8, np.nan]))
    assert share.tolist() == pytest.approx([1.0, 0.625, 0.175, 0.1255, 1.0])


def test_noise_is_that_of_the_run_whose_results_it_is_near_where_both_have_the_same_keys() -> None:
    def run(scale: float) -> OpLog:
        return made_up_log([op(f"layers.{k}/op_0_mm", scale * (k + 2)) for k in range(4)])

    good, bad, bad_again = run(1.0), run(1.5), run(1.5 + 1e-7)
    assert noise_floor(good, bad, bad_again).side == "b"
    assert noise_floor(bad, good, bad_again).side == "a"
    assert noise_floor(good, good, bad_again).side == "a"


def test_what_a_fixed_tolerance_allows_is_allowed() -> None:
    """An elementwise operation is exact to 4 ε, but 5e-6 is no divergence without an expectation either."""
    exact = [values(seed=k) for k in range(2)]

    def log(*errors: float) -> OpLog:
        return chain([off(x, error, 9) for x, error in zip(exact, errors, strict=True)], op="relu")

    assert not compare(log(0, 0), log(1e-7, 5e-6)).red.any()
    c = compare(log(0, 0), log(1e-7, 5e-6), expectation=ORDER)
    assert not c.red.any()
    assert "within the tolerance of" in explain(c, 1).headline
    assert compare(log(0, 0), log(1e-7, 5e-3), expectation=ORDER).red.any()


def test_a_cast_to_a_dtype_that_the_other_run_never_uses_is_no_rounding() -> None:
    """The same formulas in the same dtypes were expected."""
    x = values()
    low = off(x, 2e-3, 3)

    def log(cast: bool, dtype: str = "bfloat16") -> OpLog:
        out = [Step(key="a/op_0_mm", gives=[x])]
        if cast:
            out.append(Step(key="a/op_0__to_copy", gives=[summary(low, dtype=dtype)], reads=[x], made=[out[-1].key]))
        given = summary(low, dtype=dtype) if cast else x
        gives = [np.exp(low if cast else x)]
        return captured_log([*out, Step(key="a/op_1_exp", gives=gives, reads=[given], made=[out[-1].key])])

    c = compare(log(False), log(True), expectation=ORDER)
    assert [c.b.keys[c.row_b[row]] for row in np.flatnonzero(c.cause)] == ["a/op_0__to_copy"]
    assert not compare(log(False), log(True), expectation=Expectation(preset=Expect.LOW_PRECISION)).red.any()


@pytest.mark.parametrize(("error", "expected"), [(2e-2, Status.CLOSE), (5e-2, Status.NOT_JUDGED)])
def test_an_allowance_for_nearly_anything_is_no_verdict(error: float, expected: Status) -> None:
    """Noise of 3e-2 allows 0.12; noise of 1e-2 allows 0.04."""
    exact = [values(seed=k) for k in range(3)]
    other = [off(x, error, 100 + k) for k, x in enumerate(exact)]
    third = [off(x, error * 0.6, 200 + k) for k, x in enumerate(exact)]
    a, b, c = (chain(v) for v in (exact, other, third))
    found = compare(a, b, expectation=Expectation(noise=noise_floor(a, b, c)))
    assert set(found.status.tolist()) == {expected}
    assert not found.red.any()


@pytest.mark.parametrize(("factor", "red"), [(1.0, False), (1.01, True)])
def test_the_inverse_root_of_a_small_square_is_farther_off(factor: float, red: bool) -> None:
    """The second moment of a gradient that is small in one element, by which an update is divided."""
    gradient = values(32) * np.float32(1e-3)
    gradient[0] = 1e-5

    def log(gradient: Array, factor: float) -> OpLog:
        square, update = gradient * gradient, {"phase": "optimizer"}
        inverse = (np.float32(factor) / np.sqrt(square)).astype(np.float32)
        steps = [
            Step(key="a/op_0_mm", gives=[gradient]),
            Step(key="a/op_1_pow", gives=[square], reads=[gradient], made=["a/op_0_mm"]),
            Step(key="a/op_2_rsqrt", gives=[inverse], reads=[square], made=["a/op_1_pow"], fields=update),
        ]
        return captured_log(steps)

    c = compare(log(gradient, 1.0), log(gradient + values(32, seed=1) * np.float32(5e-10), factor), expectation=ORDER)
    assert c.status[:2].tolist() == [Status.CLOSE, Status.CLOSE]
    assert bool(c.red[2]) == red


@pytest.mark.parametrize(("noise", "expected"), [(2e-3, Status.DIVERGED), (4e-2, Status.NOT_JUDGED)])
def test_noise_judges_where_the_estimate_would_allow_nearly_anything(noise: float, expected: Status) -> None:
    """A softmax of scores up to 28 in bfloat16 may be off by 0.1."""
    scores, result = values() * np.float32(8), values(seed=8)

    def log(scores: Array, result: Array) -> OpLog:
        first = Step(key="a/op_0_mm", gives=[summary(scores, dtype="bfloat16")])
        gives = [summary(result, dtype="bfloat16")]
        return captured_log([first, Step(key="a/op_1__softmax", gives=gives, reads=[scores], made=[first.key])])

    a, b = log(scores, result), log(off(scores, 4e-3, 3), off(result, 7e-2, 1))
    third = log(off(scores, 3e-3, 4), off(result, noise, 2))
    assert compare(a, b, expectation=ORDER).status[1] == Status.NOT_JUDGED
    c = compare(a, b, expectation=Expectation(noise=noise_floor(a, b, third)))
    assert c.status[1] == expected
    assert ("would allow nearly anything" in " ".join(limit_of(Subject(c, 1, inputs_of(c, 1))))) == c.red[1]


@pytest.mark.parametrize("op", ["mul", "add"])
def test_inputs_of_a_product_or_sum_are_compared_with_their_likes_whichever_comes_first(op: str) -> None:
    """Else the distance of a weight and what it scales would excuse any error."""
    rng = np.random.default_rng(5)
    x, weight = rng.normal(size=(8, 32)).astype(np.float32), np.full((8, 32), 9, np.float32)

    def log(off: float, *, weight_first: bool) -> OpLog:
        y = x + np.float32(off) * x[::-1]
        result = (x * weight if op == "mul" else x + weight) + np.float32(3000 * off) * x[::-1]
        inputs = [(weight, ""), (y, "norm/op_0_sin")]
        reads, made = zip(*(inputs if weight_first else inputs[::-1]), strict=True)
        first = Step(key="norm/op_0_sin", gives=[y], reads=[x], made=[""])
        return captured_log([first, Step(key=f"norm/op_1_{op}", gives=[result], reads=[*reads], made=[*made])])

    c = compare(log(0, weight_first=True), log(1e-6, weight_first=False), expectation=ORDER)
    assert c.status[1] == Status.DIVERGED
    of_weight, scaled = inputs_of(c, 1)
    assert of_weight.bits
    assert (scaled.producer_a, scaled.producer_b) == (0, 0)


def tokens_by_expert(*, stable: bool, scale: float = 1.0, put_back: bool = True) -> OpLog:
    """Tokens in the order of their experts, which have several each; what is made of them is put back."""
    rng = np.random.default_rng(9)
    x, experts = rng.normal(size=(24, 8)).astype(np.float32), rng.integers(0, 4, 24)
    order = np.argsort(experts, kind="stable") if stable else np.lexsort((-np.arange(24), experts))
    rows = x[order]
    made = np.tanh(np.float32(scale) * rows)
    back = np.empty_like(made)
    back[order if put_back else order[::-1]] = made
    steps: list[tuple[str, list[Any], list[int]]] = [
        ("bitwise_and", [experts], []),
        ("sort", [np.sort(experts), order], [0]),
        ("floor_divide", [order], [1]),
        ("index", [rows], [2]),
        ("tanh", [made], [3]),
        ("index_put_", [back], [4]),
        ("add", [back + x], [5]),
    ]
    keys = [f"experts/op_{k}_{name}" for k, (name, _, _) in enumerate(steps)]
    return captured_log(
        [
            Step(
                key=key,
                gives=gives,
                reads=[x, *(steps[k][1][-1] for k in of)],
                made=["", *(keys[k] for k in of)],
            )
            for key, (_, gives, of) in zip(keys, steps, strict=True)
        ]
    )


def test_equal_values_in_another_order_are_no_finding_and_excuse_nothing_once_put_back() -> None:
    a = tokens_by_expert(stable=True)
    c = compare(a, tokens_by_expert(stable=False), expectation=ORDER)
    assert not c.red.any()
    assert c.reason[1] == Reason.TIED
    assert {Reason(reason) for reason in c.reason[2:5]} <= {Reason.REARRANGED}
    assert (c.status[5:] <= Status.CLOSE).all()
    assert causes(compare(a, tokens_by_expert(stable=False, scale=1.01), expectation=ORDER)) == ["experts/op_4_tanh"]
    assert compare(a, tokens_by_expert(stable=False, put_back=False), expectation=ORDER).red[6]
