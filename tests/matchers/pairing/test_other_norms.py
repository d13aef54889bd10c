"""Records of two tools that tell other numbers of a tensor: what both tell exactly still finds the partners."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.ops.shards import Shards
from matchers.pairing.anchors import same_results
from matchers.pairing.matching import NameRules
from matchers.pairing.pairing import Method
from tests.builders import Op, op
from tests.matchers.drifted_logs import made_up_log


def optimizer(parameters: int, modules: bool) -> Iterator[Op]:
    """The steps of an optimizer that goes parameter by parameter; most are of one shape, and count their steps."""
    chance = random.Random(7)
    for k in range(parameters):
        module = f"layers.{k}.up" if modules else "<none>"
        for number, name in enumerate(("add_", "mul_", "lerp_", "addcmul_", "sqrt", "addcdiv_")):
            key = f"{module}/op_{number if modules else 6 * k + number}_{name}"
            low, high, l1 = -chance.uniform(1, 2), chance.uniform(1, 2), chance.uniform(3, 9)
            if name == "add_":
                yield op(key, 1.0, phase="optimizer", inputs=[0.0], shape=())
                continue
            told: dict[str, Any] = {"min": low, "max": high, "l2": l1 / 2, "mean": l1 / 100, "outputs": [l1]}
            yield op(key, phase="optimizer", inputs=[chance.uniform(3, 9)], shape=(8,), **told)


def _norms_alone(step: Op) -> Op:
    return replace(step, l2=None, min=None, max=None, mean=None)


def _other_norms(step: Op) -> Op:
    """L2 norms of inputs, and norms and means that were added up in float32."""
    rounded = {name: float(np.float32(getattr(step, name))) for name in ("l2", "mean")}
    return replace(step, outputs=[], inputs=[float(np.float32(one)) / 3 for one in step.inputs], **rounded)  # type: ignore[arg-type] # numbers


@pytest.mark.parametrize(
    ("form", "told"), [("torch DebugMode (debug_string)", _norms_alone), ("msprobe (statistics)", _other_norms)]
)
def test_an_optimizer_that_goes_parameter_by_parameter_is_paired_with_itself(form: str, told: Any) -> None:
    """Also where one tool logs its zeros, which the other has not."""
    ours = made_up_log(optimizer(30, modules=True), run={"step": 1}, exact=True)
    zeros = [op(f"<none>/op_{k}_zeros_like", 0.0, shape=(8,), phase="optimizer") for k in range(30)]
    records = [told(step) for step in (*zeros, *optimizer(30, modules=False))]
    read: OpLog = made_up_log(records, run={"step": 1}, exact=True)
    theirs = replace(read, header=replace(read.header, format=form))
    c = compare(theirs, ours)
    paired = {int(i): int(j) for i, j in zip(c.row_a, c.row_b, strict=True) if i >= 0 and j >= 0}
    assert paired == {30 + k: k for k in range(len(ours))}
    assert not c.red.any()
    by_numbers = np.isin(c.pairing.method, (Method.EXACT, Method.VALUES))
    assert c.pairing.lead_b[~by_numbers].tolist() == [*range(0, len(ours), 6)], "the steps alone, which are all one"


@pytest.mark.parametrize("sign", [1, -1])
def test_updates_as_large_as_the_learning_rate_are_not_known_by_their_extremes(sign: int) -> None:
    """The updates of two biases may have the same extremes, and opposite means."""
    told: dict[str, Any] = {"min": -1e-3, "max": 1e-3, "l2": 2.8e-3, "mean": 1e-4, "outputs": [8e-3]}
    ours = op("up/op_0_addcdiv_", shape=(8,), phase="optimizer", **told)
    theirs = replace(_other_norms(ours), key="<none>/op_0_addcdiv_", mean=sign * 1.000001e-4)
    a, b = (made_up_log([one], run={"step": 1}, exact=True) for one in (theirs, ours))
    a = replace(a, header=replace(a.header, format="msprobe (statistics)"))
    features = NameRules(tuple(a.modules), tuple(b.modules), (), ()).features(a, b, Shards.of(a, b))
    i, j = same_results(features, np.ones(1, bool), np.ones(1, bool))
    assert len(i) == len(j) == (sign > 0)
