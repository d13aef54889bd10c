"""Two logs of which one computes some of the rows of the other, cut to the rows that both have.

Each result that both logs tell the rows of has the numbers of the common rows alone, in one order on both sides, so
that whatever judges whole tensors judges these. What depends on other rows too, and is not told by rows, loses its
numbers.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from matchers.arrays import Bool, Int64, columns, marked
from matchers.laws.law import Form
from matchers.logs.columns import Ragged, Strings
from matchers.logs.hashing import mix
from matchers.logs.op_log import STATISTICS, UNKNOWN, OpLog
from matchers.ops.dataflow import downstream
from matchers.ops.json_values import hex_digest, parsed_object
from matchers.ops.laws import rows_where
from matchers.ops.shapes import dimensions
from matchers.ops.start import read_tensors
from matchers.ops.tensor_rows import TensorRows, rows_of
from matchers.pairing.common_rows import CommonRows, common_rows, rows_told

__all__ = ["on_common_rows"]

_ANY: Final = b"[?]"
_OF_BATCH: Final = ("batch", "batch_digest")
_DROPPED: Final = ("Mutated", "Inputs", "Input statistics", "Exchanged")
"""Fields about other rows, too."""


def on_common_rows(
    a: OpLog,
    b: OpLog,
    partners: Callable[[OpLog, OpLog], tuple[Int64, Int64]],
    indices: Sequence[tuple[str, str]] = (),
) -> tuple[OpLog, OpLog]:
    """Return the logs cut to common rows; as they are where they tell no rows, or these have the same dimensions.

    And where choices alone make them differ in number, such as which tokens an expert has: then the batch is the same.

    Args:
        partners: pairs the records of two logs, whatever the sizes of their dimensions but the last.
        indices: of a and of b, that the user says name the same rows (`ops.row_index`).
    """
    if not all(len(log.texts("Rows")) for log in (a, b)):
        return a, b
    short = _by_last_dimension(a, b)
    i, j = partners(short[0], short[1])
    told = [(rows_of(a, x), rows_of(b, y)) for x, y in zip(i.tolist(), j.tolist(), strict=True)]
    of = [(pair, k) for pair, (x, y) in enumerate(told) for k in x.keys() & y.keys()]
    pairs = [(told[pair][0][k], told[pair][1][k]) for pair, k in of]
    named = rows_told(indices, dict.fromkeys((x.of, y.of) for x, y in pairs))
    found = dict(zip(of, common_rows(pairs, {of: rows for of, (rows, _) in named.items()}), strict=True))
    if not any(rows is not None and x.of != y.of for rows, (x, y) in zip(found.values(), pairs, strict=True)):
        return a, b
    more = np.unique([pair for (pair, _), (x, y) in zip(of, pairs, strict=True) if len(x) != len(y)]).astype(np.int64)
    if len(more) and _behind_choices(a, i[more]) and _behind_choices(b, j[more]):
        return a, b
    shapes = [[dimensions(log.shape_text(row)) for row in rows.tolist()] for log, rows in ((a, i), (b, j))]
    longer = np.array([x[-1:] != y[-1:] for x, y in zip(*shapes, strict=True)], bool)
    for log, rows in zip(short, (i[longer], j[longer]), strict=True):
        log.shape[rows] = log.shapes.raw.index(_ANY)
    other = np.array([x != y for x, y in zip(*shapes, strict=True)], bool)
    depends = _depends(a, i[other]), _depends(b, j[other])
    depends[0][i], depends[1][j] = (depends[0][i] | depends[1][j],) * 2
    kept: tuple[_Kept, _Kept] = {}, {}
    for k in np.flatnonzero(depends[0][i]).tolist():
        one, another = told[k]
        if longer[k]:
            continue
        for output in one.keys() & another.keys():
            rows = found[k, output]
            if rows is not None:
                kept[0].setdefault(int(i[k]), {})[output] = one[output], rows.a
                kept[1].setdefault(int(j[k]), {})[output] = another[output], rows.b
    for log, held in zip((a, b), kept, strict=True):
        for record in [record for record, outputs in held.items() if len(outputs) < len(log.digests[record])]:
            del held[record]
    uses = Counter(indices[k] for x, y in pairs if (x.of, y.of) in named for k in named[x.of, y.of][1].tolist())
    words = _words(found.values(), pairs)
    cut_a = replace(_cut(a, short[0], depends[0], kept[0], UNKNOWN[0]), rows_compared=words, rows_told=uses)
    return cut_a, _cut(b, short[1], depends[1], kept[1], UNKNOWN[1])


def _behind_choices(log: OpLog, rows: Int64) -> bool:
    """True if all records follow from positions of the largest values."""
    chosen = rows_where(log, lambda law: law.form is Form.RANK)
    return bool(downstream(log.producers, chosen, np.ones(len(log), bool))[rows].all())


def _words(found: Iterable[CommonRows | None], pairs: Sequence[tuple[TensorRows, TensorRows]]) -> str:
    """`2 of 22 in a, of 2 in b (9, 20)`: of the results with other rows that are most."""
    kinds = Counter(
        (len(x), len(y), tuple((rows.a if len(x) > len(y) else rows.b).tolist()))
        for rows, (x, y) in zip(found, pairs, strict=True)
        if rows is not None and x.of != y.of
    )
    ((in_a, in_b, which), _), *_ = kinds.most_common(1)
    named = ", ".join(map(str, which[:_NAMED])) + ", …" * (len(which) > _NAMED)
    return f"{len(which):,} of {in_a:,} in a, of {in_b:,} in b ({named})"


_NAMED: Final = 5
_Kept = dict[int, dict[int, tuple[TensorRows, Int64]]]
"""By record and output, all rows and those that are kept."""


def _by_last_dimension(*logs: OpLog) -> list[OpLog]:
    """The logs with shapes of one dimension at most, the last, and `?` for one that only one of them has: of a key."""
    last = [[dimensions(text)[-1:] for text in log.shapes] for log in logs]
    both = set.intersection(*map(set, last))
    out = []
    for log, of in zip(logs, last, strict=True):
        texts = [f"[{', '.join(map(str, dims))}]".encode() if dims in both else _ANY for dims in of]
        known = {text: k for k, text in enumerate(dict.fromkeys((_ANY, *texts)))}
        shape = np.array([*(known[text] for text in texts), -1])[log.shape]
        out.append(replace(log, shapes=Strings(list(known)), shape=shape))
    return out


def _depends(log: OpLog, begins: Int64) -> Bool:
    """bool[n]: these records, and all that read what they made."""
    return downstream(log.producers, marked(begins, len(log)), np.ones(len(log), bool))


@columns
class _Numbers:
    """The numbers of some rows of a tensor together, in their order."""

    shape: tuple[int, ...]
    digest: np.uint64
    l1: float
    l2: float
    mean: float
    broken: int
    sketch: bytes

    @classmethod
    def of(cls, rows: TensorRows, last: tuple[int, ...]) -> _Numbers:
        """Those of rows of this length."""
        salt = mix(np.arange(1, len(rows) + 1, dtype=np.uint64))
        signs = np.where(salt >> np.uint64(63), -1.0, 1.0)[:, None]
        known = np.isfinite(rows.l2)
        sketch = (rows.sketch * signs)[known].sum(axis=0)
        return cls(
            (len(rows), *last),
            mix(np.sum(mix(rows.digest + salt), keepdims=True))[0],
            float(np.sum(rows.l1[known])),
            float(np.sqrt(np.sum(rows.l2[known] ** 2))),
            float(np.mean(rows.mean[known])) if known.any() else math.nan,
            int(np.count_nonzero(~known)),
            b64encode(sketch.astype("<f8").tobytes()) if np.isfinite(sketch).all() else b"",
        )

    def as_json(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """As a further output, of which the log told this."""
        found = {"shape": list(self.shape), "dtype": told.get("dtype"), "l1": self.l1, "l2": self.l2, "mean": self.mean}
        counts = [math.prod(self.shape), self.broken, 0, 0]
        return {**found, "counts": counts, "digest": f"{self.digest:016x}", "sketch": self.sketch.decode()}


def _cut(log: OpLog, short: OpLog, depends: Bool, kept: _Kept, unknown: np.uint64) -> OpLog:
    """The log with numbers of the kept rows, and without those of other records that depend on other rows.

    Args:
        short: the log by last dimensions.
    """
    rows = np.flatnonzero(depends)
    present, stats, counts = log.present.copy(), log.stats.copy(), np.array(log.counts)
    present[rows], stats[:, rows], counts[:, rows] = 0, np.nan, -1
    none = np.array([record for record in rows.tolist() if record not in kept], np.int64)
    digests, outputs = log.digests.replaced(none), log.outputs.replaced(none)
    texts: dict[str, dict[int, bytes]] = {name: dict.fromkeys(rows.tolist(), b"") for name in _of_results(log)}
    if "Arguments" in log.extra:  # sizes are those of other rows
        texts["Arguments"] = dict.fromkeys(none.tolist(), b"")
    shapes = {raw: k for k, raw in enumerate(log.shapes.raw)}
    shape = log.shape.copy()
    for record in rows.tolist():
        dims = dimensions(log.shape_text(record))
        of = {k: _Numbers.of(whole.taken(which), dims[-1:] if len(whole.of) < len(dims) else (1,))
              for k, (whole, which) in kept.get(record, {}).items()}  # fmt: skip
        for k, numbers in of.items():
            digests[record][k], outputs[record][k] = numbers.digest, numbers.l1
            if k and (raw := log.texts(f"Output {k}").raw(record)):
                texts[f"Output {k}"][record] = json.dumps(numbers.as_json(parsed_object(raw) or {})).encode()
        if record not in kept:
            raw = short.shapes.raw[short.shape[record]]
            shape[record] = shapes.setdefault(raw, len(shapes)) if log.shape[record] >= 0 else -1
        if 0 in of:
            shape[record] = shapes.setdefault(f"[{', '.join(map(str, of[0].shape))}]".encode(), len(shapes))
            stats[_AT, record] = of[0].l2, of[0].mean
            present[record] = _PRESENT
            counts[:, record] = math.prod(of[0].shape), of[0].broken, 0, 0
            if "Sketch" in texts:
                texts["Sketch"][record] = of[0].sketch
    cut = replace(
        log,
        header=replace(log.header, run={k: v for k, v in log.header.run.items() if k not in _OF_BATCH}),
        shapes=Strings(list(shapes)), shape=shape, present=present, stats=stats, counts=counts,
        digests=digests, outputs=outputs,
        extra={name: of.changed(texts[name]) if name in texts else of for name, of in log.extra.items()},
        rows_kept={record: {k: which for k, (_, which) in kept.get(record, {}).items()} for record in rows.tolist()},
    )  # fmt: skip
    return _with_inputs(log, cut, depends, unknown)


_AT: Final = [STATISTICS.index("L2 norm"), STATISTICS.index("Mean")]
_PRESENT: Final = sum(1 << at for at in _AT)


def _of_results(log: OpLog) -> Iterator[str]:
    yield from (name for name in log.extra if name in ("Sketch", *_DROPPED) or name.startswith("Output "))


def _copied(lists: Ragged) -> Ragged:
    return Ragged(lists.start, lists.value.copy())


def _with_inputs(log: OpLog, cut: OpLog, depends: Bool, unknown: np.uint64) -> OpLog:
    """The cut log with what its records read: the kept rows of it, or what has no rows of the batch."""
    digests, norms = _copied(log.input_digests), _copied(log.inputs)
    batch = {hex_digest(tensor.get("digest")) for tensor in read_tensors(log.header.run)}
    for record in range(len(log)):
        for slot, made in enumerate(log.producers[record].tolist()):
            told = slot < len(digests[record])
            digest = digests[record][slot] if told else unknown
            if made >= 0 and depends[made]:
                same = np.flatnonzero(log.digests[made] == digest)
                after, norm = unknown, np.nan
                if len(same) and len(cut.digests[made]):
                    after, norm = cut.digests[made][same[0]], cut.outputs[made][same[0]]
            elif made < 0 and depends[record] and int(digest) in batch:
                after, norm = unknown, np.nan
            else:
                continue
            if told:
                digests[record][slot] = after
            if slot < len(norms[record]):
                norms[record][slot] = norm
    # an operation without a result would be judged by what it reads
    for record in [record for record, outputs in cut.rows_kept.items() if not outputs]:
        digests[record][:], norms[record][:] = unknown, np.nan
    return replace(cut, input_digests=digests, inputs=norms)
