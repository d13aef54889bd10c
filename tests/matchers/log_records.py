"""The columns of a log as records, as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from matchers.logs.op_log import STATISTICS, OpLog, Phase

__all__ = ["Record", "problems_of", "records_of"]


@dataclass
class Record:
    """One record as a person reads it. NaN and None: the log does not say, or not in a form that can be read."""

    line: int
    key: str
    module: str
    op: str
    counter: int
    shape: str = ""
    dtype: str = ""
    statistics: dict[str, str] = field(default_factory=dict)
    """`repr` of each, so that NaN equals NaN."""
    outputs: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    producers: list[int] = field(default_factory=list)
    location: str = ""
    phase: Phase = Phase.FORWARD
    digests: list[int] = field(default_factory=list)
    input_digests: list[int] = field(default_factory=list)
    recompute: bool = False
    micro_batch: int = -1
    counts: list[int] = field(default_factory=lambda: [-1] * 4)
    extra: dict[str, str] = field(default_factory=dict)


def records_of(log: OpLog) -> list[Record]:
    """All rows of a log."""
    every = []
    for row in range(len(log)):
        present = int(log.present[row])
        stats = {name: _shown(float(log.stats[k, row])) for k, name in enumerate(STATISTICS) if present >> k & 1}
        absent = [k for k in range(len(STATISTICS)) if not present >> k & 1]
        assert np.isnan(log.stats[absent, row]).all()
        every.append(
            Record(
                line=int(log.line[row]),
                key=log.keys[row],
                module=log.module_name(row),
                op=log.op_name(row),
                counter=int(log.counter[row]),
                shape=log.shape_text(row),
                dtype=log.dtype_text(row),
                statistics=stats,
                outputs=_all_shown(log.outputs[row].tolist()),
                inputs=_all_shown(log.inputs[row].tolist()),
                producers=log.producers[row].tolist(),
                location=log.location_text(row),
                phase=Phase(log.phase[row]),
                digests=log.digests[row].tolist(),
                input_digests=log.input_digests[row].tolist(),
                recompute=bool(log.recompute[row]),
                micro_batch=int(log.micro_batch[row]),
                counts=log.counts[:, row].tolist(),
                extra={name: rows[row] for name, rows in log.extra.items() if row in rows},
            )
        )
    return every


def _shown(value: float) -> str:
    return "nan" if math.isnan(value) else repr(value)


def problems_of(log: OpLog) -> list[tuple[int, str]]:
    """What could not be read, by line."""
    return sorted((problem.line, problem.message) for problem in log.problems)


def _all_shown(values: Sequence[float]) -> list[str]:
    return [_shown(value) for value in values]
