"""Comparisons made up row by row, for tests of what stands on a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from matchers.comparison import Comparison
from matchers.logs.columns import KeyColumn, Ragged, Strings
from matchers.logs.op_log import Header, OpLog
from matchers.pairing.pairing import Method, Pairing
from matchers.status import Role, Status
from tests.matchers.reasons import FITS

__all__ = ["comparison_of", "log_of"]


def log_of(keys: Sequence[str], *, path: str = "made.log", phase: int = 0) -> OpLog:
    """A log of operations with these keys and nothing else known about them."""
    n = len(keys)
    modules = [key.rpartition("/")[0] for key in keys]
    ops = [key.rpartition("_")[2] for key in keys]

    def interned(texts: list[str]) -> tuple[Strings, np.ndarray[Any, np.dtype[np.int64]]]:
        distinct = list(dict.fromkeys(texts))
        return Strings([t.encode() for t in distinct]), np.array([distinct.index(t) for t in texts], np.int64)

    def constant(value: int, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
        return np.full(n, value, dtype)

    nothing = Ragged(np.zeros(n + 1, np.int64), np.zeros(0, np.float64))
    module_table, module = interned(modules)
    op_table, op = interned(ops)
    return OpLog(
        path=path,
        header=Header(),
        keys=KeyColumn(b"".join(key.encode("utf-8", "surrogateescape") + b"\n" for key in keys)),
        modules=module_table,
        module=module,
        ops=op_table,
        op=op,
        counter=constant(0),
        shapes=Strings([b"[4, 8]"]),
        shape=constant(0, np.int64),
        dtypes=Strings([b"float32"]),
        dtype=constant(0, np.int64),
        locations=Strings([b"model.py:1"]),
        location=constant(0, np.int64),
        phase=constant(phase, np.int8),
        present=constant(0, np.uint8),
        stats=np.full((5, n), np.nan),
        outputs=nothing,
        inputs=nothing,
        producers=Ragged(np.zeros(n + 1, np.int64), np.zeros(0, np.int32)),
        line=np.arange(1, n + 1, dtype=np.int32),
        digests=Ragged(np.zeros(n + 1, np.int64), np.zeros(0, np.uint64)),
        input_digests=Ragged(np.zeros(n + 1, np.int64), np.zeros(0, np.uint64)),
        counts=np.full((4, n), -1, np.int64),
        recompute=constant(0, np.bool_),
        micro_batch=constant(-1),
        extra={},
    )


def comparison_of(
    statuses: Sequence[Status],
    *,
    errors: Sequence[float] | None = None,
    causes: Sequence[int] = (),
    keys: Sequence[str] | None = None,
    keys_b: Sequence[str] | None = None,
    confidence: float = 1.0,
) -> Comparison:
    """A comparison with a row for each status; rows of one side only are told by their status.

    `keys_b` are the keys of b where they differ, row by row (of rows that only a has they are not used).
    """
    r = len(statuses)
    names = list(keys) if keys is not None else [f"layers.{i // 4}.mlp/op_{i}_mm" for i in range(r)]
    names_b = list(keys_b) if keys_b is not None else names
    has_a = np.array([s is not Status.ONLY_B for s in statuses], bool)
    has_b = np.array([s not in (Status.ONLY_A, Status.RECOMPUTE) for s in statuses], bool)
    row_a = np.where(has_a, np.cumsum(has_a) - 1, -1).astype(np.int32)
    row_b = np.where(has_b, np.cumsum(has_b) - 1, -1).astype(np.int32)
    both = has_a & has_b
    pair = np.where(both, np.cumsum(both) - 1, -1).astype(np.int32)
    p = int(both.sum())
    pairing = Pairing(
        of_a=pair[has_a],
        of_b=pair[has_b],
        lead_a=row_a[both],
        lead_b=row_b[both],
        method=np.full(p, Method.ALIGNED, np.int8),
        confidence=np.full(p, confidence, np.float32),
        runner_up=np.full(p, -1, np.int32),
        runner_up_score=np.zeros(p, np.float32),
        grouped=np.zeros(p, bool),
        assembled=np.zeros(p, bool),
    )
    status = np.array(statuses, np.int8)
    cause = np.zeros(r, bool)
    cause[list(causes)] = True
    role = np.where(status >= Status.SHAPE, Role.RECEIVER, Role.NONE).astype(np.int8)
    role[cause & (role != Role.NONE)] = Role.ORIGIN
    given: dict[str, Any] = {
        "a": log_of([n for n, has in zip(names, has_a, strict=True) if has], path="run/step_2/rank_0_activations.log"),
        "b": log_of(
            [n for n, has in zip(names_b, has_b, strict=True) if has], path="other/step_2/rank_0_activations.log"
        ),
        "pairing": pairing,
        "row_a": row_a,
        "row_b": row_b,
        "pair": pair,
        "verdict": status,
        "reason": np.array([FITS[Status(s)][0] for s in status.tolist()], np.int8),
        "excluded_by": np.full(r, -1, np.int32),
        "error": np.array(errors if errors is not None else np.where(status >= Status.SHAPE, 1e-3, np.nan), np.float64),
        "bound": np.zeros(r, bool),
        "inputs_equal": np.zeros(r, bool),
        "tolerance": np.full(r, np.nan),
        "role": role,
        "cause": cause,
        "original": np.full(r, -1, np.int32),
        "at_a": np.flatnonzero(has_a).astype(np.int32),
        "at_b": np.flatnonzero(has_b).astype(np.int32),
    }
    return Comparison(**given)
