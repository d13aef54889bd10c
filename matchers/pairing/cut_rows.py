"""Two logs of which one computes some of the rows of the other, cut to the rows that both have.

Each result that both logs tell the rows of has the numbers of the common rows alone, in one order on both sides, so
that whatever judges whole tensors judges these. What depends on other rows too, and is not told by rows, loses its
numbers.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from matchers.arrays import Bool, Int64, columns
from matchers.logs.columns import Ragged, Strings
from matchers.logs.hashing import mix
from matchers.logs.op_log import STATISTICS, UNKNOWN, OpLog
from matchers.ops.json_values import hex_digest, parsed_object
from matchers.ops.shapes import dimensions
from matchers.ops.start import read_tensors
from matchers.ops.tensor_rows import TensorRows, rows_of
from matchers.pairing.common_rows import common_rows

__all__ = ["on_common_rows"]

_OF_BATCH: Final = ("batch", "batch_digest")
_DROPPED: Final = ("Mutated", "Inputs", "Exchanged")
"""Fields about other rows, too."""


def on_common_rows(a: OpLog, b: OpLog, partners: Callable[[OpLog, OpLog], tuple[Int64, Int64]]) -> tuple[OpLog, OpLog]:
    """Return the logs cut to common rows; as they are where they tell no rows, or these have the same dimensions.

    Args:
        partners: pairs the records of two logs, whatever the sizes of their dimensions but the last.
    """
    if not all(len(log.texts("Rows")) for log in (a, b)):
        return a, b
    i, j = partners(_by_last_dimension(a), _by_last_dimension(b))
    told = [(rows_of(a, x), rows_of(b, y)) for x, y in zip(i.tolist(), j.tolist(), strict=True)]
    found = common_rows([(x[k], y[k]) for x, y in told for k in x.keys() & y.keys()])
    if all(x == y for x, y in found):
        return a, b
    shapes = [[dimensions(log.shape_text(row)) for row in rows.tolist()] for log, rows in ((a, i), (b, j))]
    other = np.array([x != y for x, y in zip(*shapes, strict=True)], bool)
    depends = _depends(a, i[other]), _depends(b, j[other])
    depends[0][i], depends[1][j] = (depends[0][i] | depends[1][j],) * 2
    kept: tuple[_Kept, _Kept] = {}, {}
    for k in np.flatnonzero(depends[0][i]).tolist():
        one, another = told[k]
        if shapes[0][k][-1:] != shapes[1][k][-1:]:  # rows of other lengths
            continue
        for output in one.keys() & another.keys():
            rows = found.get((one[output].of, another[output].of))
            if rows is not None:
                for of, record, whole, which in zip(kept, (i[k], j[k]), (one, another), (rows.a, rows.b), strict=True):
                    of.setdefault(int(record), {})[output] = whole[output], which
    for log, of in zip((a, b), kept, strict=True):
        for record in [record for record, outputs in of.items() if len(outputs) < len(log.digests[record])]:
            del of[record]
    return _cut(a, depends[0], kept[0], UNKNOWN[0]), _cut(b, depends[1], kept[1], UNKNOWN[1])


_Kept = dict[int, dict[int, tuple[TensorRows, Int64]]]
"""By record and output, all rows and those that are kept."""


def _by_last_dimension(log: OpLog) -> OpLog:
    """The log with shapes of at most one dimension: what results of other rows have in common."""
    shapes = [f"[{', '.join(map(str, dimensions(text)[-1:]))}]".encode() for text in log.shapes]
    known = {text: k for k, text in enumerate(dict.fromkeys(shapes))}
    of = np.array([*(known[text] for text in shapes), -1])
    return replace(log, shapes=Strings(list(known)), shape=of[log.shape])


def _depends(log: OpLog, begins: Int64) -> Bool:
    """bool[n]: these records, and all that read what they made."""
    out = np.zeros(len(log), bool)
    out[begins] = True
    for record in range(len(log)):
        made = log.producers[record]
        if not out[record] and len(made):
            out[record] = bool(out[made[made >= 0]].any())
    return out


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


def _cut(log: OpLog, depends: Bool, kept: _Kept, unknown: np.uint64) -> OpLog:
    """The log with numbers of the kept rows, and without those of other records that depend on other rows."""
    rows = np.flatnonzero(depends)
    present, stats, counts = log.present.copy(), log.stats.copy(), np.array(log.counts)
    present[rows], stats[:, rows], counts[:, rows] = 0, np.nan, -1
    none = np.array([record for record in rows.tolist() if record not in kept], np.int64)
    digests, outputs = log.digests.replaced(none), log.outputs.replaced(none)
    texts: dict[str, dict[int, bytes]] = {name: dict.fromkeys(rows.tolist(), b"") for name in _of_results(log)}
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
        if log.shape[record] >= 0:
            dims = of[0].shape if 0 in of else dims[-1:]
            shape[record] = shapes.setdefault(f"[{', '.join(map(str, dims))}]".encode(), len(shapes))
        if 0 in of:
            stats[_AT, record] = of[0].l2, of[0].mean
            present[record] = _PRESENT
            counts[:, record] = math.prod(of[0].shape), of[0].broken, 0, 0
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
    return replace(cut, input_digests=digests, inputs=norms)
