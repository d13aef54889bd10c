"""A question with a few answers, each on a key of its own."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult

from numtui.text.lines import Line, wrap
from numtui.tui.screens.modal import Modal
from numtui.tui.widgets.lines import Lines

__all__ = ["Choice", "Dialog", "conflict", "overwrite", "quit_unsaved", "recovery"]

Choice = tuple[str, str, str]
"""A key (or several, a space between them), what it does in words, and the answer it gives."""


class Dialog(Modal[str]):
    """Dismissed with the answer of the key that was pressed; `escape` gives the last one, which changes nothing."""

    def __init__(self, title: str, text: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._choices = tuple(choices)

    def compose(self) -> ComposeResult:
        yield _Body()

    def on_mount(self) -> None:
        """As high as what it says."""
        body = self.query_one(_Body)
        body.styles.height = len(self._lines(72)) + 2

    def draw(self) -> None:
        """The question and its answers."""
        body = self.query_one(_Body)
        body.paint(self._lines(body.size.width))

    def _lines(self, width: int) -> list[Line]:
        lines: list[Line] = [[(self._title, "title")], []]
        lines.extend([(text, "")] for text in wrap(self._text, max(min(width, 72), 20)))
        lines.append([])
        lines.extend([(f"  {key}", "key"), (f"  {label}", "")] for key, label, _ in self._choices)
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
    """The box."""


def quit_unsaved(path: str) -> Dialog:
    """Leaving with rules that are not in the file."""
    return Dialog(
        "The rules have changed",
        f"They are not saved in {path}.",
        [("s", "save and quit", "save"), ("d", "discard the changes and quit", "discard"), ("c", "cancel (esc)", "")],
    )


def conflict(path: str) -> Dialog:
    """Saving over what somebody else wrote."""
    return Dialog(
        "The file has changed on disk", f"{path} was written by something else since it was read here.", _OVERWRITE
    )


def overwrite(path: str) -> Dialog:
    """Saving to another file, which exists."""
    return Dialog("The file exists", f"{path} exists: overwrite it?", _OVERWRITE)


def recovery(when: str) -> Dialog:
    """Work that an earlier session left behind."""
    return Dialog(
        "Unsaved rules of an earlier session",
        f"A session on these two logs ended without saving its rules; they last changed {when}.",
        [
            ("enter r", "restore them; u undoes that, ctrl+s saves", "restore"),
            ("d", "discard them", "discard"),
            ("esc", "decide later: start without them, keep them for the next session", "later"),
        ],
    )
