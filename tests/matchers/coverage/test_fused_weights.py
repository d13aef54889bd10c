"""Gradients and updates of weights that one run has fused: one part, not one for each."""

from __future__ import annotations

from dataclasses import replace

from matchers.comparison import compare
from tests.builders import Op, op
from tests.matchers.coverage.test_coverage import chain
from tests.matchers.drifted_logs import made_up_log
from tests.matchers.ops.test_fused import COMMON, EXPERTS, STACKED, run

FORWARD = chain("embedding", "mm", "silu", "mm", "relu", "mm", "silu", "mm", "relu", "mm", "sin", "mm", "cos", "mm")


def update(names: list[str], start: float) -> list[Op]:
    """A gradient in the module of each weight, and its update."""
    ops = []
    for at, name in enumerate(names):
        value = start + at
        module = name.rpartition(".")[0]
        gradient = op(f"{module}/op_{2 * at}_mm", value, inputs=[FORWARD[-1].outputs[0]], producers=[FORWARD[-1].key])
        step = op(f"optimizer/op_{at}_div", value / 3, inputs=[value], producers=[gradient.key])
        ops += [replace(gradient, phase="backward"), replace(step, phase="optimizer")]
    return ops


def test_the_work_on_fused_weights_is_one_part() -> None:
    a = made_up_log([*FORWARD, *update(list(EXPERTS), 100.0)], run=run(COMMON | EXPERTS))
    b = made_up_log([*FORWARD, *update(list(STACKED), 500.0)], run=run(COMMON | STACKED))
    known = compare(a, b).coverage
    assert [part.name for part in known.parts if part.name != "most"] == ["the work on fused weights"]
    assert not known.enough


def test_other_weights_are_told_by_their_modules() -> None:
    a = made_up_log([*FORWARD, *update(list(EXPERTS), 100.0)])
    b = made_up_log([*FORWARD, *update(list(STACKED), 500.0)])
    assert "the work on fused weights" not in {part.name for part in compare(a, b).coverage.parts}
