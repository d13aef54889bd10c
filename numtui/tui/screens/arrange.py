"""Sorting, grouping and saved filters of the list."""

from __future__ import annotations

import re
from functools import partial

from numtui.query.grouping import RowGroup, grouped
from numtui.query.view import Order
from numtui.tui.screens.panel import Panel, Picked
from numtui.tui.screens.screen import MainScreen
from numtui.views.panels import filter_entries, group_entries

__all__ = ["SORTED", "open_filters", "open_groups", "sort_by", "sort_next"]

SORTED = {
    Order.DISPATCH: "order of dispatch",
    Order.ERROR: "error, the largest first",
    Order.CONFIDENCE: "confidence, the least sure first",
}
_NAME = re.compile(r"[\w.-]{1,40}")


def sort_next(explorer: MainScreen) -> None:
    """Sort the list by the next order, from its top; back in order of dispatch, the cursor keeps its row."""
    listing = explorer.session.listing
    order = listing.order.next
    if listing.comparison.single and order is Order.CONFIDENCE:
        order = order.next
    sort_by(explorer, order)


def sort_by(explorer: MainScreen, order: Order) -> None:
    """Sort the list, as `sort_next`."""
    listing = explorer.session.listing
    single = listing.comparison.single

    def show(_: object) -> None:
        listing.sort(order)
        if order is not Order.DISPATCH:
            listing.go_line(0)  # what the list was sorted for
        explorer.say(f"sorted by {'largest value' if single and order is Order.ERROR else SORTED[order]}")

    explorer.background.run_then_show("sorting", partial(listing.ranked, order), show)


# -- groups


def open_groups(explorer: MainScreen) -> None:
    """Open the groups of the listed rows; enter lists one group."""
    listing = explorer.session.listing
    by = listing.grouping
    explorer.background.run_then_show(
        f"grouping by {by.label}",
        partial(grouped, listing.comparison, listing.view.passing, by),
        partial(_show_groups, explorer),
    )


def _show_groups(explorer: MainScreen, groups: list[RowGroup]) -> None:
    listing = explorer.session.listing

    def picked(choice: Picked | None) -> None:
        if choice is None:
            return
        if choice.key == "B":
            listing.grouping = listing.grouping.next
            open_groups(explorer)
            return
        group = groups[choice.number]
        listing.go(group.worst)
        if group.query:
            explorer.prompt.filter_by(f"{listing.filter.query.text} {group.query}".strip())
        explorer.draw()

    panel = Panel(
        f"by {listing.grouping.label} ({len(groups):,})",
        partial(group_entries, groups, single=listing.comparison.single),
        keys={"enter": "list its rows", "B": f"by {listing.grouping.next.label}"},
    )
    explorer.app.push_screen(panel, picked)


# -- saved filters


def open_filters(explorer: MainScreen) -> None:
    """Open the saved filters; with none, save the current filter."""
    listing = explorer.session.listing
    saved = dict(listing.saved)
    text = listing.filter.query.text
    if not saved:
        if text:
            _ask_name(explorer)
        else:
            explorer.say("no saved or active filter: f filters, then F saves it")
        return

    def picked(choice: Picked | None) -> None:
        if choice is None:
            return
        if choice.key == "a":
            _ask_name(explorer)
            return
        name = list(saved)[choice.number]
        if choice.key == "x":
            del listing.saved[name]
            explorer.background.store_session()
            explorer.say(f"filter {name} deleted")
        else:
            explorer.prompt.filter_by(saved[name])

    keys = {"enter": "list its rows", "x": "delete"} | ({"a": "save the current filter"} if text else {})
    panel = Panel("saved filters", partial(filter_entries, saved), keys=keys, opened_by="F")
    explorer.app.push_screen(panel, picked)


def _ask_name(explorer: MainScreen) -> None:
    explorer.prompt.ask("name", "save this filter as: ", partial(_save_filter, explorer))


def _save_filter(explorer: MainScreen, name: str) -> None:
    """Save the current filter as `@name`; an empty name saves nothing."""
    if not name:
        return
    if not _NAME.fullmatch(name):
        explorer.say("use letters, digits, dots and dashes in a name", trouble=True)
        return
    listing = explorer.session.listing
    listing.saved[name] = listing.filter.query.text
    explorer.background.store_session()
    explorer.say(f"saved: F lists it, @{name} applies it in a filter")
