"""The program on a screen that is not there: few tests, for what only the screen does."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual import events
from textual.app import App
from textual.command import Hits
from textual.geometry import Region, Size
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.screen import Screen
from textual.worker import WorkerCancelled

import numtui.tui.app
from matchers.errors import InputError, LogError
from matchers.rules.file import RuleFile
from numtui.actions import ACTIONS
from numtui.inputs import OpenRequest
from numtui.query.view import StatusGroup
from numtui.session.journal import Journal
from numtui.session.loading import load
from numtui.tui.app import Numtui
from numtui.tui.screens.explorer import Explorer
from numtui.tui.screens.opening import FirstRows, Opening
from numtui.tui.screens.pager import Pager, help_lines
from numtui.tui.screens.pages import Information
from numtui.tui.screens.palette import ActionProvider, scores
from numtui.tui.textual_shims import crash_of
from tests.builders import Op, op, training_step, write_log
from tests.conftest import REPOSITORY

_HOPS = 4

WRONG = """\
# agreed with Kim on Monday
pairs:
  - a: layers.0.attention.wq/op_0_mm
    b: layers.0.attention.wk/op_0_mm
"""


def request(folder: Path, ops_a: list[Op] | None = None, ops_b: list[Op] | None = None, rules: str = "") -> OpenRequest:
    a = write_log(folder / "step_2" / "rank_0_activations.log", training_step() if ops_a is None else ops_a)
    b = write_log(folder / "b" / "step_2" / "rank_0_activations.log", training_step() if ops_b is None else ops_b)
    path = folder / "overrides.yaml"
    if rules:
        path.write_text(rules, encoding="utf-8")
    return OpenRequest(path_a=str(a), path_b=str(b), name_a="one", name_b="two", rules_path=path)


def not_a_log(folder: Path) -> OpenRequest:
    asked = request(folder)
    Path(asked.path_b).write_bytes(bytes(range(256)) * 64)
    return asked


@asynccontextmanager
async def opened(asked: OpenRequest, size: tuple[int, int] = (160, 40)) -> AsyncIterator[tuple[Pilot[None], Explorer]]:
    """The program with everything read and compared."""
    app = Numtui(asked)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        assert app.explorer is not None
        yield pilot, app.explorer


async def settled(pilot: Pilot[None]) -> None:
    """Wait for all work in the background and for what it brings about."""
    await pilot.pause()
    while await worked(pilot):
        await pilot.pause()
    await pilot.pause()


async def worked(pilot: Pilot[None]) -> bool:
    """Wait for the work in the background that there is now; False when there is none."""
    if all(worker.is_finished for worker in pilot.app.workers):
        return False
    with suppress(WorkerCancelled):  # another piece of work has taken its place
        await pilot.app.workers.wait_for_complete()
    return True


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, each when all that the one before brings about is done; `Pilot.press` waits 40 ms for each."""
    for name in keys:
        key = _character_to_key(name) if len(name) == 1 else name
        pilot.app.post_message(events.Key(key, name if len(name) == 1 else None))
        await processed(pilot)
    await settled(pilot)


async def processed(pilot: Pilot[None]) -> None:
    """Wait for messages and work in the background, and for what these send: from a field to its bar to the screen."""
    hops = 0
    while hops < _HOPS:
        await pilot._wait_for_screen()
        hops = 0 if await worked(pilot) else hops + 1


def screen(pilot: Pilot[Any]) -> str:
    """What the terminal would show."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def test_t_in_a_preview_is_about_the_change_that_it_shows(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "x")
        assert "cuts 1 pair" in screen(pilot)
        await press(pilot, "t")
        assert "cuts 1 pair" in screen(pilot)
        assert "this change makes no pair to generalise" in screen(pilot)
        assert explorer.session.proposal is not None
        assert explorer.session.proposal.key == "x"


async def test_a_wrong_rule_is_seen_cut_undone_and_saved(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=WRONG)) as (pilot, explorer):
        shown = screen(pilot)
        assert "one ⇄ two" in shown
        assert "rank 0 · step 2" in shown
        assert "✗ 1 red" in shown
        assert "layers.0.attention.wq/op_0_mm" in shown
        await press(pilot, "n")
        assert "red 1/1" in screen(pilot)
        await press(pilot, "x")
        assert "1 fewer red" in screen(pilot)
        assert "enter apply" in screen(pilot)
        assert explorer.session.comparison.red.any(), "not before it is confirmed"
        await press(pilot, "enter")
        assert "✗ 0 red" in screen(pilot)
        assert "rules not saved" in screen(pilot)
        await press(pilot, "u")
        assert "✗ 1 red" in screen(pilot)
        await press(pilot, "ctrl+r", "ctrl+s")
        assert "saved to" in screen(pilot)
        assert RuleFile.load(tmp_path / "overrides.yaml").rules.rules == ()
        assert (tmp_path / "overrides.yaml").read_text(encoding="utf-8").startswith("# agreed with Kim")
        await press(pilot, "q")
        assert pilot.app.return_code == 0


async def test_a_rule_that_is_off_by_one_is_taken_back_with_a(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=WRONG)) as (pilot, explorer):
        await press(pilot, "g", "a")
        assert "this row is in no mispaired run" in screen(pilot)
        await press(pilot, "n")
        assert "1 row of layers.0.attention.wq differs as paired" in screen(pilot)
        assert "realign)" in screen(pilot)
        await press(pilot, "a")
        assert "realign 1 row: drop" in screen(pilot)
        assert "1 fewer red" in screen(pilot)
        assert explorer.session.comparison.red.any(), "not before it is confirmed"
        await press(pilot, "a")
        assert "✗ 0 red" in screen(pilot)
        assert explorer.session.rules.rules == ()
        await press(pilot, "u")
        assert "✗ 1 red" in screen(pilot)
        assert "realign)" in screen(pilot), "it is looked for again"


async def test_pairing_by_hand_with_m_and_m(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "/", *"0.attention.wk", "enter", "m", "j", "m")
        assert "pair layers.0.attention.wk/op_0_mm ↔" in screen(pilot)
        assert "tab alternative (1/2)" in screen(pilot)
        await press(pilot, "escape")
        assert explorer.session.proposal is None
        assert not explorer.session.dirty
        await press(pilot, "m", "m")
        assert "more red: enter again applies it" in screen(pilot)
        await press(pilot, "m")
        assert len(explorer.session.rules) == 1
        assert explorer.session.comparison.rules == explorer.session.rules


async def test_counts_sequences_and_lone_digits(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        session = explorer.session
        await press(pilot, *"12G")
        assert session.listing.cursor == 11
        await press(pilot, *"3k")
        assert session.listing.cursor == 8
        await press(pilot, "g", "g")
        assert session.listing.cursor == 0
        await press(pilot, "G", "z", "z")
        assert session.listing.cursor == len(session.comparison) - 1
        await pilot.press("3")
        assert len(session.listing.view) == len(session.comparison), "a digit waits for what follows"
        explorer.settle()
        await settled(pilot)
        assert len(session.listing.view) == 0
        assert "no row matches: esc drops the filters" in screen(pilot)
        await press(pilot, "escape")
        assert len(session.listing.view) == len(session.comparison)


async def test_a_search_without_text_or_hits_says_so(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, _):
        await press(pilot, "/", "enter")
        assert "no search yet: / searches" in screen(pilot)
        await press(pilot, "/", *"qqq", "enter")
        assert "/qqq  no hit" in screen(pilot)
        assert "; next" not in screen(pilot), "there is none"


async def test_searching_counts_hits_and_can_be_taken_back(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "/", *"wk")
        assert "1/2" in screen(pilot)
        at = explorer.session.listing.cursor
        assert at > 0
        await press(pilot, "escape")
        assert (explorer.session.listing.cursor, explorer.session.listing.search) == (0, None)
        await press(pilot, "/", *"wk", "enter", "semicolon")
        assert explorer.session.listing.cursor > at
        assert "/wk  2/2" in screen(pilot)
        await press(pilot, "comma")
        assert explorer.session.listing.cursor == at
        await press(pilot, "ctrl+o")
        assert explorer.session.listing.cursor != at


async def test_filters_and_commands(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "f", *"softmax", "enter")
        assert len(explorer.session.listing.view) == 2
        assert "filter: softmax" in screen(pilot)
        await press(pilot, "f", *" is:rot", "enter")
        assert "is:rot is unknown" in screen(pilot)
        await press(pilot, "escape", "colon", *"7", "enter")
        assert explorer.session.listing.cursor == 6
        await press(pilot, "colon", *"nonsense", "enter")
        assert "unknown command" in screen(pilot)
        await press(pilot, ":", *"fitler", "enter")
        assert "fitler: unknown command (:filter?)" in screen(pilot)
        await press(pilot, "colon", *"fold", "enter")
        assert explorer.session.listing.folded
        await press(pilot, "colon", *"q!", "enter")
    assert pilot.app.return_code == 0


async def test_a_page_of_what_is_on_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`H` proposes a name, asks before it replaces a file, and says what went wrong."""
    monkeypatch.chdir(tmp_path)
    async with opened(request(tmp_path)) as (pilot, _):
        await press(pilot, "H")
        assert "write an HTML page to: numtui.html" in screen(pilot)
        await press(pilot, "enter")
        assert "written: numtui.html (0.1 MB)" in screen(pilot)
        assert (tmp_path / "numtui.html").read_text(encoding="utf-8").startswith("<!doctype html>")
        await press(pilot, "H")
        assert "write an HTML page to: numtui-2.html" in screen(pilot)
        await press(pilot, "escape")
        (tmp_path / "numtui.html").write_text("old", encoding="utf-8")
        await press(pilot, "colon", *"html numtui.html", "enter")
        assert "numtui.html exists: overwrite it?" in screen(pilot)
        await press(pilot, "c")
        assert (tmp_path / "numtui.html").read_text(encoding="utf-8") == "old"
        await press(pilot, "colon", *"html numtui.html", "enter", "o")
        assert (tmp_path / "numtui.html").read_text(encoding="utf-8") != "old"
        await press(pilot, "colon", *"html no/such/folder.html", "enter")
        assert "no/such/folder.html: cannot be written: No such file or directory" in screen(pilot)


async def test_a_row_is_copied_as_markdown(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, _):
        await press(pilot, "Y")
        assert "copied the row as Markdown" in screen(pilot)
        assert pilot.app.clipboard.startswith("`tok_embeddings/op_0_embedding`  \nsame-print, error 0, forward, ")


async def test_the_inspector_leads_to_the_producer_and_back(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        session = explorer.session
        await press(pilot, "/", *"0.attention/op_0_bmm", "enter", "enter")
        assert "j k choose input" in screen(pilot)
        await press(pilot, "j", "enter")
        assert session.comparison.a.keys[session.listing.spot[0]] == "layers.0.attention.wk/op_0_mm"
        assert not explorer.inspector.active
        await press(pilot, "ctrl+o")
        assert session.comparison.a.keys[session.listing.spot[0]] == "layers.0.attention/op_0_bmm"
        await press(pilot, "tab")
        assert session.comparison.a.keys[session.listing.spot[0]] == "layers.0.attention.wk/op_0_mm", (
            "right after, tab is ctrl+i"
        )
        await press(pilot, "j", "tab")
        assert "j k choose input" in screen(pilot), "anywhere else, tab is for the inspector"
        await press(pilot, "escape")
        assert "j k choose input" not in screen(pilot)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(("asked_for", "shown"), [(0, 0), (9, 9), (10**6, 5)])
async def test_a_record_that_is_asked_for_goes_before_the_place_of_the_last_session(
    tmp_path: Path, single: bool, asked_for: int, shown: int
) -> None:
    """Also the first record; one that the log does not have leaves the cursor where it was, at 5."""
    first, *others = training_step()
    both = request(tmp_path, ops_b=[first, op("extra/op_0_neg"), *others])
    asked = replace(both, path_b="", name_b="") if single else both
    async with opened(asked) as (_, explorer):
        explorer.session.listing.go(int(explorer.session.comparison.at_a[5]))
        explorer.session.store_session()
    async with opened(replace(asked, row=asked_for)) as (_, explorer):
        assert explorer.session.comparison.row_a[explorer.session.listing.cursor] == shown


async def test_leaving_with_unsaved_rules_asks(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=WRONG)) as (pilot, explorer):
        await press(pilot, "n", "x", "enter", "q")
        assert "Unsaved rule changes" in screen(pilot)
        await press(pilot, "escape")
        assert pilot.app.screen is explorer
        await press(pilot, "q", "s")
    assert pilot.app.return_code == 0
    assert len(RuleFile.load(tmp_path / "overrides.yaml").rules) == 0


async def test_a_file_changed_on_disk_is_asked_about(tmp_path: Path) -> None:
    asked = request(tmp_path, rules=WRONG)
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "n", "x", "enter")
        asked.rules_path.write_text("# mine\n" + WRONG, encoding="utf-8")
        await press(pilot, "ctrl+s")
        assert "The file has changed on disk" in screen(pilot)
        await press(pilot, "c")
        assert explorer.session.dirty
        await press(pilot, "ctrl+s", "o")
        assert not explorer.session.dirty


async def test_a_file_that_another_process_saves_is_waited_for_without_blocking(tmp_path: Path) -> None:
    asked = request(tmp_path, rules=WRONG)
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "n", "x", "enter")
        with asked.rules_path.open("rb+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            explorer.saving.save(tries=0)
            await settled(pilot)
            assert "another process is saving it; try again" in screen(pilot)
            await press(pilot, "q", "s")
            assert "another process is saving it" in screen(pilot)
            await press(pilot, "question_mark")
            assert "First keys" in screen(pilot)
            assert explorer.session.dirty
        while pilot.app.return_code is None:
            await pilot.pause(0.01)
    assert len(RuleFile.load(asked.rules_path).rules) == 0


async def test_work_of_a_lost_session_is_offered(tmp_path: Path) -> None:
    asked = request(tmp_path)
    lost = Journal(asked.path_a, asked.path_b, asked.rules_path)
    lost.write(WRONG)
    lost.close()
    async with opened(asked) as (pilot, explorer):
        assert "Unsaved rules of an earlier session" in screen(pilot)
        await press(pilot, "r")
        assert len(explorer.session.rules) == 1
        assert "✗ 1 red" in screen(pilot)
        assert explorer.session.dirty
        await press(pilot, "u")
        assert not explorer.session.dirty


async def test_deciding_later_keeps_the_work_of_a_lost_session(tmp_path: Path) -> None:
    asked = request(tmp_path)
    lost = Journal(asked.path_a, asked.path_b, asked.rules_path)
    lost.write(WRONG)
    lost.close()
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "escape")
        assert "the next session offers them again" in screen(pilot)
        assert len(explorer.session.rules) == 0
        await press(pilot, "q")
        assert pilot.app.return_code == 0
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "enter")
        assert len(explorer.session.rules) == 1


async def test_saving_by_command(tmp_path: Path) -> None:
    asked = request(tmp_path)
    taken, fresh = tmp_path / "taken.yaml", tmp_path / "fresh.yaml"
    taken.write_text("version: 1\n", encoding="utf-8")
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "colon", *"w", "enter")
        assert "nothing to save: no rules yet" in screen(pilot)
        assert not asked.rules_path.exists()
        await press(pilot, "i", "enter")
        explorer.saving.save(path=taken)
        await settled(pilot)
        assert "The file exists" in screen(pilot)
        await press(pilot, "c", "colon", *f"wq {fresh}", "enter")
        assert pilot.app.return_code == 0
    assert len(RuleFile.load(fresh).rules) == 1
    assert taken.read_text(encoding="utf-8") == "version: 1\n"


async def test_moving_the_cursor_repaints_two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "j", "j")
        painted: list[Region] = []
        refresh = explorer.table.refresh

        def spy(*regions: Region, **options: bool) -> Any:
            painted.extend(regions)
            return refresh(*regions, **options)

        monkeypatch.setattr(explorer.table, "refresh", spy)
        await press(pilot, "j")
        assert sorted(region.y for region in painted) == [3, 4]


async def test_text_of_a_log_is_never_markup_nor_an_escape_sequence(tmp_path: Path) -> None:
    ops = [
        op("[bold]m[/bold]/op_0_mm"),
        op("evil\x1b[31m\x07\x9b2J/op_0_mm"),
        op("back\u202ewards/op_0_mm"),
        op("宽宽宽/op_0_mm"),
    ]
    async with opened(request(tmp_path, ops, ops), size=(80, 24)) as (pilot, _):
        shown = screen(pilot)
        assert "[bold]m[/bold]/op_0_mm" in shown
        assert "evil␛[31m␇" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        await press(pilot, "j", "j", "j", "r")
        assert "no rules yet" in screen(pilot)
        await press(pilot, "escape", "I")
        assert isinstance(pilot.app.screen, Pager)
        assert "excluded operations: detach, t" in screen(pilot)


async def test_names_stand_in_two_columns_or_in_one_and_scroll_together(tmp_path: Path) -> None:
    a, b = (str(REPOSITORY / "tests" / "data" / f"fsdp2_{name}.log.gz") for name in ("sac", "traced"))
    asked = OpenRequest(path_a=a, path_b=b, name_a="sac", name_b="traced", rules_path=tmp_path / "r.yaml", resume=False)
    async with opened(asked, size=(120, 40)) as (pilot, explorer):
        row = next(line for line in screen(pilot).split("\n") if "qkv_linear.wqkv/op_0_mm" in line)
        assert "layers.0…qkv_linear.wqkv/op_0_mm          layers.0…qkv_linear.wqkv/op_3_mm " in row
        before = explorer.session.listing.cursor
        await press(pilot, "h", "j")
        assert "layers.0.attention.qkv_linear.wqkv/op_0…  layers.0.attention.qkv_linear.wqkv/op_3…" in screen(pilot)
        await press(pilot, "h", "h", "h", "left")
        assert "the names show their starts" in screen(pilot)
        await press(pilot, "l", "l", "l", "right")
        assert "the names show their ends" in screen(pilot)
        assert explorer.session.listing.cursor == before + 1
        await press(pilot, "vertical_line")
        assert "layers.0.attention.qkv_linear.wqkv/op_0_mm ⇄ op_3_mm" in screen(pilot)
        await press(pilot, "vertical_line")
        assert row[:90] in screen(pilot)
        await pilot.resize_terminal(59, 20)
        await settled(pilot)
        await press(pilot, "vertical_line")
        assert "two columns of names need 120 columns" in " ".join(screen(pilot).split())


async def test_a_terminal_that_is_too_small_says_so_and_recovers(tmp_path: Path) -> None:
    async with opened(request(tmp_path), size=(40, 8)) as (pilot, explorer):
        assert "too small" in screen(pilot)
        await press(pilot, "j", "G", "question_mark", "x", "enter", "i", "enter", "5", "ctrl+s", "slash", "q")
        assert pilot.app.return_code == 0, "of all keys only those that quit are taken"
        assert not explorer.session.dirty
        assert explorer.session.listing.cursor == 0
    async with opened(request(tmp_path), size=(40, 8)) as (pilot, explorer):
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert "tok_embeddings" in screen(pilot)
        assert "? help" in screen(pilot)


async def test_rules_that_do_nothing_are_said_when_they_come_into_force(tmp_path: Path) -> None:
    rules = WRONG + "  - a: nowhere/op_0_mm\n    b: layers.0.attention.wv/op_0_mm\nnonsense: 1\n"
    async with opened(request(tmp_path, rules=rules)) as (pilot, _):
        told = "1 rule of overrides.yaml is broken, 1 rule of overrides.yaml matches nothing: r shows them"
        assert told in screen(pilot)
        await press(pilot, "n")
        assert told not in screen(pilot)
        await press(pilot, "x", "enter")
        assert told in screen(pilot)
        assert "u undoes it" in screen(pilot)


async def test_a_log_that_is_cut_off_is_said_and_stays_said(tmp_path: Path) -> None:
    asked = request(tmp_path)
    write_log(Path(asked.path_a), training_step()[:-2], declared=400)
    write_log(Path(asked.path_b), [])
    async with opened(asked, size=(100, 30)) as (pilot, _):
        assert f"b has no operations; a is cut off after {len(training_step()) - 2} of 400 operations" in screen(pilot)
        await press(pilot, "j")
        assert "a cut off: I  b empty: I" in screen(pilot)


async def test_half_a_log_is_said_and_stays_said_and_is_no_agreement(tmp_path: Path) -> None:
    asked = request(tmp_path, training_step(), training_step()[:16])
    async with opened(asked, size=(160, 30)) as (pilot, _):
        shown = screen(pilot)
        assert "16 of 32 compared (I)" in shown
        assert "no red row, 16 not compared (exit 1), chiefly the second half of a (16) · I, then enter" in shown
        assert "No divergence" not in shown
        await press(pilot, "j")
        assert "the second half of a (16) not compared: I" in screen(pilot)
        await press(pilot, "I")
        assert "16 of 32 operations compared; the second half of a (16) has no partner." in screen(pilot)
        await press(pilot, "escape", "q")
    assert pilot.app.return_code == 1


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_every_key_at_every_size(tmp_path: Path, size: tuple[int, int]) -> None:
    """Nothing that a person can press ends the program, except the keys that should."""
    asked = request(tmp_path, training_step(), training_step(seed=1)[:-3], rules=WRONG)
    harmless = [a for a in ACTIONS if a.id not in ("quit", "suspend")]
    async with opened(asked, size) as (pilot, explorer):
        for action in harmless:
            for key in action.keys:
                # In a burst, as a slow line delivers them; the names of the keys are those of a real terminal.
                for name in (*key.split(" "), "escape", "escape", "j"):
                    pilot.app.post_message(events.Key(_character_to_key(name) if len(name) == 1 else name, name))
            await pilot._wait_for_screen()
            assert pilot.app.is_running, action.id
        await settled(pilot)
        await press(pilot, "escape", "escape", "escape")
        assert pilot.app.screen is explorer


async def test_the_palette_runs_an_action(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "ctrl+p", *"fold stretches")
        await press(pilot, "down", "enter")
        assert explorer.session.listing.folded


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("filter", ["filter", "filters"]),
        ("Fil", ["filter", "filters"]),
        ("save", ["save"]),
        ("red", ["redraw", "redo", "next-red"]),
        ("red next", ["next-red", "previous-red"]),
        ("cause", ["causes", "next-cause", "previous-cause"]),
        ("fitler", ["filter", "filters"]),
        ("neighbors", ["neighbours"]),
        ("for an issue", ["copy-row"]),
        ("attention", []),
    ],
)
def test_the_palette_lists_the_best_name_first(typed: str, first: list[str]) -> None:
    found = scores(typed, ACTIONS)
    ranked = [ACTIONS[at].name for at in sorted(found, key=lambda at: -found[at])]
    assert ranked[: len(first) or 1] == first


def test_the_palette_finds_every_action_by_its_name_and_by_its_words() -> None:
    for at, action in enumerate(ACTIONS):
        for typed in (action.name, action.name[:-1], action.name.replace("-", " ").upper(), action.help[:20]):
            assert at in scores(typed, ACTIONS), typed
        best = scores(action.name.replace("-", " "), ACTIONS)
        assert max(best, key=lambda index: best[index]) == at


@pytest.mark.parametrize("under", ["question_mark", "slash", "r"])
async def test_the_palette_opens_over_the_list_only(tmp_path: Path, under: str) -> None:
    async with opened(request(tmp_path)) as (pilot, _):
        await press(pilot, under)
        shown = pilot.app.screen
        await press(pilot, "ctrl+p")
        assert pilot.app.screen is shown


async def test_the_palette_waits_for_the_hits_of_what_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load its list is still that of no letters, with whatever was chosen there."""
    may_find, search = asyncio.Event(), ActionProvider.search

    async def slowly(provider: ActionProvider, query: str) -> Hits:
        await may_find.wait()
        async for hit in search(provider, query):
            yield hit

    monkeypatch.setattr(ActionProvider, "search", slowly)
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "ctrl+p", "down", "down")
        for character in "fold stretches\rj":
            key = "enter" if character == "\r" else _character_to_key(character)
            pilot.app.post_message(events.Key(key, character))
        await pilot.pause()
        assert pilot.app.screen is not explorer
        may_find.set()
        await settled(pilot)
        assert pilot.app.screen is explorer
        assert explorer.session.listing.folded


async def test_the_palette_runs_an_action_once_in_a_burst_of_keys(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "ctrl+p", *"fold stretches")
        await press(pilot, "down")
        for _ in range(3):
            pilot.app.post_message(events.Key("enter", "\r"))
        await settled(pilot)
        assert pilot.app.screen is explorer
        assert explorer.session.listing.folded


async def test_a_terminal_that_is_as_it_was_is_not_restored_again(tmp_path: Path) -> None:
    """Not even by a signal after whose patience a thread is still reading."""
    app = Numtui(request(tmp_path))
    app.restore_terminal = lambda: None

    async def end(_: Pilot[None]) -> None:
        assert app.restore_terminal is not None
        app.exit()

    await app.run_async(headless=True, auto_pilot=end)
    assert app.restore_terminal is None


async def test_a_signal_among_hundreds_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe in which the loop learns of signals is full."""
    ended_by: list[int] = []
    monkeypatch.setattr(Numtui, "end_by", lambda _, number: ended_by.append(number))
    monkeypatch.setattr(Numtui, "signals", (signal.SIGTERM,))
    before = signal.getsignal(signal.SIGTERM)
    try:
        async with opened(request(tmp_path)) as (pilot, _):
            pipe = signal.set_wakeup_fd(-1)
            with suppress(BlockingIOError):
                while True:
                    os.write(pipe, bytes(1))
            signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
            os.kill(os.getpid(), signal.SIGTERM)
            await settled(pilot)
            assert ended_by == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_keys_that_textual_binds_do_nothing(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "shift+tab", "super+c")
        assert pilot.app.is_running
        assert pilot.app.screen is explorer


@pytest.mark.parametrize("name", ["help", "palette", "rules", "suggestions", "html", "info"])
async def test_a_screen_that_opens_while_the_program_ends(tmp_path: Path, name: str) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        explorer.run_named(name)
        pilot.app.exit(return_code=143)
    assert pilot.app.return_code == 143
    assert crash_of(pilot.app) is None


async def test_the_palette_without_room_for_its_list(tmp_path: Path) -> None:
    """On narrow and on low screens."""
    async with opened(request(tmp_path)) as (pilot, explorer):
        for size in (*((width, 24) for width in range(1, 10)), (30, 5)):
            await press(pilot, "ctrl+p")
            await pilot.resize_terminal(*size)
            await press(pilot, *"fold", "down", "pageup", "pagedown", "escape")
            assert pilot.app.screen is explorer, size
            await pilot.resize_terminal(160, 40)


async def test_rules_are_not_changed_before_they_have_been_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person does to them would be gone a moment later; notes stay."""
    may_load = threading.Event()

    def later(*arguments: Any) -> Any:
        may_load.wait()
        return load(*arguments)

    monkeypatch.setattr("numtui.tui.screens.loader.load", later)
    app = Numtui(request(tmp_path, rules=WRONG))
    async with app.run_test(size=(120, 30)) as pilot:
        while app.explorer is None or not app.explorer.loader.reading:
            await pilot.pause()
        try:
            await pilot.press("i", "enter")
            assert "waiting until the logs are compared …  (esc gives up)" in screen(pilot)
            await pilot.press("escape", "colon", *"wq other.yaml", "enter")
            assert "the logs are still being compared" in screen(pilot)
            await pilot.press("j", "quotation_mark", *"odd", "enter")
        finally:
            may_load.set()
        await settled(pilot)
        session = app.explorer.session
        assert [text for _, text in session.listing.annotations.noted(session.comparison)] == ["odd"]
        assert len(session.rules) == 1
        await press(pilot, "i", "enter")
        assert len(session.rules) == 2
    assert not (tmp_path / "other.yaml").exists()


async def test_a_size_that_the_terminal_no_longer_has_lays_out_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each screen lays out the others: two sizes went back and forth between them for ever."""
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "question_mark")
        laid_out: list[Size] = []
        lay_out = Screen._screen_resized

        def counted(self: Screen[Any], size: Size) -> None:
            laid_out.append(size)
            lay_out(self, size)

        monkeypatch.setattr(Screen, "_screen_resized", counted)
        for screen_behind, size in zip(pilot.app.screen_stack, (Size(59, 20), Size(133, 24)), strict=False):
            screen_behind.post_message(events.Resize(size, size))
        await settled(pilot)
        assert not laid_out
        assert explorer.size == pilot.app.size


async def test_a_page_that_is_closed_before_it_is_read(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        explorer.run_named("raw")
        await settled(pilot)
        page = pilot.app.screen
        assert isinstance(page, Information)
        await press(pilot, "q")
        assert explorer.is_current
        page._read(page._at, [])


async def test_the_inspector_moves_in_a_row_that_has_not_been_drawn(tmp_path: Path) -> None:
    ops = training_step()
    ops[5].inputs, ops[5].producers = [], []
    async with opened(replace(request(tmp_path, ops), path_b="", name_b="")) as (_, explorer):
        explorer.session.listing.go(4)
        explorer.run_named("inspect")
        explorer.session.listing.go(5)
        explorer.run_named("down")
        assert explorer.inspector.position is None


async def test_keys_that_ask_for_a_verdict_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the logs are compared there is no red row to go to, which must not read as a verdict."""
    may_load = threading.Event()

    def later(*arguments: Any) -> Any:
        may_load.wait()
        return load(*arguments)

    monkeypatch.setattr("numtui.tui.screens.loader.load", later)
    ops = training_step()
    for one in ops[20:]:
        one.outputs = [9.0]
    app = Numtui(request(tmp_path, ops))
    async with app.run_test(size=(120, 30)) as pilot:
        while app.explorer is None or not app.explorer.loader.reading:
            await pilot.pause()
        try:
            await pilot.press("2", "n", "j")
            shown = screen(pilot)
            assert "no red row" not in shown
            assert "2 n j" in shown, "the keys that wait are seen"
        finally:
            may_load.set()
        await settled(pilot)
        reds = np.flatnonzero(app.explorer.session.comparison.red)
        assert app.explorer.session.listing.cursor == reds[2] + 1, "from the first cause, which is red"


@pytest.mark.parametrize("leaving", ["q", ":wq\r", "i\rqd"])
async def test_keys_after_the_one_that_leaves_do_nothing(tmp_path: Path, leaving: str) -> None:
    """They come in the same burst, and open pages that will never be drawn."""
    async with opened(request(tmp_path)) as (pilot, _):
        for character in f"{leaving}sAx?j:q!\rrx":
            pilot.app.post_message(
                events.Key("enter" if character == "\r" else _character_to_key(character), character)
            )
        for _ in range(100):
            if pilot.app.return_code is None:
                await pilot.pause()
    assert pilot.app.return_code == 0


async def test_empty_logs(tmp_path: Path) -> None:
    async with opened(request(tmp_path, [], [])) as (pilot, explorer):
        assert "the logs are empty" in screen(pilot)
        await press(pilot, "j", "n", "o", "p", "c", "m", "x", "i", "y", "enter", "escape", "=", "G", "ctrl+d")
        assert explorer.session.listing.cursor == -1


async def test_a_file_that_is_no_log_ends_with_its_error(tmp_path: Path) -> None:
    asked = not_a_log(tmp_path)
    app = Numtui(asked)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
    assert isinstance(app.error, LogError)
    assert app.return_code == 2


async def test_the_collector_leaves_alone_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the program runs; whoever runs it in a process of their own gets everything back."""
    told: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: told.append("aside"))
    monkeypatch.setattr(gc, "unfreeze", lambda: told.append("back"))
    async with opened(request(tmp_path)):
        assert set(told) == {"aside"}
    assert told[-1] == "back"


def test_an_unknown_theme_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="theme mauve"):
        Numtui(replace(request(tmp_path), theme="mauve"))


class OnlyOpening(App[None]):
    """The first frame, and nothing that would take its place."""

    CSS_PATH = str(Path(numtui.tui.app.__file__).with_name("app.tcss"))

    def __init__(self, asked: OpenRequest) -> None:
        super().__init__()
        self.opening = Opening(asked)

    def get_default_screen(self) -> Screen[None]:
        return self.opening


async def test_the_first_frame_shows_operations_of_both_runs(tmp_path: Path) -> None:
    """It is there so that a person sees rows at once; a title alone would be no faster than waiting."""
    app = OnlyOpening(request(tmp_path))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        rows = app.opening.query_one(FirstRows)
        assert rows.size == (100, 30)
        shown = ["".join(segment.text for segment in rows.render_line(y)) for y in range(30)]
    assert sum(line.count("/op_") == 2 for line in shown) > 20


async def test_a_filter_says_what_is_wrong_as_it_is_typed(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=WRONG)) as (pilot, explorer):
        await press(pilot, "equals_sign", "f", *"op:mm is:rot")
        assert "is:rot is unknown; expected one of red" in screen(pilot)
        await press(pilot, "enter")
        assert explorer.prompt.editor is not None, "what was typed is not lost"
        assert len(explorer.session.listing.view) == len(explorer.session.comparison)
        await press(pilot, "backspace", "backspace", "backspace", "r", "tab")
        assert explorer.prompt.editor is not None
        assert explorer.prompt.editor.text == "op:mm is:re"
        await press(pilot, "d")
        assert f"1 of {len(explorer.session.comparison)} rows" in screen(pilot)
        await press(pilot, "enter")
        assert explorer.session.comparison.red[explorer.session.listing.view.row].tolist() == [True]


async def test_a_sorted_list_opens_at_its_top(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=WRONG)) as (pilot, explorer):
        await press(pilot, "n")
        row = explorer.session.listing.cursor
        await press(pilot, "G", "S")
        assert "error ▼" in screen(pilot)
        assert "sorted by error" in screen(pilot)
        assert (explorer.session.listing.cursor, explorer.session.listing.line) == (row, 0)
        await press(pilot, "S")
        assert "via ▲" in screen(pilot)
        assert explorer.session.listing.line == 0
        await press(pilot, "ctrl+o", "escape")
        assert explorer.session.listing.line == row


async def test_keys_of_ones_own_are_bound_and_told(tmp_path: Path) -> None:
    asked = replace(
        request(tmp_path, rules=WRONG),
        keys={"next_red": ("+", "Z Z"), "fold": ("_",), "toggle_red": ("7",), "html": ()},
    )
    async with opened(asked) as (pilot, explorer):
        assert "+ next red" in screen(pilot)
        red = int(np.flatnonzero(explorer.session.comparison.red)[0])
        await press(pilot, "g", "n")
        assert explorer.session.listing.cursor == 0, "its old key does nothing"
        await press(pilot, "plus")
        assert explorer.session.listing.cursor == red
        await press(pilot, "g", "Z", "Z")
        assert explorer.session.listing.cursor == red
        await press(pilot, "_")
        assert not explorer.session.listing.folded
        await press(pilot, "7")
        explorer.settle()
        assert StatusGroup.RED not in explorer.session.listing.filter.groups
        assert "+ N ZZ [c" in "".join(text for line in help_lines(explorer.actions) for text, _ in line)


async def test_the_palette_lists_what_a_module_did(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "ctrl+p", *"attention wk")
        await pilot.pause(0.3)
        assert "layers.1.attention.wk" in screen(pilot)
        await press(pilot, "down", "enter")
        assert explorer.session.listing.filter.query.text.startswith("module:=layers.")
        assert 0 < len(explorer.session.listing.view) < 5


async def test_one_log_shows_the_operation_that_made_an_inf(tmp_path: Path) -> None:
    ops = training_step()
    made = next(i for i, o in enumerate(ops) if o.key == "layers.1.attention/op_1__softmax")
    for i in range(made, len(ops)):
        ops[i].outputs, ops[i].max, ops[i].l2, ops[i].mean = ["inf"], "inf", "inf", "inf"
    asked = replace(request(tmp_path, ops), path_b="", name_b="")
    async with opened(asked) as (pilot, explorer):
        assert " numtui  one" in screen(pilot)
        assert "⇄" not in screen(pilot)
        assert f"! {len(ops) - made} with NaN or Inf" in screen(pilot)
        await press(pilot, "o")
        assert explorer.session.listing.cursor == made
        assert "FIRST CAUSE: the output has Inf; all inputs are finite" in screen(pilot)
        assert "unpair" not in screen(pilot)
        await press(pilot, "m")
        assert "needs two logs" in screen(pilot)
        await press(pilot, "p", "S", "f", *"largest>1", "enter", "I")
        assert isinstance(pilot.app.screen, Pager)
        await press(pilot, "q", "q")
        assert pilot.app.return_code == 1


async def test_groups_and_saved_filters(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=WRONG)) as (pilot, explorer):
        session = explorer.session
        await press(pilot, "B")
        assert "by module (" in screen(pilot)
        await press(pilot, "B")
        assert "by module over all layers" in screen(pilot)
        await press(pilot, "enter")
        assert session.listing.filter.query.text == "module:=layers.#.attention.wq"
        assert session.comparison.red[session.listing.cursor], "on the worst of them"
        listed = session.listing.view.row.tolist()
        await press(pilot, "F", *"heads", "enter", "escape", "F")
        assert "module:=layers.#.attention.wq" in screen(pilot)
        await press(pilot, "enter")
        assert session.listing.view.row.tolist() == listed
        await press(pilot, "f", "ctrl+u", *"@heads is:red", "enter")
        assert len(session.listing.view) == 1
        await press(pilot, "F", "x")
        assert session.listing.saved == {}


async def test_every_key_does_something_sound_in_one_log(tmp_path: Path) -> None:
    ops = training_step()
    ops[20].outputs = ["nan"]
    async with opened(replace(request(tmp_path, ops), path_b="", name_b="")) as (pilot, explorer):
        for action in [a for a in ACTIONS if a.id not in ("quit", "suspend")]:
            await press(pilot, "escape", "escape", "escape", "o")
            explorer.run_named(action.id)
            await processed(pilot)
        await press(pilot, "escape", "escape", "escape")
        assert pilot.app.screen is explorer


async def test_a_log_that_grows_is_read_again_in_place(tmp_path: Path) -> None:
    whole = training_step()
    asked = request(tmp_path, whole[3:20], training_step(), rules=WRONG)
    async with opened(asked) as (pilot, explorer):
        session = explorer.session
        await press(pilot, "/", *"1.attention.wq", "enter", '"', *"seen", "enter", "2")
        explorer.settle()
        key, rows = session.comparison.a.keys[session.listing.spot[0]], len(session.comparison.a)
        write_log(Path(asked.path_a), whole)
        explorer.files.look()
        await settled(pilot)
        assert "logs changed: R reloads" in screen(pilot)
        await press(pilot, "R")
        assert f"logs reloaded: {len(whole) - rows} more operations" in screen(pilot)
        assert "have changed" not in screen(pilot)
        assert session.comparison.a.keys[session.listing.spot[0]] == key
        assert session.listing.annotations.notes == {session.listing.spot: "seen"}
        assert StatusGroup.CLOSE not in session.listing.filter.groups
        explorer.run_named("follow")
        write_log(Path(asked.path_a), whole[:10])
        for _ in range(2):
            explorer.files.look()
            await settled(pilot)
        assert len(session.comparison.a) == 10
        write_log(Path(asked.path_a), []).write_bytes(b"\0\1\2")
        for _ in range(3):
            explorer.files.look()
            await settled(pilot)
        assert len(session.comparison.a) == 10, "what was read stays"
        assert pilot.app.is_running


async def test_a_typed_path_that_cannot_be_is_told_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "i", "enter")
        for typed, told in (
            ("html ~nosuchuser/x", "there is no user ~nosuchuser"),
            ("html " + "x" * 300, "File name too long"),
            ("w ~nosuchuser/x", "there is no user ~nosuchuser"),
            ("w " + "x" * 300, "File name too long"),
            ("w step_2/rank_0_activations.log/x", "Not a directory"),
            ("wq ~nosuchuser/x", "there is no user ~nosuchuser"),
        ):
            assert explorer.session.dirty
            assert told not in screen(pilot)
            await press(pilot, "colon")
            explorer.prompt.paste(typed)
            await press(pilot, "enter")
            assert told in screen(pilot), typed
            assert pilot.app.screen is explorer  # nothing is asked
        assert explorer.session.dirty


async def test_an_html_page_named_in_its_own_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "H", "ctrl+u")
        explorer.prompt.paste("~nosuchuser/x.html")
        await press(pilot, "enter")
        assert "there is no user ~nosuchuser" in screen(pilot)


@pytest.mark.parametrize(("location", "told"), [("/etc/passwd:3", "is not opened"), ("none.py:3", "not found here")])
async def test_a_file_elsewhere_that_a_log_names_is_not_opened(
    location: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ops = [replace(o, location=location) for o in training_step(1)]
    monkeypatch.setattr("numtui.tui.screens.source_editor._edit", lambda *_: pytest.fail("opened"))
    async with opened(request(tmp_path, ops, ops)) as (pilot, _):
        await press(pilot, "V")
        assert told in screen(pilot)
