"""Compress the rows of a comparison into one block: ninety thousand rows in a few megabytes of HTML.

A text table would take hundreds of megabytes. Instead every column is an array of small integers: text is interned,
numbers are the seven shown decimal digits and an exponent, side b is stored as its difference from side a, and the
bytes of an array are sorted by significance, so that gzip finds runs of zeros.

The block is gzip of: the length of a JSON head (uint32, little-endian), the head, and the arrays in sequence. The head
has the tables of text, and for each array its name, type, length and transformations (`Block.add`). `decode.js` is the
reader.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Float64, Int32, Int64
from matchers.comparison import Comparison
from matchers.logs.columns import Ragged, repeated
from matchers.logs.op_log import MARKS, NO_DIGEST, STATISTICS, OpLog
from matchers.ops.arguments import argument_texts
from matchers.pairing.pairing import Method
from matchers.regions.find import Kind
from matchers.verdict.tolerance import EPSILON
from numtui.query.fields import FIELDS
from numtui.query.view import FOLD_WORDS, foldable
from numtui.text.safe import safe_text

__all__ = ["Block", "add_numbers", "block_of", "decimal"]

Ints = NDArray[Any]
_Sides = tuple[tuple[str, OpLog, Int64], ...]
"""Name, log, and record of each row, for a and b."""

_LEVEL: Final = 6
"""gzip level: the highest takes three times as long for one percent."""
_MAX_TEXT: Final = 1000
"""Maximum characters of one text: a key of a hostile log can be megabytes long."""
_DIGITS: Final = 7
_ABSENT, _NAN, _INF, _NEGATIVE_INF = 127, 126, 125, 124
"""Exponents that mark special values."""


class Block:
    """Arrays and tables of text on their way into the page."""

    def __init__(self) -> None:
        self.head: dict[str, Any] = {"arrays": [], "tables": {}}
        self._arrays: dict[str, Ints] = {}
        self._bytes: list[bytes] = []

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> Ints:
        return self._arrays[name]

    def add(self, name: str, values: Ints, *, base: str = "", rising: bool = False) -> None:
        """Add an array of int8, uint8, int16, int32, float32 or float64.

        Args:
            base: an array added before; store the difference from it.
            rising: store the differences of neighbours.
        """
        entry: dict[str, Any] = {"name": name, "type": values.dtype.name, "length": len(values)}
        stored = values
        # Differences may wrap around; summing them wraps back.
        with np.errstate(over="ignore"):
            if base:
                stored, entry["base"] = values - self._arrays[base], base
            if rising:
                stored, entry["rising"] = np.diff(values, prepend=values.dtype.type(0)), True
        self._arrays[name] = values
        self.head["arrays"].append(entry)
        raw = np.ascontiguousarray(stored, values.dtype.newbyteorder("<")).view(np.uint8)
        self._bytes.append(raw.reshape(len(values), values.dtype.itemsize).T.tobytes())

    def intern(self, name: str, texts: Iterable[str]) -> dict[str, int]:
        """Add a table of text; return the number of each entry."""
        number = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        self.head["tables"][name] = [safe_text(text, _MAX_TEXT) for text in number]
        return number

    def compressed(self) -> bytes:
        """Return the compressed block."""
        # No surrogates here: safe_text has escaped them.
        head = json.dumps(self.head, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        return gzip.compress(b"".join([len(head).to_bytes(4, "little"), head, *self._bytes]), _LEVEL, mtime=0)


def decimal(values: Float64) -> tuple[Int32, NDArray[np.int8]]:
    """Split into seven digits and an exponent: value = digits · 10**(exponent − 6), as `%.6e` prints it.

    Exponents of 124 and more mark special values, see above; larger exponents of numbers are clipped.
    """
    digits, exponent = np.zeros(len(values), np.int32), np.zeros(len(values), np.int8)
    real = np.flatnonzero(np.isfinite(values) & (values != 0))
    size = np.abs(values[real])
    power = np.floor(np.log10(size)).clip(-128, 123)
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.rint(size / 10.0 ** (power - (_DIGITS - 1)))
    # 9.9999999 rounds up to one digit more
    up = whole >= 10**_DIGITS
    whole[up], power[up] = whole[up] / 10, power[up] + 1
    digits[real] = (np.sign(values[real]) * whole.clip(0, 10**_DIGITS - 1)).astype(np.int32)
    exponent[real] = power.clip(-128, 123).astype(np.int8)
    exponent[np.isnan(values)] = _NAN
    exponent[np.isposinf(values)] = _INF
    exponent[np.isneginf(values)] = _NEGATIVE_INF
    return digits, exponent


def block_of(c: Comparison) -> Block:
    """Build the block of a comparison."""
    block = Block()
    block.head["rows"] = len(c)
    _verdicts(block, c)
    _places(block, c)
    for side in "ab":
        _statistics(block, c, side)
    _digests(block, c)
    _inputs(block, c)
    return block


def _verdicts(block: Block, c: Comparison) -> None:
    block.add("status", c.status.astype(np.uint8))
    block.add("reason", c.reason.astype(np.uint8))
    block.add("role", c.role.astype(np.uint8))
    flags = c.cause * 1 + c.bound * 2 + c.inputs_equal * 4 + FIELDS["is"].mask(c, ["cast"]) * 8
    flags += c.asked_otherwise * 16
    block.add("flags", flags.astype(np.uint8))
    block.add("error", c.error)
    block.add("tolerance", c.tolerance.astype(np.float32))
    block.add("epsilon", _epsilon(c).astype(np.float32))
    p = c.pairing
    block.add("method", np.append(p.method, np.int8(Method.NONE))[c.pair].astype(np.uint8))
    for name, column in (("confidence", p.confidence), ("runnerUpScore", p.runner_up_score)):
        block.add(name, np.append(column.astype(np.float32), np.float32(math.nan))[c.pair])
    start = np.full(len(c), -1, np.int32)
    for number, cause in enumerate(c.consequences.causes):
        start[list(cause.rows)] = number
    block.add("startOf", start)
    block.add("causeOf", c.consequences.cause_of.astype(np.int32))
    block.add("original", c.original)
    stretch = foldable(c)
    block.add("stretch", stretch)
    block.head["regions"] = {
        str(k): FOLD_WORDS[Kind(c.regions.kind[k - 1])] for k in np.unique(stretch[stretch > 0]).tolist()
    }
    block.head["slots"] = {str(row): safe_text(slot.name, _MAX_TEXT) for row, slot in sorted(c.slots.items())}


def _epsilon(c: Comparison) -> Float64:
    """Return ε of the coarser dtype of each row, NaN where neither side has one."""
    found = []
    for log, rows in ((c.a, c.row_a), (c.b, c.row_b)):
        table = np.array([*(EPSILON.get(name, math.nan) for name in log.dtypes), math.nan])
        found.append(table[_of(log.dtype, rows)])
    return np.fmax(*found)


def _of(column: Ints, records: Int64, missing: int = -1) -> Ints:
    """Take a column of a log for the record of each row, `missing` where the side has none."""
    return np.append(column, column.dtype.type(missing))[records]


def _places(block: Block, c: Comparison) -> None:
    """Add keys, source lines, phases and shapes."""
    sides = (("A", c.a, c.row_a), ("B", c.b, c.row_b))
    keys = list(c.a.keys), list(c.b.keys)
    number = block.intern("keys", [*keys[0], *keys[1]])
    of_record = [np.fromiter((number[key] for key in side), np.int32, len(side)) for side in keys]
    for (side, _, rows), numbers in zip(sides, of_record, strict=True):
        block.add(f"key{side}", _of(numbers, rows), rising=True)
    rival = np.append(c.pairing.runner_up, np.int32(-1))[c.pair]
    block.add("runnerUp", _of(of_record[1], rival))
    grouped = np.flatnonzero((c.pair >= 0) & np.append(c.pairing.grouped, False)[c.pair])
    block.head["groups"] = {
        str(row): [of_record[k][list(members)].tolist() for k, members in enumerate(c.members(row))]
        for row in grouped.tolist()
    }
    for table, column in (("shapes", "shape"), ("dtypes", "dtype"), ("locations", "location")):
        _interned(block, sides, table, column, [(getattr(log, table), getattr(log, column)) for _, log, _ in sides])
    for field in ("Stack", "Placement", "Group"):
        if any(len(log.texts(field)) for _, log, _ in sides):
            _interned(block, sides, field.lower(), field.lower(), [_texts(log, field) for _, log, _ in sides])
    _interned(block, sides, "arguments", "arguments", [argument_texts(log) for _, log, _ in sides])
    for side, log, rows in sides:
        block.add(f"phase{side}", _of(log.phase.astype(np.int8), rows))
        block.add(f"line{side}", _of(log.line, rows), rising=True)
        block.add(f"microBatch{side}", _of(log.micro_batch, rows))


def _interned(block: Block, sides: _Sides, table: str, column: str, found: list[tuple[Sequence[str], Ints]]) -> None:
    """Add a text column of both sides over one table; `found` has, by side, the entries and the records' indices."""
    number = block.intern(table, [text for entries, _ in found for text in entries])
    for (side, _, rows), (entries, of_record) in zip(sides, found, strict=True):
        numbers = np.array([*(number[text] for text in entries), -1], np.int32)
        block.add(f"{column}{side}", numbers[_of(of_record, rows)])


def _texts(log: OpLog, field: str) -> tuple[Sequence[str], Int32]:
    """Return a rare field as a table and an index into it for every record."""
    texts = log.texts(field)
    number: dict[str, int] = {}
    column = np.full(len(log), -1, np.int32)
    for record, text in texts.items():
        column[record] = number.setdefault(text, len(number))
    return list(number), column


def _statistics(block: Block, c: Comparison, side: str) -> None:
    """Add the statistics of the first output."""
    log, rows = c.side(side)
    name = side.upper()
    there = np.append(log.outputs.count > 0, False)[rows]
    add_numbers(block, "output", name, np.append(log.outputs.first(), math.nan)[rows], there)
    for k, statistic in enumerate(STATISTICS):
        there = np.append((log.present >> k & 1).astype(bool), False)[rows]
        if there.any():
            # The hash of an output is its L1 norm, and logs have either or both.
            base = "output" if statistic == "L1 norm" else ""
            add_numbers(block, statistic.split()[0], name, np.append(log.stats[k], math.nan)[rows], there, base)
    for k, label in ((1, "nan"), (2, "inf"), (3, "zero")):
        if (log.counts[k] > 0).any():
            block.add(f"{label}{name}", np.append(log.counts[k], -1)[rows].clip(-1, 2**31 - 1).astype(np.int32))


def add_numbers(block: Block, name: str, side: str, values: Float64, there: Ints, base: str = "") -> None:
    """Add the numbers of one side, relative to `base` of the same side, or to a where b has them too."""
    digits, exponent = decimal(values)
    digits[~there], exponent[~there] = 0, _ABSENT
    against = f"{base}{side}" if base else f"{name}A" if side == "B" and f"{name}A.digits" in block else ""
    block.add(f"{name}{side}.digits", digits, base=against and f"{against}.digits")
    block.add(f"{name}{side}.exponent", exponent, base=against and f"{against}.exponent")


def _digests(block: Block, c: Comparison) -> None:
    """Add the bitwise equality of the outputs: 0 unknown, 1 equal, 2 different."""
    if not (len(c.a.digests.value) and len(c.b.digests.value)):
        return
    both = np.flatnonzero((c.row_a >= 0) & (c.row_b >= 0))
    first = [log.digests.first(rows[both], NO_DIGEST) for log, rows in ((c.a, c.row_a), (c.b, c.row_b))]
    known = ~(np.isin(first[0], MARKS) | np.isin(first[1], MARKS))
    column = np.zeros(len(c), np.uint8)
    column[both] = np.where(known, np.where(first[0] == first[1], 1, 2), 0)
    block.add("digest", column)


def _inputs(block: Block, c: Comparison) -> None:
    """Add the inputs of each row, by side: number, producers, hashes, parameter names."""
    parameters = [log.texts("Parameter") for log in (c.a, c.b)]
    named = any(map(len, parameters))
    number = block.intern("parameters", [n for texts in parameters for r in texts for n in texts[r].split(";") if n])
    flows = (None, None) if c.flow is None else (c.flow.a, c.flow.b)
    for side, log, rows, at, flow, texts in (
        ("A", c.a, c.row_a, c.at_a, flows[0], parameters[0]),
        ("B", c.b, c.row_b, c.at_b, flows[1], parameters[1]),
    ):
        count = np.append(log.inputs.count, 0)[rows]
        owner, place = repeated(np.arange(len(c)), count)
        source = log.inputs.start[:-1][rows[owner]] + place
        maker = flow.value[source] if flow is not None else np.full(len(owner), -1, np.int64)
        made = np.where(maker >= 0, np.append(at, -1)[maker], -1)
        made[made == owner] = -1
        block.add(f"inputs{side}", count.astype(np.int32))
        # 0: unknown. Most producers are a few rows before.
        block.add(f"maker{side}", np.where(made >= 0, owner - made, 0).astype(np.int32))
        digits, exponent = decimal(log.inputs.value[source])
        output = [np.append(block[f"output{side}.{part}"], 0)[made] for part in ("digits", "exponent")]
        with np.errstate(over="ignore"):
            block.add(f"input{side}.digits", (digits - output[0]).astype(np.int32))
            block.add(f"input{side}.exponent", (exponent - output[1]).astype(np.int8))
        if named:
            names = np.full(len(owner), -1, np.int32)
            start = np.concatenate(([0], np.cumsum(count)))
            for row in np.flatnonzero(np.isin(rows, list(texts))).tolist():
                found = [number.get(n, -1) for n in texts[int(rows[row])].split(";")][: int(count[row])]
                names[start[row] : start[row] + len(found)] = found
            block.add(f"parameter{side}", names)
    if len(c.a.input_digests.value) and len(c.b.input_digests.value):
        block.add("inputDigests", _same_inputs(c))


def _same_inputs(c: Comparison) -> NDArray[np.uint8]:
    """Return the bitwise equality of each input of side a with that of b, in row order, coded as in `_digests`."""
    count = np.append(c.a.inputs.count, 0)[c.row_a]
    owner, place = repeated(np.arange(len(c)), count)
    found = [_at(log.input_digests, rows[owner], place) for log, rows in ((c.a, c.row_a), (c.b, c.row_b))]
    known = ~(np.isin(found[0], MARKS) | np.isin(found[1], MARKS))
    return np.where(known, np.where(found[0] == found[1], 1, 2), 0).astype(np.uint8)


def _at(digests: Ragged, records: Ints, place: Ints) -> Ints:
    """Return the digests at some positions of some records, `NO_DIGEST` where there is none."""
    there = (records >= 0) & (place < np.append(digests.count, 0)[records])
    out = np.full(len(records), NO_DIGEST)
    out[there] = digests.value[digests.start[:-1][records[there]] + place[there]]
    return out
