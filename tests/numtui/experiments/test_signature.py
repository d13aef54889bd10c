"""Signatures of the causes of a comparison with the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from numtui.experiments.signature import findings_of
from tests.captured import Step, captured_log

X = np.linspace(1, 2, 64, dtype=np.float32)


def log(factors: Sequence[float]) -> OpLog:
    """Multiplications at one line of the code, each in a module of its own, of what nothing else reads."""
    steps = []
    for number, factor in enumerate(factors):
        fields = {"location": "model.py:7", "arguments": {"other": factor}}
        values = X * np.float32(number + 1)
        gives = [values * np.float32(factor)]
        steps.append(Step(key=f"layers.{number}/op_0_mul", reads=[values], gives=gives, fields=fields))
    return captured_log(steps)


@pytest.mark.parametrize(
    ("good", "bad", "causes"),
    [
        ([1.0, 1.0, 1.0], [1.02, 1.0, 1.5], [{"layers.0/op_0_mul"}, {"layers.2/op_0_mul"}]),
        ([1.0, 1.0, 1.0], [1.02, 1.0, 1.02], [{"layers.0/op_0_mul", "layers.2/op_0_mul"}]),
        ([1.0, 0.5, 0.25], [1.02, 0.51, 0.25], [{"layers.0/op_0_mul", "layers.1/op_0_mul"}]),
    ],
    ids=["two bugs", "one, in two layers", "one, of a factor that depends on the layer"],
)
def test_two_bugs_at_one_line_are_told_apart(
    good: Sequence[float], bad: Sequence[float], causes: list[set[str]]
) -> None:
    found = findings_of([compare(log(good), log(bad))])
    assert [set(each.keys) for each in found.causes] == causes
