"""Report on diverging weights over steps, as text and JSON Lines (docs/weights.md is the reference)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from matchers.weights.compare import Divergence, StepSummary, WeightsComparison
from matchers.weights.log import TensorState, WeightLog
from numtui.text.counts import plural
from numtui.text.safe import safe_text

__all__ = ["write_jsonl", "write_matrix_jsonl", "write_matrix_text", "write_text"]

_MAX_NAMES = 3
_MAX_STEPS = 20
_MAX_NAME = 100


def write_text(comparison: WeightsComparison, out: TextIO) -> None:
    """Write the comparison of two logs as text."""
    out.writelines(f"{line}\n" for line in _lines(comparison))


def _lines(c: WeightsComparison) -> Iterator[str]:
    yield f"a  {_log(c.a)}"
    yield f"b  {_log(c.b)}"
    yield ""
    if c.starts_differ:
        yield f"{plural(len(c.starts_differ), 'parameter')} differed before the first step: {_names(c.starts_differ)}"
    if c.first is None:
        compared = max((step.compared for step in c.steps), default=0)
        yield f"No difference in {plural(len(c.steps), 'step')} and {plural(compared, 'parameter')}."
    else:
        yield f"First difference: step {c.first.step}, {_tensor(c.first)}, {_error(c.first)}"
        yield f"  a  {_state(c.first.a)}"
        yield f"  b  {_state(c.first.b)}"
        yield ""
        yield " step    differing parameters  largest error"
        yield from map(_step, _shown(c.steps))
        if len(c.steps) > _MAX_STEPS:
            yield f"  … {len(c.steps) - _MAX_STEPS:,} more steps are in --format jsonl"
    if c.not_comparable:
        owners = _names(dict.fromkeys(name for _, name, _ in c.not_comparable))
        yield f"Not compared, different shapes or shards: {plural(len(c.not_comparable), 'tensor')} of {owners}"
    for side, names, steps in (("a", c.only_a, c.steps_only_a), ("b", c.only_b, c.steps_only_b)):
        if names:
            yield f"Only in {side}: {plural(len(names), 'parameter')}: {_names(names)}"
        if steps:
            some = ", ".join(map(str, steps[:_MAX_STEPS])) + ("…" if len(steps) > _MAX_STEPS else "")
            yield f"Only in {side}: {plural(len(steps), 'step')}: {some}"


def _shown(steps: Sequence[StepSummary]) -> Sequence[StepSummary]:
    """Return the steps around the first difference, when there are many."""
    first = next((i for i, step in enumerate(steps) if step.different), 0)
    start = max(0, min(first - 2, len(steps) - _MAX_STEPS))
    return steps[start : start + _MAX_STEPS]


def _log(log: WeightLog) -> str:
    steps = f"{plural(len(log.steps), 'step')}" + (f" ({min(log.steps)} to {max(log.steps)})" if log.steps else "")
    unfinished = "" if log.complete else ", no footer: the run was cut off or continues"
    return f"{safe_text(log.path)}  {steps}, {plural(len(log.parameters), 'parameter')}{unfinished}"


def _step(step: StepSummary) -> str:
    line = f"{step.step:5}  {f'{step.different} of {step.compared}':>22}"
    return line if step.largest is None else f"{line}  {_ratio(step.largest.error):<13}  {_tensor(step.largest)}"


def _tensor(found: Divergence) -> str:
    return f"{safe_text(found.part, 40)} of {safe_text(found.parameter, _MAX_NAME)}"


def _error(found: Divergence) -> str:
    if math.isnan(found.error):
        return "bits differ, size unknown"
    if found.error == 0:
        return "only bits differ"
    if math.isinf(found.error) and found.b.l2 != 0:
        return "NaN or infinity on one side only"
    how = "" if found.a.sketch is not None and found.b.sketch is not None else ", from norms only"
    return f"relative error {_ratio(found.error)}{how}"


def _ratio(error: float) -> str:
    return "?" if math.isnan(error) else f"{error:.2g}"


def _state(state: TensorState) -> str:
    shape = "×".join(map(str, state.shape)) or "scalar"
    norm = "no norm" if state.l2 is None else f"L2 norm {state.l2!r}"
    digest = safe_text(state.digest or "none", 20)
    return f"line {state.line}: {shape} {safe_text(state.dtype, 40)}, {norm}, digest {digest}"


def _names(names: Any) -> str:
    names = list(names)
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(safe_text(name, _MAX_NAME) for name in names[:_MAX_NAMES]) + more


def write_jsonl(c: WeightsComparison, out: TextIO) -> None:
    """Write the first difference, then every step that both logs have, one object each."""
    _write({"first": None if c.first is None else _as_json(c.first)}, out)
    for step in c.steps:
        largest = None if step.largest is None else _as_json(step.largest)
        _write({"step": step.step, "compared": step.compared, "different": step.different, "largest": largest}, out)


def _as_json(found: Divergence) -> dict[str, Any]:
    # JSON has neither NaN nor infinity: both are null
    error = found.error if math.isfinite(found.error) else None
    lines = {"a_line": found.a.line, "b_line": found.b.line}
    return {"step": found.step, "parameter": found.parameter, "part": found.part, "error": error, **lines}


def _write(value: dict[str, Any], out: TextIO) -> None:
    out.write(json.dumps(value, separators=(",", ":")) + "\n")


def write_matrix_text(paths: Sequence[str], steps: Sequence[Sequence[int | None]], out: TextIO) -> None:
    """Write the first diverging step of every pair of logs; `=` where there is none."""
    cells = [
        ["·" if i == j else "=" if step is None else str(step) for j, step in enumerate(row)]
        for i, row in enumerate(steps)
    ]
    width = max(len(text) for row in [*cells, [str(len(paths))]] for text in row) + 2
    label = len(str(len(paths)))
    out.writelines(f"{i:{label}}  {safe_text(path)}\n" for i, path in enumerate(paths, 1))
    out.write("\nFirst step at which two logs differ (= never):\n\n")
    out.write(" " * label + "".join(f"{i:{width}}" for i in range(1, len(paths) + 1)) + "\n")
    out.writelines(
        f"{i:{label}}" + "".join(f"{text:>{width}}" for text in row) + "\n" for i, row in enumerate(cells, 1)
    )


def write_matrix_jsonl(paths: Sequence[str], steps: Sequence[Sequence[int | None]], out: TextIO) -> None:
    """Write one object per pair of logs: their paths, and the first diverging step or null."""
    for i, a in enumerate(paths):
        for j in range(i + 1, len(paths)):
            _write({"a": a, "b": paths[j], "step": steps[i][j]}, out)
