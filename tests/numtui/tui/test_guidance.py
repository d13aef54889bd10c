"""What the explorer says about its keys, and what can be had again, on a screen that is not there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from textual import events

from numtui.session.loading import Loaded, load
from numtui.tui.screens.explorer import Explorer
from numtui.tui.screens.pager import Pager
from tests.builders import training_step
from tests.numtui.query.test_flow import diverging
from tests.numtui.tui.test_app import opened, press, request, screen, settled

CAUSE = "layers.1.attention.wk/op_0_mm"


async def test_after_a_prefix_the_footer_has_the_keys_that_go_on(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE)), (80, 24)) as (pilot, _):
        await press(pilot, "z")
        footer = screen(pilot).rstrip().split("\n")[-1]
        assert footer == " z line to the middle  t line to the top  b line to the bottom  esc nothing"
        await press(pilot, "escape", "apostrophe")
        assert screen(pilot).rstrip().endswith(" ' back  a letter go to its row  esc nothing")
        await press(pilot, "escape", "M", "k", "apostrophe")
        assert screen(pilot).rstrip().endswith(" ' back  k go to its row  esc nothing"), "the letters that are in use"
        await press(pilot, "escape", "left_square_bracket")
        assert screen(pilot).rstrip().endswith(" c previous red  esc nothing")


async def test_the_footer_has_the_keys_of_what_gets_the_keys(tmp_path: Path) -> None:
    def footer(explorer: Explorer) -> str:
        lines = [strip.text for strip in explorer._compositor.render_strips()]
        return lines[-1].rstrip()

    async with opened(request(tmp_path, *diverging(CAUSE)), (80, 24)) as (pilot, explorer):
        usual = footer(explorer)
        assert usual.startswith(" n next red")
        await press(pilot, "f")
        assert footer(explorer) == " enter apply  esc cancel  tab complete  ctrl+u clear"
        await press(pilot, "escape", "quotation_mark")
        assert footer(explorer) == " enter apply  esc cancel  ctrl+u clear"
        await press(pilot, "escape")
        assert footer(explorer) == usual
        await press(pilot, "i", "enter", "q")
        assert footer(explorer) == " s save and quit  d discard changes and quit  c cancel"
        await press(pilot, "c", "ctrl+p")
        assert footer(explorer) == " enter run  ↑ ↓ choose  esc close"
        await press(pilot, "escape")
        assert footer(explorer) == usual


async def test_nothing_red_is_said_and_where_to_look(tmp_path: Path) -> None:
    async with opened(request(tmp_path, training_step(), training_step())) as (pilot, _):
        assert "operations agree. s shows renamed ops; B counts by module" in screen(pilot)


async def test_tab_shows_the_fields_of_the_filter_first(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "f", "tab")
        line = next(line for line in screen(pilot).split("\n") if "filter:" in line)
        for field in ("status:", "phase:", "module:", "at:", "error>"):
            assert f" {field} " in line + " "
        await press(pilot, *"sta", "tab", *"reco", "tab")
        assert explorer.prompt.editor is not None
        assert explorer.prompt.editor.text == "status:recompute"


async def test_a_key_that_does_nothing_says_so(tmp_path: Path) -> None:
    """Over a slow line one would wait for it."""
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "Z")
        assert "Z does nothing here: ? lists the keys" in screen(pilot)
        await press(pilot, "z", "z", "z", "k")
        assert "zk does nothing here" in screen(pilot)
        await press(pilot, "z", "o")
        assert "zo does nothing here; =: fold or unfold each stretch of equal rows" in screen(pilot)
        await press(pilot, "ctrl+w")
        assert "ctrl+w does nothing here; tab: switch list ⇄ inspector" in screen(pilot)
        await press(pilot, "g", "5", "Z", "j")
        assert explorer.session.listing.line == 1, "a count is for the command that follows it"
        await press(pilot, "z", "escape")
        assert "does nothing" not in screen(pilot)


async def test_every_hit_on_the_screen_is_marked(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE)), (80, 24)) as (pilot, explorer):
        await press(pilot, "/", *"_MM", "enter")
        rows = [line for line in screen(pilot).split("\n")[3:] if line[1:5].strip().isdigit()]
        assert [line[0] in "/●" for line in rows] == ["_mm" in line for line in rows]
        assert sum(line[0] == "/" for line in rows) > 1
        await press(pilot, "escape")
        assert not [line for line in screen(pilot).split("\n")[3:] if line[:1] == "/"]
        assert explorer.session.listing.search is None


async def test_y_again_copies_what_else_there_is(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, _):
        await press(pilot, "y")
        assert f"copied {CAUSE}   (again: the source line)" in screen(pilot)
        await press(pilot, "y")
        assert "(again: the key)" in screen(pilot)
        await press(pilot, "j", "k", "y")
        assert f"copied {CAUSE} " in screen(pilot)


async def test_reading_again_can_be_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        before = explorer.session.comparison

        def slow(*given: Any) -> Loaded:
            go_on.wait()
            return load(*given)

        monkeypatch.setattr("numtui.tui.screens.loader.load", slow)
        explorer.run_named("reload")
        reading = explorer.loader.reading
        explorer.run_named("reload")
        assert (reading, explorer.loader.reading) == (True, False)
        go_on.set()
        await settled(pilot)
        assert "reload cancelled" in screen(pilot)
        assert explorer.session.comparison is before


async def test_the_help_can_be_searched(tmp_path: Path) -> None:
    """As every page; `esc` ends the search first, then closes the page."""
    async with opened(request(tmp_path, *diverging(CAUSE)), (80, 24)) as (pilot, explorer):
        await press(pilot, "?", "/", *"EDITOR")
        assert screen(pilot).rstrip().endswith("/EDITOR")
        await press(pilot, "enter")
        assert "$VISUAL" in screen(pilot)
        assert "/EDITOR  1/1" in screen(pilot)
        await press(pilot, "g", "/", *"rules", "enter")
        assert "/rules  1/" in screen(pilot)
        await press(pilot, "n", "n")
        assert "/rules  3/" in screen(pilot)
        await press(pilot, "N", "N")
        assert "/rules  1/" in screen(pilot)
        await press(pilot, "N")
        shown = screen(pilot)
        assert (count := shown.partition("/rules  ")[2].split()[0]).partition("/")[0] == count.partition("/")[2]
        await press(pilot, "/", *"qqq", "enter")
        assert "/qqq  –/0" in screen(pilot)
        await press(pilot, "/", "escape", "escape")
        assert "more lines" in screen(pilot) or "the end" in screen(pilot)
        await press(pilot, "escape")
        assert pilot.app.screen is explorer


@pytest.mark.parametrize("close", ["q", "escape"])
async def test_what_closes_a_page_twice_over_a_slow_line_closes_nothing_else(tmp_path: Path, close: str) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "f", *"layers", "enter", "?")
        for name in (close, close, "j"):
            pilot.app.post_message(events.Key(name, name if len(name) == 1 else None))
        await settled(pilot)
        assert pilot.app.screen is explorer
        assert pilot.app.return_code is None
        assert explorer.session.listing.filter.query.text == "layers"


async def test_a_panel_has_a_help_of_its_own(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE)), (80, 24)) as (pilot, explorer):
        await press(pilot, "C", "?")
        shown = screen(pilot)
        assert "list its downstream rows" in shown
        assert "q esc C" in shown
        assert "next red row" not in shown
        await press(pilot, "?", "enter")
        assert pilot.app.screen is explorer
        assert explorer.session.comparison.cause[explorer.session.listing.cursor]


async def test_the_inspector_takes_the_room_it_is_given(tmp_path: Path) -> None:
    """Away, it opens when it gets the focus."""
    async with opened(request(tmp_path, *diverging(CAUSE)), (100, 30)) as (pilot, explorer):
        inspector, usual = explorer.inspector, explorer.inspector.size.height
        await press(pilot, "n", "plus")
        assert inspector.size.height > usual
        await press(pilot, "plus")
        assert "already at its largest" in screen(pilot)
        await press(pilot, "minus")
        assert inspector.size.height == usual
        await press(pilot, "minus")
        assert inspector.styles.display == "none"
        assert "paired by" not in screen(pilot)
        await press(pilot, "j", "k", "enter")
        assert inspector.size.height >= usual
        assert "paired by" in screen(pilot)
        await press(pilot, "escape", "minus")
        assert "+ shows it" in screen(pilot)


async def test_what_was_said_and_typed_can_be_had_again(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "f", *"op:mm", "enter", "escape", "j")
        assert "rows are listed" not in screen(pilot)
        await press(pilot, "I", "4")
        assert "rows are listed" in screen(pilot)
        await press(pilot, "I", "f", "up", "enter")
        assert explorer.session.listing.filter.query.text == "op:mm"


async def test_q_after_a_page_that_did_not_open_does_not_end_the_program(tmp_path: Path) -> None:
    async with opened(request(tmp_path, training_step(), training_step())) as (pilot, explorer):
        await press(pilot, "C", "q")
        assert "no page is open to close: q again quits" in screen(pilot)
        assert pilot.app.return_code is None
        await press(pilot, "r", "q")
        assert pilot.app.screen is explorer, "one that did open is closed by it"
        await press(pilot, "q")
        assert pilot.app.return_code == 0


async def test_every_page_answers_a_question_mark(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE)), (80, 24)) as (pilot, explorer):
        for opener in ("v", "s", "r", "w", "I", "B", "P"):
            await press(pilot, opener)
            page = pilot.app.screen
            assert page is not explorer, opener
            await press(pilot, "?")
            assert isinstance(pilot.app.screen, Pager), opener
            assert pilot.app.screen is not page, opener
            await press(pilot, "?")
            assert pilot.app.screen is page, opener
            await press(pilot, "q")
            assert pilot.app.screen is explorer, opener
        await press(pilot, "?", "?")
        assert pilot.app.screen is explorer, "the help closes as it was opened"


async def test_a_change_that_makes_more_rows_red_is_asked_for_twice(tmp_path: Path) -> None:
    rules = "ignore:\n  - op: mm\n"
    async with opened(request(tmp_path, *diverging(CAUSE), rules=rules)) as (pilot, explorer):
        red = int(explorer.session.comparison.red.sum())
        await press(pilot, "/", *CAUSE, "enter", "i")
        assert "more red" in screen(pilot)
        await press(pilot, "enter")
        assert "enter again applies it" in screen(pilot)
        assert int(explorer.session.comparison.red.sum()) == red
        await press(pilot, "enter")
        assert int(explorer.session.comparison.red.sum()) > red


async def test_what_was_not_compared_is_listed_with_its_reason(tmp_path: Path) -> None:
    ops = training_step()
    half = len(ops) // 2
    async with opened(request(tmp_path, ops, ops[:half]), (80, 24)) as (pilot, explorer):
        assert f"no red row, {len(ops) - half} not compared (exit 1)" in screen(pilot)
        await press(pilot, "I", "enter")
        assert f"{len(ops) - half} rows not compared" in screen(pilot)
        assert "only a has this operation" in screen(pilot)
        await press(pilot, "j", "enter")
        assert explorer.session.listing.cursor == half + 1
