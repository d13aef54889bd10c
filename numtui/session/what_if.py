"""What would be left to explain if some red rows were equal: the causes behind the first ones, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from matchers.arrays import Bool, marked
from matchers.causes.further_causes import explained_by, possible_causes
from matchers.comparison import Comparison
from numtui.text.counts import plural

__all__ = ["WhatIf", "what_if"]


class _Cause(NamedTuple):
    """The rows that start a cause, and what it is called."""

    rows: tuple[int, ...]
    word: str


@dataclass(frozen=True)
class WhatIf:
    """Rows that are assumed to be equal, and what that explains.

    Attributes:
        assumed: the rows, ascending; empty where the last one was taken back.
        explained: bool[r], red rows and causes that would be gone, the assumed ones among them.
        left: the causes that are left, those that are certain first.
        red: number of red rows that are left.
    """

    assumed: tuple[int, ...]
    explained: Bool
    left: tuple[_Cause, ...]
    red: int

    @property
    def next(self) -> int:
        """The row of the next cause; -1 for none."""
        return self.left[0].rows[0] if self.left else -1

    @property
    def told(self) -> str:
        """What is left, in a sentence."""
        if not self.assumed:
            return "nothing is assumed equal any more"
        if self.left:
            return f"{plural(self.red, 'red row')} left · next: row {self.next + 1:,}, {self.left[0].word}"
        return f"{plural(self.red, 'red row')} left, without a known cause" if self.red else "no red row is left"


def what_if(c: Comparison, before: WhatIf | None, row: int) -> WhatIf | str:
    """Assume a red row to be equal, with all rows of its cause, or take that back; a message where it cannot be.

    May take seconds on large logs: not for the screen's own thread.
    """
    assumed = set(before.assumed) if before is not None else set()
    causes = [*_causes(c)]
    group = next((cause.rows for cause in causes if row in cause.rows), (row,) if row >= 0 and c.red[row] else ())
    if not group:
        return "not red: W on a red row assumes that it were equal"
    if row in assumed:
        assumed.difference_update(group)
    elif before is not None and before.explained[row]:
        return "explained by what is assumed equal already"
    else:
        assumed.update(group)
    explained = np.zeros(len(c), bool)
    if assumed:
        starts = marked([start for cause in causes for start in cause.rows], len(c))
        explained = explained_by(c, np.array(sorted(assumed)), starts)
    left = tuple(cause for cause in causes if not explained[list(cause.rows)].any())
    return WhatIf(tuple(sorted(assumed)), explained, left, int(np.count_nonzero(c.red & ~explained)))


def _causes(c: Comparison) -> Iterator[_Cause]:
    """Yield all causes, those that are certain first, each kind in the order of the step."""
    yield from (_Cause(rows, "first cause") for rows in sorted(c.consequences.starts))
    yield from (_Cause(rows, "independent cause") for rows in c.further_causes)
    possible = possible_causes(c, c.asked_otherwise, c.further_causes)
    yield from (_Cause(rows, "possible cause") for rows in possible)
