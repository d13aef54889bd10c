"""The slow, obvious way to read a log: line by line, one dictionary-like record after the other.

What `matchers.logs.parser` must agree with (see `test_parser.py`). It knows nothing of pieces, columns or interning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from capture import log_format
from matchers.logs.op_log import NO_DIGEST, STATISTICS, OpLog, Phase

__all__ = ["PlainLog", "Record", "problems_of", "read_plainly", "records_of"]

_COUNTED = re.compile(r"(\d{1,7})_(.*)", re.ASCII | re.DOTALL)
_COUNTS = re.compile(r"numel=(\d{1,18}) nan=(\d{1,18}) inf=(\d{1,18}) zero=(\d{1,18})", re.ASCII)


@dataclass
class Record:
    """One record as a person reads it. NaN and None: the log does not say, or not in a form that can be read."""

    line: int
    key: str
    module: str
    op: str
    counter: int
    shape: str = ""
    dtype: str = ""
    statistics: dict[str, str] = field(default_factory=dict)
    """`repr` of each, so that NaN equals NaN."""
    outputs: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    producers: list[int] = field(default_factory=list)
    location: str = ""
    phase: Phase = Phase.FORWARD
    digests: list[int] = field(default_factory=list)
    input_digests: list[int] = field(default_factory=list)
    recompute: bool = False
    micro_batch: int = -1
    counts: list[int] = field(default_factory=lambda: [-1] * 4)
    extra: dict[str, str] = field(default_factory=dict)


@dataclass
class PlainLog:
    """The records, the header's lines, and what could not be read: (line, message)."""

    records: list[Record]
    header: list[str]
    problems: list[tuple[int, str]]
    footer: int | None
    seq: int = -1
    """Number of the last record that has one."""


def read_plainly(text: str) -> PlainLog:
    """Reads the text of a log that has a header, a line of `=`, or records."""
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    cut = lines.pop() if lines[-1].startswith("[") and not lines[-1].endswith("]") else ""
    if lines and lines[-1] == "":
        lines.pop()
    first = next((at for at, line in enumerate(lines) if line.startswith("[")), len(lines))
    separator = next((at for at, line in enumerate(lines[:first]) if line.startswith("====")), first)
    log = PlainLog([], lines[:separator], [], None)
    for at, message in log_format.parse_header(log.header).problems:
        log.problems.append((at + 1, message))
    for line in lines[separator:first]:
        log.footer = _footer(line, log.footer)
    keys: dict[str, int] = {}
    seen: set[str] = set()
    for number, line in enumerate(lines[first:], first + 1):
        if line.startswith("["):
            if log.records:
                keys[log.records[-1].key] = len(log.records) - 1
            log.records.append(_start(line, number, log))
            seen = set()
        elif line.strip():
            name = _field_name(line)
            if name is None:
                log.footer = _footer(line, log.footer)
                _unknown_line(line, number, log)
            elif name not in seen:
                seen.add(name)
                _read_field(name, line, number, log, keys)
    if cut:
        log.problems.append((len(lines) + 1, "the log ends within the key of a record"))
    return log


def _footer(line: str, before: int | None) -> int | None:
    found = log_format.parse_footer(line)
    return before if found is None else found.records


def _start(line: str, number: int, log: PlainLog) -> Record:
    if line.endswith("]") and len(line) > 1:
        key = line[1:-1]
    else:
        key = line[1:]
        log.problems.append((number, "the record's key has no closing ']'"))
    module, _, rest = key.rpartition("/op_")
    found = _COUNTED.fullmatch(rest)
    if found and "/op_" in key:
        return Record(number, key, module, found[2], int(found[1]))
    module, _, op = key.rpartition("/")
    return Record(number, key, module, op, -1)


def _field_name(line: str) -> str | None:
    """The name of the field that a line holds; None for a line that is no field we know."""
    name, colon, _ = line[2:].partition(":")
    known = name in log_format.FIELDS or re.fullmatch(r"Output \d+", name, re.ASCII)
    return name if line.startswith("  ") and colon and known else None


def _unknown_line(line: str, number: int, log: PlainLog) -> None:
    later_version = line.startswith("  ") and line[2:3] != " " and ": " in line[:40]
    ours = line.startswith((log_format.FOOTER, "Digest of all records", "===="))
    if not later_version and not ours:
        log.problems.append((number, "not a field of a record"))


def _read_field(name: str, line: str, number: int, log: PlainLog, keys: dict[str, int]) -> None:
    record = log.records[-1]
    value = line[len(f"  {name}: ") :]

    def broken(message: str) -> None:
        log.problems.append((number, message))

    if name == "Shape":
        parsed = log_format.parse_shape(value)
        if parsed is None:
            broken("Shape is not of the form 'torch.Size([2, 3]), Dtype: torch.float32'")
        else:
            record.shape, record.dtype = parsed
    elif name in STATISTICS:
        try:
            record.statistics[name] = _number(value)
        except ValueError:
            broken(f"{name} is not a number")
    elif name in ("Output hash", "Input hashes"):
        into = record.outputs if name == "Output hash" else record.inputs
        for part in _parts(value, ","):
            try:
                into.append(_number(part))
            except ValueError:
                into.append("nan")
                broken(f"{name} is not a number")
    elif name in ("Digest", "Input digests"):
        into_digests = record.digests if name == "Digest" else record.input_digests
        for part in _parts(value, ","):
            try:
                into_digests.append(int(NO_DIGEST) if part == log_format.UNKNOWN_DIGEST else int(part, 16))
            except ValueError:
                into_digests.append(int(NO_DIGEST))
                broken(f"{name} is not hexadecimal")
    elif name == "Input producers":
        for part in _parts(value, ";"):
            record.producers.append(keys.get(part, -2) if part else -1)
    elif name == "Location":
        record.location = value
    elif name == "Phase":
        try:
            record.phase = Phase[value.strip().upper()]
        except KeyError:
            record.phase = Phase.OTHER
            broken("unknown phase")
    elif name == "Recompute":
        record.recompute = value.strip() == "true"
    elif name == "Micro-batch":
        if re.fullmatch(r"\d{1,9}", value, re.ASCII):
            record.micro_batch = int(value)
        else:
            broken("Micro-batch is not a number")
    elif name == "Counts":
        found = _COUNTS.fullmatch(value)
        if found:
            record.counts = [int(number) for number in found.groups()]
        else:
            broken("Counts is not of the form 'numel=4 nan=0 inf=0 zero=1'")
    elif name == "Seq":
        if not re.fullmatch(r"\d{1,15}", value, re.ASCII):
            broken("Seq is not a number")
            return
        if int(value) <= log.seq:
            broken(f"record {value} follows record {log.seq}")
        elif int(value) == log.seq + 2:
            broken(f"record {log.seq + 1} is missing")
        elif int(value) > log.seq + 2:
            broken(f"records {log.seq + 1}–{int(value) - 1} are missing")
        log.seq = int(value)
    else:
        record.extra[name] = value


def _parts(value: str, separator: str) -> list[str]:
    return [part.removeprefix(" ") for part in value.split(separator)]


def _number(text: str) -> str:
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return _shown(float(text))


def _shown(value: float) -> str:
    return "nan" if math.isnan(value) else repr(value)


def records_of(log: OpLog) -> list[Record]:
    """The columns of a log as the plain reader's records."""
    every = []
    for row in range(len(log)):
        present = int(log.present[row])
        stats = {name: _shown(float(log.stats[k, row])) for k, name in enumerate(STATISTICS) if present >> k & 1}
        absent = [k for k in range(len(STATISTICS)) if not present >> k & 1]
        assert np.isnan(log.stats[absent, row]).all()
        every.append(
            Record(
                line=int(log.line[row]),
                key=log.keys[row],
                module=log.module_name(row),
                op=log.op_name(row),
                counter=int(log.counter[row]),
                shape=log.shape_text(row),
                dtype=log.dtype_text(row),
                statistics=stats,
                outputs=_all_shown(log.outputs[row].tolist()),
                inputs=_all_shown(log.inputs[row].tolist()),
                producers=log.producers[row].tolist(),
                location=log.location_text(row),
                phase=Phase(log.phase[row]),
                digests=log.digests[row].tolist(),
                input_digests=log.input_digests[row].tolist(),
                recompute=bool(log.recompute[row]),
                micro_batch=int(log.micro_batch[row]),
                counts=log.counts[:, row].tolist(),
                extra={name: rows[row] for name, rows in log.extra.items() if row in rows},
            )
        )
    return every


def problems_of(log: OpLog) -> list[tuple[int, str]]:
    """What could not be read, in an order that two readers share."""
    return sorted((problem.line, problem.message) for problem in log.problems)


def _all_shown(values: Sequence[float]) -> list[str]:
    return [_shown(value) for value in values]
