"""Logs of weights over steps, recognised by their first bytes."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import Final

__all__ = ["WEIGHTS", "WEIGHTS_NAME", "is_weight_log"]

WEIGHTS: Final = b"Format: numtui weights"
"""First bytes of a log of weights over steps."""
WEIGHTS_NAME: Final = re.compile(r"rank_(\d+)_weights\.log(\.gz)?")


def is_weight_log(path: str) -> bool:
    """True when a file's first bytes mark a log of weights over steps. A pipe, readable only once, is not touched."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            start = file.read(512)
    except (OSError, ValueError):
        return False  # the reader reports the error
    if start[:2] == b"\x1f\x8b":
        import zlib  # a rare case

        with suppress(zlib.error):
            start = zlib.decompressobj(wbits=31).decompress(start, len(WEIGHTS))
    return start.startswith(WEIGHTS)
