"""Numbers of operations besides their first output: further outputs, inputs changed in place, extremes of inputs."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from matchers.arrays import Bool
from matchers.comparison import Comparison
from matchers.explain.facts import read_numbers
from matchers.logs.op_log import MARKS, OpLog
from matchers.ops.input_statistics import alike
from matchers.ops.values import Result, further_output, written
from numtui.report.html.columns import Block, add_numbers

__all__ = ["add_input_numbers", "add_results"]

_MAX_RESULTS: Final = 64
"""Listed results of one operation: a fused optimizer changes every parameter of the model."""

_Slot = tuple[str, int]
"""An output or an input, by its position."""


def add_results(block: Block, c: Comparison) -> None:
    """Add the further results of each row: names, shapes and L1 norms of both sides, and equality of their bits."""
    rows = np.flatnonzero(_has_more(c.a)[c.row_a] | _has_more(c.b)[c.row_b])
    if not len(rows):
        return
    count = np.zeros(len(c), np.int32)
    found: list[tuple[str, Result | None, Result | None]] = []
    left_out: dict[str, int] = {}
    for row in rows.tolist():
        a, b = (_more(log, int(at[row])) for log, at in ((c.a, c.row_a), (c.b, c.row_b)))
        slots = sorted({*a, *b}, key=lambda slot: (slot[0] == "input", slot[1]))
        if len(slots) > _MAX_RESULTS:
            left_out[str(row)] = len(slots) - _MAX_RESULTS
        for slot in slots[:_MAX_RESULTS]:
            x, y = a.get(slot), b.get(slot)
            named = next(result.name for result in (x, y) if result is not None)
            found.append((f"{named}, changed" if slot[0] == "input" else named, x, y))
        count[row] = min(len(slots), _MAX_RESULTS)
    block.add("results", count)
    block.head["resultsLeftOut"] = left_out
    number = block.intern("resultNames", [name for name, _, _ in found])
    block.add("resultName", np.array([number[name] for name, _, _ in found], np.int32))
    sides = {"A": [x for _, x, _ in found], "B": [y for _, _, y in found]}
    number = block.intern("resultTypes", [_type(result) for side in sides.values() for result in side])
    for side, results in sides.items():
        block.add(f"resultType{side}", np.array([number[_type(result)] for result in results], np.int32))
        l1 = np.array([math.nan if result is None else result.l1 for result in results], np.float64)
        there = np.array([result is not None and not _unknown(result) for result in results], bool)
        add_numbers(block, "result", side, l1, there)
    bits = [_same_bits(x, y) for _, x, y in found]
    block.add("resultDigest", np.array(bits, np.uint8))


def add_input_numbers(block: Block, c: Comparison) -> None:
    """Add extremes, means and checksums of inputs where they differ, by row: name, both sides, difference."""
    rows = np.flatnonzero((c.row_a >= 0) & (c.row_b >= 0))
    i, j = (of[rows] for of in (c.row_a, c.row_b))
    rows = rows[~alike(c.a, c.b, i, j)]
    found = {str(row): [[f.name, f.a, f.b, f.difference] for f in read_numbers(c, row)] for row in rows.tolist()}
    block.head["inputNumbers"] = {row: facts for row, facts in found.items() if facts}


def _has_more(log: OpLog) -> Bool:
    """bool[record + 1]: records with further outputs or changed inputs; the last entry serves index -1."""
    more = np.append(log.outputs.count > 1, False)
    more[list(log.texts("Mutated"))] = True
    return more


def _more(log: OpLog, record: int) -> dict[_Slot, Result]:
    """Return the further outputs and the changed inputs of a record; nothing for record -1."""
    if record < 0:
        return {}
    values, digests = log.outputs[record].tolist(), log.digests[record].tolist()
    outputs = {
        ("output", k): further_output(log, record, k)
        or Result(
            name=f"output {k}",
            l1=values[k],
            digest=digests[k] if k < len(digests) and digests[k] not in MARKS else None,
        )
        for k in range(1, len(values))
    }
    return outputs | {("input", slot): result for slot, result in written(log, record).items()}


def _unknown(result: Result) -> bool:
    """True if nothing is known of the size of a result's numbers: NaN is a finding, a missing norm is none."""
    return math.isnan(result.l1) and result.nan <= 0


def _type(result: Result | None) -> str:
    if result is None:
        return ""
    shape = "" if result.shape is None else f"[{', '.join(map(str, result.shape))}]"
    return f"{shape} {result.dtype.removeprefix('torch.')}".strip()


def _same_bits(x: Result | None, y: Result | None) -> int:
    """Return 0 for unknown, 1 for equal and 2 for different bits."""
    if x is None or y is None or x.digest is None or y.digest is None:
        return 0
    return 1 if x.digest == y.digest else 2
