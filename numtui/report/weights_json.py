"""Report on diverging weights over steps as JSON and JSON Lines (docs/weights.md, docs/schema/weights.schema.json)."""

from __future__ import annotations

import json
import math
from typing import Any, Final, TextIO

from matchers.weights.compare import Divergence, StepSummary
from matchers.weights.matrix import Matrix
from numtui import __version__
from numtui.report.weights_words import gradient_agrees, next_commands, unlogged_before

__all__ = ["VERSION", "write_json", "write_jsonl"]

VERSION: Final = 1
"""Version of the format. New fields keep it; a renamed or removed one changes it."""


def write_json(matrix: Matrix, out: TextIO) -> None:
    """Write one object with everything, in ASCII."""
    first = None
    if matrix.first is not None:
        run, found = matrix.first
        differences = matrix.differences(run, found.step)
        then = [{"part": d.part, "kind": d.kind.value} for d in differences if d.parameter == found.parameter][1:]
        first = {"run": matrix.names[run], **_difference(found), "then": then}
    report = {
        "version": VERSION,
        "numtui": __version__,
        "reference": matrix.names[matrix.reference],
        "first": first,
        "runs": [_run(matrix, run) for run in range(len(matrix.logs))],
        "steps": list(matrix.steps),
        "cells": [
            {"run": matrix.names[run], **_cell(step, matrix.cells[run].get(step))}
            for run in matrix.runs
            for step in matrix.steps
        ],
        "equal": [[matrix.names[run] for run in group] for group in matrix.equal],
        "next": [{"command": list(each.command), "why": each.why} for each in next_commands(matrix)],
    }
    out.write(json.dumps(report, indent=1, allow_nan=False) + "\n")


def _run(matrix: Matrix, run: int) -> dict[str, Any]:
    log, c = matrix.logs[run], matrix.comparisons[run]
    facts = {
        "name": matrix.names[run],
        "path": log.path,
        "steps": len(log.steps),
        "parameters": len(log.parameters),
        "complete": log.complete,
    }
    if c is None:
        return facts
    if matrix.references:
        facts["against"] = matrix.names[matrix.reference_of(run)]
    unlogged = unlogged_before(c)
    return {
        **facts,
        "first": None if c.first is None else _difference(c.first),
        "gradient_agrees": gradient_agrees(c),
        "unlogged_before": None if unlogged is None else list(unlogged),
        "different_before_first_step": None if c.starts_differ is None else list(c.starts_differ),
        "only_in_reference": list(c.only_a),
        "only_here": list(c.only_b),
    }


def _cell(step: int, cell: StepSummary | None) -> dict[str, Any]:
    if cell is None:
        return {"step": step, "state": "missing"}
    state = "not compared" if not cell.tensors else "different" if cell.different_tensors else "equal"
    return {
        "step": step,
        "state": state,
        "tensors": cell.tensors,
        "different": cell.different_tensors,
        "uncompared": cell.uncompared,
        "different_parameters": cell.different,
        "first": None if cell.first is None else _difference(cell.first),
        "largest": None if cell.largest is None else _difference(cell.largest),
    }


def write_jsonl(matrix: Matrix, out: TextIO) -> None:
    """Write lines of JSON: of two logs the first difference and every step of both; of more, a line per run."""
    if len(matrix.logs) > 2:
        for run in matrix.runs:
            c = matrix.comparisons[run]
            first = None if c is None or c.first is None else _difference(c.first)
            _write({"a": matrix.logs[matrix.reference_of(run)].path, "b": matrix.logs[run].path, "first": first}, out)
        return
    c = next(c for c in matrix.comparisons if c is not None)
    _write({"first": None if c.first is None else _difference(c.first)}, out)
    for step in c.steps:
        largest = None if step.largest is None else _difference(step.largest)
        _write({"step": step.step, "compared": step.compared, "different": step.different, "largest": largest}, out)


def _difference(found: Divergence) -> dict[str, Any]:
    return {
        "step": found.step,
        "parameter": found.parameter,
        "part": found.part,
        "kind": found.kind.value,
        # JSON has neither NaN nor infinity: both are null
        "error": found.error if math.isfinite(found.error) else None,
        "a_line": found.a.line,
        "b_line": found.b.line,
    }


def _write(value: dict[str, Any], out: TextIO) -> None:
    out.write(json.dumps(value, separators=(",", ":")) + "\n")
