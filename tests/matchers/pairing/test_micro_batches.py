"""Micro-batches of two logs, numbered alike."""

from __future__ import annotations

import numpy as np

from matchers.logs.op_log import OpLog
from matchers.pairing.micro_batches import micro_batches
from tests.captured import Step, captured_log

VIEWS = [np.full((4, 3), k + 1.0, np.float32) for k in range(2)]


def called_twice(*, numbered: bool) -> OpLog:
    """A model that is called on two views, whose results a loss reads together; `numbered`: each call has a number."""
    calls = [
        Step(key=f"lin/op_{k}_relu", reads=[x], gives=[x], fields={"micro_batch": k if numbered else 0})
        for k, x in enumerate(VIEWS)
    ]
    keys, fields = [step.key for step in calls], {"micro_batch": int(numbered)}
    loss = Step(key="loss/op_0_sub", reads=VIEWS, gives=[VIEWS[0] - VIEWS[1]], made=keys, fields=fields)
    return captured_log([*calls, loss])


def test_calls_that_one_log_numbers_are_partners_of_those_that_the_other_does_not() -> None:
    a, b = called_twice(numbered=True), called_twice(numbered=False)
    bits = np.arange(1, 4, dtype=np.uint64)
    assert all((of == -1).all() for of in micro_batches(a, b, bits, bits))
