"""The fields that our own capture adds to torchtitan's format: counts, record numbers, digests and further texts.

`matchers.logs.parser` reads the fields that both formats have.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import numpy as np

from capture import log_format
from matchers.arrays import Int32, Int64
from matchers.logs.columns import Texts, decode
from matchers.logs.interning import InternTable
from matchers.logs.op_log import COUNTS
from matchers.logs.record_lines import FURTHER_OUTPUT, RecordLines

__all__ = ["AddedFields"]

_REPEATED = ("Placement", "Stack", "Parameter")
"""Texts that many records share."""
_SINGLE = ("Mutated", "Sketch", "Group", "Exchanged", "User hash")
_JSON = ("Mutated", "Group", "Exchanged")
_COUNTS = re.compile(rb"numel=(\d{1,18}) nan=(\d{1,18}) inf=(\d{1,18}) zero=(\d{1,18})")


class AddedFields:
    """The extension fields of one log, collected piece by piece."""

    def __init__(self, problem: Callable[[int, str], None]) -> None:
        """`problem` receives the line and a message for every field that cannot be read."""
        self._problem = problem
        self._counted = InternTable()
        self._counts: list[Int32] = []
        self._broken_counts: set[int] = set()
        self._tables = {name: InternTable() for name in _REPEATED}
        self._texts: dict[str, dict[int, bytes]] = {}
        self.packed = False
        """The log is a compact one: its JSON is packed."""
        self._last_seq = -1
        self._digests = hashlib.sha256()
        self._rows = 0

    def add(self, f: RecordLines) -> None:
        """Read one piece of the log."""
        self._add_counts(f)
        self._follow(f)
        self._add_texts(f)
        self._add_digests(f)
        self._rows += f.rows

    def texts(self) -> dict[str, Texts]:
        """The texts by field."""
        packed = {name for name in self._texts if self.packed and (name in _JSON or name.startswith("Output "))}
        return {
            name: Texts(rows, log_format.unpack_json if name in packed else None) for name, rows in self._texts.items()
        }

    def counts(self) -> Int64:
        """int64[4, n], -1 where a record has none."""
        if not self._counted.names:
            return np.broadcast_to(np.int64(-1), (len(COUNTS), self._rows))
        table = np.full((len(self._counted.names) + 1, len(COUNTS)), -1, np.int64)
        for i, raw in enumerate(self._counted.names):
            if found := _COUNTS.fullmatch(raw):
                table[i] = [int(number) for number in found.groups()]
        of_row = np.concatenate(self._counts) if self._counts else np.zeros(0, np.int32)
        return np.ascontiguousarray(table[of_row].T)

    def digest(self) -> str:
        """The digest over all record digests, as the footer of a complete log states it."""
        return self._digests.hexdigest()[:16]

    def _add_counts(self, f: RecordLines) -> None:
        lines = f.lines("Counts")
        of_row = np.full(f.rows, -1, np.int32)
        if len(lines):
            known = len(self._counted.names)
            ids = self._counted.ids(f.buffer, f.words, f.value_start(lines, "Counts"), f.end[lines])
            of_row[f.row[lines]] = ids
            for i, raw in enumerate(self._counted.names[known:], known):
                if not _COUNTS.fullmatch(raw):
                    self._broken_counts.add(i)
            if self._broken_counts:
                for line in lines[np.isin(ids, list(self._broken_counts))].tolist():
                    self._problem(f.first_line + line, "Counts is not of the form 'numel=4 nan=0 inf=0 zero=1'")
        self._counts.append(of_row)

    def _follow(self, f: RecordLines) -> None:
        """Report gaps and disorder in the record numbers."""
        lines = f.lines("Seq")
        if not len(lines):
            return
        texts = f.slices(lines, "Seq")
        numbers = np.array([int(t) if t.isdigit() and len(t) < 16 else -1 for t in texts], np.int64)
        for line in lines[numbers < 0].tolist():
            self._problem(f.first_line + line, "Seq is not a number")
        lines, numbers = lines[numbers >= 0], numbers[numbers >= 0]
        before = np.concatenate(([self._last_seq], numbers[:-1]))
        for at in np.flatnonzero(numbers != before + 1).tolist():
            self._problem(f.first_line + int(lines[at]), _break(int(before[at]), int(numbers[at])))
        if len(numbers):
            self._last_seq = int(numbers[-1])

    def _add_texts(self, f: RecordLines) -> None:
        for name in (*_REPEATED, *_SINGLE):
            lines = f.lines(name)
            if not len(lines):
                continue
            table = self._tables.get(name)
            if table is None:
                values = f.slices(lines, name)
            else:
                ids = table.ids(f.buffer, f.words, f.value_start(lines, name), f.end[lines])
                values = [table.names[i] for i in ids.tolist()]
            rows = (f.row[lines] + self._rows).tolist()
            self._texts.setdefault(name, {}).update(zip(rows, values, strict=True))
        for line in f.lines(FURTHER_OUTPUT).tolist():
            label, _, value = f.buffer[f.start[line] + 2 : f.end[line]].partition(b": ")
            self._texts.setdefault(decode(label[:20]), {})[int(f.row[line]) + self._rows] = value

    def _add_digests(self, f: RecordLines) -> None:
        if not f.rows:
            return
        lines = f.lines("Digest")
        if not len(lines):
            # most logs: no record has a digest, an empty line each
            self._digests.update(b"\n" * (f.rows if self._rows else f.rows - 1))
            return
        texts = [b""] * f.rows
        for row, text in zip(f.row[lines].tolist(), f.slices(lines, "Digest"), strict=True):
            texts[row] = text
        if self._rows:
            self._digests.update(b"\n")
        self._digests.update(b"\n".join(texts))


def _break(before: int, now: int) -> str:
    if now <= before:
        return f"record {now} follows record {before}"
    first, last = before + 1, now - 1
    return f"record {first} is missing" if first == last else f"records {first}–{last} are missing"
