"""Weights that one run keeps in another order."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.explain.first_difference import first_difference_reasons
from matchers.logs.op_log import OpLog
from matchers.verdict.lists import reordered
from tests.captured import Step, captured_log

RNG = np.random.default_rng(3)
X, WEIGHT, OUT = (RNG.normal(size=shape).astype(np.float32) for shape in ((16, 8), (8, 6), (6, 4)))
ORDER = np.array([0, 3, 1, 4, 2, 5])


def log(
    columns: np.ndarray, rows: np.ndarray, weight: np.ndarray = WEIGHT, x: np.ndarray = X, name: str = "q"
) -> OpLog:
    """Two products; the first weight has its columns in one order, the second its rows in another."""
    first, last = weight[:, columns], OUT[rows]
    hidden, one, other = x @ first, f"{name}/op_0_mm", f"{name}/op_1_tanh"
    steps = [
        Step(key="in/op_0_mm", gives=[x]),
        Step(key=one, reads=[x, first], made=["in/op_0_mm", ""], gives=[hidden], fields={"forms": ";[8,6]"}),
        Step(key=other, reads=[hidden], made=[one], gives=[np.tanh(hidden)]),
        Step(key="o/op_0_mm", reads=[np.tanh(hidden), last], made=[other, ""], gives=[np.tanh(hidden) @ last]),
    ]
    return captured_log(steps)


@pytest.mark.parametrize(("rows", "red"), [(ORDER, []), (np.arange(6), ["o/op_0_mm"])])
def test_what_a_weight_in_another_order_makes_is_judged_by_what_does_not_depend_on_it(
    rows: np.ndarray, red: list[str]
) -> None:
    """Orders that do not fit make red what follows."""
    c = compare(log(np.arange(6), np.arange(6)), log(ORDER, rows, name="wq"))
    assert [c.b.keys[c.row_b[row]] for row in np.flatnonzero(c.red)] == red
    assert "the same numbers in another order" in first_difference_reasons(c)[0]


def test_in_a_module_of_one_name_another_order_is_a_difference() -> None:
    c = compare(log(np.arange(6), np.arange(6)), log(ORDER, ORDER))
    assert np.flatnonzero(c.red).tolist()[0] == 1


def test_another_weight_is_red() -> None:
    other = WEIGHT.copy()
    other[2, 3] += np.float32(0.05)
    assert compare(log(np.arange(6), np.arange(6)), log(ORDER, ORDER, other, name="wq")).red.any()


def test_a_result_in_another_order_is_red_where_the_weight_is_the_same() -> None:
    assert compare(log(np.arange(6), np.arange(6)), log(np.arange(6), np.arange(6), x=X[::-1], name="wq")).red.any()


@pytest.mark.parametrize(
    ("x", "y", "other"),
    [
        ([1.0, 2.0, 3e-9], [2.0, 1.0, 5e-9], True),
        ([1.0, 2.0, 3e-9], [1.0, 2.0, 5e-9], False),
        ([1.0, 2.0, 0.3], [2.0, 1.0, 0.5], False),
    ],
)
def test_norms_that_are_rounding_show_no_order(x: list[float], y: list[float], other: bool) -> None:
    assert reordered(np.array(x), np.array(y), "float32") == other
