"""Whatever is typed, in whatever order: nothing breaks, and neither rules nor notes are lost.

`RANDOM_KEYS=10000 pytest -n0 tests/numtui/tui/test_random_keys.py` presses that many keys for each pair of logs
instead of the few hundred of an ordinary run, and others each time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.worker import WorkerCancelled

from matchers.rules.file import parse_rules
from numtui.actions import ACTIONS
from numtui.inputs import OpenRequest
from numtui.session.journal import Journal
from numtui.session.listing import Listing
from numtui.session.restore import sitting_of
from numtui.session.store import Anchor, SessionStore
from numtui.tui.app import Numtui
from numtui.tui.screens.explorer import Explorer
from tests.conftest import DATA, EXAMPLES

_ASKED = os.environ.get("RANDOM_KEYS")
_KEYS = int(_ASKED or 200)
_BURST = 8
"""Keys that come at once, as over a slow line; after them everything is looked at."""
_BURSTS = 12
"""In one sitting, on average."""

LOGS: Mapping[str, tuple[str, str]] = {
    "example": (str(EXAMPLES / "eager/rank_0_activations.log"), str(EXAMPLES / "traced/rank_0_activations.log")),
    "drift": (str(DATA / "fsdp2_sac.log.gz"), str(DATA / "fsdp2_traced.log.gz")),
    "single": (str(DATA / "bug_attn_scale_l2.log.gz"), ""),
}

RULES = """\
# agreed with Kim on Monday
version: 1
pairs:
  - a: layers.0.feed_forward.w1/op_0_mm   # made by hand
    b: layers.1.feed_forward.w3/op_0_mm
"""

Typed = tuple[str, "str | None"]
"""A key as Textual reports it: its name and the character that it prints."""


def _typed(text: str) -> list[Typed]:
    return [(_character_to_key(character), character) for character in text]


def _named(name: str) -> Typed:
    """A key of the registry; `letter` stands for any."""
    name = "a" if name == "letter" else name
    if len(name) == 1:
        return _typed(name)[0]
    return name, {"enter": "\r", "escape": "\x1b", "tab": "\t", "space": " "}.get(name)


_WORDS = (
    "attention", "mm", "wq", "is:red", "is:only-b", "error>1e-3", "op:mm", "module:layers.0", "-is:equal", "@mine",
    "phase:bwd", "conf<.8", "cause:1", "w", "w!", "w other.yaml", "html page.html", "q", "q!", "wq", "17", "999999999",
    "fold", "undo", "keep", "raw", "larger-error", "follow", "marks", "sort", "nonsense",
    "mine", "\U0001f525 \u0301\u202e[red]", "", " ",
)  # fmt: skip
"""What is typed into a line: of a search, of a filter, of commands."""

_OPENERS = ("/", "f", '"', ":")
_EVERYWHERE = ("enter", "escape", "tab", "backspace", "down", "up", "pagedown", "delete", "left", "f5", "ctrl+w")
"""Keys that the registry does not have, or that mean something else in a line, a panel and a dialog."""

_of_the_registry = st.sampled_from([[_named(part) for part in key.split(" ")] for a in ACTIONS for key in a.keys])
_others = st.sampled_from([[_named(name)] for name in _EVERYWHERE])
_characters = st.characters(categories=["L", "N", "P", "S", "Zs"], codec="utf-8").map(_typed)
_counts = st.integers(1, 99).map(lambda n: _typed(str(n)))
_lines = st.builds(
    lambda opener, word, end: [*_typed(opener), *_typed(word), _named(end)],
    st.sampled_from(_OPENERS), st.sampled_from(_WORDS), st.sampled_from(("enter", "enter", "escape", "tab")),
)  # fmt: skip
_CHANGES = (
    "x enter", "i enter", "i tab enter", "m n m enter", "t enter", "a enter", "s a", "s A enter", "s x", "s j x q",
    "r x q", "r space", "r J", "r j K u", "r t enter", "r e down end", "r A", "r o", "r e ctrl+s", "r e ctrl+k enter",
)  # fmt: skip
_rule_changes = st.sampled_from([[_named(part) for part in keys.split()] for keys in _CHANGES])
_presses = st.one_of(
    _of_the_registry, _of_the_registry, _of_the_registry, _others, _characters, _counts, _lines, _rule_changes
)
_sizes = st.sampled_from([(160, 40), (80, 24), (200, 50), (60, 14), (40, 8), (1, 1), (120, 15)])

Burst = tuple["tuple[int, int] | None", "list[Typed]"]


@st.composite
def sittings(draw: st.DrawFn) -> list[Burst]:
    """Bursts of keys; in front of some the terminal gets another size."""
    bursts = []
    for _ in range(draw(st.integers(_BURSTS // 2, _BURSTS * 3 // 2))):
        size = draw(_sizes) if draw(st.integers(0, 9)) == 9 else None
        keys = [key for press in draw(st.lists(_presses, min_size=1, max_size=_BURST // 2)) for key in press]
        bursts.append((size, keys))
    return bursts


@dataclass
class Desk:
    """What outlives a sitting: the logs, the rule file, the folder of the state, and what has to be found there.

    Attributes:
        notes: the notes as the last answer to a question for one left them.
    """

    folder: Path
    logs: tuple[str, str]
    notes: Mapping[Anchor, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rules = self.folder / "overrides.yaml"
        self.rules.write_text(RULES, encoding="utf-8")

    @property
    def request(self) -> OpenRequest:
        a, b = self.logs
        return OpenRequest(path_a=a, path_b=b, name_a="one", name_b="two" if b else "", rules_path=self.rules)

    async def sit(self, bursts: list[Burst]) -> None:
        """Open the program, press the keys, and look at everything after each burst; end as a signal ends it."""
        app = Numtui(self.request)
        async with app.run_test(size=(160, 40)) as pilot:
            explorer = await opened(app)
            await settled(pilot)
            session = explorer.session
            first = session.rules
            assert sitting_of(session.listing).notes == self.notes, "the notes of the last sitting"
            for size, keys in bursts:
                if size is not None:
                    await pilot.resize_terminal(*size)
                for key, character in keys:
                    assert app._driver is not None
                    app._driver.send_message(events.Key(key, character))
                await settled(pilot)
                if app._exit:
                    break
                await self.look(pilot, explorer)
            unsaved = session.dirty and not app._exit
            if not app._exit:
                # As on a signal.
                session.write_journal()
                session.store_session()
        assert session.journal is not None
        session.journal.close()
        assert SessionStore(*self.logs).load().notes == self.notes
        if unsaved:
            found = Journal(*self.logs, self.rules).pending()
            assert found is not None
            assert parse_rules(found.rules) == session.rules
        while session.undo()[0] is not None:
            pass
        assert session.rules == first

    async def look(self, pilot: Pilot[None], explorer: Explorer) -> None:
        """What holds whatever was typed."""
        app, session = pilot.app, explorer.session
        c, listing, view = session.comparison, session.listing, session.listing.view
        assert app._exception is None
        assert view.comparison is c
        assert len(view) or listing.cursor == -1
        assert not len(view) or 0 <= listing.cursor < len(c)
        assert not len(view) or view.row[listing.line] == listing.cursor, "the cursor is on a line of the list"
        assert c.rules == session.rules
        assert parse_rules(session.file.render(session.rules)) == session.rules
        assert sitting_of(session.listing).notes == self.notes
        width, height = app.size
        if not app.screen._compositor.size:
            await pilot.pause()
        lines = app.screen._compositor.render_strips()
        assert len(lines) == height
        assert all(line.cell_length == width for line in lines)


async def opened(app: Numtui) -> Explorer:
    """The main screen, with everything read and compared."""
    while app.explorer is None or app.explorer.session.comparison.a.partial:  # noqa: ASYNC110 - only the screen is told
        await asyncio.sleep(0.005)
    return app.explorer


async def settled(pilot: Pilot[None]) -> None:
    """Wait for what was typed and for what it brought about, in threads and in the screens it opened and closed."""
    app, quiet = pilot.app, 0
    while quiet < 3 and not app._exit:
        await pilot._wait_for_screen()
        busy = any(not worker.is_finished for worker in app.workers)
        if busy:
            with suppress(WorkerCancelled):
                await app.workers.wait_for_complete()
        # A key that was typed for another screen goes back to the program, and from there to that screen.
        quiet = 0 if busy or app.message_queue_size or app.screen.message_queue_size else quiet + 1


def watched(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell the desk of every note that is written."""
    annotate: Callable[[Listing, str], str] = Listing.annotate

    def told(listing: Listing, text: str) -> str:
        said = annotate(listing, text)
        desk.notes = sitting_of(listing).notes
        return said

    monkeypatch.setattr(Listing, "annotate", told)


@pytest.mark.parametrize("name", LOGS)
@settings(
    max_examples=max(_KEYS // (_BURST * _BURSTS), 1),
    derandomize=_ASKED is None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(bursts=sittings())
def test_whatever_is_typed(
    name: str, bursts: list[Burst], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("desk")
    with monkeypatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("XDG_STATE_HOME", str(folder / "state"))
        desk = Desk(folder, LOGS[name])
        watched(desk, patched)
        asyncio.run(desk.sit(bursts))
        asyncio.run(desk.sit(bursts[:2]))
