"""One operation on lists of other lengths, which its inputs alone tell."""

from __future__ import annotations

from typing import Any

import pytest

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.status import Status
from tests.builders import op
from tests.matchers.drifted_logs import made_up_log


@pytest.mark.parametrize(("more", "other"), [(3, False), (4, True)])
def test_three_inputs_may_be_no_members_of_the_list(more: int, other: bool) -> None:
    """A factor, a learning rate, a step."""

    def log(inputs: int) -> OpLog:
        made: dict[str, Any] = {"outputs": [], "l2": None, "min": None, "max": None, "mean": None, "shape": None}
        return made_up_log([op("optimizer/op_0__foreach_add_", inputs=[2.0 + k for k in range(inputs)], **made)])

    c = compare(log(9), log(9 + more))
    assert (c.status[0] == Status.SHAPE) == other
