"""The screen of weights as an application."""

from __future__ import annotations

from textual.screen import Screen

from numtui.inputs import OpenRequest
from numtui.session.weights import WeightsCursor
from numtui.tui.screens.weights import WeightsScreen
from numtui.tui.terminal_app import TerminalApp, run_on_terminal

__all__ = ["WeightsApp", "run_weights"]


class WeightsApp(TerminalApp, inherit_bindings=False):
    """Shows the matrix; it ends with the logs to open in the explorer, or None."""

    def __init__(self, cursor: WeightsCursor, request: OpenRequest) -> None:
        super().__init__(request)
        self.chosen: tuple[str, str] | None = None
        self._cursor = cursor

    def get_default_screen(self) -> Screen[None]:
        """Return the matrix."""
        return WeightsScreen(self._cursor)

    def on_weights_screen_entered(self) -> None:
        """Exit for the explorer, which is an application of its own; without logs say so."""
        cursor = self._cursor
        self.chosen = cursor.logs()
        if self.chosen is not None:
            self.exit()
            return
        step = cursor.step
        cursor.message = f"step {step} has no operation logs in both folders: numtui capture --steps {step}"
        if isinstance(self.screen, WeightsScreen):
            self.screen.draw()


def run_weights(cursor: WeightsCursor, request: OpenRequest) -> tuple[int, tuple[str, str] | None]:
    """Show the matrix; return 128 + n after signal n (else 0), and the logs to open in the explorer.

    Raises:
        UserError: an unknown theme.
        Exception: a bug; the command line reports it in one line and keeps the details.
    """
    app = WeightsApp(cursor, request)
    run_on_terminal(app)
    return app.return_code or 0, app.chosen
