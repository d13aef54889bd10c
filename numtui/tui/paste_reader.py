"""Find bracketed pastes in what a terminal sends."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["END", "START", "PasteReader"]

START, END = "\x1b[200~", "\x1b[201~"
"""Marks around a paste, of the same length."""


class PasteReader:
    """Reader of the input of one terminal, which arrives in pieces of any length."""

    def __init__(self) -> None:
        self._tail = ""
        """The last characters read: a mark may be split between two pieces."""
        self._pasted: list[str] | None = None
        """The paste that has begun; None without one."""

    def parts(self, data: str) -> Iterator[tuple[str, bool]]:
        """Yield what was typed, the mark before a paste included (False), and the text of each whole paste (True)."""
        while data:
            known = self._tail + data
            at = known.find(START if self._pasted is None else END)
            end = len(data) if at < 0 else at + len(END) - len(self._tail)
            part, data = data[:end], data[end:]
            self._tail = known[1 - len(END) :] if at < 0 else ""
            if self._pasted is None:
                yield part, False
                self._pasted = [] if at >= 0 else None
            else:
                self._pasted.append(part)
                if at >= 0:
                    text, self._pasted = "".join(self._pasted), None
                    yield text[: -len(END)], True
