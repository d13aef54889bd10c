"""Clicks and the wheel on a screen that is not there: places are those of what was drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from textual import events
from textual.pilot import Pilot

from numtui.query.view import Order
from numtui.text.lines import key_line, target_at
from numtui.tui.screens.explorer import Explorer
from numtui.tui.screens.pager import Pager
from numtui.tui.screens.panel import Panel
from numtui.tui.screens.rules import RulesPanel
from numtui.tui.widgets.table import Table
from tests.builders import training_step
from tests.conftest import REPOSITORY
from tests.numtui.report.test_text import with_wrong
from tests.numtui.tui.test_app import opened, press, request, screen, settled


def where(pilot: Pilot[None], text: str, on: str) -> tuple[int, int]:
    """The cell where a widget of the shown screens first says this."""
    [widget] = [w for shown in pilot.app.screen_stack for w in shown.query(on)]
    for y, line in enumerate(screen(pilot).splitlines()):
        if text in line and widget.region.contains(line.index(text), y):
            return line.index(text), y
    raise AssertionError(f"{text!r} is not on the screen:\n{screen(pilot)}")


async def click(pilot: Pilot[None], text: str, times: int = 1, on: str = "Table") -> None:
    """Click where a widget says this."""
    await pilot.click(offset=where(pilot, text, on), times=times)
    await settled(pilot)


async def wheel(pilot: Pilot[None], text: str, notches: int, on: str = "Table") -> None:
    """Turn the wheel where a widget says this; down with a positive number."""
    x, y = where(pilot, text, on)
    kind = events.MouseScrollDown if notches > 0 else events.MouseScrollUp
    for _ in range(abs(notches)):
        pilot.app.post_message(kind(None, x, y, 0, 0, 0, False, False, False, screen_x=x, screen_y=y))
    await settled(pilot)


def key_under(explorer: Explorer) -> str:
    listing = explorer.session.listing
    return str(explorer.session.comparison.a.keys[listing.spot[0]])


def inside(explorer: Explorer) -> bool:
    """Whether the inspector has the keys."""
    return explorer.inspector.active


def shown(pilot: Pilot[None]) -> type:
    return type(pilot.app.screen)


async def test_a_row_is_clicked_and_entered(tmp_path: Path) -> None:
    async with opened(request(tmp_path), (120, 40)) as (pilot, explorer):
        await click(pilot, "layers.0.attention.wv/op_0_mm")
        assert key_under(explorer) == "layers.0.attention.wv/op_0_mm"
        assert not inside(explorer)
        await click(pilot, "layers.0.attention.wk/op_0_mm", times=2)
        assert key_under(explorer) == "layers.0.attention.wk/op_0_mm"
        assert inside(explorer)
        await click(pilot, "layers.0.attention/op_0_bmm", times=3)
        assert inside(explorer), "as by a double click"
        await click(pilot, "layers.0.attention.wv/op_0_mm")
        assert not inside(explorer), "the list has the keys again"


async def test_a_fold_line_is_unfolded(tmp_path: Path) -> None:
    async with opened(request(tmp_path), (120, 40)) as (pilot, explorer):
        await press(pilot, "equals_sign")
        folded = len(explorer.session.listing.view)
        await click(pilot, "equal …", times=2)
        assert len(explorer.session.listing.view) > folded
        assert not inside(explorer)


async def test_an_input_in_the_inspector_leads_to_its_producer(tmp_path: Path) -> None:
    async with opened(request(tmp_path), (120, 40)) as (pilot, explorer):
        await click(pilot, "layers.0.attention.wv/op_0_mm")
        reader = explorer.session.listing.cursor
        await click(pilot, "input 0", on="Inspector")
        assert inside(explorer)
        assert explorer.inspector.position == 1
        assert explorer.session.listing.cursor == reader
        await click(pilot, "input 0", times=2, on="Inspector")
        assert explorer.session.listing.cursor < reader
        assert not inside(explorer)


async def test_the_map_at_the_right_edge_shows_red_and_leads_there(tmp_path: Path) -> None:
    ops = training_step()
    async with opened(request(tmp_path, ops, with_wrong(training_step(), 2)), (120, 24)) as (pilot, explorer):
        await press(pilot, "equals_sign", "g")
        lines = [line[118:] for line in screen(pilot).split("\n")[4:]]
        rows = explorer.table.rows
        assert any(line == "┃│" for line in lines[:rows]), "the lines on the screen"
        red = next(y for y, line in enumerate(lines[:rows]) if line.endswith("█"))
        await pilot.click(Table, offset=(119, red + 1))
        await settled(pilot)
        first = int(np.flatnonzero(explorer.session.comparison.red)[0])
        assert abs(explorer.session.listing.cursor - first) <= len(explorer.session.comparison) // rows + 1


async def test_headings_sort(tmp_path: Path) -> None:
    asked = request(tmp_path, training_step(), with_wrong(training_step(), 2))
    async with opened(asked, (120, 40)) as (pilot, explorer):
        listing = explorer.session.listing
        for heading, order in (
            ("error", Order.ERROR),
            ("error ▼", Order.DISPATCH),
            ("via", Order.CONFIDENCE),
            ("error", Order.ERROR),
            ("#", Order.DISPATCH),
        ):
            await click(pilot, heading)
            assert listing.order is order, heading
        before = listing.cursor
        await click(pilot, "a: one")
        assert (listing.order, listing.cursor) == (Order.DISPATCH, before)


async def test_keys_of_the_footer_are_pressed(tmp_path: Path) -> None:
    asked = request(tmp_path, training_step(), with_wrong(training_step(), 2))
    async with opened(asked, (120, 40)) as (pilot, explorer):
        await click(pilot, "first cause", on="Footer")
        assert explorer.session.comparison.cause[explorer.session.listing.cursor]
        await click(pilot, "? help", on="Footer")
        assert shown(pilot) is Pager
        await wheel(pilot, "First keys", 2, "_PagerText")
        assert "First keys" not in screen(pilot)
        await click(pilot, "q close", on="_PagerText")
        assert shown(pilot) is Explorer
        await press(pilot, "slash", *"wo/op")
        await click(pilot, "esc", on="Footer")
        assert explorer.prompt.editor is None
        # an edit that is proposed is answered
        await press(pilot, "equals_sign")
        await click(pilot, "layers.0.attention.wv/op_0_mm")
        await press(pilot, "x")
        await click(pilot, "enter apply", on="Footer")
        assert explorer.session.dirty
        await press(pilot, "q")
        await click(pilot, "cancel", on="Dialog _Body")
        assert shown(pilot) is Explorer, "in the dialog itself"
        await press(pilot, "q")
        await click(pilot, "cancel", on="Footer")
        assert shown(pilot) is Explorer, "in the footer below it"


async def test_the_wheel_scrolls_and_the_cursor_stays_in_the_window(tmp_path: Path) -> None:
    async with opened(request(tmp_path, training_step(20), training_step(20)), (100, 24)) as (pilot, explorer):
        listing, table = explorer.session.listing, explorer.table
        await wheel(pilot, "layers.0.attention.wv", 4)
        assert table.top == 12
        assert listing.line == 12
        await wheel(pilot, "exact", -1)
        assert (table.top, listing.line) == (9, 12)
        await wheel(pilot, "exact", -100)
        assert table.top == 0
        assert 0 < listing.line < table.rows


async def test_a_click_where_there_is_nothing(tmp_path: Path) -> None:
    """The screen below a panel is still laid out for a smaller terminal."""
    async with opened(request(tmp_path)) as (pilot, _):
        await press(pilot, "P")
        pilot.app.screen.post_message(events.Click(None, 500, 500, 0, 0, 1, False, False, False, 500, 500))
        await settled(pilot)
        assert shown(pilot) is Panel


async def test_panels_are_clicked(tmp_path: Path) -> None:
    asked = request(tmp_path, training_step(), with_wrong(training_step(), 2))
    async with opened(asked, (120, 40)) as (pilot, explorer):
        await press(pilot, "C")
        panel = pilot.app.screen
        assert isinstance(panel, Panel)
        rows = [entry.row for entry in panel._entries if entry.row >= 0]
        text = "".join(text for text, _ in next(e for e in panel._entries if e.row == rows[-1]).lines[0])
        await click(pilot, text.strip()[:40], times=2, on="_Body")
        assert shown(pilot) is Explorer
        assert explorer.session.listing.cursor == rows[-1]


async def test_suggestions_and_rules_are_clicked(tmp_path: Path) -> None:
    data = REPOSITORY / "tests" / "data"
    asked = replace(request(tmp_path), path_a=str(data / "fsdp2_sac.log.gz"), path_b=str(data / "fsdp2_traced.log.gz"))
    async with opened(asked, (120, 40)) as (pilot, explorer):
        await press(pilot, "s")
        await click(pilot, "v lists", on="_Body")
        await click(pilot, "lowered collectives", times=2, on="_Body")
        assert "▾   lowered collectives" in screen(pilot)
        await click(pilot, "accept all", on="_Body")
        assert "enter apply" in screen(pilot)
        await click(pilot, "checkpointed names", times=2, on="_Body")
        assert not explorer.session.dirty, "a double click is no answer to the question"
        await wheel(pilot, "Suggestions", 1, "_Body")
        await click(pilot, "a accept", on="_Body")
        assert len(explorer.session.rules.rules) == 1, "the first rule below the family"
        await click(pilot, "q close", on="_Body")
        await press(pilot, "r")
        await wheel(pilot, "Rules", 3, "_Body")
        panel = pilot.app.screen
        assert isinstance(panel, RulesPanel)
        assert panel._at == 0


@pytest.mark.parametrize("width", [4, 20, 80])
def test_a_target_is_where_its_key_is_drawn(width: int) -> None:
    line = key_line((("a", "accept"), ("→ ←", "open"), ("^s", "save")), width)
    drawn = "".join(text for text, _ in line)
    for text, target in (("accept", "a"), ("→", "→"), ("open", "→"), ("save", "^s")):
        if text in drawn:
            assert target_at(line, drawn.index(text)) == target
    assert target_at(line, len(drawn)) == ""
