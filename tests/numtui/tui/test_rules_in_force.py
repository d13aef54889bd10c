"""The explorer says which rules act, from which file, and what they change; one key turns them off."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from numtui.session.export import page_of
from tests.numtui.tui.test_app import opened, press, request, screen

CROSSED = """\
version: 1
pairs:
  - a: layers.0.attention.wq/op_0_mm
    b: layers.0.attention.wk/op_0_mm
  - a: layers.0.attention.wk/op_0_mm
    b: layers.0.attention.wq/op_0_mm
  - a: of.other.logs/op_0_mm
    b: of.other.logs/op_0_mm
"""
IDLE = "version: 1\npairs:\n  - {a: of.other.logs/op_0_mm, b: of.other.logs/op_0_mm}\n"


def header(shown: str) -> str:
    return shown.splitlines()[0]


async def test_rules_that_were_found_are_said_and_turned_off(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=CROSSED)) as (pilot, explorer):
        shown = screen(pilot)
        assert "rules: overrides.yaml · 2 of 3 in force" in header(shown)
        told = re.search(r"overrides\.yaml, found in this folder, changes (\d+) verdicts \((\d+) more red\)", shown)
        assert told is not None
        red = int(explorer.session.comparison.red.sum())
        assert (int(told[1]), int(told[2])) == (red, red), "without the rules all rows are equal"
        await press(pilot, "j")
        shown = screen(pilot)
        assert "in force" in header(shown), "it stays said"
        assert "found in this folder" not in shown
        await press(pilot, "T")
        shown = screen(pilot)
        assert "rules: overrides.yaml · off (T)" in header(shown)
        assert not explorer.session.comparison.red.any()
        assert not explorer.session.dirty
        await press(pilot, "x")
        assert "the rules are off: T turns them on" in screen(pilot)
        await press(pilot, "T")
        assert "2 of 3 in force" in header(screen(pilot))
        assert int(explorer.session.comparison.red.sum()) == red
    assert (tmp_path / "overrides.yaml").read_text(encoding="utf-8") == CROSSED


async def test_on_a_narrow_screen_they_are_said_in_short(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=CROSSED), size=(80, 24)) as (pilot, _):
        assert "rules 2/3" in header(screen(pilot))
        await press(pilot, "T")
        assert "rules off" in header(screen(pilot))


async def test_rules_that_do_nothing_change_no_verdict(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=IDLE)) as (pilot, _):
        assert "overrides.yaml, found in this folder, changes no verdict" in screen(pilot)
        assert "0 of 1 in force" in header(screen(pilot))


async def test_a_file_that_was_named_is_not_called_found(tmp_path: Path) -> None:
    asked = replace(request(tmp_path, rules=CROSSED), rules_given=True)
    async with opened(asked) as (pilot, explorer):
        shown = screen(pilot)
        assert "2 of 3 in force" in header(shown)
        assert "found in this folder" not in shown
        assert "overrides.yaml changes " in shown
        assert page_of(explorer.session).report.rules_note == ""


async def test_without_rules_nothing_is_said(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as (pilot, _):
        assert "rules" not in header(screen(pilot))
        assert "verdict" not in screen(pilot)
        await press(pilot, "T")
        assert "there are no rules" in screen(pilot)


async def test_a_page_says_that_its_rules_were_found(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=CROSSED)) as (pilot, explorer):
        assert "are applied: it was found" in page_of(explorer.session).report.rules_note
        await press(pilot, "T")
        assert "is not applied" in page_of(explorer.session).report.rules_note


async def test_a_reload_keeps_them_off_and_a_change_turns_them_on(tmp_path: Path) -> None:
    async with opened(request(tmp_path, rules=CROSSED)) as (pilot, explorer):
        await press(pilot, "T", "R")
        assert explorer.session.comparison.rules.rules == ()
        assert "off (T)" in header(screen(pilot))
        session = explorer.session
        explorer.jobs.start(session.change(session.rules.removing(session.rules.rules[0]), "drop it"))
        await press(pilot, "j")
        assert "1 of 2 in force" in header(screen(pilot))
