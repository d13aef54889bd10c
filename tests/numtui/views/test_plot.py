"""The error over depth as characters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.comparison import Comparison
from matchers.logs.op_log import Phase
from matchers.status import Status
from numtui.text.lines import width_of
from numtui.views.plot import ASCII, AXIS, BRAILLE, MARGIN, Plot, Signs
from tests.numtui.fakes import comparison_of

errors = st.lists(st.one_of(st.floats(1e-12, 10), st.sampled_from([0.0, math.nan, math.inf])), min_size=1, max_size=60)


def made(values: list[float], causes: list[int] | None = None) -> Comparison:
    statuses = [
        Status.EQUAL if x == 0 else Status.ONLY_B if math.isnan(x) else Status.NAN if math.isinf(x) else
        Status.DIVERGED if x > 1e-5 else Status.CLOSE
        for x in values
    ]  # fmt: skip
    return comparison_of(statuses, errors=values, causes=causes or [])


def text(plot: Plot, cursor: int = 0) -> list[str]:
    return ["".join(piece for piece, _ in line) for line in plot.lines(cursor)]


def whole(c: Comparison, width: int, height: int, signs: Signs = BRAILLE) -> Plot:
    return Plot(c, np.ones(len(c), bool), 0, len(c), width, height, signs)


@given(errors, st.integers(1, 40), st.integers(1, 12), st.sampled_from([BRAILLE, ASCII]))
def test_every_row_is_drawn_where_it_belongs(values: list[float], width: int, height: int, signs: Signs) -> None:
    c = made(values)
    plot = whole(c, width, height, signs)
    lines = text(plot)
    assert len(lines) == height + MARGIN
    assert all(width_of(line) == AXIS + width for line in lines[:-1])
    assert all(line.isascii() for line in lines) or signs is BRAILLE
    low, high = plot.scale
    for row, error in enumerate(values):
        x = AXIS + row * width // len(values)
        if math.isinf(error):
            assert lines[0][x] == signs.infinite
        elif error > 0:
            assert 10.0**low <= error <= 10.0**high
            up = (math.log10(error) - low) / (high - low) * height
            near = {min(max(math.floor(up + nudge), 0), height - 1) for nudge in (-1e-9, 1e-9)}
            assert any(lines[height - y][x] not in (" ", signs.limit, signs.bar) for y in near)
        else:
            assert lines[height + 1][x] != " "


@given(errors, st.integers(1, 40), st.data())
def test_the_row_to_look_at_is_the_worst_of_its_column(values: list[float], width: int, data: st.DataObject) -> None:
    causes = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=2, unique=True))
    c = made(values, causes)
    plot = whole(c, width, 5)
    for column in range(width):
        rows = [row for row in range(len(values)) if row * width // len(values) == column]
        weights = {row: math.inf if row in causes else values[row] for row in rows}
        seen = {row: weight for row, weight in weights.items() if weight > 0}
        assert (column in plot.worst) == bool(seen)
        if seen:
            best = plot.worst[column]
            assert best in causes or not set(causes) & set(rows)
            assert seen[best] == max(seen.values())
    met = [0]
    while (row := plot.beside(met[-1], 1)) != met[-1]:
        met.append(row)
    assert met[1:] == [plot.worst[column] for column in sorted(plot.worst) if column > 0]


def test_first_causes_the_cursor_and_the_parts_of_the_step_are_marked() -> None:
    c = made([0, 0, 1e-3, 1e-2, 1e-7, math.inf, 1e-3, math.nan], causes=[2, 7])
    c.a.phase[4:] = c.b.phase[4:] = Phase.BACKWARD
    lines = text(whole(c, 80, 20), cursor=3)
    assert sum(line.count("●") for line in lines) == 2
    assert lines[-3][AXIS:].rstrip().endswith("●"), "a row that only one side has stands at the bottom"
    assert lines[-2][AXIS + 30] == "▲"
    assert lines[-1].split() == ["forward", "backward"]
    assert lines[-1].index("backward") == AXIS + 40
    assert [line[:AXIS].strip("┤│└ ") for line in lines if line[:AXIS].strip("┤│└ ")][:3] == ["∞", "1e-02", "1e-03"]


def test_only_rows_that_pass_are_drawn_and_the_scale_stays() -> None:
    c = made([1e-3] * 10 + [1e-6] * 10)
    passing = np.zeros(len(c), bool)
    passing[:10] = True
    plot = Plot(c, passing, 0, len(c), 40, 8)
    assert max(plot.worst) < 20
    assert Plot(c, passing, 0, 5, 40, 8).scale == plot.scale == whole(c, 10, 3).scale


@pytest.mark.parametrize("values", [[0.0, 0.0], [math.nan], [1e-3]])
def test_there_is_a_scale_whatever_there_is(values: list[float]) -> None:
    plot = whole(made(values), 10, 5)
    assert plot.scale[0] < plot.scale[1]
    assert len(text(plot)) == 5 + MARGIN
