"""Mouse on the main screen, with `--mouse`: clicks become keys, or move the cursor; the wheel scrolls.

Every place is one of the lines that a widget has painted: see `numtui.tui.widgets.lines`.
"""

from __future__ import annotations

from numtui.query.view import Order
from numtui.tui.pressed_keys import press
from numtui.tui.screens.arrange import sort_by
from numtui.tui.screens.screen import MainScreen
from numtui.tui.widgets.inspector import Inspector
from numtui.tui.widgets.lines import WHEEL_LINES, Lines
from numtui.tui.widgets.table import Table

__all__ = ["clicked", "wheeled"]


def clicked(explorer: MainScreen, event: Lines.Clicked) -> None:
    """Handle a click: on a key press it, on a heading sort by it, on a row or an input go there; double: enter it."""
    session, listing, inspector = explorer.session, explorer.session.listing, explorer.inspector
    if event.target and not isinstance(event.lines, Table):
        press(explorer.app, event.target)
    elif explorer.prompt.editor is not None:
        return  # the line that is typed gets everything
    elif event.target.startswith("map "):
        y = int(event.target.removeprefix("map "))
        listing.go_line(y * len(listing.view) // explorer.table.rows)
        explorer.draw()
    elif event.target:
        order = Order[event.target.upper()]
        sort_by(explorer, Order.DISPATCH if order is listing.order else order)
    else:
        session.cancel()
        explorer.say("", passing=True)
        if event.lines is inspector:
            inspector.active = True
            inspector.choose(session, event.item)
        else:
            inspector.leave()
            explorer.resize_inspector()
            listing.move(event.item - listing.line)
        if event.double:
            explorer.run_named("inspect")
        explorer.draw()


def wheeled(explorer: MainScreen, event: Lines.Wheeled) -> None:
    """Scroll what the wheel turns over."""
    if isinstance(event.lines, Inspector):
        event.lines.scroll_lines(WHEEL_LINES * event.by)
    elif explorer.session.proposal is None and explorer.prompt.editor is None:
        explorer.table.scroll_lines(explorer.session.listing, WHEEL_LINES * event.by)
        explorer.draw()
