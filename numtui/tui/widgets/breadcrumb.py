"""The second line of the screen: position of the cursor in the model, and active filters."""

from __future__ import annotations

from numtui.session.listing import Listing
from numtui.tui.widgets.lines import Lines
from numtui.views.run_summary import breadcrumb

__all__ = ["Breadcrumb"]


class Breadcrumb(Lines):
    """Module, phase, filters, place among the red rows."""

    def show(self, listing: Listing) -> None:
        self.paint([breadcrumb(listing, self.size.width)])
