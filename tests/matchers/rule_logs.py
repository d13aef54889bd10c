"""Logs of which only the keys matter."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from matchers.logs.columns import KeyColumn, Ragged, Strings
from matchers.logs.op_log import Header, OpLog

_OP = re.compile(r"op_([0-9]+)_(.*)")


def log_of(keys: Sequence[str], path: str = "made-up.log") -> OpLog:
    """A log with these keys, and in all other columns nothing."""
    n = len(keys)
    modules: dict[bytes, int] = {}
    ops: dict[bytes, int] = {}
    module, op, counter = [], [], []
    for key in keys:
        head, _, tail = key.rpartition("/")
        found = _OP.fullmatch(tail)
        name = found.group(2) if found else tail
        module.append(modules.setdefault(head.encode(), len(modules)))
        op.append(ops.setdefault(name.encode(), len(ops)))
        counter.append(int(found.group(1)) if found else -1)
    unknown, no_index = np.full(n, -1, np.int32), np.full(n, -1)
    nothing = Ragged(np.zeros(n + 1, np.int64), np.zeros(0))
    return OpLog(
        path=path,
        header=Header(),
        keys=KeyColumn(b"".join(key.encode() + b"\n" for key in keys)),
        modules=Strings(list(modules)),
        module=np.array(module, np.int64),
        ops=Strings(list(ops)),
        op=np.array(op, np.int64),
        counter=np.array(counter, np.int32),
        shapes=Strings([]),
        shape=no_index,
        dtypes=Strings([]),
        dtype=no_index,
        locations=Strings([]),
        location=no_index,
        phase=np.zeros(n, np.int8),
        present=np.zeros(n, np.uint8),
        stats=np.full((5, n), np.nan),
        outputs=nothing,
        inputs=nothing,
        producers=nothing,
        line=np.arange(1, n + 1, dtype=np.int32),
        digests=nothing,
        input_digests=nothing,
        counts=np.full((4, n), -1, np.int64),
        recompute=np.zeros(n, bool),
        micro_batch=unknown,
        extra={},
    )
