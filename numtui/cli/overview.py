"""Screens that lead to the explorer: both take turns until the user quits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from matchers.errors import UserError
from numtui.cli.explore import explore
from numtui.cli.output import ExitCode
from numtui.inputs import OpenRequest
from numtui.terminal.tty import is_dumb_terminal, is_terminal, reopen_keyboard

if TYPE_CHECKING:
    from numtui.session.overview import Overview
    from numtui.tui.screens.overview import OverviewScreen

__all__ = ["has_screen", "show"]


def has_screen() -> bool:
    """True where a screen can be shown and keys can be read; to be called before Textual is imported."""
    return is_terminal(sys.stdout) and not is_dumb_terminal() and reopen_keyboard()


def show(
    overview: Overview,
    screen: Callable[[], OverviewScreen],
    request: OpenRequest,
    explorer: Callable[[OpenRequest], int] | None = None,
) -> int:
    """Show an overview, and between times the explorer; return 128 + n after signal n, else 0.

    Args:
        screen: makes the screen of the overview.
        request: the settings.
        explorer: opens the explorer, if otherwise than by `explore`.
    """
    from numtui.tui.overview_app import run_overview

    while True:
        code, chosen = run_overview(screen, request)
        if chosen is None:
            return code
        try:
            code = (explorer or explore)(chosen)
        except UserError as error:
            overview.message = str(error)
        else:
            if code > ExitCode.TROUBLE:  # a signal
                return code
