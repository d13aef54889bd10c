"""The verbatim text of a record, read again from its log, because columns keep only parsed values.

The text of a record of a compact log is that of the plain log: what references stand for is printed from the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

import numpy as np
from numpy.typing import NDArray

from capture.log_format import COMPACT_FORMAT, UNKNOWN_DIGEST, unpack_json
from matchers.errors import LogError
from matchers.logs.columns import decode
from matchers.logs.imported.folders import open_log
from matchers.logs.imported.format import NATIVE_KEY, Format
from matchers.logs.op_log import COUNTS, NO_DIGEST, STATISTICS, OpLog, Phase
from matchers.logs.source import LogSource

__all__ = ["MEMBERS", "ranks_of", "raw_record"]

_MAX_LINES = 500
"""Maximum number of lines returned: a record that lists each of a thousand tensors on a line may have more."""
_MAX_MEMBERS = 8
MEMBERS = "Members"
"""Field of a log that was merged of ranks: their records, `0:120 1:118`, each a rank and the line of its log."""


def raw_record(log: OpLog, record: int) -> tuple[str, ...]:
    """Return the lines of a record, its key first.

    Of a record that was merged of several ranks those of its members, each after `rank 0  path:line`.

    Reads the file up to the record: up to a second in a large log.

    Raises:
        LogError: the log cannot be read again (it was standard input), or has changed.
    """
    if log.members:
        return tuple(_of_members(log, record))
    from matchers.logs.imported.formats import named  # 30 ms that a comparison need not

    if (form := named(log.header.format)) is not None:
        return _native(form, log, record)
    return _lines(_read(log.path, int(log.line[record])), log, record)


def _native(form: Format, log: OpLog, record: int) -> tuple[str, ...]:
    """The lines of a call as another tool wrote them."""
    try:
        with open_log(log.path) as source:
            found = form.native(source, log.path, int(log.line[record]), log.texts(NATIVE_KEY).get(record, ""))
            lines = tuple(islice(found, _MAX_LINES))
    except OSError as error:
        raise LogError(f"{log.path}: cannot be read again: {error.strerror or error}") from None
    if not lines:
        raise _changed(log.path)
    return lines


def ranks_of(log: OpLog) -> NDArray[np.uint64]:
    """uint64[n]: the ranks of the members of each record, a bit each, the 63rd for all further ones; 0 for no ranks."""
    found = np.zeros(len(log), np.uint64)
    for row, text in log.texts(MEMBERS).items():
        for member in text.split():
            found[row] |= np.uint64(1 << min(int(member.partition(":")[0]), 63))
    return found


def _of_members(log: OpLog, record: int) -> Iterator[str]:
    text = log.texts(MEMBERS).get(record, "")
    if not text:
        raise LogError(f"{log.path}: the record is in no log: it was made of those of several ranks")
    members = [tuple(map(int, member.split(":"))) for member in text.split()]
    for rank, line in members[:_MAX_MEMBERS]:
        yield f"rank {rank}  {log.members[rank]}:{line}"
        lines = _read(log.members[rank], line)
        if not lines or not lines[0].startswith(b"["):
            raise _changed(log.members[rank])
        yield from (decode(line.rstrip()) for line in (lines[0], *takewhile(_is_field, lines[1:])))
    if len(members) > _MAX_MEMBERS:
        yield f"and {len(members) - _MAX_MEMBERS:,} more ranks"


def _read(path: str, line: int) -> list[bytes]:
    """The lines of a log from one on, 1-based."""
    wanted = line - 1
    try:
        with LogSource(path) as source:
            for piece, last in source.pieces():
                ends = piece.count(b"\n")
                if wanted < ends or last:
                    return piece.split(b"\n")[wanted : wanted + _MAX_LINES]
                wanted -= ends
    except OSError as error:
        raise LogError(f"{path}: cannot be read again: {error.strerror or error}") from None
    raise AssertionError("a log has a last piece")


def _is_field(line: bytes) -> bool:
    return bool(line.strip()) and not line.startswith(b"[")


def _lines(lines: list[bytes], log: OpLog, record: int) -> tuple[str, ...]:
    key = log.texts(NATIVE_KEY).raw(record) or log.keys.raw(record)
    if not lines or lines[0].rstrip() != b"[" + key + b"]":
        raise _changed(log.path)
    rest = takewhile(_is_field, lines[1:])
    if log.header.format == COMPACT_FORMAT:
        return (decode(lines[0].rstrip()), *_expanded([line.rstrip(b"\r") for line in rest], log, record))
    return tuple(decode(line.rstrip()) for line in (lines[0], *rest))


_CALL = ("Overload", "Arguments", "Inputs")
"""Fields that a `Call` line stands for."""
_BEFORE = ("Shape", "L2 norm", "Min", "Max", "Mean", "Output hash", "Input hashes", "Input producers", "Location",
    "Phase", *_CALL, "Random", "Read", "Seq", "Digest", "Input digests", "Input statistics", "Counts", "Sketch",
    "Mutated")  # fmt: skip
_AFTER = ("Placement", "Group", "Exchanged", "Rows", "Stack", "Recompute", "Micro-batch", "Parameter", "User hash")
"""Order of the fields in plain logs: before and after `Output k`."""
_ORDER = {name: k - len(_BEFORE) for k, name in enumerate(_BEFORE)} | {name: k + 1 for k, name in enumerate(_AFTER)}


def _expanded(lines: list[bytes], log: OpLog, record: int) -> list[str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.removeprefix(b"  ").partition(b": ")
        if name == b"Like":
            fields |= _shared(log, record, value)
        elif name == b"Out":
            fields |= _output(log, record)
        elif name == b"From":
            fields |= _inputs(log, record, value)
        elif name == b"Call":
            fields |= {text: log.texts(text)[record] for text in _CALL if record in log.texts(text)}
        elif name == b"Named":
            fields["Parameter"] = log.texts("Parameter").get(record, "")
        else:
            fields[decode(name)] = decode(unpack_json(value))
    return [f"  {name}: {fields[name]}".rstrip() for name in sorted(fields, key=lambda name: _ORDER.get(name, 0))]


def _shared(log: OpLog, record: int, value: bytes) -> Iterator[tuple[str, str]]:
    """The fields that a `Like` line stands for."""
    tensor, _, source = value.partition(b" ")
    if tensor != b"-":
        yield "Shape", f"torch.Size({log.shape_text(record)}), Dtype: torch.{log.dtype_text(record)}"
        if (counts := log.counts[:, record])[0] >= 0:
            yield "Counts", " ".join(f"{name}={n}" for name, n in zip(COUNTS, counts.tolist(), strict=True))
        yield from _texts(log, record, "Placement")
    if source != b"-":
        yield "Location", log.location_text(record)
        if (phase := Phase(int(log.phase[record]))) != Phase.FORWARD:
            yield "Phase", phase.label
        yield from _texts(log, record, "Stack")
        if log.recompute[record]:
            yield "Recompute", "true"
        if (batch := int(log.micro_batch[record])) >= 0:
            yield "Micro-batch", str(batch)


def _texts(log: OpLog, record: int, name: str) -> Iterator[tuple[str, str]]:
    if record in log.texts(name):
        yield name, log.texts(name)[record]


def _output(log: OpLog, record: int) -> Iterator[tuple[str, str]]:
    for k, name in enumerate(STATISTICS):
        if log.present[record] >> k & 1:
            yield name, repr(float(log.stats[k, record]))
    yield "Output hash", ", ".join(map(repr, log.outputs[record].tolist()))
    yield "Digest", ", ".join(map(_digest, log.digests[record]))
    yield from _texts(log, record, "Sketch")


def _inputs(log: OpLog, record: int, value: bytes) -> Iterator[tuple[str, str]]:
    yield "Input hashes", ", ".join(map(repr, log.inputs[record].tolist()))
    yield "Input digests", ", ".join(map(_digest, log.input_digests[record]))
    keys = []
    for producer, entry in zip(log.producers[record].tolist(), value.split(b";"), strict=False):
        known = "" if producer == -1 else decode(entry.partition(b" ")[0][1:-1])
        keys.append(log.keys[producer] if producer >= 0 else known)
    yield "Input producers", ";".join(keys)


def _digest(digest: np.uint64) -> str:
    return UNKNOWN_DIGEST if digest == NO_DIGEST else f"{digest:016x}"


def _changed(path: str) -> LogError:
    return LogError(f"{path}: has changed since it was read")
