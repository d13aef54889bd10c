"""JSON report: one object with everything, including the rows of JSON Lines.

docs/schema/report.schema.json describes it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from io import TextIOBase
from itertools import islice
from typing import Any, Final, TextIO, cast

from matchers.explain.regions import regions_of
from matchers.status import Role
from numtui.report.jsonl import write_jsonl
from numtui.report.model import Report
from numtui.report.next_steps import next_steps
from numtui.report.parts import CauseFacts, DifferenceFacts, Log, RowFacts
from numtui.report.plan import plan_records

__all__ = ["VERSION", "write"]

VERSION: Final = 1
"""Version of the format. New fields keep it; a renamed or removed one changes it."""

_MAX_ROWS: Final = 1000
"""First causes described in words; every row is in `rows`."""


def write(report: Report, out: TextIO) -> None:
    """Write the report. The text is pure ASCII, a row on each line."""
    head = json.dumps(_head(report), indent=1, allow_nan=False)
    out.write(head.removesuffix("\n}") + ',\n "rows": [')
    rows = _Rows(out)
    write_jsonl(report.comparison, cast("TextIO", rows))
    out.write("\n ]\n}\n" if rows.some else "]\n}\n")


class _Rows(TextIOBase):
    """Writes JSON Lines as the elements of an array."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.some = False

    def write(self, lines: str) -> int:
        """Write whole lines."""
        elements = lines.removesuffix("\n").replace("\n", ",\n")
        self._out.write(f"{',' if self.some else ''}\n{elements}")
        self.some = True
        return len(lines)


def _head(r: Report) -> dict[str, Any]:
    both, only_a, only_b = r.excluded
    return {
        "version": VERSION,
        "numtui": r.version,
        "a": _log(r.logs[0]),
        "b": _log(r.logs[1]),
        "comparable": r.comparable,
        "notes": [asdict(note) for note in r.notes],
        "judged_by": r.judged_by,
        "result": r.result,
        "coverage": _coverage(r),
        "certificate": list(r.certificate),
        "red": r.red,
        "counts": {status.label: n for status, n in r.counts},
        "first_difference": None if r.first_difference is None else _difference(r.first_difference),
        "first_causes": r.cause_count,
        "causes": [_cause(cause) for cause in r.causes(_MAX_ROWS)],
        "further_causes": [_row(row) for row in r.further(_MAX_ROWS)],
        "independent_causes": r.independent or None,
        "beginnings": [_row(row) for row in map(r.row, r.beginning_rows[:_MAX_ROWS].tolist())],
        "recompute_mismatches": [asdict(found) for found in r.mismatches[:_MAX_ROWS]],
        "regions": [asdict(region) for region in islice(regions_of(r.comparison), _MAX_ROWS)],
        "gate": {
            "fail_on": list(r.options.fail_on),
            "failures": [asdict(failure) for failure in r.failures],
            "allowed_rows": int(r.allowed.rows.sum()),
        },
        "dtype_policy": [{"a": a, "b": b} for a, b in r.comparison.policy],
        "uncertain": None if r.doubt is None else asdict(r.doubt),
        "drift": [asdict(family) for family in r.families],
        "next": [step._asdict() for step in next_steps(r)],
        "plan": plan_records(r.comparison),
        "excluded": {"both": list(both), "only_a": list(only_a), "only_b": list(only_b)},
        "rules": {
            "path": r.options.rules_path,
            "found": r.options.rules_found,
            "used": [asdict(rule) for rule in r.rules],
            "broken": list(r.broken_rules),
        },
    }


def _coverage(r: Report) -> dict[str, Any]:
    known = r.comparison.coverage
    sides = {name: asdict(side) | {"operations": side.operations} for name, side in (("a", known.a), ("b", known.b))}
    return {"sentence": r.extent, "enough": known.enough, **sides, "parts": [asdict(part) for part in known.parts]}


def _log(log: Log) -> dict[str, Any]:
    told = asdict(log)
    del told["side"]
    told["problems"] = [{"line": line, "message": message} for line, message in log.problems]
    told["losses"] = list(map(_number, log.losses))
    told["gradient_norm"] = None if log.gradient_norm is None else _number(log.gradient_norm)
    return told


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _cause(cause: CauseFacts) -> dict[str, Any]:
    growth = [{"phase": phase, "place": place, "error": error} for phase, place, error in cause.growth]
    told = {name: getattr(cause, name) for name in ("red", "assumed", "masked", "modules", "follows")}
    return _row(cause.row) | {"rows": list(cause.rows), **told, "growth": growth}


def _difference(found: DifferenceFacts) -> dict[str, Any]:
    told = {field.name: getattr(found, field.name) for field in fields(found) if field.name != "row"}
    return _row(found.row) | told | {"reasons": list(found.reasons), "differs": list(found.differs)}


def _row(row: RowFacts) -> dict[str, Any]:
    return asdict(row) | {
        "status": row.status.label,
        "role": None if row.role == Role.NONE else row.role.label,
    }
