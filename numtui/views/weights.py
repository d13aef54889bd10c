"""Lines of the screen of weights: the matrix of runs and steps, and the differences of its chosen cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matchers.weights.compare import Divergence, Kind
from numtui.report.weights_words import LEGEND, cell_text, followers, no_difference, size_words, tensor_words
from numtui.session.weights import ParameterDifference, WeightsCursor
from numtui.text.counts import plural
from numtui.text.lines import Line, fit, key_help, key_line, width_of, wrap_line
from numtui.text.safe import safe_text

__all__ = ["HELP", "weights_lines"]

_MAX_LABEL = 24
_KEYS = (
    ("←↓↑→", "move"),
    ("enter", "explorer"),
    ("g", "earliest"),
    ("q", "quit"),
    ("?", "help"),
    ("f", "first of run"),
    ("space", "scroll"),
)
"""Keys, the most important first."""

HELP: Sequence[Line] = [
    *key_help(
        {
            "← ↓ ↑ →  h j k l": "another run or step",
            "home  end": "first, last step",
            "g": "earliest different cell of all runs",
            "f": "first different cell of this run",
            "space  b": "scroll the parameters down, up",
            "enter": "open the explorer on the operations of this step",
            "ctrl+l": "redraw",
            "q": "quit",
        }
    ),
    [],
    *([(f"  {fit(sign, 16)}", "key"), (f" {meaning}", "")] for sign, meaning in LEGEND.items()),
    [(f"  {fit('12', 16)}", "key"), (" tensors that differ after this step from the run compared with", "")],
    [],
    [("  Parameters are in the order of a step: gradients first, then the order of the model.", "")],
    [("  The number before a name is the relative error of its largest difference.", "")],
]


def weights_lines(cursor: WeightsCursor, width: int, height: int) -> tuple[list[Line], list[int]]:
    """Return the lines of the screen, and by line the row that a click chooses (-1: none)."""
    head = [_heading(cursor), _about(cursor)]
    rows = min(len(cursor.matrix.runs), max((height - 6) // 2, 1))
    start = min(max(cursor.row - rows // 2, 0), len(cursor.matrix.runs) - rows)
    chosen = range(start, start + rows)
    lines = [*head, *_matrix(cursor, chosen, width), [], *wrap_line(_cell_heading(cursor), width)]
    items = [-1, -1, -1, *chosen]
    room = max(height - len(lines) - 1, 0)
    lines += _differences(cursor, width, room)
    lines += [[] for _ in range(height - 1 - len(lines))]
    last: Line = [(f" {safe_text(cursor.message, 500)}", "red")] if cursor.message else key_line(_KEYS, width)
    lines = [*lines[: height - 1], last]
    return lines, items + [-1] * (len(lines) - len(items))


def _heading(cursor: WeightsCursor) -> Line:
    matrix = cursor.matrix
    if matrix.first is None:
        return [(f" {no_difference(matrix)}", "title")]
    run, first = matrix.first
    name = safe_text(matrix.names[run], _MAX_LABEL)
    return [(f" {name} diverges first: step {first.step}, {tensor_words(first)}", "title")]


def _about(cursor: WeightsCursor) -> Line:
    matrix = cursor.matrix
    line: Line = [
        (f" different tensors after each step, against {safe_text(matrix.names[matrix.reference], 40)}", "dim")
    ]
    for group in matrix.equal:
        line.append((" · equal: " + ", ".join(safe_text(matrix.names[run], _MAX_LABEL) for run in group), "dim"))
    return line


def _matrix(cursor: WeightsCursor, rows: range, width: int) -> list[Line]:
    """Return the steps and the rows, with the columns around the cursor."""
    matrix = cursor.matrix
    labels = [safe_text(matrix.names[run], 100) for run in matrix.runs]
    label = min(max(map(width_of, [*labels, "step"])), _MAX_LABEL)
    tensors = max((cell.tensors for cells in matrix.cells for cell in cells.values()), default=0)
    cell = max(len(f"{tensors:,}*"), len(str(matrix.steps[-1]))) + 2
    number = max(min((width - label - 4) // cell, len(matrix.steps)), 1)
    start = min(max(cursor.column - number // 2, 0), len(matrix.steps) - number)
    columns = range(start, start + number)
    left = "…" if start else " "
    right = "…" if columns.stop < len(matrix.steps) else ""
    header = "".join(f"{matrix.steps[column]:>{cell}}" for column in columns)
    lines: list[Line] = [[(f" {'step':{label}}{left}{header} {right}", "dim")]]
    for row in rows:
        line: Line = [(f" {fit(labels[row], label, keep_end=True)} ", "title" if row == cursor.row else "")]
        for column in columns:
            text = cell_text(matrix.cells[matrix.runs[row]].get(matrix.steps[column]))
            role = "red" if text[0].isdigit() else "good" if text == "=" else "dim"
            if (row, column) == (cursor.row, cursor.column):
                role = "chosen"
            line += [(" " * (cell - len(text) - 1), ""), (f" {text}", role)]
        lines.append(line)
    return lines


def _cell_heading(cursor: WeightsCursor) -> Line:
    name = safe_text(cursor.matrix.names[cursor.run], _MAX_LABEL)
    cell = cursor.cell
    line: Line = [(f" {name}, step {cursor.step}", "title")]
    if cell is None:
        said = "this step is not in both logs"
    elif not cell.tensors:
        said = "no tensor could be compared"
    elif not cell.different_tensors:
        said = f"{plural(cell.tensors, 'tensor')} agree"
    else:
        said = (
            f"{cell.different_tensors:,} of {cell.tensors:,} tensors differ, of {plural(cell.different, 'parameter')}"
        )
    uncompared = f", {cell.uncompared:,} not compared" if cell is not None and cell.uncompared else ""
    return [*line, (f": {said}{uncompared}", "")]


def _differences(cursor: WeightsCursor, width: int, room: int) -> list[Line]:
    listed = cursor.listed
    if not listed or not room:
        return []
    below = len(listed) - cursor.top - room
    shown = listed[cursor.top : cursor.top + room - (below > 0)]
    name = min(max((width_of(safe_text(found.parameter, 200)) for found in shown), default=0), width // 2)
    lines = [_difference(found, name) for found in shown]
    if below > 0:
        lines.append([(f"  {plural(below + 1, 'more parameter')}: space", "dim@space")])
    if cursor.top == 0 and lines:
        first = listed[0].parts[0]
        lines[0] = [
            (f"  {_error(listed[0].parts)} ", "cause"),
            (tensor_words(first) + followers(first, listed[0].parts), "cause"),
            (f"  {size_words(first)}" if len(listed[0].parts) == 1 else "", "dim"),
        ]
    return lines


def _difference(found: ParameterDifference, name: int) -> Line:
    parts = ", ".join(safe_text(d.part, 40) if d.kind is Kind.OPTIMIZER_STATE else d.kind.value for d in found.parts)
    return [
        (f"  {_error(found.parts)} ", ""),
        (fit(safe_text(found.parameter, 200), name, keep_end=True), ""),
        (f"  {parts}", "dim"),
    ]


def _error(parts: Sequence[Divergence]) -> str:
    """Return the largest error, `bits` where only bits differ."""
    errors = [d.error for d in parts]
    if any(math.isnan(error) for error in errors):
        return f"{'?':>8}"
    largest = max(errors)
    return f"{'inf' if math.isinf(largest) else 'bits' if largest == 0 else f'{largest:.2g}':>8}"
