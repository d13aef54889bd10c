"""The suggestions on a screen that is not there."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from textual import events

from matchers.comparison import Comparison, Progress
from matchers.drift import name_families
from matchers.rules.file import RuleFile
from matchers.status import Status
from numtui.inputs import OpenRequest
from numtui.session.jobs import Job
from numtui.session.suggestion_tree import rule_name
from numtui.tui.screens.suggestions import Suggestions
from tests.builders import training_step, write_log
from tests.conftest import REPOSITORY
from tests.numtui.tui.test_app import opened, press, processed, request, screen, settled

DATA = REPOSITORY / "tests" / "data"


def checkpointed(folder: Path) -> OpenRequest:
    return replace(
        request(folder),
        path_a=str(DATA / "fsdp2_sac.log.gz"),
        path_b=str(DATA / "fsdp2_traced.log.gz"),
    )


async def test_accept_look_undo_save(tmp_path: Path) -> None:
    async with opened(checkpointed(tmp_path), (120, 40)) as (pilot, explorer):
        await press(pilot, "s", "v")
        await press(pilot, "j", "a")
        assert "✓ checkpointed names" in screen(pilot)
        assert "accept checkpointed names (12 rules): no new pairs · still 0 red   (u undoes it)" in screen(pilot)
        assert len(explorer.session.rules.rules) == 12
        await press(pilot, "u")
        assert "undone: accept checkpointed names" in screen(pilot)
        assert "  checkpointed names" in screen(pilot)
        await press(pilot, "ctrl+r", "ctrl+s")
        assert "saved to" in screen(pilot)
        assert len(RuleFile.load(tmp_path / "overrides.yaml").rules) == 12
        await press(pilot, "x")
        assert "take back checkpointed names (12 rules)" in screen(pilot)
        assert "rules not saved" in screen(pilot)
        await press(pilot, "x")
        assert "✗ checkpointed names" in screen(pilot)
        await press(pilot, "a")
        assert "already accepted or rejected" in screen(pilot)
        # down to an operation, and to its row
        await press(pilot, "G", "right", "j", "enter")
        assert pilot.app.screen is explorer
        assert explorer.session.comparison.status[explorer.session.listing.cursor] == Status.RECOMPUTE
        await press(pilot, "s", "q")
        assert pilot.app.screen is explorer


async def test_rules_that_change_no_verdict_are_a_sentence_until_v_lists_them(tmp_path: Path) -> None:
    async with opened(checkpointed(tmp_path), (80, 24)) as (pilot, explorer):
        await press(pilot, "s")
        assert "Names drift in 360 rows; nothing is red because of it." in screen(pilot)
        assert "v lists 73 rules" in screen(pilot)
        assert "By kind: 197 shifted counters, 72 checkpointed names, " in screen(pilot)
        assert "▸" not in screen(pilot)
        await press(pilot, "a")
        assert "nothing listed to accept; v lists the rules" in screen(pilot)
        await press(pilot, "enter", "x", "j", "v", "j", "j")
        assert "moved to or from <none>" in screen(pilot)
        assert "v list fewer" in screen(pilot)
        await press(pilot, "a")
        await press(pilot, "v")
        assert "✓ moved to or from <none>" in screen(pilot), "what was accepted stays listed"
        assert "Names drift in 297 rows" in screen(pilot)
        assert len(explorer.session.rules.rules) == 13
        await press(pilot, "u")
        assert "✓" not in screen(pilot)
        assert "Names drift in 360 rows" in screen(pilot)


async def test_all_rules_are_accepted_in_two_keys_also_where_none_is_listed(tmp_path: Path) -> None:
    async with opened(checkpointed(tmp_path), (80, 24)) as (pilot, explorer):
        await press(pilot, "s")
        assert "A accept all" in screen(pilot)
        await press(pilot, "A")
        assert "enter apply" in screen(pilot)
        assert "shifted counters" in screen(pilot), "what is about to be accepted is listed"
        assert not explorer.session.rules.rules
        await press(pilot, "enter")
        assert len(explorer.session.rules.rules) == 73


async def test_a_suggestion_says_which_red_rows_it_removes(tmp_path: Path) -> None:
    asked = request(tmp_path, training_step(8), training_step(8))
    rule = 'templates:\n  - {a: "layers.{i}.attention.wq/op_0_mm", b: "layers.{i}.attention.wk/op_0_mm"}\n'
    (tmp_path / "overrides.yaml").write_text(rule, encoding="utf-8")
    async with opened(asked, (120, 40)) as (pilot, explorer):
        first = int(explorer.session.comparison.red.argmax()) + 1
        await press(pilot, "s")
        assert "realign" in screen(pilot)
        told = " ".join(screen(pilot).split())
        assert f"Removes 8 red rows: layers.0.attention.wq/op_0_mm (#{first})," in told
        assert "… in 8 layers; first cause #" in told
        await press(pilot, "v")
        assert "Removes 8 red rows" in screen(pilot)


async def test_the_cursor_stays_on_the_rule_that_is_accepted(tmp_path: Path) -> None:
    async with opened(checkpointed(tmp_path), (120, 40)) as (pilot, explorer):
        await press(pilot, "s", "v")
        await press(pilot, "j", "right", "j", "j", "j", "a")
        [accepted] = explorer.session.rules.rules
        await press(pilot, "x")
        assert "take back checkpointed names (1 rule)" in screen(pilot)
        assert not explorer.session.rules.rules
        await press(pilot, "x")
        assert explorer.session.suggested.rejected == {rule_name(accepted)}
        assert "11 rules cover" in screen(pilot)


async def test_everything_is_asked_about_before_it_is_accepted(tmp_path: Path) -> None:
    async with opened(checkpointed(tmp_path), (80, 24)) as (pilot, explorer):
        await press(pilot, "s", "v", "A")
        assert "enter apply · esc cancel" in screen(pilot)
        await press(pilot, "escape")
        assert "nothing was accepted" in screen(pilot)
        assert isinstance(pilot.app.screen, Suggestions), "esc answered the question"
        assert not explorer.session.dirty
        await press(pilot, "A")
        await press(pilot, "j")
        assert "enter apply" not in screen(pilot), "another key is no yes"
        assert not explorer.session.dirty
        await press(pilot, "A")
        await press(pilot, "A")
        assert "rules cover all that they can" in screen(pilot)
        assert len(explorer.session.rules.rules) == 73
        await press(pilot, "A")
        assert "nothing left to accept" in screen(pilot)


async def test_the_question_about_everything_stays_when_another_effect_is_known_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effect of the line under the cursor is being found out when A asks about everything."""
    run, begun, may_end = Job.run, threading.Event(), threading.Event()

    def slow(job: Job, progress: Progress | None = None) -> Comparison:
        if not begun.is_set():
            begun.set()
            may_end.wait()
        return run(job, progress)

    monkeypatch.setattr("numtui.tui.screens.suggestions._REST", 0.001)
    monkeypatch.setattr(Job, "run", slow)
    async with opened(checkpointed(tmp_path), (80, 24)) as (pilot, explorer):
        try:
            pilot.app.post_message(events.Key("s", "s"))
            pilot.app.post_message(events.Key("v", "v"))
            while not begun.is_set():
                await pilot.pause()
            pilot.app.post_message(events.Key("A", "A"))
            await pilot.pause()
            assert "previewing all of them" in screen(pilot)
        finally:
            may_end.set()
        await processed(pilot)
        assert "enter apply · esc cancel" in screen(pilot)
        await press(pilot, "enter")
        assert "rules cover all that they can" in screen(pilot)
        assert explorer.session.dirty


async def test_a_rule_is_edited_before_it_is_accepted(tmp_path: Path) -> None:
    async with opened(checkpointed(tmp_path), (120, 40)) as (pilot, explorer):
        await press(pilot, "s", "v", "j", "e")
        assert "then e edits one of its rules" in screen(pilot)
        await press(pilot, "right", "j", "e")
        assert "templates: a new rule" in screen(pilot)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, Suggestions)
        assert not explorer.session.dirty
        await press(pilot, "e", "down", "down", "end", *", says Kim", "ctrl+s")
        assert isinstance(pilot.app.screen, Suggestions)
        assert "edited rule applied" in screen(pilot)
        [rule] = explorer.session.rules.rules
        assert rule.why == "checkpointing runs inner modules directly, says Kim"
        assert "11 more rules cover 66" in screen(pilot)
        await press(pilot, "u")
        assert "12 rules cover 72" in screen(pilot)


async def test_logs_that_are_read_again_meanwhile(tmp_path: Path) -> None:
    """What was found in a log is not shown of a shorter one that has taken its place."""
    ops = training_step(3)
    asked = request(tmp_path, ops, [replace(o, key=o.key.replace("silu", "gelu")) for o in ops])
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "s", "right", "right")
        assert "equivalent ops" in screen(pilot)
        for path in (asked.path_a, asked.path_b):
            write_log(Path(path), training_step(1))
        explorer.loader.read_again()
        await settled(pilot)
        assert "no known kind of drift" in screen(pilot)
        assert len(explorer.session.comparison.a) == len(training_step(1))


async def test_nothing_to_suggest(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "s")
        assert "no known kind of drift" in screen(pilot)
        for key in ("a", "A", "x", "enter", "h", "l", "j", "G", "u", "ctrl+s", "escape"):
            await press(pilot, key)
        assert pilot.app.screen is explorer


async def test_names_of_a_row_side_by_side(tmp_path: Path) -> None:
    async with opened(checkpointed(tmp_path), (120, 40)) as (pilot, explorer):
        c = explorer.session.comparison
        copy = next(
            row
            for row in range(len(c))
            if c.row_a[row] >= 0 and c.a.keys[int(c.row_a[row])].startswith("attention_norm/")
        )
        explorer.session.listing.go(copy)
        await press(pilot, "D")
        assert "how the names differ" in screen(pilot)
        await press(pilot, "enter")
        assert c.a.keys[int(c.row_a[explorer.session.listing.cursor])] == "layers.5.attention_norm/op_0_pow"


async def test_one_log_by_itself_has_no_drift(tmp_path: Path) -> None:
    asked = replace(request(tmp_path, training_step()), path_b="")
    async with opened(asked) as (pilot, explorer):
        await press(pilot, "s")
        assert pilot.app.screen is explorer


async def test_a_search_that_fails_is_told_and_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise KeyError("i")

    monkeypatch.setattr(name_families, "_learned", bug)
    async with opened(checkpointed(tmp_path), (120, 40)) as (pilot, _):
        await press(pilot, "s")
        assert "searches failed" in screen(pilot)
        assert "search failed" in screen(pilot), "a bug is told also where nothing matters"
        await press(pilot, "v")
        assert "lowered collectives" in screen(pilot)
        await press(pilot, "G")
        assert "search failed" in screen(pilot)
        assert "KeyError: 'i'" in screen(pilot)
