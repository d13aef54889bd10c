"""Resolve the references of compact logs: docs/log-format.md, "Compact logs".

A compact log has the records of a plain one, but what a record shares with an earlier one is only a reference to that.
`References` collects them while the log is parsed, and fills the holes of the columns at the end. All of it works on
whole arrays, as the parser does. A reference that leads nowhere is a problem of its line and leaves its values unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capture.log_format import escape
from matchers.arrays import Bool, Int32, Int64
from matchers.logs.columns import GrowingColumn, Ragged, Texts
from matchers.logs.interning import InternTable, hash_text
from matchers.logs.number_parser import parse_digests, parse_numbers
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.logs.record_lines import RecordLines

__all__ = ["References"]

_VALUES = ("L2 norm", "Min", "Max", "Mean", "Output hash", "Digest", "Sketch")
"""Fields whose values an `Out` line lists; the last one may be missing."""
_REFERENCE = re.compile(rb"@(\d{1,15})(?:\.(\d{1,9}))?")
_SPACE, _DASH, _AT, _OPEN, _CLOSE, _SEMICOLON = b" -@[];"
_FIRST_OUTPUT = -1
_MAX_EXPANSION = 200
"""Greatest ratio of names to the numbers that stand for them; a number has a digit at least."""
_FEW = 1 << 16
_NOBODY = np.iinfo(np.int32).max
"""A number that no record has: there are never so many."""


class References:
    """The references of one log. A record is told by its `Seq`, its row is its place in the log."""

    def __init__(self, problem: Callable[[int, str], None]) -> None:
        """`problem` receives the line and a message for every reference that cannot be resolved."""
        self._problem = problem
        self._columns = defaultdict[str, GrowingColumn](lambda: GrowingColumn(np.int32))
        self._row, self._seq = np.zeros(0, np.int64), np.zeros(0, np.int32)
        """Rows by their numbers, which ascend."""
        self._named = InternTable()
        self.listed: dict[str, tuple[Int64, NDArray[Any]]] = {}
        """Of the piece added last: (record of the piece, value) of the inputs in `From` lines, by column."""

    # ------------------------------------------------------------------ one piece

    def add(self, f: RecordLines, rows: int) -> None:
        """Read one piece, `rows` records after the first; what `Out` lines list become lines of their fields."""
        seq = np.full(f.rows, -1, np.int32)
        lines = f.lines("Seq")
        seq[f.row[lines]] = _whole(f, f.value_start(lines, "Seq"), f.end[lines])
        self._add("seq", np.where(seq == _NOBODY, -1, seq))
        self._add_like(f, rows)
        self._add_out(f, rows)
        self._add_from(f, rows)
        lines = self._lines(f, "Named")
        self._add("named row", f.row[lines] + rows)
        self._add("named", self._named.ids(f.buffer, f.words, f.value_start(lines, "Named"), f.end[lines]))

    def _add(self, name: str, values: NDArray[Any]) -> None:
        self._columns[name].add(values)

    def _lines(self, f: RecordLines, name: str) -> Int64:
        """The lines of a field, without one that the end of the log cuts off."""
        lines = f.lines(name)
        return lines[:-1] if f.open and len(lines) and lines[-1] == f.count - 1 else lines

    def _report(self, f: RecordLines, lines: Iterable[int], message: str) -> None:
        for line in lines:
            self._problem(f.number(line), message)

    def _add_like(self, f: RecordLines, rows: int) -> None:
        lines = self._lines(f, "Like")
        start, end, owner = f.tokens(lines, "Like", _SPACE)
        number = _whole(f, start, end)
        good = (number >= 0) | _is(f, start, end, _DASH)
        good_line = (np.bincount(owner, minlength=len(lines)) == 2) & (
            np.bincount(owner[good], minlength=len(lines)) == 2
        )
        self._report(f, lines[~good_line].tolist(), "Like is not of the form '12 64', '12 -' or '- 64'")
        pairs = number[good_line[owner]].reshape(-1, 2)
        row = f.row[lines[good_line]] + rows
        for column, which in (("tensor", pairs[:, 0]), ("source", pairs[:, 1])):
            self._add(column, which[which >= 0])
            self._add(f"{column} row", row[which >= 0])

    def _add_out(self, f: RecordLines, rows: int) -> None:
        lines = self._lines(f, "Out")
        start, end, owner = f.tokens(lines, "Out", _SPACE)
        count = np.bincount(owner, minlength=len(lines))
        first = np.cumsum(count) - count
        refers = count == 2
        refers[refers] = f.text[start[first[refers]]] == _AT
        number = np.full(len(lines), -1, np.int32)
        number[refers] = _whole(f, start[first[refers]] + 1, end[first[refers]])
        refers = number >= 0
        lists = (count >= len(_VALUES) - 1) & (count <= len(_VALUES))
        self._report(
            f, lines[~(lists | refers)].tolist(), "Out is not of the form '@12 DIGEST', nor six or seven values"
        )
        self._add("out", number[refers])
        self._add("out row", f.row[lines[refers]] + rows)
        values = {}
        for k, name in enumerate(_VALUES):
            token = np.where(refers, 1, k)
            of = np.flatnonzero((lists & (count > k)) | (refers & (name == "Digest")))
            at = first[of] + token[of]
            values[name] = lines[of], start[at], end[at]
        if len(lines):
            f.insert(values)

    def _add_from(self, f: RecordLines, rows: int) -> None:
        lines = self._lines(f, "From")
        start, end, owner = f.tokens(lines, "From", _SEMICOLON)
        count = np.bincount(owner, minlength=len(lines))
        place = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
        row = f.row[lines[owner]]
        spaces = np.append(f.marks(_SPACE), len(f.text))
        space = np.searchsorted(spaces, start)
        words = np.searchsorted(spaces, end) - space + 1
        first_end = np.minimum(spaces[space], end)

        producer = _whole(f, start, first_end)
        named = (f.text[np.minimum(start, len(f.text) - 1)] == _OPEN) & (first_end - start > 1)
        named &= f.text[np.maximum(first_end - 1, 0)] == _CLOSE
        none = _is(f, start, first_end, _DASH)
        keys = np.zeros(len(start), np.uint64)
        keys[named] = hash_text(f.buffer, f.words, start[named] + 1, first_end[named] - 1)

        hashes = np.full(len(start), np.nan)
        digests = np.full(len(start), NO_DIGEST)
        good = (producer >= 0) | named | none
        written = np.flatnonzero(words == 3)
        middle = spaces[np.minimum(space[written] + 1, len(spaces) - 1)]
        hashes[written], bad = parse_numbers(f.buffer, f.words, first_end[written] + 1, middle)
        good[written[bad]] = False
        digests[written], bad = parse_digests(f.buffer, f.words, middle + 1, end[written])
        good[written[bad]] = False
        good &= words <= 3
        # without a content of its own, the input is as its producer made it
        record = np.where(words == 1, producer, np.int32(-1))
        good &= (words != 1) | (producer >= 0)
        slot = np.full(len(start), _FIRST_OUTPUT, np.int32)
        for i in np.flatnonzero(words == 2).tolist():
            text = f.buffer[first_end[i] + 1 : end[i]]
            if found := _REFERENCE.fullmatch(text):
                record[i] = min(int(found[1]), _NOBODY)
                slot[i] = _FIRST_OUTPUT if found[2] is None else int(found[2])
            elif text != b"-":
                good[i] = False
        self._report(f, lines[owner[~good]].tolist(), "From names an input in an unknown form")

        for name, which in (("producer", producer >= 0), ("content", record >= 0)):
            self._add(f"{name} row", row[which] + rows)
            self._add(f"{name} place", place[which])
        self._add("producer", producer[producer >= 0])
        self._add("content", record[record >= 0])
        self._add("content slot", slot[record >= 0])
        self.listed = {"inputs": (row, hashes), "input_digests": (row, digests), "producers": (row, keys)}

    # ------------------------------------------------------------------ the whole

    def resolved(self, log: OpLog) -> OpLog:
        """Return the log with the values of its references."""
        seq = self._taken("seq")
        self._row = np.argsort(seq, kind="stable")
        self._seq = seq[self._row]
        log = self._with_like(log)
        log = self._with_out(log)
        return self._with_names(self._with_inputs(log))

    def _taken(self, name: str) -> Int32:
        return self._columns.pop(name, GrowingColumn(np.int32)).take()

    def _rows(self, log: OpLog, of: Int32, number: Int32) -> Int64:
        """The rows that the rows `of` refer to; -1, which is reported, for a number that no record before them has."""
        if not len(of):
            return np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(self._seq, number), len(self._seq) - 1)
        found = np.where((self._seq[at] == number) & (self._row[at] < of), self._row[at], -1)
        for i in np.flatnonzero(found < 0).tolist():
            self._problem(int(log.line[of[i]]), f"refers to record {number[i]}, which is not before it")
        return found

    def _pairs(self, log: OpLog, name: str) -> tuple[Int64, Int64]:
        """(rows that refer, rows with the values) of references between whole records."""
        of, number = self._taken(f"{name} row"), self._taken(name)
        found = self._rows(log, of, number)
        indirect = np.zeros(len(log), bool)
        indirect[of] = True
        indirect = (found >= 0) & indirect[found]
        self._no_values(log, of[indirect])
        good = (found >= 0) & ~indirect
        return of[good].astype(np.int64), found[good]

    def _no_values(self, log: OpLog, of: NDArray[Any]) -> None:
        for row in of.tolist():
            self._problem(int(log.line[row]), "refers to values that the other record does not have itself")

    def _with_like(self, log: OpLog) -> OpLog:
        rows, source = self._pairs(log, "tensor")
        counts = log.counts if log.counts.flags.writeable else log.counts.copy()
        log.shape[rows], log.dtype[rows], counts[:, rows] = log.shape[source], log.dtype[source], counts[:, source]
        log = replace(log, counts=counts, extra=_with_texts(log, "Placement", _copies(log, "Placement", rows, source)))
        rows, source = self._pairs(log, "source")
        for column in (log.location, log.phase, log.recompute, log.micro_batch):
            column[rows] = column[source]
        return replace(log, extra=_with_texts(log, "Stack", _copies(log, "Stack", rows, source)))

    def _with_out(self, log: OpLog) -> OpLog:
        rows, source = self._pairs(log, "out")
        single = log.outputs.count[source] == 1
        self._no_values(log, rows[~single])
        rows, source = rows[single], source[single]
        log.stats[:, rows], log.present[rows] = log.stats[:, source], log.present[source]
        origin = np.arange(len(log))
        origin[rows] = source
        texts = _with_texts(log, "Sketch", _copies(log, "Sketch", rows, source))
        return replace(log, outputs=log.outputs.taken(origin), extra=texts)

    def _with_inputs(self, log: OpLog) -> OpLog:
        of, place, number = (self._taken(name) for name in ("producer row", "producer place", "producer"))
        for few in _slices(len(of)):
            found = self._rows(log, of[few], number[few])
            at, inside = _positions(log.producers, of[few], place[few])
            log.producers.value[at[inside]] = np.where(found >= 0, found, -2)[inside]

        of, place, number, slot = (
            self._taken(name) for name in ("content row", "content place", "content", "content slot")
        )
        refers = np.zeros(len(log.inputs.value), bool)
        for few in _slices(len(of)):
            at, inside = _positions(log.inputs, of[few], place[few])
            refers[at[inside]] = True
        for few in _slices(len(of)):
            self._fill_inputs(log, refers, of[few], place[few], number[few], slot[few])
        return log

    def _fill_inputs(self, log: OpLog, refers: Bool, of: Int32, place: Int32, number: Int32, slot: Int32) -> None:
        """Fill in hashes and digests of the inputs of rows at places: what another record has, as output or in a slot.

        `refers` marks the inputs of the whole log that are references, which cannot be referred to.
        """
        found = self._rows(log, of, number)
        hashes, digests = np.full(len(of), np.nan), np.full(len(of), NO_DIGEST)
        output = np.flatnonzero((found >= 0) & (slot == _FIRST_OUTPUT))
        lacks = [output[log.outputs.count[found[output]] == 0]]
        hashes[output] = log.outputs.first(found[output])
        digests[output] = log.digests.first(found[output], missing=NO_DIGEST)

        given = np.flatnonzero((found >= 0) & (slot != _FIRST_OUTPUT))
        source, has = _positions(log.inputs, found[given], slot[given])
        of_digest, has_digest = _positions(log.input_digests, found[given], slot[given])
        has &= has_digest
        has[has] = ~refers[source[has]]
        lacks.append(given[~has])
        hashes[given[has]] = log.inputs.value[source[has]]
        digests[given[has]] = log.input_digests.value[of_digest[has]]
        self._no_values(log, of[np.concatenate(lacks)])

        for lists, values in ((log.inputs, hashes), (log.input_digests, digests)):
            at, inside = _positions(lists, of, place)
            lists.value[at[inside]] = values[inside]

    def _with_names(self, log: OpLog) -> OpLog:
        parameters = log.header.run.get("parameter_digests")
        names = [escape(name).encode() for name in parameters] if isinstance(parameters, dict) else []
        texts = [_names(text, names) for text in self._named.names]
        raw = {}
        for row, i in zip(self._taken("named row").tolist(), self._taken("named").tolist(), strict=True):
            if (text := texts[i]) is not None:
                raw[row] = text
            else:
                self._problem(int(log.line[row]), "Named has a number that is no parameter of the run info")
        return replace(log, extra=_with_texts(log, "Parameter", raw))


def _names(text: bytes, names: Sequence[bytes]) -> bytes | None:
    """The names that numbers and states (`12.exp_avg`) stand for; None if they stand for none."""
    out = []
    room = _MAX_EXPANSION * len(text)
    for entry in text.split(b";"):
        number, dot, state = entry.partition(b".")
        known = number.isdigit() and len(number) < 10 and int(number) < len(names)
        if entry and not known:
            return None
        out.append(entry and names[int(number)] + dot + state)
        room -= len(out[-1])
        if room < 0:
            return None
    return b";".join(out)


def _whole(f: RecordLines, start: Int64, end: Int64) -> Int32:
    """The whole numbers between positions; -1 for other text."""
    length = end - start
    good = (length > 0) & (length < 16)
    value = np.zeros(len(start), np.int64)
    for k in range(int(length[good].max(initial=0))):
        at = np.flatnonzero(good & (length > k))
        digit = f.text[start[at] + k] - np.uint8(0x30)  # wraps below the digits
        value[at] = value[at] * 10 + digit
        good[at[digit > 9]] = False
    return np.where(good, np.minimum(value, _NOBODY), -1).astype(np.int32)


def _is(f: RecordLines, start: Int64, end: Int64, byte: int) -> Bool:
    """Mask of the texts that are just one byte."""
    return np.asarray((end - start == 1) & (f.text[np.minimum(start, len(f.text) - 1)] == byte))


def _slices(count: int) -> Iterator[slice]:
    """Slices of that many references: what is computed of a few at a time takes little memory."""
    return (slice(begin, begin + _FEW) for begin in range(0, count, _FEW))


def _positions(lists: Ragged, row: NDArray[Any], place: NDArray[Any]) -> tuple[Int64, Bool]:
    """(positions of the values of rows at places, mask of those that exist)."""
    at = lists.start[row] + place
    return at, at < lists.start[row + 1]


def _copies(log: OpLog, name: str, rows: Int64, source: Int64) -> dict[int, bytes]:
    """The texts of a field that some rows take from others."""
    texts = log.texts(name)
    return {row: texts.raw(of) for row, of in zip(rows.tolist(), source.tolist(), strict=True) if of in texts}


def _with_texts(log: OpLog, name: str, more: dict[int, bytes]) -> Mapping[str, Texts]:
    """The texts of a log, with further ones of one field."""
    texts = log.texts(name)
    if texts and more:
        more = {row: more[row] if row in more else texts.raw(row) for row in sorted({*texts, *more})}
    return {**log.extra, name: Texts(more)} if more else log.extra
