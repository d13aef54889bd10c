"""What is kept of a sitting over one pair of logs, so that the next one goes on where it ended.

A file per pair of logs in the state folder, as JSON: where the cursor was, what was filtered, sorted and folded, the
filters that were given a name, marks, and notes on rows. Rows are named by the keys of their records, not by number:
a log that has grown, or rules that pair otherwise, leave a note where it was written.

The rules are not here: they are a file of the user's, and what is unsaved of them is in the journal.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from matchers.atomic_write import atomic_writer
from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog
from numtui.folders import state_folders
from numtui.session.input_history import joined

__all__ = [
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
"""A record of a log as it can be found again: its key, and the how-manieth with that key it is (from 0)."""

Anchor = tuple["Record | None", "Record | None"]
"""The records of a and of b that a row shows; None where it has none of that side."""

_MAX_SESSIONS = 200
"""Sittings that are kept, of so many pairs of logs; older ones go, unless somebody wrote something down in them."""

NOWHERE: Anchor = (None, None)

K = TypeVar("K")
V = TypeVar("V")


def anchor_of(c: Comparison, spot: tuple[int, int]) -> Anchor:
    """How to find the row again that shows these records (-1: none). Milliseconds in a log of a million records."""
    return _record(c.a, spot[0]), _record(c.b, spot[1])


def record_pair_of_anchor(c: Comparison, anchor: Anchor) -> tuple[int, int]:
    """These records as they are numbered now; -1 for one that its log does not have."""
    a, b = (
        -1 if record is None else log.keys.find(record[0].encode("utf-8", "surrogateescape"), record[1])
        for record, log in zip(anchor, (c.a, c.b), strict=True)
    )
    return a, b


def row_of_anchor(c: Comparison, anchor: Anchor) -> int:
    """The row that shows the record of a now, else the one that shows that of b; -1 when neither log has it."""
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
    """What the next sitting starts from.

    Attributes:
        cursor: the row one was on.
        query: the filter query as typed; `hidden`: names of the status groups that were switched off.
        order: name of the order of the list; folded: whether equal stretches were folded.
        details: name of the size of the inspector.
        filters: queries by the name they were saved under.
        marks: rows by the name of their mark.
        notes: text by row.
        rejected: suggested rules that are not wanted, as text.
        typed: what was typed as an answer, by the kind of the question, the last at the end.
    """

    cursor: Anchor = NOWHERE
    query: str = ""
    hidden: tuple[str, ...] = ()
    order: str = ""
    folded: bool = False
    details: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, Anchor] = field(default_factory=dict)
    notes: Mapping[Anchor, str] = field(default_factory=dict)
    rejected: tuple[str, ...] = ()
    typed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class SessionStore:
    """The file of one pair of logs.

    Nothing here stops a session: what cannot be read or written is told in `problem` (one sentence, None while all is
    well). A file that cannot be understood is left as it is, under another name.
    """

    def __init__(self, path_a: str, path_b: str, *, folder: Path | None = None) -> None:
        self.problem: str | None = None
        self._folders = [state / "sessions" for state in state_folders()] if folder is None else [folder]
        self._folder = self._folders[0]
        # One log by itself has no other path.
        self._logs = {"a": os.path.abspath(path_a), "b": os.path.abspath(path_b) if path_b else ""}
        text = json.dumps(self._logs, sort_keys=True)
        self.path = self._folder / f"{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:24]}.json"
        self.known = SavedSession()
        """What was read, or written, last."""

    def load(self) -> SavedSession:
        """What was kept; a `SavedSession()` where nothing was."""
        self.known = self._read()
        return self.known

    def save(self, sitting: SavedSession) -> None:
        """Keep this. What another sitting over the same logs named, marked or noted meanwhile is kept too."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self.path.exists():
                self._prune()
            with self._locked():
                merged = _merged(self.known, sitting, self._read())
                with atomic_writer(self.path, mode=0o600) as out:
                    json.dump({"version": 1, "logs": self._logs, **_as_json(merged)}, out, indent=1)
        except OSError as error:
            self.problem = f"the session is not kept: {error.strerror or error} ({self._folder})"
        else:
            self.problem = None
            self.known = sitting

    def _read(self) -> SavedSession:
        paths = [folder / self.path.name for folder in self._folders]
        path = next((path for path in paths if os.path.exists(path)), self.path)
        try:
            return _from_json(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return SavedSession()
        except OSError as error:
            self.problem = f"the last session cannot be read: {error.strerror or error} ({path})"
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            aside = path.with_suffix(".damaged")
            with suppress(OSError):
                path.replace(aside)
            self.problem = f"the last session cannot be understood; its file is kept as {aside}"
        return SavedSession()

    def _prune(self) -> None:
        """Forget the oldest sittings, so that the folder does not grow for ever; those that hold work stay."""
        with suppress(OSError):
            kept = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in kept[_MAX_SESSIONS - 1 :]:
                if not _holds_work(path):
                    path.unlink()
                    path.with_suffix(".lock").unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two sittings do not write at once; on a file system without locks they may."""
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _holds_work(path: Path) -> bool:
    """Whether somebody wrote down something in this sitting; taken to be so where the file cannot be understood."""
    try:
        sitting = _from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return True
    return bool(sitting.notes or sitting.marks or sitting.filters or sitting.rejected)


def _merged(before: SavedSession, mine: SavedSession, theirs: SavedSession) -> SavedSession:
    """`mine`, with what changed between `before` and `theirs` in the collections."""
    return replace(
        mine,
        filters=_merged_map(before.filters, mine.filters, theirs.filters),
        marks=_merged_map(before.marks, mine.marks, theirs.marks),
        notes=_merged_map(before.notes, mine.notes, theirs.notes),
        typed=joined(theirs.typed, mine.typed),
    )


def _merged_map(before: Mapping[K, V], mine: Mapping[K, V], theirs: Mapping[K, V]) -> dict[K, V]:
    """What is on disk, with my own changes made to it; what I removed stays where it was changed meanwhile."""
    out = {key: value for key, value in theirs.items() if key in mine or before.get(key) != value}
    out.update({key: value for key, value in mine.items() if key not in out or before.get(key) != value})
    return out


def _as_json(sitting: SavedSession) -> dict[str, Any]:
    plain = {f.name: getattr(sitting, f.name) for f in fields(sitting)}
    # A list of pairs, because the keys of an object are text.
    return {**plain, "notes": [{"row": anchor, "text": text} for anchor, text in sitting.notes.items()]}


def _from_json(raw: Any) -> SavedSession:
    """Raises ValueError, TypeError, KeyError or AttributeError for what was not written by `save`."""
    if raw["version"] != 1:
        raise ValueError("another version's")
    return SavedSession(
        cursor=_anchor(raw["cursor"]),
        query=_text(raw["query"]),
        hidden=tuple(_text(name) for name in raw["hidden"]),
        order=_text(raw["order"]),
        folded=bool(raw["folded"]),
        details=_text(raw.get("details", "")),
        filters={_text(name): _text(query) for name, query in raw["filters"].items()},
        marks={_text(name): _anchor(row) for name, row in raw["marks"].items()},
        notes={_anchor(note["row"]): _text(note["text"]) for note in raw["notes"]},
        rejected=tuple(_text(rule) for rule in raw.get("rejected", ())),
        typed={_text(kind): tuple(map(_text, lines)) for kind, lines in raw.get("typed", {}).items()},
    )


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError("text was expected")
    return raw


def _anchor(raw: Any) -> Anchor:
    a, b = raw
    return _named(a), _named(b)


def _named(raw: Any) -> Record | None:
    if raw is None:
        return None
    key, nth = raw
    return _text(key), int(nth)
