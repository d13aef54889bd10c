"""Ranks that begin to contradict each other are the first cause of what follows, where one process agrees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.columns import Texts
from matchers.logs.op_log import OpLog
from matchers.ops.placement import CONTRADICTED
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, as_parts, captured_log
from tests.matchers.runs.layouts.ranks import compared as compared_runs
from tests.matchers.runs.layouts.ranks import write_ranks

X = np.arange(1.0, 25.0, dtype=np.float32).reshape(3, 8) / 24
PRODUCT, COPY, CLIPPED = "layers.0/op_0_mm", "clip/op_0_clone", "clip/op_1_mul"
TOLD = "w: gradient not reduced, ranks 0, 1"


def step(factor: float, *, copied: bool, scale: float = 1.0, mark: str = "") -> OpLog:
    """A gradient, which one run alone copies, and what clips it by a factor."""
    whole = X @ X.T * np.float32(scale)
    steps = [Step(key=PRODUCT, gives=[whole], reads=[X, X], made=["", ""], fields={"phase": "backward"})]
    if copied:
        steps.append(Step(key=COPY, gives=[whole], reads=[whole], made=[PRODUCT], fields={"phase": "gradients"}))
    clipped = whole + np.float32(factor - 1) * whole[:1]
    made = steps[-1].key
    steps.append(Step(key=CLIPPED, gives=[clipped], reads=[whole], made=[made], fields={"phase": "gradients"}))
    log = captured_log(steps)
    if copied:  # terms, whose sum alone is known
        log = as_parts(log, np.array([key in (PRODUCT, COPY) for key in log.keys]))
    marks = {row: TOLD.encode() for row in range(len(log)) if log.keys[row] == mark}
    return replace(log, extra={**log.extra, CONTRADICTED: Texts.of(marks)})


def causes(c: Comparison) -> list[str]:
    return [c.shown(row)[0].keys[c.shown(row)[1]] for row in np.flatnonzero(c.cause).tolist()]


def compared(b: OpLog) -> Comparison:
    return compare(step(1.0, copied=False), b, expectation=Expectation(Expect.REDUCTION_ORDER))


def test_what_ranks_contradict_each_other_in_is_the_cause_of_what_follows() -> None:
    assert causes(compared(step(1.01, copied=True))) == [CLIPPED]
    c = compared(step(1.01, copied=True, mark=PRODUCT))
    assert causes(c) == [PRODUCT]
    told = headline(c, int(np.flatnonzero(c.cause)[0]))
    assert told == f"FIRST CAUSE: ranks of b contradict each other: {TOLD}"


def test_what_is_wrong_before_it_stays_the_cause() -> None:
    c = compared(step(1.01, copied=True, scale=1.01, mark=COPY))
    assert causes(c) == [PRODUCT]


def test_a_contradiction_alone_is_a_cause() -> None:
    c = compared(step(1.0, copied=False, mark=PRODUCT))
    assert causes(c) == [PRODUCT]
    assert not c.red.any()


def test_what_one_rank_alone_runs_is_told_where_merged_ranks_read_it(tmp_path: Path) -> None:
    """Rank 1 scales what all others add as it is: the merged record has no place for that."""

    def steps(odd: bool) -> list[Step]:
        made, after = X @ X.T, X @ X.T
        out = [Step(key="m/op_0_mm", gives=[made], reads=[X, X], made=["", ""])]
        if odd:
            after = made * np.float32(1.5)
            out.append(Step(key="m/op_1_mul", gives=[after], reads=[made], made=["m/op_0_mm"]))
        last = out[-1].key
        out.append(Step(key="n/op_0_relu", gives=[np.maximum(after, 0)], reads=[after], made=[last]))
        return [*out, Step(key="n/op_1_tanh", gives=[np.tanh(after)], reads=[after], made=["n/op_0_relu"])]

    one = write_ranks(tmp_path / "one", [steps(odd=False)], {})
    c = compared_runs(one, write_ranks(tmp_path / "run", [steps(odd=rank == 1) for rank in range(4)], {}))
    assert causes(c) == ["n/op_1_tanh"]
    told = headline(c, int(np.flatnonzero(c.cause)[0]))
    assert told.startswith("FIRST CAUSE: ranks of b contradict each other: m/op_1_mul: 1 more operation")
