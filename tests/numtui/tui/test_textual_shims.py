"""What Textual's parser makes of bytes, with our shim."""

from __future__ import annotations

from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser

from numtui.inputs import OpenRequest
from numtui.tui.app import Numtui
from numtui.tui.textual_shims import keep_escape, keep_pastes


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


PASTES = ("two\nlines\n", "\x1b[31mred", "\x1bqd", "a\x1b", "\x1b[20", "\x1b[200~twice", ":q!\r", "\x07\t", "")


@given(
    st.lists(st.one_of(st.sampled_from("jq1"), st.sampled_from(PASTES)), max_size=5),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_what_is_pasted_is_never_typed(typed: list[str], cuts: list[int]) -> None:
    """Whatever it contains, and wherever the terminal's output is cut between two reads."""
    keep_escape()
    keep_pastes()
    sent = "".join(text if len(text) == 1 else f"\x1b[200~{text}\x1b[201~" for text in typed)
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    parser = XTermParser()
    found = [event for start, end in pairwise(places) for event in parser.feed(sent[start:end])]
    assert [seen(event) for event in found] == [text.translate({7: None, 27: None}) for text in typed]


def seen(event: object) -> str | None:
    """What was typed or pasted."""
    if isinstance(event, events.Paste):
        return event.text
    assert isinstance(event, events.Key)
    return event.character


def test_a_paste_that_arrives_slowly_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr("textual._parser.get_time", lambda: next(clock))
    keep_pastes()
    parser = XTermParser()
    found = []
    for piece in ("\x1b[200~", "\x1b", "[31mre", "d\x1b[20", "1~", "j"):
        found += [*parser.feed(piece), *parser.tick()]
    assert [seen(event) for event in found] == ["[31mred", "j"]
