"""Logs made up for tests: records as Python values, written in the format that torchtitan and our own capture write."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Op", "log_text", "training_step", "write_log"]

_SEPARATOR = "=" * 80


@dataclass(kw_only=True)
class Op:
    """One record. `None` or an empty list leaves a line out; numbers may be text, to write what no float prints as."""

    key: str
    shape: Sequence[int] | None = (4, 8)
    dtype: str = "float32"
    l1: float | str | None = None
    l2: float | str | None = 1.0
    min: float | str | None = -1.0
    max: float | str | None = 1.0
    mean: float | str | None = 0.0
    outputs: Sequence[float | str] = (1.0,)
    inputs: Sequence[float | str] = ()
    producers: Sequence[str] = ()
    """Keys, `""` for a parameter, data, or an operation that was not captured."""
    location: str | None = "model.py:1"
    phase: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    """Fields of the superset, as written: `{"Digest": "00ff"}`."""


def op(key: str, value: float = 1.0, **fields: Any) -> Op:
    """A record whose statistics and output hash are all made from one number."""
    made: dict[str, Any] = {
        "l2": abs(value) * 2,
        "min": -abs(value),
        "max": abs(value),
        "mean": value / 10,
        "outputs": [abs(value) * 3],
    }
    return Op(key=key, **(made | fields))


def log_text(
    ops: Iterable[Op],
    *,
    excluded: Sequence[str] = ("detach", "t"),
    declared: int | None = None,
    run: Mapping[str, Any] | None = None,
    footer: bool = False,
    exact: bool = False,
) -> str:
    """The text of a log.

    Args:
        ops: the records, in order.
        excluded: operations that the header says were left out.
        declared: how many records the header promises; by default as many as there are.
        run: the run info of our own capture; also writes the `Format` line.
        footer: end with the footer of our own capture.
        exact: print numbers so that they round-trip, as our own capture does, instead of to seven digits.
    """
    records = list(ops)
    lines = [f"Total captured activations: {len(records) if declared is None else declared}"]
    if excluded:
        lines.append(f"Excluded ops dispatched: {', '.join(excluded)}")
    if run is not None:
        lines += ["Format: numtui 2", f"Run: {json.dumps(dict(run))}"]
    lines += [_SEPARATOR, ""]
    for record in records:
        lines += [*_record(record, exact), ""]
    if footer:
        lines.append(f"End of capture: {len(records)} records")
    return "\n".join(lines) + "\n"


def write_log(path: Path, ops: Iterable[Op], **options: Any) -> Path:
    """Write a log to `path`, compressed when it ends in `.gz`; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = log_text(ops, **options).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def training_step(layers: int = 2, seed: int = 0) -> list[Op]:
    """Forward and backward through a made-up model: fifteen operations a layer, with producers and plausible values."""
    rng = random.Random(seed)
    ops: list[Op] = []
    counters: dict[str, int] = {}

    def dispatch(module: str, name: str, sources: Sequence[int], shape: Sequence[int], phase: str | None = None) -> int:
        """Append an operation; `sources` are positions of producers, -1 for a parameter. Returns its position."""
        counter = counters.get(module, 0)
        counters[module] = counter + 1
        value = rng.uniform(1, 100)
        inputs = [ops[s].outputs[0] if s >= 0 else rng.uniform(1, 100) for s in sources]
        ops.append(
            op(
                f"{module}/op_{counter}_{name}",
                value,
                shape=shape,
                inputs=inputs,
                producers=[ops[s].key if s >= 0 else "" for s in sources],
                location=f"model/{module.rpartition('.')[2]}.py:{len(name) * 7}",
                phase=phase,
            )
        )
        return len(ops) - 1

    x = dispatch("tok_embeddings", "embedding", [-1, -1], (16, 8))
    for layer in range(layers):
        base = f"layers.{layer}"
        n = dispatch(f"{base}.attention_norm", "mul", [x, -1], (16, 8))
        q, k, v = (dispatch(f"{base}.attention.{w}", "mm", [n, -1], (16, 8)) for w in ("wq", "wk", "wv"))
        s = dispatch(f"{base}.attention", "bmm", [q, k], (2, 16, 16))
        s = dispatch(f"{base}.attention", "_softmax", [s], (2, 16, 16))
        y = dispatch(f"{base}.attention", "bmm", [s, v], (16, 8))
        x = dispatch(base, "add", [x, y], (16, 8))
        g = dispatch(f"{base}.feed_forward.w1", "mm", [x, -1], (16, 32))
        g = dispatch(f"{base}.feed_forward", "silu", [g], (16, 32))
        g = dispatch(f"{base}.feed_forward.w2", "mm", [g, -1], (16, 8))
        x = dispatch(base, "add", [x, g], (16, 8))
    x = dispatch("output", "mm", [x, -1], (16, 64))
    for layer in reversed(range(layers)):
        base = f"layers.{layer}"
        for module, shape in (("feed_forward.w2", (16, 32)), ("feed_forward.w1", (16, 8)), ("attention.wq", (16, 8))):
            x = dispatch(f"{base}.{module}", "mm", [x, -1], shape, "backward")
    return ops


def _record(record: Op, exact: bool) -> list[str]:
    def number(value: float | str) -> str:
        if isinstance(value, str):
            return value
        return repr(float(value)) if exact else f"{value:.6e}"

    lines = [f"[{record.key}]"]
    if record.shape is not None:
        lines.append(f"  Shape: torch.Size([{', '.join(map(str, record.shape))}]), Dtype: torch.{record.dtype}")
        for name, value in (
            ("L1 norm", record.l1),
            ("L2 norm", record.l2),
            ("Min", record.min),
            ("Max", record.max),
            ("Mean", record.mean),
        ):
            if value is not None:
                lines.append(f"  {name}: {number(value)}")
    if record.outputs:
        lines.append(f"  Output hash: {', '.join(map(number, record.outputs))}")
    if record.inputs:
        lines.append(f"  Input hashes: {', '.join(map(number, record.inputs))}")
    if record.producers:
        lines.append(f"  Input producers: {';'.join(record.producers)}")
    if record.location is not None:
        lines.append(f"  Location: {record.location}")
    if record.phase is not None:
        lines.append(f"  Phase: {record.phase}")
    lines += [f"  {name}: {value}" for name, value in record.extra.items()]
    return lines
