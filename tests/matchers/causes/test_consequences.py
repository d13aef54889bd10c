"""What follows from a first cause, on data flows small enough to follow with a finger."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.causes.consequences import Cause, consequences
from matchers.comparison import Comparison, compare
from matchers.logs.op_log import Phase
from matchers.status import Status
from tests.builders import Op, op
from tests.captured import Step, captured_log
from tests.matchers.drifted_logs import made_up_log


def chain(values: dict[str, float], *, parts: int = 2) -> list[Op]:
    """Two chains of operations that have nothing to do with each other, three operations a layer."""
    out: list[Op] = []
    for part in range(parts):
        read, maker = 10.0 + part, ""
        for layer in range(2):
            for k, name in enumerate(("mul", "mm", "add")):
                key = f"layers.{layer}.part{part}/op_{k}_{name}"
                value = values.get(key, 1.5 + 7 * part + 3 * layer + k)
                out.append(op(key, value, inputs=[read], producers=[maker], location=f"model.py:{10 * part + k}"))
                read, maker = value, key
    return out


def compared(changed: dict[str, float]) -> Comparison:
    return compare(made_up_log(chain({})), made_up_log(chain(changed)))


def keys(c: Comparison, cause: Cause) -> list[str]:
    return [c.a.keys[int(c.row_a[row])] for row in cause.rows]


def test_nothing_follows_from_nothing() -> None:
    found = compared({}).consequences
    assert (found.causes, found.unexplained, found.cause_of.max()) == ((), 0, -1)


def test_each_cause_has_the_rows_downstream_of_it() -> None:
    c = compared(
        {
            "layers.0.part0/op_1_mm": 9.0,
            "layers.0.part0/op_2_add": 90.0,
            "layers.1.part0/op_0_mul": 91.0,
            "layers.1.part1/op_2_add": 92.0,
        }
    )
    first, second = c.consequences.causes
    assert keys(c, first) == ["layers.0.part0/op_1_mm"]
    assert (first.red, first.assumed, first.modules) == (3, 0, 2)
    assert keys(c, second) == ["layers.1.part1/op_2_add"]
    assert (second.red, second.modules) == (1, 1)
    assert c.consequences.cause_of[c.red].tolist() == [0, 0, 0, 1]


def test_what_agrees_in_print_between_two_red_rows_is_masked_and_passes_on() -> None:
    c = compared({"layers.0.part0/op_0_mul": 9.0, "layers.0.part0/op_2_add": 90.0, "layers.1.part0/op_0_mul": 91.0})
    first, second = c.consequences.causes
    assert (first.red, first.masked, first.after) == (3, 2, -1)
    assert (keys(c, second), second.after) == (["layers.0.part0/op_2_add"], 0)


def test_rows_of_one_line_are_one_cause_and_the_error_is_told_layer_by_layer() -> None:
    c = compared({"layers.0.part0/op_2_add": 4.0, "layers.1.part0/op_2_add": 9.0, "layers.0.part1/op_1_mm": 40.0})
    one, two = sorted(c.consequences.causes, key=lambda cause: cause.rows)
    assert keys(c, one) == ["layers.0.part0/op_2_add", "layers.1.part0/op_2_add"]
    assert [(step.phase, step.place, step.row) for step in one.growth] == [
        (Phase.FORWARD, "0", one.rows[0]),
        (Phase.FORWARD, "1", one.rows[1]),
    ]
    assert keys(c, two) == ["layers.0.part1/op_1_mm"]


@pytest.mark.parametrize(
    ("phase", "line", "causes"), [("backward", 1, 1), ("backward", 2, 2), ("optimizer", 1, 2), ("forward", 1, 1)]
)
def test_a_line_and_its_gradient_are_one_cause(phase: str, line: int, causes: int) -> None:
    """But not all that one line, the step, makes of all parameters."""

    def steps(factor: float) -> list[Step]:
        def step(key: str, value: float, phase: str, line: int) -> Step:
            given = np.full(4, value, np.float32)
            fields = {"phase": phase, "location": f"model.py:{line}"}
            return Step(key=key, reads=[given], gives=[given * np.float32(factor)], fields=fields)

        return [step("m/op_0_silu", 1.0, "forward", 1), step("m/op_1_silu_backward", 5.0, phase, line)]

    c = compare(captured_log(steps(2.0)), captured_log(steps(3.0)))
    assert len(c.consequences.starts) == causes


def test_a_red_row_that_no_data_flow_leads_to_goes_with_the_red_row_before_it() -> None:
    records = chain({}, parts=1)
    alone = [op("layers.1.part0/op_3_sum", 5.0, inputs=[77.0], location="model.py:90")]
    bad = chain({"layers.0.part0/op_0_mul": 9.0}, parts=1)
    other = [op("layers.1.part0/op_3_sum", 6.0, inputs=[78.0], location="model.py:90")]
    c = compare(made_up_log(records + alone), made_up_log(bad + other))
    (cause,) = c.consequences.causes
    assert (cause.red, cause.assumed) == (2, 1)
    assert c.consequences.unexplained == 0


def test_a_row_with_equal_bits_passes_nothing_on() -> None:
    """A maximum that the difference does not reach."""
    given = np.arange(4.0, dtype=np.float32)

    def steps(first: float, last: float) -> list[Step]:
        product, sure, total = given * first, np.full(2, np.float32(7)), np.array([1, 2], np.float32) * last
        return [
            Step(key="layers.0/op_0_mul", reads=[given], gives=[product]),
            Step(key="layers.0/op_1_sign", reads=[product], made=["layers.0/op_0_mul"], gives=[sure]),
            Step(
                key="layers.0/op_2_exp",
                reads=[sure],
                made=["layers.0/op_1_sign"],
                gives=[total],
                fields={"location": "model.py:9"},
            ),
        ]

    c = compare(captured_log(steps(2.0, 3.0)), captured_log(steps(4.0, 5.0)))
    assert c.status.tolist() == [Status.DIVERGED, Status.EQUAL, Status.DIVERGED]
    assert [cause.red for cause in c.consequences.causes] == [1, 1]


def test_more_causes_than_are_followed_are_counted_and_explained_by_no_other() -> None:
    def apart(scale: float) -> list[Op]:
        return [
            op(f"layers.{k}/op_0_mm", scale * (k + 2), inputs=[37.0 * (k + 1)], producers=[""], location=f"m.py:{k}")
            for k in range(70)
        ]

    c = compare(made_up_log(apart(1.0)), made_up_log(apart(1.1)))
    found = c.consequences
    assert np.count_nonzero(c.cause) == len(found.starts) == 70
    assert {(cause.red, cause.assumed) for cause in found.causes} == {(1, 0)}
    assert sorted(row for starts in found.starts for row in starts) == np.flatnonzero(c.cause).tolist()
    assert found.unexplained == 0


@given(st.dictionaries(st.integers(0, 11), st.floats(1.0, 99.0), max_size=8))
def test_every_red_row_has_its_earliest_cause(changed: dict[int, float]) -> None:
    names = [record.key for record in chain({})]
    c = compared({names[k]: value for k, value in changed.items()})
    found = consequences(c)
    assert np.array_equal(found.cause_of >= 0, c.red & (found.cause_of >= 0))
    assert found.unexplained == np.count_nonzero(c.red & (found.cause_of < 0))
    if c.cause.any():
        assert found.unexplained == 0
    for k, cause in enumerate(found.causes):
        assert all(c.cause[row] for row in cause.rows)
        assert cause.red >= np.count_nonzero(found.cause_of == k)
        assert max((step.error for step in cause.growth), default=0.0) <= np.nanmax(c.error)


def test_another_shape_comes_before_other_values_whatever_they_explain() -> None:
    other = [
        Op(**{**vars(made), "shape": (8, 4)}) if made.key == "layers.1.part1/op_2_add" else made
        for made in chain({"layers.0.part0/op_1_mm": 9.0, "layers.0.part0/op_2_add": 90.0})
    ]
    c = compare(made_up_log(chain({})), made_up_log(other))
    assert [c.status[cause.rows[0]] for cause in c.consequences.causes] == [Status.SHAPE, Status.DIVERGED]
    assert [cause.red for cause in c.consequences.causes] == [1, 2]


def test_what_was_given_another_number_with_equal_inputs_comes_before_what_explains_more() -> None:
    """That an operation has no partner proves nothing; a whole number may count the parts of another form."""
    x = np.arange(1.0, 9.0)

    def log(scale: float, *, more: bool) -> list[Step]:
        steps = [Step(key="norm/op_0_neg", gives=[-x], reads=[x], made=[""])] if more else []
        value, made = (-x, "norm/op_0_neg") if more else (x, "")
        for name in ("sin", "exp", "tanh"):
            steps.append(Step(key=f"net/op_{name}", gives=[value + 1], reads=[value], made=[made]))
            value, made = value + 1, steps[-1].key
        asked = {"arguments": {"other": scale}, "location": "model.py:9"}
        return [*steps, Step(key="loss/op_0_mul", gives=[3 * x * scale], reads=[3 * x], made=[""], fields=asked)]

    for scale, proves in ((2.5, True), (3.0, False)):
        c = compare(captured_log(log(2.0, more=False)), captured_log(log(scale, more=True)))
        first, second = c.consequences.causes
        assert (keys(c, first) == ["loss/op_0_mul"]) == proves
        assert (second.red > first.red) == proves
