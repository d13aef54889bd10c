"""The operation that tells most in a stretch that the two runs compute in other sizes: padded rows, or packed ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.columns import Texts
from matchers.logs.op_log import OpLog
from matchers.logs.raw_record import MEMBERS, ranks_of
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log

X = np.arange(1.0, 25.0, dtype=np.float32).reshape(3, 8) / 24
PADDED = np.concatenate((X, np.zeros((1, 8), np.float32)))
ALL = (0, 1)


def stepped(
    *, packed: bool, scales: tuple[float, ...] = (0.5, 0.5), bent: tuple[int, ...] = ALL, file: str = "model.py"
) -> OpLog:
    """Layers that scale their rows and bend some, and the sum of all; rows of padding hold nothing and add nothing."""
    x = X if packed else PADDED
    steps = [
        Step(
            key=f"rows/op_0_{'cat' if packed else 'index'}",
            gives=[x],
            reads=[x],
            made=[""],
            fields={"phase": "prepare"},
        )
    ]
    x = np.sqrt(x)
    steps.append(Step(key="embed/op_0_sqrt", gives=[x], reads=[steps[0].gives[0]], made=[steps[0].key]))
    made = steps[1].key
    for layer, scale in enumerate(scales):
        ran = [("mul", x * np.float32(scale), {"arguments": {"other": scale}, "location": f"{file}:7"})]
        if layer in bent:
            ran.append(("sin", np.sin(3 * ran[-1][1]), {"location": f"{file}:8"}))
        ran.append(("tanh", np.tanh(ran[-1][1]), {"location": f"{file}:9"}))
        for k, (op, value, fields) in enumerate(ran):
            step = Step(key=f"layers.{layer}/op_{k}_{op}", gives=[value], reads=[x], made=[made], fields=fields)
            x, made = value, step.key
            steps.append(step)
    return captured_log([*steps, Step(key="loss/op_0_sum", gives=[x.sum()], reads=[x], made=[made])])


def causes(c: Comparison) -> list[str]:
    return [c.shown(row)[0].keys[c.shown(row)[1]] for row in np.flatnonzero(c.cause).tolist()]


def compared(a: OpLog, b: OpLog) -> Comparison:
    return compare(a, b, expectation=Expectation(Expect.REDUCTION_ORDER))


def test_what_is_computed_in_other_sizes_is_no_pair_and_no_finding() -> None:
    c = compared(stepped(packed=False), stepped(packed=True))
    assert not c.red.any()
    assert [c.a.keys[i] for i in np.flatnonzero(c.pairing.of_a >= 0)] == ["loss/op_0_sum"]


@pytest.mark.parametrize("scales", [(0.5, 0.6), (0.6, 0.5)])
def test_an_operation_that_was_asked_something_else_is_the_cause(scales: tuple[float, ...]) -> None:
    c = compared(stepped(packed=False), stepped(packed=True, scales=scales))
    key = f"layers.{scales.index(0.6)}/op_0_mul"
    assert causes(c) == [key]
    told = headline(c, int(np.flatnonzero(c.cause)[0]))
    assert told == f"LIKELY CAUSE: other 0.5 in a, 0.6 in b; {key} is the same operation in another form"


@pytest.mark.parametrize("file", ["model.py", "engine.py"])
def test_an_operation_that_both_runs_have_in_another_layer_is_the_cause_where_one_lacks_it(file: str) -> None:
    """Two libraries have lines of their own."""
    c = compared(stepped(packed=False), stepped(packed=True, bent=(0,), file=file))
    assert causes(c) == ["layers.1/op_1_sin"]


def test_a_line_that_one_run_alone_has_of_a_module_is_the_cause() -> None:
    c = compared(stepped(packed=False), stepped(packed=True, bent=()))
    assert causes(c) == ["layers.0/op_1_sin"]


def test_an_operation_of_one_rank_alone_is_the_cause() -> None:
    """Between copies that all ranks of the run make."""
    y, half = X * np.float32(2), X.copy()
    half[1:] = 0
    first = Step(key="layers.0/op_0_mul", gives=[y], reads=[X], made=[""])
    keys = [f"layers.0/op_{k}_{name}" for k, name in enumerate(("mul", "tanh", "where", "sin"))]
    steps, read, made = [first], y, first.key
    for key, value in zip(keys[1:], (np.tanh(y), half, np.sin(half)), strict=True):
        steps.append(Step(key=key, gives=[value], reads=[read], made=[made]))
        read, made = value, key
    ends = [
        Step(key="layers.0/op_9_add", gives=[x + X], reads=[x, X], made=[of, ""])
        for x, of in ((y, first.key), (read, made))
    ]
    a, b = captured_log([first, ends[0]]), captured_log([*steps, ends[1]])
    told = {row: b"1:1" if key == keys[2] else b"0:1 1:1" for row, key in enumerate(b.keys)}
    b = replace(b, extra={**b.extra, MEMBERS: Texts.of(told)}, members={0: "rank_0", 1: "rank_1"})
    assert ranks_of(b).tolist() == [3, 3, 2, 3, 3]
    assert causes(compare(a, b)) == [keys[2]]


def test_a_tensor_plus_a_number_is_no_like_of_a_sum_of_two() -> None:
    """Positions are counted from a start in one run; in the other the same module adds two tensors."""
    keys = [f"layers.0/op_{k}_{name}" for k, name in enumerate(("mul", "add", "sin"))]

    def log(*, packed: bool, bend: float) -> OpLog:
        x = np.sqrt(X if packed else PADDED)
        rows = "cat" if packed else "index"
        first = Step(key=f"rows/op_0_{rows}", gives=[x], reads=[x], made=[""], fields={"phase": "prepare"})
        more = x * np.float32(2)
        reads, asked = ([x], {"other": 3}) if packed else ([x, more], {})
        total = x + np.float32(0.7) if packed else x + more
        end = np.tanh(bend * x)
        steps = [
            first,
            Step(
                key=keys[0],
                gives=[more],
                reads=[x],
                made=[first.key],
                fields={"arguments": {"other": 2}, "location": "model.py:7"},
            ),
            Step(
                key=keys[1],
                gives=[total],
                reads=reads,
                made=[first.key, keys[0]][: len(reads)],
                fields={"arguments": asked, "location": "model.py:8"},
            ),
            Step(key=keys[2], gives=[end], reads=[total], made=[keys[1]], fields={"location": "model.py:9"}),
        ]
        return captured_log([*steps, Step(key="loss/op_0_sum", gives=[end.sum()], reads=[end], made=[keys[2]])])

    c = compared(log(packed=False, bend=1), log(packed=True, bend=2))
    assert c.cause.any()
    assert not [told for row in np.flatnonzero(c.cause).tolist() if "another form" in (told := headline(c, row))]
