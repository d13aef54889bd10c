"""The lines of a piece of a log, told apart on whole arrays: which are keys, which fields, which nothing of the kind.

A line is recognised by its first seven bytes and the last eight of the field's name. No line is ever turned
into a Python string here; values are positions in the buffer until somebody asks for them.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from capture import log_format
from matchers.words import PADDING, Words, WordSet

__all__ = ["FURTHER_OUTPUT", "RecordLines"]

Index = NDArray[np.int64]

_FURTHER_OUTPUT = re.compile(rb"  Output \d{1,9}: ")
FURTHER_OUTPUT = "Output k"
"""Name, here, of the fields `Output 1`, `Output 2`, …"""
_FIELDS = [*((log_format.field_prefix(name), name) for name in log_format.FIELDS), (b"  Output ", FURTHER_OUTPUT)]
"""Start of the line and name of every field; an index into this list is what a line is classified as."""
_INPUTS = ("Input hashes", "Input producers", "Input digests")
"""Fields that share their first seven bytes and are told apart by the eight bytes from the sixth on."""
_SEVEN = np.uint64(0x00FFFFFFFFFFFFFF)
_PREFIXES = {int.from_bytes(prefix[:7], "little"): i for i, (prefix, _) in reversed(list(enumerate(_FIELDS)))}
_PREFIX = WordSet(list(_PREFIXES))
_PREFIX_FIELD = np.array([*_PREFIXES.values(), -1], np.int8)
_COLON = np.array([prefix.rindex(b":") if b":" in prefix else 0 for prefix, _ in _FIELDS])
_CHECKED = np.append(_COLON > 6, False)
"""Fields whose colon is not among the first seven bytes; the last entry is for lines that are no field."""
_TAIL = np.array([int.from_bytes(prefix[-8:], "little") for prefix, _ in _FIELDS], np.uint64)
_RARE = np.array([name not in log_format.TORCHTITAN or name == "Output hash" for _, name in _FIELDS])
_RARE &= np.array([len(prefix) >= 8 for prefix, _ in _FIELDS])
_FIELD_ID = {name: i for i, (_, name) in enumerate(_FIELDS)}


class RecordLines:
    """The lines of one piece.

    Attributes:
        buffer: the piece and padding; positions below are positions in it.
        start, end: int64[lines], where each line starts and ends (without its line break, LF or CRLF).
        row: int64[lines], which record of the piece the line belongs to, -1 before the first.
        keys: the lines that start a record.
        odd: the lines that are neither keys nor known fields nor blank.
        rows: number of records. first_line: number of the first line in its file, from 1.
        open: the piece ends in the middle of a line.
    """

    def __init__(self, buffer: bytes, first_line: int) -> None:
        """`buffer` is a piece as `LogSource.pieces` yields it, padding included."""
        size = len(buffer) - PADDING
        self.buffer = buffer
        self.text = np.frombuffer(buffer, np.uint8, size)
        self.words = Words(self.buffer)
        self.first_line = first_line
        self.open = size > 0 and self.text[-1] != 0x0A
        self._marks: dict[int, Index] = {}

        end = self.marks(0x0A)
        if self.open:
            end = np.append(end, size)
        self.start = np.concatenate(([0], end[:-1] + 1))
        self.end = end - ((self.text[end - 1] == 0x0D) & (end > self.start)) if b"\r" in buffer else end

        first = self.words.at(self.start)
        is_key = (first & np.uint64(0xFF)) == np.uint64(0x5B)
        self.row = np.cumsum(is_key) - 1
        self.keys = np.flatnonzero(is_key)
        self.rows = len(self.keys)

        kind = self._kinds(first)
        self.odd = np.flatnonzero((kind < 0) & ~is_key & (self.end > self.start))
        kind[self.row < 0] = -1
        self._order = np.argsort(kind, kind="stable")
        self._bounds = np.searchsorted(kind[self._order], np.arange(len(_FIELDS) + 1))

    def _kinds(self, first: NDArray[np.uint64]) -> NDArray[np.int8]:
        """Index into `_FIELDS` of each line, -1 for lines that are no field; `first` are their first eight bytes."""
        kind = _PREFIX_FIELD.take(_PREFIX.find(first & _SEVEN))
        inputs = np.flatnonzero(kind == _FIELD_ID[_INPUTS[0]])
        middle = self.words.at(self.start[inputs] + 5)
        kind[inputs] = -1
        for name in _INPUTS:
            i = _FIELD_ID[name]
            kind[inputs[middle == int.from_bytes(_FIELDS[i][0][5:13], "little")]] = i
        # of the rest of a frequent name the place of its colon tells enough; other names are compared to their end
        known = np.flatnonzero(_CHECKED.take(kind))
        is_it = np.frombuffer(self.buffer, np.uint8)[self.start[known] + _COLON[kind[known]]] == 0x3A
        rare = np.flatnonzero(_RARE[kind[known]])
        lines = known[rare]
        is_it[rare] = self.words.at(self.start[lines] + _COLON[kind[lines]] - 6) == _TAIL[kind[lines]]
        other = known[~is_it]
        kind[other] = -1
        kind[other[self._further_output(other)]] = _FIELD_ID[FURTHER_OUTPUT]
        return kind

    def _further_output(self, lines: Index) -> NDArray[np.bool_]:
        """Which lines are of the form `Output 12: …`."""
        starts, ends = self.start[lines].tolist(), self.end[lines].tolist()
        heads = (self.buffer[s : min(e, s + 24)] for s, e in zip(starts, ends, strict=True))
        return np.array([_FURTHER_OUTPUT.match(head) is not None for head in heads], bool)

    def lines(self, name: str) -> Index:
        """Lines of one field, one per record: where a record repeats a field, the first counts."""
        i = _FIELD_ID[name]
        lines = self._order[self._bounds[i] : self._bounds[i + 1]]
        if name != FURTHER_OUTPUT and len(lines) > 1:
            rows = self.row[lines]
            repeated = rows[1:] == rows[:-1]
            if repeated.any():
                lines = lines[np.concatenate(([True], ~repeated))]
        return lines

    def value_start(self, lines: Index, name: str) -> Index:
        return np.minimum(self.start[lines] + len(log_format.field_prefix(name)), self.end[lines])

    def cut(self, start: Index, end: Index) -> list[bytes]:
        """The bytes between positions."""
        buffer = self.buffer
        return [buffer[s:e] for s, e in zip(start.tolist(), end.tolist(), strict=True)]

    def slices(self, lines: Index, name: str) -> list[bytes]:
        """The values of a field."""
        return self.cut(self.value_start(lines, name), self.end[lines])

    def marks(self, byte: int) -> Index:
        """Where a byte occurs in the piece."""
        found = self._marks.get(byte)
        if found is None:
            found = self._marks[byte] = np.flatnonzero(self.text == byte)
        return found

    def tokens(self, lines: Index, name: str, separator: int, empty: int = 0) -> tuple[Index, Index, Index]:
        """Splits the values of a field: (start, end, index into `lines`) of every part, spaces stripped.

        An empty part between separators keeps its place. A value that is empty as a whole has `empty` parts, 0 or 1.
        """
        begin, end = self.value_start(lines, name), self.end[lines]
        marks = self.marks(separator)
        first = np.searchsorted(marks, begin)
        parts = np.searchsorted(marks, end) - first + 1
        owner = np.repeat(np.arange(len(lines)), parts)
        last = np.cumsum(parts) - 1
        inner = np.ones(len(owner), bool)  # parts that a separator ends
        inner[last] = False
        within = np.arange(len(owner)) - np.repeat(last - parts + 1, parts)
        mark = marks[(first[owner] + within)[inner]]
        starts, ends = np.empty(len(owner), np.int64), np.empty(len(owner), np.int64)
        ends[inner], ends[last] = mark, end
        starts[last - parts + 1] = begin
        starts[np.flatnonzero(inner) + 1] = mark + 1
        starts = starts + ((self.text[np.minimum(starts, len(self.text) - 1)] == 0x20) & (starts < ends))
        full = (ends > starts) | (parts[owner] > 1 - empty)
        starts, ends, owner = starts[full], ends[full], owner[full]
        return starts, ends, owner

    def split_keys(self, start: Index, end: Index) -> tuple[Index, Index, NDArray[np.int32]]:
        """(end of the module, start of the op, counter) of keys `module/op_N_op`; counter -1 where there is none."""
        slash = self.marks(0x2F)
        line = np.searchsorted(start, slash, side="right") - 1
        inside = line >= 0
        slash, line = slash[inside], line[inside]
        slash, line = slash[slash < end[line]], line[slash < end[line]]
        # without a counter: the op is what follows the last slash
        module_end, op_start = start.copy(), start.copy()
        module_end[line], op_start[line] = slash, slash + 1
        counter = np.full(len(start), -1, np.int32)

        after = self.words.at(slash)
        marked = (after & np.uint64(0xFFFFFFFF)) == np.uint64(0x5F706F2F)  # "/op_"
        slash, line = slash[marked], line[marked]
        last = np.append(line[1:] != line[:-1], True) if len(line) else np.zeros(0, bool)
        slash, line = slash[last], line[last]
        # up to seven digits and "_" fit in the next word; anything longer is no counter
        digits = self.words.at(slash + 4)
        value, length, open_ = np.zeros(len(slash), np.int64), np.zeros(len(slash), np.int64), np.ones(len(slash), bool)
        for k in range(8):
            byte = ((digits >> np.uint64(8 * k)) & np.uint64(0xFF)).astype(np.int64)
            digit = open_ & (byte >= 0x30) & (byte <= 0x39)
            value[digit] = value[digit] * 10 + byte[digit] - 0x30
            length[digit] += 1
            open_ = digit
        stop = slash + 4 + length
        counted = (length > 0) & (length < 8) & (stop < end[line])
        counted &= self.text[np.minimum(stop, len(self.text) - 1)] == 0x5F
        slash, line, stop, value = slash[counted], line[counted], stop[counted], value[counted]
        module_end[line], op_start[line], counter[line] = slash, stop + 1, value
        return module_end, op_start, counter
