"""Results that a graft wrote over show nothing of the operation that made them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.ops.overwritten import overwritten
from matchers.status import Status
from tests.captured import Step, captured_log

X = np.linspace(1, 2, 24).reshape(4, 6)


def steps(*, wrong: bool) -> list[Step]:
    """A module with a product, in one run of the negative and copied; what reads it was given the right result."""
    made = np.exp(X)
    found = [Step(key="m/op_0_exp", reads=[X], gives=[made], made=[""])]
    if wrong:
        found.append(Step(key="m/op_1_neg", reads=[made], gives=[-made], made=["m/op_0_exp"]))
        made = -made
    found.append(Step(key="m/op_2_mul", reads=[made, X], gives=[made * X], made=[found[-1].key, ""]))
    if wrong:
        found.append(Step(key="m/op_3_cat", reads=[made * X], gives=[made * X], made=["m/op_2_mul"]))
    right, last = np.exp(X) * X, found[-1].key
    return [*found, Step(key="net/op_0_add", reads=[right, X], gives=[right + X], made=[last, ""])]


@pytest.mark.parametrize(
    ("grafts", "red"),
    [
        ({}, False),
        ({"outputs": ["m"]}, True),
        ({"inputs": ["net"]}, True),
        ({"outputs": ["net"], "inputs": ["m.inner", 3]}, False),
    ],
)
def test_a_result_that_a_graft_replaces_is_no_other_form(grafts: dict[str, Any], red: bool) -> None:
    b = captured_log(steps(wrong=True), grafts=grafts)
    assert overwritten(b).tolist()[-2:] == [red, False]
    c = compare(captured_log(steps(wrong=False)), b)
    (row,) = np.flatnonzero(c.row_b == 2)
    assert (c.status[row] == Status.DIVERGED) == red
