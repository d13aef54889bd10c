"""A further output that nobody reads, or only readers with equal results, is no divergence."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.judge_values import Limits
from matchers.verdict.slots import deciding
from tests.captured import Step, captured_log

LOSS, GRADIENT = np.array([3.0, 4.0], np.float32), np.array([0.5, 0.25], np.float32)
TABLE = np.arange(6, dtype=np.float32)


def compared(
    *, read: bool = False, gradient: float = 1.0, loss: float = 1.0, phase: str = "forward", scratch: float = 7.0
) -> Comparison:
    """A loss with a work space that b fills in another way, and perhaps its consumer."""

    def log(junk: float, scale: float, size: float) -> list[Step]:
        table = TABLE.copy()
        table[-1] = junk
        steps = [
            Step(key="net/op_0_ctc", gives=[LOSS * np.float32(size), table], reads=[TABLE], fields={"phase": phase})
        ]
        if read:
            given = GRADIENT * np.float32(scale)
            steps.append(Step(key="net/op_1_back", gives=[given], reads=[LOSS, table], made=["net/op_0_ctc"] * 2))
        return steps

    return compare(captured_log(log(0.0, 1.0, 1.0)), captured_log(log(scratch, gradient, loss)))


def test_an_output_that_nobody_reads_is_a_note() -> None:
    c = compared()
    assert not c.red.any()
    assert headline(c, 0) == "close: output 1 differs by ≈7.9e-01, but no operation depends on it"


def test_nan_in_an_unread_output_is_a_note_too() -> None:
    assert not compared(scratch=float("nan")).red.any()


def test_readers_with_equal_results_do_not_depend_on_it() -> None:
    assert not compared(read=True).red.any()
    assert [Status(s) for s in compared(read=True, gradient=1.5).status] == [Status.DIVERGED] * 2


def test_the_first_output_and_gradients_count() -> None:
    assert compared(loss=1.5).status[0] == Status.DIVERGED
    assert compared(phase="backward").status[0] == Status.DIVERGED


@pytest.mark.parametrize("scratch", [7.0, 5.0])
def test_only_a_difference_is_noted(scratch: float) -> None:
    same = scratch == 5.0
    a, b = (
        captured_log([Step(key="net/op_0_ctc", gives=[LOSS, TABLE * 0 + v], reads=[TABLE])]) for v in (5.0, scratch)
    )
    c = compare(a, b, expectation=Expectation(preset=Expect.BITWISE))
    assert not c.red.any()
    assert (0 in c.slots) is not same


def test_what_the_other_run_returns_in_place_of_writing_it_is_the_same() -> None:
    """A compiler makes in-place operations functions: batch norm returns its running mean."""
    mean, after = TABLE, TABLE * np.float32(1.5)
    a = captured_log([Step(key="bn/op_0_norm", gives=[LOSS], reads=[LOSS, mean], changed={1: after})])
    at = np.zeros(1, np.int64)
    for returned, red in ((after, False), (after + 1, True)):
        b = captured_log([Step(key="bn/op_0_norm", gives=[LOSS, returned], reads=[LOSS, mean])])
        assert any(slot.status.red for slot in deciding(a, b, at, at, Limits(alone=True), True).values()) is red


def test_memory_of_a_kernel_for_its_backward_pass_is_not_judged() -> None:
    """Not even where what reads it differs, for another reason."""

    def log(junk: float, scale: float) -> list[Step]:
        states, given = [LOSS, LOSS + 1, LOSS + 2], GRADIENT * np.float32(scale)
        names = ["net/op_0_mkldnn_rnn_layer", "net/op_1_mul", "net/op_2_mkldnn_rnn_layer_backward"]
        back = {"phase": "backward"}
        return [
            Step(key=names[0], gives=[*states, TABLE * np.float32(junk)], reads=[TABLE]),
            Step(key=names[1], gives=[given], reads=[GRADIENT], fields=back),
            Step(key=names[2], gives=[given], reads=[given, TABLE * np.float32(junk)], made=names[1::-1], fields=back),
        ]

    c = compare(captured_log(log(1.0, 1.0)), captured_log(log(3.0, 1.5)))
    assert [Status(s) for s in c.status] == [Status.EQUAL, Status.DIVERGED, Status.DIVERGED]
    assert np.flatnonzero(c.cause).tolist() == [1]


@pytest.mark.parametrize("junk", [5.0, float("nan")])
def test_states_of_a_random_generator_that_drew_nothing_are_not_judged(junk: float) -> None:
    """Beside an output that is equal to the bit, and one within the tolerance."""

    def log(state: float, off: float) -> list[Step]:
        name = "net/op_0__scaled_dot_product_efficient_attention"
        states = [TABLE[:1] * np.float32(state)] * 2
        return [Step(key=name, gives=[LOSS * np.float32(1 + off), LOSS + 1, *states], reads=[TABLE])]

    same, close = (compare(captured_log(log(1.0, 0.0)), captured_log(log(junk, off))) for off in (0.0, 2e-7))
    assert [Status(s) for s in (*same.status, *close.status)] == [Status.EQUAL, Status.CLOSE]
    assert compare(captured_log(log(1.0, 0.0)), captured_log(log(1.0, 0.5))).red.all()
