"""Logs that were read before, from their columns in a cache folder instead of from their text.

An entry belongs to the state of a file (`FileIdentity`) and to the code that reads logs. It is used only if the bytes
of the log still have the digest that they had when the entry was made, so a change of any byte is seen, whatever the
file's times say; that costs a tenth of the time that parsing takes. `summary` trusts the file's times and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from matchers.files.cache_folder import CacheFolder, entry_name, source_digest
from matchers.logs.file_identity import Content, FileIdentity
from matchers.logs.op_log import OpLog
from matchers.logs.packed_columns import packed, unpacked
from matchers.logs.parser import Progress, read_log

__all__ = ["COLUMNS", "Summary", "read_cached", "summary"]

COLUMNS = "columns"
"""Kind of these entries."""
_PACKAGES = Path(__file__).parents[2]
_READER = (
    *(_PACKAGES / "matchers" / name for name in ("logs", "laws", "files", "status.py")),
    _PACKAGES / "capture" / "log_format.py",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """The facts about a log that its columns need not be loaded for.

    Attributes:
        records: number of operations.
        complete: as in `OpLog`.
        stated_digest: the digest over all records in the footer; empty without one.
        structure: digest of operations, shapes and data flow (`structure_digest`).
    """

    records: int
    complete: bool | None
    stated_digest: str
    structure: str


def read_cached(
    path: str, cache: CacheFolder | None, *, progress: Progress | None = None, step: int | None = None
) -> OpLog:
    """Read a log like `read_log`, from the cache if it is there; otherwise leave it there (`CacheFolder.flush`).

    Raises:
        LogError: as `read_log`.
    """
    identity = None if cache is None or path == "-" else FileIdentity.of(path)
    if cache is None or identity is None or not identity.worthwhile or not (name := _name(identity, step)):
        return read_log(path, progress=progress, step=step)
    entry = cache.get(name)
    if entry is not None and entry.meta.get("content") == (content := identity.content()):
        if progress is not None:
            progress("reading", 1.0)
        return replace(unpacked(entry, path), content=content)
    taken = Content() if identity.files == (path,) else None
    log = read_log(path, progress=progress, content=taken, step=step)
    if taken is None:
        log = replace(log, content=identity.content())
    if log.content and FileIdentity.of(path) == identity:
        cache.later(_storing(cache, name, log))
    return log


def summary(path: str, cache: CacheFolder) -> Summary | None:
    """The summary of a log that was read before; None if it was not, or has changed since.

    A change is seen by size, times, inode and ends of the file.
    """
    identity = FileIdentity.of(path)
    meta = cache.meta(_name(identity)) if identity is not None else None
    if meta is None:
        return None
    try:
        return Summary(*(meta[name] for name in ("records", "complete", "stated_digest", "structure")))
    except KeyError:
        return None


def _name(identity: FileIdentity, step: int | None = None) -> str:
    """The name of an entry: the state of the file, and all that the columns depend on besides."""
    reader = source_digest(*_READER)
    if not reader:
        return ""
    part = "" if step is None else f" step {step}"
    return entry_name(f"{identity.key} {reader} {sys.byteorder} {np.__version__}{part}", COLUMNS)


def _storing(cache: CacheFolder, name: str, log: OpLog) -> Callable[[], None]:
    def store() -> None:
        entry = packed(log)
        if entry is not None:
            cache.put(name, replace(entry, meta={**entry.meta, "content": log.content}))

    return store
