"""Losses divided by micro-batches in one run and by ranks in the other, and those that only look so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog, Phase
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Array, Step, as_parts, captured_log

RNG = np.random.default_rng(2)
LAYERS = 5
WEIGHTS = [RNG.normal(size=(6, 6)).astype(np.float32) for _ in range(LAYERS)]
ORDER = Expectation(Expect.REDUCTION_ORDER)
BATCHES = [RNG.normal(size=(8, 6)).astype(np.float32) for _ in range(2)]


def log(batches: int, **factors: Any) -> OpLog:
    return captured_log(step(batches, **factors))


def step(
    batches: int,
    *,
    scale: float = 1.0,
    total: float = 1.0,
    only_first: bool = False,
    reduced: bool = False,
    undone: float = 1.0,
    share: float = 0.0,
    other: float = 1.0,
    rows: int = 0,
) -> list[Step]:
    """The backward pass of layers in some micro-batches, and the optimizer that reads what all ranks make of it.

    Args:
        scale: factor of the gradients of a micro-batch; of the first one alone if `only_first`.
        total: factor of the gradients that the optimizer reads.
        reduced: a collective names the gradients, before they are totals.
        undone: factor by which an operation divides each gradient before the optimizer.
        share: factor of the loss, computed before; 0 for none.
        other: factor of the inputs of the last micro-batch, by a bug.
        rows: of the results in another layout, as of experts that ranks hold side by side; 0 for the usual one.
    """

    def laid_out(result: Array) -> Array:
        return result.reshape(rows, -1) if rows else result

    steps = []
    if share:
        given = np.float32(0.125)[()]
        prepare = {"phase": "prepare", "micro_batch": -1}
        steps.append(Step(key="train/op_0_mul", gives=[given * np.float32(share)], reads=[given], fields=prepare))
    for batch in range(batches):
        for layer, weight in enumerate(WEIGHTS):
            fields = {"phase": "forward", "micro_batch": batch}
            x = BATCHES[batch] * np.float32(other if batch == batches - 1 else 1)
            steps.append(
                Step(key=f"layers.{layer}/op_{2 * batch}_mm", gives=[laid_out(x @ weight)], reads=[x], fields=fields)
            )
        for layer, weight in reversed([*enumerate(WEIGHTS)]):
            factor = np.float32(scale if layer == LAYERS - 1 or not only_first else 1)
            key = f"layers.{layer}/op_{2 * batch + 1}_mm"
            x = BATCHES[batch] * np.float32(other if batch == batches - 1 else 1)
            gradient = factor * (x.T @ (x @ weight))
            reads = [x @ weight * factor]
            fields = {"phase": "backward", "micro_batch": batch}
            steps.append(Step(key=key, gives=[laid_out(gradient)], reads=reads, fields=fields))
    for layer, weight in enumerate(WEIGHTS):
        gradient = np.float32(total) * weight
        name = f"layers.{layer}.weight"
        if reduced:
            steps.append(
                Step(
                    key=f"reduce/op_{layer}_allreduce_",
                    gives=[gradient],
                    reads=[gradient * np.float32(scale)],
                    fields={"phase": "gradients", "parameters": [f"{name}.grad"], "micro_batch": -1},
                )
            )
        if undone != 1.0:
            given = {"phase": "gradients", "parameters": [f"{name}.grad"], "micro_batch": -1}
            scaled, changed = gradient * np.float32(undone), {0: gradient}
            steps.append(Step(key=f"layers.{layer}/op_8_div_", reads=[scaled], changed=changed, fields=given))
        fields = {"phase": "optimizer", "parameters": [name, f"{name}.grad"], "micro_batch": -1}
        key = f"layers.{layer}/op_9_add_"
        steps.append(Step(key=key, gives=[weight - gradient], reads=[weight, gradient], fields=fields))
    return steps


@pytest.mark.parametrize(
    ("b", "factor"),
    [
        ({"scale": 2.0}, 0.5),
        # whoever forgets the division has other totals
        ({"scale": 2.0, "total": 2.0}, 1.0),
        # the factor of one term of the loss
        ({"scale": 2.0, "only_first": True}, 1.0),
        ({}, 1.0),
    ],
)
def test_the_factor_between_gradients_before_they_are_reduced(b: dict[str, float], factor: float) -> None:
    c = compare(log(2), log(1, **b))
    assert c.loss_scale == factor


def test_gradients_that_are_laid_out_otherwise_are_scaled_too() -> None:
    c = compare(log(1), log(1, scale=1024.0, rows=4), expectation=ORDER)
    assert c.loss_scale == 1 / 1024
    assert not c.red.any()


def test_updates_that_one_run_leaves_out_tell_no_factor() -> None:
    """The last update of one run, which the other does not have, reads a gradient and leaves it as it was."""
    other = [of for of in step(1, scale=2.0, undone=2.0) if of.key != f"layers.{LAYERS - 1}/op_9_add_"]
    other.sort(key=lambda of: of.key.endswith("add_"))  # all gradients are divided before the first update
    assert compare(log(1), captured_log(other)).loss_scale == 0.5


def with_messages(scale: float, brought: float = 1.0) -> OpLog:
    """The step of a stage that is sent a gradient, and sends one on."""
    steps, last = step(1, scale=scale), "layers.0/op_1_mm"
    at = next(k for k, of in enumerate(steps) if of.key == last) + 1
    fields = {"phase": "prepare", "group": {"ranks": [0, 1], "nth": 0, "peer": 1}}
    received = BATCHES[1] * np.float32(scale * brought)
    messages = [
        Step(key="run/op_0_send", reads=steps[at - 1].gives, made=[last], fields=fields),
        Step(key="run/op_1_recv_", reads=[None], changed={0: received}, fields=fields),
    ]
    return captured_log([*steps[:at], *messages, *steps[at:]])


@pytest.mark.parametrize("brought", [1.0, 1.01])
def test_messages_of_scaled_gradients_are_scaled(brought: float) -> None:
    c = compare(with_messages(1.0), with_messages(2.0, brought))
    assert c.loss_scale == 0.5
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.red)] == ["run/op_1_recv_"] * (brought != 1)


@pytest.mark.parametrize("total", [1.0, 1.7, 2.0])
def test_a_factor_for_losses_that_a_run_computes_is_that_of_its_layout(total: float) -> None:
    """Whatever is wrong with the gradients: what does not divide their sum is wrong behind the passes."""
    c = compare(log(2, share=1.0), log(1, scale=2.0, total=total, share=2.0))
    assert c.loss_scale == 0.5
    red = {Phase(c.a.phase[i]) for i in c.row_a[c.red]}
    assert red == (set() if total == 1 else {Phase.OPTIMIZER})


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("trained", [False, True])
def test_a_term_of_the_loss_that_lacks_the_factor_is_red(turned: bool, trained: bool) -> None:
    """A number that is only made to be told may lack it: nothing multiplies by it in the backward pass."""

    def run(batches: int, factor: float, divides: bool) -> OpLog:
        share, before = np.float32(0.125 * factor)[()], [np.float32(1)[()]]
        steps = [Step(key="train/op_0_mul", gives=[share], reads=[np.float32(0.125)[()]], fields={"phase": "prepare"})]
        read, made = share, "train/op_0_mul"
        if divides:
            read, made = np.float32(0.125)[()], "train/op_1_div"
            steps.append(Step(key=made, gives=[read], reads=[share], made=["train/op_0_mul"], fields=first))
        # the sum of a loss rounds otherwise
        term = np.float32(0.3 if divides else 0.3000001)
        given, keys = [term[()], read], ["", made]
        steps.append(Step(key="train/op_2_mul", gives=[term * read], reads=given, made=keys, fields=first))
        if trained:
            back = {"phase": "backward", "micro_batch": 0}
            given = [*before, read]
            steps.append(Step(key="train/op_3_mul", gives=[read], reads=given, made=keys, fields=back))
        return captured_log([*steps, *step(batches, scale=factor)])

    first = {"phase": "forward", "micro_batch": 0}
    a, b = run(2, 1.0, False), run(1, 2.0, True)
    c = compare(b, a, expectation=ORDER) if turned else compare(a, b, expectation=ORDER)
    assert c.loss_scale == (2.0 if turned else 0.5)
    causes = {c.a.keys[int(c.row_a[row])]: headline(c, row) for row in np.flatnonzero(c.cause).tolist()}
    assert list(causes) == (["train/op_2_mul"] if trained else [])
    told = "the scalar argument, 0.5 in a and 1 in b" if turned else "the scalar argument, 1 in a and 0.5 in b"
    assert all(told in text for text in causes.values())


@pytest.mark.parametrize("trained", [False, True])
def test_a_factor_that_one_micro_batch_alone_has_is_another_argument(trained: bool) -> None:
    """One of two ranks divides it once more, and the other does not."""

    def run(batches: int) -> OpLog:
        share, key = np.float32(0.125)[()], "train/op_0_mul"
        prepare = {"phase": "prepare", "micro_batch": -1}
        steps = [Step(key=key, gives=[share], reads=[np.float32(1)[()]], fields=prepare)]
        for k, part in enumerate(np.split(np.concatenate(BATCHES), batches)):
            fields, made, term = {"micro_batch": k}, f"net/op_{k}_relu", np.float32(part.sum())[()]
            steps.append(Step(key=made, gives=[part], reads=[part * 2], fields=fields))
            read, factor = key, share
            if k == 1:
                read, factor = "train/op_9_div", np.float32(share / 2)[()]
                steps.append(Step(key=read, gives=[factor], reads=[share], made=[key], fields=fields))
            loss, ones = f"train/op_{2 * k + 1}_mul", np.float32(1)[()]
            steps.append(Step(key=loss, gives=[term * factor], reads=[term, factor], made=[made, read], fields=fields))
            back = {"phase": "backward", "micro_batch": k}
            given, keys = [ones, factor if trained else share], ["", read if trained else key]
            steps.append(Step(key=f"train/op_{2 * k + 2}_mul", gives=[given[1]], reads=given, made=keys, fields=back))
        return captured_log(steps)

    c = compare(run(1), run(2), expectation=ORDER)
    told = {c.a.keys[int(c.row_a[row])]: headline(c, row) for row in np.flatnonzero((c.row_a >= 0) & c.red).tolist()}
    assert ("the scalar argument, 1 in a and 0.5 in b" in told.get("train/op_1_mul", "")) == trained


def test_a_factor_that_is_not_of_the_layout_is_a_cause() -> None:
    c = compare(log(2, share=1.0), log(1, share=1.5))
    assert c.loss_scale == 1
    assert [c.a.keys[int(c.row_a[cause.rows[0]])] for cause in c.consequences.causes] == ["train/op_0_mul"]


@pytest.mark.parametrize(
    ("b", "factor"),
    [({"scale": 3.0}, 1 / 3), ({"scale": 3.0, "total": 3.0}, 1.0), ({"scale": 3.0, "only_first": True}, 1.0)],
)
def test_a_factor_that_no_layout_tells_is_one_of_all_gradients_but_the_totals(b: Any, factor: float) -> None:
    c = compare(log(1), log(1, **b))
    assert c.loss_scale == pytest.approx(factor)
    assert c.red.any() == (factor == 1)


@pytest.mark.parametrize(
    ("total", "factor"),
    # the bug changes what the optimizer reads, too, if less than the factor would
    [(1.1, 0.25), (4.4, 1.0)],
)
def test_a_micro_batch_that_is_wrong_hides_no_factor(total: float, factor: float) -> None:
    c = compare(log(2), log(2, scale=4.0, undone=4.0, other=1.3, total=total))
    assert c.loss_scale == factor
    phases = {(int(c.a.micro_batch[i]), Phase(c.a.phase[i])) for i in c.row_a[c.red].tolist() if i >= 0}
    of_first = {of for batch, of in phases if batch == 0}
    assert of_first == (set() if factor != 1 else {Phase.BACKWARD})


def test_what_a_loop_reduces_by_itself_is_no_total_yet() -> None:
    c = compare(log(2, reduced=True), log(1, scale=2.0, reduced=True))
    assert c.loss_scale == 0.5


def test_gradients_of_which_only_sketches_are_known_are_scaled_too() -> None:
    a, b = log(2), log(1, scale=2.0)
    known = compare(a, b)
    c = compare(a, as_parts(b, b.phase == Phase.BACKWARD))
    assert c.loss_scale == known.loss_scale == 0.5
    assert not c.red.any()
    assert (c.status == known.status).all()


@pytest.mark.parametrize(
    ("b", "factor"),
    [
        ({"scale": 1024.0, "undone": 1024.0}, 2.0**-10),
        # nothing undoes it, or not all of it
        ({"scale": 1024.0, "total": 1024.0}, 1.0),
        ({"scale": 1024.0, "undone": 512.0, "total": 2.0}, 1.0),
        ({"scale": 1024.0, "undone": 1024.0, "only_first": True}, 1.0),
    ],
)
def test_a_loss_that_one_run_scales_lest_gradients_vanish(b: dict[str, float], factor: float) -> None:
    c = compare(log(1), log(1, **b))
    assert c.loss_scale == pytest.approx(factor, rel=1e-6)
    assert bool(c.red.any()) == (factor == 1)


@pytest.mark.parametrize(("later", "factor"), [(False, 1 / 1024), (True, 1.0)])
def test_a_factor_that_gradients_have_from_a_layer_on_is_none_of_the_loss(later: bool, factor: float) -> None:
    """As of a gradient that is cut in part within a layer; where gradients are clipped, the totals do not have it."""
    steps, layer = step(1, scale=1024.0, undone=1024.0), f"layers.{LAYERS - 1}"
    if later:
        plain = {of.key: of for of in step(1)}
        steps = [plain[of.key] if of.key == f"{layer}/op_1_mm" else of for of in steps]
    assert compare(log(1), captured_log(steps)).loss_scale == factor


@pytest.mark.parametrize("total", [2.0, 1.0])
def test_totals_without_the_mean_leave_open_which_division_is_missing(total: float) -> None:
    """Of ranks that share the micro-batches of the other run: that of the loss, or that of the sum over ranks."""
    loss, logs = np.float32(3)[()], list[OpLog]()
    for ranks, scale, of in ((1, 1.0, 1.0), (2, 2.0, total)):
        part = loss * np.float32(scale / 2)
        divided = [
            Step(key=f"train/op_{k}_div", gives=[part], reads=[loss], fields={"micro_batch": k}) for k in range(2)
        ]
        logs.append(captured_log([*divided, *step(2, scale=scale, total=of)], batch_ranks=ranks))
    c = compare(logs[0], logs[1], expectation=ORDER)
    said = "UNDECIDED: a divides the loss by 2; b lacks that, or a mean over its 2 ranks"
    assert (headline(c, int(c.at_a[0])) == said) == (total == 2)
    assert c.red.any() == (total == 2)


@pytest.mark.parametrize("off", [1.0, 1.002])
def test_the_weight_that_a_mean_loss_divides_by_has_no_factor(off: float) -> None:
    """It would bring an error to its gradient, by which nothing behind it is judged."""
    samples = np.concatenate(BATCHES)

    def steps(batches: int, off: float) -> list[Step]:
        out = []
        for k, x in enumerate(np.split(samples, batches)):
            scores, many = x @ WEIGHTS[0], np.array(len(x), np.float32)
            loss, forward = np.array(scores.mean(), np.float32), {"micro_batch": k}
            gradient = (np.sign(scores) / many).astype(np.float32)
            of, again = f"loss/op_{2 * k}_nll_loss_forward", f"loss/op_{2 * k + 1}_nll_loss_backward"
            begin = f"score/op_{2 * k}_mm"
            backward = {"micro_batch": k, "phase": "backward"}
            out += [
                Step(key=begin, gives=[scores], reads=[x], fields=forward),
                Step(key=of, gives=[loss, many], reads=[scores], made=[begin], fields=forward),
                Step(key=again, gives=[gradient], reads=[scores, many], made=[begin, of], fields=backward),
                Step(
                    key=f"score/op_{2 * k + 1}_mm",
                    gives=[gradient @ WEIGHTS[0].T * np.float32(off)],
                    reads=[gradient],
                    made=[again],
                    fields=backward,
                ),
            ]
        return out

    a, b = (captured_log(steps(n, of), batch_ranks=n) for n, of in ((1, 1.0), (2, off)))
    c = compare(a, b, expectation=ORDER)
    assert c.loss_scale == 0.5
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.red)] == ["score/op_1_mm"] * (off != 1)


def clipped(ranks: int, share: float = 1.0) -> OpLog:
    """A mean over samples, and its gradient, which is clipped to a norm of 1; two ranks average theirs.

    Args:
        share: by how much a run divides the loss before.
    """
    steps, total, updates = list[Step](), np.zeros((6, 6), np.float32), {"phase": "gradients", "micro_batch": -1}

    def add(key: str, gives: Array, reads: list[Array], made: list[str], **fields: Any) -> str:
        steps.append(Step(key=key, gives=[gives.astype(np.float32)], reads=reads, made=made, fields=fields))
        return key

    for k, x in enumerate(np.split(np.concatenate(BATCHES), ranks)):
        begun, of, back = np.array(1.0), {"micro_batch": k}, {"micro_batch": k, "phase": "backward"}
        scores = add(f"score/op_{2 * k}_mm", x @ WEIGHTS[0], [x], [""], **of)
        mean = np.array((x @ WEIGHTS[0]).mean())
        loss = add(f"loss/op_{4 * k}_mean", mean, [x @ WEIGHTS[0]], [scores], **of)
        if share != 1:
            loss = add(f"loss/op_{4 * k + 1}_div", mean / share, [mean], [loss], **of)
        made = add(f"train/op_{k}_ones_like", begun, [mean / share], [loss], **of)
        if share != 1:
            made = add(f"loss/op_{4 * k + 2}_div", begun / share, [begun], [made], **back)
        spread = np.full((len(x), 6), 1 / share / len(x) / 6)
        made = add(f"loss/op_{4 * k + 3}_mean_backward", spread, [begun / share], [made], **back)
        total = total + x.T @ spread / ranks
        made = add(f"score/op_{2 * k + 1}_mm", x.T @ spread, [spread], [made], **back)
    if ranks > 1:
        made = add("reduce/op_0_allreduce_", total, [total * ranks], [made], parameters=["w.grad"], **updates)
    squares, norm = total**2, np.sqrt((total**2).sum())
    read, reads = made, total
    if ranks > 1:
        read, reads = add("clip/op_0_square", squares, [total], [made], **updates), squares
    read = add("clip/op_1_linalg_vector_norm", np.array(norm), [reads], [read], **updates)
    inverse = add("clip/op_2_reciprocal", np.array(1 / norm), [np.array(norm)], [read], **updates)
    given = [total.astype(np.float32), np.array(1 / norm, np.float32)]
    fields = {**updates, "parameters": ["w.grad", ""]}
    unit = add("clip/op_3_mul", total / norm, given, [made, inverse], **fields)
    fields = {"phase": "optimizer", "micro_batch": -1, "parameters": ["w", "w.grad"]}
    add("w/op_0_sub", WEIGHTS[0] - total / norm, [WEIGHTS[0], total / norm], ["", unit], **fields)
    return captured_log(steps, batch_ranks=ranks)


@pytest.mark.parametrize("share", [1.0, 2.0])
def test_clipping_hides_no_factor_of_all_gradients(share: float) -> None:
    """Clipped gradients agree; the factor of the loss is named, not the mean over ranks."""
    c = compare(clipped(1), clipped(2, share), expectation=ORDER)
    assert c.red.any() == (share != 1)
    assert [c.b.keys[int(c.row_b[row])] for row in np.flatnonzero(c.cause)] == ["loss/op_1_div"] * (share != 1)
