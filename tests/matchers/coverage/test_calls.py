"""Operations without need of a partner where one log is that of a call of a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from matchers.comparison import compare
from tests.builders import Op, op
from tests.matchers.coverage.test_coverage import chain
from tests.matchers.drifted_logs import made_up_log

MODEL = chain("embedding", "mm", "silu", "mm", "relu", "mm", "silu", "mm", "relu", "mm")
END = MODEL[-1]
LOSS = [
    op("loss_of/op_0_log_softmax", 31.0, inputs=END.outputs, producers=[END.key]),
    op("loss_of/op_1_ones", 32.0),
    op("loss_of/op_2_nll_loss", 33.0, inputs=[31.0, 32.0], producers=["loss_of/op_0_log_softmax", "loss_of/op_1_ones"]),
    op("loss_of/op_3_nll_loss_backward", 34.0, inputs=[33.0], producers=["loss_of/op_2_nll_loss"], phase="backward"),
]
OF_STEP = {"parameter_digests": {"m.0.weight": "1", "head.weight": "2"}}
"""`m` is in the model, as a part of it is."""


def missing(step: list[Op], call: list[Op], end: int) -> str:
    run = {"coverage": {"forward": [0, end]}}
    known = compare(made_up_log(step, run=OF_STEP), made_up_log(call, run=run)).coverage
    turned = compare(made_up_log(call, run=run), made_up_log(step, run=OF_STEP)).coverage
    assert known.missing.replace("of a", "of b") == turned.missing.replace("of a", "of b")
    return known.missing


def test_the_loss_of_a_step_needs_no_partner_in_a_call() -> None:
    assert missing([*MODEL, *LOSS], MODEL, len(MODEL)) == ""


def test_without_the_names_of_parameters_nothing_tells_the_loss_from_the_model() -> None:
    run = {"coverage": {"forward": [0, len(MODEL)]}}
    known = compare(made_up_log([*MODEL, *LOSS]), made_up_log(MODEL, run=run)).coverage
    assert known.missing == "loss_of of a (3)"


@pytest.mark.parametrize("module", ["head", "m"])
def test_what_the_model_computes_needs_one(module: str) -> None:
    """With all that is made of it: a call that ends early is no result."""
    head = [op(f"{module}/op_50_atan", 30.0, inputs=END.outputs, producers=[END.key])]
    loss = [replace(LOSS[0], inputs=[30.0], producers=[head[0].key]), *LOSS[1:]]
    assert missing([*MODEL, *head, *loss], MODEL, len(MODEL)) == "loss_of of a (3)"


def test_the_call_goes_on_in_another_way() -> None:
    """Then the loss may be made of what the call has made otherwise."""
    cap = op("m/op_51_tanh", 70.0, inputs=END.outputs, producers=[END.key])
    assert "loss_of of a (3)" in missing([*MODEL, *LOSS], [*MODEL, cap], len(MODEL) + 1)
    assert missing([*MODEL, *LOSS], [*MODEL, cap], len(MODEL)) == "", "it samples what the call gives"
