"""Logs of weights over steps, compared without a screen: read, compare, report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matchers.errors import InputError
from matchers.weights.compare import compare_weights, first_divergent_steps
from matchers.weights.log import WeightLog, read_weights
from numtui.cli.diff import complain, deliver
from numtui.report import weights as writers

__all__ = ["report_weights"]

_MOST_WARNINGS = 5


def report_weights(paths: Sequence[str], form: str, output: Path | None = None) -> bool:
    """Compare two logs, or each with each, and write a report; returns whether any of them part.

    Raises:
        UserError: a log cannot be read, the report cannot be written.
        BrokenPipeError: whoever read standard output is gone.
    """
    if len(paths) < 2:
        raise InputError(f"{paths[0]}: one log of weights tells nothing: give two or more to compare")
    logs = [read_weights(path) for path in paths]
    for log in logs:
        _warn(log)
    if len(logs) == 2:
        comparison = compare_weights(*logs)
        if not comparison.steps:
            raise InputError(f"{paths[0]} and {paths[1]}: no step is in both: {_steps(logs[0])} and {_steps(logs[1])}")
        write = writers.write_jsonl if form == "jsonl" else writers.write_text
        deliver(lambda out: write(comparison, out), output)
        return comparison.first is not None
    steps = first_divergent_steps(logs)
    write_matrix = writers.write_matrix_jsonl if form == "jsonl" else writers.write_matrix_text
    deliver(lambda out: write_matrix(list(paths), steps, out), output)
    return any(step is not None for row in steps for step in row)


def _warn(log: WeightLog) -> None:
    """Say on standard error what makes "no difference" mean less than it says."""
    if log.cut_off:
        complain(f"{log.path}: the log is cut off: its last line is left out")
    if not log.states:
        complain(f"{log.path}: the log has no tensors")
    for problem in log.problems[:_MOST_WARNINGS]:
        complain(f"{log.path}:{problem.line}: {problem.message}")
    if log.problem_count > _MOST_WARNINGS:
        complain(f"{log.path}: {log.problem_count - _MOST_WARNINGS} more lines could not be read")


def _steps(log: WeightLog) -> str:
    return f"steps {min(log.steps)} to {max(log.steps)}" if log.steps else "no steps"
