"""A screen that leads to the explorer, as an application."""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import Screen

from numtui.inputs import OpenRequest
from numtui.tui.screens.overview import OverviewScreen
from numtui.tui.terminal_app import TerminalApp, run_on_terminal

__all__ = ["OverviewApp", "run_overview"]


class OverviewApp(TerminalApp, inherit_bindings=False):
    """Shows an overview; it ends with what to open in the explorer, an application of its own, or None.

    Args:
        screen: makes the screen.
    """

    def __init__(self, screen: Callable[[], OverviewScreen], request: OpenRequest) -> None:
        super().__init__(request)
        self.chosen: OpenRequest | None = None
        self._overview = screen

    def get_default_screen(self) -> Screen[None]:
        """Return the overview."""
        return self._overview()

    def on_overview_screen_entered(self) -> None:
        """Exit for the explorer; without logs, the overview says so."""
        if isinstance(self.screen, OverviewScreen):
            self.chosen = self.screen.overview.opening(self.request)
            self.screen.draw()
        if self.chosen is not None:
            self.exit()


def run_overview(screen: Callable[[], OverviewScreen], request: OpenRequest) -> tuple[int, OpenRequest | None]:
    """Show an overview; return 128 + n after signal n (else 0), and what to open in the explorer.

    Raises:
        UserError: an unknown theme.
        Exception: a bug; the command line reports it in one line and keeps the details.
    """
    app = OverviewApp(screen, request)
    run_on_terminal(app)
    return app.return_code or 0, app.chosen
