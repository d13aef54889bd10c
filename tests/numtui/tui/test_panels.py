"""The panels over the list, on a screen that is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual import events

from matchers.comparison import compare
from matchers.status import Status
from numtui.inputs import OpenRequest
from numtui.text.lines import width_of
from numtui.tui.screens.explorer import Explorer
from numtui.tui.screens.plot import PlotScreen
from numtui.views.panels import cause_entries, causes_title, place_entries, row_line
from tests.builders import Op, op, training_step, write_log
from tests.captured import write_captured
from tests.matchers.causes.test_further_causes import FIRST, SECOND, steps_of
from tests.matchers.drifted_logs import made_up_log
from tests.numtui.fakes import comparison_of
from tests.numtui.query.test_flow import diverging
from tests.numtui.tui.test_app import opened, press, request, screen, settled

CAUSE = "layers.1.attention.wk/op_0_mm"


def key(explorer: Explorer) -> str:
    session = explorer.session
    found: str = session.comparison.a.keys[session.listing.spot[0]]
    return found


def test_the_title_counts_what_the_header_counts_too() -> None:
    def apart(scale: float, layers: int, places: int) -> list[Op]:
        return [
            op(
                f"layers.{k}/op_0_mm",
                scale * (k + 2),
                inputs=[37.0 * (k + 1)],
                producers=[""],
                location=f"model.py:{k % places}",
            )
            for k in range(layers)
        ]

    def title(layers: int, places: int) -> str:
        return causes_title(compare(made_up_log(apart(1.0, layers, places)), made_up_log(apart(1.1, layers, places))))

    assert title(3, 1) == "first causes (1, 3 rows start them)"
    assert title(3, 3) == "first causes (3)"
    assert title(70, 70) == "first causes (the earliest 62 of 70)"


async def test_first_causes_and_what_follows_from_them(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "C")
        shown = screen(pilot)
        assert "first causes (1)" in shown
        assert "explains all red rows" in shown
        assert "growth: forward 1–2" in shown
        await press(pilot, "enter")
        assert key(explorer) == CAUSE
        await press(pilot, "g", "C", "f")
        session = explorer.session
        assert session.listing.filter.query.text == "cause:1"
        assert key(explorer) == CAUSE
        assert len(session.listing.view) == session.comparison.red.sum()
        await press(pilot, "C", "q")
        assert pilot.app.screen is explorer


async def test_why_is_this_red(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "G", "N", "w")
        assert "why red?" in screen(pilot)
        assert "steps back to its first cause" in screen(pilot)
        await press(pilot, "enter")
        assert key(explorer) == CAUSE, "the first cause is chosen at first"
        await press(pilot, "w")
        assert "First cause 1 of 1: no other red row explains it." in screen(pilot)
        await press(pilot, "q", "ctrl+o", "w")
        way = [line for line in screen(pilot).splitlines() if "↓ input" in line]
        assert "layers.1.attention/op_0_bmm" in way[-1], "the hop before it"


async def test_every_row_is_explained(tmp_path: Path) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "g", "w")
        assert "why equal?" in screen(pilot)
        assert "Same printed values." in screen(pilot)
        await press(pilot, "enter")
        assert explorer.session.listing.cursor == 0, "a sentence that names no other row stays"


async def test_keys_that_come_before_a_panel_are_for_it(tmp_path: Path) -> None:
    """What has to be found out first takes a while in large logs; a person types on."""
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        for name in ("C", "enter", "j"):
            pilot.app.post_message(events.Key(name, name if len(name) == 1 else None))
        await settled(pilot)
        assert pilot.app.screen is explorer
        session = explorer.session
        assert session.comparison.a.keys[session.comparison.row_a[session.listing.cursor - 1]] == CAUSE
        at = session.listing.cursor
        for name in ("C", "escape", "j"):
            pilot.app.post_message(events.Key(name, name if len(name) == 1 else None))
        await settled(pilot)
        assert pilot.app.screen is explorer, "esc gives up"
        assert session.listing.cursor == at + 1


async def test_keys_in_a_burst_are_for_the_panel_that_the_first_of_them_opens(tmp_path: Path) -> None:
    """The list can still be seen under a panel, but what is typed is not for it."""
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "g")
        for name in ("v", "o", "q", "j"):
            pilot.app.post_message(events.Key(name, name))
        await settled(pilot)
        assert pilot.app.screen is explorer
        assert explorer.session.listing.line == 1


async def test_the_data_flow_around_a_row(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "/", *"0.attention/op_1__softmax", "enter", "P")
        shown = screen(pilot)
        assert "← 0" in shown
        assert "layers.0.attention/op_2_bmm" in shown
        await press(pilot, "enter")
        assert key(explorer) == "layers.0.attention/op_0_bmm"
        await press(pilot, "P", "G", "enter")
        assert key(explorer) == "layers.0.attention/op_1__softmax"
        await press(pilot, "apostrophe", "apostrophe")
        assert key(explorer) == "layers.0.attention/op_0_bmm"


async def test_marks_notes_and_jumps(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        session = explorer.session
        await press(pilot, "J")
        assert "no marks (Ma)" in screen(pilot)
        await press(pilot, *"7G", "M", "b", "G", "apostrophe", "b")
        assert session.listing.cursor == 6
        await press(pilot, "apostrophe", "x")
        assert "no mark x; marks: b" in screen(pilot)
        await press(pilot, "quotation_mark", *"[odd] one", "enter")
        assert "note: [odd] one" in screen(pilot)
        assert session.listing.annotations.noted(session.comparison) == [(6, "[odd] one")]
        await press(pilot, "g", "J")
        shown = screen(pilot)
        assert "'b" in shown
        assert shown.index("marks") < shown.index("notes") < shown.index("jumps, latest first")
        await press(pilot, "j", "enter")
        assert session.listing.cursor == 6
        await press(pilot, "quotation_mark", "ctrl+u", "enter")
        assert session.listing.annotations.notes == {}
        await press(pilot, "colon", *"go-mark", "enter", "b")
        assert session.listing.cursor == 6, "by its name an action waits for the letter"


async def test_what_cannot_be_compared_is_told_in_full(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, _):
        await press(pilot, "I")
        assert "[2 logs]" in screen(pilot), "nothing stands against comparing them"
        await press(pilot, "1")
        assert "no known obstacle to comparing these runs" in screen(pilot)
    async with opened(request(tmp_path, training_step(), training_step(seed=1)), size=(80, 24)) as (pilot, _):
        await press(pilot, "I")
        shown = screen(pilot)
        assert "[1 comparability]" in shown
        assert "not comparable" in shown
        assert "the runs differ before this step" in shown
        await press(pilot, "I")
        await pilot.resize_terminal(120, 30)
        await settled(pilot)
        assert "not comparable (I)" in screen(pilot)


async def test_information_is_turned_like_pages(tmp_path: Path) -> None:
    async with opened(request(tmp_path), size=(80, 24)) as (pilot, explorer):
        await press(pilot, "I", "tab")
        await settled(pilot)
        assert "[3 row 1]" in screen(pilot)
        assert f"[{explorer.session.comparison.a.keys[0]}]" in screen(pilot)
        await press(pilot, *["right"] * 3)
        assert "[1 comparability]" in screen(pilot), "after the last page comes the first"
        await press(pilot, "shift+tab", "left", "left", "slash", *"4 rec", "enter")
        assert "[3 row 1]" in screen(pilot), "a digit in a search is a letter of it"
        await press(pilot, "escape", "4", "question_mark", "q", "q")
        assert explorer.is_current
        await press(pilot, ":", *"raw", "enter")
        await settled(pilot)
        assert "[3 row 1]" in screen(pilot)


async def test_a_key_of_ones_own_opens_a_page_and_closes_it(tmp_path: Path) -> None:
    async with opened(replace(request(tmp_path), keys={"raw": ("L",)})) as (pilot, explorer):
        for close in ("L", "I"):
            await press(pilot, "L")
            assert "[3 row 1]" in screen(pilot)
            await press(pilot, close)
            assert explorer.is_current


async def test_one_log_has_no_page_of_differences(tmp_path: Path) -> None:
    asked = replace(request(tmp_path), path_b="", name_b="")
    async with opened(asked, size=(80, 24)) as (pilot, _):
        await press(pilot, "I")
        assert "[1 log]" in screen(pilot)
        assert "comparability" not in screen(pilot)
        await press(pilot, "q", "!")
        assert "does nothing here" in screen(pilot), "with one log there is nothing that it could have gone to"


async def test_a_note_stays_with_its_operation_when_rules_change_the_rows(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        session = explorer.session
        await press(pilot, *"12G", "quotation_mark", *"look", "enter")
        before = key(explorer)
        await press(pilot, *"5G", "x", "enter", "J", "enter")
        assert key(explorer) == before
        assert session.listing.annotations.note(session.comparison, session.listing.cursor) == "look"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    c = comparison_of(
        [Status.EQUAL, Status.DIVERGED, Status.ONLY_B, Status.NAN],
        causes=[1],
        errors=[0, 1e-3, float("nan"), float("inf")],
    )
    lines = [row_line(c, row, width, "  tag ", "aside") for row in range(len(c))]
    for entry in (
        *cause_entries(c, ["explains all"], width),
        *place_entries(c, {1: "ab"}, [(2, "x" * 300)], [3], width),
    ):
        lines += entry.lines
    assert max(sum(width_of(text) for text, _ in line) for line in lines) <= width


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_the_plot_leads_to_a_row(tmp_path: Path, size: tuple[int, int]) -> None:
    async with opened(request(tmp_path, *diverging(CAUSE)), size) as (pilot, explorer):
        await press(pilot, "v")
        shown = screen(pilot)
        assert "error over depth" in shown
        assert "forward" in shown.splitlines()[-5]
        await press(pilot, "o")
        assert CAUSE in screen(pilot)
        await press(pilot, "+", "+")
        assert "rows " in screen(pilot).splitlines()[0]
        await press(pilot, "right", "left", "enter")
        assert key(explorer) == CAUSE
        await press(pilot, "v", "n", "0", "q")
        assert key(explorer) == CAUSE, "closing it leaves the cursor where it was"


@pytest.mark.parametrize("keys", ["v", "/w"], ids=["plot", "search"])
async def test_logs_that_become_shorter_meanwhile(tmp_path: Path, keys: str) -> None:
    asked = request(tmp_path)
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "/", *"w", "enter", "G", *keys)
        for path in (asked.path_a, asked.path_b):
            write_log(Path(path), training_step()[:9])
        explorer.loader.read_again()
        await settled(pilot)
        await press(pilot, "left", "escape")
        assert pilot.app.screen is explorer
        assert 0 <= explorer.session.listing.cursor < 9
        search = explorer.session.listing.search
        assert search is not None
        assert search.rows.max() < 9


@pytest.mark.parametrize("name", ["rules", "suggestions", "plot"])
async def test_a_panel_hears_of_a_change_before_it_is_drawn(tmp_path: Path, name: str) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        if name == "plot":
            pilot.app.push_screen(PlotScreen(explorer.session.listing))
        else:
            explorer.run_named(name)
        explorer.say("something happened")
        explorer.jobs.tell_modal()
        await settled(pilot)
        await press(pilot, "q")
        assert pilot.app.screen is explorer


async def test_the_plot_without_braille(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numtui.tui.screens.plot.speaks_unicode", lambda: False)
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, _):
        await press(pilot, "v")
        drawn = screen(pilot).splitlines()[:-5]
        assert all(line.isascii() for line in drawn)
        assert any("@" in line for line in drawn[1:])


async def test_one_log_by_itself(tmp_path: Path) -> None:
    """From any NaN back to the operation that made the first one, over the operations that handed it on."""
    culprit = "layers.1.attention/op_1__softmax"
    step = training_step(3)
    start = next(i for i, op in enumerate(step) if op.key == culprit)
    spoilt: set[float | str] = set()
    for i in range(start, len(step)):
        reads: list[float | str] = ["nan" if value in spoilt else value for value in step[i].inputs]
        if i == start or "nan" in reads:
            spoilt.update(step[i].outputs)
            step[i] = replace(step[i], outputs=["nan"], l2="nan", min="nan", max="nan", mean="nan", inputs=reads)
    async with opened(replace(request(tmp_path, step), path_b="")) as (pilot, explorer):
        await press(pilot, "G", "w")
        assert "steps back to its first cause" in screen(pilot)
        assert "NaN" in screen(pilot)
        await press(pilot, "enter")
        assert key(explorer) == culprit
        await press(pilot, "P", "G", "enter")
        assert key(explorer) == "layers.1.attention/op_2_bmm"
        await press(pilot, "v")
        assert "largest value over depth" in screen(pilot)


async def test_what_was_found_out_about_other_rows_is_dropped(tmp_path: Path) -> None:
    """Rules may change the rows while a way back is looked for."""
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        session = explorer.session
        shown: list[int] = []

        def work() -> int:
            session.listing.show_comparison(replace(session.comparison))
            return 1

        explorer.background.run_then_show("looking", work, shown.append)
        await settled(pilot)
        assert shown == []
        assert "the verdicts have changed meanwhile: press the key again" in screen(pilot)
        await press(pilot, "g", "j")
        assert session.listing.line == 1, "keys are for the list again"


async def test_a_red_row_is_assumed_equal_and_the_next_cause_is_shown(tmp_path: Path) -> None:
    given = {FIRST: 0.25, SECOND: 0.75}
    for name, steps in (("a", steps_of()), ("b", steps_of(given))):
        write_captured(tmp_path / f"{name}.log", steps)
    asked = OpenRequest(
        path_a=f"{tmp_path}/a.log",
        path_b=f"{tmp_path}/b.log",
        name_a="one",
        name_b="two",
        rules_path=tmp_path / "r.yaml",
    )
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "C")
        assert "first causes (1), 1 further" in screen(pilot)
        assert "FURTHER CAUSE: other 0.5 in a, 0.75 in b" in screen(pilot)
        await press(pilot, "q", "W")
        shown = screen(pilot)
        assert "without row 3: 6 red rows left · next: row 7, independent cause" in shown
        assert "● 1 first cause" in shown
        assert "3 × layers.1/op_0_mul" in shown
        assert key(explorer) == SECOND
        await press(pilot, "W")
        assert "without 2 rows from 3 on: no red row is left" in screen(pilot)
        await press(pilot, "escape")
        assert "without 2 rows" not in screen(pilot)
        assert "3 ✗ layers.1/op_0_mul" in screen(pilot)


async def test_the_code_around_the_source_line_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(request(tmp_path, *diverging(CAUSE))) as (pilot, explorer):
        await press(pilot, "K")
        assert "model/wk.py not found here; start numtui in the source tree" in screen(pilot)
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "wk.py").write_text("def f(x):\n    return x @ x\n" * 9)
        await press(pilot, "K")
        assert "a and b  model/wk.py:14  as the file is now" in screen(pilot)
        assert "▸ 14      return x @ x" in screen(pilot)
        await press(pilot, "K", "j")
        assert explorer.app.screen is explorer
