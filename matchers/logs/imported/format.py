"""The interface of a format: how a file of it is recognised, read, and shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matchers.logs.imported.columns import Columns

__all__ = ["NATIVE_KEY", "Format"]

NATIVE_KEY = "Native key"
"""Field with the name that the other tool gives an operation."""


class Format(NamedTuple):
    """A format of another tool's log.

    Attributes:
        name: as a header says it, perhaps with a variant in parentheses; what it tells is in `matchers.logs.tells`.
        pattern: is found in the first bytes of every such file, and of no other.
        read: enter the rows of a log; yields now and then, so that progress can be told, or the reading given up.
        native: the lines of one operation as the log has them, by the path of the log, its line and its `Native key`.
        steps: a file may have several steps; rows of others than `Columns.step` are not entered.
    """

    name: str
    pattern: re.Pattern[bytes]
    read: Callable[[Any, Columns], Iterator[None]]
    native: Callable[[Any, str, int, str], Iterator[str]]
    steps: bool = False
