"""Messages of a pipeline are paired by what they bring, whenever a schedule waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from tests.captured import Step, captured_log

RNG = np.random.default_rng(3)
BATCHES, GRADIENTS = list(RNG.normal(size=(4, 3, 5))), list(RNG.normal(size=(4, 3, 5)))
WEIGHT = RNG.normal(size=(5, 5))


def first_stage(turns: Sequence[str], gradients: Sequence[NDArray[Any]] = GRADIENTS) -> OpLog:
    """Forward passes (`F0`) that are sent on, and messages that bring the gradients of their results (`B0`).

    What is received behind a forward pass is taken for a part of it.
    """
    steps: list[Step] = []
    for at, turn in enumerate(turns):
        kind, batch = turn[0], int(turn[1])
        group = {"ranks": [0, 1], "nth": batch, "peer": 1}
        if kind == "F":
            sent, key = BATCHES[batch] @ WEIGHT, f"layers.0/op_{batch}_mm"
            of = {"phase": "forward", "micro_batch": batch}
            steps.append(Step(key=key, reads=[BATCHES[batch], WEIGHT], gives=[sent], made=["", ""], fields=of))
            steps.append(Step(key=f"run/op_{at}_send", reads=[sent], made=[key], fields={**of, "group": group}))
            continue
        behind = turns[at - 1][0] == "F"
        fields = {"phase": "forward", "micro_batch": int(turns[at - 1][1])} if behind else {"phase": "prepare"}
        got, key = gradients[batch], f"run/op_{at}_recv_"
        steps.append(Step(key=key, reads=[None], changed={0: got}, fields={**fields, "group": group}))
        of = {"phase": "backward", "micro_batch": batch}
        reads, made = [BATCHES[batch].T, got], ["", key]
        steps.append(Step(key=f"layers.0/op_{4 + batch}_mm", reads=reads, gives=[reads[0] @ got], made=made, fields=of))
    return captured_log(steps)


GPIPE = ("F0", "F1", "F2", "F3", "B0", "B1", "B2", "B3")
ALTERNATING = ("F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3")


@pytest.mark.parametrize("turned", [False, True])
def test_another_schedule_waits_for_them_elsewhere(turned: bool) -> None:
    logs = first_stage(GPIPE), first_stage(ALTERNATING)
    c = compare(*(logs[::-1] if turned else logs))
    assert not c.red.any()
    i, j = c.pairing.lead_a, c.pairing.lead_b
    brought = [np.array([name.endswith("recv_") for name in log.ops])[log.op] for log in (c.a, c.b)]
    paired = brought[0][i]
    assert np.count_nonzero(paired) == len(GRADIENTS)
    assert (brought[1][j[paired]]).all()


def test_a_message_that_brings_something_else_is_red() -> None:
    c = compare(first_stage(GPIPE), first_stage(ALTERNATING, [*GRADIENTS[:2], GRADIENTS[2] * 1.01, GRADIENTS[3]]))
    assert {c.a.keys[int(row)] for row in c.row_a[c.red]} == {"run/op_6_recv_", "layers.0/op_6_mm"}
