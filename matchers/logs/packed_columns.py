"""An `OpLog` as sections of bytes, and back.

What comes back has the columns of the log that was packed, or is refused: every index lies within its table, lists
have the lengths that are announced, and producers come before their readers. All that reads columns relies on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capture import log_format
from matchers.arrays import Int64
from matchers.files.cache_folder import Entry, Sections
from matchers.logs.columns import KeyColumn, Ragged, Strings, Texts, TextTable
from matchers.logs.op_log import COUNTS, STATISTICS, Header, OpLog, Phase, Problem

__all__ = ["packed", "structure_digest", "unpacked"]

_TABLES = {"modules": "module", "ops": "op", "shapes": "shape", "dtypes": "dtype", "locations": "location"}
"""Tables of texts, and the columns of indices into them."""
_COLUMNS = {
    **dict.fromkeys(_TABLES.values(), np.int64),
    "counter": np.int32,
    "phase": np.int8,
    "present": np.uint8,
    "line": np.int32,
    "recompute": np.bool_,
    "micro_batch": np.int32,
}
_LISTS = {
    "outputs": np.float64,
    "inputs": np.float64,
    "producers": np.int32,
    "digests": np.uint64,
    "input_digests": np.uint64,
}
_LEAST = {"counter": -1, "micro_batch": -1, "line": 1, "phase": 0}
_MOST = {"phase": max(Phase), "present": (1 << len(STATISTICS)) - 1}


class _Refused(Exception):
    """Raised for sections that are no log."""


def packed(log: OpLog) -> Entry | None:
    """The columns of a log as sections; None for a log that they cannot say (a header of more lines than are kept)."""
    if _header(log.header.lines) != log.header:
        return None
    meta = {
        "records": len(log),
        "lines": log.header.lines,
        "problems": log.problems and [[problem.line, problem.message] for problem in log.problems],
        "problem_count": log.problem_count,
        "complete": log.complete,
        "stated_digest": log.stated_digest,
        "structure": structure_digest(log),
        "texts": list(log.extra),
    }
    return Entry(meta, dict(_sections(log)))


def structure_digest(log: OpLog) -> str:
    """A digest of what does not depend on numbers: the operations in their order, phases, shapes and data flow."""
    digest = hashlib.sha256(log.keys.blob)
    for values in (log.phase, log.producers.start, log.producers.value):
        digest.update(_bytes(values))
    for table, index in ((log.shapes, log.shape), (log.dtypes, log.dtype)):
        digest.update(b"\n".join(table.raw))
        digest.update(_bytes(index))
    return digest.hexdigest()


def unpacked(entry: Entry, path: str) -> OpLog | None:
    """The log of an entry, as if read from `path`; None if its sections are no log's."""
    try:
        return _Unpacking(entry).log(path)
    except (_Refused, KeyError, TypeError, ValueError, OverflowError):
        return None


def _header(lines: Sequence[str]) -> Header:
    parsed = log_format.parse_header(lines)
    return Header(parsed.declared, parsed.excluded, parsed.format, parsed.run, tuple(lines))


def _sections(log: OpLog) -> Iterator[tuple[str, bytes | memoryview]]:
    yield "keys", log.keys.blob
    for name in _COLUMNS:
        yield name, _bytes(getattr(log, name))
    for name in _TABLES:
        yield from _texts(name, getattr(log, name).raw)
    yield "stats", _bytes(log.stats)
    if (log.counts >= 0).any():
        yield "counts", _bytes(log.counts)
    for name in _LISTS:
        lists: Ragged = getattr(log, name)
        if len(lists.value):
            yield f"{name} count", _bytes(lists.count.astype(np.int32))
            yield name, _bytes(lists.value)
    for name, texts in log.extra.items():
        ids, table = texts.in_use()
        yield f"text {name} row", _bytes(texts.rows)
        yield f"text {name} id", _bytes(ids)
        yield f"text {name}", table.blob


def _bytes(values: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _texts(name: str, raw: Sequence[bytes]) -> Iterator[tuple[str, bytes | memoryview]]:
    yield name, b"".join(raw)
    yield f"{name} size", _bytes(np.array([len(text) for text in raw], np.int64))


class _Unpacking:
    def __init__(self, entry: Entry) -> None:
        self.meta: Mapping[str, Any] = entry.meta
        self.sections: Sections = entry.sections
        self.n = self._number("records")

    def log(self, path: str) -> OpLog:
        keys = KeyColumn(bytes(self.sections["keys"]))
        _require(len(keys) == self.n and keys.start[-1] == len(keys.blob))
        columns = {name: self._column(name, dtype) for name, dtype in _COLUMNS.items()}
        tables = {name: self._texts(name) for name in _TABLES}
        for name, column in _TABLES.items():
            _require(_within(columns[column], -1, len(tables[name]) - 1))
        lists = {name: self._lists(name, dtype) for name, dtype in _LISTS.items()}
        producers = lists["producers"]
        _require(_within(producers.value, -2) and bool((producers.value < producers.row).all()))
        counts = np.broadcast_to(np.int64(-1), (len(COUNTS), self.n))
        if "counts" in self.sections:
            counts = self._array("counts", np.int64, len(COUNTS) * self.n).reshape(len(COUNTS), self.n)
        _require(_within(counts, -1))
        complete = self.meta["complete"]
        _require(complete is None or isinstance(complete, bool))
        return OpLog(
            path=path,
            header=_header([_text(line) for line in self.meta["lines"]]),
            keys=keys,
            **{name: Strings(table) for name, table in tables.items()},  # type: ignore[arg-type] # by the names of fields
            **columns,  # type: ignore[arg-type] # as above
            **lists,  # type: ignore[arg-type] # as above
            stats=self._array("stats", np.float64, len(STATISTICS) * self.n).reshape(len(STATISTICS), self.n),
            counts=counts,
            extra={_text(name): self._field(name) for name in self.meta["texts"]},
            problems=tuple(Problem(int(line), _text(message)) for line, message in self.meta["problems"]),
            problem_count=self._number("problem_count"),
            complete=complete,
            stated_digest=_text(self.meta["stated_digest"]),
        )

    def _number(self, name: str) -> int:
        number = self.meta[name]
        _require(isinstance(number, int) and number >= 0)
        return int(number)

    def _array(self, name: str, dtype: Any, size: int) -> NDArray[Any]:
        values = np.frombuffer(self.sections[name], dtype)
        _require(len(values) == size)
        return values

    def _column(self, name: str, dtype: Any) -> NDArray[Any]:
        if dtype is np.bool_:  # any byte but 0 and 1 would be a third truth
            _require(_within(self._array(name, np.uint8, self.n), 0, 1))
        values = self._array(name, dtype, self.n)
        _require(_within(values, _LEAST.get(name), _MOST.get(name)))
        return values

    def _lists(self, name: str, dtype: Any) -> Ragged:
        start = np.zeros(self.n + 1, np.int64)
        if name not in self.sections:
            return Ragged(start, np.zeros(0, dtype))
        count = self._array(f"{name} count", np.int32, self.n)
        _require(_within(count, 0))
        np.cumsum(count, out=start[1:])
        return Ragged(start, self._array(name, dtype, int(start[-1])))

    def _texts(self, name: str) -> list[bytes]:
        blob, sizes = bytes(self.sections[name]), np.frombuffer(self.sections[f"{name} size"], np.int64)
        _require(_within(sizes, 0, len(blob)) and int(sizes.sum()) == len(blob))
        ends = np.cumsum(sizes).tolist()
        return [blob[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _field(self, name: str) -> Texts:
        table = KeyColumn(bytes(self.sections[f"text {name}"]))
        rows = np.frombuffer(self.sections[f"text {name} row"], np.int32)
        ids = self._array(f"text {name} id", np.int32, len(rows))
        _require(_within(rows, 0, self.n - 1) and bool((rows[1:] > rows[:-1]).all()))
        _require(table.start[-1] == len(table.blob) and _within(ids, 0, len(table) - 1))
        return Texts(rows, ids, TextTable(table.blob, table.start))


def _require(holds: bool) -> None:
    if not holds:
        raise _Refused


def _text(value: object) -> str:
    _require(isinstance(value, str))
    return str(value)


def _within(values: NDArray[Any] | Int64, least: int | None = None, most: int | None = None) -> bool:
    if not values.size:
        return True
    return (least is None or int(values.min()) >= least) and (most is None or int(values.max()) <= most)
