"""What a row reads, what reads it, and the way back to the first cause of its difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from matchers.status import Status
from numtui.query.flow import consuming, producing, way_back
from tests.builders import Op, training_step, write_log
from tests.numtui.fakes import comparison_of

LAYERS = 3


def diverging(at: str, layers: int = LAYERS) -> tuple[list[Op], list[Op]]:
    """A step, and the same one in which everything from one operation on has other values."""
    a = training_step(layers)
    start = next(i for i, op in enumerate(a) if op.key == at)
    changed: dict[float, float] = {}
    b = list(a[:start])
    for op in a[start:]:
        value = float(op.outputs[0])
        reads = [changed.get(float(x), float(x)) for x in op.inputs]
        if op.key == at or reads != list(op.inputs):
            changed[value] = value * 1.01
            op = replace(op, outputs=[value * 1.01], l2=float(op.l2 or 0) * 1.01)
        b.append(replace(op, inputs=reads))
    return a, b


@pytest.fixture
def compared(tmp_path: Path) -> Callable[[list[Op], list[Op]], Comparison]:
    def made(a: list[Op], b: list[Op]) -> Comparison:
        one, other = (read_log(str(write_log(tmp_path / f"{side}.log", ops))) for side, ops in (("a", a), ("b", b)))
        return compare(one, other)

    return made


def row_of(c: Comparison, key: str) -> int:
    return next(row for row in range(len(c)) if c.row_a[row] >= 0 and c.a.keys[int(c.row_a[row])] == key)


def test_the_way_back_follows_inputs_over_red_rows(compared: Callable[..., Comparison]) -> None:
    start = "layers.1.attention.wk/op_0_mm"
    c = compared(*diverging(start))
    last = int(np.flatnonzero(c.red)[-1])
    way = way_back(c, last)
    assert (way.arrives, way.proven, way.cause) == (True, True, row_of(c, start))
    assert [way.hops[0].row, way.hops[-1].row] == [last, way.cause]
    for hop, following in zip(way.hops, way.hops[1:], strict=False):
        assert c.red[hop.row], "each row of this way differs"
        assert any(n.row == following.row and n.position == hop.position for n in producing(c, hop.row))


def test_a_first_cause_is_its_own_way_back(compared: Callable[..., Comparison]) -> None:
    c = compared(*diverging("layers.1.attention.wk/op_0_mm"))
    cause = int(np.flatnonzero(c.cause)[0])
    assert [hop.row for hop in way_back(c, cause).hops] == [cause]


def test_a_way_over_rows_that_agree_in_print_is_not_proven(compared: Callable[..., Comparison]) -> None:
    """A print of seven digits may hide what goes on: such a row can carry a difference unseen."""
    c = compared(*diverging("layers.1.attention.wk/op_0_mm"))
    score = row_of(c, "layers.1.attention/op_0_bmm")
    status = c.status.copy()
    status[score] = Status.SAME_PRINT
    way = way_back(replace(c, verdict=status), int(np.flatnonzero(c.red)[-1]))
    assert way.arrives
    assert not way.proven
    assert score in [hop.row for hop in way.hops]


def test_without_data_flow_only_the_place_tells() -> None:
    c = comparison_of([Status.EQUAL, Status.DIVERGED, Status.DIVERGED], causes=[1])
    way = way_back(c, 2)
    assert (len(way.hops), way.arrives, way.cause) == (1, False, 1)


def test_neighbours_are_each_others(compared: Callable[..., Comparison]) -> None:
    c = compared(*diverging("layers.1.attention.wk/op_0_mm"))
    for row in range(len(c)):
        for n in producing(c, row):
            assert any(m.row == row and set(n.sides) & set(m.sides) for m in consuming(c, n.row))
        assert all(n.sides in ("a", "b", "ab") and n.row != row for n in (*producing(c, row), *consuming(c, row)))
    softmax = row_of(c, "layers.0.attention/op_1__softmax")
    assert [c.a.keys[int(c.row_a[n.row])] for n in producing(c, softmax)] == ["layers.0.attention/op_0_bmm"]
    assert [c.a.keys[int(c.row_a[n.row])] for n in consuming(c, softmax)] == ["layers.0.attention/op_2_bmm"]


def test_a_preview_knows_no_flow() -> None:
    c = comparison_of([Status.PENDING] * 3)
    assert (producing(c, 1), consuming(c, 1)) == ((), ())
