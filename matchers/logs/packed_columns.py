"""An `OpLog` as sections of bytes, and back.

That the bytes are those that were packed, by this code, is for the cache to know (`cache.py`): nothing is checked here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capture import log_format
from matchers.files.cache_folder import Entry
from matchers.logs.columns import KeyColumn, Ragged, Strings, Texts, TextTable
from matchers.logs.op_log import COUNTS, Header, OpLog, Problem

__all__ = ["packed", "structure_digest", "unpacked"]


def packed(log: OpLog) -> Entry | None:
    """The columns of a log as sections; None for a log that they cannot say (a header of more lines than are kept)."""
    if _header(log.header.lines) != log.header:
        return None
    parts = list(_parts(log))
    arrays = {name: part for name, part in parts if isinstance(part, np.ndarray)}
    meta = {
        "records": len(log),
        "lines": log.header.lines,
        "problems": log.problems and [[problem.line, problem.message] for problem in log.problems],
        "problem_count": log.problem_count,
        "complete": log.complete,
        "stated_digest": log.stated_digest,
        "structure": structure_digest(log),
        "texts": list(log.extra),
        "arrays": {name: [part.dtype.str, part.shape] for name, part in arrays.items()},
    }
    return Entry(meta, {name: _bytes(part) if isinstance(part, np.ndarray) else part for name, part in parts})


def structure_digest(log: OpLog) -> str:
    """A digest of what does not depend on numbers: the operations in their order, phases, shapes and data flow."""
    digest = hashlib.sha256(log.keys.blob)
    for values in (log.phase, log.producers.start, log.producers.value):
        digest.update(_bytes(values))
    for table, index in ((log.shapes, log.shape), (log.dtypes, log.dtype)):
        digest.update(b"\n".join(table.raw))
        digest.update(_bytes(index))
    return digest.hexdigest()


def _header(lines: Sequence[str]) -> Header:
    parsed = log_format.parse_header(lines)
    return Header(parsed.declared, parsed.excluded, parsed.format, parsed.run, tuple(lines))


def _bytes(values: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _parts(log: OpLog) -> Iterator[tuple[str, bytes | NDArray[Any]]]:
    """The arrays that the fields of a log consist of; the rest is in `meta`."""
    for name in (field.name for field in fields(log)):
        value = getattr(log, name)
        if isinstance(value, KeyColumn):
            yield name, value.blob
        elif isinstance(value, Strings):
            yield name, b"".join(value.raw)
            yield f"{name} size", np.array([len(text) for text in value.raw], np.int64)
        elif isinstance(value, Ragged):
            yield name, value.value
            if len(value.value):
                yield f"{name} count", value.count.astype(np.int32)
        elif isinstance(value, np.ndarray) and not (name == "counts" and (value < 0).all()):
            yield name, value
    for name, texts in log.extra.items():
        ids, table = texts.in_use()
        yield f"text {name}", table.blob
        yield f"text {name} row", texts.rows
        yield f"text {name} id", ids


def unpacked(entry: Entry, path: str) -> OpLog:
    """The log of an entry, as if read from `path`."""
    meta, sections = entry.meta, entry.sections
    columns: dict[str, Any] = {
        name: np.frombuffer(sections[name], dtype).reshape(shape) for name, (dtype, shape) in meta["arrays"].items()
    }
    columns.setdefault("counts", np.broadcast_to(np.int64(-1), (len(COUNTS), meta["records"])))
    texts = {}
    for name in meta["texts"]:
        rows, ids = columns.pop(f"text {name} row"), columns.pop(f"text {name} id")
        texts[name] = Texts(rows, ids, TextTable(bytes(sections[f"text {name}"])))
    for name in ("outputs", "inputs", "producers", "digests", "input_digests"):
        start = np.zeros(meta["records"] + 1, np.int64)
        if f"{name} count" in columns:
            np.cumsum(columns.pop(f"{name} count"), out=start[1:])
        columns[name] = Ragged(start, columns[name])
    for name in ("modules", "ops", "shapes", "dtypes", "locations"):
        blob, ends = bytes(sections[name]), np.cumsum(columns.pop(f"{name} size")).tolist()
        columns[name] = Strings([blob[start:end] for start, end in zip([0, *ends], ends, strict=False)])
    return OpLog(
        path=path,
        header=_header(meta["lines"]),
        keys=KeyColumn(bytes(sections["keys"])),
        extra=texts,
        problems=tuple(Problem(line, message) for line, message in meta["problems"]),
        problem_count=meta["problem_count"],
        complete=meta["complete"],
        stated_digest=meta["stated_digest"],
        **columns,
    )
