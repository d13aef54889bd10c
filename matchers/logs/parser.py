"""Parse a log file into columns.

The file is read in pieces of a few megabytes, each cut where a record starts. Within a piece Python never loops over
lines: the line ends are found at once, lines are classified by their first eight bytes, and all numbers of a field are
converted together. Only names (keys, producers, shapes, locations) are sliced out and interned.

An unreadable line costs only itself: it is counted and reported with its number. A file is refused only if it has
neither a header nor a single record.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capture import log_format
from matchers.arrays import Bool, Hash, Int32, Int64
from matchers.errors import LogError
from matchers.logs.byte_words import PADDING
from matchers.logs.columns import GrowingColumn, KeyColumn, Ragged, Strings, decode
from matchers.logs.compact import References
from matchers.logs.extension_fields import AddedFields
from matchers.logs.file_identity import Content
from matchers.logs.interning import InternTable, hash_text
from matchers.logs.number_parser import parse_digests, parse_numbers
from matchers.logs.op_log import NO_DIGEST, STATISTICS, Header, OpLog, Phase, Problem
from matchers.logs.record_lines import RecordLines
from matchers.logs.source import LogSource

__all__ = ["read_log"]

Progress = Callable[[str, float], None]

_MAX_PROBLEMS = 1000
_MAX_HEADER = 4 << 20
"""A header is a few lines; a file with no record in its first four megabytes is not a log."""

_BACKWARD = np.uint64(int.from_bytes(b"backward", "little"))
_PHASES = {phase.label.encode(): phase for phase in Phase if phase != Phase.OTHER}


def read_log(
    source: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    head: int | None = None,
    content: Content | None = None,
) -> OpLog:
    """Read a log from a path, a path ending in `.gz`, or `-` for standard input.

    Args:
        progress: called with ("reading", fraction) now and then; the fraction is 0 if the size is unknown.
        head: read only about this many bytes; the result is then marked `partial`.
        content: takes the digest of the file's bytes; the log has it too, then.

    Raises:
        LogError: the file is missing, unreadable, or not a log.
    """
    path = os.fspath(source)
    builder = _Builder("standard input" if path == "-" else path, partial=head is not None)
    try:
        with LogSource(path, content) as log:
            for piece, last in log.pieces(head):
                builder.add(piece, last)
                if progress is not None:
                    progress("reading", log.fraction())
            builder.cut_off = log.cut_off
    except OSError as error:
        # an invalid gzip file raises OSError too
        raise LogError(f"{builder.path}: cannot be read: {error.strerror or error}") from None
    return builder.finish("" if content is None else content.digest)


class _Builder:
    """The columns of one log, collected piece by piece."""

    def __init__(self, path: str, partial: bool) -> None:
        self.path = path
        self.partial = partial
        self.cut_off: str | None = None
        self.header: Header | None = None
        self.recognised = False
        self.lines_read = 0
        self.rows = 0
        self.problems: list[Problem] = []
        self.problem_count = 0
        self.footer: int | None = None
        self.footer_digest = ""
        self.tail_is_open = False
        self.ends_within = False
        """The log ends within a record or a line."""
        self.after_blank = False
        """The last line so far is blank."""
        self.tables = {name: InternTable() for name in ("module", "op", "shape line", "location")}
        self.key_text: list[bytes] = []
        self.columns: dict[str, GrowingColumn] = {}
        self.added = AddedFields(self.problem)
        self.references: References | None = None
        """Set for compact logs."""

    # ------------------------------------------------------------------ one piece

    def add(self, buffer: bytes, last: bool) -> None:
        """Read the records of one piece (with its padding); the first piece also holds the header."""
        if self.header is None:
            buffer = self._take_header(buffer)
        cut_key = _cut_key(buffer) if last else 0
        buffer = buffer[: len(buffer) - PADDING - cut_key] + buffer[len(buffer) - PADDING :] if cut_key else buffer
        if len(buffer) > PADDING:
            self._add_records(buffer, last and not cut_key)
        if cut_key:
            self.lines_read += 1
            self.problem(self.lines_read, "the log ends within the key of a record")
            self.ends_within = True

    def _add_records(self, buffer: bytes, last: bool) -> None:
        fields = RecordLines(buffer, self.lines_read + 1)
        self.tail_is_open = last and fields.open
        if self.references is not None:
            self.references.add(fields, self.rows)
        for line in fields.odd.tolist():
            self._odd_line(fields.buffer[fields.start[line] : fields.end[line]], self.lines_read + line + 1)
        self._keys(fields)
        self._statistics(fields)
        self._names(fields)
        for column, name in (("outputs", "Output hash"), ("inputs", "Input hashes")):
            self._numbers(fields, column, name)
        for column, name in (("digests", "Digest"), ("input_digests", "Input digests")):
            self._digests(fields, column, name)
        self._producers(fields)
        self._flags(fields)
        self.added.add(fields)
        if last and not self.partial:
            self._check_end(fields)
        self.rows += fields.rows
        self.lines_read += fields.count
        self.after_blank = bool(fields.end[fields.count - 1] == fields.start[fields.count - 1])

    def _check_end(self, f: RecordLines) -> None:
        """Report a log that ends within a line, or without the blank line that stands between its records."""
        blank = f.end[: f.count] == f.start[: f.count]
        first = int(f.keys[-1]) if f.rows else 0
        another = self.rows + f.rows > 1 and bool(blank[first - 1] if first else self.after_blank)
        if f.open or (another and self.footer is None and not blank[-1]):
            within = "" if self.footer is not None or not f.rows else "within its last record, "
            lacks = "a line end" if f.open else "the blank line after it"
            self.problem(f.first_line + len(blank) - 1, f"the log ends {within}without {lacks}")
            self.ends_within = True

    def _take_header(self, buffer: bytes) -> bytes:
        """Read the header at the start of the first piece and return the rest."""
        if buffer.startswith(b"\xef\xbb\xbf"):
            buffer = buffer[3:]
        piece = buffer[:-PADDING]
        size = 0 if piece.startswith(b"[") else piece.find(b"\n[") + 1 or len(piece)
        raw = piece[: min(size, _MAX_HEADER)]
        lines = [decode(line.rstrip(b"\r")) for line in raw.removesuffix(b"\n").split(b"\n")] if raw else []
        above = next((i for i, line in enumerate(lines) if line.startswith("====")), len(lines))
        self.recognised = above < len(lines) or any(map(log_format.looks_like_header, lines))
        if size == len(piece) and not self.recognised:
            raise self._no_log("is empty" if not piece else "is not an operation log")
        parsed = log_format.parse_header(lines[:above])
        self.header = Header(
            parsed.declared, parsed.excluded, parsed.format, parsed.run, tuple(lines[: min(above, 100)])
        )
        if parsed.format == log_format.COMPACT_FORMAT:
            self.references = References(self.problem)
            self.added.packed = True
        for at, message in parsed.problems:
            self.problem(at + 1, message)
        self.lines_read = len(lines)
        for line in lines[above + 1 :]:
            self._outside(line)
        return buffer[size:]

    def _no_log(self, what: str) -> LogError:
        return LogError(
            f"{self.path}:1: {what}: expected a line 'Total captured activations: N', or records '[module/op_N_name]'"
        )

    def _outside(self, line: str) -> None:
        footer = log_format.parse_footer(line)
        if footer is not None:
            self.footer, self.footer_digest = footer.records, footer.digest

    def _odd_line(self, line: bytes, number: int) -> None:
        text = decode(line[:200])
        if not text.strip():
            return
        if text.startswith("  ") and not text.startswith("   ") and ": " in text[:40]:
            return  # a field of a later version
        if log_format.parse_footer(text) is not None or text.startswith(log_format.FOOTER):
            self._outside(text)
        elif not text.startswith(("Digest of all records", "====")):
            self.problem(number, "not a field of a record")

    def problem(self, line: int, message: str) -> None:
        self.problem_count += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Problem(line, message))

    # ------------------------------------------------------------------ fields

    def _keys(self, f: RecordLines) -> None:
        lines = f.keys
        start, end = f.start[lines] + 1, f.end[lines]
        closed = f.text[end - 1] == 0x5D
        closed &= end > start
        for line in lines[~closed].tolist():
            self.problem(f.first_line + line, "the record's key has no closing ']'")
        end = end - closed
        text = b"\n".join((*f.cut(start, end), b""))
        self.key_text.append(text)
        module_end, op_start, counter = f.split_keys(start, end, text)
        self._add("key", hash_text(f.buffer, f.words, start, end))
        self._add("module", self.tables["module"].ids(f.buffer, f.words, start, module_end))
        self._add("op", self.tables["op"].ids(f.buffer, f.words, op_start, end))
        self._add("counter", counter)
        self._add("line", (lines + f.first_line).astype(np.int32))

    def _statistics(self, f: RecordLines) -> None:
        stats = np.full((len(STATISTICS), f.rows), np.nan)
        present = np.zeros(f.rows, np.uint8)
        for k, name in enumerate(STATISTICS):
            lines = f.lines(name)
            value, bad = parse_numbers(f.buffer, f.words, f.value_start(lines, name), f.end[lines])
            bad = self._report_numbers(f, lines, bad, name)
            rows = f.row[lines]
            stats[k, rows[~bad]] = value[~bad]
            present[rows[~bad]] |= np.uint8(1 << k)
        for name, values in zip(STATISTICS, stats, strict=True):
            self._add(name, values)
        self._add("present", present)

    def _report_numbers(self, f: RecordLines, lines: Int64, bad: Bool, name: str) -> Bool:
        """Report invalid numbers, and treat the last one as invalid if the file ends in the middle of its line."""
        if self.tail_is_open and len(lines) and lines[-1] == f.count - 1:
            text = f.buffer[f.value_start(lines[-1:], name)[0] : f.end[lines[-1]]]
            # our own numbers have any length, but our capture ends every line with a line break
            ours = self.header is not None and self.header.format is not None
            if (ours or len(text.rpartition(b" ")[2].lstrip(b"-")) < 12) and not bad[-1]:
                bad = bad.copy()
                bad[-1] = True
        for line in lines[bad].tolist():
            self.problem(f.number(line), f"{name} is not a number")
        return bad

    def _numbers(self, f: RecordLines, column: str, name: str) -> None:
        lines = f.lines(name)
        start, end, owner = f.tokens(lines, name, 0x2C)
        value, bad = parse_numbers(f.buffer, f.words, start, end)
        bad = self._report_numbers(f, lines[owner], bad, name)
        # an invalid value keeps its place, so that the others keep theirs
        self._ragged(f, column, f.row[lines[owner]], np.where(bad, np.nan, value))

    def _digests(self, f: RecordLines, column: str, name: str) -> None:
        lines = f.lines(name)
        start, end, owner = f.tokens(lines, name, 0x2C)
        value, bad = parse_digests(f.buffer, f.words, start, end)
        if self.tail_is_open and len(value) and lines[owner[-1]] == f.count - 1:
            value[-1], bad[-1] = NO_DIGEST, True  # half a digest would read as a different one
        for line in lines[owner[bad]].tolist():
            self.problem(f.number(line), f"{name} is not hexadecimal")
        self._ragged(f, column, f.row[lines[owner]], value)

    def _producers(self, f: RecordLines) -> None:
        lines = f.lines("Input producers")
        start, end, owner = f.tokens(lines, "Input producers", 0x3B, empty=1)
        # keys by their hash until all are known; 0 stands for "names none"
        keys = hash_text(f.buffer, f.words, start, end)
        self._ragged(f, "producers", f.row[lines[owner]], np.where(end > start, keys, np.uint64(0)))

    def _ragged(self, f: RecordLines, column: str, row: Int64, value: NDArray[Any]) -> None:
        if len(row) and (np.diff(row) < 0).any():  # impossible: lines are in record order
            raise AssertionError(column)
        if self.references is not None and (listed := self.references.listed.get(column)):
            row, value = (np.concatenate(both) for both in zip((row, value), listed, strict=True))
            order = np.argsort(row, kind="stable")
            row, value = row[order], value[order]
        self._add(f"{column} count", np.bincount(row, minlength=f.rows))
        self._add(column, value)

    def _names(self, f: RecordLines) -> None:
        for column, name in (("shape line", "Shape"), ("location", "Location")):
            lines = f.lines(name)
            ids = np.full(f.rows, -1, np.int32)
            start = f.value_start(lines, name)
            ids[f.row[lines]] = self.tables[column].ids(f.buffer, f.words, start, f.end[lines])
            self._add(column, ids)
        self._add("shape at", self._first_line_of_shape(f))

    def _first_line_of_shape(self, f: RecordLines) -> Int64:
        line = np.full(f.rows, -1, np.int64)
        lines = f.lines("Shape")
        line[f.row[lines]] = lines + f.first_line
        return line

    def _flags(self, f: RecordLines) -> None:
        phase = np.zeros(f.rows, np.int8)
        lines = f.lines("Phase")
        start = f.value_start(lines, "Phase")
        backward = (f.end[lines] - start == 8) & (f.words.at(start) == _BACKWARD)
        phase[f.row[lines[backward]]] = Phase.BACKWARD
        lines = lines[~backward]
        for line, text in zip(lines.tolist(), f.slices(lines, "Phase"), strict=True):
            value = _PHASES.get(text.strip(), Phase.OTHER)
            phase[f.row[line]] = value
            if value == Phase.OTHER:
                self.problem(f.first_line + line, "unknown phase")
        self._add("phase", phase)

        recompute = np.zeros(f.rows, bool)
        lines = f.lines("Recompute")
        recompute[f.row[lines]] = [text.strip() == b"true" for text in f.slices(lines, "Recompute")]
        self._add("recompute", recompute)

        batch = np.full(f.rows, -1, np.int32)
        lines = f.lines("Micro-batch")
        for line, text in zip(lines.tolist(), f.slices(lines, "Micro-batch"), strict=True):
            if text.isdigit() and len(text) < 10:
                batch[f.row[line]] = int(text)
            else:
                self.problem(f.first_line + line, "Micro-batch is not a number")
        self._add("micro_batch", batch)

    # ------------------------------------------------------------------ the whole

    def finish(self, content: str) -> OpLog:
        """Return the log after the last piece; `content` is the digest of its file."""
        header = self.header
        if header is None:
            raise self._no_log("is empty")
        counter = self._column("counter", np.int32)
        if not self.recognised and not (counter >= 0).any():
            raise self._no_log("is not an operation log")
        if self.cut_off is not None:
            self.problem(self.lines_read, self.cut_off)
        n = self.rows
        if self.footer == n and self.footer_digest and self.footer_digest != self.added.digest() and not self.partial:
            self.problem(self.lines_read, "the digest in the footer does not match the records: the log was changed")
        shape, dtype, shapes, dtypes = self._shapes()
        complete: bool | None = None
        if not self.partial:
            promised = self.footer if self.footer is not None else header.declared
            short = promised is not None and promised > n
            if self.cut_off is not None or self.ends_within or header.incomplete or short:
                complete = False
            elif header.format is not None:
                complete = self.footer == n
            elif promised is not None:
                complete = True
        log = OpLog(
            path=self.path,
            header=header,
            keys=KeyColumn(b"".join(self.key_text)),
            modules=Strings(self.tables["module"].names),
            module=self._column("module", np.int32),
            ops=Strings(self.tables["op"].names),
            op=self._column("op", np.int32),
            counter=counter,
            shapes=shapes,
            shape=shape,
            dtypes=dtypes,
            dtype=dtype,
            locations=Strings(self.tables["location"].names),
            location=self._column("location", np.int32),
            phase=self._column("phase", np.int8),
            present=self._column("present", np.uint8),
            stats=np.stack([self._column(name, np.float64) for name in STATISTICS]),
            outputs=self._lists("outputs", np.float64),
            inputs=self._lists("inputs", np.float64),
            producers=self._resolved_producers(),
            line=self._column("line", np.int32),
            digests=self._lists("digests", np.uint64),
            input_digests=self._lists("input_digests", np.uint64),
            counts=self.added.counts(),
            recompute=self._column("recompute", bool),
            micro_batch=self._column("micro_batch", np.int32),
            extra=self.added.texts(),
            complete=complete,
            partial=self.partial,
            stated_digest=self.footer_digest,
            content=content,
        )
        if self.references is not None:
            log = self.references.resolved(log)
        problems = tuple(sorted(self.problems, key=lambda problem: problem.line))
        return replace(log, problems=problems, problem_count=self.problem_count)

    def _add(self, name: str, values: NDArray[Any]) -> None:
        if name not in self.columns:
            self.columns[name] = GrowingColumn(values.dtype)
        self.columns[name].add(values)

    def _column(self, name: str, dtype: Any) -> NDArray[Any]:
        column = self.columns.pop(name, None)
        return column.take().astype(dtype, copy=False) if column is not None else np.zeros(0, dtype)

    def _lists(self, name: str, dtype: Any) -> Ragged:
        counts = self._column(f"{name} count", np.int64)
        values = self._column(name, dtype)
        start = np.zeros(len(counts) + 1, np.int64)
        if len(values):  # if no record has the field, the zeros take no memory
            np.cumsum(counts, out=start[1:])
        return Ragged(start, values)

    def _shapes(self) -> tuple[Int32, Int32, Strings, Strings]:
        """Split the interned `Shape` lines into shapes and dtypes."""
        line_id = self._column("shape line", np.int32)
        at = self._column("shape at", np.int64)
        shapes: defaultdict[bytes, int] = defaultdict(count().__next__)
        dtypes: defaultdict[bytes, int] = defaultdict(count().__next__)
        to_shape, to_dtype = [], []
        for i, raw in enumerate(self.tables["shape line"].names):
            parsed = log_format.parse_shape(decode(raw[:2000]))
            if parsed is None:
                to_shape.append(-1)
                to_dtype.append(-1)
                for line in at[line_id == i].tolist():
                    self.problem(int(line), "Shape is not of the form 'torch.Size([2, 3]), Dtype: torch.float32'")
            else:
                to_shape.append(shapes[parsed[0].encode()])
                to_dtype.append(dtypes[parsed[1].encode()])
        # the last entry serves the index -1, "no shape"
        shape = np.array([*to_shape, -1], np.int32)[line_id]
        dtype = np.array([*to_dtype, -1], np.int32)[line_id]
        return shape, dtype, Strings(tuple(shapes)), Strings(tuple(dtypes))

    def _resolved_producers(self) -> Ragged:
        """Producers as rows: for each reference, the last earlier record with that key."""
        lists = self._lists("producers", np.uint64)
        wanted, owner = lists.value, lists.row
        key = self._column("key", np.uint64)
        rows = np.where(wanted == 0, np.int32(-1), np.int32(-2))
        named = np.flatnonzero(wanted)
        if len(named) and len(key):
            named = named[np.argsort(wanted[named])]  # ascending order keeps the binary search in cache
            order = np.argsort(key)
            ordered = key[order]
            if (ordered[1:] == ordered[:-1]).any():
                # rows of one key are in log order: take the last one before the reader
                order = np.argsort(key, kind="stable")
                at = _last_before(ordered, order, wanted[named], owner[named])
            else:
                at = np.searchsorted(ordered, wanted[named], side="right") - 1
            at = np.maximum(at, 0)
            ok = (ordered[at] == wanted[named]) & (order[at] < owner[named])
            rows[named[ok]] = order[at[ok]]
        return Ragged(lists.start, rows)


def _cut_key(buffer: bytes) -> int:
    """Length of an incomplete key at the end of a log; what is left of it names no operation."""
    size = len(buffer) - PADDING
    start = buffer.rfind(b"\n", 0, size) + 1
    cut = buffer.startswith(b"[", start, size) and not buffer[start:size].rstrip(b"\r").endswith(b"]")
    return size - start if cut else 0


def _last_before(key: Hash, row: Int64, wanted: Hash, before: Int64) -> Int64:
    """Position of the last row of a wanted key before another row, in columns sorted by key and then by row.

    A position that is out of range, or of another key, means none.
    """
    distinct, first = np.unique(key, return_index=True)
    size = np.diff(np.append(first, len(key)))
    group = np.repeat(np.arange(len(distinct)), size)
    span = np.int64(len(key) + 1)
    of = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    return np.searchsorted(group * span + row, of * span + before) - 1
