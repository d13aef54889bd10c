"""The panel of rules, on a screen that is not there."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from rich.segment import Segment
from textual import events
from textual.pilot import Pilot

from matchers.comparison import Comparison, Progress
from matchers.rules.file import RuleFile
from matchers.rules.model import PairRule, TemplateRule
from numtui.session.jobs import Job
from numtui.tui.screens.rules import RulesPanel
from tests.numtui.tui.test_app import WRONG, opened, press, request, screen, settled

RULES = f"""\
{WRONG.rstrip()}  # off by one
ignore:
  - op: add
  - op: no_such_op
"""
PAIRED = "layers.0.attention.wq/op_0_mm"


def panel(pilot: Pilot[None]) -> RulesPanel:
    found = pilot.app.screen
    assert isinstance(found, RulesPanel)
    return found


async def rested(pilot: Pilot[None]) -> None:
    """As if no key had come for a moment."""
    panel(pilot).settle()
    await settled(pilot)


def rules_of(path: Path) -> str:
    return (path / "overrides.yaml").read_text(encoding="utf-8")


async def test_what_each_rule_matches_and_where_its_rows_are(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, explorer):
        await press(pilot, "r")
        shown = screen(pilot)
        assert "3 rules · 1 needs attention (n)" in shown
        assert "makes 1 pair" in shown
        assert "Of two pairs for the same operation, the upper one applies." in shown
        await press(pilot, "n")
        assert "matches nothing in either log: op 'no_such_op'" in screen(pilot)
        await press(pilot, "n", "N")
        assert "around the" in screen(pilot)
        await press(pilot, "question_mark")
        assert "In the rule editor" in screen(pilot)
        await press(pilot, "q", "g", "enter")
        assert pilot.app.screen is explorer
        assert "filter: rule:1" in screen(pilot)
        c = explorer.session.comparison
        listed = explorer.session.listing.view.passing.nonzero()[0]
        assert {c.a.keys[c.row_a[row]] for row in listed} == {PAIRED}
        assert {c.b.keys[c.row_b[row]] for row in listed} == {"layers.0.attention.wk/op_0_mm"}


async def test_it_opens_at_the_rule_behind_the_row_or_where_one_was(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules="ignore:\n  - op: add\n  - op: no_such_op\n" + WRONG)) as (pilot, _):
        await press(pilot, "g", "r", "G", "q", "r")
        assert "matches nothing" in screen(pilot), "where one was"
        await press(pilot, "q", *"/0/op_0_add", "enter", "r")
        assert "this rule decides the row" in screen(pilot)
        assert "ignores 8 operations" in screen(pilot)


async def test_a_click_on_a_rule_that_is_gone(tmp_path: Path) -> None:
    """Over a slow line: a key has dropped it before."""
    async with opened(request(tmp_path, rules=RULES)) as (pilot, explorer):
        await press(pilot, "r")
        assert panel(pilot).choose(len(explorer.session.rules))
        await press(pilot, "u")
        assert panel(pilot).at == len(explorer.session.rules) - 1


async def test_what_was_done_can_be_read_again(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, _):
        await press(pilot, "r", "space", "q", "I", "4")
        assert "1 fewer red" in screen(pilot)
        assert "disable pairs" in screen(pilot)


async def test_a_save_while_the_rules_are_matched_stays_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matched, run = threading.Event(), Job.run

    def late(job: Job, progress: Progress | None = None) -> Comparison:
        matched.wait()
        return run(job, progress)

    monkeypatch.setattr(Job, "run", late)
    async with opened(request(tmp_path, rules=RULES)) as (pilot, _):
        await press(pilot, "r")
        await pilot.press("space", "ctrl+s")
        assert "saved to" in screen(pilot)
        matched.set()
        await settled(pilot)
        assert "1 fewer red" in screen(pilot)
        assert "saved to" in screen(pilot)


async def test_switched_off_and_on_and_undone_while_the_panel_stays(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, explorer):
        assert explorer.session.comparison.red.any()
        await press(pilot, "r", "space")
        shown = screen(pilot)
        assert "1 fewer red" in shown
        assert "1 disabled" in shown
        assert "not saved" in shown
        assert "disabled: kept in the file, not applied" in shown
        assert not explorer.session.comparison.red.any()
        await press(pilot, "u")
        assert "1 more red" in screen(pilot)
        assert "undone: disable pairs" in screen(pilot)
        assert not explorer.session.dirty
        await press(pilot, "ctrl+r", "ctrl+s")
        assert "saved to" in screen(pilot)
        assert rules_of(tmp_path) == RULES.replace("  # off by one\n", "  # off by one\n    enabled: false\n")
        await press(pilot, "u")
        assert "1 more red" in screen(pilot), "also over a save"
        await press(pilot, "ctrl+s", "q")
        assert rules_of(tmp_path) == RULES
        assert pilot.app.screen is explorer


async def test_dropped_and_moved(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, explorer):
        await press(pilot, "r", "K")
        assert "this is the first rule of pairs" in screen(pilot)
        await press(pilot, "j", "J")
        assert [str(getattr(rule, "op", "")) for rule in explorer.session.rules] == ["", "no_such_op", "add"]
        await press(pilot, "K", "k", "x")
        assert "1 fewer red" in screen(pilot)
        assert "drop pairs" in screen(pilot)
        assert len(explorer.session.rules) == 2
        await press(pilot, "x", "x", "x", "space", "e")
        assert "no rules yet: A types one" in screen(pilot)
        await press(pilot, "u", "u", "u")
        assert explorer.session.rules == RuleFile.load(tmp_path / "overrides.yaml").rules


async def test_a_rule_is_typed_checked_tried_and_taken_over(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES), size=(80, 24)) as (pilot, explorer):
        await press(pilot, "r", "e")
        shown = screen(pilot)
        assert "pairs: the rule of line 3" in shown
        assert "1  a: layers.0.attention.wq/op_0_mm" in shown
        assert "2  b: layers.0.attention.wk/op_0_mm  # off by one" in shown
        await press(pilot, "down", "home", "b")
        assert "2:1: unknown field 'bb' in pairs (did you mean 'b'?)" in screen(pilot)
        await press(pilot, "ctrl+s")
        assert "not applied: fix the error first" in screen(pilot)
        await press(pilot, "backspace", "end", *["left"] * (len("k/op_0_mm  # off by one")), "delete", "q")
        await rested(pilot)
        assert "1 fewer red" in screen(pilot)
        assert "makes 1 pair" in screen(pilot)
        assert explorer.session.comparison.red.any(), "not before it is taken over"
        assert not explorer.session.dirty
        await press(pilot, "ctrl+s")
        assert "change pairs: layers.0.attention.wq/op_0_mm ↔" in " ".join(screen(pilot).split())
        assert not explorer.session.comparison.red.any()
        await press(pilot, "ctrl+s")
        assert rules_of(tmp_path) == RULES.replace("wk/op_0_mm", "wq/op_0_mm")
        await press(pilot, "u", "u")
        assert explorer.session.comparison.red.any()


async def test_what_was_typed_is_not_lost(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, explorer):
        await press(pilot, "r", "e", "escape")
        assert "the rule of line" not in screen(pilot), "nothing was typed"
        await press(pilot, "e", "f1")
        assert "In the rule editor" in screen(pilot)
        await press(pilot, "q", *"zz", "escape")
        assert "Unsaved edit" in screen(pilot)
        await press(pilot, "escape")
        assert "wq/op_0_mmzz" in screen(pilot)
        panel(pilot).post_message(events.Paste("\nwhy: pasted"))
        await settled(pilot)
        assert "2  why: pasted" in screen(pilot)
        await press(pilot, "escape", "d")
        assert "edit discarded" in screen(pilot)
        assert not explorer.session.dirty
        await press(pilot, "e", "end", *" # x", "escape", "t")
        assert "not saved" in screen(pilot), "a comment is worth saving"
        await press(pilot, "ctrl+s")
        assert "wq/op_0_mm # x\n" in rules_of(tmp_path)


async def test_a_result_that_nobody_waits_for_any_more_is_dropped(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, explorer):
        await press(pilot, "r", "e", "down", "end")
        screen_ = panel(pilot)
        screen_.settle()
        await pilot.press("x")
        screen_.settle()
        await press(pilot, "backspace", "escape")
        assert not explorer.session.dirty
        assert "fewer red" not in screen(pilot)
        assert "1 more red" not in screen(pilot)
        await press(pilot, "space")
        assert "1 fewer red" in screen(pilot)


async def test_a_new_rule_of_a_section(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, explorer):
        await press(pilot, "n", "j", "j", "r", "o")
        assert "A types a new rule" in screen(pilot)
        await press(pilot, "A")
        assert "In which section?" in screen(pilot)
        await press(pilot, "escape", "A", "i")
        assert "ignore: a new rule" in screen(pilot)
        assert "fields of ignore: side, phase, op, match, why, enabled" in screen(pilot)
        await press(pilot, "ctrl+s")
        assert len(explorer.session.rules) == 1
        await press(pilot, "o", "home", "ctrl+k", "tab")
        assert "enabled:   match:   op:   phase:   side:   why:" in screen(pilot)
        await press(pilot, "o", "tab", *"ad", "tab", "ctrl+s", "ctrl+s")
        assert rules_of(tmp_path).endswith("  - op: add\n")
        assert "ignores" in screen(pilot)


async def test_what_is_broken_is_mended(tmp_path: Path) -> None:
    broken = WRONG.replace("    b:", "    bb:") + "colours: red\n"
    async with opened(request(tmp_path, rules=broken)) as (pilot, explorer):
        await press(pilot, "r")
        assert "0 rules · 2 need attention (n)" in screen(pilot)
        await press(pilot, "space")
        assert "not understood, kept in the file as is" in screen(pilot)
        await press(pilot, "e", "down", "home", "delete", "ctrl+s")
        assert "1 more red" in screen(pilot)
        assert len(explorer.session.rules.problems) == 1
        await press(pilot, "ctrl+s")
        assert rules_of(tmp_path) == WRONG + "colours: red\n"
        await press(pilot, "G", "e")
        assert "fix it in a text editor" in screen(pilot)


async def test_a_pair_becomes_a_template_for_all_layers(tmp_path: Path) -> None:
    pair = "pairs:\n  - a: layers.0.attention.wq/op_0_mm\n    b: layers.0.attention.wq/op_0_mm\nignore:\n  - op: add\n"
    async with opened(request(tmp_path, rules=pair)) as (pilot, explorer):
        await press(pilot, "r", "j", "t")
        assert "only pair rules can be generalised" in screen(pilot)
        await press(pilot, "k", "t")
        assert "layers.{i}.attention.wq/op_0_mm" in screen(pilot)
        assert "makes 2 pairs" in screen(pilot)
        await press(pilot, "escape")
        assert "nothing was changed" in screen(pilot)
        await press(pilot, "t", "t")
        assert not explorer.session.rules.of(PairRule)
        assert len(explorer.session.rules.of(TemplateRule)) == 1
        assert isinstance(pilot.app.screen, RulesPanel)
        await press(pilot, "u")
        assert len(explorer.session.rules.of(PairRule)) == 1
        for _ in range(2):
            panel(pilot).pressed(events.Key("t", "t"))
        await settled(pilot)
        assert not explorer.session.rules.of(PairRule), "a yes before it is known what it does is a yes"


async def test_saving_over_what_somebody_else_wrote_is_asked_about(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, explorer):
        await press(pilot, "r", "space")
        (tmp_path / "overrides.yaml").write_text("# mine\n" + RULES, encoding="utf-8")
        await press(pilot, "ctrl+s")
        assert "The file has changed on disk" in screen(pilot)
        await press(pilot, "e")
        assert pilot.app.screen is explorer, "where the name is typed"
        await press(pilot, *str(tmp_path / "other.yaml"), "enter")
        assert "enabled: false" in (tmp_path / "other.yaml").read_text(encoding="utf-8")


async def test_many_rules_in_little_room(tmp_path: Path) -> None:
    rules = "ignore:\n" + "".join(f"  - match: layers.{n}.*\n" for n in range(60))
    async with opened(request(tmp_path, rules=rules), size=(60, 14)) as (pilot, _):
        await press(pilot, "r")
        assert "more ↓" in screen(pilot)
        await press(pilot, "G")
        assert " 60  ignore" in screen(pilot)
        await press(pilot, "e")
        assert "1  match: layers.59.*" in screen(pilot)
        await pilot.resize_terminal(40, 6)
        await settled(pilot)
        await press(pilot, "x", "escape", "d", "q")


KEYS = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "ctrl+a", "ctrl+e"),
    *("enter", "backspace", "delete", "ctrl+u", "ctrl+k", "ctrl+w", "ctrl+z", "ctrl+y", "f5", "shift+left", *"ab: é宽"),
)


EDITS = (
    ("a: x", ["enter", *"b: y"], "a: x\nb: y"),
    ("  a: x", ["enter", *"b"], "  a: x\n  b"),
    ("  a: x", ["home", "enter"], "  \n  a: x"),
    ("  a: x", ["home", "home", "enter"], "\n  a: x"),
    ("a: x\nb: y", ["down", "home", "backspace"], "a: xb: y"),
    ("a: x\nb: y", ["delete"], "a: xb: y"),
    ("a: x\nb: y", ["ctrl+k"], "a: xb: y"),
    ("a: x\nb: y", ["pagedown", "end", "delete"], "a: x\nb: y"),
    ("a: x\nb: y", ["right", "right", "left", "left", "!"], "a: x!\nb: y"),
    ("a: one two", ["ctrl+w"], "a: one "),
    ("a: one two", ["ctrl+u"], ""),
    ("a: one two", ["home", "right", "ctrl+k"], "a"),
    ("a: one two", ["shift+left", "shift+left", "x"], "a: one tx"),
    ("a: one two", ["ctrl+left", "shift+end", "ctrl+x", "home", "ctrl+v"], "twoa: one "),
    ("a: one two", ["f7", "ctrl+c", "end", "ctrl+v"], "a: one twoa: one two"),
    ("a", ["b", "c", "ctrl+z"], "a"),
    ("a", ["b", "left", "c", "ctrl+z"], "ab"),
    ("a", ["b", "ctrl+z", "ctrl+z", "ctrl+y", "ctrl+y"], "ab"),
    ("a", ["b", "ctrl+z", "c", "ctrl+y"], "ac"),
    ("a", ["f5"], "a"),
)
"""A text, the keys pressed in it, and the text after them."""


async def test_keys_of_the_editor(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, _):
        await press(pilot, "r", "e")
        for text, keys, after in EDITS:
            panel(pilot).text.open(text)
            await press(pilot, *keys)
            assert panel(pilot).text.text == after, (text, keys)


async def test_keys_in_a_burst_keep_their_order(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, explorer):
        burst = [*"re #z", "left", "y", "ctrl+s", "j", "space", "k", "e", "!", "escape"]
        for key in burst:
            name = {" ": "space", "#": "number_sign", "!": "exclamation_mark"}.get(key, key)
            pilot.app.post_message(events.Key(name, key if len(key) == 1 else None))
        await settled(pilot)
        assert "Unsaved edit" in screen(pilot)
        await press(pilot, "t", "ctrl+s")
        assert "wq/op_0_mm #yz!\n" in rules_of(tmp_path)
        assert [rule.enabled for rule in explorer.session.rules] == [True, False, True]


async def test_what_is_pasted_has_lines_and_nothing_that_a_terminal_acts_upon(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, _):
        await press(pilot, "r", "e")
        text = panel(pilot).text
        text.open("a: ")
        panel(pilot).post_message(events.Paste("x\r\n\tb: \x1b[31my\x07[bold]"))
        await settled(pilot)
        assert text.text == "a: x\n  b: [31my[bold]"
        assert text.cursor_location == (1, 16)
        assert "2    b: [31my[bold]" in screen(pilot), "no markup"
        await press(pilot, "ctrl+z")
        assert text.text == "a: "
        text.open("a: x\u202ey")
        await settled(pilot)
        assert "a: x�y" in screen(pilot)


async def test_the_cursor_never_leaves_the_text_and_everything_can_be_undone(tmp_path: Path) -> None:
    dice = random.Random(7)
    async with opened(request(tmp_path, rules=RULES)) as (pilot, _):
        await press(pilot, "r", "e")
        editor = panel(pilot).text
        for _ in range(60):
            first = "".join(dice.choices("ab: é宽\n", k=dice.randrange(12)))
            editor.open(first)
            keys = dice.choices(KEYS, k=dice.randrange(30))
            for key in keys:
                editor.press(key, key if len(key) == 1 else None)
            y, x = editor.cursor_location
            assert 0 <= y < editor.document.line_count
            assert 0 <= x <= len(editor.document.get_line(y))
            for _ in keys * 2:
                editor.press("ctrl+z", None)
            assert editor.text == first


def styled(pilot: Pilot[None]) -> list[Segment]:
    """Return the visible part of the typed text."""
    y, rows = panel(pilot).text.region.y, panel(pilot).text.region.height
    strips = pilot.app.screen._compositor.render_strips()
    return [segment for strip in strips[y : y + rows] for segment in strip]


@pytest.mark.parametrize("size", [(60, 14), (80, 24), (120, 40)])
async def test_long_lines_are_broken_and_the_cursor_is_seen(size: tuple[int, int], tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES), size=size) as (pilot, _):
        await press(pilot, "r", "e")
        panel(pilot).text.open("a: " + "x" * 100 + "\nb: 宽" + "宽" * 40)
        for key in ("pageup", "pagedown", "home", "left", "enter", "enter", "enter", "z"):
            await press(pilot, key)
            cursor = [segment.text for segment in styled(pilot) if segment.style is not None and segment.style.reverse]
            assert [len(text) for text in cursor] == [1], key
        assert screen(pilot).endswith(("leave ", " ")), "the keys stay below"


async def test_what_is_wrong_is_marked(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=RULES)) as (pilot, _):
        await press(pilot, "r", "e", "down", "home", "b", "right")
        red = panel(pilot).text.get_component_rich_style("rule-text--wrong").color
        assert "".join(s.text for s in styled(pilot) if s.style is not None and s.style.color == red).startswith("bb")
        await press(pilot, "backspace", "backspace", "b")
        assert not [s.text for s in styled(pilot) if s.style is not None and s.style.color == red]
