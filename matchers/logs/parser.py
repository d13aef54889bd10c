"""Read a log into columns: its header and its end here, its records by one of two readers.

`CompiledReader` reads them fast, `PlainReader` where that cannot be had; both give the same. An unreadable line costs
only itself: it is counted and reported with its number. A file is refused only if it has neither a header nor a single
record.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from capture import log_format
from matchers.arrays import Int64
from matchers.errors import LogError
from matchers.logs.columns import Strings, Texts, decode
from matchers.logs.compiled_reader import CompiledReader
from matchers.logs.file_identity import Content
from matchers.logs.imported.folders import Source, open_log
from matchers.logs.named import parameters
from matchers.logs.op_log import Header, OpLog, Problem
from matchers.logs.reader_library import library
from matchers.logs.records import MAX_PROBLEMS, RecordReader, Records, Start, refuse_excess
from matchers.logs.source import LogSource

__all__ = ["read_log"]

Progress = Callable[[str, float], None]
_COUNT = log_format.COUNT.encode()

_MAX_HEADER = 4 << 20
"""A header is a few lines; a file with no record in its first four megabytes is not a log."""


def record_reader(start: Start) -> RecordReader:
    """Return the reader of records that is in use."""
    if library()[0] is not None:
        return CompiledReader(start)
    from matchers.logs.plain_reader import PlainReader

    return PlainReader(start)


def read_log(
    source: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    head: int | None = None,
    content: Content | None = None,
    step: int | None = None,
) -> OpLog:
    """Read a log from a path, a path ending in `.gz`, or `-` for standard input.

    Args:
        progress: called with ("reading", fraction) now and then; the fraction is 0 if the size is unknown.
        head: read only about this many bytes; the result is then marked `partial`.
        content: takes the digest of the file's bytes; the log has it too, then.
        step: read only this one, of a file of another tool that has several.

    Raises:
        LogError: the file is missing, unreadable, or not a log.
    """
    path = os.fspath(source)
    builder = _Builder("standard input" if path == "-" else path, partial=head is not None)
    imported: OpLog | None = None
    try:
        with open_log(path, content) as log:
            imported = _imported(log, builder.path, head, progress, step)
            if imported is None and isinstance(log, LogSource):
                for piece, last in log.pieces(head):
                    builder.add(piece, last)
                    if progress is not None:
                        progress("reading", log.fraction())
            builder.cut_off = log.cut_off
    except OSError as error:
        # an invalid gzip file raises OSError too
        raise LogError(f"{builder.path}: cannot be read: {error.strerror or error}") from None
    digest = "" if content is None else content.digest
    return builder.finish(digest) if imported is None else replace(imported, content=digest)


def _imported(log: Source, path: str, head: int | None, progress: Progress | None, step: int | None) -> OpLog | None:
    """The log of another tool; None for our own logs, and torchtitan's."""
    if (start := log.start()).startswith(_COUNT):
        return None
    from matchers.logs.imported.formats import read_imported, recognised  # 30 ms that most logs need not

    form = recognised(start)
    return None if form is None else read_imported(form, log, path, head, progress, step)


class _Builder:
    """One log, collected piece by piece."""

    def __init__(self, path: str, partial: bool) -> None:
        self.path = path
        self.partial = partial
        self.cut_off: str | None = None
        self.header: Header | None = None
        self.recognised = False
        self.reader: RecordReader | None = None
        self.problems: list[Problem] = []
        self.footer: log_format.Footer | None = None
        self.digests = hashlib.sha256()
        self.ends_with_piece = False
        """The last piece was read to its end, which has records."""
        self.cut_key = False
        """The log ends within the key of a record."""
        self.size = 0
        """Bytes of records."""

    def add(self, piece: bytes, last: bool) -> None:
        """Read the records of one piece; the first piece also holds the header."""
        if self.reader is None:
            piece, self.reader = self._take_header(piece)
        cut = _cut_key(piece) if last else 0
        self.cut_key = cut > 0
        piece = piece[: len(piece) - cut]
        if piece:
            self.digests.update(self.reader.add(piece, last and not cut))
            self.size += len(piece)
            refuse_excess(self.path, self.reader.contents(), self.size)
        self.ends_with_piece = last and bool(piece) and not cut

    def _take_header(self, piece: bytes) -> tuple[bytes, RecordReader]:
        """Read the header at the start of the first piece and return the rest, and the reader of it."""
        piece = piece.removeprefix(b"\xef\xbb\xbf")
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
        for at, message in parsed.problems:
            self._problem(at + 1, message)
        for line in lines[above + 1 :]:
            self._take_footer(line)
        count = piece.count(b"\n", 0, size) + (0 < size == len(piece) and not piece.endswith(b"\n"))
        compact = parsed.format == log_format.COMPACT_FORMAT
        return piece[size:], record_reader(Start(count, ours=parsed.format is not None, compact=compact))

    def _no_log(self, what: str) -> LogError:
        return LogError(
            f"{self.path}:1: {what}: expected a line 'Total captured activations: N', or records '[module/op_N_name]'"
        )

    def _take_footer(self, line: str) -> None:
        self.footer = log_format.parse_footer(line) or self.footer

    def _problem(self, line: int, message: str) -> None:
        self.problems.append(Problem(line, message))

    # ------------------------------------------------------------------ the whole

    def finish(self, content: str) -> OpLog:
        """Return the log after the last piece; `content` is the digest of its file."""
        header = self.header
        if header is None or self.reader is None:
            raise self._no_log("is empty")
        records = self.reader.finish()
        if not self.recognised and not (records.columns["counter"] >= 0).any():
            raise self._no_log("is not an operation log")
        for _, line in records.outside:
            self._take_footer(decode(line))
        ends_within = self._check_end(records)
        texts = self._texts(records, header)
        shape, dtype, shapes, dtypes = _shapes(records)
        columns = {name: column for name, column in records.columns.items() if name != "shape"}
        columns |= {name: columns[name].astype(np.int64) for name in ("module", "op", "location")}
        found = [Problem(line, message) for line, message in records.problems]
        return OpLog(
            path=self.path,
            header=header,
            keys=records.keys,
            modules=Strings(records.tables["modules"]),
            ops=Strings(records.tables["ops"]),
            shapes=shapes,
            shape=shape,
            dtypes=dtypes,
            dtype=dtype,
            locations=Strings(records.tables["locations"]),
            stats=records.stats,
            counts=records.counts,
            extra=texts,
            problems=tuple(sorted(self.problems + found, key=lambda problem: problem.line)[:MAX_PROBLEMS]),
            problem_count=len(self.problems) + records.problem_count,
            complete=self._complete(header, len(records.keys), ends_within),
            partial=self.partial,
            stated_digest="" if self.footer is None else self.footer.digest,
            content=content,
            **columns,  # type: ignore[arg-type] # by the names of fields
            **records.lists,  # type: ignore[arg-type] # as above
        )

    def _check_end(self, records: Records) -> bool:
        """Report what is wrong with the end; True for a log that ends within a line or a record."""
        rows, footer, last = len(records.keys), self.footer, records.lines
        if self.cut_key:
            self._problem(last + 1, "the log ends within the key of a record")
        # a log without blank lines between its records needs none at its end
        lacks_blank = rows > 1 and records.blank_before_last and footer is None and not records.ends_blank
        within = self.ends_with_piece and not self.partial and (records.open or lacks_blank)
        if within:
            what = "" if footer is not None else "within its last record, "
            lacks = "a line end" if records.open else "the blank line after it"
            self._problem(last, f"the log ends {what}without {lacks}")
        last += self.cut_key
        if self.cut_off is not None:
            self._problem(last, self.cut_off)
        stated = footer.digest if footer is not None and footer.records == rows and not self.partial else ""
        if stated and stated != self.digests.hexdigest()[:16]:
            self._problem(last, "the digest in the footer does not match the records: the log was changed")
        return within or self.cut_key

    def _complete(self, header: Header, rows: int, ends_within: bool) -> bool | None:
        if self.partial:
            return None
        promised = header.declared if self.footer is None else self.footer.records
        short = promised is not None and promised > rows
        if self.cut_off is not None or ends_within or header.incomplete or short:
            return False
        if header.format is not None:
            return self.footer is not None and self.footer.records == rows
        return None if promised is None else True

    def _texts(self, records: Records, header: Header) -> Mapping[str, Texts]:
        """The further fields; those of compact logs as plain logs have them."""
        texts = dict(records.texts)
        if header.format != log_format.COMPACT_FORMAT:
            return texts
        named = texts.pop("Named", None)
        if named is not None:
            written, unknown = parameters(named, texts.get("Parameter"), header.run)
            for row in unknown:
                line = int(records.columns["line"][row])
                self._problem(line, "Named has a number that is no parameter of the run info")
            if written:
                texts["Parameter"] = written
        return {
            name: text.with_unpack(log_format.unpack_json) if _is_packed(name) else text for name, text in texts.items()
        }


def _is_packed(name: str) -> bool:
    """True for a field that is packed JSON in compact logs."""
    return name in ("Mutated", "Group", "Exchanged") or name.startswith("Output ")


def _shapes(records: Records) -> tuple[Int64, Int64, Strings, Strings]:
    """Split the values of `Shape` lines into shapes and dtypes."""
    shapes: dict[bytes, int] = {}
    dtypes: dict[bytes, int] = {}
    pairs = [log_format.parse_shape(decode(line)) for line in records.tables["shapes"]]
    to_shape = [shapes.setdefault(pair[0].encode(), len(shapes)) if pair else -1 for pair in pairs]
    to_dtype = [dtypes.setdefault(pair[1].encode(), len(dtypes)) if pair else -1 for pair in pairs]
    # the last entry serves the index -1, "no shape"
    line = records.columns["shape"]
    shape, dtype = (np.array([*ids, -1], np.int64)[line] for ids in (to_shape, to_dtype))
    return shape, dtype, Strings(tuple(shapes)), Strings(tuple(dtypes))


def _cut_key(piece: bytes) -> int:
    """Length of an incomplete key at the end of a log; what is left of it names no operation."""
    start = piece.rfind(b"\n") + 1
    cut = piece.startswith(b"[", start) and not piece[start:].rstrip(b"\r").endswith(b"]")
    return len(piece) - start if cut else 0
