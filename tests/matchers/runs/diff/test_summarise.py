"""The summary of one rank's comparison."""

from __future__ import annotations

import numpy as np

from matchers.comparison import compare
from matchers.runs.diff.summarise import summary_of
from tests.captured import Step, captured_log

X = np.arange(1.0, 9.0, dtype=np.float32)


def cells(*, copied: bool, more: bool = False) -> list[str]:
    """The cells of a comparison with a run that copies between two operations, and one more that nothing reads."""

    def steps(*, other: bool) -> list[Step]:
        found = [Step(key="layers.0/op_0_mul", reads=[X], gives=[X * 2], made=[""])]
        if other and copied:
            found.append(Step(key="layers.1/op_0_clone", reads=[X * 2], gives=[X * 2], made=["layers.0/op_0_mul"]))
        last = Step(key="layers.2/op_0_add", reads=[X * 2], gives=[X * 3], made=[found[-1].key])
        if other and more:
            found.append(Step(key="layers.1/op_1_exp", reads=[X * 2], gives=[np.exp(X)], made=["layers.0/op_0_mul"]))
        return [*found, last]

    c = compare(captured_log(steps(other=False)), captured_log(steps(other=True)))
    return [cell.status for cell in summary_of(c, 0, ("a", "b")).cells]


def test_what_one_run_alone_has_is_no_finding_where_what_follows_from_it_agrees() -> None:
    assert cells(copied=True) == ["equal", "same-print", "equal"]
    assert cells(copied=True, more=True) == ["equal", "only-b", "equal"]
