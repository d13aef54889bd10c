"""JSON Lines report: one object per row of the comparison, in screen order. docs/jsonl.md is the reference.

Fragments are made once per distinct value instead of once per row: most of a row (status, method, role, phase,
location, shapes) is one of a few thousand combinations. Rows are joined by the thousand, without Python code for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring_ascii as json_string
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Float64, Int64, distinct, marked, numbered
from matchers.comparison import Comparison
from matchers.explain.reason_facts import has_limit, reason_facts, with_names
from matchers.joins import Texts, joined_lines
from matchers.logs.columns import TextTable
from matchers.logs.op_log import OpLog, Phase
from matchers.pairing.pairing import Method
from matchers.status import Role, Status
from matchers.verdict.reason import Reason

if TYPE_CHECKING:
    from numtui.report.gate import GatedRows

__all__ = ["ERROR", "write", "write_jsonl"]

_CHUNK = 1 << 11
_BETWEEN_KEYS = ['","b_key":"', '","b_key":null', ',"b_key":"', ',"b_key":null']
"""By whether there is a key of a, and of b: the quotes around keys, and the second one's name."""
_CONFIDENCE_STEPS = 1000
"""Three decimals of confidence: more would be noise, and would differ between machines."""
ERROR = "%.6g"
"""Error with as many digits as the norms behind it."""
_DENSE = 1 << 18
"""Maximum number of codes that have a table of texts, most of it empty."""


def write(report: GatedRows, out: TextIO) -> None:
    """Write every row of the comparison."""
    write_jsonl(report.comparison, out)


def write_jsonl(c: Comparison, out: TextIO) -> None:
    """Write every row of `c`. The text is pure ASCII, so no raw byte of a log reaches a terminal."""
    if len(c) == 0:
        return
    keys_a, keys_b = _Keys(c.a), _Keys(c.b)
    numbers_a, numbers_b = _Numbers('{"a":', len(c.a)), _Numbers(',"b":', len(c.b))
    quotes = [_table(texts) for texts in ([',"a_key":"', ',"a_key":null'], _BETWEEN_KEYS, ['"', ""])]
    groups = _groups(c)
    verdict, place, facts = _verdict(c), _place(c), _facts(c)
    for start in range(0, len(c), _CHUNK):
        rows = slice(start, start + _CHUNK)
        records_a, records_b = c.row_a[rows], c.row_b[rows]
        lacks_a, lacks_b = (records_a < 0).astype(np.int64), (records_b < 0).astype(np.int64)
        columns = [
            *numbers_a.of(records_a),
            *numbers_b.of(records_b),
            (*quotes[0], lacks_a),
            keys_a.of(records_a),
            (*quotes[1], 2 * lacks_a + lacks_b),
            keys_b.of(records_b),
            (*quotes[2], lacks_b),
        ]
        members = []
        while groups and groups[-1][0] < start + len(records_a):
            members.append(groups.pop())
        own = np.full(len(records_a), -1)
        own[[row - start for row, _, _ in members]] = np.arange(len(members))
        for _, _, number in columns:
            number[own >= 0] = -1
        columns.append((*_table([_of_group(keys_a, keys_b, *sides) for _, *sides in members]), own))
        columns += [_some(verdict, rows), _errors(c.error[rows]), _some(place, rows), _some(facts, rows)]
        out.write(joined_lines(columns))


def _of_group(keys_a: _Keys, keys_b: _Keys, a: list[int], b: list[int]) -> str:
    """Return the records of a group on both sides, and their keys."""
    at_a, at_b = _value(list(map(str, a))), _value(list(map(str, b)))
    of_a, of_b = _value([keys_a[k] for k in a]), _value([keys_b[k] for k in b])
    return f'{{"a":{at_a},"b":{at_b},"a_key":{of_a},"b_key":{of_b}'


def _some(texts: Texts, rows: slice) -> Texts:
    return texts[0], texts[1], texts[2][rows]


def _table(texts: Iterable[str]) -> tuple[bytes, Int64]:
    """Return texts of one line each as a table of `joined_lines`."""
    table = TextTable("".join(f"{text}\n" for text in texts).encode("ascii"))
    return table.blob, table.start


class _Numbers:
    """Positions of records as JSON, in two pieces per number, so that none is formatted: thousands, and the rest."""

    def __init__(self, before: str, records: int) -> None:
        """`before`: text before each number."""
        self._thousands = _table([before, *(f"{before}{k}" for k in range(1, records // 1000 + 1)), f"{before}null"])
        self._null = records // 1000 + 1
        # below a thousand without leading zeros
        self._rest = _table([*map(str, range(1000)), *(f"{k:03}" for k in range(1000))])

    def of(self, records: Int64) -> tuple[Texts, Texts]:
        """Return the pieces of some records, null for -1."""
        thousands, rest = np.divmod(records, 1000)
        lacks = records < 0
        rest = np.where(lacks, -1, rest + 1000 * (thousands > 0))
        return (*self._thousands, np.where(lacks, self._null, thousands)), (*self._rest, rest)


def _groups(c: Comparison) -> list[tuple[int, list[int], list[int]]]:
    """Return the rows of groups with their records of both sides, the last row first."""
    rows = np.flatnonzero((c.pair >= 0) & c.pairing.grouped[c.pair])[::-1] if len(c.pairing) else np.zeros(0, np.int64)
    sides = [_members(of_side, c.pair[rows]) for of_side in (c.pairing.of_a, c.pairing.of_b)]
    return list(zip(rows.tolist(), *sides, strict=True))


def _value(texts: list[str]) -> str:
    """Return the JSON of one value, or of a list of several."""
    return texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"


def _members(pair_of: Int64, pairs: Int64) -> list[list[int]]:
    """Return the records of each of `pairs` on one side, ascending; `pair_of` is the pair of each record."""
    asked = marked(pairs, int(pair_of.max(initial=-1)) + 2)
    asked[-1] = False  # the entry of -1, no pair
    records = np.flatnonzero(asked[pair_of])
    order = records[np.argsort(pair_of[records], kind="stable")]
    in_order, listed = pair_of[order], order.tolist()
    first, last = np.searchsorted(in_order, pairs, "left"), np.searchsorted(in_order, pairs, "right")
    return [listed[i:j] for i, j in zip(first.tolist(), last.tolist(), strict=True)]


def _verdict(c: Comparison) -> Texts:
    """Return `status`, `method`, `confidence` and the next field's name, as one fragment per distinct combination."""
    paired = c.pair >= 0
    at = np.where(paired, c.pair, 0)
    method, step = np.zeros(len(c), np.int64), np.zeros(len(c), np.int64)
    if len(c.pairing):
        method[paired] = c.pairing.method[at][paired]
        confidence = np.nan_to_num(c.pairing.confidence[at][paired].astype(np.float64))
        step[paired] = np.rint(confidence.clip(0, 1) * _CONFIDENCE_STEPS)

    statuses, methods = [s.label for s in Status], [m.label for m in Method]

    def fragment(status: int, is_paired: int, method: int, step: int) -> str:
        how = f'"{methods[method]}"' if is_paired else "null"
        sure = repr(step / _CONFIDENCE_STEPS) if is_paired else "null"
        return f',"status":"{statuses[status]}","method":{how},"confidence":{sure},"error":'

    return _per_combination([c.status, paired, method, step], fragment)


def _errors(errors: Float64) -> Texts:
    """Return `error`. JSON has neither NaN nor infinity: both are null."""
    finite = np.isfinite(errors)
    number = np.where(finite, 0, 1)
    other = np.flatnonzero(finite & (errors != 0))
    number[other] = 2 + np.arange(len(other))
    # in one text: a call for each takes half as long again
    texts = "0.0\nnull\n" + f"{ERROR}\n" * len(other) % tuple(errors[other].tolist())
    table = TextTable(texts.encode("ascii"))
    return table.blob, table.start, number


def _place(c: Comparison) -> Texts:
    """Return `error_is_bound` and all later fields but the last, as one fragment per distinct combination.

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

    batch = np.where(has_a, _values(c.a.micro_batch, c.row_a), _values(c.b.micro_batch, c.row_b))
    again = np.where(has_a, _values(c.a.recompute, c.row_a), _values(c.b.recompute, c.row_b))
    reasons = [reason.label for reason in Reason]
    names = sorted({slot.name for slot in c.slots.values()})
    slot_names = [json_string(name) for name in names]
    slot = np.full(len(c), -1, np.int64)
    for row, found in c.slots.items():
        slot[row] = names.index(found.name)

    def fragment(
        bound: int,
        role: int,
        cause: int,
        phase: int,
        location: int,
        shape_a: int,
        shape_b: int,
        same_numbers: int,
        slot: int,
        batch: int,
        again: int,
        reason: int,
    ) -> str:
        return (
            f',"error_is_bound":{"true" if bound else "false"},'
            f'"role":{_quoted(Role(role).label) if role else "null"},"origin":{"true" if cause else "false"},'
            f'"phase":{_quoted(Phase(phase).label)},'
            f'"location":{all_locations[location] if location >= 0 else "null"},'
            f'"shape_a":{shapes[0][shape_a] if shape_a >= 0 else "null"},'
            f'"shape_b":{shapes[1][shape_b] if shape_b >= 0 else "null"},'
            f'"inputs_equal":{"true" if same_numbers else "false"},'
            f'"differs_in":{slot_names[slot] if slot >= 0 else "null"},'
            f'"micro_batch":{batch if batch >= 0 else "null"},"recompute":{"true" if again == 1 else "false"},'
            f'"reason":"{reasons[reason]}","reason_facts":'
        )

    columns = [
        c.bound,
        c.role,
        c.cause,
        phase,
        location,
        shape_a,
        shape_b,
        c.inputs_equal,
        slot,
        batch,
        again,
        c.reason,
    ]
    return _per_combination(columns, fragment)


def _facts(c: Comparison) -> Texts:
    """Return `reason_facts` and the end of the line."""
    number = np.zeros(len(c), np.int64)
    limited = np.flatnonzero(has_limit(c))
    limits = distinct(c.tolerance[limited])
    number[limited] = 1 + np.searchsorted(limits, c.tolerance[limited])
    texts = ["{}}", *(f'{{"limit":{ERROR % limit}}}}}' for limit in limits.tolist())]
    for row in np.flatnonzero(with_names(c)).tolist():
        number[row] = len(texts)
        told = (f'"{name}":{_fact(value)}' for name, value in reason_facts(c, row).items())
        texts.append(f"{{{','.join(told)}}}}}")
    return (*_table(texts), number)


def _fact(value: float | str) -> str:
    if isinstance(value, str):
        return json_string(value)
    return str(value) if isinstance(value, int) else ERROR % value if math.isfinite(value) else "null"


def _per_combination(columns: Sequence[NDArray[Any]], fragment: Callable[..., str]) -> Texts:
    """Return `fragment(*values)` for every row, called once per distinct combination of the integer columns."""
    code, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if low == high:
            continue
        code = code * (high - low + 1) + (column.astype(np.int64) - low)
        size *= high - low + 1
        if size > _DENSE:
            # numbers of those that occur instead of products of table sizes, which would overflow 64 bits
            code, size = numbered(code)
    example = np.full(size, -1)
    example[code] = np.arange(len(code))
    used = np.flatnonzero(example >= 0)
    number = np.empty(size, np.int64)
    number[used] = np.arange(len(used))
    of_combinations = zip(*(c[example[used]].tolist() for c in columns), strict=True)
    return (*_table(fragment(*values) for values in of_combinations), number[code])


class _Keys:
    """Keys of a log as JSON strings."""

    def __init__(self, log: OpLog) -> None:
        self._keys = log.keys
        self._plain = log.keys.plain

    def __getitem__(self, record: int) -> str:
        return json_string(self._keys[record])

    def of(self, records: Int64) -> Texts:
        """Return the keys of some records, without quotes."""
        if self._plain:
            return self._keys.blob, self._keys.start, records.copy()
        there = np.flatnonzero(records >= 0)
        number = np.full(len(records), -1)
        number[there] = np.arange(len(there))
        return (*_table(self[record][1:-1] for record in records[there].tolist()), number)


def _values(column: NDArray[Any], row: Int64) -> Int64:
    """Take a column of a log for each row of the comparison, -1 where the side has no record."""
    return np.asarray(np.append(column, np.int64(-1))[row])


def _quoted(text: str) -> str:
    return f'"{text}"'


def _or_null(text: str) -> str:
    return json_string(text) if text else "null"
