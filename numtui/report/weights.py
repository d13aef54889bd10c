"""Report on diverging weights over steps as text (docs/weights.md is the reference)."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, TextIO

from matchers.weights.compare import StepSummary, WeightsComparison
from matchers.weights.log import TensorState, WeightLog
from matchers.weights.matrix import Matrix
from numtui.report.weights_words import (
    LEGEND,
    cell_text,
    followers,
    gradient_agrees,
    logs_of_step,
    next_commands,
    no_difference,
    size_words,
    tensor_words,
    unlogged_before,
)
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["write_text"]

_MAX_NAMES = 3
_MAX_STEPS = 20
_MAX_NAME = 100
_MAX_LABEL = 24
_WIDTH = 80


def write_text(matrix: Matrix, out: TextIO) -> None:
    """Write the comparison: of two logs in detail, of more as a matrix of runs and steps."""
    lines = _two(matrix) if len(matrix.logs) == 2 and not matrix.references else _several(matrix)
    write_lines([*lines, *_next(matrix)], out)


def _two(matrix: Matrix) -> Iterator[str]:
    c = next(c for c in matrix.comparisons if c is not None)
    for side, log in (("a", c.a), ("b", c.b)):
        yield f"{side}  {_log(log)}"
    yield ""
    if c.starts_differ:
        yield f"{plural(len(c.starts_differ), 'parameter')} differed before the first step: {_names(c.starts_differ)}"
    if c.first is None:
        compared = max((step.compared for step in c.steps), default=0)
        yield f"No difference in {plural(len(c.steps), 'step')} and {plural(compared, 'parameter')}."
    else:
        run = matrix.runs[0]
        then = followers(c.first, matrix.differences(run, c.first.step))
        yield f"First difference: step {c.first.step}, {tensor_words(c.first)}{then}"
        yield f"  {size_words(c.first)}"
        yield f"  a  {_state(c.first.a)}"
        yield f"  b  {_state(c.first.b)}"
        yield from _circumstances(c)
        yield ""
        yield " step    differing parameters  largest error"
        yield from map(_step, _shown(c.steps))
        if len(c.steps) > _MAX_STEPS:
            yield f"  … {len(c.steps) - _MAX_STEPS:,} more steps are in --format json"
    if c.not_comparable:
        owners = _names(dict.fromkeys(name for _, name, _ in c.not_comparable))
        yield f"Not compared, different shapes or shards: {plural(len(c.not_comparable), 'tensor')} of {owners}"
    for side, names, steps in (("a", c.only_a, c.steps_only_a), ("b", c.only_b, c.steps_only_b)):
        if names:
            yield f"Only in {side}: {plural(len(names), 'parameter')}: {_names(names)}"
        if steps:
            some = ", ".join(map(str, steps[:_MAX_STEPS])) + ("…" if len(steps) > _MAX_STEPS else "")
            yield f"Only in {side}: {plural(len(steps), 'step')}: {some}"


def _circumstances(c: WeightsComparison) -> Iterator[str]:
    """Say what else is known about the first difference."""
    if gradient_agrees(c):
        yield "  Its gradient agrees: the optimizer's step differs."
    if (steps := unlogged_before(c)) is not None:
        before = f"Step {steps[0]} is" if steps[0] == steps[1] else f"Steps {steps[0]} to {steps[1]} are"
        yield f"  {before} not in both logs: the runs may diverge there already."


def _several(matrix: Matrix) -> Iterator[str]:
    against = matrix.names[matrix.reference]
    if matrix.first is None:
        yield f"{no_difference(matrix)}."
    else:
        run, first = matrix.first
        differences = matrix.differences(run, first.step)
        sentence = f"{_label(matrix, run)} diverges first: step {first.step}, {tensor_words(first)}"
        yield from _wrapped(sentence + followers(first, differences))
        cell = matrix.cells[run][first.step]
        yield f"  {size_words(first)}; {len(differences):,} of {cell.tensors:,} tensors differ after this step"
        comparison = matrix.comparisons[run]
        assert comparison is not None
        yield from _circumstances(comparison)
    yield ""
    which = (
        "each against the run of its configuration" if matrix.references else f"against {safe_text(against, _MAX_NAME)}"
    )
    yield f"Different tensors after each step, {which}:"
    yield ""
    yield from _table(matrix)
    yield ""
    width = max(len(_label(matrix, run)) for run in matrix.runs)
    for run in matrix.runs:
        yield from _wrapped(f" {_label(matrix, run):{width}}  {_summary(matrix, run)}", indent=width + 3)
    if matrix.equal:
        yield ""
    for group in matrix.equal:
        yield from _wrapped(f"Equal bit for bit: {', '.join(_label(matrix, run) for run in group)}")


def _summary(matrix: Matrix, run: int) -> str:
    c = matrix.comparisons[run]
    assert c is not None
    if run in matrix.not_compared:
        return "nothing compared"
    said = [f"equal in {plural(len(c.steps), 'step')}"]
    if c.first is not None:
        said = [f"step {c.first.step}, {tensor_words(c.first)}, {size_words(c.first)}"]
    if matrix.references:
        said.append(f"against {safe_text(matrix.names[matrix.reference_of(run)], _MAX_NAME)}")
    if c.starts_differ:
        said.append(f"{plural(len(c.starts_differ), 'parameter')} differed before the first step")
    if not matrix.logs[run].complete:
        said.append("no footer: the run was cut off or continues")
    return "; ".join(said)


def _label(matrix: Matrix, run: int) -> str:
    name = safe_text(matrix.names[run], _MAX_NAME)
    return name if len(name) <= _MAX_LABEL else "…" + name[1 - _MAX_LABEL :]


def _table(matrix: Matrix) -> Iterator[str]:
    """Yield the rows, with as many steps as fit: equal columns are merged before any is left out."""
    label = max(len(_label(matrix, run)) for run in matrix.runs)
    label = max(label, len("step"))
    columns = [([step], tuple(cell_text(matrix.cells[run].get(step)) for run in matrix.runs)) for step in matrix.steps]
    room = _WIDTH - label - 1
    if (merged := sum(map(_width, columns)) > room) is True:
        columns = _merged(columns)
    shown = _window(columns, room)
    yield f" {'step':{label}}" + "".join(f"{_range(column[0]):>{_width(column)}}" for column in shown)
    for row, run in enumerate(matrix.runs):
        cells = "".join(f"{column[1][row]:>{_width(column)}}" for column in shown)
        yield f" {_label(matrix, run):{label}}{cells}"
    signs = "".join(text for _, texts in shown for text in texts)
    yield from (f"   {sign}  {meaning}" for sign, meaning in LEGEND.items() if sign in signs)
    if merged:
        yield "   steps a–b: the same in each of them"
    if (left_out := len(matrix.steps) - sum(len(steps) for steps, _ in shown)) > 0:
        yield f"   {plural(left_out, 'more step is', 'more steps are')} in --format json"


_Column = tuple[list[int], tuple[str, ...]]
"""Steps, and the texts of the runs after each of them."""


def _range(steps: Sequence[int]) -> str:
    return f"{steps[0]}–{steps[-1]}" if len(steps) > 1 else str(steps[0])


def _width(column: _Column) -> int:
    return max(map(len, (_range(column[0]), *column[1]))) + 2


def _merged(columns: Sequence[_Column]) -> list[_Column]:
    merged: list[_Column] = []
    for steps, texts in columns:
        if merged and merged[-1][1] == texts:
            merged[-1][0].extend(steps)
        else:
            merged.append((list(steps), texts))
    return merged


def _window(columns: Sequence[_Column], room: int) -> Sequence[_Column]:
    """Return the columns that fit, from the one before the first difference on."""
    differs = (i for i, (_, texts) in enumerate(columns) if any(text[0].isdigit() for text in texts))
    start = max(next(differs, 0) - 1, 0)
    if sum(map(_width, columns)) <= room:
        start = 0
    shown: list[_Column] = []
    for column in columns[start:]:
        room -= _width(column)
        if room < 0 and shown:
            break
        shown.append(column)
    return shown


def _next(matrix: Matrix) -> Iterator[str]:
    """Yield the commands that say more."""
    if matrix.first is None:
        return
    run, first = matrix.first
    yield ""
    if logs_of_step(matrix, run, first.step) is None:
        yield f"Capture step {first.step} of both (numtui capture --steps {first.step}) to find the operation."
    for each in next_commands(matrix):
        yield safe_text(shlex.join(each.command), 10_000)
        yield f"  {safe_text(each.why, 200)}"


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return wrap(
        text,
        _WIDTH,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


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
    return line if step.largest is None else f"{line}  {_ratio(step.largest.error):<13}  {tensor_words(step.largest)}"


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
