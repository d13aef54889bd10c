"""What numtui needs of Textual and Textual does not offer, in one place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.control import Control
from textual._compositor import ChopsUpdate
from textual.binding import BindingsMap
from textual.strip import Strip

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from textual.app import App
    from textual.binding import BindingType
    from textual.screen import Screen

__all__ = ["bound_action", "rebind", "crash_of", "output_waits", "tightened"]


class _TightUpdate(ChopsUpdate):
    """Sends exactly the cells that are to be drawn; Textual's own begins each stretch where its widget begins."""

    def render_segments(self, console: Console) -> str:
        """The cells of each stretch, with a jump to its start."""
        written: list[str] = []
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                start, stop = max(x, x1), min(end, x2)
                if strip is not None and start < stop:
                    written.append(Control.move_to(start, y).segment.text)
                    written += _written(strip.crop(start - x, stop - x), console)
        return "".join(written)


_LONG_BLANK = re.compile(" {12,}")


def _written(strip: Strip, console: Console) -> Iterator[str]:
    """A piece of a line as the terminal gets it; of plain blanks only how many there are."""
    *_, last = strip
    for segment in strip:
        text, style, _ = segment
        if style:
            yield style.render(text, color_system=console._color_system)  # noqa: SLF001 - what Textual itself asks
        else:
            end = len(text) if segment is last else -1
            yield _LONG_BLANK.sub(partial(_erased, end=end), text)


def _erased(blank: re.Match[str], end: int) -> str:
    """Erase so many cells; go behind them, unless nothing follows."""
    count = len(blank[0])
    return f"\x1b[{count}X" + ("" if blank.end() == end else f"\x1b[{count}C")


def tightened(drawn: RenderableType | None) -> RenderableType | None:
    """What Textual is about to draw, without the cells that are on the screen already."""
    return _TightUpdate(drawn.chops, drawn.spans, drawn.chop_ends) if isinstance(drawn, ChopsUpdate) else drawn


def bound_action(screen: Screen[Any], key: str) -> str | None:
    """The action that a key is bound to on a screen, after the user's keymap."""
    bindings = screen._bindings.key_to_bindings.get(key, ())  # noqa: SLF001 - Textual itself looks it up too late
    return bindings[0].action if bindings else None


def rebind(screen: Screen[Any], bindings: list[BindingType]) -> None:
    """Give a screen these bindings in place of those of its class."""
    screen._bindings = BindingsMap(bindings)  # noqa: SLF001 - Textual's keymap cannot take a key from an action


def crash_of(app: App[Any]) -> Exception | None:
    """The exception that ended the program, None when nothing went wrong."""
    found = app._exception  # noqa: SLF001 - Textual would print it, with all local variables, and return 1
    return getattr(found, "error", found) if found is not None else None


def output_waits(app: App[Any]) -> bool:
    """Whether the terminal has not yet taken what was drawn before: a slow line, a stopped terminal.

    Textual writes from a thread of its own behind a queue; drawing again while that queue holds something would only
    make the lag longer. Without such a thread (tests, other platforms) the answer is no.
    """
    writer = getattr(app._driver, "_writer_thread", None)  # noqa: SLF001 - there is no public way to know
    queue = getattr(writer, "_queue", None)
    return queue is not None and queue.qsize() > 0
