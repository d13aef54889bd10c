"""Logs as our own capture writes them, of operations on arrays that are made up.

Digests, sketches and counts agree with the values. Digest and sketch stand in for those of the capture: any 64 bits
that tell arrays apart, and any fixed signs, will do for a reader.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capture.log_writer import Mutation, Record, TensorSummary, write_log
from matchers.arrays import Bool
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OF_PARTS, OpLog
from matchers.logs.parser import read_log

__all__ = ["Step", "as_parts", "captured_log", "summary", "write_captured"]

Array = NDArray[Any]

_SIGNS = np.random.default_rng(7).choice([-1.0, 1.0], (16, 1 << 16))


def summary(
    values: Array | None, *, dtype: str = "", placement: Mapping[str, Any] | None = None, sketch: bool = True
) -> TensorSummary:
    """What the capture says of a tensor; `dtype` of one that numpy does not have. None: it was not read.

    With a placement, positions are those of the global tensor: a shard of rows, as far as this stand-in goes.
    """
    if values is None:
        return TensorSummary(shape=(), dtype="float32")
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    flat = np.where(np.isfinite(wide), wide, 0.0).ravel()
    start = 0
    if placement is not None and values.ndim:
        start = placement["offsets"][0] * int(np.prod(placement["shape"][1:]))
    numbers = {}
    if finite.size:
        numbers = {
            "l1": float(np.abs(finite).sum()),
            "l2": float(np.sqrt((finite**2).sum())),
            "min": float(finite.min()),
            "max": float(finite.max()),
            "mean": float(finite.mean()),
        }
    return TensorSummary(
        shape=values.shape,
        dtype=dtype or values.dtype.name,
        **numbers,
        numel=values.size,
        nan=int(np.isnan(wide).sum()),
        inf=int(np.isinf(wide).sum()),
        zero=int((wide == 0).sum()),
        digest=int(hashlib.sha256(values.tobytes()).hexdigest()[:16], 16),
        sketch=(_SIGNS[:, start : start + flat.size] @ flat).astype("<f8").tobytes() if sketch else None,
        placement=placement,
    )


@dataclass(kw_only=True)
class Step:
    """One operation: arrays, or summaries of them, that go in and come out.

    Attributes:
        reads: what goes in; `made` gives for each input the key of the record that made it.
        gives: what comes out.
        changed: what an input holds afterwards, by slot.
        fields: anything else of `capture.log_writer.Record`.
    """

    key: str
    gives: Sequence[Array | TensorSummary] = ()
    reads: Sequence[Array | TensorSummary | None] = ()
    made: Sequence[str] = ()
    changed: Mapping[int, Array | TensorSummary] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def _summary(values: Array | TensorSummary) -> TensorSummary:
    return values if isinstance(values, TensorSummary) else summary(values)


def _record(step: Step, seq: int) -> Record:
    names: Sequence[str] = step.fields.get("parameters", ())
    return Record(
        key=step.key,
        seq=seq,
        outputs=[_summary(values) for values in step.gives],
        inputs=[None if values is None else _summary(values) for values in step.reads],
        producers=step.made or [""] * len(step.reads),
        mutated=[
            Mutation(slot=slot, name=names[slot] if slot < len(names) else None, summary=_summary(values))
            for slot, values in step.changed.items()
        ],
        **{"location": "model.py:1", **step.fields},
    )


def write_captured(path: str | os.PathLike[str], steps: Sequence[Step], **run: Any) -> None:
    """Writes a complete log."""
    records = [_record(step, seq) for seq, step in enumerate(steps)]
    write_log(path, records, count=len(records), excluded={"view": 1}, run=run, complete=True)


def captured_log(steps: Sequence[Step], **run: Any) -> OpLog:
    """The steps as a log that was written and read."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "made-up.log")
        write_captured(path, steps, **run)
        return read_log(path)


def as_parts(log: OpLog, rows: Bool) -> OpLog:
    """The log with results of which only the sketches are known, such as the sums of terms that several ranks made."""
    stats, present = log.stats.copy(), log.present.copy()
    outputs, digests = log.outputs.value.copy(), log.digests.value.copy()
    inputs, input_digests = log.inputs.value.copy(), log.input_digests.value.copy()
    stats[:, rows], present[rows] = np.nan, 0
    lost, read = rows[log.outputs.row], np.append(rows, False)[log.producers.value]
    outputs[lost], digests[lost], inputs[read], input_digests[read] = np.nan, OF_PARTS, np.nan, NO_DIGEST
    return replace(
        log,
        stats=stats,
        present=present,
        outputs=Ragged(log.outputs.start, outputs),
        digests=Ragged(log.digests.start, digests),
        inputs=Ragged(log.inputs.start, inputs),
        input_digests=Ragged(log.input_digests.start, input_digests),
    )
