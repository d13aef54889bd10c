"""Journal of unsaved rules, so that a lost connection does not lose them.

Every rule change is written to a journal in the state folder. A session that exits normally removes its journal; that
of a killed one is offered to the next session on the same logs and rule file. Each session has its own journal, so two
sessions on the same logs do not overwrite each other, and locks a file beside it for its lifetime: the kernel releases
that lock however the process ends, and a reused process id cannot be mistaken for a live session.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchers.files.atomic_write import atomic_writer, process_exists
from numtui.folders import state_folders
from numtui.session.store import INVALID

__all__ = ["Journal", "Recovered"]


_LATEST = 253402300799
"""The last second of the last year that has a date, 9999."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Rules of an earlier session that ended without saving.

    `time` is their last change in seconds since 1970; `path` the journal.
    """

    rules: str
    time: float
    path: Path


class Journal:
    """The journal of one session on one pair of logs and one rule file.

    Nothing here stops a session: a full disk or an unwritable folder is reported in `problem` (one sentence, None
    without trouble), because rules that cannot be journaled can still be saved.
    """

    def __init__(self, path_a: str, path_b: str, rules_path: Path, *, folder: Path | None = None) -> None:
        self.problem: str | None = None
        self._folders = [state / "journal" for state in state_folders()] if folder is None else [folder]
        self._folder = self._folders[0]
        self._subject = {"a": _absolute(path_a), "b": _absolute(path_b), "rules": _absolute(str(rules_path))}
        text = json.dumps(self._subject, sort_keys=True)
        self._name = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
        # Two journals of one process (a test, a reload) must not share a file either.
        self._own = self._folder / f"{self._name}-{os.getpid()}-{time.monotonic_ns():x}.json"
        self._lock: int | None = None
        self._offered: list[Path] = []

    def pending(self) -> Recovered | None:
        """Return the newest rules that an earlier session left unsaved; None without any.

        Journals of live sessions are not offered.
        """
        found: list[Recovered] = []
        for path in (path for folder in self._folders for path in folder.glob(f"{self._name}-*.json")):
            if path == self._own or (record := _read(path)) is None or self._alive(path, record):
                continue
            found.append(Recovered(record["text"], float(record["time"]), path))
        self._offered = [r.path for r in found]
        return max(found, key=lambda r: r.time, default=None)

    def write(self, rules: str) -> None:
        """Write this text of the rule file; a later crash does not lose it."""
        try:
            self._take_lock()
            with atomic_writer(self._own, mode=0o600) as out:
                record = {
                    "version": 1,
                    "subject": self._subject,
                    "time": time.time(),
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "locked": self._lock is not None,
                    "text": rules,
                }
                json.dump(record, out)
        except OSError as error:
            self.problem = f"unsaved rules are not backed up: {error.strerror or error} ({self._folder})"
        else:
            self.problem = None

    def clear(self) -> None:
        """Forget all unsaved rules: this session's, and those that `pending` found."""
        for path in [self._own, *self._offered]:
            with suppress(OSError):
                path.unlink()
        for path in self._offered:
            with suppress(OSError):
                _lock_path(path).unlink()
        self._offered = []

    def postpone(self) -> None:
        """Leave the rules that `pending` found to the next session."""
        self._offered = []

    def close(self) -> None:
        """End the session; rules written and not cleared are offered to the next one."""
        if self._lock is None:
            return
        with suppress(OSError):
            _lock_path(self._own).unlink()
        os.close(self._lock)
        self._lock = None

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(_lock_path(self._own), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Some network file systems have no locks; the process id is the fallback.
            os.close(descriptor)
            with suppress(OSError):
                _lock_path(self._own).unlink()
            return
        self._lock = descriptor

    @staticmethod
    def _alive(path: Path, record: dict[str, Any]) -> bool:
        """True while the session that wrote a journal runs."""
        if record.get("locked"):
            try:
                descriptor = os.open(_lock_path(path), os.O_RDWR)
            except OSError:
                return False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(descriptor)
            return False
        return record.get("host") == socket.gethostname() and process_exists(record.get("pid", 0))


def _absolute(path: str) -> str:
    return path if path == "-" else os.path.abspath(path)


def _lock_path(journal: Path) -> Path:
    return journal.with_suffix(".lock")


def _read(path: Path) -> dict[str, Any] | None:
    """Read a journal's record; None for an invalid one (of another version, or damaged)."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        record["text"].encode()
        valid = 0 <= record["time"] <= _LATEST and type(record.get("pid", 0)) is int
    except (*INVALID, OSError):
        return None
    return record if valid and isinstance(record, dict) else None
