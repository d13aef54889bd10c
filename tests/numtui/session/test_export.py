"""What one sends on from the explorer says what is on the screen."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

from matchers.comparison import compare
from matchers.logs.parser import read_log
from matchers.rules.file import RuleFile
from matchers.rules.model import IgnoreRule
from matchers.status import Status
from numtui.query.view import Order, StatusGroup
from numtui.report.html import View, write
from numtui.session.export import free_path, page_of, row_of
from numtui.session.session import Session
from tests.builders import training_step, write_log


def session(folder: Path) -> Session:
    ops = training_step()
    a = write_log(folder / "a.log", ops)
    b = write_log(folder / "b.log", [*ops[:3], replace(ops[3], outputs=[1e3], l2=1e3), *ops[4:]])
    (folder / "r.yaml").write_text("version: 1\n", encoding="utf-8")
    return Session(compare(read_log(a), read_log(b)), RuleFile.load(folder / "r.yaml"), names=("one", "two"))


def test_the_page_opens_as_the_screen_is(tmp_path: Path) -> None:
    s = session(tmp_path)
    s.listing.toggle(StatusGroup.EQUAL)
    s.listing.set_query("phase:forward")
    s.listing.search = s.listing.hits("wk")
    s.listing.toggle_fold()
    s.listing.sort(Order.ERROR)
    s.listing.saved = {"mine": "op:mm"}
    page = page_of(s)
    assert page.view == View(
        hidden=frozenset({StatusGroup.EQUAL}),
        query="phase:forward",
        saved={"mine": "op:mm"},
        search="wk",
        folded=True,
        order=Order.ERROR,
        cursor=s.listing.cursor,
    )


def test_the_page_is_of_the_rules_in_force_saved_or_not(tmp_path: Path) -> None:
    s = session(tmp_path)
    job = s.change(s.rules.adding(IgnoreRule(op="mm")), "ignore")
    job.run()
    assert s.accept(job)
    out = io.StringIO()
    page = page_of(s)
    write(page.report, out, page.view)
    assert s.comparison.counts[Status.IGNORED]
    assert "{op: mm}" in out.getvalue()
    assert f"from <code>{tmp_path / 'r.yaml'}</code>" in out.getvalue()


def test_a_row_says_both_keys_and_why(tmp_path: Path) -> None:
    s = session(tmp_path)
    s.listing.next_red()
    assert re.match(
        r"`layers\.0\.attention\.wk/op_0_mm`  \ndiverged, first cause, error ≥\d\.\de[+-]\d\d .*  \nFIRST CAUSE: ",
        row_of(s),
    )


def test_notes_go_along(tmp_path: Path) -> None:
    s = session(tmp_path)
    s.listing.next_red()
    s.listing.annotations.set_note(s.comparison, s.listing.cursor, s.listing.spot, "look at *this*, @kim")
    assert page_of(s).view.notes == ((s.listing.cursor, "look at *this*, @kim"),)
    assert row_of(s).endswith("\n\nlook at \\*this\\*, @<!-- -->kim\n")


def test_a_free_name_is_found(tmp_path: Path) -> None:
    assert free_path(tmp_path).name == "numtui.html"
    for name in ("numtui.html", "numtui-2.html"):
        (tmp_path / name).touch()
    assert free_path(tmp_path).name == "numtui-3.html"
