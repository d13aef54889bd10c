"""The screen of weights: the matrix, its cursor, and the way to the explorer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from matchers.errors import InputError
from matchers.weights.log import read_weights
from matchers.weights.matrix import compare_runs
from numtui.cli.main import main
from numtui.inputs import OpenRequest
from numtui.session.weights import WeightsCursor
from numtui.text.lines import line_width
from numtui.tui.overview_app import OverviewApp
from numtui.tui.screens.overview import OverviewScreen
from numtui.tui.screens.weights import WeightsScreen
from numtui.views.weights import weights_lines
from tests.matchers.weights.test_weights import Change, moved
from tests.numtui.report.test_weights import EARLIER, LATER, operations, run
from tests.numtui.tui.test_app import press, screen, settled

REQUEST = OpenRequest(path_a="", path_b="", name_a="", name_b="", rules_path=Path("overrides.yaml"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cursor_of(steps: int = 3, **changes: Change) -> WeightsCursor:
    """The cursor on runs with these changes."""
    names = [run(name, change, steps=steps) for name, change in changes.items()]
    logs = [read_weights(Path(name, "numerics", "rank_0_weights.log")) for name in names]
    return WeightsCursor(compare_runs(logs, names))


def opened(cursor: WeightsCursor) -> AbstractAsyncContextManager[tuple[Pilot[None], OverviewApp]]:
    return overview(lambda: WeightsScreen(cursor))


@asynccontextmanager
async def overview(shown: Callable[[], OverviewScreen]) -> AsyncIterator[tuple[Pilot[None], OverviewApp]]:
    """A screen that leads to the explorer, as an application."""
    app = OverviewApp(shown, REQUEST)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        yield pilot, app


async def test_the_earliest_cell_is_chosen_and_enter_opens_the_logs_of_a_step() -> None:
    cursor = cursor_of(run_a={}, run_b={}, run_c=LATER, run_d=EARLIER)
    logs = operations("run_a", 3), operations("run_c", 3)
    async with opened(cursor) as (pilot, app):
        shown = screen(pilot)
        assert "run_d diverges first: step 2, gradient of layers.0.wq.weight" in shown
        assert "equal: run_a, run_b" in shown
        assert "run_d, step 2: 3 of 9 tensors differ, of 1 parameter" in shown
        assert "gradient of layers.0.wq.weight, then its parameter, exp_avg" in shown
        await press(pilot, "enter")
        assert "step 2 has no operation logs in both folders" in screen(pilot)
        assert pilot.app.return_code is None
        await press(pilot, "k", "l")
        shown = screen(pilot)
        assert "operation logs" not in shown
        assert "run_c, step 3: 1 of 9 tensors differ" in shown
        await press(pilot, "up", "left")
        assert "run_b, step 2: 9 tensors agree" in screen(pilot)
        await press(pilot, "f")
        assert "run_b has no difference" in screen(pilot)
        await press(pilot, "?")
        assert "earliest different cell of all runs" in screen(pilot)
        await press(pilot, "q", "j", "f", "enter")
        assert app.chosen is not None
        assert (app.chosen.path_a, app.chosen.path_b, app.chosen.name_b) == (*logs, "run_c")
        assert app.return_code == 0


async def test_q_quits_without_the_explorer() -> None:
    cursor = cursor_of(run_a={}, run_b=EARLIER)
    async with opened(cursor) as (pilot, app):
        await press(pilot, "q")
        assert app.return_code == 0
    assert app.chosen is None


def text(cursor: WeightsCursor, width: int = 80, height: int = 24) -> list[str]:
    lines, items = weights_lines(cursor, width, height)
    assert len(lines) == len(items) == height
    return ["".join(piece for piece, _ in line) for line in lines]


def test_the_cursor_stays_in_the_matrix() -> None:
    cursor = cursor_of(run_a={}, run_b={}, run_c=LATER)
    for row, column in ((-1, -1), (99, 99), (0, 0)):
        cursor.go_to(row, column)
        assert cursor.run in cursor.matrix.runs
        assert cursor.step in cursor.matrix.steps
    cursor.go_to_first()
    assert (cursor.run, cursor.step) == (2, 3)
    cursor.go_to(0, 0)
    assert cursor.listed == []
    cursor.scroll(5)
    assert cursor.top == 0


def test_many_steps_and_runs_scroll_with_the_cursor() -> None:
    cursor = cursor_of(200, run_a={}, **{f"run_{i}": {(150, "norm.weight", "grad"): moved(1)} for i in range(30)})
    shown = text(cursor)
    assert any(" 150 " in line and "…" in line for line in shown[:3])
    assert not any(" 1  " in line for line in shown[2:3])
    cursor.go_to(29, 199)
    assert " 200 " in text(cursor)[2]
    assert any(line.startswith(" run_29 ") for line in text(cursor))
    for width, height in ((80, 24), (48, 12), (20, 6), (200, 60)):
        lines, _ = weights_lines(cursor, width, height)
        assert line_width(lines[2]) <= max(width, 20) + 2


def test_more_parameters_than_lines_scroll() -> None:
    names = ("embed.weight", "layers.0.wq.weight", "norm.weight")
    cursor = cursor_of(run_a={}, run_b={(2, name, "grad"): moved(1) for name in names})
    assert "  2 more parameters: space" in text(cursor, height=9)
    cursor.scroll(1)
    assert any("layers.0.wq.weight" in line for line in text(cursor, height=9)[5:])


def test_a_hostile_name_is_made_safe() -> None:
    cursor = cursor_of(run_a={}, run_b=EARLIER)
    cursor.message = "a\x1b[31m\nb"
    assert not any("\x1b" in line or "\n" in line for line in text(cursor))


def test_the_command_goes_to_the_explorer_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; the exit code is that of the comparison, and a log that the explorer refuses is said."""
    runs = [run("run_a"), run("run_b", EARLIER)]
    logs = operations("run_a", 2), operations("run_b", 2)
    seen: list[object] = []

    def shown(screen: Callable[[], OverviewScreen], asked: OpenRequest) -> tuple[int, OpenRequest | None]:
        overview = screen().overview
        seen.append(overview.message)
        return 0, overview.opening(asked) if len(seen) == 1 else None

    def explored(asked: OpenRequest) -> int:
        seen.append((asked.path_a, asked.path_b, asked.name_a, asked.name_b))
        raise InputError("cannot be read")

    monkeypatch.setenv("TERM", "xterm")
    for name in ("is_terminal", "reopen_keyboard"):
        monkeypatch.setattr(f"numtui.cli.overview.{name}", lambda *_: True)
    monkeypatch.setattr("numtui.cli.overview.explore", explored)
    monkeypatch.setattr("numtui.tui.overview_app.run_overview", shown)
    assert main(["weights", *runs]) == 1
    assert seen == ["", (*logs, "run_a", "run_b"), "cannot be read"]
