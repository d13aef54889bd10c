"""Read the captured step from a log's header, without the rest of the log."""

from __future__ import annotations

from itertools import islice

from capture import log_format
from matchers.logs.source import LogSource

__all__ = ["captured_step"]

_MAX_HEADER = 100


def captured_step(path: str) -> int | None:
    """Return the step that a log of operations is about; None if its header does not say.

    Raises:
        OSError: the file cannot be read.
        LogError: it is a damaged archive.
    """
    header: list[str] = []
    with LogSource(path) as file:
        for raw in islice(file.lines(), _MAX_HEADER):
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            if text.startswith("===="):
                break
            header.append(text)
    step = log_format.parse_header(header).run.get("step")
    return step if isinstance(step, int) else None
