"""Copies of other tensors are no partners, wherever they stand."""

from __future__ import annotations

import numpy as np

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from tests.captured import Step, captured_log

RNG = np.random.default_rng(9)
X, GRADIENT = RNG.normal(size=12), RNG.normal(size=12)


def log(copied: str, size: int = 0) -> OpLog:
    """A gradient that is made and reduced; and a copy into a bucket, of it or of marks of another size."""
    fields = {"phase": "backward"}
    marks = np.ones(size or 1, np.int32)
    steps = [Step(key="layers.0/op_0_mul", reads=[X], gives=[GRADIENT], made=[""], fields=fields)]
    if size:
        steps.append(Step(key="layers.0/op_1_fill_", reads=[None], gives=[marks], fields=fields))
    source = GRADIENT if copied == "layers.0/op_0_mul" else marks
    reads, makers = [None, source], ["", copied]
    steps.append(Step(key="layers.0/op_2_copy_", reads=reads, gives=[source], made=makers, fields=fields))
    group = {**fields, "group": {"ranks": [0, 1], "nth": 0}}
    makers = ["layers.0/op_0_mul"]
    steps.append(Step(key="run/op_3_allreduce_", reads=[GRADIENT], gives=[GRADIENT], made=makers, fields=group))
    return captured_log(steps)


def test_of_a_tensor_that_has_another_partner() -> None:
    c = compare(log("layers.0/op_0_mul"), log("layers.0/op_1_fill_", 36))
    assert not c.red.any()
    assert not c.cause.any()


def test_of_no_share_of_the_other() -> None:
    c = compare(log("run/op_0_copy", 11), log("run/op_0_copy", 25))
    assert {c.a.keys[int(row)] for row in c.row_a[c.red & (c.row_a >= 0)]} <= {"layers.0/op_1_fill_"}
