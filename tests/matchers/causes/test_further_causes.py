"""A second mistake downstream of the first, where all numbers differ already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.causes.further_causes import explained_by, possible_causes
from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from numtui.report.explanation import explain_row
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from tests.captured import Step, captured_log

Float32 = NDArray[np.float32]

X: Float32 = np.arange(1.0, 25.0, dtype=np.float32) / np.float32(24)


def stepped(given: Mapping[str, float] = {}, **how: Any) -> OpLog:
    return captured_log(steps_of(given, **how))


def steps_of(given: Mapping[str, float] = {}, *, bent: str = "", line: int = 10, apart: bool = False) -> list[Step]:
    """Four layers that scale and square what they read, and the gradient of each scale.

    Args:
        given: the numbers that operations are given, 0.5 where it says nothing.
        bent: the layer that also negates its result.
        line: lines of source between two layers.
        apart: the last two layers read the batch itself.
    """
    steps: list[Step] = []

    def ran(key: str, value: Float32, made: str, read: Float32, line: int, **fields: object) -> Float32:
        location = {"location": f"model.py:{line}"}
        steps.append(Step(key=key, gives=[value], reads=[read], made=[made], fields=location | fields))
        return value

    x, made = X, ""
    for layer in range(4):
        if layer == 2 and apart:
            x, made = X + 1, ""
        key = f"layers.{layer}/op_0_mul"
        number = given.get(key, 0.5)
        x = ran(key, x * np.float32(number), made, x, line * layer + 1, arguments={"other": number})
        x = ran(f"layers.{layer}/op_1_square", x * x, key, x, line * layer + 2)
        made = steps[-1].key
        if str(layer) == bent:
            x = ran(f"layers.{layer}/op_2_neg", -x, made, x, line * layer + 3)
            made = steps[-1].key
    for layer in reversed(range(4)):
        number = given.get(f"layers.{layer}/op_0_mul", 0.5)
        key, told = f"layers.{layer}/op_3_mul", {"phase": "backward", "arguments": {"other": number}}
        x, made = ran(key, x * np.float32(number), made, x, line * layer + 1, **told), key
    return steps


def keys(c: Comparison, groups: tuple[tuple[int, ...], ...]) -> list[list[str]]:
    return [[c.shown(row)[0].keys[c.shown(row)[1]] for row in rows] for rows in groups]


FIRST, SECOND = "layers.1/op_0_mul", "layers.3/op_0_mul"


def test_an_operation_that_was_given_another_number_is_a_cause_of_its_own() -> None:
    c = compare(stepped(), stepped({FIRST: 0.25, SECOND: 0.75}))
    assert keys(c, tuple(c.consequences.starts)) == [[FIRST]]
    assert keys(c, c.further_causes) == [[SECOND]], "and not its gradient, at the same line"
    (row,) = c.further_causes[0]
    told = headline(c, row)
    assert told.startswith("FURTHER CAUSE: other 0.5 in a, 0.75 in b; input 0 already differs, from layers.2")
    cause, reads = explain_row(c, row).steps["Cause"][:2]
    assert cause.text == "A cause of its own: no input brings another fraction about."
    assert reads.text.startswith("What it reads follows from row 3, layers.1/op_0_mul")
    report = Report(c, ReportOptions())
    assert report.independent == 2
    assert report.result.endswith("are red, 2 independent causes")


@pytest.mark.parametrize("given", [{FIRST: 0.25}, {FIRST: 0.25, "layers.2/op_0_mul": 2.0}])
def test_what_one_mistake_brings_about_is_no_other_one(given: dict[str, float]) -> None:
    """Whole numbers may count what the form of a step has: that is possible, and not certain."""
    c = compare(stepped(), stepped(given | {"layers.2/op_0_mul": 0.5}))
    assert c.further_causes == ()
    assert Report(c, ReportOptions()).independent == 0


def test_a_whole_number_is_possibly_a_cause() -> None:
    c = compare(stepped({"layers.3/op_0_mul": 2.0}), stepped({FIRST: 0.25, "layers.3/op_0_mul": 3.0}))
    assert c.further_causes == ()
    assert keys(c, possible_causes(c, c.asked_otherwise, ())) == [[SECOND]]


def test_rows_of_one_line_are_one_cause() -> None:
    c = compare(stepped(line=0), stepped({FIRST: 0.25, SECOND: 0.75}, line=0))
    assert (len(c.consequences.starts), c.further_causes) == (1, ())


def test_an_operation_of_one_run_alone_is_possibly_a_cause_where_it_does_not_hang_together_with_the_first() -> None:
    c = compare(stepped(), stepped({FIRST: 0.25}, bent="3"))
    assert keys(c, possible_causes(c, c.asked_otherwise, c.further_causes)) == [["layers.3/op_2_neg"]]
    c = compare(stepped(), stepped(bent="1"))
    assert possible_causes(c, c.asked_otherwise, c.further_causes) == ()


def test_causes_that_do_not_lead_to_each_other_are_certainly_independent() -> None:
    c = compare(stepped(apart=True), stepped({FIRST: 0.25, SECOND: 0.75}, apart=True))
    assert len(c.consequences.starts) == 2
    assert Report(c, ReportOptions()).independent == 2


def test_if_a_row_were_equal_what_only_it_leads_to_would_be() -> None:
    c = compare(stepped(), stepped({FIRST: 0.25, SECOND: 0.75}))
    first, second = c.consequences.causes[0].rows[0], c.further_causes[0][0]
    causes = c.cause.copy()
    causes[second] = True
    grey = explained_by(c, np.array([first]), causes)
    assert np.flatnonzero(grey).tolist() == list(range(first, second))
    assert explained_by(c, np.array([first, second]), causes).tolist() == c.red.tolist()
    between = first + 2
    assert np.flatnonzero(explained_by(c, np.array([between]), causes)).tolist() == list(range(between, second))
