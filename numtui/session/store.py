"""Store of the session state per pair of logs, so that the next session continues where the last one ended.

A JSON file per pair of logs in the state folder: cursor, filter, order and folding, saved filters, marks, and notes.
Rows are identified by the keys of their records, not by number: a grown log or other rules leave a note in place.

Rules are not stored here: they have the user's rule file, and unsaved ones the journal.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from matchers.comparison import Comparison
from matchers.files.atomic_write import atomic_writer
from matchers.files.file_lock import PATIENCE, wait_for_lock
from matchers.logs.op_log import OpLog
from numtui.folders import state_folders
from numtui.session.input_history import joined

__all__ = [
    "INVALID",
    "NOWHERE",
    "Anchor",
    "Record",
    "SessionStore",
    "SavedSession",
    "anchor_of",
    "row_of_anchor",
    "record_pair_of_anchor",
]

Record = tuple[str, int]
"""Stable name of a record: its key, and its index among the records with that key (from 0)."""

Anchor = tuple["Record | None", "Record | None"]
"""Stable names of the records of a and b in a row; None where a side has none."""

_MAX_SESSIONS = 200
"""Pairs of logs with a stored session; older ones are deleted, unless they have marks or notes."""

NOWHERE: Anchor = (None, None)

INVALID = (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError)
"""The errors of reading a JSON file that is damaged, or that another program wrote."""

K = TypeVar("K")
V = TypeVar("V")


def anchor_of(c: Comparison, spot: tuple[int, int]) -> Anchor:
    """Return the anchor of a row with these records (-1: none). Milliseconds in a log of a million records."""
    return _record(c.a, spot[0]), _record(c.b, spot[1])


def record_pair_of_anchor(c: Comparison, anchor: Anchor) -> tuple[int, int]:
    """Return the current indices of the anchored records; -1 for a missing one."""
    a, b = (
        -1 if record is None else log.keys.find(record[0].encode("utf-8", "surrogateescape"), record[1])
        for record, log in zip(anchor, (c.a, c.b), strict=True)
    )
    return a, b


def row_of_anchor(c: Comparison, anchor: Anchor) -> int:
    """Return the row of the anchored record of a, else of b; -1 when both are missing."""
    for record, at in zip(record_pair_of_anchor(c, anchor), (c.at_a, c.at_b), strict=True):
        if record >= 0:
            return int(at[record])
    return -1


def _record(log: OpLog, record: int) -> Record | None:
    if record < 0:
        return None
    raw = log.keys.raw(record)
    return raw.decode("utf-8", "surrogateescape"), log.keys.occurrence(record)


@dataclass(frozen=True, slots=True)
class SavedSession:
    """State with which the next session starts.

    Attributes:
        cursor: the row under the cursor.
        query: the filter query as typed; `hidden`: names of the status groups switched off.
        order: name of the sort order; fold_chosen: equal stretches are folded; None where nobody chose.
        details: name of the size of the inspector; merged: names of both sides in one column.
        filters: saved queries by name.
        marks: rows by the letter of their mark.
        notes: text by row.
        rejected: rejected suggested rules, as text.
        typed: typed lines by kind of prompt, latest last.
    """

    cursor: Anchor = NOWHERE
    query: str = ""
    hidden: tuple[str, ...] = ()
    order: str = ""
    fold_chosen: bool | None = None
    details: str = ""
    merged: bool = False
    filters: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, Anchor] = field(default_factory=dict)
    notes: Mapping[Anchor, str] = field(default_factory=dict)
    rejected: tuple[str, ...] = ()
    typed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class SessionStore:
    """State file of one pair of logs.

    Nothing here stops a session: a file that cannot be read or written is reported in `problem` (one sentence, None
    without trouble). An invalid file is kept under another name.
    """

    def __init__(self, path_a: str, path_b: str, *, folder: Path | None = None) -> None:
        self.problem: str | None = None
        self._folders = [state / "sessions" for state in state_folders()] if folder is None else [folder]
        self._folder = self._folders[0]
        # A single log has no second path.
        self._logs = {"a": os.path.abspath(path_a), "b": os.path.abspath(path_b) if path_b else ""}
        text = json.dumps(self._logs, sort_keys=True)
        self.path = self._folder / f"{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:24]}.json"
        self.known = SavedSession()
        """The state last read or written."""

    def load(self) -> SavedSession:
        """Return the saved state; a `SavedSession()` without one."""
        self.known = self._read()
        return self.known

    def save(self, kept: SavedSession) -> None:
        """Save the state, merged with filters, marks and notes of another session on the same logs."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self.path.exists():
                self._prune()
            with self._locked():
                merged = _merged(self.known, kept, self._read())
                with atomic_writer(self.path, mode=0o600) as out:
                    json.dump({"version": 1, "logs": self._logs, **_as_json(merged)}, out, indent=1)
        except OSError as error:
            self.problem = f"session not saved: {error.strerror or error} ({self._folder})"
        else:
            self.problem = None
            self.known = kept

    def _read(self) -> SavedSession:
        paths = [folder / self.path.name for folder in self._folders]
        path = next((path for path in paths if os.path.exists(path)), self.path)
        try:
            return _from_json(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return SavedSession()
        except OSError as error:
            self.problem = f"last session not readable: {error.strerror or error} ({path})"
        except INVALID:
            aside = path.with_suffix(".damaged")
            with suppress(OSError):
                path.replace(aside)
            self.problem = f"invalid file of the last session, kept as {aside}"
        return SavedSession()

    def _prune(self) -> None:
        """Delete the oldest sessions beyond the limit, except those with marks or notes."""
        with suppress(OSError):
            kept = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in kept[_MAX_SESSIONS - 1 :]:
                if not _holds_work(path):
                    path.unlink()
                    path.with_suffix(".lock").unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file against other sessions; a no-op on a file system without locks."""
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            wait_for_lock(descriptor, self.path, PATIENCE)
            yield
        finally:
            os.close(descriptor)


def _holds_work(path: Path) -> bool:
    """True when a stored session has work of the user; also for an invalid or unreadable file."""
    try:
        kept = _from_json(json.loads(path.read_text(encoding="utf-8")))
    except (*INVALID, OSError):
        return True
    return bool(kept.notes or kept.marks or kept.filters or kept.rejected)


def _merged(before: SavedSession, mine: SavedSession, theirs: SavedSession) -> SavedSession:
    """Merge into `mine` the changes of the collections from `before` to `theirs`."""
    return replace(
        mine,
        filters=_merged_map(before.filters, mine.filters, theirs.filters),
        marks=_merged_map(before.marks, mine.marks, theirs.marks),
        notes=_merged_map(before.notes, mine.notes, theirs.notes),
        rejected=tuple(sorted(_merged_map(*(dict.fromkeys(kept.rejected, 1) for kept in (before, mine, theirs))))),
        typed=joined(theirs.typed, mine.typed),
    )


def _merged_map(before: Mapping[K, V], mine: Mapping[K, V], theirs: Mapping[K, V]) -> dict[K, V]:
    """Apply the changes from `before` to `mine` to `theirs`; an entry that I removed stays if they changed it."""
    out = {key: value for key, value in theirs.items() if key in mine or before.get(key) != value}
    out.update({key: value for key, value in mine.items() if key not in out or before.get(key) != value})
    return out


def _as_json(kept: SavedSession) -> dict[str, Any]:
    plain = {f.name: getattr(kept, f.name) for f in fields(kept)}
    # A list of pairs, because the keys of an object are text.
    return {**plain, "notes": [{"row": anchor, "text": text} for anchor, text in kept.notes.items()]}


def _from_json(raw: Any) -> SavedSession:
    """Parse a saved state; raise one of `INVALID` for an invalid one."""
    if raw["version"] != 1:
        raise ValueError("another version")
    return SavedSession(
        cursor=_anchor(raw["cursor"]),
        query=_text(raw["query"]),
        hidden=_texts(raw["hidden"]),
        order=_text(raw["order"]),
        # `folded`, of sessions from before the list opened folded, was chosen by nobody
        fold_chosen=None if (chosen := raw.get("fold_chosen")) is None else bool(chosen),
        details=_text(raw.get("details", "")),
        merged=bool(raw.get("merged", False)),
        filters={_text(name): _text(query) for name, query in raw["filters"].items()},
        marks={_text(name): _anchor(row) for name, row in raw["marks"].items()},
        notes={_anchor(note["row"]): _text(note["text"]) for note in raw["notes"]},
        rejected=_texts(raw.get("rejected", [])),
        typed={_text(kind): _texts(lines) for kind, lines in raw.get("typed", {}).items()},
    )


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError("expected text")
    raw.encode("utf-8", "surrogateescape")  # JSON has half characters, files and terminals have not
    return raw


def _texts(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise TypeError("expected a list of texts")
    return tuple(map(_text, raw))


def _anchor(raw: Any) -> Anchor:
    a, b = raw
    return _named(a), _named(b)


def _named(raw: Any) -> Record | None:
    if raw is None:
        return None
    key, nth = raw
    if type(nth) is not int or not 0 <= nth < 1 << 31:
        raise ValueError("not the number of a record")
    return _text(key), nth
