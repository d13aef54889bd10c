"""Plan of the next capture: the operations that `numtui capture --save` is to keep whole, each with its reason.

JSON, a record a line, to be read and edited by a person; the capture reads it with the standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TextIO

from capture.keeping.form import PLAN_VERSION
from matchers.comparison import Comparison
from matchers.explain.subject import key_of
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.dataflow import consumers
from numtui import __version__
from numtui.text.counts import plural

__all__ = ["plan_records", "write_plan"]

_MOST_CAUSES: Final = 8


def write_plan(c: Comparison, names: tuple[str, str], out: TextIO) -> None:
    """Write the plan of a comparison, in ASCII."""
    head = json.dumps({"version": PLAN_VERSION, "numtui": __version__, "a": names[0], "b": names[1]})
    records = ",\n".join(map(json.dumps, plan_records(c)))
    out.write(f'{head.removesuffix("}")}, "records": [\n{records}\n]}}\n')


def plan_records(c: Comparison) -> list[dict[str, Any]]:
    """Return what to keep: first causes, what made their inputs, what reads the unpaired ones; none of merged ranks."""
    if c.single or any(log.members for log in (c.a, c.b)):
        return []
    reasons: dict[int, str] = {}
    for row, why in _rows(c):
        reasons.setdefault(row, why)
    records = [record | {"why": why} for row, why in reasons.items() for record in _records(c, row)]
    return [{"id": k, "why": record.pop("why")} | record for k, record in enumerate(records, 1)]


def _rows(c: Comparison) -> Iterator[tuple[int, str]]:
    causes = c.consequences.causes[:_MOST_CAUSES]
    for cause in causes:
        yield cause.rows[0], f"first cause, explains {plural(cause.red, 'red row')}"
    if (first := c.first_difference) is not None:
        yield first.row, "first difference of the runs"
    for cause in causes:
        row = cause.rows[0]
        if c.pair[row] < 0 and (reader := _reader(c, row)) >= 0:
            yield reader, f"reads {key_of(c, row)}, which one run alone has"
        for maker, slot in _makers(c, row):
            yield maker, f"makes input {slot} of {key_of(c, row)}"


def _sides(c: Comparison, row: int) -> Iterator[tuple[OpLog, int, Ragged, Any]]:
    """Yield log, record, data flow and rows by record of the sides that a row has."""
    if c.flow is not None:
        for log, record, flow, at in (
            (c.a, int(c.row_a[row]), c.flow.a, c.at_a),
            (c.b, int(c.row_b[row]), c.flow.b, c.at_b),
        ):
            if record >= 0:
                yield log, record, flow, at


def _makers(c: Comparison, row: int) -> Iterator[tuple[int, int]]:
    """Yield the rows that made the inputs of a row, and which input."""
    for _, record, flow, at in _sides(c, row):
        for slot, maker in enumerate(flow[record].tolist()):
            if maker >= 0 and at[maker] >= 0:
                yield int(at[maker]), slot


def _reader(c: Comparison, row: int) -> int:
    """Return the first pair that reads what a row made; -1 for none."""
    read = [int(at[k]) for log, record, flow, at in _sides(c, row) for k in consumers(log, record, flow)]
    return min((k for k in read if k >= 0 and c.pair[k] >= 0), default=-1)


def _records(c: Comparison, row: int) -> Iterator[dict[str, Any]]:
    """Yield what a capture knows an operation by, and a collective on the other ranks, whose parts make its result."""
    told: dict[str, Any] = {"rank": next((log.header.run.get("rank") for log, *_ in _sides(c, row)), None)}
    keys = {}
    collective = False
    for side, log, record in (("a", c.a.written, int(c.row_a[row])), ("b", c.b.written, int(c.row_b[row]))):
        keys[f"key_{side}"] = log.keys[record] if record >= 0 else None
        collective |= record >= 0 and bool(log.texts("Group").raw(record))
        for name, digests in (("inputs", log.input_digests), ("outputs", log.digests)):
            if record >= 0 and len(of := digests[record]):
                told[f"{name}_{side}"] = ["-" if one == NO_DIGEST else f"{one:016x}" for one in of.tolist()]
    yield keys | told
    if collective:
        yield {"rank": None, **keys}
