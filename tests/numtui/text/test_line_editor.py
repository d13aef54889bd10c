"""The line that searches, filters and commands are typed into."""

from __future__ import annotations

import pytest

from numtui.text.line_editor import LineEditor, Typed


def typed(editor: LineEditor, *keys: str) -> LineEditor:
    for key in keys:
        editor.key(key, key if len(key) == 1 else None)
    return editor


def test_typing_and_moving() -> None:
    line = typed(LineEditor("search", "/"), *"ac", "left", "b", "end", "d", "home", "delete")
    assert (line.text, line.at) == ("bcd", 0)
    assert typed(line, "right", "backspace").text == "cd"


def test_killing_words_and_ends() -> None:
    line = LineEditor("filter", ": ", "op:mm is:red")
    assert typed(line, "ctrl+w").text == "op:mm "
    assert typed(line, "ctrl+w").text == ""
    assert typed(LineEditor("", "", "abc"), "left", "ctrl+u").text == "c"
    assert typed(LineEditor("", "", "abc"), "home", "right", "ctrl+k").text == "a"


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ("x", "enter", Typed.ENTERED),
        ("x", "escape", Typed.CANCELLED),
        ("x", "ctrl+c", Typed.CANCELLED),
        ("", "backspace", Typed.CANCELLED),
        ("x", "backspace", Typed.EDITED),
        ("x", "delete", Typed.NOTHING),
        ("x", "f5", Typed.NOTHING),
        ("x", "left", Typed.EDITED),
    ],
)
def test_what_a_key_did(text: str, key: str, what: Typed) -> None:
    assert LineEditor("search", "/", text).key(key) is what


def test_control_characters_are_not_typed() -> None:
    line = LineEditor("search", "/")
    assert line.key("ctrl+x", "\x18") is Typed.NOTHING
    assert line.text == ""


def test_a_paste_is_one_line() -> None:
    line = LineEditor("search", "/", "ad")
    line.key("left")
    line.insert("b\nc\r\n")
    assert (line.text, line.at) == ("ab cd", 4)


def test_tab_completes_as_far_as_the_words_agree() -> None:
    words = ("toggle-red", "toggle-close", "top")
    assert typed(LineEditor("", ":", "to", words=words), "tab").text == "to"
    assert typed(LineEditor("", ":", "tog", words=words), "tab").text == "toggle-"
    assert typed(LineEditor("", ":", "toggle-r", words=words), "tab").text == "toggle-red"
    assert typed(LineEditor("", ":", "x", words=words), "tab").text == "x"


def test_tab_completes_the_field_before_its_values() -> None:
    words = ("status:red", "status:recompute", "status:", "module:layers.0", "module:lm_head", "module:", "error>")
    line = typed(LineEditor("filter", "f", words=words, many=True), "tab")
    assert (line.text, line.told) == ("", "status:  module:  error>")
    assert typed(line, "s", "tab").text == "status:"
    assert typed(line, "tab").told == "red  recompute  status:"
    assert typed(line, *"rec", "tab", *" -mo", "tab", *"la", "tab").text == "status:recompute -module:layers.0"


def test_the_arrow_keys_bring_earlier_lines_back() -> None:
    """Those that begin with what was typed, as in a shell; what was typed itself is not lost."""
    earlier = ("op:mm", "status:red", "op:add", "op:mm phase:bwd")
    line = LineEditor("filter", "filter: ", "status:close", earlier=earlier)
    assert typed(line, "up").text == "op:mm phase:bwd", "what stood there before was not typed"
    assert typed(line, "up", "up", "up", "up", "up").text == "op:mm"
    assert typed(line, "down").text == "status:red"
    assert typed(line, "down", "down", "down", "down").text == "status:close"
    line = LineEditor("filter", "filter: ", earlier=earlier)
    assert typed(line, *"op:m").text == "op:m"
    assert typed(line, "up", "ctrl+p").text == "op:mm"
    assert line.at == len("op:mm")
    assert typed(line, "ctrl+n", "down").text == "op:m"
    assert typed(line, "up", "x", "up").text == "op:mm phase:bwdx", "an earlier line that was changed is a new one"
    assert typed(LineEditor("search", "/"), "up", "down").text == ""


def test_the_keys_are_those_that_do_something() -> None:
    plain = [("enter", "apply"), ("esc", "cancel"), ("ctrl+u", "clear")]
    assert LineEditor("note", "note: ").keys == plain
    assert ("tab", "complete") in LineEditor("filter", "", words=("op:",)).keys
    assert ("↑ ↓", "earlier lines") in LineEditor("filter", "", earlier=("op:mm",)).keys
