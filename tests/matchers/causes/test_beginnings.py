"""An error within the tolerance causes a red row that follows from it, if such operations are exact otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
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


@pytest.mark.parametrize(("end", "cause"), [(1 + 3.7e-4, 3), (1 + 4.2e-4, 4), (1.5, 4)])
def test_an_error_that_grows_by_more_is_another_one(end: float, cause: int) -> None:
    """Of 1.2e-5, thirty times as much may be the same mistake, and 35 times is not."""
    assert causes(compared(np.float32(end))) == [cause]


def test_operations_that_differ_elsewhere_too_are_another_kernel() -> None:
    assert causes(compared(others=SMALL)) == [4]


def test_nothing_begins_where_other_kernels_are_expected() -> None:
    assert 3 not in causes(compared(expected=Expect.REDUCTION_ORDER))


def inserted(factor: float, end: float, *, follows: bool = True) -> Comparison:
    """An operation that b alone has, a sum that reads its result, and a `mul` that reads the sum or something else."""

    def log(extra: bool, last: np.float32) -> list[Step]:
        first = Step(key="m/op_0_mm", reads=[X, X], gives=[X * 2])
        scaled = Step(key="m/op_1_neg", reads=first.gives, made=[first.key], gives=[X * 2 * np.float32(factor)])
        before, total = (scaled, X * 2 * np.float32(factor) + X) if extra else (first, X * 3)
        plus = Step(key="m/op_2_add", reads=[X, *before.gives], made=["", before.key], gives=[total])
        read = plus if follows else Step(key="", gives=[X * last])
        end = Step(key="m/op_9_mul", reads=read.gives, gives=[X * 9 * last], made=[read.key])
        return [first, *([scaled] if extra else []), plus, end]

    return compare(captured_log(log(False, ONE)), captured_log(log(True, np.float32(end))))


def test_an_operation_that_one_run_adds_is_the_beginning() -> None:
    c = inserted(1 + 1.2e-5, 1 + 8e-5)
    assert c.status.tolist() == [Status.EQUAL, Status.ONLY_B, Status.CLOSE, Status.DIVERGED]
    assert causes(c) == [1]
    assert headline(c, 1) == "FIRST CAUSE: only b has this operation; red rows follow"


def test_its_consumers_diverge_where_they_do() -> None:
    c = inserted(1.7, 1.5)
    assert causes(c) == [1]
    assert headline(c, 1) == "FIRST CAUSE: only b has this operation; its consumers diverge"


@pytest.mark.parametrize(("end", "follows"), [(1.5, True), (1 + 8e-5, False)])
def test_what_it_does_not_explain_is_another_cause(end: float, follows: bool) -> None:
    assert causes(inserted(1 + 1.2e-5, end, follows=follows)) == [3]


def test_a_row_that_was_asked_something_else_is_a_cause_by_itself() -> None:
    def log(factor: np.float32, asked: float) -> list[Step]:
        steps = [
            Step(key=f"m/op_{k}_mm", reads=[X + k, X], gives=[X * (k + 2) * (factor if k == 3 else ONE)])
            for k in range(4)
        ]
        fields = {"arguments": {"eps": asked}}
        end = Step(key="m/op_9_mul", reads=steps[3].gives, gives=[X * 9 * factor], made=["m/op_3_mm"], fields=fields)
        return [*steps, end]

    c = compare(captured_log(log(ONE, 1e-5)), captured_log(log(SMALL, 1e-6)))
    assert causes(c) == [4]


@pytest.mark.parametrize(("end", "cause"), [(1.5, 4), (1 + 8e-5, 1)])
def test_an_operation_of_one_run_has_the_error_of_all_that_it_leads_to(end: float, cause: int) -> None:
    """Behind a form of some operations that has a small error of its own."""

    def log(last: np.float32) -> list[Step]:
        """The first `neg` and the later pair of operations are those of one run only."""
        steps = [Step(key="m/op_0_mm", reads=[X, X], gives=[X * 2])]

        def step(key: str, result: np.ndarray) -> None:
            steps.append(Step(key=key, reads=steps[-1].gives, gives=[result], made=[steps[-1].key]))

        if last != ONE:
            step("m/op_1_neg", X * 2 * SMALL)
        step("m/op_2_add", X * 3 * (ONE if last == ONE else SMALL))
        step("m/op_3_exp", X * 4 * (ONE if last == ONE else SMALL))
        if last != ONE:
            step("m/op_4_sin", X * 5 * last)
            step("m/op_5_cos", X * 7 * last)
        step("m/op_9_mul", X * 9 * last)
        return steps

    assert causes(compare(captured_log(log(ONE)), captured_log(log(np.float32(end))))) == [cause]
