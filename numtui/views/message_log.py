"""Log of status messages, because one on the status line lasts only until the next key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from numtui.text.lines import Line
from numtui.text.safe import safe_text

__all__ = ["Messages"]

_MAX_MESSAGES = 300
"""Messages kept: an hour's worth."""

_MAX_TEXT = 2000
"""Characters shown of a message."""


@dataclass(frozen=True, slots=True)
class _Said:
    at: datetime
    text: str
    trouble: bool
    times: int = 1


def _now() -> datetime:
    return datetime.now().astimezone()


class Messages:
    """Messages of one session; an immediate repetition is counted, with the later time, instead of listed."""

    def __init__(self, clock: Callable[[], datetime] = _now) -> None:
        self._clock = clock
        self._said: deque[_Said] = deque(maxlen=_MAX_MESSAGES)

    def add(self, text: str, *, trouble: bool = False) -> None:
        """Add a message; an empty one is skipped."""
        if not text:
            return
        now = self._clock()
        if self._said and (last := self._said[-1]).text == text:
            self._said[-1] = replace(last, at=now, times=last.times + 1)
        else:
            self._said.append(_Said(now, text, trouble))

    def lines(self) -> list[Line]:
        """Return a line per message, latest first: time and text; trouble in red."""
        if not self._said:
            return [[(" no messages yet", "dim")]]
        return [
            [
                (f" {said.at:%H:%M:%S}  ", "dim"),
                *([(f"{said.times:,}×  ", "dim")] if said.times > 1 else []),
                (safe_text(said.text, _MAX_TEXT), "red" if said.trouble else ""),
            ]
            for said in reversed(self._said)
        ]
