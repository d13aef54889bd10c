"""Records of several logs, one after the other, as one log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from matchers.arrays import Int64
from matchers.logs.columns import KeyColumn, Ragged, Strings, Texts
from matchers.logs.op_log import OpLog

__all__ = ["Piece", "joined"]

_TABLES = {"modules": "module", "ops": "op", "shapes": "shape", "dtypes": "dtype", "locations": "location"}


class Piece(NamedTuple):
    """Some records of a log, and the micro-batch that they are; -1 for none, None for those of the log.

    `source` is the number of its rank.
    """

    log: OpLog
    rows: Int64
    batch: int | None
    source: int


def joined(like: OpLog, pieces: Sequence[Piece], places: Sequence[Int64] = ()) -> OpLog:
    """Some rows of several logs, one after the other, as one log.

    What a piece reads that it lacks, one before it of the same rank has.

    Args:
        places: by piece, int64[rows of its log], the row of the joined log for each of its log, -1 for none.
    """
    columns: dict[str, Any] = {}
    for table, index in _TABLES.items():
        number: dict[bytes, int] = {}
        parts = []
        for log, rows, _, _ in pieces:
            ids = np.array([number.setdefault(raw, len(number)) for raw in getattr(log, table).raw] + [-1])
            parts.append(ids[getattr(log, index)[rows]])
        columns[table], columns[index] = Strings(tuple(number)), np.concatenate(parts)
    for name in ("counter", "phase", "present", "recompute"):
        columns[name] = np.concatenate([getattr(log, name)[rows] for log, rows, _, _ in pieces])
    for name in ("stats", "counts"):
        columns[name] = np.concatenate([getattr(log, name)[:, rows] for log, rows, _, _ in pieces], axis=1)
    # one path is kept, that of the last piece: the lines of others are not in that file
    columns["line"] = np.concatenate(
        [log.line[rows] if log.path == like.path else np.zeros(len(rows), np.int32) for log, rows, _, _ in pieces]
    )
    columns["micro_batch"] = np.concatenate(
        [
            log.micro_batch[rows] if batch is None else np.full(len(rows), batch, np.int32)
            for log, rows, batch, _ in pieces
        ]
    )
    places = places or _places(pieces)
    for name in ("outputs", "inputs", "digests", "input_digests"):
        columns[name] = _lists([getattr(log, name).taken(rows) for log, rows, _, _ in pieces])
    columns["producers"] = _lists(
        [_moved(log.producers.taken(rows), place) for (log, rows, _, _), place in zip(pieces, places, strict=True)]
    )
    columns["keys"] = KeyColumn(b"".join(log.keys.raw(int(row)) + b"\n" for log, rows, _, _ in pieces for row in rows))
    names = dict.fromkeys(name for log, _, _, _ in pieces for name in log.extra)
    columns["extra"] = {name: _texts(name, pieces) for name in names}
    return replace(like, header=replace(like.header, declared=None), **columns)


def _places(pieces: Sequence[Piece]) -> list[Int64]:
    """By piece, int64[n + 1]: the row of the joined log for each of its log; -1 for none, also at its end."""
    of_source: dict[int, Int64] = {}
    out: list[Int64] = []
    start = 0
    for log, rows, _, source in pieces:
        before = of_source.get(source, np.zeros(0, np.int64))
        place = np.append(before, np.full(max(len(log) + 1 - len(before), 0), -1))
        place[rows[::-1]] = (start + np.arange(len(rows)))[::-1]  # of doubles the first
        of_source[source] = place
        out.append(place)
        start += len(rows)
    return out


def _moved(producers: Ragged, place: Int64) -> Ragged:
    known = producers.value >= 0
    value = producers.value.copy()
    value[known] = place[producers.value[known]]
    return Ragged(producers.start, value)


def _lists(parts: Sequence[Ragged]) -> Ragged:
    count = np.concatenate([part.count for part in parts])
    return Ragged(np.cumsum(np.append(0, count)), np.concatenate([part.value for part in parts]))


def _texts(name: str, pieces: Sequence[Piece]) -> Texts:
    found: dict[int, bytes] = {}
    start = 0
    for log, rows, _, _ in pieces:
        texts = log.texts(name)
        if texts:
            found |= {start + k: texts.raw(row) for k, row in enumerate(rows.tolist()) if row in texts}
        start += len(rows)
    return Texts.of(found)
