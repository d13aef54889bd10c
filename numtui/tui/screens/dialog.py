"""Dialogs: a question with a few answers, one key each."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult

from numtui.text.lines import Line, first_key, wrap
from numtui.tui.screens.modal import Modal
from numtui.tui.widgets.lines import Lines

__all__ = ["Choice", "Dialog", "conflict", "overwrite", "quit_unsaved", "recovery"]

Choice = tuple[str, str, str]
"""Keys (separated by spaces), label and answer."""


class Dialog(Modal[str]):
    """Question dismissed with the answer of the pressed key; `escape` gives the last, which changes nothing."""

    def __init__(self, title: str, text: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._choices = tuple(choices)
        self.footer_keys = [(keys, label.partition(" (")[0].partition(":")[0]) for keys, label, _ in choices]

    def compose(self) -> ComposeResult:
        yield _Body()

    def on_mount(self) -> None:
        """Fit the height to the text."""
        body = self.query_one(_Body)
        body.styles.height = len(self._lines(72)) + 2

    def draw(self) -> None:
        """Draw the question and its answers."""
        body = self.query_one(_Body)
        body.paint(self._lines(body.size.width))

    def _lines(self, width: int) -> list[Line]:
        lines: list[Line] = [[(self._title, "title")], []]
        lines.extend([(text, "")] for text in wrap(self._text, max(min(width, 72), 20)))
        lines.append([])
        for keys, label, _ in self._choices:
            lines.append([(f"  {keys}", f"key@{first_key(keys)}"), (f"  {label}", f"@{first_key(keys)}")])
        return lines

    def pressed(self, event: events.Key) -> None:
        """Answer."""
        for keys, _, answer in self._choices:
            if event.key in keys.split() or event.character in keys.split():
                self.dismiss(answer)
                return
        if event.key in ("escape", "ctrl+c"):
            self.dismiss(self._choices[-1][2])


_OVERWRITE = (
    ("o", "overwrite it", "overwrite"),
    ("e", "save elsewhere", "elsewhere"),
    ("c", "cancel (esc)", ""),
)


class _Body(Lines):
    """Lines of the box."""


def quit_unsaved(path: str, then: str) -> Dialog:
    """Ask before leaving with unsaved rules; `then`: what comes next, `quit`."""
    return Dialog(
        "Unsaved rule changes",
        f"{path} lacks the last changes.",
        [("s", f"save and {then}", "save"), ("d", f"discard changes and {then}", "discard"), ("c", "cancel (esc)", "")],
    )


def conflict(path: str) -> Dialog:
    """Ask before saving over a file that changed on disk."""
    return Dialog("The file has changed on disk", f"{path} changed after it was read here.", _OVERWRITE)


def overwrite(path: str) -> Dialog:
    """Ask before overwriting another file."""
    return Dialog("The file exists", f"{path} exists: overwrite it?", _OVERWRITE)


def recovery(when: str) -> Dialog:
    """Offer the unsaved rules of an earlier session."""
    return Dialog(
        "Unsaved rules of an earlier session",
        f"An earlier session on these logs ended without saving its rules, last changed {when}.",
        [
            ("enter r", "restore them (u undoes, ctrl+s saves)", "restore"),
            ("d", "discard them", "discard"),
            ("esc", "decide later: keep them for the next session", "later"),
        ],
    )
