"""How many terms a sum has, and what that allows."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.ops.shapes import reduction_length
from matchers.status import Status
from matchers.verdict.tolerance import longer_sum
from tests.captured import Step, captured_log


def log(op: str, size: tuple[int, ...], result: tuple[int, ...], scale: float = 1.0, view: bool = False) -> OpLog:
    """A tensor and an operation that reads it, among others."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=size).astype(np.float32)
    seen = x[1:] if view else x
    first = Step(key="a/op_0_relu", gives=[x])
    reads = {"addmm": [np.ones(3, np.float32), seen], "relu": [seen]}.get(op, [seen, np.ones(3, np.float32)])
    made = ["" if value is not seen else first.key for value in reads]
    y = (rng.normal(size=result) * scale).astype(np.float32)
    return captured_log([first, Step(key=f"a/op_1_{op}", gives=[y], reads=reads, made=made)])


@pytest.mark.parametrize(
    ("op", "size", "result", "terms"),
    [
        ("mm", (6, 50), (6, 7), 50),
        ("bmm", (2, 6, 50), (2, 6, 7), 50),
        ("addmm", (6, 50), (6, 7), 50),
        ("mm", (2, 3, 50), (6, 7), 50),
        ("sum", (6, 50), (6, 1), 50),
        ("mean", (6, 50), (), 300),
        ("relu", (6, 50), (6, 50), 1),
    ],
)
def test_terms_are_counted_by_sizes(op: str, size: tuple[int, ...], result: tuple[int, ...], terms: int) -> None:
    assert reduction_length(log(op, size, result)).tolist() == [1, terms]


def test_of_a_part_of_a_tensor_nothing_is_known() -> None:
    assert reduction_length(log("sum", (6, 50), (1,), view=True)).tolist() == [1, 1]


def test_the_norms_of_a_list_are_of_whole_parameters() -> None:
    assert reduction_length(log("_foreach_norm", (6, 50), ())).tolist() == [1, np.inf]
    assert longer_sum("float32", np.array([np.inf])).tolist() == [8.0]


def test_the_tolerance_grows_with_the_root_of_the_length() -> None:
    terms = np.array([1.0, 4096.0, 4 * 4096.0, 1e12])
    assert longer_sum("float32", terms).tolist() == [1.0, 1.0, 2.0, 8.0]
    assert longer_sum("bfloat16", terms).tolist() == [1.0] * 4


def test_a_long_sum_may_differ_by_more() -> None:
    """By 1.5 times what four thousand terms may, from equal inputs."""
    by = 1 + 1.5 * 128 * 2.0**-23
    short = compare(log("mm", (4, 1000), (4, 64)), log("mm", (4, 1000), (4, 64), by))
    long = compare(log("mm", (4, 16384), (4, 64)), log("mm", (4, 16384), (4, 64), by))
    assert [short.status[1], long.status[1]] == [Status.DIVERGED, Status.CLOSE]
