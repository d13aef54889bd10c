"""An error within the tolerance causes a red row that follows from it, if such operations are exact otherwise."""

from __future__ import annotations

import numpy as np

from matchers.comparison import Comparison, compare
from matchers.status import Role, Status
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log

X = np.linspace(1, 2, 64, dtype=np.float32).reshape(8, 8)
SMALL, LARGE = np.float32(1 + 1.2e-5), np.float32(1 + 8e-5)


ONE = np.float32(1)


def compared(end: np.float32 = LARGE, *, others: np.float32 = ONE, expected: Expect | None = None) -> Comparison:
    """Four products, one of which b computes a little differently, and a `mul` that reads it."""

    def log(factors: list[np.float32], last: np.float32) -> list[Step]:
        steps = [
            Step(key=f"m/op_{k}_mm", reads=[X + k, X], gives=[(X * (k + 2)) * factor])
            for k, factor in enumerate(factors)
        ]
        read = steps[-1].gives[0]
        steps.append(Step(key="m/op_9_mul", reads=[read], gives=[X * 9 * last], made=[steps[-1].key]))
        return steps

    a = captured_log(log([ONE, ONE, ONE, ONE], ONE))
    b = captured_log(log([ONE, ONE, others, SMALL], end))
    return compare(a, b, expectation=Expectation(expected) if expected else None)


def causes(c: Comparison) -> list[int]:
    return np.flatnonzero(c.cause).tolist()


def test_the_beginning_is_the_cause() -> None:
    c = compared()
    assert (c.status[3], c.status[4]) == (Status.CLOSE, Status.DIVERGED)
    assert causes(c) == [3]
    assert c.role[4] == Role.RECEIVER


def test_an_error_that_grows_by_more_is_another_one() -> None:
    assert causes(compared(np.float32(1.5))) == [4]


def test_operations_that_differ_elsewhere_too_are_another_kernel() -> None:
    assert causes(compared(others=SMALL)) == [4]


def test_nothing_begins_where_other_kernels_are_expected() -> None:
    assert 3 not in causes(compared(expected=Expect.REDUCTION_ORDER))
