"""Logs that a process has written: which, what is still to be said of them, and which of them stay."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from .messages import say

__all__ = ["WrittenLogs"]


class WrittenLogs:
    """The logs of a recorder.

    Attributes:
        paths: of all that stay.
        unsaid: by path, what is to be said of the logs of the last step.
        wait: the last step did not meet the condition of `--when`: its logs wait for one that does.
    """

    def __init__(self, keep_last: int) -> None:
        """`keep_last`: as of `Settings`."""
        self.paths: list[Path] = []
        self.unsaid: dict[Path, str] = {}
        self.wait = False
        self._waiting: list[dict[Path, str]] = []
        self._keep_last = keep_last

    def tell(self) -> None:
        """Name the logs of the last step, and those that have waited for it."""
        if self.unsaid:
            self._waiting.append(self.unsaid)
            self.unsaid = {}
        if self.wait:
            self.forget_waiting(self._keep_last - 1)
            return
        for text in [text for texts in self._waiting for text in texts.values()]:
            say(text)
        self._waiting.clear()

    def forget_waiting(self, but: int = 0) -> None:
        """Delete the logs of steps that did not meet the condition, but the last ones."""
        while len(self._waiting) > but:
            for path in self._waiting.pop(0):
                self.paths.remove(path)
                with suppress(OSError):
                    path.unlink()
                    path.parent.rmdir()  # that of other ranks' logs stays
