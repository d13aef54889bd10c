"""Facts about a log besides its numbers, which depend on who wrote it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EVERYTHING", "NUMBERS_ALONE", "Tells"]


class Tells(NamedTuple):
    """The facts on which the other rooms may rely.

    Attributes:
        exact: numbers round-trip; else they have about seven digits.
        copies: recomputed operations are marked; else any operation of the backward pass may be one.
        awaited: collectives have the values that their waits bring, and their phase.
        unread: an input without a number is one that was not read; else the number is missing.
        makers: inputs name the operation that made them, also where a view lies between.
        whole: an operation that is not in the log did not run.
    """

    exact: bool
    copies: bool
    awaited: bool
    unread: bool
    makers: bool
    whole: bool


EVERYTHING = Tells(exact=True, copies=True, awaited=True, unread=True, makers=True, whole=True)
"""Logs of our own capture."""
NUMBERS_ALONE = Tells(exact=False, copies=False, awaited=False, unread=False, makers=False, whole=False)
"""torchtitan's."""
