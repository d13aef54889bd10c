"""One batch in one, two or four micro-batches: what agrees is not red, and a bug is found where it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.coverage.cover import Cover
from matchers.drift.divided_losses import divided_losses
from matchers.explain.sentences import explain, headline
from matchers.logs.op_log import OpLog
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.received import Inputs, Nodes
from tests.captured import Step, captured_log
from tests.matchers.invariants import check
from tests.matchers.micro_batch_steps import SAMPLES, WEIGHT, step

SPLITS = [(1, 2), (1, 4), (2, 4), (4, 1)]
ORDER = Expectation(preset=Expect.REDUCTION_ORDER)


def at(c: Comparison, key: str) -> int:
    return int(c.at_a[list(c.a.keys).index(key)])


def causes(c: Comparison) -> list[str]:
    return [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("expectation", [None, ORDER])
def test_one_batch_agrees_however_it_is_divided(
    split: tuple[int, int], numbered: bool, expectation: Expectation | None
) -> None:
    a, b = (captured_log(step(k, numbered=numbered)) for k in split)
    c = compare(a, b, expectation=expectation)
    check(c)
    assert not c.red.any()
    assert c.counts[Status.ONLY_A] == c.counts[Status.ONLY_B] == 0


@pytest.mark.parametrize("split", SPLITS)
def test_a_bug_is_first_where_it_is(split: tuple[int, int]) -> None:
    c = compare(captured_log(step(split[0])), captured_log(step(split[1], scale=1.01)))
    assert causes(c) == [f"score/op_{split[0] - 1}_mul"]


def test_a_loss_that_is_not_divided_shows_in_the_gradients() -> None:
    c = compare(captured_log(step(1)), captured_log(step(4, divided=False)))
    assert causes(c) == ["loss/op_2_mean_backward"]
    assert c.error[at(c, "loss/op_2_mean_backward")] == pytest.approx(0.75)


@pytest.mark.parametrize(("split", "weight"), [((1, 2), 0.6), ((2, 4), 0.6), ((1, 2), 1.0), ((2, 4), 2.0)])
def test_another_weight_of_the_loss_is_a_scalar_argument(split: tuple[int, int], weight: float) -> None:
    """But not one that is the ratio of the numbers of micro-batches: the losses are divided by them."""
    c = compare(captured_log(step(split[0])), captured_log(step(split[1], weight=weight)))
    key = f"loss/op_{3 * split[0] - 2}_div"
    assert (key in causes(c)) == (weight == 0.6)
    if weight == 0.6:
        assert headline(c, at(c, key)).startswith("FIRST CAUSE: the scalar argument, ")
        assert headline(c, at(c, key)).endswith("; the inputs are not judged")


@pytest.mark.parametrize("many", [2, 4])
def test_losses_that_ranks_multiply_and_divide_again_agree(many: int) -> None:
    """Each of two ranks multiplies its losses by two, and the mean over ranks is taken of gradients and the loss."""
    b = captured_log(step(many, ranks=2), batch_ranks=2)
    c = compare(captured_log(step(1, ranks=1)), b, expectation=ORDER)
    assert c.loss_scale == 0.5
    assert not c.red.any()


def backward(micro_batches: int, *, divides: bool) -> list[Step]:
    """A gradient of one, or of this divided by the number of micro-batches, and that of a mean, which reads it."""
    steps: list[Step] = []
    for k, x in enumerate(np.split(SAMPLES, micro_batches)):
        forward, back = {"micro_batch": k}, {"micro_batch": k, "phase": "backward"}
        one, share = np.float32(1), np.float32(1 / micro_batches if divides else 1)
        keys = [f"lin/op_{2 * k}_mm", f"step/op_{2 * k}_ones_like", f"step/op_{2 * k + 1}_div"]
        steps.append(Step(key=keys[0], reads=[x, WEIGHT], gives=[x @ WEIGHT], fields=forward))
        steps.append(Step(key=keys[1], gives=[np.array(one)], fields=back))
        if divides:
            steps.append(Step(key=keys[2], reads=[np.array(one)], gives=[np.array(share)], made=keys[1:2], fields=back))
        reads, made = [np.array(share), x @ WEIGHT], [keys[2 if divides else 1], keys[0]]
        of_mean = x @ WEIGHT * share * np.float32(micro_batches)
        steps.append(Step(key=f"lin/op_{2 * k + 1}_mul", reads=reads, gives=[of_mean], made=made, fields=back))
    return steps


@pytest.mark.parametrize("many", [2, 4])
@pytest.mark.parametrize("divides", [True, False])
def test_a_loss_divided_by_one_is_divided(many: int, divides: bool) -> None:
    """The gradient is one in both runs; only one of them divides it by its number of micro-batches."""
    c = compare(captured_log(backward(1, divides=True)), captured_log(backward(many, divides=divides)))
    assert causes(c) == ([] if divides else ["step/op_1_div"])


def counts(micro_batches: int, *, normed: bool) -> list[Step]:
    """Sums of one module in three lines: of each element, which one run has, of each sample, and of each feature."""
    steps: list[Step] = []
    for k, x in enumerate(np.split(SAMPLES[:, :4], micro_batches)):
        sums = [(1, x.sum(1, keepdims=True))] * normed + [(2, x.sum(1)), (3, x.sum(0))]
        for line, made in sums:
            fields = {"micro_batch": k, "location": f"m.py:{line}"}
            steps.append(Step(key=f"moe/op_{len(steps)}_sum", reads=[x], gives=[made], fields=fields))
    return steps


@pytest.mark.parametrize("normed", [True, False])
def test_parts_are_told_from_terms_line_by_line(normed: bool) -> None:
    """Four sums, of as many samples of a micro-batch as there are features."""
    c = compare(captured_log(counts(1, normed=normed)), captured_log(counts(2, normed=False)))
    assert not c.red.any()
    shapes = {c.b.location_text(int(row)): c.b.shape_text(int(row)) for row in c.row_b if row >= 0}
    assert shapes == {"m.py:2": "[8]", "m.py:3": "[4]"}


def test_scalars_that_each_micro_batch_computes_are_not_compared() -> None:
    c = compare(captured_log(step(1)), captured_log(step(2, weight=0.6, uneven=True)))
    assert "loss/op_1_div" not in causes(c)


def reduced(micro_batches: int, scale: float = 1.0) -> list[Step]:
    """Gradients of a weight that the log adds up nowhere, as ranks that reduce them in a bucket."""
    steps: list[Step] = []
    for k, x in enumerate(np.split(SAMPLES, micro_batches)):
        y, back = x @ WEIGHT, {"micro_batch": k, "phase": "backward"}
        steps.append(Step(key=f"lin/op_{2 * k}_mm", reads=[x, WEIGHT], gives=[y], fields={"micro_batch": k}))
        gradient = x.T @ (y * np.float32(scale))
        steps.append(Step(key=f"lin/op_{2 * k + 1}_mm", reads=[x, y], gives=[gradient], fields=back))
    return steps


@pytest.mark.parametrize("scale", [1.0, 1.01])
def test_terms_that_nothing_adds_up_are_compared_by_their_sketches(scale: float) -> None:
    c = compare(captured_log(reduced(1)), captured_log(reduced(4, scale)), expectation=ORDER)
    row = at(c, "lin/op_1_mm")
    assert c.status[row] == (Status.CLOSE if scale == 1 else Status.NOT_JUDGED)
    if scale == 1:
        assert c.error[row] < 1e-6
        assert not c.bound[row]


def normed(micro_batches: int, odd: int = -1) -> list[Step]:
    """A norm, in one micro-batch with another eps, which moves its result by less than is tolerated."""
    steps: list[Step] = []
    for k, x in enumerate(np.split(SAMPLES, micro_batches)):
        eps = 1e-4 if k == odd else 1e-5
        y, lin = x / np.float32(1 + eps / 1e3), f"lin/op_{k}_mul"
        fields: dict[str, Any] = {"micro_batch": k, "arguments": {"eps": eps}}
        steps.append(Step(key=lin, reads=[x], gives=[x], fields={"micro_batch": k}))
        steps.append(Step(key=f"norm/op_{k}_native_layer_norm", reads=[x], gives=[y], made=[lin], fields=fields))
    return steps


@pytest.mark.parametrize(("odd", "found"), [(-1, []), (0, ["norm/op_0_native_layer_norm"])])
def test_another_argument_in_one_micro_batch_is_told(odd: int, found: list[str]) -> None:
    c = compare(captured_log(normed(1)), captured_log(normed(4, odd)), expectation=ORDER)
    assert causes(c) == found
    if found:
        assert "FIRST CAUSE: eps 1e-05 in a, 0.0001 in b" in headline(c, at(c, found[0]))


def routed(micro_batches: int) -> list[Step]:
    """Two experts, each of which takes its samples; one has none in the first half, and does not run there."""
    steps: list[Step] = []
    chosen = np.array([1, 1, 1, 1, 0, 1, 0, 0])
    for k, (x, of) in enumerate(zip(np.split(SAMPLES, micro_batches), np.split(chosen, micro_batches), strict=True)):
        lin, at = f"lin/op_{k}_mul", {"micro_batch": k}
        steps.append(Step(key=lin, reads=[x], gives=[x], fields=at))
        for expert in range(2):
            own = of == expert
            equal = f"moe/op_{len(steps)}_eq"
            steps.append(Step(key=equal, reads=[of], gives=[own], fields={**at, "location": "moe.py:1"}))
            if own.any():
                fields: dict[str, Any] = {**at, "location": "moe.py:2", "arguments": {"sizes": list(x[own].shape)}}
                key, made = f"moe/op_{len(steps)}_masked_scatter_backward", [lin, equal]
                steps.append(Step(key=key, reads=[x, own], gives=[x[own]], made=made, fields=fields))
    return steps


def test_what_the_samples_decide_is_joined_by_what_it_reads() -> None:
    """The second expert's first call of one micro-batch belongs to its second of the other."""
    c = compare(captured_log(routed(1)), captured_log(routed(2)), expectation=ORDER)
    assert not c.red.any()
    taken = {c.a.shape_text(int(i)): c.b.shape_text(int(j)) for i, j in zip(c.row_a, c.row_b, strict=True) if i > 0}
    assert taken["[3, 6]"] == "[3, 6]"
    assert taken["[5, 6]"] == "[5, 6]"


@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_micro_batches_the_one_that_was_asked_unlike_another_layer_is_told(odd: int) -> None:
    def log(micro_batches: int, odd: int = -1) -> OpLog:
        other = [replace(each, key=f"other/{each.key}") for each in normed(micro_batches)]
        return captured_log([*(replace(each, made=[]) for each in other), *normed(micro_batches, odd)])

    assert causes(compare(log(1), log(2, odd), expectation=ORDER)) == ["norm/op_0_native_layer_norm"]


def test_elements_that_change_their_order_are_blamed_on_what_moves_them() -> None:
    """All norms of the activations stay; the gradients of the weight differ."""
    c = compare(captured_log(step(1)), captured_log(step(4, flip=True)))
    assert [c.b.op_name(int(c.row_b[row])) for row in np.flatnonzero(c.cause)] == ["flip"]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 6, 7, 2, 3, 4, 5]], ids=["in turn", "mirrored"])
def test_an_order_that_a_product_shows_to_be_right_is_not_blamed(order: list[int]) -> None:
    """Micro-batches read other rows than they count up to, and pick the places of these."""
    every = np.arange(8, dtype=np.float32)[:, None] * np.ones(6, np.float32)

    def steps(batches: int, factor: float) -> list[Step]:
        out = []
        for k, rows in enumerate(np.split(np.array(order if batches > 1 else range(8)), batches)):
            fields, x, made = {"micro_batch": k}, np.tanh(SAMPLES[rows]), f"n/op_{3 * k}_arange"
            out.append(Step(key=f"n/op_{k}_tanh", reads=[SAMPLES[rows]], gives=[x], fields=fields))
            out.append(Step(key=made, gives=[every], fields=fields))
            if batches > 1:
                out.append(Step(key=f"n/op_{k}_cat", reads=[every], gives=[every[rows]], made=[made], fields=fields))
                made = f"n/op_{k}_cat"
            placed = (x * every[rows]).astype(np.float32)
            key = f"n/op_{3 * k + 1}_mul"
            out.append(
                Step(key=key, reads=[x, every[rows]], gives=[placed], made=[f"n/op_{k}_tanh", made], fields=fields)
            )
            given, reads = (np.sin(placed) * factor).astype(np.float32), [key]
            out.append(Step(key=f"n/op_{3 * k + 2}_sin", reads=[placed], gives=[given], made=reads, fields=fields))
        return out

    healthy, wrong = (
        compare(captured_log(steps(1, 1)), captured_log(steps(2, by)), expectation=ORDER) for by in (1, 2)
    )
    assert not healthy.red.any()
    assert causes(wrong) == ["n/op_2_sin"]


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("odd", [0, 3])
def test_targets_that_differ_over_all_micro_batches_are_told(odd: int, prepared: bool) -> None:
    """The loss of each micro-batch is a term, of which nothing tells the whole; whole numbers add up.

    Also where a run shifts them first.
    """

    def steps(batches: int, targets: np.ndarray[Any, Any]) -> list[Step]:
        out = []
        for k, (x, y) in enumerate(zip(np.split(SAMPLES, batches), np.split(targets, batches), strict=True)):
            fields = {"micro_batch": k}
            scores = np.tanh(x).astype(np.float32)
            out.append(Step(key=f"loss/op_{2 * k}_tanh", reads=[x], gives=[scores], fields=fields))
            loss = np.array(np.float32(-scores[np.arange(len(y)), y].mean()))
            key, made = f"loss/op_{2 * k + 1}_nll_loss_forward", [f"loss/op_{2 * k}_tanh", ""]
            if prepared and batches > 1:
                made[1] = f"data/op_{k}_roll"
                out.append(Step(key=made[1], reads=[y], gives=[y], fields={"micro_batch": k, "phase": "prepare"}))
            out.append(Step(key=key, reads=[scores, y], gives=[loss], made=made, fields=fields))
        return out

    right = np.array([0, 1, 2, 3, 4, 5, 0, 1])
    wrong = right.copy()
    wrong[-1] += odd
    c = compare(captured_log(steps(1, right)), captured_log(steps(2, wrong)), expectation=ORDER)
    loss = at(c, "loss/op_1_nll_loss_forward")
    begins = [c.b.keys[int(c.row_b[row])] for row in np.flatnonzero(c.cause)]
    assert begins == ["data/op_1_roll" if prepared else "loss/op_3_nll_loss_forward"] * bool(odd)
    told = f"{'CONSEQUENCE' if prepared else 'FIRST CAUSE'}: input 1, whole numbers that the step was given, differs"
    assert headline(c, loss) == (
        f"{told}: L1 norm 16 in a, 19 in b"
        if odd
        else "not judged: a term of each micro-batch; what they add up to is judged"
    )


class TestTotals:
    def test_a_sum_over_micro_batches_agrees(self) -> None:
        c = compare(captured_log(step(1, total=True)), captured_log(step(4, total=True)))
        assert not c.red.any()
        assert c.status[at(c, "train/op_0_add_")] <= Status.CLOSE

    def test_another_sum_is_red(self) -> None:
        c = compare(captured_log(step(1, total=True)), captured_log(step(4, total=True, divided=False)))
        assert c.red[at(c, "train/op_0_add_")]


def test_a_mean_loss_of_each_micro_batch_is_not_judged() -> None:
    c = compare(captured_log(step(1)), captured_log(step(4)))
    (finding,) = divided_losses(c)
    assert "(1 micro-batch in a, 4 micro-batches in b)" in finding.explanation
    loss = at(c, "loss/op_0_mean")
    assert c.status[loss] == Status.NOT_JUDGED
    assert headline(c, loss) == "not judged: a term of each micro-batch; what they add up to is judged"
    product = at(c, "lin/op_0_addmm")
    assert c.status[product] <= Status.CLOSE
    assert "1 and 4 micro-batches, compared together" in explain(c, product).pairing


class TestCancellation:
    @pytest.mark.parametrize("expectation", [None, ORDER])
    def test_a_sum_that_is_rounding_is_not_judged_nor_what_reads_it(self, expectation: Expectation | None) -> None:
        c = compare(
            captured_log(step(1, zero_bias=True)), captured_log(step(4, zero_bias=True)), expectation=expectation
        )
        assert c.status[at(c, "lin/op_0_sum")] == c.status[at(c, "lin/op_1_lerp_")] == Status.NOT_JUDGED
        assert "cancellation" in headline(c, at(c, "lin/op_0_sum"))
        assert c.status[at(c, "lin/op_0_lerp_")] <= Status.CLOSE

    def test_a_sum_that_does_not_cancel_is_judged(self) -> None:
        c = compare(captured_log(step(1)), captured_log(step(1, scale=1.01)))
        assert c.status[at(c, "lin/op_0_sum")] == c.status[at(c, "lin/op_1_lerp_")] == Status.DIVERGED


class TestLossScale:
    """One process divides the losses of its micro-batches, ranks average their gradients."""

    def test_a_factor_of_all_gradients_is_no_divergence(self) -> None:
        rank = [record for record in step(2, divided=False) if record.fields.get("micro_batch") != 1][:-2]
        c = compare(captured_log(step(2), world_size=1), captured_log(rank, world_size=2))
        assert not c.red.any()
        gradient = at(c, "loss/op_2_mean_backward")
        assert c.status[gradient] == Status.CLOSE
        assert headline(c, gradient).startswith("close: 0.5 times b's, as every loss and gradient; otherwise by ")
        (finding,) = divided_losses(c)
        assert finding.explanation.startswith("Every loss and gradient of a is 0.5 times that of b")
        # the other rank has the other micro-batch
        other = [row for row in np.flatnonzero(c.status == Status.ONLY_A) if c.a.micro_batch[c.row_a[row]] == 1]
        assert other
        assert (c.coverage.cover[other] == Cover.NOT_COUNTED).all()

    @pytest.mark.parametrize("scale", [1.0, 1.01])
    def test_one_process_may_read_the_batches_of_all_ranks_as_one(self, scale: float) -> None:
        """Each rank has the mean of its own samples, until they average the gradients."""
        ranks = captured_log(step(4, divided=False, scale=scale)[:-2], batch_ranks=4)
        c = compare(captured_log(step(1)), ranks, expectation=ORDER)
        assert causes(c) == ([] if scale == 1 else ["score/op_0_mul"])
        gradient = at(c, "loss/op_2_mean_backward")
        assert scale != 1 or headline(c, gradient).startswith("close: 0.25 times b's")

    def test_a_micro_batch_that_no_rank_has_is_not_covered(self) -> None:
        alone = [record for record in step(2) if record.fields.get("micro_batch") != 1][:-2]
        c = compare(captured_log(step(2), world_size=1), captured_log(alone, world_size=1))
        assert not (c.coverage.cover == Cover.NOT_COUNTED).any()
        assert not list(divided_losses(c))

    def test_a_bug_beside_the_factor_is_red(self) -> None:
        rank = [record for record in step(2, divided=False, scale=1.01) if record.fields.get("micro_batch") != 1][:-2]
        c = compare(captured_log(step(2)), captured_log(rank))
        assert causes(c) == ["score/op_0_mul"]

    def test_a_factor_between_runs_of_one_form_is_a_divergence(self) -> None:
        c = compare(captured_log(step(2)), captured_log(step(2, divided=False)))
        assert c.red.any()


def test_an_operation_of_one_micro_batch_alone_brings_no_error_that_excuses() -> None:
    """Its result is read where the others read what their partner reads: another tensor."""

    def steps(batches: int, factor: float) -> list[Step]:
        out = []
        for k, x in enumerate(np.split(SAMPLES, batches)):
            fields, made = {"micro_batch": k}, f"n/op_{3 * k}_tanh"
            read = np.tanh(x)
            out.append(Step(key=made, reads=[x], gives=[read], fields=fields))
            if k == 1 and factor != 1:
                scaled, key = (read * factor).astype(np.float32), f"n/op_{3 * k + 1}_mul"
                out.append(Step(key=key, reads=[read], gives=[scaled], made=[made], fields=fields))
                read, made = scaled, key
            key = f"n/op_{3 * k + 2}_add"
            out.append(Step(key=key, reads=[x, read], gives=[x + read], made=["", made], fields=fields))
        return out

    c = compare(captured_log(steps(1, 1.0)), captured_log(steps(4, 1.5)), expectation=ORDER)
    no = np.zeros(len(c.pairing), bool)
    zero = no.astype(np.float64)
    nodes = Nodes(c.a, c.b, c.pairing, zero, 0.0, values=zero + np.nan, settled=no, parts=no, whole=no)
    assert c.flow is not None
    read = Inputs.of(c.a, c.b, c.pairing, c.flow, nodes)
    assert not read.error[read.node == int(c.pair[at(c, "n/op_2_add")])].any()
    assert c.red[at(c, "n/op_2_add")]
    ((log, record),) = map(c.shown, np.flatnonzero(c.cause).tolist())
    assert log.keys[record] == "n/op_4_mul"


def picked(parts: int, *, factor: float = 1.0) -> OpLog:
    """Rows of a batch by the order of their scores, in each part of it by itself, and what is computed of them."""
    rng, steps = np.random.default_rng(4), list[Step]()
    samples, weight = rng.standard_normal((64, 16)).astype(np.float32), rng.standard_normal((16, 1)).astype(np.float32)
    for number, batch in enumerate(np.split(samples, parts)):
        noise = (parts - 1) * 2e-6 * rng.standard_normal((len(batch), 1))  # of another order of sums
        scores = (batch @ weight * (1 + noise)).astype(np.float32)
        chosen = (scores[:, 0] > 0).astype(np.int64)
        order = np.argsort(chosen, kind="stable")
        rows = batch[order]
        made = np.tanh(rows)
        made[0] *= np.float32(factor)
        ops = ("mm", "sort", "floor_divide", "index", "tanh")
        keys = [f"router/op_{number}_{op}" for op in ops]
        gives: list[list[Any]] = [[scores], [np.sort(chosen), order], [order], [rows], [made]]
        reads: list[list[Any]] = [[batch, weight], [scores], [order], [batch, order], [rows]]
        makers = [["", ""], keys[:1], keys[1:2], ["", keys[2]], keys[3:4]]
        steps += [
            Step(key=key, gives=out, reads=read, made=by, fields={"micro_batch": number})
            for key, out, read, by in zip(keys, gives, reads, makers, strict=True)
        ]
    return captured_log(steps)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_positions_in_parts_that_pick_the_same_rows_excuse_nothing_of_them(factor: float) -> None:
    c = compare(picked(1), picked(2, factor=factor), expectation=ORDER)
    assert c.status[at(c, "router/op_0_index")] == Status.CLOSE
    assert causes(c) == ["router/op_0_tanh"] * (factor != 1)


def scaled_by_extreme(micro_batches: int, *, before: float = 1.0) -> list[Step]:
    """Samples in units of the largest of their own micro-batch, as float8 is scaled by tensor."""
    steps: list[Step] = []
    for k, x in enumerate(np.split(SAMPLES, micro_batches)):
        fields: dict[str, Any] = {"micro_batch": k}
        keys = [f"lin/op_{3 * k}_mul", f"lin/op_{3 * k + 1}_amax", f"lin/op_{3 * k + 2}_div"]
        y = x * np.float32(before)
        steps.append(Step(key=keys[0], reads=[x], gives=[y], fields=fields))
        steps.append(Step(key=keys[1], reads=[y], gives=[y.max()], made=keys[:1], fields=fields))
        steps.append(Step(key=keys[2], reads=[y, y.max()], gives=[y / y.max()], made=keys[:2], fields=fields))
    return steps


def test_what_is_scaled_by_the_largest_of_each_micro_batch_is_not_judged() -> None:
    c = compare(captured_log(scaled_by_extreme(1)), captured_log(scaled_by_extreme(2)), expectation=ORDER)
    assert c.status.tolist() == [Status.SAME_PRINT, Status.NOT_JUDGED, Status.NOT_JUDGED]
    assert headline(c, 2).startswith("not judged: statistics, extremes and random numbers")
    c = compare(captured_log(scaled_by_extreme(1)), captured_log(scaled_by_extreme(2, before=1.1)), expectation=ORDER)
    assert causes(c) == ["lin/op_0_mul"], "before it all is judged"
