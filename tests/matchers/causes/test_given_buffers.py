"""A stretch that the runs compute in other ways, from a buffer that differs before the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.ops.sketch import encode_sketch
from tests.captured import Step, captured_log

TOKENS, DIM = 12, 8


def log(base: float, batch: int, *, bug: float = 1.0) -> OpLog:
    """A table of rotations; in one run another module makes it, for each row of the batch, of given positions."""
    rope = "rope" if batch == 1 else "rotary"
    x = np.random.default_rng(1).normal(size=(2, TOKENS, DIM)).astype(np.float32)
    frequencies = (base ** -np.arange(DIM)).astype(np.float32)
    places = np.tile(np.arange(TOKENS), (batch, 1))[..., None]
    steps = [Step(key="embed/op_0_embedding", gives=[x])]
    made = ""
    if batch == 1:
        made = "model/op_0_arange"
        steps.append(Step(key=made, gives=[places[0, :, 0]]))
    turns = places.astype(np.float32) * frequencies
    turns = np.cos(turns * np.float32(bug))
    steps += [
        Step(key=f"{rope}/op_0__to_copy", gives=[places.astype(np.float32)], reads=[places], made=[made]),
        Step(
            key=f"{rope}/op_1_mul",
            gives=[places.astype(np.float32) * frequencies],
            reads=[places.astype(np.float32), frequencies],
            made=[f"{rope}/op_0__to_copy", ""],
        ),
        Step(key=f"{rope}/op_2_cos", gives=[turns], reads=[places * frequencies], made=[f"{rope}/op_1_mul"]),
        Step(
            key="attention/op_0_mul",
            gives=[x * turns],
            reads=[x, turns],
            made=["embed/op_0_embedding", f"{rope}/op_2_cos"],
        ),
    ]
    buffers = {"rope.frequencies": f"{int(base):016x}", "mask": "7"}
    sums = encode_sketch(np.arange(1.0, 17.0) * base).decode()
    start: dict[str, list[Any]] = {"rope.frequencies": [sums, DIM, 1e-9]}
    return captured_log(steps, buffer_digests=buffers, start_sketches=start, step=1)


def causes(c: Comparison) -> list[tuple[str, str]]:
    rows = np.flatnonzero(c.cause).tolist()
    return [(c.shown(row)[0].keys[c.shown(row)[1]], headline(c, row)) for row in rows]


@pytest.mark.parametrize(("one", "other"), [(1, 2), (2, 1)])
def test_the_operation_that_reads_it_is_the_first_cause(one: int, other: int) -> None:
    told = "FIRST CAUSE: 1 of 2 buffers differs before the step: rope.frequencies, by ≈9.0e-01"
    ((key, said),) = causes(compare(log(10.0, one), log(100.0, other)))
    assert (key.partition("/")[2], said) == ("op_1_mul", told)


def test_an_operation_is_where_the_buffer_is_the_same() -> None:
    ((_, told),) = causes(compare(log(10.0, 1), log(10.0, 2, bug=1.1)))
    assert "buffer" not in told
