"""The lines that a rule is typed into."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numtui.text.text_editor import TextEditor

KEYS = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "ctrl+a", "ctrl+e"),
    *("enter", "backspace", "delete", "ctrl+u", "ctrl+k", "ctrl+w", "ctrl+z", "ctrl+y", "f5", *"ab: é宽"),
)


def typed(text: str, *keys: str) -> TextEditor:
    editor = TextEditor.of(text)
    for key in keys:
        editor.key(key, key if len(key) == 1 else None)
    return editor


@pytest.mark.parametrize(
    ("text", "keys", "after"),
    [
        ("a: x", ["enter", *"b: y"], "a: x\nb: y"),
        ("  a: x", ["enter", *"b"], "  a: x\n  b"),
        ("  a: x", ["home", "enter"], "\n  a: x"),
        ("a: x\nb: y", ["down", "home", "backspace"], "a: xb: y"),
        ("a: x\nb: y", ["delete"], "a: xb: y"),
        ("a: x\nb: y", ["pagedown", "end", "delete"], "a: x\nb: y"),
        ("a: x\nb: y", ["right", "right", "left", "left", "!"], "a: x!\nb: y"),
        ("a: one two", ["ctrl+w"], "a: one "),
        ("a: one two", ["ctrl+u"], ""),
        ("a: one two", ["home", "right", "ctrl+k"], "a"),
        ("a", ["b", "c", "ctrl+z"], "a"),
        ("a", ["b", "left", "c", "ctrl+z"], "ab"),
        ("a", ["b", "ctrl+z", "ctrl+z", "ctrl+y", "ctrl+y"], "ab"),
        ("a", ["b", "ctrl+z", "c", "ctrl+y"], "ac"),
    ],
)
def test_keys(text: str, keys: list[str], after: str) -> None:
    assert typed(text, *keys).text == after


def test_a_key_that_means_nothing_is_told() -> None:
    editor = TextEditor.of("a")
    assert not editor.key("f5")
    assert not editor.key("ctrl+q", "\x11")
    assert editor.key("left")


def test_what_is_pasted_has_lines_and_nothing_that_a_terminal_acts_upon() -> None:
    editor = TextEditor.of("a: ")
    editor.insert("x\r\n\tb: \x1b[31my\x07")
    assert editor.text == "a: x\n  b: [31my"
    assert (editor.y, editor.x) == (1, 10)
    editor.key("ctrl+z")
    assert editor.text == "a: "


@given(st.text(max_size=12).map(lambda text: text.replace("\r", "")), st.lists(st.sampled_from(KEYS), max_size=30))
def test_the_cursor_never_leaves_the_text_and_everything_can_be_undone(text: str, keys: list[str]) -> None:
    editor = typed(text, *keys)
    assert 0 <= editor.y < len(editor.lines)
    assert 0 <= editor.x <= len(editor.lines[editor.y])
    for _ in range(len(keys) * 2):
        editor.key("ctrl+z")
    assert editor.text == text
