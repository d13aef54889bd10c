"""The formats of other tools' logs, by the first bytes of a file."""

from __future__ import annotations

import re

__all__ = ["recognised"]

_FORMATS = {
    "torch DebugMode (save_logs)": re.compile(
        rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"[^\[]*"torch\.utils\._debug_mode\.DebugMode\.logs"'
    ),
    "torch DebugMode (dump_tensor_hashes)": re.compile(
        rb"^Total captured tensor hash ops:|^  Call type: (?:torch op|triton kernel)\r?$", re.MULTILINE
    ),
    "torch DebugMode (debug_string)": re.compile(
        rb"^(?: {2})+(?:\[(?:nn\.Mod[^\]\n]*|record function)\] |\w+::[\w.]+\()", re.MULTILINE
    ),
}


def recognised(start: bytes) -> str:
    """Return the format of a file that begins so; empty for our own logs, torchtitan's, and what is no log."""
    return next((name for name, pattern in _FORMATS.items() if pattern.search(start)), "")
