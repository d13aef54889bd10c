"""A log that is a folder, open as a file is."""

from __future__ import annotations

import os
from pathlib import Path

from matchers.errors import LogError
from matchers.logs.file_identity import Content
from matchers.logs.imported.files import tensor_files
from matchers.logs.source import LogSource

__all__ = ["FolderSource", "Source", "open_log"]


class FolderSource:
    """A folder that is one log, as `LogSource` is a file.

    Attributes:
        files: its files, in their natural order.
        taken: bytes read so far, which its reader counts.
        cut_off: None.
    """

    def __init__(self, path: str) -> None:
        """Find the files.

        Raises:
            LogError: there are none.
        """
        self.files = tensor_files(Path(path))
        self.taken = 0
        self.cut_off: str | None = None
        if not self.files:
            raise LogError(f"{path}: is a directory, not a log")

    def __enter__(self) -> FolderSource:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self) -> bytes:
        """The first bytes of the first file."""
        with LogSource(str(self.files[0])) as source:
            return source.start()

    def fraction(self) -> float:
        """0: unknown."""
        return 0.0


Source = LogSource | FolderSource


def open_log(path: str, content: Content | None = None) -> Source:
    """Open a log: a file, or a folder that is one.

    Raises:
        LogError, OSError: as `LogSource`.
    """
    return FolderSource(path) if os.path.isdir(path) else LogSource(path, content)
