"""The screen of all ranks, the way to the explorer, from there to the next rank, and back."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from matchers.errors import LogError
from numtui.cli.ranks_screen import show_ranks
from numtui.inputs import OpenRequest
from numtui.session.journal import Journal
from numtui.session.ranks import RanksCursor
from numtui.session.session import Session
from numtui.tui.app import Numtui
from numtui.tui.screens.explorer import Explorer
from numtui.tui.screens.overview import OverviewScreen
from numtui.tui.screens.ranks import RanksScreen
from tests.numtui.tui.test_app import press, screen, settled
from tests.numtui.tui.test_weights import REQUEST, overview
from tests.ranks import ORIGIN, logged_runs, made_runs


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_keys_move_among_the_ranks_and_enter_opens_one() -> None:
    cursor = RanksCursor(made_runs(64))
    async with overview(lambda: RanksScreen(cursor)) as (pilot, app):
        assert "base ⇄ new: 13 of 64 ranks are red; it began on rank 2" in screen(pilot)
        await press(pilot, "f", "down", "j", "k")
        assert f"▸rank {ORIGIN + 1}" in screen(pilot)
        await press(pilot, "G", "n")
        assert "no red rank below" in screen(pilot)
        await press(pilot, "N")
        assert cursor.rank == 15
        await press(pilot, "o", "h")
        assert " forward · layers.1 " in screen(pilot)
        await press(pilot, "l", "right", "left", "tab")
        assert "rank 9: new has no log of it" not in screen(pilot)
        await press(pilot, "enter")
        assert "rank 9: new has no log of it" in screen(pilot)
        await press(pilot, "?")
        assert "where the divergence of this rank began" in screen(pilot)
        await press(pilot, "q", "shift+tab", "g", "o", "enter")
    assert app.chosen == cursor.opening(REQUEST)
    assert app.chosen is not None
    assert app.chosen.path_a == f"base/rank_{ORIGIN}_activations.log"


async def test_a_click_chooses_a_rank() -> None:
    cursor = RanksCursor(made_runs(4))
    async with overview(lambda: RanksScreen(cursor)) as (pilot, _):
        row = next(y for y, line in enumerate(screen(pilot).splitlines()) if line.startswith(" rank 3"))
        pilot.app.mouse_captured = None
        await pilot.click(offset=(3, row))
        await settled(pilot)
        assert cursor.rank == 3


# -- the explorer on a rank


@asynccontextmanager
async def explored(cursor: RanksCursor) -> AsyncIterator[tuple[Pilot[None], Numtui, Callable[[], Explorer]]]:
    """The explorer as the overview opens it, and what gives the explorer that is there now."""
    request = cursor.opening(REQUEST)
    assert request is not None
    app = Numtui(request, cursor)

    def explorer() -> Explorer:
        assert app.explorer is not None
        assert app.screen is app.explorer
        return app.explorer

    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        yield pilot, app, explorer


def key(session: Session) -> str:
    """The operation under the cursor."""
    return session.comparison.a.keys[session.comparison.row_a[session.listing.cursor]]


async def test_the_next_rank_is_shown_at_the_same_row_and_the_first_one_as_it_was(tmp_path: Path) -> None:
    cursor = RanksCursor(logged_runs(tmp_path))
    async with explored(cursor) as (pilot, app, explorer):
        first = explorer()
        assert (cursor.rank, key(first.session)) == (1, "layers.0.attention/op_0_bmm")
        assert "● cause" in screen(pilot) or "first cause" in screen(pilot)
        await press(pilot, "down", '"', *"odd", "enter", "}")
        second = explorer()
        assert second is not first
        assert not first.is_attached
        assert (cursor.rank, key(second.session)) == (2, "layers.0.attention/op_1__softmax")
        assert "rank 2: same operation" in screen(pilot)
        assert not second.session.listing.annotations.notes
        await press(pilot, "}")
        assert "no later rank was compared" in screen(pilot)
        await press(pilot, "[", "r")
        third = explorer()
        assert third.session.comparison is first.session.comparison, "kept"
        assert [text for _, text in third.session.listing.annotations.noted(third.session.comparison)] == ["odd"]
        await press(pilot, "?")
        assert "show this row on the next, previous rank" in screen(pilot)
        await press(pilot, "q")
        assert "all ranks" in screen(pilot)
        await press(pilot, "{", "q")
    assert cursor.rank == 0
    assert app.return_code == 0


async def test_keys_typed_after_it_are_for_the_next_rank(tmp_path: Path) -> None:
    cursor = RanksCursor(logged_runs(tmp_path, origin=0))
    async with explored(cursor) as (pilot, _, explorer):
        await pilot.press("}", "}", "G")
        await settled(pilot)
        session = explorer().session
        assert cursor.rank == 2
        assert session.listing.cursor == len(session.comparison) - 1


async def test_unsaved_rules_are_asked_about_and_saved_ones_hold_on_the_next_rank(tmp_path: Path) -> None:
    cursor = RanksCursor(logged_runs(tmp_path))
    async with explored(cursor) as (pilot, _, explorer):
        first = explorer()
        await press(pilot, "i", "enter", "}")
        assert "save and go to rank 2" in screen(pilot)
        await press(pilot, "escape")
        assert explorer() is first
        await press(pilot, "}", "s")
        second = explorer().session
        assert (cursor.rank, len(second.rules), second.dirty) == (2, 1, False)
        await press(pilot, "i", "enter", "q")
        assert "discard changes and return to all ranks" in screen(pilot)
        await press(pilot, "escape", "{", "d")
        assert (cursor.rank, len(explorer().session.rules)) == (1, 1)
        assert not explorer().session.dirty
        request = explorer().loader.request
        assert Journal(request.path_a, request.path_b, request.rules_path).pending() is None


async def test_a_rank_whose_log_is_gone_is_not_shown() -> None:
    cursor = RanksCursor(logged_runs(Path()))
    async with explored(cursor) as (pilot, _, explorer):
        first = explorer()
        os.unlink(cursor.runs.summaries[2].paths[1])
        await press(pilot, "}")
        assert explorer() is first
        assert "No such file" in screen(pilot)
        await press(pilot, "G", "{")
        assert cursor.rank == 0


async def test_one_pair_of_logs_has_no_ranks(tmp_path: Path) -> None:
    request = RanksCursor(logged_runs(tmp_path)).opening(REQUEST)
    assert request is not None
    app = Numtui(request)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert "next rank" not in screen(pilot)
        await press(pilot, "}")
        assert "there is one rank" in screen(pilot)


def renamed(log: Path) -> int:
    """Give an operation of a log another name; return its line."""
    text = log.read_text()
    log.write_text(text.replace("[layers.0.attention/op_0_bmm]", "[layers.0.attention/op_9_div]"))
    return text[: text.index("[layers.0.attention/op_0_bmm]")].count("\n") + 1


async def test_an_operation_that_only_b_has_is_under_the_cursor(tmp_path: Path) -> None:
    cursor = RanksCursor(logged_runs(tmp_path))
    request = cursor.opening(REQUEST)
    assert request is not None
    app = Numtui(replace(request, line_b=renamed(Path(request.path_b))))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert app.session is not None
        c, row = app.session.comparison, app.session.listing.cursor
        assert c.b.keys[c.row_b[row]] == "layers.0.attention/op_9_div"


def test_the_overview_and_the_explorer_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor stays on the rank that was looked at last; what cannot be opened is said."""
    runs = logged_runs(tmp_path)
    seen: list[object] = []

    def shown(screen: Callable[[], OverviewScreen], asked: OpenRequest) -> tuple[int, OpenRequest | None]:
        cursor = screen().overview
        assert isinstance(cursor, RanksCursor)
        seen.append((cursor.rank, cursor.message))
        return 0, cursor.opening(asked) if len(seen) < 4 else None

    def explored(asked: OpenRequest, ranks: RanksCursor) -> int:
        seen.append(Path(asked.path_a).name)
        if ranks.rank == 0:
            raise LogError("cannot be read")
        ranks.go_to_rank(0)
        return 1

    monkeypatch.setattr("numtui.cli.ranks_screen.explore", explored)
    monkeypatch.setattr("numtui.tui.overview_app.run_overview", shown)
    assert show_ranks(runs, REQUEST) == 0
    assert seen == [(1, ""), "rank_1_activations.log", (0, ""), "rank_0_activations.log", (0, "cannot be read")]
