"""Independent causes of a comparison with grafts: each rule on logs of a few operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from numtui.report.called_modules import Called
from numtui.report.independent_causes import found_causes, of_one_line
from numtui.report.isolation import Found, limit_of
from numtui.report.lost_gradients import LostGradients
from numtui.report.own_errors import OwnError
from tests.captured import Step, captured_log
from tests.numtui.report.test_explained import op, replaced

X: NDArray[np.float32] = np.arange(1.0, 9.0, dtype=np.float32)
CALLED = Called.of([{"module": "net", "within": None}, {"module": "m", "within": "net"}])
OPTIMIZER: dict[str, Any] = {"phase": "optimizer"}


def compared(a: Sequence[Step], b: Sequence[Step], **run_b: Any) -> Comparison:
    return compare(captured_log(a), captured_log(b, **run_b))


def places(found: Sequence[Found]) -> list[tuple[str, str]]:
    return [(cause.key_b or cause.key_a, cause.line) for cause in found]


def test_an_operation_that_stands_in_place_of_another_is_named_with_it() -> None:
    (cause,) = found_causes(compared(replaced(wrong=False), replaced(wrong=True)), CALLED, [])
    assert (cause.key_a, cause.key_b, cause.line) == ("m/op_1_log", "m/op_2_log10", "model.py:6")
    assert cause.sentence.startswith("log in a, log10 in b; ")


def stepped(*, decay: float, rate: float) -> list[Step]:
    """Two operations of an optimizer in one line, on each of two weights and their states."""
    steps = []
    for name, of in (("m", X), ("n", X * 3)):
        for key, gives, asked in (("op_0_mul_", of * decay, decay), ("op_1_add_", of + rate, rate)):
            steps.append(op(f"{name}/{key}", gives, [of], [""], 9, arguments={"other": asked}, **OPTIMIZER))
    return steps


def test_a_line_is_one_cause_unless_two_things_are_asked_otherwise_in_it() -> None:
    right = stepped(decay=0.5, rate=0.25)
    (cause,) = found_causes(compared(right, stepped(decay=0.75, rate=0.25)), CALLED, [])
    assert (cause.line, cause.phase, len(cause.rows)) == ("model.py:9", "optimizer", 2)
    both = found_causes(compared(right, stepped(decay=0.75, rate=0.375)), CALLED, [])
    told = [(cause.sentence.partition(";")[0], len(cause.rows)) for cause in both]
    assert told == [("other 0.5 in a, 0.75 in b", 2), ("other 0.25 in a, 0.375 in b", 2)]


def two_in_one_module(*wrong: str) -> list[Step]:
    """A module that adds in its forward pass, and squares in its backward pass; grafts stand between and behind."""
    steps = [op("net/op_0_mul", X * 2, [X], [""], 1)]
    if "add" in wrong:
        steps.append(op("m/op_0_add", X * 2 + 1, [X * 2], ["net/op_0_mul"], 3))
    steps.append(op("m/op_1_exp", np.exp(X), [X], [""], 4))
    back: dict[str, Any] = {"phase": "backward"}
    steps.append(op("m/op_2_tanh", X / 9, [X / 3], [""], 8, **back))
    if "square" in wrong:
        steps.append(op("m/op_3_square", (X / 9) ** 2, [X / 9], ["m/op_2_tanh"], 7, **back))
    return steps


def test_a_second_bug_of_a_module_is_found_beside_the_first() -> None:
    sound = [OwnError(name, 0.0, 0.0, 0.0, "float32") for name in ("net", "n")]
    wrong = OwnError("m", 1e6, 1e6, None, "float32")
    for bugs, lines in ((["add"], [3]), (["add", "square"], [3, 7])):
        c = compared(two_in_one_module(), two_in_one_module(*bugs))
        assert [line for _, line in places(found_causes(c, CALLED, [*sound, wrong]))] == [
            f"model.py:{n}" for n in lines
        ]
        assert found_causes(c, CALLED, [*sound, OwnError("m", 20.0, 20.0, None, "float32")]) == [], "that is rounding"


def test_in_a_fine_dtype_a_sum_may_lose_more_than_its_own_roundings() -> None:
    assert limit_of([OwnError("m", None, None, 17.0, "float32")]) == 8 * 17.0
    assert limit_of([OwnError("m", 0.0, 0.0, 1.0, "float32")]) == 128
    assert limit_of([OwnError("m", 0.0, 0.0, 1.0, "bfloat16"), OwnError("n", 0.0, 0.0, 1.0, "float32")]) == 16


def scaled(*, wrong: bool) -> list[Step]:
    by = np.float32(0.75 if wrong else 0.5)
    return [
        op("m/op_0_mul", X * by, [X], [""], 3, arguments={"other": float(by)}),
        op("m/op_1_exp", np.exp(X * by), [X * by], ["m/op_0_mul"], 4),
    ]


def test_where_grafts_failed_a_first_cause_stays_and_what_reads_a_difference_is_none() -> None:
    """The other comparison shows a row behind it alone: what differs there follows."""
    missed = {"missed": {"m: output gradients": "another shape"}}
    (first,) = found_causes(compared(scaled(wrong=False), scaled(wrong=True)), CALLED, [])
    assert first.first
    same = compared(scaled(wrong=False), scaled(wrong=False), grafts=missed)
    (kept,) = found_causes(same, CALLED, [], former=[first])
    assert (kept.key_a, kept.line) == (first.key_a, "model.py:3")
    behind = scaled(wrong=False)
    other = op("m/op_1_exp", np.exp(X), [X], ["m/op_0_mul"], 4)
    c = compared(behind, [behind[0], other], grafts=missed)
    assert places(found_causes(c, CALLED, [], former=[first])) == [("m/op_0_mul", "model.py:3")]
    assert places(found_causes(c, CALLED, [])) == [("m/op_1_exp", "model.py:4")], "without a former cause it is one"


def test_an_optimizer_is_not_blamed_for_weights_of_which_it_lacks_gradients() -> None:
    update = op("m/op_5_add_", X + 1, [X], [""], 9, parameters=["m.weight"], **OPTIMIZER)
    one, other = (
        op("m/op_6_exp", np.exp(x), [x], [made], 9, **OPTIMIZER) for x, made in ((X + 1, update.key), (X, ""))
    )
    c = compared([*scaled(wrong=False), update, one], [*scaled(wrong=True), other])
    assert places(found_causes(c, CALLED, [])) == [("m/op_0_mul", "model.py:3"), ("m/op_5_add_", "model.py:9")]
    lost = LostGradients(weights=frozenset({"m"}))
    assert places(found_causes(c, CALLED, [], lost)) == [("m/op_0_mul", "model.py:3")]


def in_two_modules(by: float, other: float) -> list[Step]:
    """Products in one line that two modules run."""
    steps = []
    for name, factor, of in (("m", by, X), ("n", other, X * 3)):
        gives, asked = of * np.float32(factor), {"other": factor}
        steps.append(op(f"{name}/op_0_mul", gives, [of], [""], 3, arguments=asked))
    return steps


def test_one_line_in_several_modules_is_one_cause_unless_it_is_asked_two_things() -> None:
    called = Called.of([{"module": name, "within": None} for name in "mn"])
    c = compared(in_two_modules(0.5, 0.5), in_two_modules(0.75, 0.75))
    (found,) = found_causes(c, called, [])
    one, other = replace(found, rows=(0,)), replace(found, rows=(1,), module="n")
    (cause,) = of_one_line(c, called, [one, other])
    assert (cause.module, cause.also, cause.rows) == ("m", ("n",), (0, 1))
    apart = [replace(other, sentence="other 0.5 in a, 0.25 in b"), replace(other, line="model.py:4")]
    for differs in (*apart, replace(other, phase="backward")):
        assert len(of_one_line(c, called, [one, differs])) == 2


def added_weights(*, wrong: bool) -> list[Step]:
    """A weight of m that the model reads, too, in b in another order; its gradient is a sum of two terms."""
    read, made, steps = X, "", list[Step]()
    if wrong:
        read, made = X[::-1].copy(), "net/op_0_roll"
        steps.append(op(made, read, [X], [""], 3))
    steps.append(op("net/op_1_exp", np.exp(read), [read], [made], 4))
    back: dict[str, Any] = {"phase": "backward"}
    term, made = X / 3, "net/op_2_tanh"
    steps.append(op(made, term, [X / 9], [""], 4, **back))
    if wrong:
        term, made = term[::-1].copy(), "net/op_3_roll"
        steps.append(op(made, term, [X / 3], ["net/op_2_tanh"], 3, **back))
    return [*steps, op("m/op_0_add", term + X, [term, X], [made, ""], 2, **back)]


def test_a_known_cause_explains_the_gradient_of_a_weight_that_others_read_too() -> None:
    c = compared(added_weights(wrong=False), added_weights(wrong=True))
    errors = [OwnError("net", 1e6, None, None, "float32"), OwnError("m", 0.0, None, 1e6, "float32")]
    assert places(found_causes(c, CALLED, errors)) == [("net/op_0_roll", "model.py:3")]


def test_what_a_layout_gathers_is_named_only_if_nothing_else_is_left() -> None:
    def steps(*, gathers: bool, wrong: bool) -> list[Step]:
        made, found = "", list[Step]()
        if gathers:
            found.append(op("m/op_0_all_gather_into_tensor", X, [X[:4]], [""], 5))
            found.append(op("m/op_1_cat", X, [X], ["m/op_0_all_gather_into_tensor"], 5))
            made = "m/op_1_cat"
        x = X * np.float32(1.02) if wrong else X
        if wrong:
            found.append(op("m/op_2_mul", x, [X], [made], 6))
            made = "m/op_2_mul"
        return [*found, op("n/op_0_exp", np.exp(X), [X], [""], 7)]

    errors = [OwnError("m", 1e6, 1e6, None, "float32"), OwnError("net", 0.0, 0.0, 0.0, "float32")]
    for bug, line in ((True, 6), (False, 5)):
        c = compared(steps(gathers=False, wrong=False), steps(gathers=True, wrong=bug), world_size=2)
        assert [place for _, place in places(found_causes(c, CALLED, errors))] == [f"model.py:{line}"]


def test_a_line_that_cuts_off_a_term_of_a_sum_is_a_cause_beside_others() -> None:
    """Of the gradient of a tensor that several modules read, nothing else shows it once all are grafted."""
    reads = [op("r/op_0_exp", np.exp(X), [X], [""], 1)]
    reads += [op(f"{name}/op_0_sin", np.sin(np.exp(X)), [np.exp(X)], ["r/op_0_exp"], 2) for name in "mn"]
    called = Called.of([{"module": name, "within": None} for name in "rmnk"])
    runs = ({"detached": {"model.py:9": many}} for many in (1, 2))
    one, other = (captured_log(reads, **run) for run in runs)
    joint = [OwnError(name, 0.0, None, None, "float32", joint=size) for name, size in (("m", 1e6), ("k", 0.0))]
    (cause,) = found_causes(compare(one, other), called, joint)
    assert (cause.module, cause.phase, cause.line) == ("m", "backward", "model.py:9")
    assert found_causes(compare(one, one), called, joint) == [], "no line tells"
    cut = LostGradients(cut_in=("n",))
    assert [cause.module for cause in found_causes(compare(one, other), called, joint, cut)] == ["n"], "it is of that"


def test_a_factor_read_from_a_norm_follows_from_the_gradients_in_it() -> None:
    """Python multiplies by the number; without one of the gradients it is another, in any gradient that is left."""

    def clipped(*norms: float) -> list[Step]:
        each = [np.float32(norm) for norm in norms], [f"m/op_{k}_norm" for k in range(len(norms))]
        of = [op(key, norm, [X], [""], 5, phase="backward") for norm, key in zip(*each, strict=True)]
        total = np.linalg.norm(np.array(norms, np.float32))
        by: dict[str, Any] = {"phase": "gradients", "arguments": {"other": total.item()}}
        stacked = op("clip/op_0_stack", total, *each, 8, phase="gradients")
        stacked.fields = {**stacked.fields, "reads": [[total.item(), "model.py:9"]]}
        return [*of, stacked, op("clip/op_1_mul_", X * total, [X], [""], 9, **by)]

    wrong = scaled(wrong=True)
    c = compared([*scaled(wrong=False), *clipped(3.0, 0.01)], [*wrong, *clipped(3.0)])
    assert places(found_causes(c, CALLED, [])) == [("m/op_0_mul", "model.py:3"), ("clip/op_1_mul_", "model.py:9")]
    lost = LostGradients(weights=frozenset({"n"}))
    assert places(found_causes(c, CALLED, [], lost)) == [("m/op_0_mul", "model.py:3")]
    both = [*clipped(3.0)[:-1], op("clip/op_1_mul_", X * 5, [X], [""], 9, phase="gradients", arguments={"other": 5.0})]
    c = compared([*scaled(wrong=False), *clipped(3.0, 0.01)], [*wrong, *both])
    assert len(found_causes(c, CALLED, [], lost)) == 2, "a number that was not read"


def test_weights_tell_what_the_module_around_theirs_does_to_gradients() -> None:
    called = Called.of([{"module": "m", "within": None}, {"module": "m.x", "within": "m"}])
    back: dict[str, Any] = {"phase": "backward"}
    right = [op("m.x/op_0_sign", np.sign(X), [X], [""], 3, **back)]
    twice = op("m/op_0_mul", X * 2, [X], [""], 5, **back)
    c = compared(right, [twice, op("m.x/op_0_sign", np.sign(X), [X * 2], [twice.key], 3, **back)])
    outer, inner = OwnError("m", 0.0, 0.0, None, "float32", inner=1e6), OwnError("m.x", 0.0, None, None, "float32")
    assert places(found_causes(c, called, [outer, inner])) == [("m/op_0_mul", "model.py:5")]
    assert found_causes(c, called, [replace(outer, inner=20.0), inner]) == []
    (cause,) = found_causes(c, called, [outer, replace(inner, weights=1e6)])
    assert cause.module == "m.x", "it has an error of its own"


def test_a_line_is_one_cause_whatever_path_its_file_has_in_each_run() -> None:
    """One run alone has a row of it, the other shows another row."""

    def run(path: str, *, wrong: bool) -> list[Step]:
        first = op("m/op_0_mul_", X / 2, [X], [""], location=f"{path}:9", **OPTIMIZER)
        of, made = (X, "") if wrong else (X / 2, first.key)
        update = op("m/op_1_add_", of + 1, [of], [made], location=f"{path}:9", **OPTIMIZER)
        other = op("n/op_1_add_", X * 3 + (2 if wrong else 1), [X * 3], [""], location=f"{path}:9", **OPTIMIZER)
        return [*([] if wrong else [first]), update, other]

    c = compared(run("train.py", wrong=False), run("proj/train.py", wrong=True))
    (cause,) = found_causes(c, CALLED, [])
    assert (cause.line, len(cause.rows)) == ("proj/train.py:9", 2)


def on_ranks(*, wrong: bool) -> list[Step]:
    """Behind a known cause and a graft, all but equal: what is negated, and a sum of gradients without a term."""
    steps, near = scaled(wrong=wrong), X * np.float32(1 + 2e-7 * wrong)
    steps.append(op("n/op_0_mul", near * 2, [near], ["m/op_1_exp"], 5))
    x, made = near * 2, "n/op_0_mul"
    if wrong:
        x, made = -x, "n/op_1_neg"
        steps.append(op(made, x, [-x], ["n/op_0_mul"], 6))
    steps.append(op("n/op_2_sinh", np.sinh(x), [x], [made], 7))
    back: dict[str, Any] = {"phase": "backward"}
    grad, added = near * 3, "r/op_0_mul"
    steps.append(op(added, grad, [near], ["m/op_1_exp"], 9, **back))
    if not wrong:
        term, total = np.cos(grad), grad + np.cos(grad)
        steps.append(op("k/op_0_cos", term, [grad], [added], 8, **back))
        steps.append(op("k/op_1_add", total, [grad, term], [added, "k/op_0_cos"], 8, **back))
        grad, added = total, "k/op_1_add"
    return [*steps, op("q/op_0_add", grad + near * 2, [grad, near * 2], [added, "n/op_0_mul"], 10, **back)]


def test_behind_a_graft_on_ranks_what_one_run_alone_has_begins_and_no_sum_without_a_term_does() -> None:
    c = compared(on_ranks(wrong=False), on_ranks(wrong=True), world_size=2, grafts={"overwritten": 1})
    known, negated, added = found_causes(c, CALLED, [])
    assert places([known, negated]) == [("m/op_0_mul", "model.py:3"), ("n/op_1_neg", "model.py:6")]
    assert (negated.first, added.first, added.line) == (True, False, "model.py:10")
    lost = LostGradients(weights=frozenset({"k"}))
    assert places(found_causes(c, CALLED, [], lost)) == places([known, negated])


def test_what_one_run_alone_does_in_a_line_is_no_further_place_of_what_both_do() -> None:
    """A factor of one module, and in another one a gradient that b cuts off, kept for the same line."""
    called = Called.of([{"module": name, "within": None} for name in "mn"])
    back: dict[str, Any] = {"phase": "backward"}
    kept = op("n/op_0_exp", np.exp(X / 9), [X / 9], [""], 3, **back)
    right = [
        *in_two_modules(0.5, 0.5)[:1],
        kept,
        op("n/op_1_sin", np.sin(np.exp(X / 9)), kept.gives, [kept.key], 5, **back),
    ]
    c = compared(right, [*in_two_modules(0.75, 0.5)[:1], op("n/op_1_sin", np.sin(X), [X], [""], 5, **back)])
    (cause,) = of_one_line(c, called, found_causes(c, called, []))
    assert (cause.line, len(cause.rows), cause.also) == ("model.py:3", 2, ())
