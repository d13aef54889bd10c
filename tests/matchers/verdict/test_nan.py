"""NaN with equal bits in both runs: one verdict wherever it is, unless no result takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.runs.check import check_run
from matchers.runs.finding import Check, Finding
from matchers.runs.run import find_run
from matchers.single_run import single_run
from matchers.status import Status
from matchers.verdict.reason import Reason
from tests.captured import Step, captured_log, write_captured

X = np.arange(1, 7, dtype=np.float32)
BROKEN = np.array([1, 2, np.nan, 4, 5, 6], np.float32)
MASK = np.isnan(BROKEN)
HOLE = np.full(6, np.nan, np.float32)


def same(steps: Sequence[Step]) -> Comparison:
    """Two runs of these steps."""
    return compare(captured_log(steps), captured_log(steps))


FIRST = Step(key="net/op_0_log", gives=[BROKEN], reads=[X])
SECOND = Step(key="net/op_0_native_layer_norm", gives=[X, BROKEN], reads=[X])
READER = Step(key="net/op_1_mul", gives=[BROKEN * 2], reads=[BROKEN], made=["net/op_0_native_layer_norm"])
FUSED = Step(
    key="optimizer/op_0__fused_adamw_",
    reads=[X, X],
    changed={0: BROKEN},
    fields={"phase": "optimizer", "parameters": ["w", "w.grad"]},
)
EVERYWHERE = pytest.mark.parametrize("steps", [[FIRST], [SECOND, READER], [FUSED]], ids=["first", "second", "fused"])


@EVERYWHERE
def test_nan_in_both_runs_is_red_where_it_begins(steps: list[Step]) -> None:
    c = same(steps)
    assert (c.status[0], c.reason[0]) == (Status.NAN, Reason.NAN_IN_BOTH)
    assert c.cause[0]
    assert np.isinf(c.error[0])
    assert headline(c, 0).startswith("FIRST CAUSE: ")
    assert headline(c, 0).endswith("in both runs, equal bits")


@EVERYWHERE
def test_one_log_and_check_say_the_same(steps: list[Step], tmp_path: Path) -> None:
    alone = single_run(captured_log(steps))
    assert alone.status[0] == Status.NAN
    assert alone.cause[0]
    assert [finding.subject for finding in finite(steps, tmp_path)] == [steps[0].key]


def finite(steps: Sequence[Step], folder: Path) -> list[Finding]:
    """What `check` says of NaN in a run of one rank."""
    write_captured(folder / "rank_0_activations.log", steps)
    found = check_run(find_run(str(folder)))
    return [finding for finding in found.findings if finding.check == Check.FINITE]


def masked(result: np.ndarray, *more: Step, read: str = "where") -> list[Step]:
    """A placeholder of NaN, and what an operation makes of it."""
    return [
        Step(key="net/op_0_full", gives=[HOLE]),
        Step(key=f"net/op_1_{read}", gives=[result], reads=[MASK, X, HOLE], made=["", "", "net/op_0_full"]),
        *more,
    ]


@pytest.mark.parametrize("read", ["where", "copy_", "zero_", "masked_fill", "some_custom_op"])
def test_a_placeholder_that_no_result_takes_is_no_finding(read: str, tmp_path: Path) -> None:
    steps = masked(X, Step(key="net/op_2_sum", gives=[X.sum()], reads=[X], made=[f"net/op_1_{read}"]), read=read)
    assert (same(steps).status == Status.EQUAL).all()
    assert not single_run(captured_log(steps)).red.any()
    assert finite(steps, tmp_path) == []


def test_a_view_of_a_placeholder_takes_it_no_further() -> None:
    view = Step(key="net/op_0_expand", gives=[HOLE], reads=[HOLE], made=["net/op_0_full"])
    steps = [
        Step(key="net/op_0_full", gives=[HOLE]),
        view,
        Step(key="net/op_1_where", gives=[X], reads=[HOLE], made=[view.key]),
    ]
    assert not same(steps).red.any()


def test_a_placeholder_that_a_result_takes_is_red() -> None:
    steps = masked(BROKEN, Step(key="net/op_2_mul", gives=[BROKEN * 2], reads=[BROKEN], made=["net/op_1_where"]))
    c = same(steps)
    assert c.status.tolist() == [Status.NAN] * 3
    assert c.cause.tolist() == [True, False, False]


def test_what_reads_nan_over_a_view_is_no_first_cause() -> None:
    """Without a finite number no norm tells what made an input, which a view that was not captured lies before."""
    steps = [Step(key="net/op_0_log", gives=[HOLE], reads=[X]), Step(key="net/op_1_mm", gives=[HOLE], reads=[HOLE])]
    assert same(steps).cause.tolist() == [True, False]


@pytest.mark.parametrize("reader", ["", "ones_like", "isnan"])
def test_a_loss_of_nan_is_a_result(reader: str) -> None:
    """The backward pass begins with ones in its shape, and a test for NaN returns no number: neither tells."""
    loss = np.array(np.nan, np.float32)
    given = np.array(reader == "isnan") if reader == "isnan" else np.array(1.0, np.float32)
    steps = [Step(key="loss/op_0_mean", gives=[loss], reads=[X])]
    if reader:
        steps.append(Step(key=f"loss/op_1_{reader}", gives=[given], reads=[loss], made=["loss/op_0_mean"]))
    assert same(steps).status[0] == Status.NAN


@pytest.mark.parametrize("space", [BROKEN, HOLE], ids=["part", "whole"])
def test_a_work_space_that_nothing_reads_is_no_finding(space: np.ndarray, tmp_path: Path) -> None:
    steps = [Step(key="net/op_0_native_layer_norm", gives=[X, space], reads=[X])]
    assert not same(steps).red.any()
    assert not single_run(captured_log(steps)).red.any()
    assert finite(steps, tmp_path) == []
    backward = Step(key="net/op_0_back", gives=[X, BROKEN], reads=[X], fields={"phase": "backward"})
    assert same([backward]).status[0] == Status.NAN


@pytest.mark.parametrize(("factor", "status"), [(1 + 2e-7, Status.CLOSE), (1.5, Status.DIVERGED)])
def test_beside_nan_that_no_result_takes_the_other_numbers_are_judged(factor: float, status: Status) -> None:
    """As of what a recursion leaves unwritten beside what it has computed."""
    one, other = (
        captured_log(
            [
                Step(key="net/op_0__ctc_loss", gives=[X, BROKEN * by], reads=[X]),
                Step(key="net/op_1_mul", gives=[X * by], reads=[X, BROKEN * by], made=["net/op_0__ctc_loss"] * 2),
            ]
        )
        for by in (np.float32(1), np.float32(factor))
    )
    assert compare(one, other).status[0] == status


def test_other_nan_than_in_the_other_run_is_no_placeholder() -> None:
    other = masked(X)
    other[0] = Step(key="net/op_0_full", gives=[BROKEN])
    assert compare(captured_log(masked(X)), captured_log(other)).status[0] == Status.NAN


def further(a: np.ndarray, b: np.ndarray) -> Comparison:
    """Two runs of an operation with this second output, which something reads."""
    one, other = (
        captured_log(
            [
                Step(key="net/op_0_unbind", gives=[X, second], reads=[X]),
                Step(key="net/op_1_mul", gives=[X], reads=[X, second], made=["net/op_0_unbind"] * 2),
                Step(key="net/op_2_mul", gives=[second * 2], reads=[second], made=["net/op_0_unbind"]),
            ]
        )
        for second in (a, b)
    )
    return compare(one, other)


@pytest.mark.parametrize(
    ("a", "b", "status", "reason"),
    [
        (X, X[::-1].copy(), Status.DIVERGED, Reason.BEYOND_TOLERANCE),
        (np.arange(6), np.arange(6)[::-1].copy(), Status.DIVERGED, Reason.OTHER_WHOLE_NUMBERS),
        (X, X.astype(np.float64), Status.SHAPE, Reason.OTHER_DTYPE),
        (X, X.reshape(1, 6), Status.EQUAL, Reason.EQUAL_BITS),
        (X, X.reshape(2, 3) + 1, Status.SHAPE, Reason.OTHER_SHAPE),
        (X, np.where(MASK, np.inf, X).astype(np.float32), Status.NAN, Reason.NON_FINITE),
    ],
    ids=["equal norms", "integers", "dtype", "dimension of 1", "shape", "Inf"],
)
def test_a_second_output_is_judged_like_a_first(a: np.ndarray, b: np.ndarray, status: Status, reason: Reason) -> None:
    c = further(a, b)
    assert (c.status[0], c.reason[0]) == (status, reason)
    one, other = (captured_log([Step(key="net/op_0_mul", gives=[x], reads=[X])]) for x in (a, b))
    first = compare(one, other)
    assert (first.status[0], first.reason[0]) == (status, reason)


def test_a_norm_of_a_further_output_that_is_not_known_is_no_nan() -> None:
    """Of micro-batches together, no log tells the norms of further outputs."""
    step = Step(key="net/op_0_native_layer_norm", gives=[X, X * 2], reads=[X])
    a, b = captured_log([step]), captured_log([step])
    norms = b.outputs.value.copy()
    norms[1] = np.nan
    b = replace(b, counts=np.full_like(b.counts, -1), digests=b.digests.replaced(np.array([0])), extra={})
    c = compare(a, replace(b, outputs=replace(b.outputs, value=norms)))
    assert c.status.tolist() == [Status.SAME_PRINT]
