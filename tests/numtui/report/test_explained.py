"""Consequences of a known cause, on logs of a few operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from matchers.status import Status
from numtui.report.explained import explained, read_instead
from tests.captured import Step, captured_log

X: NDArray[np.float32] = np.arange(1.0, 9.0, dtype=np.float32)


def op(key: str, gives: Any, reads: Sequence[Any] = (), made: Sequence[str] = (), line: int = 1, **fields: Any) -> Step:
    return Step(key=key, gives=[gives], reads=reads, made=made, fields={"location": f"model.py:{line}", **fields})


def row_of(c: Comparison, key: str, side: str = "b") -> int:
    log, at = (c.b, c.at_b) if side == "b" else (c.a, c.at_a)
    return int(at[log.keys.index(key)])


def reached(c: Comparison, *known: int) -> list[str]:
    """Keys, of b where it has the operation, of what some rows explain beside themselves."""
    found = explained(c, known, c.status != Status.EQUAL)
    rows = [row for row in np.flatnonzero(found).tolist() if row not in known]
    return [c.b.keys[c.row_b[row]] if c.row_b[row] >= 0 else c.a.keys[c.row_a[row]] for row in rows]


def negated(*, wrong: bool) -> list[Step]:
    """A product, in b negated, and the backward pass, which reads nothing of that."""
    steps = [op("m/op_0_mul", X * 2, [X], [""], 3)]
    x, made = X * 2, "m/op_0_mul"
    if wrong:
        x, made = -x, "m/op_1_neg"
        steps.append(op(made, x, [-x], ["m/op_0_mul"], 4))
    steps.append(op("m/op_2_exp", np.exp(-x), [x], [made], 5))
    back: dict[str, Any] = {"phase": "backward"}
    steps.append(op("n/op_0_tanh", X / 9, [X / 3], [""], 8, **back))
    x, made = X / np.float32(9), "n/op_0_tanh"
    if wrong:
        x, made = -x, "m/op_3_neg"
        steps.append(op(made, x, [-x], ["n/op_0_tanh"], 4, **back))
    return [*steps, op("m/op_4_sin", np.sin(x), [x], [made], 3, **back)]


def test_the_backward_pass_of_a_line_is_of_its_cause() -> None:
    c = compare(captured_log(negated(wrong=False)), captured_log(negated(wrong=True)))
    assert reached(c, row_of(c, "m/op_1_neg")) == ["m/op_2_exp", "m/op_3_neg", "m/op_4_sin"]


def replaced(*, wrong: bool) -> list[Step]:
    steps = [op("m/op_0_mul", X * 2, [X], [""], 3)]
    if wrong:
        steps.append(op("m/op_1_abs", X * 2, [X * 2], ["m/op_0_mul"], 6))
        steps.append(op("m/op_2_log10", np.log10(X * 2), [X * 2], ["m/op_1_abs"], 6))
        x, made = np.log10(X * 2), "m/op_2_log10"
    else:
        steps.append(op("m/op_1_log", np.log(X * 2), [X * 2], ["m/op_0_mul"], 5))
        x, made = np.log(X * 2), "m/op_1_log"
    return [*steps, op("m/op_3_sum", x.sum(keepdims=True), [x], [made], 8)]


def test_what_the_other_run_reads_in_place_of_an_operation_is_of_the_same_cause() -> None:
    c = compare(captured_log(replaced(wrong=False)), captured_log(replaced(wrong=True)))
    assert reached(c, row_of(c, "m/op_1_log", "a")) == ["m/op_1_abs", "m/op_2_log10", "m/op_3_sum"]


def exchanged(*, wrong: bool, elsewhere: str = "m") -> list[Step]:
    """Two tensors, read in two lines, in b in place of each other."""
    one, other = np.array([1, 2, 3, 4], np.int64), np.array([4, 3, 2, 2], np.int64)
    steps = [op("r/op_0_add", one, [one - 1], [""], 1), op("r/op_1_add", other, [other - 1], [""], 2)]
    at, to = ("r/op_1_add", "r/op_0_add") if wrong else ("r/op_0_add", "r/op_1_add")
    values = {"r/op_0_add": one, "r/op_1_add": other}
    for key, made, line in (("m/op_0_index", at, 4), (f"{elsewhere}/op_1_index_add", to, 7)):
        steps.append(op(key, X[values[made]], [X, values[made]], ["", made], line))
    return steps


def test_lines_of_a_module_that_read_the_same_two_tensors_exchanged_are_one_cause() -> None:
    c = compare(captured_log(exchanged(wrong=False)), captured_log(exchanged(wrong=True)))
    assert list(read_instead(c, row_of(c, "m/op_0_index"))) == [(row_of(c, "r/op_0_add"), row_of(c, "r/op_1_add"))]
    assert reached(c, row_of(c, "m/op_0_index")) == ["m/op_1_index_add"]
    c = compare(captured_log(exchanged(wrong=False, elsewhere="n")), captured_log(exchanged(wrong=True, elsewhere="n")))
    assert reached(c, row_of(c, "m/op_0_index")) == [], "another module has its own line for it"


@given(st.sets(st.integers(0, 6)), st.sets(st.integers(0, 6)))
def test_more_known_causes_explain_no_less(one: set[int], more: set[int]) -> None:
    c = compare(captured_log(negated(wrong=False)), captured_log(negated(wrong=True)))
    differ = c.status != Status.EQUAL
    some, all_ = (explained(c, sorted(known & set(range(len(c)))), differ) for known in (one, one | more))
    assert (all_ | ~some).all()
    assert all_[sorted(one & set(range(len(c))))].all()


def wired(*, wrong: bool, rate: float = 1.0) -> list[Step]:
    """Two tensors and a product of each in m, exchanged in b; backward two sums, of which one is cut to a slice."""
    one, other = X, X[::-1] * 2
    steps = [op("r/op_0_add", one, [one - 1], [""], 1), op("r/op_1_neg", other, [-other], [""], 2)]
    made = ("r/op_1_neg", "r/op_0_add") if wrong else ("r/op_0_add", "r/op_1_neg")
    values: dict[str, Any] = {"r/op_0_add": one, "r/op_1_neg": other, "m/op_2_add": X / 3, "m/op_3_sub": X[::-1] / 5}
    for key, maker, by in (("m/op_0_mul", made[0], 3), ("m/op_1_div", made[1], 7)):
        steps.append(op(key, values[maker] * np.float32(by), [values[maker]], [maker], 4))
    back: dict[str, Any] = {"phase": "backward"}
    for key in ("m/op_2_add", "m/op_3_sub"):
        steps.append(op(key, values[key], [values[key] * 2], [""], 9, **back))
    maker = "m/op_3_sub" if wrong else "m/op_2_add"
    return [*steps, op("m/op_4_exp", np.exp(values[maker] * np.float32(rate)), [values[maker]], [maker], 6, **back)]


def test_the_backward_pass_reads_other_tensors_where_the_forward_pass_does() -> None:
    c = compare(captured_log(wired(wrong=False)), captured_log(wired(wrong=True)))
    assert "m/op_4_exp" in reached(c, row_of(c, "m/op_0_mul"))
    right = wired(wrong=False)
    c = compare(captured_log(right), captured_log([*right[:-1], wired(wrong=False, rate=2.0)[-1]]))
    assert reached(c, row_of(c, "m/op_0_mul")) == [], "of other values nothing is wired otherwise"
