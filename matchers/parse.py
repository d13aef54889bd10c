"""A log file to columns.

The file is read in pieces of a few megabytes, each cut where a record starts. Within a piece nothing is done line by
line in Python: the line ends are found at once, the lines are told apart by their first eight bytes, and all numbers
of a field are converted together. Only what must become a name (keys, producers, shapes, locations) is sliced out
and interned.

A broken spot costs only itself: it is counted and reported with its line. Only a file that has neither a header nor a
single record is refused.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from capture import log_format
from matchers.errors import LogError
from matchers.intern import InternTable, hash_text
from matchers.numbers import PADDING, Words, parse_numbers
from matchers.op_log import STATISTICS, Header, KeyColumn, OpLog, Phase, Problem, Ragged, Strings, decode

__all__ = ["read_log"]

Progress = Callable[[str, float], None]
Index = NDArray[np.int64]

_CHUNK = 4 << 20
_MAX_PROBLEMS = 1000
_MAX_HEADER = 4 << 20
"""A header is a few lines; a file whose first four megabytes hold no record is no log."""

_BACKWARD = np.uint64(int.from_bytes(b"backward", "little"))
_PHASES = {b"forward": Phase.FORWARD, b"backward": Phase.BACKWARD, b"optimizer": Phase.OPTIMIZER}
_TEXT_FIELDS = ("Seq", "Mutated", "Sketch", "Counts", "Placement", "Group", "Stack", "Parameter")
"""Fields of the superset that are kept as text, for the screen and for later."""


def read_log(source: str | os.PathLike[str], *, progress: Progress | None = None, head: int | None = None) -> OpLog:
    """Reads a log: a path, a path that ends in `.gz`, or `-` for standard input.

    Args:
        progress: called with ("reading", fraction) now and then; the fraction is 0 where the size is unknown.
        head: read only about so many bytes; the result is then marked `partial`.

    Raises:
        LogError: the file is missing, unreadable, or no log.
    """
    path = os.fspath(source)
    builder = _Builder("standard input" if path == "-" else path, partial=head is not None)
    try:
        with _Source(path) as (stream, fraction):
            for piece, last in _pieces(stream, builder, head):
                builder.add(piece, last)
                if progress is not None:
                    progress("reading", fraction())
    except OSError as error:
        # a gzip file that is no gzip file is an OSError too
        raise LogError(f"{builder.path}: cannot be read: {error.strerror or error}") from None
    return builder.finish()


class _Source:
    """Opens a source as (binary stream, function that tells how far reading has come)."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> tuple[IO[bytes], Callable[[], float]]:
        if self._path == "-":
            self._file: IO[bytes] | None = None
            return sys.stdin.buffer, lambda: 0.0
        if os.path.isdir(self._path):
            raise LogError(f"{self._path}: is a directory, not a log")
        raw = open(self._path, "rb")
        self._file = raw
        size = max(os.fstat(raw.fileno()).st_size, 1)
        magic = raw.peek(2)[:2] if hasattr(raw, "peek") else b""
        stream: IO[bytes] = raw
        if self._path.endswith(".gz") or magic == b"\x1f\x8b":
            stream = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]  # an IO[bytes] in all that matters
        return stream, lambda: min(raw.tell() / size, 1.0) if raw.seekable() else 0.0

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _pieces(stream: IO[bytes], builder: _Builder, head: int | None) -> Iterator[tuple[bytes, bool]]:
    """Cuts the stream before lines that start a record; yields (piece, whether it is the last)."""
    size = _CHUNK if head is None else head
    pending: list[bytes] = []
    while True:
        try:
            block = stream.read(size)
        except (EOFError, zlib.error) as error:  # half a .gz file, or a damaged one: keep what came out of it
            builder.cut_off = f"the compressed file ends early ({error})"
            block = b""
        if not block:
            yield b"".join(pending), True
            return
        # the newline of "\n[" may be the last byte of what came before
        if pending and pending[-1][-1:] == b"\n" and block[:1] == b"[":
            cut = 0
        else:
            cut = block.rfind(b"\n[") + 1
            if cut == 0:
                pending.append(block)
                if head is not None:
                    yield b"".join(pending), False
                    return
                continue
        pending.append(block[:cut])
        piece = b"".join(pending)
        if piece:
            yield piece, False
        if head is not None:
            return
        pending = [block[cut:]]


_FIELDS = [*((log_format.field_prefix(name), name) for name in log_format.FIELDS), (b"  Output ", "Output k")]
"""Start of the line and name of every field; an index into this list is what a line is classified as."""
_FAMILIES = (("Output hash", "Output k"), ("Input hashes", "Input producers", "Input digests"))
"""Fields that only the tenth byte of their line tells apart."""
_SEVEN = np.uint64(0x00FFFFFFFFFFFFFF)
_PREFIXES = {int.from_bytes(prefix[:7], "little"): i for i, (prefix, _) in reversed(list(enumerate(_FIELDS)))}
_PREFIX = np.array(sorted(_PREFIXES), np.uint64)
_PREFIX_FIELD = np.array([_PREFIXES[p] for p in sorted(_PREFIXES)], np.int8)
_FIELD_ID = {name: i for i, (_, name) in enumerate(_FIELDS)}


class _Builder:
    """Collects the columns of one log, piece by piece."""

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
        self.tail_is_open = False
        self.tables = {name: InternTable() for name in ("module", "op", "shape line", "location")}
        self.key_text: list[bytes] = []
        self.columns: defaultdict[str, list[NDArray[Any]]] = defaultdict(list)
        self.extra: dict[str, dict[int, bytes]] = {}

    # ------------------------------------------------------------------ one piece

    def add(self, piece: bytes, last: bool) -> None:
        """Reads the records of one piece; the first piece also holds the header."""
        if self.header is None:
            piece = self._take_header(piece)
        if not piece:
            return
        self.tail_is_open = last and not piece.endswith(b"\n")
        buffer = piece + bytes(PADDING)
        text = np.frombuffer(buffer, np.uint8, len(piece))
        words = Words(buffer)

        end = np.flatnonzero(text == 0x0A)
        if not piece.endswith(b"\n"):
            end = np.append(end, len(piece))
        start = np.concatenate(([0], end[:-1] + 1))
        end = end - ((text[end - 1] == 0x0D) & (end > start))  # CRLF

        first = words.at(start)
        is_key = (first & np.uint64(0xFF)) == np.uint64(0x5B)
        row = np.cumsum(is_key) - 1  # row within this piece; -1 before the first record
        kind = self._classify(buffer, first, start, end, is_key, row)

        fields = _Piece(buffer, text, words, start, end, row, kind, self.lines_read + 1, int(is_key.sum()))
        self._keys(fields, np.flatnonzero(is_key))
        self._statistics(fields)
        self._names(fields)
        for column, name in (("outputs", "Output hash"), ("inputs", "Input hashes")):
            self._numbers(fields, column, name)
        for column, name in (("digests", "Digest"), ("input_digests", "Input digests")):
            self._digests(fields, column, name)
        self._producers(fields)
        self._flags(fields)
        self._texts(fields)
        self.rows += fields.rows
        self.lines_read += len(start)

    def _take_header(self, piece: bytes) -> bytes:
        """Reads the header at the start of the first piece and returns the rest."""
        if piece.startswith(b"\xef\xbb\xbf"):
            piece = piece[3:]
        size = 0 if piece.startswith(b"[") else piece.find(b"\n[") + 1 or len(piece)
        raw = piece[: min(size, _MAX_HEADER)]
        lines = [decode(line.rstrip(b"\r")) for line in raw.removesuffix(b"\n").split(b"\n")]
        above = next((i for i, line in enumerate(lines) if line.startswith("====")), len(lines))
        self.recognised = above < len(lines) or any(map(log_format.looks_like_header, lines))
        if size == len(piece) and not self.recognised:
            raise self._no_log("is empty" if not piece else "is not an operation log")
        parsed = log_format.parse_header(lines[:above])
        self.header = Header(
            parsed.declared, parsed.excluded, parsed.format, parsed.run, tuple(lines[: min(above, 100)])
        )
        for at, message in parsed.problems:
            self.problem(at + 1, message)
        self.lines_read = len(lines)
        for line in lines[above + 1 :]:
            self._outside(line)
        return piece[size:]

    def _no_log(self, what: str) -> LogError:
        return LogError(
            f"{self.path}:1: {what}: expected 'Total captured activations: N' and records '[module/op_N_name]'"
        )

    def _outside(self, line: str) -> None:
        footer = log_format.parse_footer(line)
        if footer is not None:
            self.footer = footer

    def _classify(
        self,
        buffer: bytes,
        first: NDArray[np.uint64],
        start: Index,
        end: Index,
        is_key: NDArray[np.bool_],
        row: Index,
    ) -> NDArray[np.int8]:
        """Index into `_FIELDS` of each line, -1 for keys, blank lines and lines that are no field."""
        seven = first & _SEVEN
        at = np.minimum(np.searchsorted(_PREFIX, seven), len(_PREFIX) - 1)
        kind = np.where(_PREFIX[at] == seven, _PREFIX_FIELD[at], np.int8(-1))
        for family in _FAMILIES:
            self._tell_apart(buffer, kind, start, [_FIELD_ID[name] for name in family])
        odd = np.flatnonzero((kind < 0) & ~is_key & (end > start))
        for line in odd.tolist():
            self._odd_line(buffer[start[line] : end[line]], self.lines_read + line + 1)
        kind[row < 0] = -1
        return kind

    def _tell_apart(self, buffer: bytes, kind: NDArray[np.int8], start: Index, ids: list[int]) -> None:
        """Decides between fields of one family."""
        lines = np.flatnonzero(np.isin(kind, ids))
        if not len(lines):
            return
        tenth = np.frombuffer(buffer, np.uint8)[start[lines] + 9]
        kind[lines] = -1
        for i in ids:
            prefix = _FIELDS[i][0]
            if i == _FIELD_ID["Output k"]:
                kind[lines[(tenth >= 0x30) & (tenth <= 0x39)]] = i
            else:
                kind[lines[tenth == prefix[9]]] = i

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

    def _keys(self, f: _Piece, lines: Index) -> None:
        start, end = f.start[lines] + 1, f.end[lines]
        closed = f.text[end - 1] == 0x5D
        closed &= end > start
        for line in lines[~closed].tolist():
            self.problem(f.first_line + line, "the record's key has no closing ']'")
        end = end - closed
        self.key_text.extend(f.cut(start, end))
        module_end, op_start, counter = self._split_keys(f, start, end)
        self.columns["key"].append(hash_text(f.buffer, f.words, start, end))
        self.columns["module"].append(self.tables["module"].ids(f.buffer, f.words, start, module_end))
        self.columns["op"].append(self.tables["op"].ids(f.buffer, f.words, op_start, end))
        self.columns["counter"].append(counter)
        self.columns["line"].append((lines + f.first_line).astype(np.int32))

    def _split_keys(self, f: _Piece, start: Index, end: Index) -> tuple[Index, Index, NDArray[np.int32]]:
        """(end of the module, start of the op, counter) of keys `module/op_N_op`; counter -1 where there is none."""
        slash = f.marks(0x2F)
        line = np.searchsorted(start, slash, side="right") - 1
        inside = line >= 0
        slash, line = slash[inside], line[inside]
        slash, line = slash[slash < end[line]], line[slash < end[line]]
        # without a counter: the op is what follows the last slash
        module_end, op_start = start.copy(), start.copy()
        module_end[line], op_start[line] = slash, slash + 1
        counter = np.full(len(start), -1, np.int32)

        after = f.words.at(slash)
        marked = (after & np.uint64(0xFFFFFFFF)) == np.uint64(0x5F706F2F)  # "/op_"
        slash, line = slash[marked], line[marked]
        last = np.append(line[1:] != line[:-1], True) if len(line) else np.zeros(0, bool)
        slash, line = slash[last], line[last]
        # up to seven digits and "_" fit in the next word; anything longer is no counter
        digits = f.words.at(slash + 4)
        value, length, open_ = np.zeros(len(slash), np.int64), np.zeros(len(slash), np.int64), np.ones(len(slash), bool)
        for k in range(8):
            byte = ((digits >> np.uint64(8 * k)) & np.uint64(0xFF)).astype(np.int64)
            digit = open_ & (byte >= 0x30) & (byte <= 0x39)
            value[digit] = value[digit] * 10 + byte[digit] - 0x30
            length[digit] += 1
            open_ = digit
        stop = slash + 4 + length
        counted = (length > 0) & (length < 8) & (stop < end[line])
        counted &= f.text[np.minimum(stop, len(f.text) - 1)] == 0x5F
        slash, line, stop, value = slash[counted], line[counted], stop[counted], value[counted]
        module_end[line], op_start[line], counter[line] = slash, stop + 1, value
        return module_end, op_start, counter

    def _statistics(self, f: _Piece) -> None:
        stats = np.full((len(STATISTICS), f.rows), np.nan)
        present = np.zeros(f.rows, np.uint8)
        for k, name in enumerate(STATISTICS):
            lines = f.lines(name)
            value, bad = parse_numbers(f.buffer, f.words, f.value_start(lines, name), f.end[lines])
            bad = self._report_numbers(f, lines, bad, name)
            rows = f.row[lines]
            stats[k, rows[~bad]] = value[~bad]
            present[rows[~bad]] |= np.uint8(1 << k)
        self.columns["stats"].append(stats)
        self.columns["present"].append(present)

    def _report_numbers(self, f: _Piece, lines: Index, bad: NDArray[np.bool_], name: str) -> NDArray[np.bool_]:
        """Reports the numbers that are none; also the last one of a file that ends in the middle of a line."""
        if self.tail_is_open and len(lines) and lines[-1] == len(f.start) - 1:
            text = f.buffer[f.value_start(lines[-1:], name)[0] : f.end[lines[-1]]]
            cut = len(text.rpartition(b" ")[2].lstrip(b"-")) < 12 and not bad[-1]
            if cut:
                bad = bad.copy()
                bad[-1] = True
        for line in lines[bad].tolist():
            self.problem(f.first_line + line, f"{name} is not a number")
        return bad

    def _numbers(self, f: _Piece, column: str, name: str) -> None:
        lines = f.lines(name)
        start, end, owner = f.tokens(lines, name, 0x2C)
        value, bad = parse_numbers(f.buffer, f.words, start, end)
        bad = self._report_numbers(f, lines[owner], bad, name)
        # a broken value keeps its place, so that the others keep theirs
        self._ragged(f, column, f.row[lines[owner]], value)

    def _digests(self, f: _Piece, column: str, name: str) -> None:
        lines = f.lines(name)
        start, end, owner = f.tokens(lines, name, 0x2C)
        value = np.zeros(len(start), np.uint64)
        for i, (s, e) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
            try:
                value[i] = int(f.buffer[s:e], 16) & 0xFFFFFFFFFFFFFFFF
            except ValueError:
                self.problem(f.first_line + int(lines[owner[i]]), f"{name} is not hexadecimal")
        self._ragged(f, column, f.row[lines[owner]], value)

    def _producers(self, f: _Piece) -> None:
        lines = f.lines("Input producers")
        start, end, owner = f.tokens(lines, "Input producers", 0x3B, keep_empty=True)
        # keys by their hash until all are known; 0 stands for "names none"
        keys = hash_text(f.buffer, f.words, start, end)
        self._ragged(f, "producers", f.row[lines[owner]], np.where(end > start, keys, np.uint64(0)))

    def _ragged(self, f: _Piece, column: str, row: Index, value: NDArray[Any]) -> None:
        if len(row) and (np.diff(row) < 0).any():  # cannot be: lines are in the order of their records
            raise AssertionError(column)
        self.columns[f"{column} count"].append(np.bincount(row, minlength=f.rows))
        self.columns[column].append(value)

    def _names(self, f: _Piece) -> None:
        for column, name in (("shape line", "Shape"), ("location", "Location")):
            lines = f.lines(name)
            ids = np.full(f.rows, -1, np.int32)
            start = f.value_start(lines, name)
            ids[f.row[lines]] = self.tables[column].ids(f.buffer, f.words, start, f.end[lines])
            self.columns[column].append(ids)
        self.columns["shape at"].append(self._first_line_of_shape(f))

    def _first_line_of_shape(self, f: _Piece) -> NDArray[np.int64]:
        line = np.full(f.rows, -1, np.int64)
        lines = f.lines("Shape")
        line[f.row[lines]] = lines + f.first_line
        return line

    def _flags(self, f: _Piece) -> None:
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
        self.columns["phase"].append(phase)

        recompute = np.zeros(f.rows, bool)
        lines = f.lines("Recompute")
        recompute[f.row[lines]] = [text.strip() == b"true" for text in f.slices(lines, "Recompute")]
        self.columns["recompute"].append(recompute)

        batch = np.full(f.rows, -1, np.int32)
        lines = f.lines("Micro-batch")
        for line, text in zip(lines.tolist(), f.slices(lines, "Micro-batch"), strict=True):
            if text.isdigit() and len(text) < 10:
                batch[f.row[line]] = int(text)
            else:
                self.problem(f.first_line + line, "Micro-batch is not a number")
        self.columns["micro_batch"].append(batch)

    def _texts(self, f: _Piece) -> None:
        for name in _TEXT_FIELDS:
            lines = f.lines(name)
            if len(lines):
                rows = (f.row[lines] + self.rows).tolist()
                self.extra.setdefault(name, {}).update(zip(rows, f.slices(lines, name), strict=True))
        lines = f.lines("Output k")
        for line in lines.tolist():
            label, _, value = f.buffer[f.start[line] + 2 : f.end[line]].partition(b": ")
            self.extra.setdefault(decode(label[:20]), {})[int(f.row[line]) + self.rows] = value

    # ------------------------------------------------------------------ the whole

    def finish(self) -> OpLog:
        """The log, after the last piece."""
        header = self.header
        if header is None:
            raise self._no_log("is empty")
        if not self.recognised and not any((counter >= 0).any() for counter in self.columns["counter"]):
            raise self._no_log("is not an operation log")
        if self.cut_off is not None:
            self.problem(self.lines_read, self.cut_off)
        shape, dtype, shapes, dtypes = self._shapes()
        n = self.rows
        complete: bool | None = None
        if not self.partial:
            promised = self.footer if self.footer is not None else header.declared
            if self.cut_off is not None or (promised is not None and promised > n):
                complete = False
            elif header.format is not None:
                complete = self.footer == n
            elif promised is not None:
                complete = True
        return OpLog(
            path=self.path,
            header=header,
            keys=KeyColumn.of(self.key_text),
            modules=Strings(self.tables["module"].names),
            module=self._column("module", np.int32),
            ops=Strings(self.tables["op"].names),
            op=self._column("op", np.int32),
            counter=self._column("counter", np.int32),
            shapes=shapes,
            shape=shape,
            dtypes=dtypes,
            dtype=dtype,
            locations=Strings(self.tables["location"].names),
            location=self._column("location", np.int32),
            phase=self._column("phase", np.int8),
            present=self._column("present", np.uint8),
            stats=np.concatenate(self.columns["stats"], axis=1) if n else np.zeros((len(STATISTICS), 0)),
            outputs=self._lists("outputs", np.float64),
            inputs=self._lists("inputs", np.float64),
            producers=self._resolved_producers(),
            line=self._column("line", np.int32),
            digests=self._lists("digests", np.uint64),
            input_digests=self._lists("input_digests", np.uint64),
            recompute=self._column("recompute", bool),
            micro_batch=self._column("micro_batch", np.int32),
            extra={name: {row: decode(raw) for row, raw in rows.items()} for name, rows in self.extra.items()},
            problems=tuple(sorted(self.problems, key=lambda problem: problem.line)),
            problem_count=self.problem_count,
            complete=complete,
            partial=self.partial,
        )

    def _column(self, name: str, dtype: Any) -> NDArray[Any]:
        parts = self.columns.pop(name, [])
        return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)

    def _lists(self, name: str, dtype: Any) -> Ragged:
        counts = self._column(f"{name} count", np.int64)
        return Ragged(np.concatenate(([0], np.cumsum(counts))), self._column(name, dtype))

    def _shapes(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Strings, Strings]:
        """Splits the interned `Shape` lines into shapes and dtypes."""
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
        """Producers as rows: the last record of that key before the one that names it."""
        lists = self._lists("producers", np.uint64)
        wanted, owner = lists.value, lists.row
        key = self._column("key", np.uint64)
        rows = np.where(wanted == 0, np.int32(-1), np.int32(-2))
        named = np.flatnonzero(wanted)
        if len(named) and len(key):
            order = np.argsort(key, kind="stable")
            ordered = key[order]
            # rows of one key stand in their order: the last one before the reader
            at = np.searchsorted(ordered, wanted[named], side="right") - 1
            if (ordered[1:] == ordered[:-1]).any():
                at = _last_before(ordered, order, wanted[named], owner[named])
            at = np.maximum(at, 0)
            ok = (ordered[at] == wanted[named]) & (order[at] < owner[named])
            rows[named[ok]] = order[at[ok]]
        return Ragged(lists.start, rows)


def _last_before(key: NDArray[np.uint64], row: Index, wanted: NDArray[np.uint64], before: Index) -> Index:
    """Position of the last row of a wanted key before another row, in columns sorted by key and then by row.

    Positions that are out of range or of another key mean that there is none.
    """
    distinct, first = np.unique(key, return_index=True)
    size = np.diff(np.append(first, len(key)))
    group = np.repeat(np.arange(len(distinct)), size)
    span = np.int64(len(key) + 1)
    of = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    return np.searchsorted(group * span + row, of * span + before) - 1


class _Piece:
    """The lines of one piece, with their fields told apart."""

    def __init__(
        self,
        buffer: bytes,
        text: NDArray[np.uint8],
        words: Words,
        start: Index,
        end: Index,
        row: Index,
        kind: NDArray[np.int8],
        first_line: int,
        rows: int,
    ) -> None:
        self.buffer, self.text, self.words = buffer, text, words
        self.start, self.end, self.row = start, end, row
        self.first_line, self.rows = first_line, rows
        order = np.argsort(kind, kind="stable")
        self._order = order
        self._bounds = np.searchsorted(kind[order], np.arange(len(_FIELDS) + 1))
        self._marks: dict[int, Index] = {}

    def lines(self, name: str) -> Index:
        """Lines of one field, one per record: where a record repeats a field, the first counts."""
        i = _FIELD_ID[name]
        lines = self._order[self._bounds[i] : self._bounds[i + 1]]
        if name != "Output k" and len(lines) > 1:
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

    def tokens(self, lines: Index, name: str, separator: int, keep_empty: bool = False) -> tuple[Index, Index, Index]:
        """Splits the values of a field: (start, end, index into `lines`) of every part, spaces stripped."""
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
        if not keep_empty:
            full = ends > starts
            starts, ends, owner = starts[full], ends[full], owner[full]
        return starts, ends, owner
