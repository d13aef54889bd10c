"""Sorting, groups and saved filters: the list arranged so that what one looks for comes to the top."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from textual.app import SuspendNotSupported

from matchers.errors import UserError
from matchers.explain.facts import format_error
from numtui.query.grouping import By, RowGroup, grouped
from numtui.query.source_line import editor_command, find_source, source_lines, split_location
from numtui.query.view import Order
from numtui.text.lines import fit
from numtui.text.safe import safe_text
from numtui.tui.screens.panel import Panel, Picked
from numtui.tui.screens.panels import Overviews
from numtui.views.panels import Entry

__all__ = ["SORTED", "Finding", "group_entries"]

SORTED = {
    Order.DISPATCH: "order of dispatch",
    Order.ERROR: "error, the largest first",
    Order.CONFIDENCE: "confidence, the least sure first",
}
_MOST = 300
"""Groups that are listed: more than anybody reads."""
_NAME = re.compile(r"[\w.-]{1,40}")


class Finding(Overviews):
    """A screen whose list can be sorted, grouped and filtered by name."""

    _by = By.MODULE
    editor_setting: str | None = None
    """The command that the settings say shows a line of a file."""

    def action_sort(self) -> None:
        """The next order of the list."""
        order = self.session.listing.order.next
        if self.session.comparison.single and order is Order.CONFIDENCE:
            order = order.next
        self.run_then_show("sorting", partial(self.session.listing.ranked, order), lambda _: self._sort(order))

    def _sort(self, order: Order) -> None:
        self.session.listing.sort(order)
        by = "largest value" if self.session.comparison.single and order is Order.ERROR else SORTED[order]
        self.say(f"sorted by {by}")

    # -- groups

    def action_group(self) -> None:
        """The rows that are listed, in groups; enter lists one of them."""
        c, passing, by = self.session.comparison, self.session.listing.view.passing, self._by
        self.run_then_show(f"grouping by {by.label}", lambda: grouped(c, passing, by), self._show_groups)

    def _show_groups(self, groups: list[RowGroup]) -> None:
        def picked(choice: Picked | None) -> None:
            if choice is None:
                return
            if choice.key == "B":
                self._by = self._by.next
                self.action_group()
                return
            group = groups[choice.number]
            self.session.listing.go(group.worst)
            if group.query:
                self.filter_by(f"{self.session.listing.filter.query.text} {group.query}".strip())
            self.draw()

        panel = Panel(
            f"by {self._by.label} ({len(groups):,})",
            partial(group_entries, groups, single=self.session.comparison.single),
            keys={"enter": "lists its rows", "B": f"by {self._by.next.label}"},
        )
        self.app.push_screen(panel, picked)

    # -- saved filters

    def action_filters(self) -> None:
        """The saved filters; with none, save the one on the screen."""
        saved = dict(self.session.listing.saved)
        text = self.session.listing.filter.query.text
        if not saved:
            if text:
                self.ask("name", "save this filter as: ")
            else:
                self.say("no filter is saved, and none is on the screen: f filters, then F saves it")
            return

        def picked(choice: Picked | None) -> None:
            if choice is None:
                return
            if choice.key == "a":
                self.ask("name", "save this filter as: ")
                return
            name = list(saved)[choice.number]
            if choice.key == "x":
                del self.session.listing.saved[name]
                self.run_worker(self.session.keep, thread=True, group="keep")
                self.say(f"the filter {name} is forgotten")
            else:
                self.filter_by(saved[name])

        keys = {"enter": "lists its rows", "x": "forgets it"} | ({"a": "saves the one on the screen"} if text else {})
        self.app.push_screen(Panel("saved filters", partial(_filter_entries, saved), keys=keys, opened_by="F"), picked)

    def save_filter(self, name: str) -> None:
        """Save the filter on the screen under a name, which `@name` calls it by."""
        if not _NAME.fullmatch(name):
            self.say("a name is made of letters, digits, dots and dashes", trouble=True)
            return
        self.session.listing.saved[name] = self.session.listing.filter.query.text
        self.run_worker(self.session.keep, thread=True, group="keep")
        self.say(f"saved: F lists it, @{name} stands for it in a filter")

    # -- the source

    def action_edit(self) -> None:
        """Look for the source line of the row (with 2: of b, where that is another), then show it in an editor."""
        which = self.reader.count() or 1
        lines = source_lines(self.session.comparison, self.session.listing.cursor)
        if not lines:
            self.say("the logs do not say which source line this is")
            return
        if which > len(lines):
            self.say(f"{safe_text(lines[0], 200)} is the only source line of this row")
            return
        name, line = split_location(lines[which - 1])
        other = safe_text(lines[2 - which], 200) if len(lines) > 1 else ""
        besides = f"   (in {'ba'[which - 1]} it is {other}: {3 - which}V)" if other else ""
        self.run_then_show(
            f"looking for {name}",
            partial(find_source, name, Path.cwd()),
            lambda path: self._edit(path, name, line, besides),
        )

    def _edit(self, path: Path | None, name: str, line: int, besides: str) -> None:
        if path is None:
            self.say(f"{name} is not below this folder: start numtui in that of the source", trouble=True)
            return
        try:
            command = editor_command(self.editor_setting, path, line)
            with self.app.suspend():
                subprocess.run(command, check=False)  # noqa: S603 - the user's own editor
        except SuspendNotSupported:
            self.say(f"{path}:{line}   (this terminal cannot be handed to an editor){besides}")
        except (OSError, UserError) as error:
            self.say(f"the editor cannot be started: {error}", trouble=True)
        else:
            self.say(f"back from {path}:{line}{besides}")
        self.app.refresh(layout=True)


def group_entries(groups: Sequence[RowGroup], width: int, *, single: bool) -> list[Entry]:
    """The lines of a panel of groups; `single`: of one log, whose column of errors holds magnitudes."""
    room = max(width - 36, 20)
    entries = []
    for group in groups[:_MOST]:
        role = "red" if group.red else ""
        error = ""
        if not math.isnan(group.error):
            error = f"{group.error:.3g}" if single else format_error(group.error, group.bound)
        name = safe_text(group.name, 400) if group.name else "(the logs do not say)"
        entries.append(
            Entry(
                (
                    [
                        (f"  {fit(name, room, keep_end=True)} ", role),
                        (f"{group.red:>6,} red ", role if group.red else "dim"),
                        (f"of {group.rows:>7,}  ", "dim"),
                        (fit(error, 10), role),
                    ],
                ),
                group.worst,
            )
        )
    if (more := len(groups) - _MOST) > 0:
        entries.append(Entry(([(f"  … and {more:,} groups with less in them: a filter first leaves fewer", "dim")],)))
    return entries


def _filter_entries(saved: dict[str, str], width: int) -> list[Entry]:
    return [
        Entry(([(f"  {fit(name, 20)} ", "key"), (safe_text(text, max(width - 26, 10)), "")],), row)
        for row, (name, text) in enumerate(saved.items())
    ]
