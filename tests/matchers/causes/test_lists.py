"""First causes of operations on lists of tensors: of the tensor that differs."""

from __future__ import annotations

import numpy as np

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log

RNG = np.random.default_rng(2)
ONE, TWO = (RNG.normal(size=(8, 8)).astype(np.float32) for _ in range(2))


def log(scaled: bool) -> OpLog:
    """The norms of two gradients. In one run the first is reduced over ranks, and the second scaled."""
    back, after = {"phase": "backward"}, {"phase": "gradients"}
    out = [Step(key=f"w{k}/op_0_mm", gives=[tensor], fields=back) for k, tensor in enumerate((ONE, TWO))]
    made, read = ["w0/op_0_mm", "w1/op_0_mm"], [ONE, TWO]
    if scaled:
        read = [ONE * np.float32(1 + 1e-6), TWO * np.float32(1.5)]
        made = ["clip/op_1_div", "train/op_0_mul_"]
        out += [
            Step(key="clip/op_0_all_reduce", gives=read[:1], reads=[ONE], made=["w0/op_0_mm"], fields=after),
            Step(key="clip/op_1_div", gives=read[:1], reads=read[:1], made=["clip/op_0_all_reduce"], fields=after),
            Step(key="train/op_0_mul_", gives=[read[1]], reads=[TWO], made=["w1/op_0_mm"], fields=after),
        ]
    norms = [np.float32(np.linalg.norm(tensor))[()] for tensor in read]
    return captured_log([*out, Step(key="clip/op_2__foreach_norm", gives=norms, reads=read, made=made, fields=after)])


def test_the_cause_is_what_made_the_tensor_that_differs() -> None:
    c = compare(log(scaled=False), log(scaled=True), expectation=Expectation(Expect.REDUCTION_ORDER))
    assert [c.b.keys[int(c.row_b[row])] for row in np.flatnonzero(c.cause)] == ["train/op_0_mul_"]
