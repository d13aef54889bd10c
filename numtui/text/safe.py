"""Escape text of a log for the terminal, and for what reads the output of a job."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TextIO

from matchers.invisible import is_visible

__all__ = ["inert", "safe_text", "write_lines"]

_COMMAND: Final = re.compile(r"^(\s*):(?=:)|#(?=#\w*\[)", re.MULTILINE)
"""Marks of a command to a CI service: `::error::` where a line begins, `##[error]` and `##vso[…]` anywhere."""


def safe_text(text: str, limit: int | None = None) -> str:
    """Return `text` as one line without anything that a terminal acts upon.

    Control characters become visible: C0 and DEL as their symbols (`␛`, `␀`, `␡`), C1 as `\\x9b`; characters that
    change the reading direction, have no width or no meaning as `\\u202e`. A tab becomes a space. With `limit`, at
    most that many characters are returned, the last of them `…` after a cut.
    """
    cut = limit is not None and len(text) > limit
    if cut:
        # Before scanning the characters: a line of a hostile log can be megabytes long.
        text = text[:limit]
    shown = text if is_visible(text) else "".join(map(_visible_character, text))
    if limit is not None and (cut or len(shown) > limit):
        return shown[: limit - 1] + "…" if limit > 0 else ""
    return shown


@lru_cache(maxsize=4096)
def _visible_character(c: str) -> str:
    if is_visible(c):
        return c
    code = ord(c)
    if c == "\t" or unicodedata.category(c) == "Zs":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def inert(text: str) -> str:
    """Return lines in which a CI service finds no command, whatever a log or a name says: `\\x3a:error::`."""
    if "::" not in text and "##" not in text:
        return text
    return _COMMAND.sub(lambda found: "\\x23" if found[1] is None else f"{found[1]}\\x3a", text)


def write_lines(lines: Iterable[str], out: TextIO) -> None:
    """Write the lines of a report that a job may print."""
    out.writelines(f"{inert(line)}\n" for line in lines)
