"""Read the records of a log line by line: docs/log-format.md as a program.

The compiled reader (`reader.c`) does the same faster, and is tested against this one. This one is used where there is
neither a compiled reader nor a compiler.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from capture import log_format
from matchers.logs.columns import KeyColumn, Ragged, Texts
from matchers.logs.op_log import COUNTS, NO_DIGEST, STATISTICS, Phase
from matchers.logs.records import COLUMNS, LISTS, MAX_PROBLEMS, TABLES, TEXTS, Contents, Records, Start

__all__ = ["PlainReader", "digest", "number"]

_PHASES = {phase.label.encode(): phase for phase in Phase if phase != Phase.OTHER}
_FIELDS = frozenset(name.encode() for name in log_format.FIELDS)

_COUNTED = re.compile(rb"(\d{1,7})_(.*)", re.DOTALL)
_FURTHER_OUTPUT = re.compile(rb"Output \d{1,9}")
_COUNTS = re.compile(rb"numel=(\d{1,18}) nan=(\d{1,18}) inf=(\d{1,18}) zero=(\d{1,18})")
_HEXADECIMAL = re.compile(rb"[0-9a-fA-F]{1,16}")
_NO_DIGEST = int(NO_DIGEST)
_LATER = 40
"""Bytes in which the colon of an unknown field stands."""
_OUTSIDE = 200

# Compact logs
_OUT = (b"L2 norm", b"Min", b"Max", b"Mean", b"Output hash", b"Digest", b"Sketch")
"""Fields whose values `Out` lists; the last one may be missing."""
_PLACE = re.compile(rb"@(\d{1,15})(?:\.(\d{1,9}))?")
_TENSOR, _SOURCE, _OUTPUT, _CALL = "tensor", "source", "output", "call"
"""Groups of fields that a record takes from another one."""


def number(text: bytes) -> float | None:
    """Read a number; None: it is none. `nan` and `inf` are numbers."""
    try:
        return None if b"_" in text or len(text) > 400 else float(text)
    except ValueError:
        return None


def digest(text: bytes) -> int | None:
    """Read a digest, `NO_DIGEST` for the dash of one that was not taken; None: it is none."""
    if text == log_format.UNKNOWN_DIGEST.encode():
        return _NO_DIGEST
    return int(text, 16) if _HEXADECIMAL.fullmatch(text) else None


_VALUES: Final[Mapping[bytes, tuple[str, Callable[[bytes], float | None], float, str]]] = {
    b"Output hash": ("outputs", number, math.nan, "a number"),
    b"Input hashes": ("inputs", number, math.nan, "a number"),
    b"Digest": ("digests", digest, _NO_DIGEST, "hexadecimal"),
    b"Input digests": ("input_digests", digest, _NO_DIGEST, "hexadecimal"),
}
"""Fields with lists of values: the list, how a value is read, what stands for one that cannot be, what it should be."""
_OF_COLUMNS = frozenset({b"Shape", b"Location", b"Phase", b"Recompute", b"Micro-batch", b"Counts"})


def _whole(text: bytes, most: int) -> int | None:
    """Read up to `most` digits; None: it is something else."""
    return int(text) if text.isdigit() and len(text) <= most else None


def _parts(text: bytes, separator: bytes) -> list[bytes]:
    """The parts of a list that may be empty; a space before a part is not part of it."""
    return [part.removeprefix(b" ") for part in text.split(separator)] if text not in (b"", b" ") else []


def _split(key: bytes) -> tuple[bytes, bytes, int]:
    """Module, operation and N of a key `module/op_N_name`; N is -1 where there is none."""
    module, mark, rest = key.rpartition(b"/op_")
    counted = _COUNTED.fullmatch(rest) if mark else None
    if counted:
        return module, counted[2], int(counted[1])
    module, _, op = key.rpartition(b"/")
    return module, op, -1


class PlainReader:
    """The records of one log. Columns have a value for each record from its beginning on."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._line = start.lines
        self._open = self._blank = self._blank_before_last = False
        self._problems: list[tuple[int, str]] = []
        self._problem_count = 0
        self._outside: list[tuple[int, bytes]] = []

        self._keys: list[bytes] = []
        self._columns = {name: _array_of(kind) for name, kind in COLUMNS.items()}
        self._tables: dict[str, dict[bytes, int]] = {name: {} for name in TABLES}
        self._stats = [array("d") for _ in STATISTICS]
        self._counts: dict[int, tuple[int, ...]] = {}
        self._lists: dict[str, tuple[array[int], array[Any]]] = {
            name: (array("q"), _array_of(kind)) for name, kind in LISTS.items()
        }
        """Of each list where those of the rows start, and the values."""
        self._texts: dict[str, dict[int, bytes]] = {name: {} for name in TEXTS}
        self._row_of_key: dict[bytes, int] = {}
        self._last_seq = -1

        # of compact logs
        self._row_of_seq: dict[int, int] = {}
        self._refers: set[tuple[int, str]] = set()
        """Rows, and groups of fields that they take from others."""
        self._input_refers: set[int] = set()
        """Places in the list of inputs whose values are from other records."""

        # of the record that is being read
        self._row = -1
        self._key_line = 0
        self._seen: set[bytes] = set()
        self._seq: int | None = None
        self._digest = b""
        self._references: dict[bytes, tuple[bytes, int]] = {}

    # ------------------------------------------------------------------ lines

    def add(self, piece: bytes, last: bool) -> bytes:
        """As in `RecordReader`."""
        lines = piece.split(b"\n")
        self._open = lines[-1] != b""
        if not self._open:
            lines.pop()
        digests = []
        for line in lines[:-1]:
            digests += self._read(line.removesuffix(b"\r"), cut=False, tail=False)
        for line in lines[-1:]:
            digests += self._read(line.removesuffix(b"\r"), cut=self._open, tail=self._open and last)
        digests += self._end_record()
        return b"".join(digests)

    def _read(self, line: bytes, *, cut: bool, tail: bool) -> list[bytes]:
        """Read a line; returns the digests of the record that ends there.

        Args:
            cut: the line has no end.
            tail: nor has the log: the last value of the line may be half of one.
        """
        self._line += 1
        ended: list[bytes] = []
        if line.startswith(b"["):
            self._blank_before_last = self._blank
            ended = self._end_record()
            self._begin_record(line)
        elif line:
            name, colon, value = line[2:].partition(b": ")
            known = name in _FIELDS or _FURTHER_OUTPUT.fullmatch(name)
            if not (colon and known and line.startswith(b"  ")):
                self._other_line(line)
            elif name not in self._seen:  # of repeated fields the first counts
                self._seen.add(name)
                self._field(name, value, cut=cut, tail=tail)
        self._blank = not line
        return ended

    def _other_line(self, line: bytes) -> None:
        if not line.strip() or (line[:2] == b"  " and line[2:3] != b" " and b": " in line[2:_LATER]):
            return  # a field of a later version
        if line.startswith(log_format.FOOTER.encode()):
            self._outside.append((self._line, line[:_OUTSIDE]))
        elif not line.startswith((b"Digest of all records", b"====")):
            self._problem("not a field of a record")

    def _problem(self, message: str, line: int | None = None) -> None:
        self._problem_count += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append((self._line if line is None else line, message))

    # ------------------------------------------------------------------ records

    def _begin_record(self, line: bytes) -> None:
        key = line[1:].removesuffix(b"]")
        if not line.endswith(b"]"):
            self._problem("the record's key has no closing ']'")
        self._row += 1
        self._key_line = self._line
        self._keys.append(key)
        module, op, counter = _split(key)
        first = {
            "line": min(self._line, np.iinfo(np.int32).max),
            "module": self._interned("modules", module),
            "op": self._interned("ops", op),
            "counter": counter,
            "shape": -1,
            "location": -1,
            "micro_batch": -1,
        }
        for name, column in self._columns.items():
            column.append(first.get(name, 0))
        for statistic in self._stats:
            statistic.append(math.nan)
        for start, values in self._lists.values():
            start.append(len(values))
        self._seen, self._seq, self._digest, self._references = set(), None, b"", {}

    def _end_record(self) -> list[bytes]:
        if not self._key_line:
            return []
        self._key_line, key_line = 0, self._key_line
        if self._start.compact:
            self._resolve(key_line)
            if self._seq is not None:  # of two records of one number the first counts
                self._row_of_seq.setdefault(self._seq, self._row)
        # from here on, this is the last record of its key
        self._row_of_key[self._keys[-1]] = self._row
        return [b"\n" if self._row else b"", self._digest]

    def _interned(self, table: str, text: bytes) -> int:
        known = self._tables[table]
        return known.setdefault(text, len(known))

    def _producer(self, key: bytes) -> int:
        """The last record of that key before this one."""
        return self._row_of_key.get(key, -2)

    # ------------------------------------------------------------------ fields

    def _field(self, name: bytes, value: bytes, *, cut: bool, tail: bool) -> None:
        label = name.decode()
        if label in STATISTICS:
            found = number(value)
            if found is None or (tail and self._may_be_cut(value)):
                self._problem(f"{label} is not a number")
            else:
                kind = STATISTICS.index(label)
                self._stats[kind][-1] = found
                self._columns["present"][-1] |= 1 << kind
        elif name in _VALUES:
            if name == b"Digest":
                self._digest = value
            self._add_values(name, value, tail=tail)
        elif name == b"Input producers":
            keys = [part.removeprefix(b" ") for part in value.split(b";")]
            self._lists["producers"][1].extend(self._producer(key) if key else -1 for key in keys)
        elif name in _OF_COLUMNS:
            if wrong := self._column(name, value):
                self._problem(wrong)
        elif name == b"Seq":
            self._follow(_whole(value, 15))
        elif name in (b"Like", b"Out", b"From", b"Call"):
            if not cut:  # waits for the end of the record; cut off, it says nothing
                self._references[name] = value, self._line
        elif name != b"Named" or (self._start.compact and not cut):
            self._texts.setdefault(label, {})[self._row] = value

    def _column(self, name: bytes, value: bytes) -> str:
        """Read a field that has a column; return what is wrong with it, or nothing."""
        columns = self._columns
        if name == b"Shape":
            if log_format.parse_shape(value.decode("utf-8", "replace")) is None:
                return "Shape is not of the form 'torch.Size([2, 3]), Dtype: torch.float32'"
            columns["shape"][-1] = self._interned("shapes", value)
        elif name == b"Location":
            columns["location"][-1] = self._interned("locations", value)
        elif name == b"Phase":
            columns["phase"][-1] = phase = _PHASES.get(value.strip(), Phase.OTHER)
            unknown = phase == Phase.OTHER and value.strip() != Phase.OTHER.label.encode()
            return "unknown phase" if unknown else ""
        elif name == b"Recompute":
            columns["recompute"][-1] = value.strip() == b"true"
        elif name == b"Micro-batch":
            batch = _whole(value, 9)
            columns["micro_batch"][-1] = -1 if batch is None else batch
            return "Micro-batch is not a number" if batch is None else ""
        elif counts := _COUNTS.fullmatch(value):
            self._counts[self._row] = tuple(map(int, counts.groups()))
        else:
            return "Counts is not of the form 'numel=4 nan=0 inf=0 zero=1'"
        return ""

    def _may_be_cut(self, value: bytes) -> bool:
        """True if the number that ends an open line may have been cut: all of ours, short ones of torchtitan."""
        return self._start.ours or len(value.rpartition(b" ")[2].lstrip(b"-")) < 12

    def _add_values(self, name: bytes, value: bytes, *, tail: bool) -> None:
        kept, read, unknown, kind = _VALUES[name]
        values = [read(part) for part in _parts(value, b",")]
        if values and tail and (read is digest or self._may_be_cut(value)):  # half a digest would read as another one
            values[-1] = None
        for found in values:
            if found is None:  # keeps its place, so that the others keep theirs
                self._problem(f"{name.decode()} is not {kind}")
            self._lists[kept][1].append(unknown if found is None else found)

    def _follow(self, seq: int | None) -> None:
        """Records are numbered from 0 without gaps."""
        before = self._last_seq
        if seq is None:
            self._problem("Seq is not a number")
            return
        if seq <= before:
            self._problem(f"record {seq} follows record {before}")
        elif seq == before + 2:
            self._problem(f"record {before + 1} is missing")
        elif seq > before + 2:
            self._problem(f"records {before + 1}–{seq - 1} are missing")
        self._last_seq = self._seq = seq

    # ------------------------------------------------------------------ references of compact logs

    def _resolve(self, key_line: int) -> None:
        for name, resolve in (
            (b"Like", self._like),
            (b"Out", self._out),
            (b"From", self._from),
            (b"Call", self._call),
        ):
            if name in self._references:
                value, line = self._references[name]
                resolve(value, line, key_line)

    def _row_before(self, seq: int, key_line: int) -> int:
        row = self._row_of_seq.get(seq, -1)
        if row < 0:
            self._problem(f"refers to record {seq}, which is not before it", key_line)
        return row

    def _no_values(self, key_line: int) -> None:
        self._problem("refers to values that the other record does not have itself", key_line)

    def _shared_row(self, seq: int, group: str, key_line: int) -> int:
        """The row whose group of fields this record shares; -1: none has it."""
        row = self._row_before(seq, key_line)
        self._refers.add((self._row, group))
        if (row, group) in self._refers:
            self._no_values(key_line)
            return -1
        return row

    def _share_text(self, name: str, source: int) -> None:
        if source in self._texts[name]:
            self._texts[name][self._row] = self._texts[name][source]

    def _like(self, value: bytes, line: int, key_line: int) -> None:
        parts = _parts(value, b" ")
        numbers = [_whole(part, 15) for part in parts]
        if len(parts) != 2 or any(n is None and part != b"-" for n, part in zip(numbers, parts, strict=True)):
            self._problem("Like is not of the form '12 64', '12 -' or '- 64'", line)
            return
        tensor, source = numbers
        if tensor is not None and (row := self._shared_row(tensor, _TENSOR, key_line)) >= 0:
            self._columns["shape"][-1] = self._columns["shape"][row]
            self._counts[self._row] = self._counts.get(row, (-1,) * len(COUNTS))
            self._share_text("Placement", row)
        if source is not None and (row := self._shared_row(source, _SOURCE, key_line)) >= 0:
            for name in ("location", "phase", "recompute", "micro_batch"):
                self._columns[name][-1] = self._columns[name][row]
            self._share_text("Stack", row)

    def _out(self, value: bytes, line: int, key_line: int) -> None:
        parts = _parts(value, b" ")
        seq = _whole(parts[0][1:], 15) if len(parts) == 2 and parts[0].startswith(b"@") else None
        if seq is None and len(parts) not in (len(_OUT) - 1, len(_OUT)):
            self._problem("Out is not of the form '@12 DIGEST', nor six or seven values", line)
            return
        now, self._line = self._line, line
        for name, part in [(b"Digest", parts[1])] if seq is not None else zip(_OUT, parts, strict=False):
            if name not in self._seen:  # not written in full
                self._field(name, part, cut=False, tail=False)
        self._line = now
        if seq is None or (row := self._shared_row(seq, _OUTPUT, key_line)) < 0:
            return
        start, outputs = self._lists["outputs"]
        if start[row + 1] - start[row] != 1:
            self._no_values(key_line)
            return
        for statistic in self._stats:
            statistic[-1] = statistic[row]
        self._columns["present"][-1] = self._columns["present"][row]
        outputs[start[-1] :] = outputs[start[row] : start[row] + 1]
        self._share_text("Sketch", row)

    def _from(self, value: bytes, line: int, key_line: int) -> None:
        if self._seen & {b"Input producers", b"Input hashes", b"Input digests"}:
            self._problem("From stands beside fields that it is in place of", line)
            return
        for part in _parts(value, b";"):
            producer, row, good = self._entry_producer(part.partition(b" ")[0])
            content, found, good_content = self._entry_content(part, producer)
            if not (good and good_content):
                self._problem("From names an input in an unknown form", line)
            if producer is not None:
                row = self._row_before(producer, key_line)
                row = -2 if row < 0 else row
            if content is not None:
                self._input_refers.add(len(self._lists["inputs"][1]))
                found = self._content(*content, key_line)
            for name, one in zip(("producers", "inputs", "input_digests"), (row, *found), strict=True):
                self._lists[name][1].append(one)

    def _call(self, value: bytes, line: int, key_line: int) -> None:
        seq = _whole(value, 15)
        if seq is None:
            self._problem("Call is not the number of a record", line)
        elif (row := self._shared_row(seq, _CALL, key_line)) >= 0:
            for name in ("Overload", "Arguments", "Inputs"):
                self._share_text(name, row)

    def _entry_producer(self, text: bytes) -> tuple[int | None, int, bool]:
        """(number of the producer, its row where that is known already, whether the form is known)."""
        if (producer := _whole(text, 15)) is not None:
            return producer, -1, True
        if text.startswith(b"[") and text.endswith(b"]"):
            return None, self._producer(text[1:-1]), True
        return (None, -1, True) if text == b"-" else (None, -2, False)

    @staticmethod
    def _entry_content(
        part: bytes, producer: int | None
    ) -> tuple[tuple[int, int | None] | None, tuple[float, int], bool]:
        """(record and slot that have hash and digest, these where they are written, whether the form is known)."""
        unknown = (math.nan, _NO_DIGEST)
        words = part.split(b" ")[1:]
        if not words:  # as its producer made it
            return None if producer is None else (producer, None), unknown, producer is not None
        if len(words) == 1:
            place = _PLACE.fullmatch(words[0])
            if place is None:
                return None, unknown, words[0] == b"-"
            return (int(place[1]), None if place[2] is None else int(place[2])), unknown, True
        if len(words) > 2:
            return None, unknown, False
        value, bits = number(words[0]), digest(words[1])
        written = math.nan if value is None else value, _NO_DIGEST if bits is None else bits
        return None, written, value is not None and bits is not None

    def _content(self, seq: int, slot: int | None, key_line: int) -> tuple[float, int]:
        """Hash and digest of the first output of another record, or of its input in a slot."""
        row = self._row_before(seq, key_line)
        if row < 0:
            return math.nan, _NO_DIGEST
        values, digests = ("outputs", "digests") if slot is None else ("inputs", "input_digests")
        known, bits = self._list(values, row), self._list(digests, row)
        if slot is None:
            if not known:
                self._no_values(key_line)
            return known[0] if known else math.nan, bits[0] if bits else _NO_DIGEST
        if slot >= min(len(known), len(bits)) or self._lists[values][0][row] + slot in self._input_refers:
            self._no_values(key_line)
            return math.nan, _NO_DIGEST
        return known[slot], bits[slot]

    def _list(self, name: str, row: int) -> array[Any]:
        """The values of a row before this one."""
        start, values = self._lists[name]
        return values[start[row] : start[row + 1]]

    # ------------------------------------------------------------------ the whole

    def contents(self) -> Contents:
        """As in `RecordReader`."""
        names = sum(map(len, self._tables.values()))
        values = sum(len(values) for _, values in self._lists.values())
        return Contents(len(self._keys), names, values, len(self._texts) - len(TEXTS))

    def finish(self) -> Records:
        """As in `RecordReader`."""
        rows = len(self._keys)
        columns = {name: np.array(column, COLUMNS[name]) for name, column in self._columns.items()}
        counts = np.full((len(COUNTS), rows), -1)
        for row, numbers in self._counts.items():
            counts[:, row] = numbers
        for start, values in self._lists.values():
            start.append(len(values))
        return Records(
            keys=KeyColumn(b"".join(key + b"\n" for key in self._keys)),
            columns={**columns, "recompute": columns["recompute"].astype(bool)},
            tables={name: list(table) for name, table in self._tables.items()},
            stats=np.array(self._stats),
            counts=counts,
            lists={
                name: Ragged(np.array(start, np.int64), np.array(values, LISTS[name]))
                for name, (start, values) in self._lists.items()
            },
            texts={name: Texts.of(texts) for name, texts in self._texts.items() if texts},
            problems=self._problems,
            problem_count=self._problem_count,
            outside=self._outside,
            lines=self._line,
            open=self._open,
            ends_blank=self._blank,
            blank_before_last=self._blank_before_last,
        )


def _array_of(kind: type[np.generic]) -> array[Any]:
    return array(np.dtype(kind).char)
