"""The overview of all ranks of two runs, and from it the explorer on any of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from numtui.cli.explore import explore
from numtui.cli.overview import show
from numtui.inputs import OpenRequest

if TYPE_CHECKING:
    from matchers.runs.diff.comparison import RunComparison

__all__ = ["show_ranks"]


def show_ranks(runs: RunComparison, request: OpenRequest, noise: Callable[[int], str | None] = lambda _: None) -> int:
    """Show all ranks, and between times the explorer on one of them; return 128 + n after signal n, else 0.

    Args:
        runs: with at least one rank.
        request: the settings, as `configured`; the logs are those of the ranks.
        noise: third log of a rank, with the expected noise; None for none.
    """
    from numtui.session.ranks import RanksCursor
    from numtui.tui.screens.ranks import RanksScreen

    cursor = RanksCursor(runs, noise)
    return show(cursor, lambda: RanksScreen(cursor), request, partial(explore, ranks=cursor))
