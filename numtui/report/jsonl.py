"""JSON Lines: one object per row of the comparison, in the order of the screen. docs/jsonl.md is the reference.

Whatever can be is made once per distinct value instead of once per row: most of a row (status, method, role, phase,
location, shapes) is one of a few thousand combinations. What is left per row is one `%` on seven strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii as json_string
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from matchers.comparison import Comparison
from matchers.op_log import IntArray, OpLog, Phase
from matchers.pairing import Method
from matchers.status import Role, Status

__all__ = ["write_jsonl"]

Texts = NDArray[np.object_]
"""JSON fragments (`str`), one per row."""

_CHUNK = 4096
_LINE = '{"a":%s,"b":%s,"a_key":%s,"b_key":%s,%s,"error":%s,%s}\n'
_NEEDS_ESCAPE = re.compile(r"[^ !#-\[\]-~]")
_CONFIDENCE_STEPS = 1000
"""Confidence is written to three decimals: more would be noise, and would differ between machines."""


def write_jsonl(c: Comparison, out: TextIO) -> None:
    """Write every row of `c`. The text is pure ASCII, so no byte of a log reaches a terminal as it was."""
    if len(c) == 0:
        return
    columns = (*_positions(c), _verdict(c), _errors(c), _place(c))
    for start in range(0, len(c), _CHUNK):
        parts = [column[start : start + _CHUNK].tolist() for column in columns]
        out.write("".join([_LINE % row for row in zip(*parts, strict=True)]))


def _positions(c: Comparison) -> tuple[Texts, Texts, Texts, Texts]:
    """The columns `a`, `b`, `a_key`, `b_key`."""
    keys_a, keys_b = _keys(c.a), _keys(c.b)
    numbers = _objects(list(map(str, range(max(len(c.a), len(c.b))))))
    a, b = _pick(numbers, c.row_a), _pick(numbers, c.row_b)
    a_key, b_key = _pick(keys_a, c.row_a), _pick(keys_b, c.row_b)
    if c.pairing.grouped.any():
        grouped = np.flatnonzero((c.pair >= 0) & c.pairing.grouped[c.pair])
        for of_side, position, key, keys in ((c.pairing.of_a, a, a_key, keys_a), (c.pairing.of_b, b, b_key, keys_b)):
            members = _members(of_side, c.pair[grouped])
            for row, records in zip(grouped.tolist(), members, strict=True):
                if len(records) > 1:
                    position[row] = f"[{','.join(map(str, records))}]"
                    key[row] = f"[{','.join(keys[r] for r in records)}]"
    return a, b, a_key, b_key


def _members(pair_of: IntArray, pairs: IntArray) -> list[list[int]]:
    """The records of each of `pairs` on one side, ascending; `pair_of` is the pair of each record."""
    order = np.argsort(pair_of, kind="stable")
    in_order = pair_of[order]
    first, last = np.searchsorted(in_order, pairs, "left"), np.searchsorted(in_order, pairs, "right")
    return [order[i:j].tolist() for i, j in zip(first.tolist(), last.tolist(), strict=True)]


def _verdict(c: Comparison) -> Texts:
    """`status`, `method`, `confidence`, as one fragment per distinct combination."""
    paired = c.pair >= 0
    at = np.where(paired, c.pair, 0)
    method, step = np.zeros(len(c), np.int64), np.zeros(len(c), np.int64)
    if len(c.pairing):
        method[paired] = c.pairing.method[at][paired]
        confidence = np.nan_to_num(c.pairing.confidence[at][paired].astype(np.float64))
        step[paired] = np.rint(confidence.clip(0, 1) * _CONFIDENCE_STEPS)

    def fragment(status: int, is_paired: int, method: int, step: int) -> str:
        how = f'"{Method(method).label}"' if is_paired else "null"
        sure = repr(step / _CONFIDENCE_STEPS) if is_paired else "null"
        return f'"status":"{Status(status).label}","method":{how},"confidence":{sure}'

    return _per_combination([c.status, paired, method, step], fragment)


def _errors(c: Comparison) -> Texts:
    """`error` and `error_is_bound`. JSON has neither NaN nor infinity: both are null."""
    # As bits, so that every distinct number (and not every NaN) is printed once.
    error = np.where(np.isfinite(c.error), c.error, np.nan)
    values, of_row = np.unique(error, return_inverse=True, equal_nan=True)
    texts = [f'{"null" if v != v else repr(v)},"error_is_bound":' for v in values.tolist()]
    both = _objects([text + flag for flag in ("false", "true") for text in texts])
    picked: Texts = both[of_row.reshape(-1) + len(texts) * c.bound]
    return picked


def _place(c: Comparison) -> Texts:
    """`role`, `origin`, `phase`, `location`, `shape_a`, `shape_b`, as one fragment per distinct combination.

    Phase and location are those of a, or of b where a has no record.
    """
    has_a, has_b = c.row_a >= 0, c.row_b >= 0
    phase = np.where(has_a, _values(c.a.phase, c.row_a), _values(c.b.phase, c.row_b))
    location_a, location_b = _values(c.a.location, c.row_a), _values(c.b.location, c.row_b)
    shape_a, shape_b = _values(c.a.shape, c.row_a), _values(c.b.shape, c.row_b)
    locations = [_or_null(t) for t in c.a.locations], [_or_null(t) for t in c.b.locations]
    shapes = [_or_null(t) for t in c.a.shapes], [_or_null(t) for t in c.b.shapes]
    # One number for both tables: b's come after a's, -1 stays -1.
    location = np.where(has_a, location_a, np.where((location_b >= 0) & has_b, location_b + len(locations[0]), -1))
    all_locations = locations[0] + locations[1]

    def fragment(role: int, cause: int, phase: int, location: int, shape_a: int, shape_b: int) -> str:
        return (
            f'"role":{_quoted(Role(role).label) if role else "null"},"origin":{"true" if cause else "false"},'
            f'"phase":{_quoted(Phase(phase).label)},'
            f'"location":{all_locations[location] if location >= 0 else "null"},'
            f'"shape_a":{shapes[0][shape_a] if shape_a >= 0 else "null"},'
            f'"shape_b":{shapes[1][shape_b] if shape_b >= 0 else "null"}'
        )

    return _per_combination([c.role, c.cause, phase, location, shape_a, shape_b], fragment)


def _per_combination(columns: Sequence[NDArray[Any]], fragment: Callable[..., str]) -> Texts:
    """`fragment(*values)` for every row, called once per distinct combination of the integer columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        # Ranks instead of values after every step: products of table sizes would leave 64 bits.
        low = int(column.min())
        code = code * (int(column.max()) - low + 1) + (column.astype(np.int64) - low)
        if code.max() > 1 << 31:
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
    _, example, of_row = np.unique(code, return_index=True, return_inverse=True)
    values = [column[example].tolist() for column in columns]
    texts: Texts = _objects([fragment(*v) for v in zip(*values, strict=True)])[of_row.reshape(-1)]
    return texts


def _keys(log: OpLog) -> Texts:
    """The keys of a log as JSON strings."""
    keys = list(log.keys)
    if _NEEDS_ESCAPE.search("".join(keys)) is None:
        return _objects([f'"{k}"' for k in keys])
    return _objects([json_string(k) for k in keys])


def _pick(texts: Texts, row: IntArray) -> Texts:
    """The text of each row's record, `null` where the side has none."""
    return np.append(texts, ["null"])[row] if len(texts) else np.full(len(row), "null", object)


def _values(column: NDArray[Any], row: IntArray) -> NDArray[np.int64]:
    """A column of a log for each row of the comparison, -1 where the side has no record."""
    out = np.full(len(row), -1, np.int64)
    has = row >= 0
    out[has] = column[row[has]]
    return out


def _objects(texts: list[str]) -> Texts:
    out = np.empty(len(texts), object)
    out[:] = texts
    return out


def _quoted(text: str) -> str:
    return f'"{text}"'


def _or_null(text: str) -> str:
    return json_string(text) if text else "null"
