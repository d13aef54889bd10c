"""What Textual's parser makes of bytes, with our shim."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual._xterm_parser import XTermParser

from numtui.inputs import OpenRequest
from numtui.tui.app import Numtui
from numtui.tui.textual_shims import keep_escape


def typed(text: str, **keys: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """The keys that the explorer sees."""
    keep_escape()
    request = OpenRequest(path_a="a", path_b="b", name_a="a", name_b="b", rules_path=Path("r"), keys=keys)
    app, parser = Numtui(request), XTermParser()
    found = [*parser.feed(text), *parser.feed("")]
    return [(k.key, k.character) for key in found if isinstance(key, events.Key) for k in app._typed(key)]


ESC = ("escape", "\x1b")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("\x1b?", [ESC, ("question_mark", "?")]),
        ("\x1b/", [ESC, ("slash", "/")]),
        ("\x1b:", [ESC, ("colon", ":")]),
        ("\x1b ", [ESC, ("space", " ")]),
        ("\x1bn", [ESC, ("n", "n")]),
        ("\x1bN", [ESC, ("N", "N")]),
        ("\x1b1", [ESC, ("1", "1")]),
        ("\x1b=", [ESC, ("equals_sign", "=")]),
        ("\x1b!!", [ESC, ("exclamation_mark", "!"), ("exclamation_mark", "!")]),
        ("\x1b\r", [ESC, ("enter", "\r")]),
        ("\x1b\x12", [ESC, ("ctrl+r", "\x12")]),
        ("\x1b\x1b", [ESC, ESC]),
        ("\x1b?\x1b:", [ESC, ("question_mark", "?"), ESC, ("colon", ":")]),
        ("\x1b\x1b[A", [ESC, ("up", None)]),
        ("\x1b[A", [("up", None)]),
        ("\x1b\t", [("shift+tab", None)]),  # the Linux console
        ("?", [("question_mark", "?")]),
        ("\r", [("enter", "\r")]),
    ],
)
async def test_escape_before_a_key_in_one_burst_is_kept(text: str, keys: list[tuple[str, str | None]]) -> None:
    assert typed(text) == keys


async def test_a_key_that_the_user_gave_an_action_stays_one() -> None:
    assert typed("\x1bn", next_red=("alt+n",)) == [("alt+n", "n")]
    assert typed("\x1b1", next_red=("alt+1",)) == [("alt+1", "1")]
