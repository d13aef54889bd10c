"""An operation of one run alone, behind which the error jumps, though it is red only some blocks later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log

RNG = np.random.default_rng(5)
START = RNG.standard_normal((16, 16)).astype(np.float32)
WEIGHTS = [RNG.standard_normal((16, 16)).astype(np.float32) for _ in range(4)]


def blocks(*, scaled: Sequence[int] = (), factor: float = 1.0, last: float = 1.0, first: float = 1.0) -> list[Step]:
    """Residual blocks, some of which scale what they add; the last result is off by a factor, and what they read."""
    steps = [Step(key="embed/op_0_mul", gives=[START * np.float32(first)], reads=[START * np.float32(2 * first)])]

    def step(key: str, result: NDArray[np.float32], *makers: Step, weight: Any = None) -> Step:
        reads = [maker.gives[0] for maker in makers] + ([] if weight is None else [weight])
        made = [maker.key for maker in makers] + ([] if weight is None else [""])
        steps.append(Step(key=key, gives=[result.astype(np.float32)], reads=reads, made=made))
        return steps[-1]

    stream = steps[0]
    for k, weight in enumerate(WEIGHTS):
        x: Any = stream.gives[0]
        y: Any = x @ weight
        added = step(f"layers.{k}.down/op_0_mm", y, stream, weight=weight)
        if k in scaled:
            y = added.gives[0]
            added = step(f"layers.{k}/op_0_mul", y * factor, added)
            y = added.gives[0]
        stream = step(f"layers.{k}/op_1_add", x + y, stream, added)
    x = stream.gives[0]
    step("norm/op_0_silu", x * np.float32(last), stream)
    return steps


def compared(b: list[Step], ranks: int = 2) -> Comparison:
    run = {"merged_ranks": ranks} if ranks > 1 else {}
    return compare(captured_log(blocks()), captured_log(b, **run), expectation=Expectation(Expect.REDUCTION_ORDER))


def causes(c: Comparison) -> list[str]:
    return [
        c.a.keys[int(c.row_a[row])] if c.row_a[row] >= 0 else c.b.keys[int(c.row_b[row])]
        for row in np.flatnonzero(c.cause)
    ]


@pytest.mark.parametrize("first", [1.0, 1 + 1e-6])
def test_it_is_the_cause_of_what_is_red_later(first: float) -> None:
    """What it reads is exact, or has a tenth of its error."""
    assert causes(compared(blocks(scaled=[1], factor=1 + 1e-5, last=1 + 2e-4, first=first))) == ["layers.1/op_0_mul"]


@pytest.mark.parametrize(
    "b",
    [
        pytest.param(blocks(scaled=[1], last=1.5), id="no jump"),
        pytest.param(blocks(scaled=[1], factor=1 + 1e-5, last=1.5), id="a larger error"),
        pytest.param(blocks(scaled=range(4), factor=1 + 1e-5, last=1 + 2e-4), id="in every block"),
        pytest.param(blocks(scaled=[1], factor=1 + 1e-5, last=1 + 2e-4, first=1 + 1.5e-6), id="six times"),
    ],
)
def test_it_is_none(b: list[Step]) -> None:
    assert causes(compared(b)) == ["norm/op_0_silu"]


def test_one_process_shows_it_by_its_bits_or_not_at_all() -> None:
    assert causes(compared(blocks(scaled=[1], factor=1 + 1e-5, last=1 + 2e-4), ranks=1)) == ["norm/op_0_silu"]
