"""Ranks that read parts of one batch, as the micro-batches of one log."""

from __future__ import annotations

import numpy as np

from matchers.logs.op_log import OpLog
from matchers.runs.layouts.batches import as_micro_batches
from tests.captured import Step, captured_log

GROUP = {"group": {"ranks": [0, 1], "nth": 0, "name": "0"}}


def step(rows: slice, ranks: int) -> OpLog:
    """A loss, the total that it is added to after the backward pass, and the sum of that over ranks."""
    x = np.arange(8, dtype=np.float32)[rows]
    loss, zero = x.sum(), np.float32(0)[()]
    begun, made, added = "train/op_0_zeros", "loss/op_0_sum", "train/op_1_add_"
    steps = [
        Step(key=begun, gives=[zero], fields={"phase": "prepare"}),
        Step(key=made, gives=[loss], reads=[x], made=[""], fields={"micro_batch": 0}),
        Step(key="loss/op_1_expand", gives=[np.ones_like(x)], fields={"phase": "backward", "micro_batch": 0}),
        Step(key=added, gives=[loss], reads=[zero, loss], made=[begun, made], fields={"phase": "prepare"}),
    ]
    if ranks > 1:
        fields = {"phase": "optimizer", "parameters": [""], **GROUP}
        whole = np.float32(np.arange(8).sum())[()]
        steps.append(Step(key="train/op_2_allreduce_", gives=[whole], reads=[loss], made=[added], fields=fields))
    return captured_log(steps)


def test_the_zero_of_a_sum_over_ranks_stays_before_the_passes() -> None:
    """What the ranks do with the sum after the step is no reason to take it for an update's."""
    logs = [step(slice(0, 4), 2), step(slice(4, 8), 2)]
    log = as_micro_batches(logs, logs[0], 0, [step(slice(0, 8), 1)])
    assert [key.rpartition("_")[0] for key in log.keys].count("train/op_0") == 1
    assert log.keys[0] == "train/op_0_zeros"
