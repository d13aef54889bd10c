"""First frame: the first operations of both logs, before any slow import.

Importing numpy and the matchers takes longer than drawing a frame. So the keys of the first records are read from the
files directly, shown, and replaced by the explorer a moment later. Keys typed meanwhile are kept for it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, cast

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from numtui.inputs import OpenRequest
from numtui.text.lines import Line, fit
from numtui.text.safe import safe_text
from numtui.tui.textual_shims import PresentSize
from numtui.tui.widgets.lines import Lines

__all__ = ["Opening", "first_keys"]

_HEAD_BYTES = 64 << 10
_MAX_KEYS = 200
"""Op keys shown: more than any terminal has lines."""


def first_keys(path: str) -> list[str]:
    """Return the op keys of the first records of a log; none where it cannot be read (the reader reports that)."""
    data = b""
    with suppress(OSError, EOFError, zlib.error), open(path, "rb") as plain:
        packed = plain.peek(2)[:2] == b"\x1f\x8b"
        source = cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if packed else plain
        data = source.read(_HEAD_BYTES)
    lines = (line.rstrip(b"\r") for line in data.split(b"\n")[:-1])
    keys = [line[1:-1] for line in lines if line[:1] == b"[" and line[-1:] == b"]"]
    return [key[:400].decode("utf-8", "backslashreplace") for key in keys[:_MAX_KEYS]]


class Opening(PresentSize, Screen[None]):
    """First rows of both logs side by side, unpaired."""

    def __init__(self, request: OpenRequest) -> None:
        super().__init__()
        self._names = (request.name_a, request.name_b)
        self._keys = (first_keys(request.path_a), [] if request.single else first_keys(request.path_b))
        self.typed: list[events.Key] = []
        """Keys pressed before the explorer opened."""

    def compose(self) -> ComposeResult:
        yield FirstRows()

    def on_key(self, event: events.Key) -> None:
        """Keep the key, or quit at once on a first q; after other keys a q may be part of a text."""
        event.stop()
        if event.key in ("ctrl+c", "ctrl+q") or (event.key == "q" and not self.typed):
            self.app.exit(return_code=0)
        self.typed.append(events.Key(event.key, event.character))

    def on_lines_resized(self) -> None:
        """Draw for the known size."""
        rows = self.query_one(FirstRows)
        rows.paint(self._lines(*rows.size))

    def _lines(self, width: int, height: int) -> list[Line]:
        a, b = (safe_text(name, 30) for name in self._names)
        each = max((width - 8) // 2, 8)
        lines: list[Line] = [
            [(f" numtui  {a} ⇄ {b}" if b else f" numtui  {a}", "title"), ("   opening", "dim")],
            [],
            [(fit("      #", 8) + fit(a, each) + fit(b, each), "dim")],
        ]
        for i in range(min(max(map(len, self._keys)), height - 3)):
            left, right = (_key(keys, i, each) for keys in self._keys)
            lines.append([(f"{i + 1:>7} {left} {right}", "")])
        return lines


class FirstRows(Lines):
    """Lines of the whole screen."""


def _key(keys: Sequence[str], i: int, width: int) -> str:
    return fit(safe_text(keys[i], 400) if i < len(keys) else "", width - 1, keep_end=True)
