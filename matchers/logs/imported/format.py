"""The interface of a format: how a file of it is recognised, read, and shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from matchers.logs.imported.columns import Columns
from matchers.logs.source import LogSource

__all__ = ["Format"]


class Format(NamedTuple):
    """A format of another tool's log.

    Attributes:
        name: as a header says it; what such a log tells is in `matchers.logs.tells` by this name.
        pattern: is found in the first bytes of every such file, and of no other.
        read: enter the rows of a file; yields now and then, so that progress can be told, or the reading given up.
        native: the lines of one operation as the file has them, by its line and its `Call index`.
    """

    name: str
    pattern: re.Pattern[bytes]
    read: Callable[[LogSource, Columns], Iterator[None]]
    native: Callable[[LogSource, int, str], Iterator[str]]
