"""Classify the lines of a piece of a log (keys, fields, others) on whole arrays.

A line is recognised by its first seven bytes, and then by the rest of the field's name. Lines stay positions in the
buffer; values are sliced out on request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from capture import log_format
from matchers.arrays import Bool, Hash, Int32, Int64
from matchers.logs.byte_words import PADDING, Words, WordSet

__all__ = ["FURTHER_OUTPUT", "RecordLines"]

_FURTHER_OUTPUT = re.compile(rb"  Output \d{1,9}: ")
FURTHER_OUTPUT = "Output k"
"""Common name for the fields `Output 1`, `Output 2`, …"""
_OUTPUT = np.uint64(int.from_bytes(b"  Outpu", "little"))
_SEVEN = np.uint64(0x00FFFFFFFFFFFFFF)
"""Mask of the first seven bytes, by which lines are first classified; no field name is shorter, spaces and colon
included.
"""


def _words_of(prefix: bytes) -> list[tuple[int, int]]:
    """(offset, word) of the text after the first seven bytes: eight bytes each, the last may overlap."""
    offsets = [*range(7, len(prefix) - 8, 8), len(prefix) - 8] if len(prefix) > 7 else []
    return [(at, int.from_bytes(prefix[at : at + 8], "little")) for at in offsets]


_FIELDS = [(name, log_format.field_prefix(name)) for name in log_format.FIELDS]
_NAMES = (*log_format.FIELDS, FURTHER_OUTPUT)
_BEGINNINGS = list(dict.fromkeys(prefix[:7] for _, prefix in _FIELDS))
_BEGINNING = WordSet([int.from_bytes(beginning, "little") for beginning in _BEGINNINGS])
_BEGIN_SO = [[(name, _words_of(p)) for name, p in _FIELDS if p[:7] == beginning] for beginning in _BEGINNINGS]
"""For each beginning the fields that have it: their names, and the words that must follow."""
_NONE = np.zeros(0, np.int64)


class RecordLines:
    """The lines of one piece.

    Attributes:
        buffer: the piece and its padding; all positions below refer to it.
        start, end: int64[lines], the bounds of each line (without its line break, LF or CRLF).
        row: int64[lines], the record of the piece that the line belongs to, -1 before the first.
        keys: the lines that start a record.
        odd: non-blank lines that are neither keys nor known fields.
        rows: number of records. first_line: number of the first line in its file, from 1.
        count: number of lines of the piece. What `insert` adds follows them in `start`, `end` and `row`.
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
        self._marks: dict[int, Int64] = {}

        end = self.marks(0x0A)
        if self.open:
            end = np.append(end, size)
        self.start = np.concatenate(([0], end[:-1] + 1))
        self.count = len(self.start)
        self._within = _NONE
        self.end = end - ((self.text[end - 1] == 0x0D) & (end > self.start)) if b"\r" in buffer else end

        first = self.words.at(self.start)
        is_key = (first & np.uint64(0xFF)) == np.uint64(0x5B)
        self.row = np.cumsum(is_key) - 1
        self.keys = np.flatnonzero(is_key)
        self.rows = len(self.keys)

        self._lines, is_odd = self._by_field(first)
        self.odd = np.flatnonzero(is_odd & ~is_key & (self.end > self.start))

    def _by_field(self, first: Hash) -> tuple[dict[str, Int64], Bool]:
        """(the lines of each field, mask of lines of no field); `first` holds the first eight bytes of every line."""
        begins = _BEGINNING.find(first & _SEVEN)
        is_odd = begins < 0
        order = np.argsort(begins, kind="stable")
        bounds = np.searchsorted(begins[order], np.arange(len(_BEGINNINGS) + 1)).tolist()
        found: dict[str, Int64] = dict.fromkeys(_NAMES, _NONE)
        for fields, low, high in zip(_BEGIN_SO, bounds, bounds[1:], strict=False):
            lines = order[low:high]
            for name, words in fields if low < high else ():
                so = np.ones(len(lines), bool)
                for offset, word in words:
                    so &= self.words.at(self.start[lines] + offset) == word
                found[name], lines = (lines, _NONE) if so.all() else (lines[so], lines[~so])
            is_odd[lines] = True
        further = np.flatnonzero(is_odd & ((first & _SEVEN) == _OUTPUT))
        further = further[self._further_output(further)]
        is_odd[further] = False
        found[FURTHER_OUTPUT] = further
        if self.row[0] < 0:  # lines before the first record belong to none
            found = {name: lines[self.row[lines] >= 0] for name, lines in found.items()}
        return found, is_odd

    def _further_output(self, lines: Int64) -> Bool:
        """Mask of the lines of the form `Output 12: …`."""
        starts, ends = self.start[lines].tolist(), self.end[lines].tolist()
        heads = (self.buffer[s : min(e, s + 24)] for s, e in zip(starts, ends, strict=True))
        return np.array([_FURTHER_OUTPUT.match(head) is not None for head in heads], bool)

    def lines(self, name: str) -> Int64:
        """Lines of one field, one per record: the first counts if a record repeats a field."""
        lines = self._lines[name]
        if name != FURTHER_OUTPUT and len(lines) > 1:
            rows = self.row[lines]
            repeated = rows[1:] == rows[:-1]
            if repeated.any():
                lines = lines[np.concatenate(([True], ~repeated))]
        return lines

    def insert(self, values: Mapping[str, tuple[Int64, Int64, Int64]]) -> None:
        """Treat parts of lines as lines of other fields: for each field the lines (ascending), and starts and ends of
        the values.
        """
        of, start, end = (np.concatenate(parts) for parts in zip(*values.values(), strict=True))
        prefix = [len(log_format.field_prefix(name)) for name in values]
        start -= np.repeat(prefix, [len(lines) for lines, _, _ in values.values()])
        at = len(self.start)
        for name, (lines, _, _) in values.items():
            together = np.arange(at, at + len(lines))
            at += len(lines)
            if len(whole := self._lines[name]):
                order = np.argsort(np.concatenate((self.row[whole], self.row[lines])), kind="stable")
                together = np.concatenate((whole, together))[order]
            self._lines[name] = together
        self.start, self.end = np.concatenate((self.start, start)), np.concatenate((self.end, end))
        self.row, self._within = np.concatenate((self.row, self.row[of])), np.concatenate((self._within, of))

    def number(self, line: int) -> int:
        """The number of a line in its file, from 1."""
        return self.first_line + (line if line < self.count else int(self._within[line - self.count]))

    def value_start(self, lines: Int64, name: str) -> Int64:
        return np.minimum(self.start[lines] + len(log_format.field_prefix(name)), self.end[lines])

    def cut(self, start: Int64, end: Int64) -> list[bytes]:
        """The bytes between positions."""
        buffer = self.buffer
        return [buffer[s:e] for s, e in zip(start.tolist(), end.tolist(), strict=True)]

    def slices(self, lines: Int64, name: str) -> list[bytes]:
        """The values of a field."""
        return self.cut(self.value_start(lines, name), self.end[lines])

    def marks(self, byte: int) -> Int64:
        """Positions of a byte in the piece."""
        found = self._marks.get(byte)
        if found is None:
            found = self._marks[byte] = np.flatnonzero(self.text == byte)
        return found

    def tokens(self, lines: Int64, name: str, separator: int, empty: int = 0) -> tuple[Int64, Int64, Int64]:
        """Split the values of a field: (start, end, index into `lines`) of every token, spaces stripped.

        An empty token between separators keeps its place. A completely empty value has `empty` tokens, 0 or 1.
        """
        begin, end = self.value_start(lines, name), self.end[lines]
        marks = self.marks(separator)
        first = np.searchsorted(marks, begin)
        parts = np.searchsorted(marks, end) - first + 1
        owner = np.repeat(np.arange(len(lines)), parts)
        last = np.cumsum(parts) - 1
        inner = np.ones(len(owner), bool)  # tokens that a separator ends
        inner[last] = False
        within = np.arange(len(owner)) - np.repeat(last - parts + 1, parts)
        mark = marks[(first[owner] + within)[inner]]
        starts, ends = np.empty(len(owner), np.int64), np.empty(len(owner), np.int64)
        ends[inner], ends[last] = mark, end
        starts[last - parts + 1] = begin
        starts[np.flatnonzero(inner) + 1] = mark + 1
        starts = starts + ((self.text[np.minimum(starts, len(self.text) - 1)] == 0x20) & (starts < ends))
        blank = ends <= starts
        if blank.any():
            kept = ~blank | (parts[owner] > 1 - empty)
            starts, ends, owner = starts[kept], ends[kept], owner[kept]
        return starts, ends, owner

    def split_keys(self, start: Int64, end: Int64, text: bytes) -> tuple[Int64, Int64, Int32]:
        """(end of the module, start of the op, counter) of keys `module/op_N_op`; counter -1 if there is none.

        `text` holds just the keys, each followed by one byte: a tenth of the piece to search.
        """
        first = np.cumsum(end - start + 1) - (end - start + 1)
        slash = np.flatnonzero(np.frombuffer(text, np.uint8) == 0x2F)
        line = np.searchsorted(first, slash, side="right") - 1
        slash += (start - first)[line]
        # without a counter: the op follows the last slash
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
