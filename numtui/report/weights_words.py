"""Words for diverging weights, shared by the reports and the screen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matchers.weights.compare import Divergence, Kind, StepSummary, WeightsComparison
from matchers.weights.matrix import Matrix
from numtui.report.next_steps import NextStep
from numtui.text.counts import plural
from numtui.text.safe import safe_text
from numtui.weight_inputs import log_of_step

__all__ = [
    "LEGEND",
    "cell_text",
    "followers",
    "gradient_agrees",
    "logs_of_step",
    "next_commands",
    "no_difference",
    "size_words",
    "tensor_words",
    "unlogged_before",
]

_MAX_NAME = 100

LEGEND = {
    "=": "no difference",
    "*": "some tensors are in one run only, or have other shapes or shards",
    "?": "no tensor could be compared",
    "–": "step not in both logs",
}
"""Signs of `cell_text`."""


def cell_text(cell: StepSummary | None) -> str:
    """Return the number of different tensors, or a sign of `LEGEND`."""
    if cell is None:
        return "–"
    if not cell.tensors:
        return "?"
    return (f"{cell.different_tensors:,}" if cell.different_tensors else "=") + ("*" if cell.uncompared else "")


def tensor_words(found: Divergence) -> str:
    """Return kind and name: `gradient of wq.weight`, `parameter wq.weight`."""
    name = safe_text(found.parameter, _MAX_NAME)
    if found.kind is Kind.GRADIENT:
        return f"gradient of {name}"
    if found.kind is Kind.OPTIMIZER_STATE:
        return f"optimizer state {safe_text(found.part, 40)} of {name}"
    return f"{found.kind.value} {name}"


def size_words(found: Divergence) -> str:
    """Return the size of a difference."""
    if math.isnan(found.error):
        return "bits differ, size unknown"
    if found.error == 0:
        return "only bits differ"
    if math.isinf(found.error) and found.b.l2 != 0:
        return "NaN or infinity on one side only"
    how = "" if found.a.sketch is not None and found.b.sketch is not None else ", from norms only"
    return f"relative error {found.error:.2g}{how}"


def followers(first: Divergence, differences: Sequence[Divergence]) -> str:
    """Return the further different parts of the same parameter: `, then its parameter, exp_avg`."""
    parts = [
        safe_text(d.part, 40) if d.kind is Kind.OPTIMIZER_STATE else d.kind.value
        for d in differences
        if d.parameter == first.parameter and d.part != first.part
    ]
    return f", then its {', '.join(parts)}" if parts else ""


def gradient_agrees(c: WeightsComparison) -> bool:
    """True when the first difference is the optimizer's: the gradient of its parameter was compared and is equal."""
    if c.first is None or c.first.kind not in (Kind.PARAMETER, Kind.OPTIMIZER_STATE):
        return False
    key = (c.first.step, c.first.parameter, "grad")
    return key in c.a.states and key in c.b.states and key not in c.not_comparable


def no_difference(matrix: Matrix) -> str:
    """Return the verdict on runs that do not diverge; it claims only what was compared."""
    cells = [[matrix.cells[run].get(step) for run in matrix.runs] for step in matrix.steps]
    whole = sum(all(cell is not None and cell.tensors and not cell.uncompared for cell in row) for row in cells)
    if whole == len(matrix.steps):
        return f"No difference in {plural(whole, 'step')} of {plural(len(matrix.logs), 'run')}"
    return f"No difference found, but only {whole:,} of {plural(len(cells), 'step')} could be compared completely"


def unlogged_before(c: WeightsComparison) -> tuple[int, int] | None:
    """Return the steps before the first difference that are not in both logs, where it may have begun."""
    if c.first is None:
        return None
    before = max((s.step for s in c.steps if s.step < c.first.step), default=0)
    return (before + 1, c.first.step - 1) if before + 1 < c.first.step else None


def logs_of_step(matrix: Matrix, run: int, step: int) -> tuple[str, str] | None:
    """Return the logs of operations of a step, of the reference and of a run; None unless both exist."""
    a, b = (log_of_step(matrix.logs[i].path, step) for i in (matrix.reference_of(run), run))
    return (a, b) if a is not None and b is not None else None


def next_commands(matrix: Matrix) -> list[NextStep]:
    """Return commands that say more about the first differences, the earliest first."""
    if matrix.first is None:
        return []
    found = []
    for run, first in matrix.divergences:
        if (logs := logs_of_step(matrix, run, first.step)) is not None:
            why = f"names the first operation of step {first.step} that differs"
            found.append(NextStep(("numtui", "diff", *logs), why))
    if len(matrix.logs) > 2:
        paths = (matrix.logs[matrix.reference_of(matrix.first[0])].path, matrix.logs[matrix.first[0]].path)
        why = "shows the largest difference after each step"
        found.append(NextStep(("numtui", "weights", *paths), why))
    return found
