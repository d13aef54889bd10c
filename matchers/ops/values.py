"""Every version of a tensor that a record returns, or leaves in one of its inputs, as columns.

First outputs are columns of the log. Further outputs, and inputs changed in place, are JSON in it, which is read once,
a whole field at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Hash, Int64, columns
from matchers.logs.columns import Texts
from matchers.logs.op_log import COUNTS, NO_DIGEST, STATISTICS, UNKNOWN, OpLog, once_per_log
from matchers.ops.json_values import hex_digest, integers, number, parsed, parsed_object
from matchers.ops.laws import law_of, result_limit
from matchers.ops.placement import Part, part_of
from matchers.ops.shapes import dimensions, elements

__all__ = [
    "FIELDS",
    "Result",
    "Values",
    "written",
    "first_outputs",
    "further",
    "parameter_name",
    "parameter_names",
    "read",
    "records_changes",
    "result",
    "results",
    "together",
    "unchanged",
]

FIELDS = ("l1", "l2", "min", "max", "mean")
"""`STATISTICS` by the names in JSON."""
_MOST_SLOTS = 1 << 31
"""No operation reads as many tensors."""
_AT_ONCE = 4096
"""Number of texts that are parsed together."""


@columns
class Values:
    """Versions of tensors, a row for each.

    Attributes:
        maker: int64[v], the record that returned or left it.
        slot: int64[v], k for output k, -1 - k for what the record left in input k.
        name: for display: of the parameter, `output 1`, `input 0`; empty for a first output.
        shape, dtype: int64[v], indices into the tables of the plural name; -1 if unknown.
        present: uint8[v], the statistics that are known; bit k is `STATISTICS[k]`.
        stats: float64[5, v], rows as in `STATISTICS`.
        counts: int64[4, v], rows as in `COUNTS`; -1 if unknown.
        digest: uint64[v], `NO_DIGEST` if unknown.
        sketch: base64, empty without one.
        placed: int64[v], index into `placements`, the objects of the log or the parts themselves (None: unreadable);
            -1 for a whole tensor.
    """

    maker: Int64
    slot: Int64
    name: Sequence[str]
    shapes: Sequence[str]
    shape: Int64
    dtypes: Sequence[str]
    dtype: Int64
    present: NDArray[np.uint8]
    stats: Float64
    counts: Int64
    digest: Hash
    sketch: Sequence[bytes]
    placements: Sequence[Part | Mapping[str, Any] | None]
    placed: Int64

    def __len__(self) -> int:
        return len(self.maker)

    @property
    def l1(self) -> Float64:
        """float64[v]."""
        return np.asarray(self.stats[0])

    @property
    def numel(self) -> Float64:
        """float64[v], number of elements by the shape; NaN if unknown."""
        return elements(self.shapes)[self.shape]

    @property
    def known(self) -> Bool:
        """bool[v]: the digest is known."""
        return ~np.isin(self.digest, UNKNOWN)

    def dims(self, v: int) -> tuple[int, ...] | None:
        """The shape of a value; None if unknown."""
        return dimensions(self.shapes[self.shape[v]]) if self.shape[v] >= 0 else None

    def part(self, v: int) -> Part | None:
        """The part of a global tensor that a value is; None if that, or its shape, is unknown."""
        placement = self.placements[self.placed[v]] if self.placed[v] >= 0 else None
        if isinstance(placement, Part):
            return placement
        if self.shape[v] < 0 or (placement is None and self.placed[v] >= 0):
            return None
        return part_of(placement, dimensions(self.shapes[self.shape[v]]))

    def of(self, record: int) -> range:
        """The rows of one record, of values in the order of records."""
        start, end = np.searchsorted(self.maker, (record, record + 1)).tolist()
        return range(start, end)

    def taken(self, rows: Int64) -> Values:
        """Some rows, in this order."""
        at = rows.tolist()
        return replace(
            self,
            name=[self.name[k] for k in at],
            sketch=[self.sketch[k] for k in at],
            **{column: getattr(self, column)[..., rows] for column in _ARRAYS},
        )


_ARRAYS = ("maker", "slot", "shape", "dtype", "present", "stats", "counts", "digest", "placed")


class _OfRows(Sequence[bytes]):
    """The texts of some rows, as they are asked for."""

    def __init__(self, texts: Texts, rows: Int64) -> None:
        self._texts, self._rows = texts, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, k: Any) -> Any:
        return self._texts.raw(int(self._rows[k]))


def first_outputs(log: OpLog, rows: Int64) -> Values:
    """The first outputs of some records; nothing is known of that of a record without one."""
    placements, placed = _placed(log)
    stats = log.stats[:, rows]
    stats[0] = log.outputs.first(rows)
    return Values(
        maker=rows,
        slot=np.zeros(len(rows), np.int64),
        name=[""] * len(rows),
        shapes=log.shapes,
        shape=log.shape[rows],
        dtypes=log.dtypes,
        dtype=log.dtype[rows],
        present=log.present[rows] & ~np.uint8(1) | (log.outputs.count[rows] > 0),
        stats=stats,
        counts=log.counts[:, rows],
        digest=log.digests.first(rows, NO_DIGEST),
        sketch=_OfRows(log.texts("Sketch"), rows) if log.texts("Sketch") else [b""] * len(rows),
        placements=placements,
        placed=placed[rows],
    )


@once_per_log
def _placed(log: OpLog) -> tuple[Sequence[Mapping[str, Any] | None], Int64]:
    """The placements of first outputs, and int64[n], that of each record; -1 without one."""
    texts = log.texts("Placement")
    ids, table = texts.in_use()
    placed = np.full(len(log), -1, np.int64)
    placed[texts.rows] = ids
    return [parsed_object(text) for text in table], placed


@once_per_log
def further(log: OpLog) -> Values:
    """All other values of a log, in the order of records: results after the first, then inputs changed in place."""
    found: list[tuple[int, int, str, Mapping[str, Any]]] = []
    most = result_limit(log)
    for field in log.extra:
        if field.startswith("Output "):
            k = int(field.removeprefix("Output "))
            rows = _entries(log.texts(field))
            found += [(row, k, f"output {k}", entry) for row, entry in rows if k < most[row]]
    for row, entries in _entries(log.texts("Mutated"), list):
        by_slot = {_slot(entry): entry for entry in entries}  # of those told twice, the last
        for slot, entry in by_slot.items():
            if slot >= 0:
                name = entry.get("name")
                told = name if isinstance(name, str) and name else parameter_name(log, row, slot)
                found.append((row, -1 - slot, told, entry))
    found.sort(key=lambda one: (one[0], one[1] < 0, abs(one[1])))
    return _of(found)


def _slot(entry: object) -> int:
    """The input that an entry is about; -1 for anything else."""
    slot = entry.get("input") if isinstance(entry, dict) else None
    return slot if type(slot) is int and 0 <= slot < _MOST_SLOTS else -1


def _entries(texts: Texts, kind: type = dict) -> Iterator[tuple[int, Any]]:
    """The rows of a field, and its value there; without those of another kind."""
    ids, table = texts.in_use()
    values: list[Any] = []
    for start in range(0, len(table), _AT_ONCE):
        values += _parsed_all(table[start : start + _AT_ONCE])
    for row, text in zip(texts.rows.tolist(), ids.tolist(), strict=True):
        if isinstance(values[text], kind):
            yield row, values[text]


def _parsed_all(texts: Sequence[bytes]) -> list[Any]:
    """The JSON values of texts: in one go, unless one of them is broken."""
    try:
        values = json.loads(b"[" + b",0,".join(texts) + b"]")
    except (ValueError, RecursionError):
        return [parsed(text) for text in texts]
    # texts that are broken may be one value together
    whole = len(values) == 2 * len(texts) - 1 and not any(values[1::2])
    return list(values[::2]) if whole else [parsed(text) for text in texts]


def _of(found: Sequence[tuple[int, int, str, Mapping[str, Any]]]) -> Values:
    """The columns of (maker, slot, name, object of the log)."""
    shapes, dtypes, placements = dict[str, int](), dict[str, int](), dict[str, int]()
    told: list[Mapping[str, Any]] = []
    shape, dtype, placed, digest, sketch = [], [], [], [], []
    for _, _, _, entry in found:
        dims, kind, placement, text = (entry.get(key) for key in ("shape", "dtype", "placement", "sketch"))
        local = integers(dims)
        shape.append(-1 if local is None else shapes.setdefault(str(list(local)), len(shapes)))
        dtype.append(dtypes.setdefault(kind, len(dtypes)) if isinstance(kind, str) and kind else -1)
        if isinstance(placement, dict):
            placed.append(placements.setdefault(repr(placement), len(told)))
            told += [placement] * (len(placements) - len(told))
        else:
            placed.append(-1)
        made = hex_digest(entry.get("digest"))
        digest.append(NO_DIGEST if made is None else made)
        sketch.append(text.encode() if isinstance(text, str) and text.isascii() else b"")
    stats = np.array([[number(entry.get(key)) for key in FIELDS] for *_, entry in found]).reshape(-1, 5).T
    unknown = (-1,) * len(COUNTS)
    counts = [integers(entry.get("counts"), len(COUNTS)) or unknown for *_, entry in found]
    return Values(
        maker=np.array([one[0] for one in found], np.int64),
        slot=np.array([one[1] for one in found], np.int64),
        name=[one[2] for one in found],
        shapes=tuple(shapes),
        shape=np.array(shape, np.int64),
        dtypes=tuple(dtypes),
        dtype=np.array(dtype, np.int64),
        present=_present(stats),
        stats=stats,
        counts=np.array(counts, np.int64).reshape(-1, len(COUNTS)).T,
        digest=np.array(digest, np.uint64),
        sketch=sketch,
        placements=told,
        placed=np.array(placed, np.int64),
    )


def _present(stats: Float64) -> NDArray[np.uint8]:
    bits = np.left_shift(1, np.arange(len(STATISTICS)))[:, None]
    return np.where(np.isnan(stats), 0, bits).sum(axis=0).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Result:
    """One value by itself: a row of `Values`, or what is known of a tensor beside them.

    Attributes:
        name: for display: the parameter's name, `output 1`, `input 0`.
        shape: None if unknown (as for an unchanged input).
        l1, l2, min, max, mean: NaN if unknown or without finite values.
        numel, nan, inf: -1 if unknown.
        digest: None if unknown.
        sketch: base64, empty without one.
        part: the shard of a global tensor; None if unknown.
    """

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    l1: float = math.nan
    l2: float = math.nan
    min: float = math.nan
    max: float = math.nan
    mean: float = math.nan
    numel: int = -1
    nan: int = -1
    inf: int = -1
    digest: int | None = None
    sketch: bytes = b""
    part: Part | None = None


def result(values: Values, v: int) -> Result:
    """One row of the columns."""
    shape, dtype = int(values.shape[v]), int(values.dtype[v])
    numel, nan, inf, _ = values.counts[:, v].tolist()
    digest = int(values.digest[v])
    return Result(
        values.name[v],
        dimensions(values.shapes[shape]) if shape >= 0 else None,
        values.dtypes[dtype] if dtype >= 0 else "",
        **dict(zip(FIELDS, values.stats[:, v].tolist(), strict=True)),
        numel=numel,
        nan=nan,
        inf=inf,
        digest=None if digest == NO_DIGEST else digest,
        sketch=values.sketch[v],
        part=values.part(v),
    )


def together(tensors: Sequence[Result]) -> Result:
    """The known facts about tensors side by side: norms and squares of L2 norms add up, extremes are those of all."""
    name = f"{tensors[0].name} (with {len(tensors) - 1} more)" if tensors[1:] else tensors[0].name
    nan, inf = ([getattr(tensor, count) for tensor in tensors] for count in ("nan", "inf"))
    return Result(
        name,
        dtype=tensors[0].dtype,
        l1=math.fsum(tensor.l1 for tensor in tensors),
        l2=math.hypot(*(tensor.l2 for tensor in tensors)),
        min=float(np.fmin.reduce([tensor.min for tensor in tensors])),
        max=float(np.fmax.reduce([tensor.max for tensor in tensors])),
        nan=-1 if min(nan) < 0 else sum(nan),
        inf=-1 if min(inf) < 0 else sum(inf),
    )


def as_values(tensors: Sequence[Result]) -> Values:
    """The columns of tensors of which this is known."""
    shapes, dtypes = dict[str, int](), dict[str, int]()
    shape = [-1 if one.shape is None else shapes.setdefault(str(list(one.shape)), len(shapes)) for one in tensors]
    dtype = [dtypes.setdefault(one.dtype, len(dtypes)) if one.dtype else -1 for one in tensors]
    stats = np.array([[getattr(one, name) for name in FIELDS] for one in tensors]).reshape(-1, len(FIELDS)).T
    return Values(
        maker=np.full(len(tensors), -1),
        slot=np.zeros(len(tensors), np.int64),
        name=[one.name for one in tensors],
        shapes=tuple(shapes),
        shape=np.array(shape, np.int64),
        dtypes=tuple(dtypes),
        dtype=np.array(dtype, np.int64),
        present=_present(stats),
        stats=stats,
        counts=np.array([(one.numel, one.nan, one.inf, -1) for one in tensors], np.int64).reshape(-1, len(COUNTS)).T,
        digest=np.array([NO_DIGEST if one.digest is None else one.digest for one in tensors], np.uint64),
        sketch=[one.sketch for one in tensors],
        placements=[one.part for one in tensors],
        placed=np.arange(len(tensors)),
    )


def first_output(log: OpLog, row: int) -> Result:
    """The first output, named for an operation that works in place: by the first of its inputs."""
    return replace(result(first_outputs(log, np.array([row])), 0), name=parameter_name(log, row, 0))


def output(log: OpLog, row: int, k: int) -> Result:
    """The k-th output (from 0); one of which nothing is known if the log has none, or an unreadable one."""
    return (further_output(log, row, k) if k else first_output(log, row)) or Result(f"output {k}")


def further_output(log: OpLog, row: int, k: int) -> Result | None:
    """The k-th output (from 1); None if the log has none, or an unreadable one."""
    values = further(log)
    return next((result(values, v) for v in values.of(row) if values.slot[v] == k), None)


def written(log: OpLog, row: int) -> dict[int, Result]:
    """The inputs that a record changed in place, by slot."""
    values = further(log)
    return {-1 - int(values.slot[v]): result(values, v) for v in values.of(row) if values.slot[v] < 0}


def results(log: OpLog, row: int) -> list[Result]:
    """Everything that a record returned or changed in place, as far as the log describes it."""
    values = further(log)
    first = [first_output(log, row)] if len(log.outputs[row]) else []
    return first + [result(values, v) for v in values.of(row)]


def read(log: OpLog, rows: Int64, slots: Int64) -> Values:
    """The known facts about inputs that operations left unchanged: of each row one."""
    at = zip(rows.tolist(), slots.tolist(), strict=True)
    nothing = _of([(row, -1 - slot, parameter_name(log, row, slot), {}) for row, slot in at])
    stats, digest = nothing.stats, log.input_digests.at(rows, slots, NO_DIGEST)
    stats[0] = log.inputs.at(rows, slots)
    return replace(nothing, stats=stats, digest=digest, present=_present(stats))


def unchanged(log: OpLog, row: int, slot: int) -> Result:
    """One of them by itself."""
    return result(read(log, np.array([row]), np.array([slot])), 0)


def parameter_name(log: OpLog, row: int, slot: int) -> str:
    """The parameter's name in an input slot; `input 3` if the log names none."""
    names = log.texts("Parameter").get(row, "").split(";")
    return (names[slot] if slot < len(names) else "") or f"input {slot}"


def parameter_names(log: OpLog, row: int, count: int) -> list[str]:
    """The names in so many input slots, as of `parameter_name`."""
    names = log.texts("Parameter").get(row, "").split(";")
    return [(names[slot] if slot < len(names) else "") or f"input {slot}" for slot in range(count)]


def records_changes(log: OpLog) -> bool:
    """True if the log says what operations changed in place.

    False if it says so of none, though they did, or has no numbers at all.
    """
    if log.texts("Mutated"):
        return True
    numbers = len(log.outputs.value) or len(log.inputs.value)
    return bool(numbers) and not _changed_unsaid(log)


def _changed_unsaid(log: OpLog) -> bool:
    """True if a named tensor is read with another content than the last record that names it left."""
    left: dict[str, int] = {}
    for row in sorted(log.texts("Parameter")):
        digests = log.input_digests[row].tolist()
        names = log.texts("Parameter").get(row, "").split(";")
        known = {name: digest for name, digest in zip(names, digests, strict=False) if name and digest != NO_DIGEST}
        if any(left.get(name, digest) != digest for name, digest in known.items()):
            return True
        left |= known
        if law_of(log, row).in_place and len(log.digests[row]):  # it returns what it wrote
            left.pop(names[0], None)
    return False
