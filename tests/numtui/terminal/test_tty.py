"""Text from other machines never acts on the terminal."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numtui.terminal.clipboard import osc52
from numtui.terminal.progress import ProgressLine
from numtui.terminal.tty import is_dumb_terminal, wants_color
from numtui.text.safe import safe_text

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("layers.0/op_3_mul", "layers.0/op_3_mul"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("a\x00b\x07", "a␀b␇"),
        ("a\tb\r\n", "a b␍␊"),
        ("\x7f\x9b31m\x85", "␡\\x9b31m\\x85"),
        ("abc\u202edcba\u2066", "abc\\u202edcba\\u2066"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("[bold]a[/bold] ≥ 1ε – 层", "[bold]a[/bold] ≥ 1ε – 层"),
        ("no\u00a0break\u3000", "no break "),
        ("\udcff \U000e0041", "\\udcff \\U000e0041"),
    ],
)
def test_what_acts_is_shown(text: str, shown: str) -> None:
    assert safe_text(text) == shown


@given(st.text(st.characters()), st.none() | st.integers(0, 12))
def test_any_text_is_safe_and_short_enough(text: str, limit: int | None) -> None:
    shown = safe_text(text, limit)
    assert not UNSAFE.search(shown)
    assert limit is None or len(shown) <= limit


def test_a_megabyte_is_cut_before_it_is_looked_at() -> None:
    assert safe_text("\x1b" * 10**6, 4) == "␛␛␛…"
    assert safe_text("abcd", 4) == "abcd"
    assert safe_text("abcde", 4) == "abc…"
    assert safe_text("abcde", 0) == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "no_color", "color"),
    [
        ({"TERM": "xterm-256color"}, False, True),
        ({"TERM": "xterm-256color"}, True, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, False, True),
        ({"TERM": "dumb"}, False, False),
        ({}, False, False),
    ],
)
def test_colours_only_where_they_are_wanted(
    environment: dict[str, str], no_color: bool, color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TERM", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_color(Terminal(), no_color=no_color) is color
    assert not wants_color(io.StringIO())
    assert is_dumb_terminal() is (environment.get("TERM") != "xterm-256color")


def test_clipboard_sequence_carries_utf8() -> None:
    assert osc52("mul ≥") == "\x1b]52;c;bXVsIOKJpQ==\x07"


def test_progress_appears_late_seldom_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    now = 0.0
    out = Terminal()
    with ProgressLine(out, clock=lambda: now) as progress:
        progress("reading", 0.1)
        assert out.getvalue() == ""
        for now in (0.6, 0.61, 0.62, 0.75):
            progress("reading \x1b[2J", now)
    assert out.getvalue() == "\r\x1b[Kreading ␛[2J  60%\r\x1b[Kreading ␛[2J  75%\r\x1b[K"


def test_progress_is_for_terminals_only() -> None:
    out = io.StringIO()
    with ProgressLine(out, clock=iter(range(100)).__next__) as progress:
        progress("reading", 0.5)
        progress("reading", 0.6)
    assert out.getvalue() == ""
