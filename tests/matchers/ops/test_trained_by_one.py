"""Parameters that have a gradient in one run alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from matchers.ops.last_contents import LastContents, trained_by_one
from tests.captured import Step, captured_log

X = np.ones((2, 2), np.float32)


def contents(trained: Sequence[str], held: Sequence[str] | None) -> LastContents:
    fields = {"phase": "gradients", "parameters": [f"{name}.grad" for name in trained]}
    steps = [Step(key="clip/op_0__foreach_norm", reads=[X] * len(trained), gives=[X], fields=fields)]
    start = {} if held is None else {"parameter_digests": {name: f"{k:016x}" for k, name in enumerate(held)}}
    log = captured_log(steps, **start)
    return LastContents(log, tuple(log.modules))


@pytest.mark.parametrize(
    ("trained", "held", "alone"),
    [
        (["a"], ["a", "b"], ["b"]),
        (["a"], ["a"], []),  # another model
        (["a"], None, ["b"]),  # merged ranks do not tell what they hold
        (["x"], ["a", "b"], []),  # other names throughout
    ],
)
def test_those_that_both_runs_hold(trained: list[str], held: list[str] | None, alone: list[str]) -> None:
    both = ["a", "b"]
    assert trained_by_one(contents(both, both), contents(trained, held)) == alone
