"""Full-screen elements of a row's kept tensors: which differ, by how much, the values under a cursor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.app import ComposeResult

from capture.keeping.replay import Kept
from numtui.report.elements import tensors_by_name
from numtui.report.kept_tensors import Elements, read_elements
from numtui.terminal.tty import speaks_unicode
from numtui.text.lines import Line, fit
from numtui.text.safe import safe_text
from numtui.tui.screens.background import Background
from numtui.tui.screens.modal import Modal
from numtui.tui.screens.pager import keys_page
from numtui.tui.widgets.lines import ROLES, Lines
from numtui.views.elements import HEAT, Shown

__all__ = ["ElementsScreen", "differing_first", "read"]


def differing_first(sides: Mapping[str, Sequence[Kept]]) -> list[str]:
    """Return the names of a row's tensors, from the one on that is worth a look first: a result that differs."""
    tensors = tensors_by_name(sides)
    found = list(tensors)
    held = {name: {tuple(told["storage"] for _, told in parts) for parts in tensors[name].values()} for name in found}
    differ = [name for name in found if len(held[name]) > 1]
    first = next((name for name in differ if name.startswith("result")), next(iter(differ), "result 0"))
    at = found.index(first) if first in found else 0
    return [*found[at:], *found[:at]]


class ElementsScreen(Modal[None]):
    """Screen of one row.

    Args:
        sides: its kept calls.
        title: its name.
        first: the first tensor as it was read.
        verdict: returns what a replay has shown.
        does: what keys of the explorer do here, by key: replay, copy the command.
        cancels: cancels a replay; False if none runs.
    """

    covers = True

    def __init__(
        self,
        sides: Mapping[str, Sequence[Kept]],
        first: Elements | str,
        *,
        title: str,
        background: Background,
        verdict: Callable[[], Sequence[str]],
        does: Mapping[str, Callable[[], None]],
        cancels: Callable[[], bool],
        opened_by: Sequence[str],
        colour: bool,
    ) -> None:
        super().__init__()
        self._sides, self._title, self._background = sides, title, background
        self._cancels = cancels
        self._verdict, self._does, self._opened_by, self._colour = verdict, does, opened_by, colour
        self._names = differing_first(sides)
        self._at = 0
        self._said = ""
        self._shown: Shown | None = None
        self._take(0, first)

    def compose(self) -> ComposeResult:
        yield _Canvas()

    def draw(self) -> None:
        """Draw the elements, what was said last, and the keys."""
        canvas = self.query_one(_Canvas)
        width, height = canvas.size
        if not width:
            return
        name = self._names[self._at] if self._names else "nothing"
        form = "" if self._shown is None else f"  {self._shown.elements.form}"
        many = f"   tensor {self._at + 1} of {len(self._names)}"
        lines: list[Line] = [[(f" {safe_text(self._title, 200)}", "title"), (f"  {name}{form}", ""), (many, "dim")]]
        if self._shown is not None:
            lines += self._shown.lines(width, height - 2, self._verdict())
        lines += [[] for _ in range(height - 1 - len(lines))]
        canvas.paint([*lines[: height - 1], [(fit(f" {self._said or _KEYS}", width), "" if self._said else "dim")]])

    def hear(self, message: str, *, trouble: bool) -> None:  # noqa: ARG002
        """Show a message of the main screen until the next key."""
        self._said = message
        self.redraw()

    def pressed(self, event: events.Key) -> None:
        """Move, turn to another tensor or other dimensions, replay, copy, close."""
        self._said = ""
        key, shown = event.key, self._shown
        if key == "escape" and self._cancels():
            return
        if key in ("q", "escape", "ctrl+c") or key in self._opened_by:
            self.dismiss(None)
            return
        if (do := self._does.get(key)) is not None:
            do()
        elif key in ("question_mark", "f1"):
            self.app.push_screen(keys_page("Elements", _HELP))
            return
        elif key in ("tab", "shift+tab") and self._names:
            self._turn(1 if key == "tab" else -1)
        elif shown is not None and key in _MOVES:
            shown.move(*_MOVES[key])
        elif shown is not None and key in ("g", "o", "n"):
            shown.to_largest()
        elif shown is not None and key == "d":
            shown.turn()
        self.draw()

    def _turn(self, by: int) -> None:
        self._at = (self._at + by) % len(self._names)
        self._shown, self._said = None, "reading …"
        at, name = self._at, self._names[self._at]
        work = partial(read, self._sides, name)
        self._background.run(work, partial(self._read, at), group="elements", exclusive=True)

    def _read(self, at: int, found: Elements | str) -> None:
        if at == self._at:
            self._take(at, found)
            self.redraw()

    def _take(self, at: int, found: Elements | str) -> None:
        self._at = at
        if isinstance(found, str):
            self._shown, self._said = None, found
        else:
            self._shown, self._said = Shown(found, colour=self._colour, unicode=speaks_unicode()), ""


def read(sides: Mapping[str, Sequence[Kept]], name: str) -> Elements | str:
    """Read a tensor of a row; text: why it cannot be read. Callable from any thread."""
    try:
        return read_elements(name, tensors_by_name(sides)[name])
    except OSError as error:
        return f"{error.filename}: cannot be read: {error.strerror or error}"


_KEYS = "←↓↑→ move · g largest · tab tensor · d dimensions · . replay · y copy · q close"
_HELP = {
    "← ↓ ↑ →  h j k l": "move the cursor by a cell; a cell shows its largest difference",
    "space  b": "eight cells down, up",
    "g": "go to the largest difference",
    "tab": "next tensor: inputs, results; shift+tab the one before",
    "d": "other two dimensions; the others count with their largest difference",
    ".": "replay the operation",
    "y": "copy the command that replays it",
    "q esc #": "close; esc first cancels a replay",
}
_MOVES = {
    "right": (0, 1), "l": (0, 1), "left": (0, -1), "h": (0, -1), "down": (1, 0), "j": (1, 0), "up": (-1, 0),
    "k": (-1, 0), "space": (8, 0), "pagedown": (8, 0), "ctrl+d": (8, 0), "b": (-8, 0), "pageup": (-8, 0),
    "ctrl+u": (-8, 0), "home": (0, -1 << 30), "end": (0, 1 << 30),
}  # fmt: skip


class _Canvas(Lines):
    """Canvas of the map; a role `heat1/heat2` is a half block in two colours."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{role}" for role in (*ROLES, *HEAT)}

    def _style(self, role: str) -> Style | None:
        upper, _, lower = role.partition("/")
        if lower and role not in self._role_styles:
            one, other = super()._style(upper), super()._style(lower)
            if one is not None and other is not None:
                self._role_styles[role] = Style(color=one.color, bgcolor=other.color)
        return super()._style(role)
