"""A result that one run repeats for each sample is compared with the one copy of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.status import Status
from matchers.verdict.comparability import Severity
from tests.builders import op, write_log
from tests.captured import Step, captured_log

RNG = np.random.default_rng(5)
ANGLES, QUERIES = RNG.normal(size=(1, 5, 4)), RNG.normal(size=(3, 5, 4))


def rotated(
    angles: NDArray[np.float64], queries: NDArray[np.float64], made: Sequence[str], factor: float = 2.0
) -> list[Step]:
    """Queries that are rotated by a table; `made`: what makes the two."""
    table = factor * np.cos(angles)
    return [
        Step(key="rotary/op_0_cos", reads=[angles], gives=[np.cos(angles)], made=[""]),
        Step(key="rotary/op_1_mul", reads=[np.cos(angles)], gives=[table], made=["rotary/op_0_cos"]),
        Step(key="attention/op_0_mul", reads=[queries, table], gives=[queries * table], made=made),
    ]


def log(angles: NDArray[np.float64], queries: NDArray[np.float64] = QUERIES, factor: float = 2.0) -> OpLog:
    return captured_log(rotated(angles, queries, ["", "rotary/op_1_mul"], factor))


@pytest.mark.parametrize("turned", [False, True])
def test_copies_are_compared_as_one_and_said(turned: bool) -> None:
    logs = log(ANGLES), log(np.repeat(ANGLES, 3, axis=0))
    c = compare(*(logs[::-1] if turned else logs))
    assert c.status.tolist() == [Status.SAME_PRINT, Status.SAME_PRINT, Status.EQUAL]
    ((severity, text),) = [(note.severity, note.text) for note in c.comparability.notes if note.kind == "copies"]
    assert severity is Severity.HARMLESS
    assert text.startswith(f"{'a' if turned else 'b'} holds 2 results several times over")


def test_what_reads_a_copy_is_judged_by_it() -> None:
    c = compare(log(ANGLES), log(np.repeat(ANGLES, 3, axis=0), QUERIES * 1.01))
    assert c.status.tolist() == [Status.SAME_PRINT, Status.SAME_PRINT, Status.DIVERGED]


def test_what_both_compute_of_a_copy_is_red_where_it_differs() -> None:
    """A factor of 1.1 in the table of one run."""
    one, many = log(ANGLES), log(np.repeat(ANGLES, 3, axis=0), factor=2.2)
    c = compare(one, many)
    assert c.b.held_once == 2
    assert c.status.tolist() == [Status.SAME_PRINT, Status.DIVERGED, Status.DIVERGED]
    assert c.cause.tolist() == [False, True, False]
    assert c.error[1] == pytest.approx(1 - 1 / 1.1)


def test_what_reads_samples_besides_is_no_copy() -> None:
    """Runs of one sample and of three share the table of rotations, not what it rotates."""
    made = "embed/op_0_embedding"
    a, b = (
        captured_log([Step(key=made, gives=[queries]), *rotated(angles, queries, [made, "rotary/op_1_mul"])])
        for queries, angles in ((QUERIES[:1], ANGLES), (QUERIES, np.repeat(ANGLES, 3, axis=0)))
    )
    c = compare(a, b)
    assert c.b.held_once == 2
    assert c.b.shape_text(3) == "[3, 5, 4]"


def test_infinite_numbers_are_no_copies(tmp_path: Path) -> None:
    """As torchtitan's logs print them."""
    a, b = (
        read_log(str(write_log(tmp_path / f"{many}.log", [op("rope/op_0_div", math.inf, shape=(many, 5))])))
        for many in (1, 3)
    )
    assert not compare(a, b).b.held_once


@pytest.mark.parametrize("angles", [np.repeat(ANGLES, 3, axis=0) * 1.001, np.concatenate((ANGLES, ANGLES + 1, ANGLES))])
def test_other_values_are_no_copies(angles: NDArray[np.float64]) -> None:
    a, b = log(ANGLES), log(angles)
    c = compare(a, b)
    assert (c.a.held_once, c.b.held_once) == (0, 0)
    assert c.status.tolist() != [Status.SAME_PRINT, Status.SAME_PRINT, Status.EQUAL]


def test_a_constant_repeated_tells_nothing() -> None:
    assert not compare(log(np.zeros((1, 5, 4))), log(np.zeros((3, 5, 4)))).b.held_once
