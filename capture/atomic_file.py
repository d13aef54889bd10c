"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_file"]


@contextmanager
def atomic_file(path: str | os.PathLike[str], first: bytes = b"", *, at_once: bool = False) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` if the block ends without an exception, and is deleted otherwise.

    It also replaces a link at `path`, which somebody else may have put there, and not the file that this leads to.

    Args:
        path: the file.
        first: what it begins with.
        at_once: replace `path` before the block, and keep what is written however that ends.

    Raises:
        OSError: with the path in its text.
    """
    target = Path(path)
    # created by open(2), not mkstemp, so that the umask applies: it cannot be read without changing it
    temporary = target.with_name(f".{target.name[:64]}.{os.getpid()}.{time.monotonic_ns():x}.part")
    left = "was not written and nothing is left of it"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as out:
                out.write(first)
                if at_once:
                    out.flush()
                    os.replace(temporary, target)
                    left = "is cut off"
                yield out
                out.flush()
                os.fsync(out.fileno())
            if not at_once:
                os.replace(temporary, target)
        except BaseException:
            # also after Ctrl-C: half a log must not be left
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        reason = f"{error.strerror or error}; the log {left}"
        raise OSError(error.errno, reason, os.fspath(path)) from error
